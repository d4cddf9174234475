//! Trace: what look-ahead decided, one event for each decision, the newest ones kept.
//!
//! "Why was this read slow" often means "what was requested, and why". A pool that has a [`Trace`] records there each
//! request, each hint and each returned block; one that has none (the usual case) checks an empty option and does
//! nothing else. The memory is allocated when the trace is created, 40 bytes per event, so recording never allocates.
//! Worked example: a capacity of 16 and 20 events leave the last 16, and a count of 4 that were overwritten.
//!
//! Recording through `tracing` was rejected: a subscriber that keeps up with a scan is harder to write than this ring,
//! and the events are needed afterwards, as data.
//!
//! Invariants:  [TRC-1] never more events than the capacity; what is overwritten is counted
//!              [TRC-2] events are returned in the order in which they were recorded
//!              [TRC-3] recording does not allocate
//! Concurrency: any thread records and reads. Recording takes a lock to copy one event. Threads that record at once may
//!              take the lock in another order than they read the clock.

mod switch;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use switch::Tracing;

use crate::error::Error;
use crate::names::names;
use crate::tag::{Block, FileId};

/// The fewest events that a trace may keep.
const CAPACITY_MIN: usize = 16;

/// The most events that a trace may keep: 640 MiB of them.
const CAPACITY_MAX: usize = 16 << 20;

/// One decision of look-ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time since the zero of the pool's clock.
    pub at: Duration,
    /// The number of the read stream, from 1; 0 for plain reads.
    pub stream: u32,
    /// The file.
    pub file: FileId,
    /// The first block.
    pub first: Block,
    /// The number of blocks, at least 1; gaps that are read through are counted.
    pub blocks: u32,
    /// What was done.
    pub action: Action,
    /// The reason, or the result.
    pub why: Why,
}

/// An action on some blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// A request was made to read them into frames.
    Request,
    /// A hint announced to the kernel that they will be needed.
    Hint,
    /// A block was returned to the consumer.
    Deliver,
}

/// The reason for an action, or its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// The blocks follow those before.
    Sequential,
    /// The blocks precede those before.
    Backward,
    /// The blocks have a constant stride.
    Strided,
    /// The adjacent blocks are in memory, which suggests an approaching reader.
    Context,
    /// Nothing is known about them.
    Random,
    /// Several needed blocks made one request.
    Merged,
    /// As merged, with unrequested blocks between them.
    Gap,
    /// Another thread's read of them was in progress.
    Joined,
    /// They were in memory.
    Hit,
    /// A needed block without needed neighbours.
    Single,
    /// The consumer reached the block before its read had ended, and waited.
    Late,
}

impl From<forebay_lookahead::Why> for Why {
    fn from(why: forebay_lookahead::Why) -> Why {
        match why {
            forebay_lookahead::Why::Random => Why::Random,
            forebay_lookahead::Why::Sequential => Why::Sequential,
            forebay_lookahead::Why::Backward => Why::Backward,
            forebay_lookahead::Why::Strided => Why::Strided,
            forebay_lookahead::Why::Context => Why::Context,
        }
    }
}

/// A record of the newest decisions of look-ahead. Clones share it.
///
/// Use one handle for the pool to record in, and one to read the trace.
#[derive(Clone)]
pub struct Trace {
    ring: Arc<Mutex<TraceBuffer>>,
    capacity: usize,
}

struct TraceBuffer {
    /// Never longer than the trace's capacity.
    events: VecDeque<TraceEvent>,
    dropped: u64,
}

names!(Action:
    Request "request", Hint "hint", Deliver "deliver"
);

names!(Why:
    Sequential "sequential", Backward "backward", Strided "strided", Context "context",
    Random "random", Merged "merged", Gap "gap", Joined "joined", Hit "hit", Single "single",
    Late "late"
);

impl Action {
    /// Returns a letter for this action with the reason `why`: S for a request in sequence, R for a random one, M for
    /// several merged, G for one with a gap, J for a joined read, `.` for a hit, `!` for a late page; lower case for a
    /// hint. `goes_on`: it begins where the request before it ended. `None` for other returned blocks.
    pub const fn letter(self, why: Why, goes_on: bool) -> Option<char> {
        let letter = match why {
            Why::Hit => '.',
            Why::Late => '!',
            _ if matches!(self, Action::Deliver) => return None,
            Why::Joined => 'J',
            Why::Gap => 'G',
            Why::Merged => 'M',
            Why::Sequential | Why::Backward | Why::Strided | Why::Context => 'S',
            Why::Random | Why::Single if goes_on => 'S',
            Why::Random | Why::Single => 'R',
        };
        let is_hint = matches!(self, Action::Hint);
        Some(if is_hint { letter.to_ascii_lowercase() } else { letter })
    }
}

impl Trace {
    /// Returns an empty trace of at most `capacity` events, 16 to 16,777,216, of 40 bytes each.
    ///
    /// # Errors
    /// [`Error::Setting`] when the capacity is outside these bounds, or there is no memory for it: choose another one.
    pub fn new(capacity: usize) -> Result<Trace, Error> {
        let refused = |expected: String| Error::Setting {
            setting: "trace capacity",
            value: capacity.to_string(),
            expected,
        };
        if !(CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity) {
            return Err(refused(format!("it has to be {CAPACITY_MIN} to {CAPACITY_MAX} events")));
        }
        let mut events = VecDeque::new();
        events.try_reserve_exact(capacity).map_err(|_| {
            let bytes = capacity * size_of::<TraceEvent>();
            refused(format!("there is no memory for its {bytes} bytes; request fewer events"))
        })?;
        Ok(Trace { ring: Arc::new(Mutex::new(TraceBuffer { events, dropped: 0 })), capacity })
    }

    /// Returns the maximum number of events.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns a copy of the events, the oldest first.
    pub fn events(&self) -> Vec<TraceEvent> {
        self.locked().events.iter().copied().collect()
    }

    /// Returns how many events were overwritten by newer ones since the trace was made or cleared.
    pub fn dropped(&self) -> u64 {
        self.locked().dropped
    }

    /// Removes all events, and resets the count of overwritten ones.
    pub fn clear(&self) {
        let mut ring = self.locked();
        ring.events.clear();
        ring.dropped = 0;
    }

    /// Adds an event; the oldest one is overwritten if there is no room.
    pub(crate) fn record(&self, event: TraceEvent) {
        let mut ring = self.locked();
        if ring.events.len() == self.capacity {
            ring.events.pop_front();
            ring.dropped += 1;
        }
        ring.events.push_back(event);
        debug_assert!(ring.events.len() <= self.capacity, "[TRC-1]");
    }

    fn locked(&self) -> MutexGuard<'_, TraceBuffer> {
        // No operation under the lock panics half-way, so a poisoned ring is still consistent.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (events, dropped) = {
            let ring = self.locked();
            (ring.events.len(), ring.dropped)
        };
        out.debug_struct("Trace")
            .field("capacity", &self.capacity)
            .field("events", &events)
            .field("dropped", &dropped)
            .finish()
    }
}

#[cfg(test)]
mod tests;
