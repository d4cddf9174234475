//! The file system that SQLite sees: `forebay`, over the VFS that was the default when it was registered.
//!
//! A main database file is wrapped, see `file`. The wrapped VFS opens journals, WALs and temporary files directly in
//! SQLite's memory, so SQLite never calls this module for them. All other calls are passed on.
//!
//! Concurrency: one thread registers at a time [VFS-1]; nothing changes afterwards.
//! Failure:     the wrapped VFS's results are returned unchanged.

#![expect(unsafe_code, reason = "SQLite calls a VFS through C pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use crate::RegisterError;
use crate::abi::{Anything, ERROR, File, Functions, OK, OPEN_MAIN_DB, OPEN_URI, Vfs};
use crate::file::{self, Shim};
use crate::memory::boxed;
use crate::reader::Settings;

const NAME: &CStr = c"forebay";
/// SQLite's own VFSs have had this version since 3.7.6.
const VERSION: c_int = 3;

type Open = unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int;

static REGISTERING: Mutex<()> = Mutex::new(());

/// The owner of the registered VFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registered {
    Ours,
    /// Another copy of this library has registered its own in this process.
    OtherCopy,
}

/// Registers the VFS, or makes the registered one the default.
///
/// # Safety
/// The functions are those of one SQLite, which stays loaded.
pub(crate) unsafe fn register(
    functions: Functions,
    as_default: bool,
) -> Result<Registered, RegisterError> {
    let given =
        |code| if code == OK { Ok(Registered::Ours) } else { Err(RegisterError::Refused(code)) };
    // [VFS-1] Without the lock, between the search and the registration another thread might register a second VFS, or
    // one over the first.
    let _one_at_a_time = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the name is a C string, and null requests the default. The default is looked up first: if it belongs to
    // another copy of this library, the search by name finds that copy too.
    let (base, there) = unsafe { ((functions.find)(ptr::null()), (functions.find)(NAME.as_ptr())) };
    if !there.is_null() {
        // SAFETY: SQLite has just returned it, and our VFSs are never unregistered; only ours has a shim of this
        // library.
        return unsafe {
            let is_ours = (*there).open.is_some_and(|of| ptr::fn_addr_eq(of, open as Open));
            match (is_ours, as_default && base != there) {
                (true, false) => Ok(Registered::Ours),
                (false, false) => Ok(Registered::OtherCopy),
                (false, true) => Err(RegisterError::OtherCopy),
                // The current default VFS may encrypt files, so it must not be bypassed.
                (true, true) if shim(there).base != base => Err(RegisterError::OtherDefault),
                (true, true) => given((functions.register)(there, 1)),
            }
        };
    }
    if base.is_null() {
        return Err(RegisterError::NoDefault);
    }
    // SAFETY: a registered VFS begins with its version; only that is read, as older ones are shorter.
    if unsafe { (*base).version } < VERSION {
        return Err(RegisterError::OldDefault);
    }
    let shim: &'static Shim = Box::leak(boxed(Shim { base, functions })?);
    // SAFETY: a VFS of this version is a whole `Vfs`, and it is registered.
    let wrapped = unsafe { &*base };
    let ours = Box::leak(boxed(over(wrapped, shim))?);
    // SAFETY: it is a complete VFS that lives as long as the process.
    given(unsafe { (functions.register)(ours, as_default.into()) })
}

/// Our VFS over another: a method that the other lacks is also missing here.
fn over(base: &Vfs, shim: &'static Shim) -> Vfs {
    Vfs {
        version: VERSION,
        file_size: base.file_size + file::HEAD as c_int,
        pathname_max: base.pathname_max,
        next: ptr::null_mut(),
        name: NAME.as_ptr(),
        app_data: ptr::from_ref(shim).cast_mut().cast(),
        open: Some(open),
        delete: base.delete.and(Some(delete)),
        access: base.access.and(Some(access)),
        full_pathname: base.full_pathname.and(Some(full_pathname)),
        dl_open: base.dl_open.and(Some(dl_open)),
        dl_error: base.dl_error.and(Some(dl_error)),
        dl_sym: base.dl_sym.and(Some(dl_sym)),
        dl_close: base.dl_close.and(Some(dl_close)),
        randomness: base.randomness.and(Some(randomness)),
        sleep: base.sleep.and(Some(sleep)),
        current_time: base.current_time.and(Some(current_time)),
        get_last_error: base.get_last_error.and(Some(get_last_error)),
        current_time_int64: base.current_time_int64.and(Some(current_time_int64)),
        set_system_call: base.set_system_call.and(Some(set_system_call)),
        get_system_call: base.get_system_call.and(Some(get_system_call)),
        next_system_call: base.next_system_call.and(Some(next_system_call)),
    }
}

/// # Safety
/// `vfs` is ours.
unsafe fn shim(vfs: *mut Vfs) -> &'static Shim {
    // SAFETY: `over` stored it, and it is never freed.
    unsafe { &*(*vfs).app_data.cast::<Shim>() }
}

unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls it with our VFS; the wrapped one is registered permanently.
    unsafe {
        let shim = shim(vfs);
        let Some(base_open) = (*shim.base).open else { return ERROR };
        if flags & OPEN_MAIN_DB == 0 || name.is_null() {
            return base_open(shim.base, name, file, flags, out_flags);
        }
        let real = file::begin(file);
        let is_uri = flags & OPEN_URI != 0;
        let settings = if is_uri { file::settings(shim, name) } else { Ok(Settings::new()) };
        let settings = match settings {
            Ok(settings) => settings,
            Err(code) => return code,
        };
        let result = base_open(shim.base, name, real, flags, out_flags);
        file::opened(file, shim, name, settings, result);
        result
    }
}

/// Methods that call the wrapped VFS's.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?, or $otherwise:expr;)*) => { $(
        unsafe extern "C" fn $name(vfs: *mut Vfs, $($argument: $kind),*) $(-> $result)? {
            // SAFETY: SQLite calls it with our VFS; the wrapped one is registered permanently.
            unsafe {
                let base = shim(vfs).base;
                match (*base).$name {
                    Some(call) => call(base, $($argument),*),
                    None => $otherwise,
                }
            }
        }
    )* };
}

pass_on! {
    delete(name: *const c_char, sync_directory: c_int) -> c_int, or ERROR;
    access(name: *const c_char, flags: c_int, out: *mut c_int) -> c_int, or ERROR;
    full_pathname(name: *const c_char, size: c_int, out: *mut c_char) -> c_int, or ERROR;
    dl_open(name: *const c_char) -> *mut c_void, or ptr::null_mut();
    dl_error(size: c_int, message: *mut c_char), or ();
    dl_sym(library: *mut c_void, symbol: *const c_char) -> Option<Anything>, or None;
    dl_close(library: *mut c_void), or ();
    randomness(size: c_int, out: *mut c_char) -> c_int, or 0;
    sleep(microseconds: c_int) -> c_int, or 0;
    current_time(out: *mut f64) -> c_int, or ERROR;
    get_last_error(size: c_int, out: *mut c_char) -> c_int, or 0;
    current_time_int64(out: *mut i64) -> c_int, or ERROR;
    set_system_call(name: *const c_char, call: Option<Anything>) -> c_int, or ERROR;
    get_system_call(name: *const c_char) -> Option<Anything>, or None;
    next_system_call(name: *const c_char) -> *const c_char, or ptr::null();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rusqlite::ffi;

    use super::*;

    /// File systems, the default first, as SQLite keeps them. A search is deliberately slow.
    static LIST: Mutex<Vec<usize>> = Mutex::new(Vec::new());

    unsafe extern "C" fn find(name: *const c_char) -> *mut Vfs {
        // SAFETY: each entry of the list was registered, and stays.
        let is_it = |vfs: &&usize| unsafe {
            let vfs = **vfs as *mut Vfs;
            name.is_null() || CStr::from_ptr((*vfs).name) == CStr::from_ptr(name)
        };
        let found = LIST.lock().unwrap().iter().find(is_it).copied();
        std::thread::sleep(Duration::from_millis(5));
        found.map_or(ptr::null_mut(), |vfs| vfs as *mut Vfs)
    }

    unsafe extern "C" fn register(vfs: *mut Vfs, as_default: c_int) -> c_int {
        let mut list = LIST.lock().unwrap();
        list.retain(|it| *it != vfs as usize);
        let at = if as_default != 0 { 0 } else { list.len() };
        list.insert(at, vfs as usize);
        OK
    }

    fn functions() -> Functions {
        let (print, uri_parameter) = (ffi::sqlite3_mprintf, ffi::sqlite3_uri_parameter);
        Functions { find, register, print, uri_parameter, log: ffi::sqlite3_log }
    }

    /// One test, since the list belongs to the process.
    #[test]
    fn one_is_registered_however_many_try_at_once_and_none_without_memory() {
        // SAFETY: it is SQLite's own, which stays.
        let unix = unsafe {
            ffi::sqlite3_initialize();
            ffi::sqlite3_vfs_find(ptr::null()).cast::<Vfs>()
        };
        LIST.lock().unwrap().push(unix as usize);
        for granted in 0..2 {
            // SAFETY: the functions belong together.
            let register = || unsafe { super::register(functions(), false) };
            let (refused, _) = crate::memory::tests::with_allocations(granted, register);
            assert_eq!(refused, Err(RegisterError::NoMemory));
            assert_eq!(LIST.lock().unwrap().len(), 1);
        }
        std::thread::scope(|scope| {
            for at in 0..8 {
                // SAFETY: the functions belong together.
                let register = move || unsafe { super::register(functions(), at % 2 == 0) };
                let registered = scope.spawn(register);
                scope.spawn(move || assert_eq!(registered.join().unwrap(), Ok(Registered::Ours)));
            }
        });
        let list = LIST.lock().unwrap().clone();
        assert_eq!(list.len(), 2, "[VFS-1]");
        assert_eq!(list[1], unix as usize, "ours is the default");
        // SAFETY: it is ours.
        assert_eq!(unsafe { shim(list[0] as *mut Vfs) }.base, unix, "[VFS-1]");
    }
}
