//! A simulated disk, and every state that a power cut may leave on it.
//!
//! A storage engine promises that acknowledged data survives. A violation shows only when the power fails at the worst
//! moment, in the worst way, and no test machine does that often enough. Here it is done a hundred thousand times:
//!
//! ```text
//! engine --- Io ------> backend ---+
//!    |                             +---> Disk: real files, and a Journal of all that happened
//!    +------ Volume --> interpose -+         |
//!                                            +--> at any position: an Image, by the seed's choice
//!                                                    |
//!                                                    +--> booted as another Disk: recover, check
//! ```
//!
//! [`Disk`] replaces the system below [`forebay_io`]: its [`Io`](forebay_io::Io) executes requests in seeded order, and
//! its [`Volume`](forebay_io::Volume) receives changes of names and sizes, and syncs. A [`Journal`] of a run can be cut
//! at any [`Position`]; [`Journal::crash`] returns one of the states that are legal then. The module `crash` alone
//! defines which states are legal. Rules inject [`Fault`]s.
//!
//! ```
//! use forebay_io::{Arena, OpenOptions, Request};
//! use forebay_sim::{Disk, DiskOptions, Image};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let disk = Disk::boot(&Image::empty(), DiskOptions::default())?;
//! let (volume, io) = (disk.volume(), disk.io(8)?);
//! let path = disk.directory().join("log");
//! let file = volume.open(&path, &OpenOptions::new().create(true))?;
//! volume.sync_directory(disk.directory())?;
//!
//! let arena = Arena::new(1, 4096)?;
//! let mut bytes = arena.take().expect("one slot");
//! bytes.fill(7);
//! io.submit(Request::write(&file, 0, vec![bytes])).wait().into_result()?;
//! let written = disk.position();
//! file.sync_data()?;
//! let synced = disk.position();
//!
//! let journal = disk.journal();
//! for seed in 0..100 {
//!     let image = journal.crash(synced, seed);
//!     assert_eq!(image.file("log"), Some([7; 4096].as_slice()), "a sync is a promise");
//! }
//! // Without it the bytes may be there, or not, or in part.
//! let lost = (0..100).any(|seed| journal.crash(written, seed).file("log") == Some(&[]));
//! assert!(lost);
//! # Ok(())
//! # }
//! ```
//!
//! A run of one thread and its crashes are identical for identical seeds, entry by entry.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![forbid(unsafe_code)]

mod backend;
mod crash;
mod disk;
mod fault;
mod image;
mod interpose;
mod journal;
mod replay;
mod state;

pub use disk::{Disk, DiskOptions};
pub use fault::{Fault, Faults, Operation, What};
pub use image::Image;
pub use journal::{Journal, Position};
pub use replay::Replay;
