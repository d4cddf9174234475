//! Parameters: what makes up a disk, as a person writes it down.

use std::time::Duration;

use serde::Deserialize;

use crate::profile::amount;

/// What makes up a disk.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Size in bytes.
    #[serde(deserialize_with = "amount::bytes")]
    pub size: u64,
    /// Revolutions a minute.
    pub rpm: u32,
    /// Surfaces, that is tracks of a cylinder.
    pub heads: u32,
    /// Zones of equally many cylinders, each slower than the one outside it.
    pub zones: u32,
    /// What a long sequential read gets at the begin of the address space, in bytes a second.
    #[serde(deserialize_with = "amount::rate")]
    pub outer_rate: u64,
    /// And at its end.
    #[serde(deserialize_with = "amount::rate")]
    pub inner_rate: u64,
    /// Seek to the next cylinder.
    #[serde(deserialize_with = "amount::time")]
    pub seek_track_to_track: Duration,
    /// Seek on average over random pairs of places.
    #[serde(deserialize_with = "amount::time")]
    pub seek_average: Duration,
    /// Seek from the first cylinder to the last.
    #[serde(deserialize_with = "amount::time")]
    pub seek_full: Duration,
    /// From one head to another on the same cylinder.
    #[serde(deserialize_with = "amount::time")]
    pub head_switch: Duration,
    /// What the arm needs longer to settle before it may write.
    #[serde(deserialize_with = "amount::time")]
    pub write_settle: Duration,
    /// What the electronics need for each command.
    #[serde(deserialize_with = "amount::time")]
    pub command_time: Duration,
    /// Rate of the cable, in bytes a second.
    #[serde(deserialize_with = "amount::rate")]
    pub interface_rate: u64,
    /// Commands that the disk knows of at a time.
    pub queue: u32,
    /// How long a command may wait before the queue until it is let in whatever its place. Until then
    /// they are let in by place; 0 lets them in in order of arrival.
    #[serde(deserialize_with = "amount::time")]
    pub elevator_limit: Duration,
    /// How many other commands may overtake one in the queue.
    pub overtaken_max: u32,
    /// Cache for reading, divided equally among its segments.
    #[serde(deserialize_with = "amount::bytes")]
    pub read_cache: u64,
    /// Ranges that the cache for reading can hold.
    pub segments: u32,
    /// How much is read ahead of a command while there is no other work.
    #[serde(deserialize_with = "amount::bytes")]
    pub read_ahead: u64,
    /// How much is read ahead of a command that goes on from an earlier one, whatever else waits.
    #[serde(deserialize_with = "amount::bytes")]
    pub read_ahead_min: u64,
    /// Cache for writing; 0 means that a write ends when it is on the platter.
    #[serde(deserialize_with = "amount::bytes")]
    pub write_cache: u64,
}
