//! Geometry: where a sector is on the platters, and how long the way along the track is.
//!
//! Cylinders have `heads` tracks each. Moving from a track to the next one takes time while the platter
//! turns, so each track begins at a slightly later angle than the one before (its skew): the head
//! arrives just when the first sector does. Outer cylinders are longer and hold more; they are numbered
//! first, as on real disks. The rate falls in steps, zone by zone.
//!
//! One number describes all of that. The *run* of a sector is the time at which a head that began with
//! sector 0 and read on forever would arrive at it, including all revolutions and skews. Its angle is its
//! run modulo one revolution; the time from one sector to another in one stream is the
//! difference of their runs; and the position of a stream is found by converting a run back to a sector.
//!
//! Invariants:  [GEO-1] runs grow with sectors; a sector's run leads back to it
//! Source:      zones and skew as in Ruemmler and Wilkes, "An introduction to disk drive modeling"
//!              (IEEE Computer, March 1994); the run is ours.

use crate::model::SECTOR_BYTES;

/// The parameters of the geometry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) sectors: u64,
    pub(crate) heads: u64,
    pub(crate) zones: u64,
    pub(crate) rotation_ns: u64,
    pub(crate) head_skew_ns: u64,
    pub(crate) cylinder_skew_ns: u64,
    /// Rate of a long sequential read in the outermost zone, in bytes a second, skews included.
    pub(crate) outer_rate: u64,
    pub(crate) inner_rate: u64,
}

/// Cylinders with equally many sectors per track.
#[derive(Debug)]
struct Zone {
    first_sector: u64,
    first_cylinder: u64,
    sectors_per_track: u64,
}

/// The layout of a disk.
#[derive(Debug)]
pub(crate) struct Geometry {
    plan: Plan,
    zones: Vec<Zone>,
    cylinders: u64,
    /// Run from the start of a cylinder to the start of the next.
    cylinder_run_ns: u64,
}

/// A position on the platters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cylinder: u64,
    pub(crate) head: u64,
}

impl Geometry {
    /// Lays out a disk. The rates are exact; the number of cylinders follows from the size.
    pub(crate) fn new(plan: Plan) -> Self {
        let heads = plan.heads;
        let cylinder_run_ns =
            heads * plan.rotation_ns + (heads - 1) * plan.head_skew_ns + plan.cylinder_skew_ns;
        let per_track = |zone: u64| {
            let fall = plan.outer_rate.saturating_sub(plan.inner_rate);
            let rate = plan.outer_rate - fall * zone / (plan.zones - 1).max(1);
            let cylinder_bytes = u128::from(rate) * u128::from(cylinder_run_ns) / 1_000_000_000;
            (u64::try_from(cylinder_bytes).unwrap_or(u64::MAX) / (heads * SECTOR_BYTES)).max(1)
        };
        let in_a_cylinder_of_each: u64 = (0..plan.zones).map(|zone| per_track(zone) * heads).sum();
        let cylinders_per_zone = plan.sectors.div_ceil(in_a_cylinder_of_each).max(1);
        let mut first_sector = 0;
        let zones = (0..plan.zones)
            .map(|number| {
                let zone = Zone {
                    first_sector,
                    first_cylinder: number * cylinders_per_zone,
                    sectors_per_track: per_track(number),
                };
                first_sector += zone.sectors_per_track * heads * cylinders_per_zone;
                zone
            })
            .collect();
        Self { plan, zones, cylinders: plan.zones * cylinders_per_zone, cylinder_run_ns }
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.plan.sectors
    }

    pub(crate) fn cylinders(&self) -> u64 {
        self.cylinders
    }

    pub(crate) fn rotation_ns(&self) -> u64 {
        self.plan.rotation_ns
    }

    /// The position of a sector.
    pub(crate) fn place(&self, sector: u64) -> Place {
        self.find(sector).0
    }

    /// The run of a sector's start.
    pub(crate) fn run(&self, sector: u64) -> u64 {
        let (place, in_track, per_track) = self.find(sector);
        self.track_run(place) + (in_track * self.plan.rotation_ns).div_ceil(per_track)
    }

