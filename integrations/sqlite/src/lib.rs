//! A SQLite extension: a VFS that asks the kernel for the pages that SQLite will read next.
//!
//! SQLite reads a page when it needs it, and with cold data waits for each. The VFS `forebay` lies over the process's
//! default one, which goes on doing every read, write, lock and sync. It looks at the pages that were read: interior
//! pages of a b-tree name the leaves to come, an index's leaves name the rows to come.
//!
//! | module | what it does |
//! |---|---|
//! | `abi` | SQLite's C interface, as far as it is used |
//! | `vfs` | the file system that SQLite sees: opens files, passes the rest on |
//! | `file` | a database file that SQLite sees: passes all on, tells the reader of reads |
//! | `table` | `forebay_stats`, as a table |
//! | `reader` | when reads are looked at: where they wait |
//! | `foresight` | what SQLite will read next |
//! | `trees` | the b-trees, as far as their interior pages are known |
//! | `page` | one page's bytes |
//! | `tally` | what became of each b-tree's pages |
//! | `wal` | which pages a write-ahead log holds |
//! | `memory` | fallible allocation |
//! | `hint` | the file's descriptor: asks the kernel for pages, or for what it has at hand |
//!
//! From Rust, with the SQLite that a program is linked with (rusqlite's names here):
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
//! Invariants:  no read that SQLite gets, no write, lock or sync is ours: what it asks for is passed on, and the answer
//!              returned.
//! Concurrency: SQLite uses a file from one thread at a time; nothing is shared between files.
//! Failure:     what cannot be foreseen or asked for is read as ever. A panic of ours and an allocation that fails
//!              end look-ahead for a file.

#![cfg(target_os = "linux")]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![expect(unsafe_code, reason = "SQLite calls the entry points")]

mod abi;
mod file;
mod foresight;
mod hint;
mod memory;
mod page;
mod reader;
mod table;
mod tally;
mod trees;
mod vfs;
mod wal;

use std::ffi::{c_char, c_int, c_void};

use abi::Functions;
pub use abi::{Log, Print, Routines, UriParameter};
use memory::{Line, NoMemory};
use vfs::Registered;

/// SQLite did not take the VFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// There is no default VFS to lie over: initialise SQLite first (`sqlite3_initialize`).
    NoDefault,
    /// The default VFS is of a version before 3: register over another, as this one lacks methods.
    OldDefault,
    /// It is registered, over another VFS than the one that is the default now.
    OtherDefault,
    /// Another copy of this library has registered its VFS in this process: use that copy.
    OtherCopy,
    /// SQLite is older than 3.35: this is its version, as `sqlite3_libversion_number` has it.
    OldSqlite(c_int),
    /// An allocation failed: try again later.
    NoMemory,
    /// SQLite refused it, by this result code.
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

/// Registers the VFS `forebay` over the default one of the SQLite whose functions these are; `as_default` makes it
/// the VFS of every database that is opened without naming one. It stays for the process's life, and to register it
/// again is fine.
///
/// `V` is whatever the caller's bindings call `sqlite3_vfs`.
///
/// # Errors
/// Each of [`RegisterError`].
///
/// # Safety
/// The functions are `sqlite3_vfs_find`, `sqlite3_vfs_register`, `sqlite3_mprintf`, `sqlite3_uri_parameter` and
/// `sqlite3_log` of one and the same SQLite, which stays loaded. The VFS that is its default now is never unregistered.
pub unsafe fn register<V>(
    find: unsafe extern "C" fn(*const c_char) -> *mut V,
    register: unsafe extern "C" fn(*mut V, c_int) -> c_int,
    print: Print,
    uri_parameter: UriParameter,
    log: Log,
    as_default: bool,
) -> Result<(), RegisterError> {
    // SAFETY: the same function with the same pointers, called by another name of what they point to.
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

/// The same for C: `sqlite3_vfs_find`, `sqlite3_vfs_register`, `sqlite3_mprintf`, `sqlite3_uri_parameter`, `sqlite3_log`,
/// and 1 to make it the default. Returns 0, or an SQLite result code, and then gives the reason to `sqlite3_log`.
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

/// What SQLite calls when the extension is loaded under its own name.
///
/// # Safety
/// SQLite's: `routines` are its functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_forebaysqlite_init(
    connection: *mut c_void,
    message: *mut *mut c_char,
    routines: *const Routines,
) -> c_int {
    // SAFETY: as SQLite promises.
    unsafe { load(connection, message, routines, false) }
}

/// What SQLite looks for first in any extension.
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

/// The entry point that makes it the process's default VFS.
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

/// Gives a connection the table `forebay_stats`: for `sqlite3_auto_extension`, which calls it for each that is opened. A loaded
/// extension has done so by itself.
///
/// # Safety
/// As for [`sqlite3_forebaysqlite_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forebay_sqlite_stats(
    connection: *mut c_void,
    _message: *mut *mut c_char,
    routines: *const Routines,
) -> c_int {
    // SAFETY: as SQLite promises; a build that loads no extensions hands over none.
    unsafe {
        if !routines.is_null() {
            table::add(connection, routines);
        }
    }
    abi::OK
}

/// The oldest SQLite that it is loaded into.
const VERSION_MIN: c_int = 3_035_000;

/// # Safety
/// `routines` are the functions of the SQLite that calls, for `connection`; a message may be left in `message`.
unsafe fn load(
    connection: *mut c_void,
    message: *mut *mut c_char,
    routines: *const Routines,
    as_default: bool,
) -> c_int {
    // SAFETY: SQLite's table holds more functions than ours, in the same places (contract above), if it is not older than
    // ours; the version's place is in any.
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
        // SAFETY: as above; what SQLite is to call for each connection takes what extensions take, whatever it is
        // declared to.
        Ok(Registered::Ours) => unsafe {
            table::add(connection, routines);
            let each = std::mem::transmute::<abi::Extension, abi::Anything>(forebay_sqlite_stats);
            ((*routines).auto_extension)(Some(each));
            abi::OK_LOAD_PERMANENTLY
        },
        // Its table has the counts.
        Ok(Registered::OtherCopy) => abi::OK,
        Err(error) => {
            let line = Line::of(format_args!("forebay: {error}"));
            let (text, size) = (line.as_str().as_ptr(), line.as_str().len() as c_int);
            // SAFETY: as above; SQLite frees the message, by the function that belongs to this one.
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
