//! A SQLite extension: a VFS that asks the kernel for the pages that SQLite will read next.
//!
//! SQLite reads a page when it needs it, and waits for each page that is not in memory. The VFS `forebay` wraps the
//! process's default VFS, which still performs every read, write, lock and sync. It examines the pages that were read:
//! interior pages of a b-tree name the next leaves, and the leaves of an index name the next rows.
//!
//! | module | what it does |
//! |---|---|
//! | `abi` | the part of SQLite's C interface that is used |
//! | `vfs` | the file system that SQLite sees: opens files, passes other calls on |
//! | `file` | a database file that SQLite sees: passes all calls on, reports reads to the reader |
//! | `table` | `forebay_stats`, as a table |
//! | `reader` | decides when reads are examined: where they wait |
//! | `predictor` | what SQLite will read next |
//! | `trees` | the b-trees, as far as their interior pages are known |
//! | `page` | one page's bytes |
//! | `tree_counts` | page counts of each b-tree |
//! | `wal` | which pages a write-ahead log holds |
//! | `memory` | fallible allocation |
//! | `blocked` | whether the thread has waited, or only lost the processor |
//! | `hint` | the file's descriptor: requests pages from the kernel, or reads pages that it has cached |
//!
//! In Rust, with the SQLite that a program is linked with (here with rusqlite's names):
//!
//! ```ignore
//! use rusqlite::ffi;
//! // SAFETY: they are one SQLite's own functions.
//! unsafe {
//!     forebay_sqlite::register(
//!         ffi::sqlite3_vfs_find,
//!         ffi::sqlite3_vfs_register,
//!         ffi::sqlite3_mprintf,
//!         ffi::sqlite3_uri_parameter,
//!         ffi::sqlite3_log,
//!         false,
//!     )?;
//! }
//! let db = rusqlite::Connection::open("file:data.db?vfs=forebay")?;
//! ```
//!
//! Invariants:  every read, write, lock and sync of SQLite's is passed on to the wrapped VFS, and its result is
//!              returned.
//! Concurrency: SQLite uses a file from one thread at a time; files share nothing.
//! Failure:     pages that cannot be predicted or requested are read as without the extension. A panic in this library
//!              or a failed allocation ends look-ahead for a file.

#![cfg(target_os = "linux")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![expect(unsafe_code, reason = "SQLite calls the entry points")]

mod abi;
mod blocked;
mod file;
mod hint;
mod memory;
mod page;
mod predictor;
mod reader;
mod table;
mod tree_counts;
mod trees;
mod vfs;
mod wal;

use std::ffi::{c_char, c_int, c_void};

use abi::Functions;
pub use abi::{Log, Print, Routines, UriParameter};
use memory::{Line, NoMemory};
use vfs::Registered;

/// Why the VFS was not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// There is no default VFS to wrap: initialise SQLite first (`sqlite3_initialize`).
    NoDefault,
    /// The default VFS has a version before 3 and lacks methods: make another one the default first.
    OldDefault,
    /// The VFS is registered already, over another VFS than the current default.
    OtherDefault,
    /// Another copy of this library has registered its VFS in this process: use that copy.
    OtherCopy,
    /// SQLite is older than 3.35. The value is its version, as from `sqlite3_libversion_number`.
    OldSqlite(c_int),
    /// An allocation failed: try again later.
    NoMemory,
    /// SQLite refused the VFS with this result code.
    Refused(c_int),
}

impl From<NoMemory> for RegisterError {
    fn from(_: NoMemory) -> RegisterError {
        RegisterError::NoMemory
    }
}

impl std::fmt::Display for RegisterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RegisterError::NoDefault => {
                f.write_str("SQLite has no default VFS to lie over: call sqlite3_initialize first")
            }
            RegisterError::OldDefault => f.write_str(
                "the default VFS is older than version 3: make another the default first",
            ),
            RegisterError::OtherDefault => f.write_str(
                "another VFS has become the default since forebay was registered: make forebay the default before it",
            ),
            RegisterError::OtherCopy => f.write_str(
                "another copy of forebay is loaded in this process: load that copy's entry point for the default",
            ),
            RegisterError::OldSqlite(version) => {
                let (major, minor) = (version / 1_000_000, version / 1000 % 1000);
                let patch = version % 1000;
                write!(f, "SQLite {major}.{minor}.{patch} is too old: use 3.35 or later")
            }
            RegisterError::NoMemory => f.write_str("out of memory: try again later"),
            RegisterError::Refused(code) => write!(f, "SQLite refused the VFS: result code {code}"),
        }
    }
}

impl std::error::Error for RegisterError {}

/// Registers the VFS `forebay` over the default VFS of the SQLite that these functions belong to. `as_default` makes it
/// the VFS of every database that is opened without naming one. It stays registered for the life of the process;
/// registering it again is allowed.
///
/// `V` is the type that the caller's bindings use for `sqlite3_vfs`.
///
/// # Errors
/// Every variant of [`RegisterError`].
///
/// # Safety
/// The functions are `sqlite3_vfs_find`, `sqlite3_vfs_register`, `sqlite3_mprintf`, `sqlite3_uri_parameter` and
/// `sqlite3_log` of one and the same SQLite, which stays loaded. Its current default VFS is never unregistered.
pub unsafe fn register<V>(
    find: unsafe extern "C" fn(*const c_char) -> *mut V,
    register: unsafe extern "C" fn(*mut V, c_int) -> c_int,
    print: Print,
    uri_parameter: UriParameter,
    log: Log,
    as_default: bool,
) -> Result<(), RegisterError> {
    // SAFETY: the same function with the same pointers; only the name of the type that they point to differs.
    let find = unsafe {
        std::mem::transmute::<unsafe extern "C" fn(*const c_char) -> *mut V, abi::Find>(find)
    };
    // SAFETY: as above.
    let register = unsafe {
        std::mem::transmute::<unsafe extern "C" fn(*mut V, c_int) -> c_int, abi::Register>(register)
    };
    // SAFETY: they are SQLite's (contract above).
    unsafe { vfs::register(Functions { find, register, print, uri_parameter, log }, as_default) }
        .map(|_| ())
}

