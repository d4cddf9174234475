"""Read-ahead for SQLite: the VFS `forebay` requests the pages that a query will read next.

    import forebay_sqlite

    db = forebay_sqlite.connect("data.db")

`load(connection)` makes the VFS known to the SQLite of any connection, of this module or of apsw; databases are then opened by
a URI, `file:data.db?vfs=forebay`. `loadable_path()` is for programs that load the extension themselves.
"""

import ctypes
import os
import pathlib
import sqlite3

__all__ = ["connect", "load", "loadable_path", "stats"]

_FUNCTIONS = ["sqlite3_vfs_find", "sqlite3_vfs_register", "sqlite3_mprintf", "sqlite3_uri_parameter", "sqlite3_log"]
_registered = False


def loadable_path():
    """The path of the extension, without its suffix, as SQLite's load_extension expects it."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libforebay_sqlite")


def load(connection):
    """Makes the VFS `forebay` known to the SQLite that `connection` belongs to, for the life of the process."""
    if hasattr(connection, "enable_load_extension"):
        connection.enable_load_extension(True)
        try:
            connection.load_extension(loadable_path())
        finally:
            connection.enable_load_extension(False)
    else:
        # This Python was built without loadable extensions.
        _register()


def connect(database, **options):
    """sqlite3.connect with the VFS `forebay`. `options` are those of sqlite3.connect; `database` may be a path or a URI."""
    _load_once()
    name = os.fspath(database)
    if name in ("", ":memory:"):
        return sqlite3.connect(name, **options)
    if not (options.pop("uri", False) and name.startswith("file:")):
        name = pathlib.Path(os.path.abspath(name)).as_uri()
    name += ("&" if "?" in name else "?") + "vfs=forebay"
    return sqlite3.connect(name, uri=True, **options)


def stats(connection, schema="main"):
    """What look-ahead has done for a database since it was opened, such as {"wakes": 1, "asked": 4850, ...}.

    None if the database was not opened through the VFS.
    """
    row = connection.execute(f'PRAGMA "{schema}".forebay_stats').fetchone()
    return row and {name: int(count) for name, count in (pair.split("=") for pair in row[0].split())}


def _load_once():
    global _registered
    if not _registered:
        connection = sqlite3.connect(":memory:")
        try:
            load(connection)
        finally:
            connection.close()
        _registered = True


def _register():
    """Registers the VFS through C, in the SQLite that this Python uses."""
    import _sqlite3

    extension = ctypes.CDLL(loadable_path() + ".so")
    # Symbols of a library that the module is linked with are found through the module.
    own = ctypes.CDLL(_sqlite3.__file__)
    try:
        functions = [ctypes.cast(getattr(own, name), ctypes.c_void_p) for name in _FUNCTIONS]
    except AttributeError as missing:
        raise sqlite3.NotSupportedError(
            f"this Python can neither load extensions nor show its SQLite's functions ({missing}): use apsw, or another Python"
        ) from None
    register = extension.forebay_sqlite_register
    register.argtypes, register.restype = [ctypes.c_void_p] * 5 + [ctypes.c_int], ctypes.c_int
    code = register(*functions, 0)
    if code != 0:
        raise sqlite3.OperationalError(f"forebay cannot be registered: SQLite's result code {code}; sqlite3_log has the reason")
