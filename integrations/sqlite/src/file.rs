//! A main database file that SQLite sees. Each call is passed on to the file of the wrapped VFS, which lies behind our
//! header in the memory that SQLite provides. Successful reads are reported to a `Reader`.
//!
//! Concurrency: SQLite calls a file's methods from one thread at a time.
//! Failure:     the wrapped file's results are returned unchanged. A panic in the reader is caught and ends the reader;
//!              a failed allocation ends look-ahead for the file and is logged by `sqlite3_log`.

#![expect(unsafe_code, reason = "SQLite calls a file through C pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::abi::{
    CANTOPEN, ERROR, FCNTL_PRAGMA, FCNTL_VFSNAME, File, Functions, IOERR, IoMethods, NOMEM,
    NOTFOUND, OK, READONLY, Vfs,
};
use crate::hint::Descriptor;
use crate::memory::{Line, NoMemory, boxed};
use crate::reader::{Reader, Settings};
use crate::tree_counts::Counts;
use crate::wal::REGION;

/// Requests the counts of our file, in a `Report`. SQLite reserves the numbers below 100 for itself.
pub(crate) const FCNTL_COUNTS: c_int = 0x0F0B_A700;

/// The data of our VFS; it lives as long as the process.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(crate) base: *mut Vfs,
    pub(crate) functions: Functions,
}

/// Prefix of our pragmas' names.
const PREFIX: &str = "forebay_";

/// The result of `FCNTL_COUNTS`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Report {
    /// The address of this library's methods: another copy of the library may call, whose `Report` is another type.
    asker: *const IoMethods,
    pub(crate) trees: Vec<(Option<String>, Counts)>,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report { asker: METHODS.as_ptr(), trees: Vec::new() }
    }
}

/// Our part of a file.
#[derive(Debug)]
#[repr(C)]
struct Head {
    file: File,
    shim: &'static Shim,
    /// The name by which it was opened. SQLite keeps it until the file is closed.
    name: *const c_char,
    /// `None` if no hints are possible, and after a panic.
    reader: Option<Box<Reader>>,
}

/// Bytes before the wrapped file; SQLite aligns to 8.
pub(crate) const HEAD: usize = size_of::<Head>().next_multiple_of(8);

/// Prepares memory for a file that SQLite opens; returns the wrapped file's.
///
/// # Safety
/// `file` has `HEAD` bytes and as many as the wrapped VFS requires for its files.
pub(crate) unsafe fn begin(file: *mut File) -> *mut File {
    // SAFETY: both lie in that memory.
    unsafe {
        let real = real(file);
        (*file).methods = ptr::null();
        (*real).methods = ptr::null();
        real
    }
}

/// Reads the settings from a name's URI parameters. An invalid value is logged, and SQLite's result code is returned.
///
/// # Safety
/// `name` was given to xOpen with SQLITE_OPEN_URI.
pub(crate) unsafe fn settings(shim: &Shim, name: *const c_char) -> Result<Settings, c_int> {
    let mut settings = Settings::new();
    for setting in Settings::NAMES {
        // SAFETY: SQLite's contract for such a name; a value that exists is a string.
        unsafe {
            let value = (shim.functions.uri_parameter)(name, setting.as_ptr());
            if value.is_null() {
                continue;
            }
            // Text that is not UTF-8 is invalid for each of them.
            let text = CStr::from_ptr(value).to_str().unwrap_or_default();
            if let Err(why) = settings.set(setting.to_str().unwrap_or_default(), text) {
                let format = c"forebay: %s=%s in the URI of %s: %.*s";
                let (why, size) = (why.as_ptr(), why.len() as c_int);
                let (setting, log) = (setting.as_ptr(), shim.functions.log);
                log(CANTOPEN, format.as_ptr(), setting, value, name, size, why);
                return Err(CANTOPEN);
            }
        }
    }
    Ok(settings)
}

