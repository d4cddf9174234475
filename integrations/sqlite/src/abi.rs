//! The part of SQLite's C interface that is used: files, file systems, a virtual table, and a few functions.
//!
//! The declarations are ours, not libsqlite3-sys's (docs/adr/0016-sqlite-vfs.md). SQLite has kept these layouts since
//! 3.7.6, and adds fields only at the end of a structure, with a new version number.
//!
//! A method that a version or a build lacks is null, so each is an `Option`.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

pub(crate) const OK: c_int = 0;
pub(crate) const ERROR: c_int = 1;
pub(crate) const ABORT: c_int = 4;
pub(crate) const NOMEM: c_int = 7;
pub(crate) const READONLY: c_int = 8;
/// SQLite never unloads the library that holds the entry point: its VFS outlives the connection.
pub(crate) const OK_LOAD_PERMANENTLY: c_int = 256;
pub(crate) const IOERR: c_int = 10;
pub(crate) const NOTFOUND: c_int = 12;
pub(crate) const CANTOPEN: c_int = 14;
pub(crate) const OPEN_URI: c_int = 0x40;
pub(crate) const OPEN_MAIN_DB: c_int = 0x100;
pub(crate) const FCNTL_VFSNAME: c_int = 12;
pub(crate) const FCNTL_PRAGMA: c_int = 14;

/// `sqlite3_file`: the first fields of a VFS's open file.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct File {
    pub(crate) methods: *const IoMethods,
}

type Method<F> = Option<F>;

/// `sqlite3_io_methods`.
#[repr(C)]
pub(crate) struct IoMethods {
    pub(crate) version: c_int,
    pub(crate) close: Method<unsafe extern "C" fn(*mut File) -> c_int>,
    pub(crate) read: Method<unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> c_int>,
    pub(crate) write: Method<unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> c_int>,
    pub(crate) truncate: Method<unsafe extern "C" fn(*mut File, i64) -> c_int>,
    pub(crate) sync: Method<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub(crate) file_size: Method<unsafe extern "C" fn(*mut File, *mut i64) -> c_int>,
    pub(crate) lock: Method<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub(crate) unlock: Method<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    pub(crate) check_reserved_lock: Method<unsafe extern "C" fn(*mut File, *mut c_int) -> c_int>,
    pub(crate) file_control: Method<unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> c_int>,
    pub(crate) sector_size: Method<unsafe extern "C" fn(*mut File) -> c_int>,
    pub(crate) device_characteristics: Method<unsafe extern "C" fn(*mut File) -> c_int>,
    // Version 2.
    pub(crate) shm_map:
        Method<unsafe extern "C" fn(*mut File, c_int, c_int, c_int, *mut *mut c_void) -> c_int>,
    pub(crate) shm_lock: Method<unsafe extern "C" fn(*mut File, c_int, c_int, c_int) -> c_int>,
    pub(crate) shm_barrier: Method<unsafe extern "C" fn(*mut File)>,
    pub(crate) shm_unmap: Method<unsafe extern "C" fn(*mut File, c_int) -> c_int>,
    // Version 3.
    pub(crate) fetch:
        Method<unsafe extern "C" fn(*mut File, i64, c_int, *mut *mut c_void) -> c_int>,
    pub(crate) unfetch: Method<unsafe extern "C" fn(*mut File, i64, *mut c_void) -> c_int>,
}

/// A function of any signature.
pub(crate) type Anything = unsafe extern "C" fn();

/// `sqlite3_vfs`.
#[repr(C)]
pub(crate) struct Vfs {
    pub(crate) version: c_int,
    pub(crate) file_size: c_int,
    pub(crate) pathname_max: c_int,
    pub(crate) next: *mut Vfs,
    pub(crate) name: *const c_char,
    pub(crate) app_data: *mut c_void,
    pub(crate) open: Method<
        unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int,
    >,
    pub(crate) delete: Method<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int>,
    pub(crate) access:
        Method<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub(crate) full_pathname:
        Method<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    pub(crate) dl_open: Method<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void>,
    pub(crate) dl_error: Method<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char)>,
    pub(crate) dl_sym:
        Method<unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> Option<Anything>>,
    pub(crate) dl_close: Method<unsafe extern "C" fn(*mut Vfs, *mut c_void)>,
    pub(crate) randomness: Method<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub(crate) sleep: Method<unsafe extern "C" fn(*mut Vfs, c_int) -> c_int>,
    pub(crate) current_time: Method<unsafe extern "C" fn(*mut Vfs, *mut f64) -> c_int>,
    pub(crate) get_last_error: Method<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    // Version 2.
    pub(crate) current_time_int64: Method<unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int>,
    // Version 3.
    pub(crate) set_system_call:
        Method<unsafe extern "C" fn(*mut Vfs, *const c_char, Option<Anything>) -> c_int>,
    pub(crate) get_system_call:
        Method<unsafe extern "C" fn(*mut Vfs, *const c_char) -> Option<Anything>>,
    pub(crate) next_system_call:
        Method<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *const c_char>,
}

pub(crate) type Find = unsafe extern "C" fn(*const c_char) -> *mut Vfs;
pub(crate) type Register = unsafe extern "C" fn(*mut Vfs, c_int) -> c_int;
/// `sqlite3_mprintf`.
pub type Print = unsafe extern "C" fn(*const c_char, ...) -> *mut c_char;
/// `sqlite3_uri_parameter`.
pub type UriParameter = unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char;

