//! Atomics, locks and threads through one module, so that loom or shuttle can replace them.
//!
//! With `--cfg loom` the latch word, the page table and the parking lot run on loom's model of
//! memory, which tries every interleaving of a few steps and every value that a weak load may see.
//! With `--cfg shuttle` they run on shuttle's scheduler, which tries random interleavings of many
//! steps, all atomics sequentially consistent. Everything else uses `std` directly.

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::{Thread, current, park, yield_now},
};
#[cfg(shuttle)]
pub(crate) use shuttle::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::{Thread, current, park, yield_now},
};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    sync::{Mutex, MutexGuard},
    thread::{Thread, current, park, yield_now},
};

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::task::Waker;

/// Locks a mutex under which nothing panics half-way: a poisoned one is still consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

std::thread_local! {
    /// A waker runs on this thread.
    static WAKING: Cell<bool> = const { Cell::new(false) };
}

/// Wakes a task with its executor's code: a panic there does not belong to the thread that sends the notification.
pub(crate) fn wake_task(waker: Waker) {
    let before = WAKING.replace(true);
    let woken = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    WAKING.set(before);
    if let Err(panic) = woken {
        // Dropping it could panic again.
        std::mem::forget(panic);
        tracing::error!("a waker panicked; its task may wait forever");
    }
}

/// True if this thread runs a waker, in the middle of an operation.
pub(crate) fn is_waking() -> bool {
    WAKING.get()
}