/// The same for C: `sqlite3_vfs_find`, `sqlite3_vfs_register`, `sqlite3_mprintf`, `sqlite3_uri_parameter`,
/// `sqlite3_log`, and 1 to make it the default. Returns 0 or an SQLite result code; in the second case it reports the
/// reason to `sqlite3_log`.
///
/// # Safety
/// As for [`register`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_sqlite_register(
    find: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    register_vfs: unsafe extern "C" fn(*mut c_void, c_int) -> c_int,
    print: Print,
    uri_parameter: UriParameter,
    log: Log,
    as_default: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    let registered =
        unsafe { register(find, register_vfs, print, uri_parameter, log, as_default != 0) };
    let Err(error) = registered else { return abi::OK };
    let (code, line) = (code_of(error), Line::of(error));
    let (text, size) = (line.as_str().as_ptr(), line.as_str().len() as c_int);
    // SAFETY: as the caller promises; the text has that size.
    unsafe { log(code, c"forebay: %.*s".as_ptr(), size, text) };
    code
}

/// The entry point that SQLite calls when the extension is loaded under its own name.
///
/// # Safety
/// As for any extension: `routines` are SQLite's functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_forebaysqlite_init(
    connection: *mut c_void,
    message: *mut *mut c_char,
    routines: *const Routines,
) -> c_int {
    // SAFETY: as SQLite promises.
    unsafe { load(connection, message, routines, false) }
}

/// The entry point that SQLite looks for first in any extension.
///
/// # Safety
/// As for [`sqlite3_forebaysqlite_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    connection: *mut c_void,
    message: *mut *mut c_char,
    routines: *const Routines,
) -> c_int {
    // SAFETY: as SQLite promises.
    unsafe { load(connection, message, routines, false) }
}

/// The entry point that makes the VFS the default of the process.
///
/// # Safety
/// As for [`sqlite3_forebaysqlite_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_forebay_default_init(
    connection: *mut c_void,
    message: *mut *mut c_char,
    routines: *const Routines,
) -> c_int {
    // SAFETY: as SQLite promises.
    unsafe { load(connection, message, routines, true) }
}

/// Gives a connection the table `forebay_stats`. Pass it to `sqlite3_auto_extension`, which calls it for each
/// connection that is opened. A loaded extension has already done so.
///
/// # Safety
/// As for [`sqlite3_forebaysqlite_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_sqlite_stats(
    connection: *mut c_void,
    _message: *mut *mut c_char,
    routines: *const Routines,
) -> c_int {
    // SAFETY: as SQLite promises; a build without loadable extensions passes null.
    unsafe {
        if !routines.is_null() {
            table::add(connection, routines);
        }
    }
    abi::OK
}

/// The oldest SQLite that may load the extension.
const VERSION_MIN: c_int = 3_035_000;

/// # Safety
/// `routines` are the functions of the calling SQLite, for `connection`; `message` may receive a message.
unsafe fn load(
    connection: *mut c_void,
    message: *mut *mut c_char,
    routines: *const Routines,
    as_default: bool,
) -> c_int {
    // SAFETY: if SQLite is not older than our table of functions, its table has at least these functions, in the same
    // places (contract above); the version has the same place in any table.
    let registered = unsafe {
        match ((*routines).version)() {
            version if version < VERSION_MIN => Err(RegisterError::OldSqlite(version)),
            _ => {
                let Routines { find, register, print, uri_parameter, log, .. } = *routines;
                vfs::register(Functions { find, register, print, uri_parameter, log }, as_default)
            }
        }
    };
    match registered {
        // SAFETY: as above; the function that SQLite must call for each connection has the arguments of an extension's
        // entry point, whatever its declared type.
        Ok(Registered::Ours) => unsafe {
            table::add(connection, routines);
            let each = std::mem::transmute::<abi::Extension, abi::Anything>(forebay_sqlite_stats);
            ((*routines).auto_extension)(Some(each));
            abi::OK_LOAD_PERMANENTLY
        },
        // The other copy's table has the counts.
        Ok(Registered::OtherCopy) => abi::OK,
        Err(error) => {
            let line = Line::of(format_args!("forebay: {error}"));
            let (text, size) = (line.as_str().as_ptr(), line.as_str().len() as c_int);
            // SAFETY: as above; SQLite frees the message with the function that matches this allocation.
            unsafe {
                if !message.is_null() {
                    *message = ((*routines).print)(c"%.*s".as_ptr(), size, text);
                }
            }
            code_of(error)
        }
    }
}

fn code_of(error: RegisterError) -> c_int {
    match error {
        RegisterError::Refused(code) => code,
        RegisterError::NoMemory => abi::NOMEM,
        _ => abi::ERROR,
    }
}