/// `sqlite3_log`.
pub type Log = unsafe extern "C" fn(c_int, *const c_char, ...);

/// The functions of SQLite that we call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Functions {
    pub(crate) find: Find,
    pub(crate) register: Register,
    pub(crate) print: Print,
    pub(crate) uri_parameter: UriParameter,
    pub(crate) log: Log,
}

/// `sqlite3_vtab`: the first fields of a module's table.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Table {
    _module: *const Module,
    _references: c_int,
    _message: *mut c_char,
}

impl Default for Table {
    fn default() -> Table {
        Table { _module: ptr::null(), _references: 0, _message: ptr::null_mut() }
    }
}

/// `sqlite3_vtab_cursor`: the first fields of a module's cursor on a table.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cursor {
    pub(crate) table: *mut Table,
}

impl Default for Cursor {
    fn default() -> Cursor {
        Cursor { table: ptr::null_mut() }
    }
}

/// `sqlite3_context`, which receives a result.
pub(crate) enum Context {}

/// `sqlite3_module` of version 0.
#[repr(C)]
pub(crate) struct Module {
    pub(crate) version: c_int,
    /// None: the table exists without being created.
    pub(crate) create: Method<Connect>,
    pub(crate) connect: Method<Connect>,
    pub(crate) best_index: Method<unsafe extern "C" fn(*mut Table, *mut c_void) -> c_int>,
    pub(crate) disconnect: Method<unsafe extern "C" fn(*mut Table) -> c_int>,
    pub(crate) destroy: Method<unsafe extern "C" fn(*mut Table) -> c_int>,
    pub(crate) open: Method<unsafe extern "C" fn(*mut Table, *mut *mut Cursor) -> c_int>,
    pub(crate) close: Method<unsafe extern "C" fn(*mut Cursor) -> c_int>,
    pub(crate) filter: Method<
        unsafe extern "C" fn(*mut Cursor, c_int, *const c_char, c_int, *mut *mut c_void) -> c_int,
    >,
    pub(crate) next: Method<unsafe extern "C" fn(*mut Cursor) -> c_int>,
    pub(crate) eof: Method<unsafe extern "C" fn(*mut Cursor) -> c_int>,
    pub(crate) column: Method<unsafe extern "C" fn(*mut Cursor, *mut Context, c_int) -> c_int>,
    pub(crate) rowid: Method<unsafe extern "C" fn(*mut Cursor, *mut i64) -> c_int>,
    /// Writing, transactions, functions, renaming.
    pub(crate) unused: [Method<Anything>; 7],
}

pub(crate) type Connect = unsafe extern "C" fn(
    *mut c_void,
    *mut c_void,
    c_int,
    *const *const c_char,
    *mut *mut Table,
    *mut *mut c_char,
) -> c_int;

/// An extension's entry point.
pub(crate) type Extension =
    unsafe extern "C" fn(*mut c_void, *mut *mut c_char, *const Routines) -> c_int;

/// The callback of `sqlite3_exec`, called for each row.
type Each = unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type Exec = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    Option<Each>,
    *mut c_void,
    *mut *mut c_char,
) -> c_int;
type CreateModule =
    unsafe extern "C" fn(*mut c_void, *const c_char, *const Module, *mut c_void) -> c_int;
type FileControl = unsafe extern "C" fn(*mut c_void, *const c_char, c_int, *mut c_void) -> c_int;

/// `sqlite3_api_routines`, which SQLite passes to a loaded extension: the functions used here, at their positions. In
/// builds without virtual tables, their functions are null. All versions have the table up to `print`; before 3.8.7 it
/// ends before some of the later functions.
#[derive(Debug)]
#[repr(C)]
pub struct Routines {
    _before_create_module: [*const c_void; 47],
    pub(crate) create_module: Option<CreateModule>,
    _before_declare_vtab: [*const c_void; 2],
    pub(crate) declare_vtab: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int>,
    _before_exec: [*const c_void; 4],
    pub(crate) exec: Exec,
    _before_libversion_number: [*const c_void; 11],
    pub(crate) version: unsafe extern "C" fn() -> c_int,
    _before_mprintf: [*const c_void; 1],
    pub(crate) print: Print,
    _before_result_int64: [*const c_void; 13],
    pub(crate) result_int64: unsafe extern "C" fn(*mut Context, i64),
    _before_result_text: [*const c_void; 1],
    /// The last argument is a destructor, or -1 for a text that SQLite must copy.
    pub(crate) result_text: unsafe extern "C" fn(*mut Context, *const c_char, c_int, isize),
    _before_file_control: [*const c_void; 41],
    pub(crate) file_control: FileControl,
    _before_vfs_find: [*const c_void; 13],
    pub(crate) find: Find,
    pub(crate) register: Register,
    _before_log: [*const c_void; 24],
    pub(crate) log: Log,
    _before_uri_parameter: [*const c_void; 21],
    pub(crate) uri_parameter: UriParameter,
    _before_auto_extension: [*const c_void; 2],
    pub(crate) auto_extension: unsafe extern "C" fn(Option<Anything>) -> c_int,
}
