//! A buffer manager for storage engines. (In the making.)

mod builder;
mod checksum;
mod clock;
mod core;
mod directory_lock;
mod error;
mod file;
mod frame;
mod guard;
mod load;
mod pool;
mod profile;
mod replacement;
mod size;
mod stats;
mod strategy_kind;
mod sync;
mod table;
mod tablespace;
mod tag;
mod view;
mod wal;
mod write;

pub use builder::PoolBuilder;
pub use checksum::{Checksum, Mismatch, ZeroPages};
pub use clock::{Clock, SystemClock};
pub use error::{Error, Fate};
pub use file::{FileOptions, PagedFile, Salvage};
pub use guard::{Optimistic, PageMut, PageRef, Pin, Upgraded};
pub use pool::BufferPool;
pub use profile::{Profile, TablespaceProfile};
pub use replacement::{AccessStrategy, ClockSweep, Replacement, Verdict};
pub use size::Size;
pub use stats::{PoolStats, Stats, StrategyStats, Wait, WaitTimes};
pub use strategy_kind::StrategyKind;
pub use tablespace::Tablespace;
pub use tag::{Block, FileId, Lsn, PageTag};
pub use view::{FrameView, IoView, LatchView};
pub use wal::Wal;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;
