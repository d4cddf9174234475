//! Cloud volume: a network, a limit on commands a second and one on bytes a second.
//!
//! A command waits for both limits, then takes the network's time, which varies randomly. A limit has
//! a baseline rate and, on some volumes, a higher rate while credits last: every command spends credits,
//! and credits are earned at the baseline rate, also while the volume is idle. A command
//! larger than the unit counts as several.
//!
//! Worked example, gp2 of 100 GB: it earns 300 credits a second, up to 5.4 million. Until those are spent, the volume
//! executes 3000 commands a second, which takes at least half an hour; after that, 300.
//!
//! Not modelled: merging adjacent commands before they are counted, and stalls of whole seconds that
//! real volumes have.
//!
//! Source:      Amazon's descriptions of EBS volume types (gp2, gp3, io2) for limits, credits and the
//!              unit; that latency varies exponentially above a base is ours.

use std::time::Duration;

use fastrand::Rng;
use serde::Deserialize;

use super::bucket::Bucket;
use super::queue::{Queue, Service};
use super::{Command, Device, Op, nanos};
use crate::profile::amount;

/// Jitter is cut off at this many times its mean.
const JITTER_MAX: f64 = 12.0;

/// The parameters of a cloud volume.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// Size in bytes.
    #[serde(deserialize_with = "amount::bytes")]
    pub size: u64,
    /// Minimum time of a read.
    #[serde(deserialize_with = "amount::time")]
    pub read_latency: Duration,
    /// Minimum time of a write or a flush.
    #[serde(deserialize_with = "amount::time")]
    pub write_latency: Duration,
    /// Mean of the random time that is added to either.
    #[serde(deserialize_with = "amount::time")]
    pub jitter: Duration,
    /// Baseline rate, in commands a second.
    pub iops: u64,
    /// Commands a second while there are credits.
    pub burst_iops: Option<u64>,
    /// Initial and maximum credits; each is one command.
    #[serde(default)]
    pub burst_credits: u64,
    /// Largest command that counts as one.
    #[serde(deserialize_with = "amount::bytes")]
    pub unit: u64,
    /// Baseline rate, in bytes a second.
    #[serde(deserialize_with = "amount::rate")]
    pub bandwidth: u64,
    /// Bytes a second while there are credits.
    #[serde(default, deserialize_with = "amount::rate")]
    pub burst_bandwidth: u64,
    /// Credits for the byte rate, in bytes.
    #[serde(default, deserialize_with = "amount::bytes")]
    pub burst_bytes: u64,
    /// How much idle time either limit makes up for: with 10 ms and 3000 a second, 30 commands at once.
    #[serde(deserialize_with = "amount::time")]
    pub slack: Duration,
    /// Maximum number of commands in progress.
    pub queue: u32,
}

/// A volume whose jitter follows from `seed`.
///
/// # Errors
/// A sentence, if the parameters are invalid.
pub(crate) fn build(parameters: &Parameters, seed: u64) -> Result<Box<dyn Device>, String> {
    let volume = parameters;
    if volume.iops == 0 || volume.bandwidth == 0 || volume.unit == 0 || volume.size < 1 << 20 {
        return Err(
            "`iops`, `bandwidth` and `unit` are more than 0, `size` is 1 MiB at least".into()
        );
    }
    let too_low = volume.burst_iops.is_some_and(|burst| burst < volume.iops)
        || volume.burst_bandwidth > 0 && volume.burst_bandwidth < volume.bandwidth;
    if too_low {
        return Err("a burst is faster than what always holds, or left out".into());
    }
    let bursts = (volume.burst_iops, Some(volume.burst_bandwidth).filter(|burst| *burst > 0));
    let service = Cloud {
        read_ns: nanos(volume.read_latency),
        write_ns: nanos(volume.write_latency),
        jitter_ns: nanos(volume.jitter),
        unit: volume.unit,
        iops: Limit::new(volume.iops, bursts.0, volume.burst_credits, volume.slack),
        bandwidth: Limit::new(volume.bandwidth, bursts.1, volume.burst_bytes, volume.slack),
        random: Rng::with_seed(seed),
    };
    Ok(Box::new(Queue::new(service, volume.size, volume.queue as usize)))
}

/// A baseline rate, and an optional higher rate while credits last.
#[derive(Debug)]
struct Limit {
    peak: Bucket,
    credits: Option<Bucket>,
}

