//! Arm: the position of the head, the time to move it, and its current work.
//!
//! A *stream* is the head reading on. A moment and the run at that moment describe it: while
//! nothing interrupts it, the run grows with time, so that the position of the head at any time is known
//! without events in between.
//!
//! Invariants:  [ARM-1] a transfer begins when the platter is at the angle of its first sector

use fastrand::Rng;

use super::Parameters;
use super::geometry::{Geometry, Plan};
use super::seek::SeekCurve;
use super::segments::Segments;
use crate::model::{SECTOR_BYTES, nanos};

/// A read that begins at most this many sectors past the cached range still counts as its continuation.
const FOLLOW_GAP_SECTORS: u64 = 128;

/// The moving part of a disk.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) geometry: Geometry,
    pub(super) work: Work,
    /// Position of the head while it does nothing.
    pub(super) last_sector: u64,
    seek: SeekCurve,
    head_switch_ns: u64,
    /// The platter's angle at time zero, as a time.
    phase_ns: u64,
}

/// The current work of the arm.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    Idle,
    /// Reading on into a segment, until there is other work or the limit is reached.
    Stream(Stream),
    /// A command, or a piece of the write cache, which has no `id`.
    Command {
        id: Option<u64>,
        write: bool,
        start: u64,
        end: u64,
        ends_ns: u64,
        line: Line,
        follows: Option<Follows>,
    },
}

/// The head's movement along the tracks: it is at `run` at `at_ns`, and continues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    at_ns: u64,
    run: u64,
}

impl Line {
    /// When the head has passed a run.
    fn when_ns(self, run: u64) -> u64 {
        (self.at_ns + run).saturating_sub(self.run)
    }

    /// The run at a time; before its beginning, the first run.
    fn at(self, ns: u64) -> u64 {
        self.run + ns.saturating_sub(self.at_ns)
    }
}

/// Reading on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    segment: usize,
    line: Line,
    until: u64,
    ends_ns: u64,
    /// Before this time the arm must not do other work.
    pub(super) held_until_ns: u64,
}

/// The segment that a read continues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Follows {
    segment: usize,
    /// The head has read everything between the segment and the command.
    streamed: bool,
}

impl Arm {
    pub(super) fn new(parameters: &Parameters, seed: u64) -> Result<Self, String> {
        let counts = [parameters.rpm, parameters.heads, parameters.zones];
        if counts.contains(&0) || parameters.inner_rate == 0 || parameters.size < 1 << 20 {
            return Err(
                "`rpm`, `heads`, `zones` and `inner_rate` are at least 1, `size` 1 MiB".into()
            );
        }
        if parameters.outer_rate < parameters.inner_rate {
            return Err("`outer_rate` is at least `inner_rate`: disks are faster outside".into());
        }
        let rotation_ns = 60_000_000_000 / u64::from(parameters.rpm);
        let track_to_track_ns = nanos(parameters.seek_track_to_track);
        let geometry = Geometry::new(Plan {
            sectors: parameters.size / SECTOR_BYTES,
            heads: u64::from(parameters.heads),
            zones: u64::from(parameters.zones),
            rotation_ns,
            head_skew_ns: nanos(parameters.head_switch) % rotation_ns,
            cylinder_skew_ns: track_to_track_ns % rotation_ns,
            outer_rate: parameters.outer_rate,
            inner_rate: parameters.inner_rate,
        });
        let seek = SeekCurve::new(
            track_to_track_ns,
            nanos(parameters.seek_average),
            nanos(parameters.seek_full),
            geometry.cylinders(),
        )?;
        Ok(Self {
            geometry,
            work: Work::Idle,
            last_sector: 0,
            seek,
            head_switch_ns: nanos(parameters.head_switch),
            phase_ns: Rng::with_seed(seed).u64(0..rotation_ns),
        })
    }

    /// When the head could begin with a sector, if it started to move at `from_ns`.
    pub(super) fn position_ns(&self, sector: u64, from_ns: u64) -> u64 {
        let here = self.geometry.place(self.here(from_ns));
        let there = self.geometry.place(sector);
        let seek_ns = self.seek.time_ns(here.cylinder.abs_diff(there.cylinder));
        let switch_ns = if here.head == there.head { 0 } else { self.head_switch_ns };
        let arrives_ns = from_ns + seek_ns.max(switch_ns);
        let rotation_ns = self.geometry.rotation_ns();
        let angle = self.angle(arrives_ns);
        let wanted = self.geometry.run(sector) % rotation_ns;
        arrives_ns + (wanted + rotation_ns - angle) % rotation_ns
    }

    fn angle(&self, at_ns: u64) -> u64 {
        (at_ns + self.phase_ns) % self.geometry.rotation_ns()
    }

    /// The sector that the head is at.
    fn here(&self, at_ns: u64) -> u64 {
        let sector = match &self.work {
            Work::Stream(stream) => self.read_by(stream, at_ns),
            _ => self.last_sector,
        };
        sector.min(self.geometry.sectors() - 1)
    }

    /// The position up to which a stream has read.
    fn read_by(&self, stream: &Stream, at_ns: u64) -> u64 {
        self.geometry.sectors_by(stream.line.at(at_ns)).min(stream.until)
    }

    /// When a read can begin as a part of the current stream, if it can.
    pub(super) fn streamed(&self, segments: &Segments, start: u64, from_ns: u64) -> Option<u64> {
        let Work::Stream(stream) = &self.work else { return None };
        let held = segments.get(stream.segment);
        if start < held.start || held.start == held.end || from_ns >= stream.ends_ns {
            return None;
        }
        let reaches_ns = stream.line.when_ns(self.geometry.run(start));
        let near = reaches_ns < from_ns + self.geometry.rotation_ns();
        near.then_some(reaches_ns.max(from_ns))
    }

