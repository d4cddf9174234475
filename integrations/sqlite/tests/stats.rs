//! What users see of look-ahead: the table `forebay_stats`, queried by Python's sqlite3.
//!
//! Without that, tests print `skipped` and add that to the file named by FOREBAY_SKIPS.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[allow(dead_code, reason = "other tests use the rest")]
mod client;

/// Makes a database with a table, an index and a joined table in pages of 4 KiB, without the extension.
const MADE: &str = "
import os, sqlite3, sys
library, path = sys.argv[1:3]
db = sqlite3.connect(path, isolation_level=None)
db.execute('create table \"rows of it\"(a integer primary key, k, b)')
db.execute('begin')
db.executemany('insert into \"rows of it\"(k, b) values (?, zeroblob(3000))', [[i * 7919 % 10007] for i in range(10000)])
db.execute('create index by_k on \"rows of it\"(k)')
db.execute('commit')
db.close()
loader = sqlite3.connect(':memory:')
loader.enable_load_extension(True)
loader.execute('select load_extension(?)', [library])
def connect(arguments=''):
    return sqlite3.connect(f'file:{path}?vfs=forebay{arguments}', uri=True, isolation_level=None)
file = os.open(path, os.O_RDONLY)
def cold():
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
def stats(db, what):
    return db.execute(f'select {what} from forebay_stats order by schema, tree').fetchall()
";

fn python_says(test: &str, script: &str) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let python = client::python(test)?;
    Some(python.python(&format!("{MADE}{script}"), &directory.path().join("data.db")))
}

#[test]
fn each_tree_of_each_database_has_one_row() {
    let test = "each_tree_of_each_database_has_one_row";
    let script = "
db = connect()
db.execute(f'attach \"file:{path}?vfs=forebay\" as \"other one\"')
cold()
db.execute('select sum(length(b)) from \"rows of it\" where k between 0 and 5000').fetchall()
db.execute('select count(b) from \"other one\".\"rows of it\" where a = 7').fetchall()
for row in stats(db, 'schema, tree, reads, prefetched, useful, wasted, resident, waits, wait_ns'):
    print(*row, sep='|')
";
    let Some(says) = python_says(test, script) else { return };
    let rows: Vec<Vec<&str>> = says.lines().map(|line| line.split('|').collect()).collect();
    let number = |row: &[&str], at: usize| row[at].parse::<u64>().unwrap();
    let of = |schema: &str, tree: &str| {
        rows.iter().find(|row| row[0] == schema && row[1] == tree).cloned()
    };
    let other = of("other one", "None").unwrap();
    assert!((1..20).contains(&number(&other, 2)), "a look-up of one row: {says}");
    assert!(rows.iter().all(|row| row[0] == "main" || row[1] == "None"), "{says}");
    let (Some(table), Some(index)) = (of("main", "rows of it"), of("main", "by_k")) else {
        client::skip(test, "reads of this disk do not wait");
        return;
    };
    // 5,000 rows, one leaf each. The first few are read before look-ahead is active; SQLite reads some of them twice.
    assert!((4_800..6_000).contains(&number(&table, 2)), "{says}");
    assert!((10..60).contains(&number(&index, 2)), "{says}");
    for row in [&table, &index] {
        let [reads, prefetched, useful, wasted, resident, waits, wait_ns] =
            std::array::from_fn(|at| number(row, at + 2));
        assert!(useful <= prefetched && useful <= reads, "{says}");
        assert_eq!(wasted, prefetched - useful, "{says}");
        assert!(resident + useful <= reads && waits <= reads, "{says}");
        assert!(wait_ns >= waits * 20_000, "a wait has 20 us at least: {says}");
    }
    assert!(number(&table, 4) > 3_000, "most of them were prefetched: {says}");
}

#[test]
fn all_reads_are_counted_and_each_once() {
    let test = "all_reads_are_counted_and_each_once";
    let script = "
db = connect('&readahead=off')
db.execute('select count(b) from \"rows of it\"').fetchall()
off = sum(reads for reads, in stats(db, 'reads'))
print(stats(db, 'distinct tree'))
db = connect()
cold()
db.execute('select count(b) from \"rows of it\"').fetchall()
cold_reads = sum(reads for reads, in stats(db, 'reads'))
print(off == cold_reads or (off, cold_reads), off > 9000)
stock = sqlite3.connect(path)
print(stats(stock, '*'))
";
    let says = python_says(test, script);
    assert!(says.is_none_or(|says| says == "[(None,)]\nTrue True\n[]\n"));
}

