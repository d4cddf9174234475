"use strict";
// Read-ahead for SQLite: the VFS `forebay` requests the pages that a query will read next.

const path = require("node:path");

/** The path of the extension, for programs that load it themselves. */
function getLoadablePath() {
  return path.join(__dirname, `linux-${process.arch}`, "libforebay_sqlite.so");
}

/**
 * Makes the VFS `forebay` known to the SQLite of `db`, for the life of the process: a Database of better-sqlite3, or a
 * DatabaseSync of node:sqlite that was opened with allowExtension. Databases that are opened afterwards by the URI
 * `file:data.db?vfs=forebay` read through it; where a client accepts no URI, use loadDefault.
 */
function load(db) {
  db.loadExtension(getLoadablePath());
}

/** The same, for every database that the process opens from then on, without a URI. Needs a client that can name an entry point. */
function loadDefault(db) {
  db.loadExtension(getLoadablePath(), "sqlite3_forebay_default_init");
}

module.exports = { getLoadablePath, load, loadDefault };
