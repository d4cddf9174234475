//! A main database file that SQLite sees: each call is passed on to the wrapped VFS's file, which lies behind our head
//! in the memory that SQLite provides. Reads are told to a `Reader`, when they have ended well.
//!
//! Concurrency: SQLite calls a file's methods from one thread at a time.
//! Failure:     the wrapped file's results are returned as they are. A panic of the reader's is caught, and ends it.

#![expect(unsafe_code, reason = "SQLite calls a file through C pointers")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::abi::{ERROR, FCNTL_PRAGMA, FCNTL_VFSNAME, File, IOERR, IoMethods, NOTFOUND, OK};
use crate::hint::Descriptor;
use crate::reader::{Reader, Settings};
use crate::tally::Counts;
use crate::vfs::Shim;
use crate::wal::REGION;

/// Asks a file of ours for its counts, in a `Report`. SQLite's own numbers are small, and those below 100 are its.
pub(crate) const FCNTL_COUNTS: c_int = 0x0F0B_A700;

/// The answer to `FCNTL_COUNTS`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Report {
    /// Where this library's methods are: another copy of it may ask, whose `Report` is another type.
    asker: *const IoMethods,
    pub(crate) trees: Vec<(Option<String>, Counts)>,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report { asker: METHODS.as_ptr(), trees: Vec::new() }
    }
}

/// What is ours of a file.
#[derive(Debug)]
#[repr(C)]
struct Head {
    file: File,
    shim: &'static Shim,
    /// None where nothing can be asked for, and after a panic.
    reader: Option<Box<Reader>>,
}

/// Bytes before the wrapped file; SQLite aligns to 8.
pub(crate) const HEAD: usize = size_of::<Head>().next_multiple_of(8);

/// Prepares memory for a file that is to be opened; returns the wrapped one's.
///
/// # Safety
/// `file` has `HEAD` bytes and as many as the wrapped VFS says that its files have.
pub(crate) unsafe fn begin(file: *mut File) -> *mut File {
    // SAFETY: both lie in that memory.
    unsafe {
        let real = real(file);
        (*file).methods = ptr::null();
        (*real).methods = ptr::null();
        real
    }
}

/// The wrapped VFS has opened its file, or not: SQLite closes whatever has methods.
///
/// # Safety
/// `file` was prepared by `begin`, and the wrapped VFS's open has returned `result` for `name`, behind which lie URI
/// parameters if `has_parameters`.
pub(crate) unsafe fn opened(
    file: *mut File,
    shim: &'static Shim,
    name: *const c_char,
    has_parameters: bool,
    result: c_int,
) {
    // SAFETY: the memory is ours (contract above); a file with methods has a version in them.
    unsafe {
        let real = real(file);
        let methods = (*real).methods;
        if methods.is_null() {
            return;
        }
        // SQLite takes shared memory that is there as leave to write a log, whatever the version.
        let methods = match (*methods).version {
            ..2 => &METHODS[0],
            _ if (*methods).shm_map.is_none() => &METHODS[0],
            2 => &METHODS[1],
            _ => &METHODS[2],
        };
        let path = CStr::from_ptr(name);
        let descriptor = if result == OK { Descriptor::find(real, shim.base, path) } else { None };
        let reader = descriptor.map(|descriptor| {
            let mut settings = Settings::new();
            for setting in Settings::NAMES.into_iter().filter(|_| has_parameters) {
                let Ok(setting_name) = CString::new(setting) else { continue };
                let value = (shim.functions.uri_parameter)(name, setting_name.as_ptr());
                if !value.is_null() {
                    // A value that is not right leaves the default: to refuse to open would be worse.
                    let _ = settings.set(setting, &CStr::from_ptr(value).to_string_lossy());
                }
            }
            Box::new(Reader::new(descriptor, settings))
        });
        file.cast::<Head>().write(Head { file: File { methods }, shim, reader });
    }
}

/// The wrapped file.
///
/// # Safety
/// `file` lies in memory of `HEAD` bytes and more.
unsafe fn real(file: *mut File) -> *mut File {
    // SAFETY: as above.
    unsafe { file.byte_add(HEAD) }
}

/// Methods that call the wrapped file's.
macro_rules! pass_on {
    ($($name:ident = $method:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?, or $otherwise:expr;)*) => { $(
        unsafe extern "C" fn $name(file: *mut File, $($argument: $kind),*) $(-> $result)? {
            // SAFETY: SQLite calls it with a file that is open, and so is the wrapped one.
            unsafe {
                let real = real(file);
                match (*(*real).methods).$method {
                    Some(call) => call(real, $($argument),*),
                    None => $otherwise,
                }
            }
        }
    )* };
}

