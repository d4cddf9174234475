//! Threads and processes that write at once, through the VFS and through SQLite's own; some of them are killed.

use crate::client::{OPEN, python};
use crate::python_says;

#[test]
fn threads_and_processes_with_it_and_without_it_write_at_once() {
    let says = python_says(
        "threads_and_processes",
        "
load()
import subprocess
setup = connect()
mode = setup.execute('pragma journal_mode=wal').fetchone()
setup.execute('create table t(a integer primary key, who)')
adder = '''
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60)
for i in range(100):
    db.execute('insert into t(who) values (?)', ['stock'])
    db.commit()
'''
other = subprocess.Popen([sys.executable, '-c', adder, path])
def work(who):
    db = connect()
    for i in range(100):
        db.execute('insert into t(who) values (?)', [who])
        db.execute('select sum(a) from t').fetchall()
threads = [threading.Thread(target=work, args=[who]) for who in 'ab']
for each in threads: each.start()
for each in threads: each.join()
assert other.wait() == 0
print(setup.execute('select who, count(*) from t group by who').fetchall())
print(setup.execute('pragma integrity_check').fetchall())
",
    );
    assert!(
        says.is_none_or(|says| { says == "[('a', 100), ('b', 100), ('stock', 100)]\n[('ok',)]\n" })
    );
}

fn kill(mode: &str) {
    let test = "processes_that_are_killed";
    let directory = tempfile::tempdir().unwrap();
    let Some(python) = python(test) else { return };
    let Some(python) = python.with_slow_reads(test, directory.path()) else { return };
    // FOREBAY_SQLITE_KILLS sets another number.
    let kills = std::env::var("FOREBAY_SQLITE_KILLS").unwrap_or("10".to_owned());
    let seed = std::env::var("FOREBAY_SQLITE_SEED").unwrap_or("1".to_owned());
    let script = format!("{OPEN}{}", include_str!("kills.py"));
    let says =
        python.python_with(&script, &directory.path().join("data.db"), &[mode, &kills, &seed]);
    let (in_the_middle, asked) = says.trim().split_once(' ').unwrap();
    println!("{mode}: {kills} killed, {in_the_middle} in a transaction; {asked} pages prefetched");
    assert!(in_the_middle.parse::<u64>().unwrap() * 3 > kills.parse::<u64>().unwrap(), "{says}");
    assert!(asked.parse::<u64>().unwrap() > 0, "nothing was looked ahead of");
}

#[test]
fn processes_that_are_killed_leave_whole_transactions_with_a_rollback_journal() {
    kill("delete");
}

#[test]
fn processes_that_are_killed_leave_whole_transactions_with_a_write_ahead_log() {
    kill("wal");
}
