//! Tasks that wait for conditions that are not signalled, and are woken from time to time to check again.
//!
//! A frame becomes free when its page is released, and signalling that would slow down every hit. So a thread polls, as
//! a thread that waits for a frame does for itself: at growing intervals, and only while a task waits. It also takes
//! frames from their pages, and writes those if needed, so that a task does neither; and it wakes no more tasks than
//! there are frames, since there may be thousands.
//!
//! Invariants:  [RTY-1] a task that waits for a frame is woken once its time is up, whether there is a frame or not
//! Concurrency: any thread; no waker is called, cloned or dropped under the lock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use forebay_io::Io;

use super::helper::Helper;
use crate::error::Error;
use crate::sync::wake_task;

/// The list of waiting tasks.
#[derive(Debug)]
pub(crate) struct Retries {
    list: Mutex<List>,
    helper: Arc<Helper>,
    /// Whether a thread may be started for it.
    threads: bool,
}

#[derive(Debug, Default)]
struct List {
    /// Oldest first; a task that is woken is removed, and comes back at the end.
    tasks: VecDeque<Task>,
    numbered: u64,
    /// The reason why the last attempt found no frame.
    failed: Option<Error>,
    stopped: bool,
}

#[derive(Debug)]
struct Task {
    number: u64,
    waker: Waker,
    needs: Needs,
}

/// The condition that a task waits for.
#[derive(Debug)]
pub(crate) enum Needs {
    Frame {
        /// The latest time of its wakeup.
        until: Duration,
    },
    /// A place in this queue.
    Room(Io),
    /// An unspecified condition, checked each time.
    Time,
}

impl Retries {
    pub(crate) fn new(threads: bool) -> Retries {
        Retries { list: Mutex::default(), helper: Arc::default(), threads }
    }

    /// Registers `waker` to be woken when there may be what the task needs. The task keeps its `place` between calls.
    /// `work` creates the thread's function.
    ///
    /// # Errors
    /// [`Error::Setting`] when the system cannot create a thread.
    pub(crate) fn wait<W>(
        &self,
        place: &mut Option<u64>,
        needs: Needs,
        waker: &Waker,
        work: impl FnOnce() -> W,
    ) -> Result<(), Error>
    where
        W: FnMut(&Helper) + Send + 'static,
    {
        let again = waker.clone();
        let mut list = self.list();
        if list.stopped {
            // Closed: the next attempt reports that.
            drop(list);
            wake_task(again);
            return Ok(());
        }
        let known = place.and_then(|number| list.tasks.iter_mut().find(|it| it.number == number));
        let before = match known {
            Some(task) => {
                let waker = std::mem::replace(&mut task.waker, again);
                Some((waker, std::mem::replace(&mut task.needs, needs)))
            }
            None => {
                if list.tasks.is_empty() {
                    list.failed = None; // An old error, already reported to others.
                }
                list.numbered += 1;
                *place = Some(list.numbered);
                let number = list.numbered;
                list.tasks.push_back(Task { number, waker: again, needs });
                None
            }
        };
        drop(list);
        drop(before);
        if self.threads { self.helper.wake(work) } else { Ok(()) }
    }

    /// Unregisters the task.
    pub(crate) fn forget(&self, place: &mut Option<u64>) {
        let Some(number) = place.take() else { return };
        let removed = {
            let mut list = self.list();
            let at = list.tasks.iter().position(|task| task.number == number);
            at.and_then(|at| list.tasks.remove(at))
        };
        drop(removed);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list().tasks.is_empty()
    }

    /// Tasks that wait for a frame.
    pub(crate) fn frames_wanted(&self) -> usize {
        let frame = |task: &&Task| matches!(task.needs, Needs::Frame { .. });
        self.list().tasks.iter().filter(frame).count()
    }

    /// The reason why there is no frame, if it is not that all are in use.
    pub(crate) fn failed(&self) -> Option<Error> {
        self.list().failed.clone()
    }

    /// Wakes as many of the tasks waiting for a frame as there are `frames`, and those whose time is up, or all of them
    /// if there is an error to report; as many of those waiting for room as there is room for; and those waiting for
    /// another condition. True if there was a frame or room for any.
    pub(crate) fn wake(&self, frames: usize, now: Duration, failed: Option<Error>) -> bool {
        let (mut helped, mut frames, mut places, mut woken) = (false, frames, 0, Vec::new());
        {
            let mut list = self.list();
            let reports = failed.is_some();
            list.failed = failed;
            for _ in 0..list.tasks.len() {
                let Some(task) = list.tasks.pop_front() else { break };
                let finds = match &task.needs {
                    Needs::Frame { .. } => frames > 0,
                    // Summed over all queues, which is too few where there are several.
                    Needs::Room(io) => io.in_flight() + places < io.queue_depth(),
                    Needs::Time => false,
                };
                helped |= finds;
                let goes = match task.needs {
                    Needs::Frame { until } => {
                        frames -= usize::from(finds);
                        finds || reports || until <= now // [RTY-1]
                    }
                    Needs::Room(_) => {
                        places += usize::from(finds);
                        finds
                    }
                    Needs::Time => true,
                };
                if goes { woken.push(task) } else { list.tasks.push_back(task) }
            }
        }
        woken.into_iter().for_each(|task| wake_task(task.waker));
        helped
    }

    /// Ends the thread, and wakes all tasks for a last attempt.
    pub(crate) fn stop(&self) {
        let left = {
            let mut list = self.list();
            list.stopped = true;
            std::mem::take(&mut list.tasks)
        };
        left.into_iter().for_each(|task| wake_task(task.waker));
        self.helper.stop();
    }

    fn list(&self) -> MutexGuard<'_, List> {
        // No operation under the lock can panic half-way through a change.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