pass_on! {
    close_real = close() -> c_int, or ERROR;
    read_real = read(into: *mut c_void, size: c_int, offset: i64) -> c_int, or IOERR;
    write_real = write(from: *const c_void, size: c_int, offset: i64) -> c_int, or IOERR;
    truncate_real = truncate(size: i64) -> c_int, or IOERR;
    sync = sync(flags: c_int) -> c_int, or IOERR;
    file_size = file_size(out: *mut i64) -> c_int, or IOERR;
    lock = lock(level: c_int) -> c_int, or IOERR;
    unlock = unlock(level: c_int) -> c_int, or IOERR;
    check_reserved_lock = check_reserved_lock(out: *mut c_int) -> c_int, or IOERR;
    control = file_control(operation: c_int, argument: *mut c_void) -> c_int, or NOTFOUND;
    sector_size = sector_size() -> c_int, or 0;
    device_characteristics = device_characteristics() -> c_int, or 0;
    shm_map_real = shm_map(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) -> c_int, or IOERR;
    shm_lock = shm_lock(offset: c_int, count: c_int, flags: c_int) -> c_int, or IOERR;
    shm_barrier = shm_barrier(), or ();
    shm_unmap_real = shm_unmap(delete: c_int) -> c_int, or IOERR;
    fetch = fetch(offset: i64, size: c_int, out: *mut *mut c_void) -> c_int, or {
        *out = ptr::null_mut(); // SQLite then reads
        OK
    };
    unfetch = unfetch(offset: i64, page: *mut c_void) -> c_int, or OK;
}

/// Tells the reader something; one that panics is told nothing more.
///
/// # Safety
/// SQLite has called with this file, so its head is there and nobody else uses it.
unsafe fn tell<T>(file: *mut File, what: impl FnOnce(&mut Reader) -> T) -> Option<T> {
    // SAFETY: as above.
    let reader = unsafe { &mut (*file.cast::<Head>()).reader };
    let told = reader.as_mut()?;
    let answer = catch_unwind(AssertUnwindSafe(|| what(told)));
    if answer.is_err() {
        *reader = None;
    }
    answer.ok()
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: SQLite calls it with a file that is open, and does not use it again. The reader goes first, as the
    // wrapped file holds its descriptor.
    unsafe {
        (*file.cast::<Head>()).reader = None;
        close_real(file)
    }
}

unsafe extern "C" fn read(file: *mut File, into: *mut c_void, size: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite calls it with a file that is open, and `size` bytes that have been read when it went well.
    unsafe {
        let Some(reader) = &mut (*file.cast::<Head>()).reader else {
            return read_real(file, into, size, offset);
        };
        let began = reader.begins();
        let result = read_real(file, into, size, offset);
        if result == OK && size > 0 {
            let bytes = std::slice::from_raw_parts(into.cast::<u8>(), size as usize);
            match began {
                None => reader.passed(offset, bytes),
                Some(began) => _ = tell(file, |reader| reader.ended(began, offset, bytes)),
            }
        }
        result
    }
}

unsafe extern "C" fn write(
    file: *mut File,
    from: *const c_void,
    size: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite calls it with a file that is open.
    unsafe {
        tell(file, |reader| reader.written(offset, size as usize));
        write_real(file, from, size, offset)
    }
}

unsafe extern "C" fn truncate(file: *mut File, size: i64) -> c_int {
    // SAFETY: SQLite calls it with a file that is open.
    unsafe {
        tell(file, Reader::cut);
        truncate_real(file, size)
    }
}

unsafe extern "C" fn shm_map(
    file: *mut File,
    region: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls it with a file that is open. The region stays where it is until `shm_unmap`, or the
    // file's end.
    unsafe {
        let result = shm_map_real(file, region, size, extend, out);
        if result == OK && size as usize == REGION && !(*out).is_null() {
            tell(file, |reader| reader.wal.mapped(region as usize, *out));
        }
        result
    }
}

unsafe extern "C" fn shm_unmap(file: *mut File, delete: c_int) -> c_int {
    // SAFETY: SQLite calls it with a file that is open.
    unsafe {
        tell(file, |reader| reader.wal.unmapped());
        shm_unmap_real(file, delete)
    }
}

unsafe extern "C" fn file_control(
    file: *mut File,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls it with a file that is open, so its head is there, and with what belongs to the operation:
    // for a pragma three strings, the result, the name and a value or null; for the name of a VFS one; for counts a
    // `Report`, if it is of this library.
    unsafe {
        if operation == FCNTL_PRAGMA
            && let Some(result) = pragma(file, argument.cast())
        {
            return result;
        }
        if operation == FCNTL_COUNTS && *argument.cast::<*const IoMethods>() == METHODS.as_ptr() {
            let report = &mut *argument.cast::<Report>();
            report.trees = tell(file, Reader::by_tree).unwrap_or_default();
            return OK;
        }
        let result = control(file, operation, argument);
        if operation == FCNTL_VFSNAME && result == OK {
            let name = argument.cast::<*mut c_char>();
            // %z frees what it prints, as SQLite's own shims do.
            *name = ((*file.cast::<Head>()).shim.functions.print)(c"forebay/%z".as_ptr(), *name);
        }
        result
    }
}

