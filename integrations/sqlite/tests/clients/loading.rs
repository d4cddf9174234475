//! Loading: error messages, several copies, a library that is closed, the shell's start.

use crate::client::shell;
use crate::python_says;

/// SQLite's functions by ctypes, and the message of a load that fails.
const SQLITE: &str = "
import ctypes, ctypes.util, shutil
sqlite = ctypes.CDLL(ctypes.util.find_library('sqlite3') or 'libsqlite3.so.0')
find, register = sqlite.sqlite3_vfs_find, sqlite.sqlite3_vfs_register
find.restype = ctypes.c_void_p
register.argtypes = [ctypes.c_void_p, ctypes.c_int]
functions = [find, register, sqlite.sqlite3_mprintf, sqlite.sqlite3_uri_parameter, sqlite.sqlite3_log]
def refused(entry=None):
    try: load(entry)
    except sqlite3.OperationalError as error: return error
";

fn sqlite_says(test: &str, script: &str) -> Option<String> {
    python_says(test, &format!("{SQLITE}{script}"))
}

/// Both VFSs that come with SQLite and VFSs that a program provides.
#[test]
fn over_other_default_file_systems_it_is_as_they_are_or_says_why_not() {
    let says = sqlite_says(
        "over_other_default_file_systems",
        "
sqlite3.connect(':memory:')
# One of version 1: nothing is left behind.
unix = find(None)
old = ctypes.create_string_buffer(ctypes.string_at(unix, 168))
ctypes.cast(old, ctypes.POINTER(ctypes.c_int))[0] = 1
name = ctypes.create_string_buffer(b'old')
ctypes.cast(old, ctypes.POINTER(ctypes.c_void_p))[3] = ctypes.addressof(name)
register(ctypes.addressof(old), 1)
print(refused(), sqlite3.connect(':memory:').execute('select 1').fetchall())
# One without shared memory: no write-ahead log, as without us, but mapped files.
none = find(b'unix-none')
register(none, 1)
load()
db = connect()
print(db.execute('pragma journal_mode=wal').fetchone())
db.execute('create table t as with recursive n(i) as (values (1) union all select i + 1 from n where i < 1000) select zeroblob(1000) b from n')
reads = []
for size in 0, 10**9:
    db = connect()
    db.execute(f'pragma mmap_size={size}')
    db.execute('select count(b) from t').fetchall()
    reads.append(db.execute('select sum(reads) from forebay_stats').fetchone()[0])
print(reads[0] > 250, reads[1] < 50)
# Another has become the default since.
register(unix, 1)
print(refused('sqlite3_forebay_default_init'), find(None) == unix)
register(none, 1)
print(refused('sqlite3_forebay_default_init'), find(None) == find(b'forebay'))
",
    );
    let expected = "\
        error during initialization: forebay: the default VFS is older than version 3: make another the default first [(1,)]\n\
        ('delete',)\nTrue True\n\
        error during initialization: forebay: another VFS has become the default since forebay was registered: make forebay the default before it True\n\
        None True\n";
    assert!(says.as_deref().is_none_or(|says| says == expected), "{says:?}");
}

/// Its table of functions is shorter than today's: only the part that all versions have is used.
#[test]
fn an_old_sqlite_is_refused_by_its_version() {
    let says = sqlite_says(
        "an_old_sqlite_is_refused",
        "
ours = ctypes.CDLL(library)
version = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 3034001)
routines = (ctypes.c_void_p * 70)(*[1] * 70)
routines[67] = ctypes.cast(version, ctypes.c_void_p).value
routines[69] = ctypes.cast(sqlite.sqlite3_mprintf, ctypes.c_void_p).value
for entry in ours.sqlite3_forebaysqlite_init, ours.sqlite3_extension_init, ours.sqlite3_forebay_default_init:
    message = ctypes.c_char_p()
    print(entry(None, ctypes.byref(message), routines), message.value.decode())
",
    );
    let line = "1 forebay: SQLite 3.34.1 is too old: use 3.35 or later\n";
    assert!(says.as_deref().is_none_or(|says| says == line.repeat(3)), "{says:?}");
}

#[test]
fn a_second_copy_leaves_all_to_the_first() {
    let says = sqlite_says(
        "a_second_copy_leaves_all_to_the_first",
        "
load()
db = connect()
db.execute('create table t(a)')
first, library = library, path + '.copy.so'
shutil.copy(first, library)
load()
db.enable_load_extension(True)
db.execute('select load_extension(?)', [library])
print(refused('sqlite3_forebay_default_init'))
for db in db, connect():
    db.execute('select * from t').fetchall()
    print(db.execute('select count(*) > 0 from forebay_stats').fetchall())
",
    );
    let expected = "error during initialization: forebay: another copy of forebay is loaded in this process: load that copy's entry point for the default\n\
        [(1,)]\n[(1,)]\n";
    assert!(says.as_deref().is_none_or(|says| says == expected), "{says:?}");
}

