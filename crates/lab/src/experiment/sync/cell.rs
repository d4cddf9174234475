//! The typed cell of `sync`, and the results of its rounds.

use serde::Serialize;

use crate::experiment::samples;
use forebay_measure::report::numbers;
use forebay_measure::units::shown_size;

/// The position of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Place {
    /// To a part of a file that was written and synced before: the filesystem need not allocate a block.
    Overwritten,
    /// To the end of a file, which grows.
    Appended,
}

/// How a write is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Method {
    Fdatasync,
    Fsync,
    ODsync,
    OSync,
    RwfDsync,
    #[serde(rename = "o_direct_o_dsync")]
    ODirectODsync,
}

impl Method {
    pub(super) const ALL: [Method; 6] = [
        Method::Fdatasync,
        Method::Fsync,
        Method::ODsync,
        Method::OSync,
        Method::RwfDsync,
        Method::ODirectODsync,
    ];

    /// Its name in PostgreSQL's wal_sync_method, if it has one.
    pub(super) fn wal_sync_method(self) -> Option<&'static str> {
        match self {
            Method::Fdatasync => Some("fdatasync"),
            Method::Fsync => Some("fsync"),
            Method::ODsync => Some("open_datasync"),
            Method::OSync => Some("open_sync"),
            Method::RwfDsync | Method::ODirectODsync => None,
        }
    }
}

forebay_measure::shown_by_name!(Place, Method);

/// One setting to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Cell {
    /// Of a write.
    pub(super) bytes: u64,
    pub(super) place: Place,
    pub(super) method: Method,
    /// To one file.
    pub(super) writers: u32,
}

impl Cell {
    /// A small commit, as PostgreSQL writes it to a recycled WAL segment: a page of WAL.
    pub(super) const COMMIT: Cell =
        Cell { bytes: 8 << 10, place: Place::Overwritten, method: Method::Fdatasync, writers: 1 };

    /// Everything but the method.
    pub(super) fn row_label(self) -> String {
        let writers = match self.writers {
            1 => "1 writer".to_owned(),
            count => format!("{count} writers"),
        };
        format!("{} {}, {writers}", shown_size(self.bytes), self.place)
    }

    pub(super) fn label(&self) -> String {
        format!("{}, {}", self.row_label(), self.method)
    }

    /// Whether it is [`Cell::COMMIT`], with any method.
    pub(super) fn is_a_commit(self) -> bool {
        Cell { method: Cell::COMMIT.method, ..self } == Cell::COMMIT
    }
}

/// The result of one round of a cell; a field is a metric of the record.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figures {
    pub(super) seconds: f64,
    pub(super) syncs: u64,
    pub(super) syncs_per_s: f64,
    /// Of a write and its sync.
    pub(super) latency_us_p50: f64,
    /// `None` of fewer than 1,000.
    pub(super) latency_us_p99: Option<f64>,
}

/// A cell and the results of its rounds.
pub(super) type Row = samples::Row<Cell, Figures>;

impl Row {
    pub(super) fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.syncs_per_s).collect()
    }

    /// The latency in words: the median, and its lowest and highest round if they differ much.
    pub(super) fn text(&self) -> String {
        let latencies: Vec<f64> = self.rounds.iter().map(|round| round.latency_us_p50).collect();
        numbers::of_rounds(&latencies, "µs")
    }
}