#[test]
fn counts_stay_with_a_tree_that_moves() {
    let test = "counts_stay_with_a_tree_that_moves";
    let script = "
db = connect()
db.execute('create table w(a integer primary key, b)')
db.execute('insert into w select a, zeroblob(3000) from \"rows of it\" order by k')
def scan(table):
    cold()
    return db.execute(f'select count(b) from {table} where a % 2 = 0').fetchall()
scan('w')
before = {tree: reads for tree, reads in stats(db, 'tree, reads')}
db.execute('drop table \"rows of it\"')
db.execute('vacuum')
roots = dict(db.execute('select name, rootpage from sqlite_schema'))
between = {tree: reads for tree, reads in stats(db, 'tree, reads')}
scan('w')
after = {tree: reads for tree, reads in stats(db, 'tree, reads')}
names = set(after) - {None}
print('w' in before, names <= {'w', 'rows of it', 'by_k', 'sqlite_schema'} or names, between.get('w') <= after.get('w', 0) if 'w' in before else True)
";
    let Some(says) = python_says(test, script) else { return };
    if says.starts_with("False") {
        client::skip(test, "reads of this disk do not wait");
        return;
    }
    assert_eq!(says, "True True True\n");
}

#[test]
fn pages_in_a_write_ahead_log_are_not_prefetched_in_the_file() {
    let test = "pages_in_a_write_ahead_log";
    let script = "
query = 'select sum(length(b)) from \"rows of it\" where k between 0 and 8000'
def prefetched(arguments=''):
    cold()
    db = connect(arguments)
    answer = db.execute(query).fetchone()[0]
    row = db.execute('select prefetched, useful from forebay_stats where tree = ?', ['rows of it']).fetchone()
    return answer, *(row or (0, 0))
# A process that may not write the shared memory, as long as this one has it.
(wait, go), (read, write) = os.pipe(), os.pipe()
if os.fork() == 0:
    os.read(wait, 1)
    os.write(write, ' '.join(map(str, prefetched('&readonly_shm=1&mode=ro'))).encode())
    os._exit(0)
stock = sqlite3.connect(path, isolation_level=None)
stock.execute('pragma journal_mode=wal')
stock.execute('pragma wal_autocheckpoint=0')
stock.execute('update \"rows of it\" set b = zeroblob(3001) where a % 4 > 0')
answer = stock.execute(query).fetchone()[0]
print(answer, *prefetched())
os.write(go, b'.')
os.wait()
print(os.read(read, 100).decode())
stock.execute('pragma wal_checkpoint(truncate)')
print(*prefetched())
";
    let Some(says) = python_says(test, script) else { return };
    let counts: Vec<u64> = says.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [answer, ref rest @ ..] = counts[..] else { panic!("{says}") };
    let (connections, _) = rest.as_chunks::<3>();
    let [first, read_only, [_, after, _]] = *connections else { panic!("{says}") };
    assert!(connections.iter().all(|it| it[0] == answer), "{says}");
    if after == 0 {
        client::skip(test, "reads of this disk do not wait");
        return;
    }
    assert!(after > 6_000, "{says}");
    for [_, prefetched, useful] in [first, read_only] {
        assert!(prefetched < 2_200 && useful + 300 > prefetched, "{says}");
    }
}

#[test]
fn a_log_whose_shared_memory_is_stale_and_read_only_is_read() {
    let script = "
import shutil
stock = sqlite3.connect(path, isolation_level=None)
stock.execute('pragma journal_mode=wal')
stock.execute('pragma wal_autocheckpoint=0')
stock.execute('update \"rows of it\" set b = zeroblob(3001) where a % 4 > 0')
# No process has the copy open that could make its shared memory valid.
for end in '', '-wal', '-shm':
    shutil.copy(path + end, path + '.copy' + end)
def answers(vfs):
    for end in '', '-wal':
        with open(path + '.copy' + end) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    db = sqlite3.connect(f'file:{path}.copy?mode=ro&readonly_shm=1&vfs={vfs}', uri=True)
    queries = 'select sum(length(b)) from \"rows of it\" where k between 0 and 8000', 'pragma integrity_check', 'pragma journal_mode'
    return [db.execute(query).fetchone()[0] for query in queries]
unix = answers('unix')
print(answers('forebay') == unix, unix[1:])
";
    let says = python_says("a_log_whose_shared_memory_is_stale_and_read_only_is_read", script);
    assert!(says.is_none_or(|says| says == "True ['ok', 'wal']\n"));
}

#[test]
fn mapped_pages_are_served_as_ever() {
    let script = "
query = 'select sum(length(b)), count(*) from \"rows of it\" where k between 0 and 5000'
answer = sqlite3.connect(path).execute(query).fetchone()
db = connect()
assert db.execute('pragma mmap_size=1000000000').fetchone()[0] > 10**8
for _ in range(2):
    cold()
    assert db.execute(query).fetchone() == answer
    db.execute('update \"rows of it\" set b = zeroblob(3000) where a < 100')
assert db.execute('pragma integrity_check').fetchone() == ('ok',)
reads = sum(reads for reads, in stats(db, 'reads'))
print(reads < 1000 or reads)
";
    let says = python_says("mapped_pages_are_served_as_ever", script);
    assert!(says.is_none_or(|says| says
        == "True
"));
}