#[test]
fn c_programs_register_it_by_one_function_and_may_close_the_library() {
    let says = sqlite_says(
        "c_programs_register_it",
        "
import _ctypes
ours = ctypes.CDLL(library)
sqlite.sqlite3_initialize()
for _ in range(2):
    print(ours.forebay_sqlite_register(*functions, 0))
_ctypes.dlclose(ours._handle)
db = connect()
db.execute('create table t(a)')
print(len(db.execute('pragma forebay_stats').fetchall()))
",
    );
    assert!(says.as_deref().is_none_or(|says| says == "0\n0\n1\n"), "{says:?}");
}

#[test]
fn values_of_the_uri_that_are_not_valid_fail_the_open_and_are_logged() {
    let says = sqlite_says(
        "values_of_the_uri_that_are_not_valid",
        "
logged = []
@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
def log(_, code, message):
    if message.startswith(b'forebay: '): logged.append((code, message))
SQLITE_CONFIG_LOG = 16
sqlite.sqlite3_shutdown()
print(sqlite.sqlite3_config(SQLITE_CONFIG_LOG, log, None))
load()
connect('&readahead=scan&distance_max=7&memory=100000&other=9').execute('create table t(a)')
for bad in 'readahead=never', 'distance_max=0', 'memory=lots', 'distance_max=%ff', 'readahead':
    for first in connect, sqlite3.connect(':memory:').execute:
        try:
            if first == connect: connect('&' + bad)
            else: first('attach ? as a', [f'file:{path}?vfs=forebay&{bad}'])
        except sqlite3.OperationalError as error: print(str(error).replace(path, 'PATH'))
    assert len(logged) == 2
    code, message = logged.pop()
    print(code, message.replace(path.encode(), b'PATH'))
    logged.clear()
",
    );
    let reasons = [
        ("readahead=never", "readahead=never", "forebay_readahead is off, scan or full"),
        ("distance_max=0", "distance_max=0", "forebay_distance_max is 1 to 1024 pages"),
        ("memory=lots", "memory=lots", "forebay_memory is 65536 bytes or more"),
        ("distance_max=%ff", "distance_max=\\xff", "forebay_distance_max is 1 to 1024 pages"),
        ("readahead", "readahead=", "forebay_readahead is off, scan or full"),
    ];
    let lines = reasons.map(|(given, logged, why)| {
        format!(
            "unable to open database file\n\
             unable to open database: file:PATH?vfs=forebay&{given}\n\
             14 b'forebay: {logged} in the URI of PATH: {why}'\n"
        )
    });
    let expected = format!("0\n{}", lines.concat());
    assert!(says.as_deref().is_none_or(|says| says == expected), "{says:?}");
}

/// The manual's lines for ~/.sqliterc, exactly as printed there.
#[test]
fn the_shells_start_leaves_statements_to_the_database_that_they_are_meant_for() {
    let Some(shell) = shell("the_shells_start_leaves_statements") else { return };
    let manual = include_str!("../../../../docs/sqlite.md");
    let (_, after) = manual.split_once("if `~/.sqliterc` says:").unwrap();
    let lines = after.split("```sqlite").nth(1).unwrap().split("```").next().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (rc, data, other) = (file("rc"), file("data.db"), file("other.db"));
    let library = shell.library().with_extension("");
    std::fs::write(&rc, lines.replace("./libforebay_sqlite", library.to_str().unwrap())).unwrap();
    for path in [&data, &other] {
        shell.shell(&[&format!(".open {path}"), "create table t(a)"]);
    }
    shell.shell_of(&other, &["-init", &rc], &["create table oops(x)"]);
    let tables =
        |path: &str| shell.shell_of(path, &[], &["select group_concat(name) from sqlite_schema"]);
    assert_eq!((tables(&data).trim(), tables(&other).trim()), ("t", "t,oops"));
    // The manual's statements on a database that is opened afterwards, and on the check that the extension is active.
    let open = format!(".open {data}");
    let says =
        shell.shell_of(":memory:", &["-init", &rc, "-cmd", &open], &["pragma forebay_stats"]);
    assert!(says.starts_with("wakes=0 "), "{says}");
    assert_eq!(shell.shell_of(&data, &["-init", &rc], &["pragma forebay_stats"]), "", "too early");
}
