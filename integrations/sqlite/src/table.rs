//! The table `forebay_stats`: what look-ahead did for each b-tree of this connection's files.
//!
//! It is an eponymous virtual table of each connection opened after the extension was loaded. It has a row for each
//! tree of each database that was opened through our VFS, and one without a name for the pages whose tree is not known.
//! The file returns its counts through xFileControl, which SQLite calls with the file's mutex held.
//!
//! Concurrency: SQLite calls a connection's tables from one thread at a time.
//! Failure:     SQLite's result codes; a panic in this library is SQLITE_ERROR.

#![expect(unsafe_code, reason = "SQLite calls a virtual table through C pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::abi::{ABORT, Context, Cursor, ERROR, Module, NOMEM, OK, Routines, Table};
use crate::file::{FCNTL_COUNTS, Report};
use crate::memory::{Grow, NoMemory, boxed, list};
use crate::tree_counts::Counts;

const NAME: &CStr = c"forebay_stats";
const DECLARATION: &CStr =
    c"create table x(\"schema\" text, tree text, reads integer, prefetched integer, \
    useful integer, wasted integer, resident integer, waits integer, wait_ns integer)";
/// The first numeric column.
const FIRST_NUMBER: c_int = 2;
const MAIN: c_int = 1;
/// SQLite copies the text before the call returns.
const TRANSIENT: isize = -1;

/// A connection's table; SQLite sees its first fields.
#[repr(C)]
struct Stats {
    table: Table,
    connection: *mut c_void,
    routines: *const Routines,
}

/// A cursor on the table.
#[repr(C)]
struct Reading {
    cursor: Cursor,
    rows: Rows,
    at: usize,
}

#[derive(Default)]
struct Rows {
    /// Schema names, terminated by zero.
    schemas: Vec<Vec<u8>>,
    /// The first field is the index of a schema.
    all: Vec<(usize, Option<String>, Counts)>,
}

static MODULE: Module = Module {
    version: 0,
    create: None,
    connect: Some(connect),
    best_index: Some(best_index),
    disconnect: Some(disconnect),
    destroy: None,
    open: Some(open),
    close: Some(close),
    filter: Some(filter),
    next: Some(next),
    eof: Some(eof),
    column: Some(column),
    rowid: Some(rowid),
    unused: [const { None }; 7],
};

/// Registers the table with a connection. A connection without virtual tables does not get it.
///
/// # Safety
/// `connection` is open, and `routines` are those of its SQLite, while it is loaded.
pub(crate) unsafe fn add(connection: *mut c_void, routines: *const Routines) {
    // SAFETY: as the caller promises; the module lives as long as the process.
    unsafe {
        if let Some(create) = (*routines).create_module {
            create(connection, NAME.as_ptr(), &raw const MODULE, routines.cast_mut().cast());
        }
    }
}

unsafe extern "C" fn connect(
    connection: *mut c_void,
    routines: *mut c_void,
    _arguments: c_int,
    _argument: *const *const c_char,
    table: *mut *mut Table,
    _message: *mut *mut c_char,
) -> c_int {
    let routines: *const Routines = routines.cast();
    // SAFETY: they are the arguments of `add`.
    unsafe {
        let Some(declare) = (*routines).declare_vtab else { return ERROR };
        let declared = declare(connection, DECLARATION.as_ptr());
        if declared == OK {
            let front = Table::default();
            let Ok(made) = boxed(Stats { table: front, connection, routines }) else {
                return NOMEM;
            };
            *table = Box::into_raw(made).cast();
        }
        declared
    }
}

unsafe extern "C" fn disconnect(table: *mut Table) -> c_int {
    // SAFETY: `connect` made it, and SQLite does not use it again.
    drop(unsafe { Box::from_raw(table.cast::<Stats>()) });
    OK
}

/// There is one way to read the table: all of it.
unsafe extern "C" fn best_index(_table: *mut Table, _constraints: *mut c_void) -> c_int {
    OK
}

unsafe extern "C" fn open(_table: *mut Table, cursor: *mut *mut Cursor) -> c_int {
    let reading = Reading { cursor: Cursor::default(), rows: Rows::default(), at: 0 };
    let Ok(made) = boxed(reading) else { return NOMEM };
    // SAFETY: SQLite receives the cursor there, and fills in its first fields.
    unsafe { *cursor = Box::into_raw(made).cast() };
    OK
}

unsafe extern "C" fn close(cursor: *mut Cursor) -> c_int {
    // SAFETY: `open` made it, and SQLite does not use it again.
    drop(unsafe { Box::from_raw(cursor.cast::<Reading>()) });
    OK
}

