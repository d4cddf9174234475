//! Panels and what the kernel alone is, as a reader of the report relies on them.

use super::super::sample::{absurd, interplay};
use super::*;

const KIB_128: Option<u64> = Some(131_072);

#[test]
fn panels_and_strategies_come_in_the_order_a_reader_expects() {
    let records = [
        interplay("two-streams", "os", "buffered", KIB_128, Some(1.0)),
        interplay("shuffled", "os", "buffered", Some(8 << 20), Some(1.0)),
        interplay("shuffled", "adaptive", "direct", KIB_128, Some(1.0)),
        interplay("shuffled", "adaptive", "buffered", KIB_128, Some(1.0)),
        interplay("shuffled", "willneed-128", "buffered", KIB_128, Some(1.0)),
        interplay("shuffled", "willneed-8", "buffered", KIB_128, Some(1.0)),
        interplay("shuffled", "newest", "buffered", KIB_128, Some(1.0)),
        interplay("shuffled", "hint", "buffered", KIB_128, Some(1.0)),
        interplay("shuffled", "random", "buffered", KIB_128, Some(1.0)),
        interplay("shuffled", "os", "buffered", KIB_128, Some(1.0)),
    ];
    let grouped = Panels::group(&records);
    let labels: Vec<String> = grouped.panels.iter().map(Panel::label).collect();
    assert_eq!(
        labels,
        [
            "shuffled, kernel readahead 128 KiB",
            "shuffled, kernel readahead 8 MiB",
            "two-streams, kernel readahead 128 KiB"
        ]
    );
    let cells = grouped.panels[0].cells.iter();
    let names: Vec<String> =
        cells.map(|cell| format!("{} {}", cell.strategy, cell.cache)).collect();
    assert_eq!(
        names,
        [
            "os buffered",
            "random buffered",
            "willneed-8 buffered",
            "willneed-128 buffered",
            "hint buffered",
            "adaptive buffered",
            "adaptive direct",
            "newest buffered"
        ]
    );
    assert!(grouped.panels[0].cells[4].is_ours() && !grouped.panels[0].cells[3].is_ours());
}

#[test]
fn no_record_is_lost_whatever_its_shape() {
    let records = absurd();
    let grouped = Panels::group(&records);
    let placed: usize = grouped.panels.iter().map(|panel| panel.cells.len()).sum();
    let all = records.iter().filter(|record| record.experiment == EXPERIMENT).count();
    assert_eq!(placed + grouped.leftovers.len(), all, "[INT-1]");
    assert!(placed > 3 && grouped.leftovers.len() > 24, "both are met: {placed}");
}

#[test]
fn the_kernel_alone_is_that_of_the_same_readahead() {
    let records = [
        interplay("shuffled", "os", "buffered", KIB_128, Some(100.0)),
        interplay("shuffled", "adaptive", "direct", KIB_128, Some(420.0)),
        interplay("shuffled", "os", "buffered", Some(8 << 20), Some(300.0)),
        interplay("shuffled", "adaptive", "direct", Some(8 << 20), Some(360.0)),
    ];
    let grouped = Panels::group(&records);
    let times: Vec<Option<f64>> =
        grouped.panels.iter().map(|panel| panel.times_alone(&panel.cells[1])).collect();
    assert_eq!(times, [Some(4.2), Some(1.2)]);
    assert_eq!(grouped.highest_rate("shuffled"), Some(420.0));
    assert_eq!(
        grouped.sentence(),
        "adaptive reads from 1.20 (shuffled, kernel readahead 8 MiB) to 4.20 (shuffled, kernel \
         readahead 128 KiB) times as fast as the kernel alone"
    );
    let alone = Panels::group(&records[..2]);
    assert!(alone.sentence().starts_with("adaptive reads 4.20 times as fast"));
}

#[test]
fn a_figure_that_was_not_cold_is_no_measure_of_others() {
    let mut records = [
        interplay("shuffled", "os", "buffered", KIB_128, Some(900.0)),
        interplay("shuffled", "adaptive", "direct", KIB_128, Some(420.0)),
    ];
    records[0].remarks.push("not cold: half was cached".into());
    let grouped = Panels::group(&records);
    let panel = &grouped.panels[0];
    assert!(panel.is_best(&panel.cells[1]) && !panel.is_best(&panel.cells[0]), "[INT-2]");
    assert_eq!(panel.times_alone(&panel.cells[1]), None, "[INT-2]");
    assert!(grouped.sentence().ends_with("nowhere"));
}
