//! A Rust program that links SQLite through rusqlite and registers the VFS, as the crate's documentation shows.
//!
//! rusqlite includes its own SQLite, which is newer than Debian's, with which the clients are tested.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "to register takes SQLite's C functions")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, ffi};

fn register(as_default: bool) {
    // SAFETY: they are the functions of one SQLite, which is never unloaded.
    let registered = unsafe {
        forebay_sqlite::register(
            ffi::sqlite3_vfs_find,
            ffi::sqlite3_vfs_register,
            ffi::sqlite3_mprintf,
            ffi::sqlite3_uri_parameter,
            ffi::sqlite3_log,
            as_default,
        )
    };
    registered.unwrap();
}

fn open(path: &Path) -> Connection {
    Connection::open(format!("file:{}?vfs=forebay", path.display())).unwrap()
}

fn number(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

fn text(db: &Connection, sql: &str) -> String {
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// The number of pages that a connection has requested.
fn asked(db: &Connection) -> u64 {
    let stats = text(db, "pragma forebay_stats");
    let value = |name| stats.split(' ').find_map(|it| it.strip_prefix(name));
    value("asked=").unwrap().parse().unwrap()
}

/// One test, since a default belongs to the process.
#[test]
fn a_program_that_links_rusqlite_looks_ahead_and_stays_right() {
    println!("SQLite {}", rusqlite::version());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    ffi_initialize();
    register(false);
    register(false);
    for mode in ["delete", "wal"] {
        let mut db = open(&path);
        db.pragma_update(None, "journal_mode", mode).unwrap();
        let transaction = db.transaction().unwrap();
        transaction
            .execute_batch(
                "drop table if exists t;
                 create table t(a integer primary key, k, b);
                 with recursive n(i) as (values (1) union all select i + 1 from n where i < 6000)
                 insert into t select i, i * 7919 % 10007, randomblob(2500) from n;
                 create index by_k on t(k);",
            )
            .unwrap();
        transaction.commit().unwrap();
        let _ = db.pragma_update(None, "wal_checkpoint", "truncate");
        let stock = Connection::open(&path).unwrap();
        assert!(stock.pragma_query_value(None, "forebay_stats", |_| Ok(())).is_err(), "stock");
        let sql = "select sum(length(b)) + sum(a * k) from t where k between 100 and 4000";
        let expected = number(&stock, sql);
        cold(&path);
        assert_eq!(number(&db, sql), expected, "{mode}");
        let asked = asked(&db);
        println!("{mode}: {asked} pages prefetched");
        for db in [&db, &stock] {
            assert_eq!(text(db, "pragma integrity_check"), "ok");
        }
        // Each connection reads what the other has written, and an examined page does not hide a change to it.
        stock.execute("update t set k = k + 1 where a % 3 = 0", []).unwrap();
        assert_eq!(number(&db, sql), number(&stock, sql), "{mode}");
        db.execute("delete from t where k < 2000", []).unwrap();
        db.execute_batch("vacuum").unwrap();
        assert_eq!(number(&db, sql), number(&stock, sql), "{mode}");
    }
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let named = Connection::open_with_flags_and_vfs(&path, read_only, "forebay").unwrap();
    assert_eq!(asked(&named), 0);
    register(true);
    let by_default = Connection::open(&path).unwrap();
    assert_eq!(asked(&by_default), 0);
    assert_eq!(
        number(&by_default, "select count(*) from t"),
        number(&named, "select count(*) from t")
    );
}

/// This SQLite bypasses its cache for overflow pages. It reads those of a value once for each use, and of the last page
/// only a part.
#[test]
fn overflow_pages_are_prefetched_where_sqlite_reads_them_past_its_cache() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    ffi_initialize();
    register(false);
    let db = open(&path);
    db.execute_batch(
        "pragma synchronous=off;
         create table t(a integer primary key, k, b);
         create index by_k on t(k);
         begin;
         with recursive n(i) as (values (1) union all select i + 1 from n where i < 1000)
         insert into t select i * 7919 % 1009, i * 104729 % 1000003, randomblob(18000 + i * 31 % 9000) from n;
         commit;",
    )
    .unwrap();
    let stock = Connection::open(&path).unwrap();
    let sql = "select sum(length(b || 'x')) + sum(unicode(substr(hex(b), -1))) from t where k > 0";
    let expected = number(&stock, sql);
    let db = open(&path);
    cold(&path);
    assert_eq!(number(&db, sql), expected);
    let stats = text(&db, "pragma forebay_stats");
    if stats.starts_with("wakes=0") {
        println!("skipped: reads of this disk do not wait");
        return;
    }
    // A leaf and five or six overflow pages for each row.
    let asked = asked(&db);
    assert!((500..7_500).contains(&asked), "{stats}");
}

fn ffi_initialize() {
    // SAFETY: it has no arguments, and may be called at any time.
    assert_eq!(unsafe { ffi::sqlite3_initialize() }, ffi::SQLITE_OK);
}

/// Drops a database from the page cache, through a descriptor that is not closed: closing it would release SQLite's
/// locks.
fn cold(path: &Path) {
    let file = std::mem::ManuallyDrop::new(File::open(path).unwrap());
    file.sync_all().unwrap();
    rustix::fs::fadvise(&*file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}
