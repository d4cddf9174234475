//! Generated statements through the VFS and through SQLite's own: equal answers, equal content.
//!
//! They run for each page size, in each journal mode with each kind of auto-vacuum, some with reserved bytes. They
//! cover tables of both kinds, rows and index entries that overflow, blobs written in place, and vacuums. Reads wait
//! (slow_reads.c), so that many pages are examined and requested. A run without any request proves nothing, so it
//! fails.

use crate::client::{OPEN, python};

/// Statements for each of the 18 combinations of a page size; FOREBAY_SQLITE_STATEMENTS sets another number.
const STATEMENTS: &str = "35";

fn compare(test: &str, page_size: u32) {
    let directory = tempfile::tempdir().unwrap();
    let Some(python) = python(test) else { return };
    let Some(python) = python.with_slow_reads(test, directory.path()) else { return };
    let of_environment =
        |name, otherwise: &str| std::env::var(name).unwrap_or(otherwise.to_owned());
    let statements = of_environment("FOREBAY_SQLITE_STATEMENTS", STATEMENTS);
    let seed = of_environment("FOREBAY_SQLITE_SEED", "1");
    let script = format!("{OPEN}{}", include_str!("differential.py"));
    let path = directory.path().join("data.db");
    let says = python.python_with(&script, &path, &[&page_size.to_string(), &statements, &seed]);
    println!("{page_size}: {} pages prefetched", says.trim());
    assert!(says.trim().parse::<u64>().unwrap() > 0, "nothing was looked ahead of");
}

/// One test for each page size, so that they run in parallel.
macro_rules! generated_statements_have_the_answers_and_the_content_of_stock {
    ($($name:ident = $page_size:literal),*) => { $(
        #[test]
        fn $name() {
            compare(stringify!($name), $page_size);
        }
    )* };
}

generated_statements_have_the_answers_and_the_content_of_stock! {
    generated_statements_512 = 512,
    generated_statements_1024 = 1024,
    generated_statements_2048 = 2048,
    generated_statements_4096 = 4096,
    generated_statements_8192 = 8192,
    generated_statements_16384 = 16_384,
    generated_statements_32768 = 32_768,
    generated_statements_65536 = 65_536
}