    /// Begins a read.
    pub(super) fn begin_read(
        &mut self,
        segments: &Segments,
        id: u64,
        range: (u64, u64),
        from_ns: u64,
        least_ns: u64,
    ) {
        let (start, end) = range;
        let (line, follows) = match (&self.work, self.streamed(segments, start, from_ns)) {
            (Work::Stream(stream), Some(_)) => {
                (stream.line, Some(Follows { segment: stream.segment, streamed: true }))
            }
            _ => {
                let follows = segments.followed_by(start, FOLLOW_GAP_SECTORS);
                let follows = follows.map(|segment| Follows { segment, streamed: false });
                (self.line_to(start, from_ns), follows)
            }
        };
        let ends_ns = line.when_ns(self.geometry.run_of_end(end)).max(from_ns + least_ns);
        self.work =
            Work::Command { id: Some(id), write: false, start, end, ends_ns, line, follows };
    }

    /// Begins to write, for a command or for the cache.
    pub(super) fn begin_write(
        &mut self,
        id: Option<u64>,
        range: (u64, u64),
        from_ns: u64,
        settle_ns: u64,
    ) {
        let (start, end) = range;
        let line = self.line_to(start, from_ns + settle_ns);
        let ends_ns = line.when_ns(self.geometry.run_of_end(end));
        self.work = Work::Command { id, write: true, start, end, ends_ns, line, follows: None };
    }

    fn line_to(&self, sector: u64, from_ns: u64) -> Line {
        let free = !matches!(self.work, Work::Command { .. });
        assert!(free, "[DSK-1] the arm gets a command while it executes one");
        let line =
            Line { at_ns: self.position_ns(sector, from_ns), run: self.geometry.run(sector) };
        let angle = line.run % self.geometry.rotation_ns();
        assert_eq!(self.angle(line.at_ns), angle, "[ARM-1] the sector is not under the head");
        line
    }

    /// Puts the sectors of a read that has ended into the cache; returns their segment.
    pub(super) fn keep(
        &self,
        segments: &mut Segments,
        range: (u64, u64),
        follows: Option<Follows>,
    ) -> usize {
        let (start, end) = range;
        let Some(follows) = follows else { return segments.open(None, start, end) };
        let held = segments.get(follows.segment);
        let joined = held.start < held.end && (follows.streamed || start <= held.end);
        if joined {
            segments.touch(follows.segment);
            segments.grow(follows.segment, end);
            follows.segment
        } else {
            segments.open(Some(follows.segment), start, end)
        }
    }

    /// Reads on along a line up to `until`. If `held` is set, reads on up to there even if there is other work.
    pub(super) fn stream_on(&mut self, segment: usize, line: Line, until: u64, held: Option<u64>) {
        let until = until.min(self.geometry.sectors());
        let held = held.map(|held| line.when_ns(self.geometry.run_of_end(held.min(until))));
        let held_until_ns = held.unwrap_or(0);
        let ends_ns = line.when_ns(self.geometry.run_of_end(until));
        self.work = Work::Stream(Stream { segment, line, until, ends_ns, held_until_ns });
    }

    /// The cache answered a read of a segment up to `end`: reads on up to `until`, if that is worthwhile.
    pub(super) fn read_on(
        &mut self,
        segments: &Segments,
        segment: usize,
        end: u64,
        until: u64,
        now_ns: u64,
    ) {
        let until = until.min(self.geometry.sectors());
        let held = segments.get(segment);
        match &mut self.work {
            Work::Stream(stream) if stream.segment == segment && until > stream.until => {
                stream.until = until;
                stream.ends_ns = stream.line.when_ns(self.geometry.run_of_end(until));
            }
            Work::Idle if until.saturating_sub(held.end) * 2 > until - end => {
                let line = self.line_to(held.end, now_ns);
                self.stream_on(segment, line, until, None);
            }
            _ => {}
        }
    }

    /// Brings the segment of a stream up to date, and ends the stream at its limit.
    pub(super) fn fill(&mut self, segments: &mut Segments, now_ns: u64) {
        let Work::Stream(stream) = self.work else { return };
        if now_ns > stream.line.at_ns {
            segments.grow(stream.segment, self.read_by(&stream, now_ns));
        }
        if now_ns >= stream.ends_ns {
            self.last_sector = stream.until;
            self.work = Work::Idle;
        }
    }

    /// Ends the stream if a write overlaps its range, already read or still to be read.
    pub(super) fn interrupt(&mut self, segments: &Segments, range: (u64, u64), now_ns: u64) {
        if let Work::Stream(stream) = self.work
            && range.0 < stream.until
            && segments.get(stream.segment).start < range.1
        {
            self.last_sector = self.here(now_ns);
            self.work = Work::Idle;
        }
    }

    /// When the arm finishes its work, or can accept other work if `wanted`.
    pub(super) fn next_ns(&self, now_ns: u64, wanted: bool) -> Option<u64> {
        match &self.work {
            Work::Idle => None,
            Work::Command { ends_ns, .. } => Some(*ends_ns),
            Work::Stream(stream) if wanted && stream.held_until_ns > now_ns => {
                Some(stream.held_until_ns.min(stream.ends_ns))
            }
            Work::Stream(stream) => Some(stream.ends_ns),
        }
    }
}