    /// The run of the end of the sector before `end`: where a stream up to there is done.
    pub(crate) fn run_of_end(&self, end: u64) -> u64 {
        let (place, in_track, per_track) = self.find(end - 1);
        self.track_run(place) + ((in_track + 1) * self.plan.rotation_ns).div_ceil(per_track)
    }

    /// How many sectors a stream from sector 0 has read completely at `run`; the next one is in progress.
    pub(crate) fn sectors_by(&self, run: u64) -> u64 {
        let cylinder = run / self.cylinder_run_ns;
        let within = run % self.cylinder_run_ns;
        let head =
            (within / (self.plan.rotation_ns + self.plan.head_skew_ns)).min(self.plan.heads - 1);
        let track_ns = within - head * (self.plan.rotation_ns + self.plan.head_skew_ns);
        let zone = self.zones.partition_point(|zone| zone.first_cylinder <= cylinder) - 1;
        let zone = &self.zones[zone];
        let first = zone.first_sector
            + ((cylinder - zone.first_cylinder) * self.plan.heads + head) * zone.sectors_per_track;
        // While the head moves to the next track, the whole track has been read.
        let read = track_ns * zone.sectors_per_track / self.plan.rotation_ns;
        first + read.min(zone.sectors_per_track)
    }

    fn find(&self, sector: u64) -> (Place, u64, u64) {
        let zone = self.zones.partition_point(|zone| zone.first_sector <= sector) - 1;
        let zone = &self.zones[zone];
        let in_zone = sector - zone.first_sector;
        let track = in_zone / zone.sectors_per_track;
        let place = Place {
            cylinder: zone.first_cylinder + track / self.plan.heads,
            head: track % self.plan.heads,
        };
        (place, in_zone % zone.sectors_per_track, zone.sectors_per_track)
    }

    fn track_run(&self, place: Place) -> u64 {
        place.cylinder * self.cylinder_run_ns
            + place.head * (self.plan.rotation_ns + self.plan.head_skew_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn geometry() -> Geometry {
        Geometry::new(Plan {
            sectors: 1_953_525_168,
            heads: 6,
            zones: 16,
            rotation_ns: 8_333_333,
            head_skew_ns: 800_000,
            cylinder_skew_ns: 900_000,
            outer_rate: 120_000_000,
            inner_rate: 60_000_000,
        })
    }

    proptest! {
        #[test]
        fn a_run_leads_back_to_its_sector(sector in 0_u64..1_953_525_000, more in 1_u64..100_000) {
            let geometry = geometry();
            let further = (sector + more).min(1_953_525_167);
            prop_assert!(geometry.run(sector) < geometry.run(further), "[GEO-1]");
            prop_assert!(geometry.run_of_end(sector + 1) <= geometry.run(sector + 1), "[GEO-1]");
            let back = geometry.sectors_by(geometry.run_of_end(sector + 1));
            prop_assert_eq!(back, sector + 1, "[GEO-1]");
            prop_assert!(geometry.sectors_by(geometry.run(sector)) <= sector, "[GEO-1]");
        }
    }

    #[test]
    fn a_stream_reads_at_the_rate_of_its_zone() {
        let geometry = geometry();
        let rate = |from: u64, sectors: u64| {
            let ns = geometry.run_of_end(from + sectors) - geometry.run(from);
            sectors as f64 * 512.0 / (ns as f64 / 1e9)
        };
        let outer = rate(0, 2_000_000);
        let inner = rate(1_951_000_000, 2_000_000);
        assert!((outer / 120e6 - 1.0).abs() < 0.01, "{outer}");
        assert!((inner / 60e6 - 1.0).abs() < 0.01, "{inner}");
    }

    #[test]
    fn the_disk_holds_what_it_should_and_hardly_more() {
        let geometry = geometry();
        let last = geometry.place(1_953_525_167);
        assert!(last.cylinder < geometry.cylinders());
        assert!(last.cylinder + 32 > geometry.cylinders(), "{last:?} of {}", geometry.cylinders());
    }
}