unsafe extern "C" fn filter(
    cursor: *mut Cursor,
    _index: c_int,
    _index_name: *const c_char,
    _values: c_int,
    _value: *mut *mut c_void,
) -> c_int {
    // SAFETY: `open` and `connect` made them, and SQLite has stored the table in the cursor.
    let (reading, stats) = unsafe {
        let reading = &mut *cursor.cast::<Reading>();
        (reading, &*(*cursor).table.cast::<Stats>())
    };
    // SAFETY: the connection is open, as SQLite makes this call for it.
    let read = catch_unwind(AssertUnwindSafe(|| unsafe { rows(stats) }));
    reading.at = 0;
    match read {
        Ok(Ok(rows)) => {
            reading.rows = rows;
            OK
        }
        Ok(Err(code)) => code,
        Err(_) => ERROR,
    }
}

/// # Safety
/// The connection is open.
unsafe fn rows(stats: &Stats) -> Result<Rows, c_int> {
    // SAFETY: they are the functions of its SQLite; the callback receives the list.
    unsafe {
        let routines = &*stats.routines;
        let mut rows = Rows::default();
        let into: *mut c_void = (&raw mut rows.schemas).cast();
        let list = c"pragma database_list".as_ptr();
        match (routines.exec)(stats.connection, list, Some(schema_named), into, ptr::null_mut()) {
            OK => {}
            ABORT => return Err(NOMEM), // from the callback
            code => return Err(code),
        }
        for (at, schema) in rows.schemas.iter().enumerate() {
            let mut report = Report::new();
            let argument = (&raw mut report).cast();
            let schema = schema.as_ptr().cast();
            // A database that was not opened through our VFS does not support this operation.
            if (routines.file_control)(stats.connection, schema, FCNTL_COUNTS, argument) == NOMEM {
                return Err(NOMEM);
            }
            for (tree, counts) in report.trees {
                rows.all.grow((at, tree, counts)).map_err(|NoMemory| NOMEM)?;
            }
        }
        Ok(rows)
    }
}

/// Receives a row of `pragma database_list`: a number, a schema's name, a path. Stops the query if memory is exhausted.
unsafe extern "C" fn schema_named(
    into: *mut c_void,
    columns: c_int,
    values: *mut *mut c_char,
    _names: *mut *mut c_char,
) -> c_int {
    // SAFETY: `rows` passed the list; a column's value is a string or null.
    unsafe {
        let name = if columns > MAIN { *values.add(MAIN as usize) } else { ptr::null_mut() };
        if name.is_null() {
            return OK;
        }
        let name = list(CStr::from_ptr(name).to_bytes_with_nul().iter().copied());
        let kept = name.and_then(|name| (*into.cast::<Vec<Vec<u8>>>()).grow(name));
        c_int::from(kept.is_err())
    }
}

unsafe extern "C" fn next(cursor: *mut Cursor) -> c_int {
    // SAFETY: `open` made it.
    unsafe { (*cursor.cast::<Reading>()).at += 1 };
    OK
}

unsafe extern "C" fn eof(cursor: *mut Cursor) -> c_int {
    // SAFETY: `open` made it.
    let reading = unsafe { &*cursor.cast::<Reading>() };
    c_int::from(reading.at >= reading.rows.all.len())
}

unsafe extern "C" fn column(cursor: *mut Cursor, context: *mut Context, column: c_int) -> c_int {
    // SAFETY: `open` made the cursor, `connect` its table; a text is copied before this returns.
    unsafe {
        let reading = &*cursor.cast::<Reading>();
        let routines = &*(*(*cursor).table.cast::<Stats>()).routines;
        let Some((schema, tree, counts)) = reading.rows.all.get(reading.at) else { return ERROR };
        let wasted = counts.prefetched.saturating_sub(counts.useful);
        let text = |text: &[u8]| {
            let size = text.len() as c_int;
            (routines.result_text)(context, text.as_ptr().cast(), size, TRANSIENT);
        };
        let number = match column - FIRST_NUMBER {
            0 => counts.reads,
            1 => counts.prefetched,
            2 => counts.useful,
            3 => wasted,
            4 => counts.resident,
            5 => counts.waits,
            6 => counts.wait_ns,
            _ => {
                match (column, tree) {
                    (0, _) => {
                        text(reading.rows.schemas[*schema].strip_suffix(&[0]).unwrap_or_default());
                    }
                    (_, Some(tree)) => text(tree.as_bytes()),
                    (_, None) => {} // a result that is not set is null
                }
                return OK;
            }
        };
        (routines.result_int64)(context, number as i64);
    }
    OK
}

unsafe extern "C" fn rowid(cursor: *mut Cursor, into: *mut i64) -> c_int {
    // SAFETY: `open` made the cursor.
    unsafe { *into = (*cursor.cast::<Reading>()).at as i64 + 1 };
    OK
}
