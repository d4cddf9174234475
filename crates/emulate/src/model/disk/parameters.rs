//! Parameters of a disk, as written in a profile.

use std::time::Duration;

use serde::Deserialize;

use crate::profile::amount;

/// The parameters of a disk.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Size in bytes.
    #[serde(deserialize_with = "amount::bytes")]
    pub size: u64,
    /// Revolutions a minute.
    pub rpm: u32,
    /// Surfaces, which is the number of tracks of a cylinder.
    pub heads: u32,
    /// Number of zones; they have equally many cylinders, and each is slower than the one outside it.
    pub zones: u32,
    /// Rate of a long sequential read at the start of the address space, in bytes a second.
    #[serde(deserialize_with = "amount::rate")]
    pub outer_rate: u64,
    /// The same at its end.
    #[serde(deserialize_with = "amount::rate")]
    pub inner_rate: u64,
    /// Seek to the adjacent cylinder.
    #[serde(deserialize_with = "amount::time")]
    pub seek_track_to_track: Duration,
    /// Average seek between random positions.
    #[serde(deserialize_with = "amount::time")]
    pub seek_average: Duration,
    /// Seek from the first cylinder to the last.
    #[serde(deserialize_with = "amount::time")]
    pub seek_full: Duration,
    /// Switch from one head to another on the same cylinder.
    #[serde(deserialize_with = "amount::time")]
    pub head_switch: Duration,
    /// Additional time that the arm needs to settle before a write.
    #[serde(deserialize_with = "amount::time")]
    pub write_settle: Duration,
    /// Time of the electronics for each command.
    #[serde(deserialize_with = "amount::time")]
    pub command_time: Duration,
    /// Rate of the cable, in bytes a second.
    #[serde(deserialize_with = "amount::rate")]
    pub interface_rate: u64,
    /// Maximum number of commands in the disk.
    pub queue: u32,
    /// How long a command may wait in front of the queue before it is admitted regardless of its position. Until then
    /// commands are admitted by position; 0 admits them in order of arrival.
    #[serde(deserialize_with = "amount::time")]
    pub elevator_limit: Duration,
    /// How many other commands may overtake one in the queue.
    pub overtaken_max: u32,
    /// Read cache, divided equally among its segments.
    #[serde(deserialize_with = "amount::bytes")]
    pub read_cache: u64,
    /// Number of ranges that the read cache can hold.
    pub segments: u32,
    /// How much is read ahead of a command while there is no other work.
    #[serde(deserialize_with = "amount::bytes")]
    pub read_ahead: u64,
    /// How much is read ahead of a command that continues an earlier one, whatever else waits.
    #[serde(deserialize_with = "amount::bytes")]
    pub read_ahead_min: u64,
    /// Write cache; 0 means that a write ends when it is on the platter.
    #[serde(deserialize_with = "amount::bytes")]
    pub write_cache: u64,
}
