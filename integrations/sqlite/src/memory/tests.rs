//! Queries in a process in which each allocation fails in turn.

use std::alloc::{GlobalAlloc, System};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use rusqlite::{Connection, ffi};

use super::*;
use crate::{abi, file};

/// SQLite's own memory does not come from Rust's allocator, and never fails.
#[global_allocator]
static REFUSING: Refusing = Refusing;

struct Refusing;

thread_local! {
    /// The number of this thread's allocations that still succeed; `u64::MAX` means all.
    static GRANTED: Cell<u64> = const { Cell::new(u64::MAX) };
}

fn is_granted() -> bool {
    let left = GRANTED.get();
    if left < u64::MAX {
        GRANTED.set(left.saturating_sub(1));
    }
    left > 0
}

// SAFETY: it is the system's allocator, except that it may refuse.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if is_granted() { unsafe { System.alloc(layout) } } else { ptr::null_mut() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if is_granted() { unsafe { System.alloc_zeroed(layout) } } else { ptr::null_mut() }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        if is_granted() { unsafe { System.realloc(memory, layout, size) } } else { ptr::null_mut() }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Runs a function that may allocate this many times. Returns its result and the number of allocations that it
/// attempted.
pub(crate) fn with_allocations<T>(granted: u64, run: impl FnOnce() -> T) -> (T, u64) {
    GRANTED.set(granted);
    let result = run();
    let left = GRANTED.replace(u64::MAX);
    (result, granted - left)
}

const MANY: u64 = 1 << 40;

type AutoExtension = unsafe extern "C" fn(
    *mut ffi::sqlite3,
    *mut *mut c_char,
    *const ffi::sqlite3_api_routines,
) -> c_int;

/// Rows through an index, joins, long rows, a scan, and a statement that writes.
const STATEMENTS: [&CStr; 7] = [
    c"select sum(length(b)) from t where k between 0 and 700",
    c"select sum(length(f.b)) from o join t on t.a = o.t join f on f.a = t.k",
    c"select sum(length(b || 'x')) from long",
    c"select sum(length(b || 'x')) from long where k > 0 order by k desc",
    c"select sum(length(b)) from w, o where w.a = o.t",
    c"select count(b) from f",
    c"update t set k = k + 1 where k < 500 returning (select count(b) from f)",
];
/// The questions about each statement. Memory may also be refused while they are answered.
const QUESTIONS: [&CStr; 3] = [
    c"select sum(reads > 0) + sum(tree is null) > 1 from forebay_stats",
    c"pragma forebay_stats",
    c"pragma Forebay_distance_max=100",
];

fn make(path: &CStr) {
    let db = Connection::open(path.to_str().unwrap()).unwrap();
    db.execute_batch(
        "pragma page_size=512; pragma journal_mode=wal; pragma synchronous=off; begin;
         create table t(a integer primary key, k, b);
         create index by_k on t(k);
         create table o(a integer primary key, t);
         create table long(a integer primary key, k, b);
         create index long_by_k on long(k);
         create table w(a integer primary key, b) without rowid;
         create table f(a integer primary key, b);
         with recursive n(i) as (values (1) union all select i + 1 from n where i < 130)
         insert into t select i, i * 7919 % 1009, zeroblob(300) from n;
         insert into o select a, k % 130 + 1 from t;
         insert into w select a, zeroblob(60) from t;
         insert into long select a, k, zeroblob(1500) from t where a % 3 = 0;
         insert into f select k, zeroblob(150) from t order by a;
         commit;",
    )
    .unwrap();
}

/// The results of a connection with this VFS: of its opening, of a statement, and of the questions about that; each is
/// a result code and the last number.
fn answers(name: &CStr, statement: &CStr) -> [(c_int, i64); 2 + QUESTIONS.len()] {
    let mut answers = [(ffi::SQLITE_OK, 0); 2 + QUESTIONS.len()];
    // SAFETY: SQLite's functions, used as documented. Only code that SQLite calls allocates here.
    unsafe {
        let mut db = ptr::null_mut();
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_URI;
        answers[0].0 = ffi::sqlite3_open_v2(name.as_ptr(), &raw mut db, flags, ptr::null());
        let mut file: *mut c_void = ptr::null_mut();
        let operation = ffi::SQLITE_FCNTL_FILE_POINTER;
        ffi::sqlite3_file_control(db, c"main".as_ptr(), operation, (&raw mut file).cast());
        let is_ours = answers[0].0 == ffi::SQLITE_OK && name.to_bytes().ends_with(b"vfs=forebay");
        if is_ours {
            file::plant_waits(file.cast());
        }
        let begin = c"pragma cache_size=10; begin";
        ffi::sqlite3_exec(db, begin.as_ptr(), None, ptr::null_mut(), ptr::null_mut());
        let statements = [statement].into_iter().chain(QUESTIONS.into_iter().filter(|_| is_ours));
        for (statement, answer) in statements.zip(&mut answers[1..]) {
            let mut prepared = ptr::null_mut();
            let next = &mut ptr::null();
            answer.0 = ffi::sqlite3_prepare_v2(db, statement.as_ptr(), -1, &raw mut prepared, next);
            if answer.0 != ffi::SQLITE_OK {
                continue;
            }
            while ffi::sqlite3_step(prepared) == ffi::SQLITE_ROW {
                answer.1 = ffi::sqlite3_column_int64(prepared, 0);
            }
            answer.0 = ffi::sqlite3_finalize(prepared);
        }
        ffi::sqlite3_exec(db, c"rollback".as_ptr(), None, ptr::null_mut(), ptr::null_mut());
        ffi::sqlite3_close(db);
    }
    answers
}

#[test]
fn whichever_allocation_fails_queries_are_answered_as_without_forebay() {
    let directory = tempfile::tempdir().unwrap();
    let path = CString::new(directory.path().join("data.db").to_str().unwrap()).unwrap();
    make(&path);
    let name = |parameters: &str| {
        CString::new(format!("file:{}?{parameters}", path.to_str().unwrap())).unwrap()
    };
    file::register_for_tests();
    // SAFETY: an entry point, with other names for the types that its pointers point to.
    unsafe {
        ffi::sqlite3_auto_extension(Some(std::mem::transmute::<abi::Extension, AutoExtension>(
            crate::forebay_sqlite_stats,
        )));
    }
    let (stock, ours) = (name(""), name("distance_max=64&vfs=forebay"));
    for statement in STATEMENTS {
        let expected = answers(&stock, statement);
        assert_eq!((expected[0].0, expected[1].0), (ffi::SQLITE_OK, ffi::SQLITE_OK));
        let (all, wanted) = with_allocations(MANY, || answers(&ours, statement));
        assert_eq!(all[..2], expected[..2], "{statement:?}");
        assert_eq!(all[2], (ffi::SQLITE_OK, 1), "{statement:?}: trees are known by name");
        println!("{statement:?}: {wanted} allocations");
        assert!(wanted > 50, "{statement:?}: {wanted}");
        for granted in 0..wanted {
            let (answers, _) = with_allocations(granted, || answers(&ours, statement));
            assert_eq!(answers[..2], expected[..2], "{statement:?} of {granted} [MEM-1]");
            for (code, _) in &answers[2..] {
                assert!([ffi::SQLITE_OK, ffi::SQLITE_NOMEM].contains(code), "{granted}: {code}");
            }
        }
    }
}
