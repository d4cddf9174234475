//! Real clients with the extension: Python's sqlite3 and the sqlite3 shell.
//!
//! If one is missing, tests print `skipped` and add that to the file named by FOREBAY_SKIPS.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../client/mod.rs"]
mod client;
mod differential;
mod loading;
mod locks;
mod memory;
mod own_tests;
mod processes;

use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;

use client::{OPEN, python, shell};

fn python_says(test: &str, script: &str) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let python = python(test)?;
    Some(python.python(&format!("{OPEN}{script}"), &directory.path().join("data.db")))
}

#[test]
fn what_is_written_through_it_is_read_without_it_and_the_other_way_round() {
    let says = python_says(
        "what_is_written_through_it",
        "
load()
for size in 512, 1024, 4096, 65536:
    for mode in 'delete', 'truncate', 'persist', 'wal', 'memory', 'off':
        path = f'{sys.argv[2]}.{size}.{mode}'
        db = connect()
        db.execute(f'pragma page_size={size}')
        assert db.execute(f'pragma journal_mode={mode}').fetchone() == (mode,)
        db.execute('create table t(a integer primary key, b text)')
        db.execute('begin')
        db.executemany('insert into t(b) values (?)', ((f'row {i}' * 9,) for i in range(500)))
        db.execute('commit')
        stock = sqlite3.connect(path)
        assert stock.execute('select count(*), sum(length(b)) from t').fetchone() == \\
            db.execute('select count(*), sum(length(b)) from t').fetchone()
        stock.execute('delete from t where a % 2')
        stock.commit()
        assert db.execute('select count(*) from t').fetchone() == (250,)
        db.execute('vacuum')
        for each in db, stock:
            assert each.execute('pragma integrity_check').fetchall() == [('ok',)]
            each.close()
print('well')
",
    );
    assert!(says.is_none_or(|says| says == "well\n"));
}

#[test]
fn the_default_entry_point_serves_programs_that_cannot_be_changed() {
    let says = python_says(
        "the_default_entry_point",
        "
load('sqlite3_forebay_default_init')
db = sqlite3.connect(path)
db.execute('create table t(a)')
print(len(db.execute('select * from t').fetchall()))
load()
load('sqlite3_forebay_default_init')
db.execute('insert into t values (1)')
db.commit()
print(sqlite3.connect(path).execute('select * from t').fetchall())
print(sqlite3.connect(':memory:').execute('select 1').fetchall())
",
    );
    assert!(says.is_none_or(|says| says == "0\n[(1,)]\n[(1,)]\n"));
}

#[test]
fn the_shell_loads_it_and_names_it() {
    let Some(shell) = shell("the_shell_loads_it_and_names_it") else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    let load = format!(".load {}", shell.library().display());
    let open = format!(".open file:{}?vfs=forebay", path.display());
    let made = "create table t(a); insert into t values (42);";
    assert_eq!(
        shell.shell(&[&load, &open, made, ".vfsname", "select a from t"]),
        "forebay/unix\n42\n"
    );
    assert_eq!(shell.shell(&[&format!(".open {}", path.display()), "select a from t"]), "42\n");
}

#[test]
fn settings_come_by_uri_and_by_pragma() {
    let says = python_says(
        "settings_come_by_uri",
        "
load()
def all(db):
    names = 'readahead', 'distance_max', 'memory'
    return [db.execute(f'pragma forebay_{name}').fetchone()[0] for name in names]
print(all(connect()))
print(all(connect('&readahead=scan&distance_max=7&memory=100000')))
db = connect()
print(db.execute('pragma forebay_readahead=off').fetchone()[0], db.execute('PRAGMA Forebay_Distance_Max(9)').fetchone()[0])
print(all(db))
for value in 'distance_max=1025', 'memory=1', 'readahead=never':
    try:
        db.execute(f'pragma forebay_{value}')
    except sqlite3.OperationalError as error:
        print(error)
print(db.execute('pragma forebay_stats').fetchone()[0])
print(db.execute('pragma forebay_nothing').fetchall())
",
    );
    let expected = "['full', '128', '16777216']\n['scan', '7', '100000']\n\
        off 9\n['off', '9', '16777216']\n\
        forebay_distance_max is 1 to 1024 pages\nforebay_memory is 65536 bytes or more\n\
        forebay_readahead is off, scan or full\nwakes=0 asked=0 useful=0 waited_us=0\n[]\n";
    assert!(says.is_none_or(|says| says == expected));
}

