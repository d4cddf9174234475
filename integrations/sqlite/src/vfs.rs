//! The file system that SQLite sees: `forebay`, over the one that was the default when it was registered.
//!
//! A main database file is wrapped, see `file`. Journals, WALs and temporary files are opened by the wrapped VFS into
//! SQLite's own memory: we are never called for them. All else is passed on.
//!
//! Concurrency: nothing changes after registration.
//! Failure:     the wrapped VFS's results are returned as they are.

#![expect(unsafe_code, reason = "SQLite calls a VFS through C pointers")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use crate::RegisterError;
use crate::abi::{Anything, ERROR, File, Functions, OK, OPEN_MAIN_DB, OPEN_URI, Vfs};
use crate::file;

const NAME: &CStr = c"forebay";
/// SQLite's own have had it since 3.7.6.
const VERSION: c_int = 3;

/// What our VFS needs to know; it lives as long as the process.
#[derive(Debug)]
pub(crate) struct Shim {
    pub(crate) base: *mut Vfs,
    pub(crate) functions: Functions,
}

type Open = unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> c_int;

/// Registers the VFS, or makes the one that is registered the default.
///
/// # Safety
/// The functions are those of one SQLite, which stays loaded.
pub(crate) unsafe fn register(functions: Functions, as_default: bool) -> Result<(), RegisterError> {
    let given = |code| if code == OK { Ok(()) } else { Err(RegisterError::Refused(code)) };
    let as_default = c_int::from(as_default);
    // SAFETY: the name is a C string, and null asks for the default.
    let (there, base) = unsafe { ((functions.find)(NAME.as_ptr()), (functions.find)(ptr::null())) };
    if !there.is_null() {
        if as_default == 0 || base == there {
            return Ok(());
        }
        // SAFETY: SQLite has just named it, and ours are never unregistered; only ours has a shim of this library's.
        return unsafe {
            let is_ours = (*there).open.is_some_and(|of| ptr::fn_addr_eq(of, open as Open));
            // What is the default now may be there to encrypt: it is not to be passed by.
            if !is_ours || shim(there).base != base {
                return Err(RegisterError::OtherDefault);
            }
            given((functions.register)(there, as_default))
        };
    }
    if base.is_null() {
        return Err(RegisterError::NoDefault);
    }
    // SAFETY: a VFS that is registered begins with its version, which is read alone: older ones are shorter.
    if unsafe { (*base).version } < VERSION {
        return Err(RegisterError::OldDefault);
    }
    let shim: &'static Shim = Box::leak(Box::new(Shim { base, functions }));
    // SAFETY: of this version, it is a whole `Vfs`, and registered.
    let wrapped = unsafe { &*base };
    let ours = Box::leak(Box::new(over(wrapped, shim)));
    // SAFETY: it is a whole VFS that lives as long as the process.
    given(unsafe { (functions.register)(ours, as_default) })
}

/// Our VFS over another: a method that the other lacks is lacking here too.
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
    // SAFETY: `over` put it there, and it is never freed.
    unsafe { &*(*vfs).app_data.cast::<Shim>() }
}

unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    file: *mut File,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls it with our VFS; the wrapped one is registered for good.
    unsafe {
        let shim = shim(vfs);
        let Some(base_open) = (*shim.base).open else { return ERROR };
        if flags & OPEN_MAIN_DB == 0 || name.is_null() {
            return base_open(shim.base, name, file, flags, out_flags);
        }
        let real = file::begin(file);
        let result = base_open(shim.base, name, real, flags, out_flags);
        file::opened(file, shim, name, flags & OPEN_URI != 0, result);
        result
    }
}

/// Methods that call the wrapped VFS's.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?, or $otherwise:expr;)*) => { $(
        unsafe extern "C" fn $name(vfs: *mut Vfs, $($argument: $kind),*) $(-> $result)? {
            // SAFETY: SQLite calls it with our VFS; the wrapped one is registered for good.
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