/// The wrapped VFS has returned from its open, with or without success: SQLite closes any file that has methods.
///
/// # Safety
/// `file` was prepared by `begin`, and the wrapped VFS's open has returned `result` for `name`.
pub(crate) unsafe fn opened(
    file: *mut File,
    shim: &'static Shim,
    name: *const c_char,
    settings: Settings,
    result: c_int,
) {
    // SAFETY: the memory is ours (contract above); a file's methods begin with their version.
    unsafe {
        let real = real(file);
        let methods = (*real).methods;
        if methods.is_null() {
            return;
        }
        // Whatever the version, SQLite assumes that a file with shared-memory methods may have a write-ahead log.
        let methods = match ((*methods).version, (*methods).shm_map) {
            (..2, _) | (2, None) => &METHODS[0],
            (2, Some(_)) => &METHODS[1],
            (_, Some(_)) => &METHODS[2],
            (_, None) => &METHODS[3],
        };
        let head = Head { file: File { methods }, shim, name, reader: None };
        file.cast::<Head>().write(head);
        if result == OK {
            let made = catch_unwind(|| {
                let path = CStr::from_ptr(name);
                let Some(descriptor) = Descriptor::find(real, shim.base, path) else {
                    return Ok(None);
                };
                boxed(Reader::new(descriptor, settings)).map(Some)
            });
            match made {
                Ok(Ok(reader)) => (*file.cast::<Head>()).reader = reader,
                Ok(Err(NoMemory)) => log_no_memory(file),
                Err(_) => {}
            }
        }
    }
}

/// # Safety
/// `file` has a head.
unsafe fn log_no_memory(file: *const File) {
    // SAFETY: as above; the name is a string until the file is closed.
    unsafe {
        let Head { shim, name, .. } = &*file.cast::<Head>();
        let format = c"forebay: out of memory: look-ahead ends for %s";
        (shim.functions.log)(NOMEM, format.as_ptr(), *name);
    }
}

/// The wrapped file.
///
/// # Safety
/// `file` lies in memory of at least `HEAD` bytes.
unsafe fn real(file: *mut File) -> *mut File {
    // SAFETY: as above.
    unsafe { file.byte_add(HEAD) }
}

