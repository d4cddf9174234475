//! Trace: what look-ahead decided, as events of `tracing`.
//!
//! "Why was this read slow" often means "what was requested, and why". Each request for blocks, each hint about them and
//! each block that a stream returns is an event of level TRACE with the target `forebay::readahead`. Its fields: `stream`, from 1,
//! or 0 for plain reads; `file`; `first` and `blocks`; `action` and `why`. Without a subscriber for them, a decision
//! costs one relaxed load.
//!
//! Concurrency: none; a stream that begins without a subscriber records nothing.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::tag::{Block, FileId};

const TARGET: &str = "forebay::readahead";

#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    /// A request was made to read the blocks into frames.
    Request,
    /// A hint announced to the kernel that they will be needed.
    Hint,
    /// A block was returned to the consumer.
    Deliver,
}

/// The reason for an action, or its result.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Why {
    /// The blocks continue a sequence of plain reads.
    Detected(forebay_lookahead::Why),
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

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Detected(why) => fmt::Debug::fmt(why, out),
            other => fmt::Debug::fmt(other, out),
        }
    }
}

/// The number of a stream that begins now; `None` if no subscriber wants its events.
pub(crate) fn stream_number() -> Option<u32> {
    static STREAMS: AtomicU32 = AtomicU32::new(0);
    is_on().then(|| STREAMS.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1))
}

/// The number for plain reads.
pub(crate) fn plain_number() -> Option<u32> {
    is_on().then_some(0)
}

fn is_on() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::TRACE)
}

pub(crate) fn record(
    stream: Option<u32>,
    file: FileId,
    (first, blocks): (Block, u32),
    action: Action,
    why: Why,
) {
    if let Some(stream) = stream {
        tracing::trace!(target: TARGET, stream, file = file.get(), first, blocks, ?action, %why);
    }
}
