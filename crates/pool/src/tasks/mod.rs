//! Tasks: wait for a page without a thread that sleeps.
//!
//! A task that waits registers a waker and returns. Three things wake it: the thread that completes the read or
//! releases the latch, by the frame's list (`cache::frame::parking`); a *driver* (`driver`), which processes the
//! queue's completions while no thread waits for it; and the thread that polls conditions that are not signalled
//! (`retry`): a frame that becomes free, a place in a full queue, the end of a close.
//!
//! Both threads are started by the first task that needs one, sleep without a timeout while no task waits, and end
//! with the pool. See docs/adr/0021-futures.md for who drives, and why.

mod driver;
mod helper;
mod retry;

#[cfg(feature = "futures")]
pub(crate) use driver::Attended;
pub(crate) use driver::Driver;
pub(crate) use helper::Helper;
pub(crate) use retry::{Needs, Retries};