/// Methods that call the wrapped file's.
macro_rules! pass_on {
    ($($name:ident = $method:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?, or $otherwise:expr;)*) => { $(
        unsafe extern "C" fn $name(file: *mut File, $($argument: $kind),*) $(-> $result)? {
            // SAFETY: SQLite calls it with an open file, so the wrapped file is open too.
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
        *out = ptr::null_mut(); // SQLite then calls the read method
        OK
    };
    unfetch = unfetch(offset: i64, page: *mut c_void) -> c_int, or OK;
}

/// Calls the reader, if there is one. A reader that panics is removed.
///
/// # Safety
/// SQLite has called with this file, so its head exists and no other thread uses it.
unsafe fn with_reader<T>(
    file: *mut File,
    call: impl FnOnce(&mut Reader) -> Result<T, NoMemory>,
) -> Result<Option<T>, NoMemory> {
    // SAFETY: as above.
    let reader = unsafe { &mut (*file.cast::<Head>()).reader };
    let Some(called) = reader else { return Ok(None) };
    let answer = catch_unwind(AssertUnwindSafe(|| call(called).inspect_err(|_| called.give_up())));
    match answer {
        Ok(Ok(answer)) => Ok(Some(answer)),
        Ok(Err(NoMemory)) => {
            // SAFETY: as above.
            unsafe { log_no_memory(file) };
            Err(NoMemory)
        }
        Err(_) => {
            *reader = None;
            Ok(None)
        }
    }
}

/// Calls the reader and ignores a failure.
///
/// # Safety
/// As for `with_reader`.
unsafe fn notify_reader(file: *mut File, call: impl FnOnce(&mut Reader) -> Result<(), NoMemory>) {
    // SAFETY: as above.
    let _ = unsafe { with_reader(file, call) };
}

unsafe extern "C" fn close(file: *mut File) -> c_int {
    // SAFETY: SQLite calls it with an open file, and does not use it again. The reader is dropped first, as the wrapped
    // file holds its descriptor.
    unsafe {
        (*file.cast::<Head>()).reader = None;
        close_real(file)
    }
}

unsafe extern "C" fn read(file: *mut File, into: *mut c_void, size: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite calls it with an open file, and with `size` bytes, which are read if the call succeeds.
    unsafe {
        let began = with_reader(file, |reader| Ok(reader.begins())).ok().flatten();
        let result = read_real(file, into, size, offset);
        if result == OK && size > 0 {
            let bytes = std::slice::from_raw_parts(into.cast::<u8>(), size as usize);
            notify_reader(file, |reader| match began.flatten() {
                Some(began) => reader.ended(began, offset, bytes),
                None => {
                    reader.passed(offset, bytes);
                    Ok(())
                }
            });
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
    // SAFETY: SQLite calls it with an open file.
    unsafe {
        notify_reader(file, |reader| {
            reader.written(offset, size as usize);
            Ok(())
        });
        write_real(file, from, size, offset)
    }
}

unsafe extern "C" fn truncate(file: *mut File, size: i64) -> c_int {
    // SAFETY: SQLite calls it with an open file.
    unsafe {
        notify_reader(file, |reader| {
            reader.forget();
            Ok(())
        });
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
    // SAFETY: SQLite calls it with an open file. The region stays where it is until `shm_unmap` or until the file is
    // closed.
    unsafe {
        let result = shm_map_real(file, region, size, extend, out);
        match result {
            // A process that may not write the shared memory receives it read-only.
            OK | READONLY if size as usize == REGION && !(*out).is_null() => {
                notify_reader(file, |reader| reader.wal.mapped(region as usize, *out));
            }
            OK => {}
            // The region is missing or unreliable, and SQLite reads the log itself: nothing reports what has changed.
            _ => notify_reader(file, |reader| {
                reader.forget();
                Ok(())
            }),
        }
        result
    }
}

unsafe extern "C" fn shm_unmap(file: *mut File, delete: c_int) -> c_int {
    // SAFETY: SQLite calls it with an open file.
    unsafe {
        notify_reader(file, |reader| {
            reader.wal.unmapped();
            Ok(())
        });
        shm_unmap_real(file, delete)
    }
}

unsafe extern "C" fn file_control(
    file: *mut File,
    operation: c_int,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: SQLite calls it with an open file, so its head exists, and with the operation's argument: for a pragma
    // three strings, namely the result, the name and a value or null; for a VFS's name one string; for counts a
    // `Report`, if it is this library's.
    unsafe {
        if operation == FCNTL_PRAGMA
            && let Some(result) = pragma(file, argument.cast())
        {
            return result;
        }
        if operation == FCNTL_COUNTS && *argument.cast::<*const IoMethods>() == METHODS.as_ptr() {
            let report = &mut *argument.cast::<Report>();
            return match with_reader(file, Reader::by_tree) {
                Ok(trees) => {
                    report.trees = trees.unwrap_or_default();
                    OK
                }
                Err(NoMemory) => NOMEM,
            };
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
/// The file is open; `strings` are those of SQLITE_FCNTL_PRAGMA.
unsafe fn pragma(file: *mut File, strings: *mut [*mut c_char; 3]) -> Option<c_int> {
    // SAFETY: SQLite's contract: the name is a string; the value is a string or null.
    let (name, value) = unsafe {
        let [_, name, value] = *strings;
        let value = (!value.is_null()).then(|| CStr::from_ptr(value).to_str().unwrap_or_default());
        (CStr::from_ptr(name).to_str().ok()?, value)
    };
    let (prefix, name) = name.split_at_checked(PREFIX.len())?;
    if !prefix.eq_ignore_ascii_case(PREFIX) {
        return None;
    }
    let answer = |reader: &mut Reader| {
        if name.eq_ignore_ascii_case("stats") {
            return Some(Ok(reader.stats()));
        }
        let names = Settings::NAMES.into_iter().filter_map(|name| name.to_str().ok());
        let name = names.into_iter().find(|known| known.eq_ignore_ascii_case(name))?;
        let mut settings = reader.settings();
        if let Some(value) = value {
            if let Err(why) = settings.set(name, value) {
                return Some(Err(Line::of(why)));
            }
            reader.set(settings);
        }
        Some(Ok(settings.get(name)))
    };
    // SAFETY: SQLite has called with this file, and frees the result that it receives.
    unsafe {
        let answer = with_reader(file, |reader| Ok(answer(reader))).ok()???;
        let (result, line) = match &answer {
            Ok(line) => (OK, line.as_str()),
            Err(why) => (ERROR, why.as_str()),
        };
        let print = (*file.cast::<Head>()).shim.functions.print;
        (*strings)[0] = print(c"%.*s".as_ptr(), line.len() as c_int, line.as_ptr());
        Some(if (*strings)[0].is_null() { NOMEM } else { result })
    }
}

/// For wrapped files of version 1, 2, 3, and of 3 without shared memory. SQLite calls no method of a later version than
/// the file's, and assumes that a file with shared-memory methods may have a write-ahead log.
static METHODS: [IoMethods; 4] =
    [methods(1, true), methods(2, true), methods(3, true), methods(3, false)];

const fn methods(version: c_int, shares: bool) -> IoMethods {
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
        shm_map: if shares { Some(shm_map) } else { None },
        shm_lock: if shares { Some(shm_lock) } else { None },
        shm_barrier: if shares { Some(shm_barrier) } else { None },
        shm_unmap: if shares { Some(shm_unmap) } else { None },
        fetch: Some(fetch),
        unfetch: Some(unfetch),
    }
}

/// Counts each read of a file as one that waited, if the file has a reader.
///
/// # Safety
/// The file is open and was opened through our VFS.
#[cfg(test)]
pub(crate) unsafe fn plant_waits(file: *mut File) {
    // SAFETY: as above.
    unsafe {
        notify_reader(file, |reader| {
            reader.plant(crate::reader::Planted::Waits);
            Ok(())
        });
    }
}

/// Registers the VFS over the default one of the SQLite that the tests use.
#[cfg(test)]
pub(crate) fn register_for_tests() {
    use rusqlite::ffi;
    // SAFETY: they are the functions of one SQLite, which is never unloaded.
    unsafe {
        ffi::sqlite3_initialize();
        crate::register(
            ffi::sqlite3_vfs_find,
            ffi::sqlite3_vfs_register,
            ffi::sqlite3_mprintf,
            ffi::sqlite3_uri_parameter,
            ffi::sqlite3_log,
            false,
        )
        .unwrap();
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, ffi};

    use super::*;
    use crate::reader::Planted;

    #[test]
    fn a_panic_ends_look_ahead_for_its_file_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data.db");
        register_for_tests();
        let open = || Connection::open(format!("file:{}?vfs=forebay", path.display())).unwrap();
        let (other, stock) = (open(), Connection::open(&path).unwrap());
        stock.execute_batch("create table t(a)").unwrap();
        let has_reader =
            |db: &Connection| db.query_row("pragma forebay_stats", [], |_| Ok(())).is_ok();
        let mut rows = 0;
        for planted in [Planted::PanicBefore, Planted::PanicWithoutTiming, Planted::PanicTimed] {
            let db = open();
            while has_reader(&db) && rows < 100 {
                let mut file: *mut File = ptr::null_mut();
                // SAFETY: the operation returns the file that SQLite uses. It is ours, open, and has a reader.
                unsafe {
                    let into = (&raw mut file).cast();
                    let operation = ffi::SQLITE_FCNTL_FILE_POINTER;
                    ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), operation, into);
                    notify_reader(file, |reader| {
                        reader.plant(planted);
                        Ok(())
                    });
                }
                // SQLite reads pages that another connection has written again, by its own call of `read`.
                stock.execute("insert into t values (1)", []).unwrap();
                rows += 1;
                let count = db.query_row("select count(*) from t", [], |row| row.get(0));
                assert_eq!(count, Ok(rows));
            }
            assert!(!has_reader(&db) && has_reader(&other), "{planted:?}, after {rows} reads");
            db.execute("insert into t values (2)", []).unwrap();
            rows += 1;
            let sound = db.query_row("pragma integrity_check", [], |row| row.get::<_, String>(0));
            assert_eq!(sound.as_deref(), Ok("ok"));
        }
    }
}
