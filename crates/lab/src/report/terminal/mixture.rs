//! The table that ends a run of `forebay lab mixture`: what each kind of readers keeps beside the other.
//!
//! ```text
//!  readahead  streams  beside   kept  random    beside   kept  wait ms  beside
//!                MB/s  random      %  reads/s  streams      %      p99  streams
//!  4 streams, 4 random readers, reads of 8 KiB, ext4
//!  128 KiB        100      40     40    1,000      900     90     20.0     22.1
//! ```
//!
//! Invariants:  [TMX-1] a figure that was not cold stands in parentheses

use super::super::footnotes::Footnotes;
use super::super::mixture::{Mixtures, Row};
use super::super::standing::Standing;
use super::super::{Record, numbers};
use super::grid::{self, Column, Figure, Group, KEPT, Kind, Tone};
use super::text::{ascii, footnotes};
use super::{Look, WIDTH_MIN};

/// Draws the records of the experiment `mixture`, then the remarks as footnotes.
///
/// Records of other experiments are passed over; without any of this one the answer says so.
/// Every line of the answer ends in a line feed and none is wider than `look.width`.
pub fn mixture_table(records: &[Record], look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    let grouped = Mixtures::group(records);
    if grouped.panels.is_empty() && grouped.leftovers.is_empty() {
        return "No mixture of readers was measured.\n".to_owned();
    }
    let mut notes = Footnotes::default();
    let groups: Vec<Group> = grouped
        .panels
        .iter()
        .map(|panel| Group {
            heading: panel.label.clone(),
            rows: panel.rows.iter().map(|row| figures(row, &mut notes)).collect(),
        })
        .collect();
    let mut text = grid::draw_and_tell(&columns(), &groups, look);
    let some_not_cold = grouped
        .panels
        .iter()
        .flat_map(|panel| &panel.rows)
        .flat_map(|row| [row.streams(), row.random(), row.both()])
        .flatten()
        .any(Record::is_not_cold);
    text.push_str(&footnotes(&notes, some_not_cold, grouped.leftovers.len(), look));
    if look.ascii { ascii(&text) } else { text }
}

fn columns() -> [Column; 9] {
    [
        Column::new(["readahead", ""], Kind::Name, KEPT),
        Column::new(["streams", "MB/s"], Kind::Number, 5),
        Column::new(["beside", "random"], Kind::Number, 4),
        Column::new(["kept", "%"], Kind::Number, 9),
        Column::new(["random", "reads/s"], Kind::Number, 7),
        Column::new(["beside", "streams"], Kind::Number, 6),
        Column::new(["kept", "%"], Kind::Number, 8),
        Column::new(["wait ms", "p99"], Kind::Number, 3),
        Column::new(["beside", "streams"], Kind::Number, 2),
    ]
}

fn figures(row: &Row<'_>, notes: &mut Footnotes) -> Vec<Figure> {
    let figure = |record: Option<&Record>, key: &str, text: fn(f64) -> String| {
        let Some(record) = record else { return Figure::plain("–".to_owned()) };
        let standing = Standing::by(record, key);
        let value = record.metric(key).map_or("–".to_owned(), text);
        let text = match standing {
            Standing::NotCold => format!("({value})"), // [TMX-1]
            Standing::Cold | Standing::Unmeasured => value,
        };
        let tone = Tone { dim: standing != Standing::Cold, ..Tone::default() };
        Figure { tone, ..Figure::plain(text) }
    };
    let (streams, random, both) = (row.streams(), row.random(), row.both());
    let megabytes: fn(f64) -> String = |rate| numbers::number(rate / 1e6);
    let milliseconds: fn(f64) -> String = |us| numbers::number(us / 1e3);
    let marks = notes.marks(&row.remarks());
    let suffix = if marks.is_empty() { marks } else { format!("[{marks}]") };
    vec![
        Figure { suffix, ..Figure::plain(row.label()) },
        figure(streams, "stream_bytes_per_s", megabytes),
        figure(both, "stream_bytes_per_s", megabytes),
        figure(both, "stream_kept", numbers::percent),
        figure(random, "random_reads_per_s", numbers::number),
        figure(both, "random_reads_per_s", numbers::number),
        figure(both, "random_kept", numbers::percent),
        figure(random, "random_wait_us_p99", milliseconds),
        figure(both, "random_wait_us_p99", milliseconds),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::{absurd_readaheads, mixture};
    use super::*;

    const PLAIN: Look = Look { width: 100, colour: false, ascii: false };

    #[test]
    fn each_kind_alone_beside_the_other_and_what_it_keeps() {
        let of = |mix| mixture(131_072, mix, if mix == "both" { 0.4 } else { 1.0 }, 0.5);
        let records = [of("streams"), of("random"), of("both")];
        let text = mixture_table(&records, PLAIN);
        let row = text.lines().find(|line| line.trim_start().starts_with("128 KiB")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["128", "KiB", "100", "40.0", "40", "500", "500", "50", "40.0", "40.0"]);
    }

    #[test]
    fn a_figure_that_was_not_cold_is_set_apart() {
        let mut warm = mixture(131_072, "both", 0.4, 0.5);
        warm.remarks.push("not cold: 1 of 2 pages stayed".into());
        let text = mixture_table(&[warm], PLAIN);
        assert!(text.contains("(40)") && text.contains("128 KiB[1]"), "[TMX-1] {text}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_whatever_the_records() {
        let mut records = absurd_readaheads();
        for record in &mut records {
            record.experiment = "mixture".to_owned();
        }
        records.push(mixture(u64::MAX, "both", f64::MAX, 1e-300));
        records.push(mixture(131_072, "both", 0.4, 0.5));
        for width in [10, WIDTH_MIN, 40, 60, 80, 100, 250] {
            for ascii in [false, true] {
                let text = mixture_table(&records, Look { width, ascii, colour: false });
                for line in text.lines() {
                    assert!(
                        line.chars().count() <= width.max(WIDTH_MIN),
                        "[TER-1] {width}: {line}"
                    );
                }
                assert!(!ascii || text.is_ascii(), "[TER-2] {text}");
            }
        }
    }
}
