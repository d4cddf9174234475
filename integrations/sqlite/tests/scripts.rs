//! Scripts in the style of SQLite's sqllogictest, which contain the answers. They run with and without the VFS, with
//! each page size, journal mode and auto-vacuum mode; each script runs on a file that is not in the page cache.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "to register takes SQLite's C functions")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ffi};
use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};

/// Pairs of journal mode and auto-vacuum mode.
const MODES: [(&str, u32); 4] = [("delete", 0), ("wal", 2), ("delete", 1), ("wal", 0)];
const PAGE_SIZES: [u32; 8] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];

struct Db(Arc<Mutex<Connection>>);

impl DB for Db {
    type Error = rusqlite::Error;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, rusqlite::Error> {
        let db = self.0.lock().unwrap();
        let mut statement = db.prepare(sql)?;
        let columns = statement.column_count();
        if columns == 0 {
            return Ok(DBOutput::StatementComplete(statement.execute([])? as u64));
        }
        let value = |value: ValueRef<'_>| match value {
            ValueRef::Null => "NULL".to_owned(),
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Real(number) => number.to_string(),
            ValueRef::Text(text) | ValueRef::Blob(text) => {
                String::from_utf8_lossy(text).into_owned()
            }
        };
        let rows = statement.query_map([], |row| {
            (0..columns).map(|at| Ok(value(row.get_ref(at)?))).collect::<Result<Vec<_>, _>>()
        })?;
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        Ok(DBOutput::Rows { types: vec![DefaultColumnType::Any; columns], rows })
    }
}

fn open(path: &Path, vfs: &str) -> Connection {
    Connection::open(format!("file:{}?{vfs}", path.display())).unwrap()
}

fn cold(path: &Path) {
    let file = File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Runs the scripts on a new file. Returns the number of requested pages.
fn run(vfs: &str, pragmas: &str) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data.db");
    open(&path, "").execute_batch(pragmas).unwrap();
    let mut asked = 0;
    for script in ["fill", "read", "write"] {
        cold(&path);
        let db = Arc::new(Mutex::new(open(&path, vfs)));
        let mut runner = Runner::new(async || Ok(Db(Arc::clone(&db))));
        let file = format!("{}/tests/scripts/{script}.slt", env!("CARGO_MANIFEST_DIR"));
        runner.run_file(&file).unwrap_or_else(|error| panic!("{vfs} {pragmas}: {error}"));
        let stats =
            db.lock().unwrap().query_row("pragma forebay_stats", [], |row| row.get::<_, String>(0));
        let number = |stats: String| {
            stats.split(' ').find_map(|it| it.strip_prefix("asked=").map(str::to_owned))
        };
        asked += stats.ok().and_then(number).map_or(0, |it| it.parse::<u64>().unwrap());
    }
    asked
}

#[test]
fn scripts_have_the_same_answers_with_and_without_the_vfs() {
    // SAFETY: SQLite may be initialized at any time.
    assert_eq!(unsafe { ffi::sqlite3_initialize() }, ffi::SQLITE_OK);
    // SAFETY: they are the functions of one SQLite, which is never unloaded.
    let registered = unsafe {
        forebay_sqlite::register(
            ffi::sqlite3_vfs_find,
            ffi::sqlite3_vfs_register,
            ffi::sqlite3_mprintf,
            ffi::sqlite3_uri_parameter,
            ffi::sqlite3_log,
            false,
        )
    };
    registered.unwrap();
    let mut asked = 0;
    for (at, page_size) in PAGE_SIZES.into_iter().enumerate() {
        // Each mode runs with every second page size.
        for (journal, vacuum) in [MODES[at % 4], MODES[(at + 1) % 4]] {
            let pragmas = format!(
                "pragma page_size={page_size}; pragma auto_vacuum={vacuum}; pragma journal_mode={journal}; create table first(a)"
            );
            assert_eq!(run("", &pragmas), 0, "stock");
            asked += run("vfs=forebay", &pragmas);
        }
    }
    match asked {
        0 => println!("skipped: reads of this disk do not wait"),
        _ => println!("{asked} pages prefetched"),
    }
}
