//! The Python package, as its users have it: its module next to the library, both in any directory.
//!
//! Without a Python, the test prints `skipped` and adds that to the file named by FOREBAY_SKIPS.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[allow(dead_code, reason = "other tests use the rest")]
mod client;

/// Makes a database without the extension, installs the package next to it, and imports it.
const MADE: &str = "
import os, shutil, sqlite3, sys
library, path, module = sys.argv[1:4]
db = sqlite3.connect(path)
db.execute('create table t(a integer primary key, k, b)')
db.executemany('insert into t(k, b) values (?, zeroblob(3000))', [[i * 7919 % 3001] for i in range(3000)])
db.execute('create index by_k on t(k)')
db.commit()
db.close()
site = os.path.join(os.path.dirname(path), 'site')
package = os.path.join(site, 'forebay_sqlite')
os.makedirs(package)
shutil.copy(library, package)
shutil.copy(module, package)
sys.path.insert(0, site)
import forebay_sqlite
query = 'select count(*), sum(length(b)) from t where k between 0 and 2000'
def cold():
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
";

fn says(test: &str, script: &str) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let python = client::python(test)?.with_slow_reads(test, directory.path())?;
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/python/forebay_sqlite/__init__.py");
    let path = directory.path().join("a #b?.db");
    Some(python.python_with(&format!("{MADE}{script}"), &path, &[module]))
}

#[test]
fn connect_prefetches_in_a_file_of_any_name() {
    let test = "connect_prefetches_in_a_file_of_any_name";
    let script = "
cold()
db = forebay_sqlite.connect(path, isolation_level=None)
print(*db.execute(query).fetchone(), forebay_sqlite.stats(db)['useful'] > 1000)
print(forebay_sqlite.stats(forebay_sqlite.connect(':memory:')), forebay_sqlite.stats(sqlite3.connect(path)))
uri = forebay_sqlite.connect('file:' + os.path.basename(path).replace('#', '%23').replace('?', '%3f') + '?mode=ro', uri=True) \\
    if not os.chdir(os.path.dirname(path)) else None
print(uri.execute('select count(*) from t').fetchone()[0], forebay_sqlite.stats(uri) is not None)
";
    if let Some(says) = says(test, script) {
        assert_eq!(says, "2000 6000000 True\nNone None\n3000 True\n");
    }
}

/// As in a Python that was built without loadable extensions.
#[test]
fn a_python_that_loads_no_extensions_registers_through_c() {
    let test = "a_python_that_loads_no_extensions_registers_through_c";
    let script = "
class Without:
    def close(self): pass
forebay_sqlite.load(Without())
cold()
db = sqlite3.connect('file:' + path.replace('#', '%23').replace('?', '%3f') + '?vfs=forebay', uri=True)
print(*db.execute(query).fetchone(), forebay_sqlite.stats(db)['useful'] > 1000)
print(os.path.exists(forebay_sqlite.loadable_path() + '.so'))
";
    if let Some(says) = says(test, script) {
        assert_eq!(says, "2000 6000000 True\nTrue\n");
    }
}
