//! Seek: how long the arm takes from cylinder to cylinder.
//!
//! A short seek is all acceleration and braking, so its time grows with the square root of its distance; on a long
//! seek the arm coasts. The curve goes through three values of a data sheet: from a track to the
//! next one, the average over random pairs of cylinders, and across the whole disk. It is a square root
//! up to a third of the disk and a line from there; the height where the two meet follows from
//! the average. With distance x as a fraction of the disk, t the first value, f the last and k that height,
//! the mean over random pairs (density 2(1 - x)) is `t/5 + 88k/135 + 4f/27`.
//!
//! Source: the two pieces are those of Ruemmler and Wilkes, "An introduction to disk drive modeling" (1994);
//!         that they meet at a third, and how high, is ours.

/// Seek times over distance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeekCurve {
    track_to_track_ns: f64,
    knee_ns: f64,
    full_ns: f64,
    cylinders: f64,
}

impl SeekCurve {
    /// A curve through three values.
    ///
    /// # Errors
    /// A sentence, if no monotonic curve goes through them.
    pub(crate) fn new(
        track_to_track_ns: u64,
        average_ns: u64,
        full_ns: u64,
        cylinders: u64,
    ) -> Result<Self, String> {
        let (first, full) = (track_to_track_ns as f64, full_ns as f64);
        let knee_ns = (average_ns as f64 - first / 5.0 - full * 4.0 / 27.0) * 135.0 / 88.0;
        if first > knee_ns || knee_ns > full {
            return Err(format!(
                "seeks of {} ms to the next track, {} ms on average and {} ms over the whole disk \
                 make no curve: take an average of 0.4 to 0.6 of the last",
                first / 1e6,
                average_ns as f64 / 1e6,
                full / 1e6,
            ));
        }
        let cylinders = cylinders.max(2) as f64;
        Ok(Self { track_to_track_ns: first, knee_ns, full_ns: full, cylinders })
    }

    /// The time over a distance in cylinders.
    pub(crate) fn time_ns(&self, distance: u64) -> u64 {
        if distance == 0 {
            return 0;
        }
        let share = (distance - 1) as f64 / (self.cylinders - 1.0);
        let third = 1.0 / 3.0;
        let ns = if share <= third {
            self.track_to_track_ns
                + (self.knee_ns - self.track_to_track_ns) * (share / third).sqrt()
        } else {
            let rest = (share - third) / (1.0 - third);
            self.knee_ns + (self.full_ns - self.knee_ns) * rest
        };
        ns as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_has_the_figures_of_the_data_sheet() {
        let curve = SeekCurve::new(800_000, 8_500_000, 18_000_000, 200_000).unwrap();
        assert_eq!(curve.time_ns(0), 0);
        assert_eq!(curve.time_ns(1), 800_000);
        assert!(curve.time_ns(200_000).abs_diff(18_000_000) < 10);
        let mut random = fastrand::Rng::with_seed(1);
        let pairs = 200_000;
        let total: u64 = (0..pairs)
            .map(|_| curve.time_ns(random.u64(0..200_000).abs_diff(random.u64(0..200_000))))
            .sum();
        let mean = total as f64 / f64::from(pairs);
        assert!((mean / 8.5e6 - 1.0).abs() < 0.005, "{mean}");
    }

    #[test]
    fn a_longer_seek_is_never_shorter() {
        let curve = SeekCurve::new(800_000, 8_500_000, 18_000_000, 5_000).unwrap();
        assert!((1..5_000).all(|distance| curve.time_ns(distance) <= curve.time_ns(distance + 1)));
    }

    #[test]
    fn figures_that_make_no_curve_are_refused() {
        let refused = SeekCurve::new(800_000, 15_000_000, 18_000_000, 5_000).unwrap_err();
        assert!(refused.contains("15 ms on average"), "{refused}");
    }
}