/// Drops the file from the page cache through a descriptor that is never closed: closing one would lose locks.
const COLD: &str = "
kept = {}
def cold(path):
    if path not in kept: kept[path] = os.open(path, os.O_RDONLY)
    os.fsync(kept[path])
    os.posix_fadvise(kept[path], 0, 0, os.POSIX_FADV_DONTNEED)
";

/// A table whose rows are in another order than its index: reads half of it cold, and then again.
const BY_INDEX: &str = "
load()
db = connect()
db.execute('create table t(a integer primary key, k, b)')
db.execute('begin')
db.executemany('insert into t(k, b) values (?, zeroblob(3000))', [[i * 7919 % 10007] for i in range(10000)])
db.execute('create index by_k on t(k)')
db.execute('commit')
db.close()
def asked(before_query):
    db = connect('&distance_max=64')
    before_query()
    db.execute('select count(b), sum(length(b)) from t where k between 0 and 5000').fetchall()
    return dict(pair.split('=') for pair in db.execute('pragma forebay_stats').fetchone()[0].split())
first = asked(lambda: cold(path))
second = asked(lambda: None)
print(first['wakes'], first['asked'], first['useful'], second['asked'])
";

#[test]
fn cold_rows_of_an_index_are_prefetched_and_warm_ones_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let test = "cold_rows_of_an_index_are_prefetched";
    let Some([asked, useful, warm]) = prefetched(test, directory.path()) else { return };
    assert!((3_000..=5_300).contains(&asked) && useful + 300 >= asked, "{asked}, {useful}");
    // On a busy machine a read of memory may seem to wait, and is followed by a few requests.
    assert!(warm < asked / 2, "{warm} of {asked}");
}

/// The overlay does not report what is in memory. Only the requests are tested: other tests read the same disk.
#[test]
fn so_they_are_in_the_overlay_of_a_container() {
    let test = "so_they_are_in_the_overlay_of_a_container";
    let directory = tempfile::tempdir().unwrap();
    let [lower, upper, work, merged] =
        ["lower", "upper", "work", "merged"].map(|name| directory.path().join(name));
    for made in [&lower, &upper, &work, &merged] {
        std::fs::create_dir(made).unwrap();
    }
    let options = [("lowerdir", &lower), ("upperdir", &upper), ("workdir", &work)]
        .map(|(name, path)| format!("{name}={}", path.display()));
    let mut mount = Command::new("mount");
    mount.args(["-t", "overlay", "overlay", "-o", &options.join(",")]).arg(&merged);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        client::skip(test, "no overlay can be mounted");
        return;
    }
    let outcome = catch_unwind(|| prefetched(test, &merged));
    assert!(Command::new("umount").arg(&merged).status().unwrap().success());
    let Some([asked, useful, _]) = outcome.unwrap() else { return };
    assert!(asked > 1_000 && useful > asked / 2, "{asked}, {useful}");
}

/// Pages requested, useful pages, and pages requested when all is in memory. Returns `None`, and counts a skip, if no
/// read waits.
fn prefetched(test: &str, directory: &Path) -> Option<[u32; 3]> {
    let python = python(test)?;
    let says = python.python(&format!("{OPEN}{COLD}{BY_INDEX}"), &directory.join("data.db"));
    let counts: Vec<u32> = says.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [wakes, asked, useful, warm] = counts[..] else { panic!("{says}") };
    if wakes == 0 {
        client::skip(test, "reads of this disk do not wait");
        return None;
    }
    Some([asked, useful, warm])
}