impl Limit {
    fn new(per_s: u64, burst_per_s: Option<u64>, credits: u64, slack: Duration) -> Self {
        let peak = burst_per_s.unwrap_or(per_s);
        let depth = (peak as f64 * slack.as_secs_f64()) as u64;
        let credits = burst_per_s.map(|_| Bucket::new(per_s, credits));
        Self { peak: Bucket::new(peak, depth), credits }
    }

    fn take(&mut self, at_ns: u64, tokens: u64) -> u64 {
        let at_ns = self.peak.take(at_ns, tokens);
        self.credits.as_mut().map_or(at_ns, |credits| credits.take(at_ns, tokens))
    }
}

#[derive(Debug)]
struct Cloud {
    read_ns: u64,
    write_ns: u64,
    jitter_ns: u64,
    unit: u64,
    iops: Limit,
    bandwidth: Limit,
    random: Rng,
}

impl Service for Cloud {
    fn end_ns(&mut self, start_ns: u64, command: Command) -> u64 {
        let least_ns = if command.op == Op::Read { self.read_ns } else { self.write_ns };
        // An exponential distribution by its inverse; 1 - f64() is never 0.
        let times = (-(1.0 - self.random.f64()).ln()).min(JITTER_MAX);
        let jitter_ns = (self.jitter_ns as f64 * times) as u64;
        if command.op == Op::Flush {
            return start_ns + least_ns + jitter_ns;
        }
        let let_go_ns = self.iops.take(start_ns, command.len.div_ceil(self.unit).max(1));
        let let_go_ns = self.bandwidth.take(let_go_ns, command.len);
        let_go_ns + least_ns + jitter_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Parameters {
        Parameters {
            size: 1 << 40,
            read_latency: Duration::from_micros(500),
            write_latency: Duration::from_micros(700),
            jitter: Duration::ZERO,
            iops: 100,
            burst_iops: Some(1000),
            burst_credits: 5000,
            unit: 16_384,
            bandwidth: 1 << 40,
            burst_bandwidth: 0,
            burst_bytes: 0,
            slack: Duration::ZERO,
            queue: 64,
        }
    }

    /// When each of `count` reads that are submitted at once ends, in microseconds.
    fn ends(device: &mut dyn Device, count: u64, len: u64) -> Vec<u64> {
        for id in 0..count {
            device.submit(Duration::ZERO, id, Command { op: Op::Read, offset: 0, len });
        }
        let mut ended = Vec::new();
        while let Some(next) = device.next_event() {
            device.advance(next, &mut ended);
        }
        ended.iter().map(|ended| nanos(ended.at) / 1000).collect()
    }

    #[test]
    fn credits_are_spent_at_the_burst_rate_and_then_the_base_rate_holds() {
        let ends = ends(&mut *build(&volume(), 1).unwrap(), 6000, 4096);
        // One is earned every 10 ms while they are spent one a millisecond: 5000 + 555 in 5.555 s.
        assert_eq!(ends[0], 500);
        assert_eq!(ends[1000] - ends[0], 1_000_000);
        assert_eq!(ends[5500] - ends[4500], 1_000_000);
        assert_eq!(ends[5900] - ends[5800], 1_000_000);
    }

    #[test]
    fn a_large_command_counts_as_several() {
        let ends = ends(&mut *build(&volume(), 1).unwrap(), 11, 65_536);
        assert_eq!(ends[10] - ends[0], 40_000);
    }

    #[test]
    fn bandwidth_is_a_separate_limit() {
        let parameters =
            Parameters { bandwidth: 1_000_000, iops: 1_000_000, burst_iops: None, ..volume() };
        let ends = ends(&mut *build(&parameters, 1).unwrap(), 11, 10_000);
        assert_eq!(ends[10] - ends[0], 100_000);
    }

    #[test]
    fn jitter_has_its_mean_and_follows_from_the_seed() {
        let parameters = Parameters {
            jitter: Duration::from_micros(300),
            iops: 1_000_000,
            burst_iops: None,
            queue: 1,
            ..volume()
        };
        let total =
            |seed| *ends(&mut *build(&parameters, seed).unwrap(), 4000, 4096).last().unwrap();
        let mean = total(1) / 4000;
        assert!((780..820).contains(&mean), "{mean}");
        assert!(total(1) == total(1) && total(1) != total(2));
    }
}