/// Answers a pragma, if it is ours and there is a reader.
///
/// # Safety
/// The file is open, `strings` are those of SQLITE_FCNTL_PRAGMA.
unsafe fn pragma(file: *mut File, strings: *mut [*mut c_char; 3]) -> Option<c_int> {
    // SAFETY: SQLite's contract: the name is a string, the value is one or null.
    let (name, value) = unsafe {
        let [_, name, value] = *strings;
        let value = (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy());
        (CStr::from_ptr(name).to_str().ok()?.to_ascii_lowercase(), value)
    };
    let name = name.strip_prefix("forebay_")?;
    let answer = |reader: &mut Reader| {
        if name == "stats" {
            return Some(Ok(reader.stats()));
        }
        let name = Settings::NAMES.into_iter().find(|known| *known == name)?;
        let mut settings = reader.settings();
        if let Some(value) = &value {
            if let Err(why) = settings.set(name, value) {
                return Some(Err(why.to_owned()));
            }
            reader.set(settings);
        }
        Some(Ok(settings.get(name)))
    };
    // SAFETY: SQLite has called with this file; it frees the result that it is given.
    unsafe {
        let answer = tell(file, answer)??;
        let result = if answer.is_ok() { OK } else { ERROR };
        let text = CString::new(answer.unwrap_or_else(|why| why)).ok()?;
        let print = (*file.cast::<Head>()).shim.functions.print;
        (*strings)[0] = print(c"%s".as_ptr(), text.as_ptr());
        Some(result)
    }
}

/// For wrapped files of version 1, 2, 3: SQLite calls no method of a later version than a file's.
static METHODS: [IoMethods; 3] = [methods(1), methods(2), methods(3)];

const fn methods(version: c_int) -> IoMethods {
    IoMethods {
        version,
        close: Some(close),
        read: Some(read),
        write: Some(write),
        truncate: Some(truncate),
        sync: Some(sync),
        file_size: Some(file_size),
        lock: Some(lock),
        unlock: Some(unlock),
        check_reserved_lock: Some(check_reserved_lock),
        file_control: Some(file_control),
        sector_size: Some(sector_size),
        device_characteristics: Some(device_characteristics),
        shm_map: Some(shm_map),
        shm_lock: Some(shm_lock),
        shm_barrier: Some(shm_barrier),
        shm_unmap: Some(shm_unmap),
        fetch: Some(fetch),
        unfetch: Some(unfetch),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, ffi};

    use super::*;

    #[test]
    fn a_panic_ends_look_ahead_for_its_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data.db");
        // SAFETY: they are one SQLite's own functions, and it is linked for good.
        unsafe {
            ffi::sqlite3_initialize();
            crate::register(
                ffi::sqlite3_vfs_find,
                ffi::sqlite3_vfs_register,
                ffi::sqlite3_mprintf,
                ffi::sqlite3_uri_parameter,
                false,
            )
            .unwrap();
        }
        let open = || Connection::open(format!("file:{}?vfs=forebay", path.display())).unwrap();
        let (db, other, stock) = (open(), open(), Connection::open(&path).unwrap());
        stock.execute_batch("create table t(a)").unwrap();
        let has_reader =
            |db: &Connection| db.query_row("pragma forebay_stats", [], |_| Ok(())).is_ok();
        let mut rows = 0;
        while has_reader(&db) && rows < 100 {
            let mut file: *mut File = ptr::null_mut();
            // SAFETY: the operation gives the file that SQLite uses, which is ours and open, and has a reader.
            unsafe {
                let into = (&raw mut file).cast();
                let operation = ffi::SQLITE_FCNTL_FILE_POINTER;
                ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), operation, into);
                tell(file, Reader::plant_panic).unwrap();
            }
            // What another has written SQLite reads again, by its own call of `read`.
            stock.execute("insert into t values (1)", []).unwrap();
            rows += 1;
            let count = db.query_row("select count(*) from t", [], |row| row.get(0));
            assert_eq!(count, Ok(rows));
        }
        assert!(!has_reader(&db) && has_reader(&other), "after {rows} reads");
        db.execute("insert into t values (2)", []).unwrap();
        let sound = db.query_row("pragma integrity_check", [], |row| row.get::<_, String>(0));
        assert_eq!(sound.as_deref(), Ok("ok"));
    }
}
