//! The table that ends a run of `forebay lab activation`: when the kernel begins to read ahead.
//!
//! ```text
//!                             told             begins  agree       first  largest  windows
//!                                                                 window
//!  reads of 8 KiB, ext4
//!  begin, one after the other  NORMAL, 128 KiB  read 1  20 of 20  32 KiB  128 KiB  32 KiB, 64 KiB ...
//!  middle, leaving out 8 KiB   NORMAL, 128 KiB  never   20 of 20       –        –  –
//! ```

use super::super::Record;
use super::super::activation::{Activations, Row};
use super::super::footnotes::Footnotes;
use super::grid::{self, Column, Figure, Group, KEPT, Kind};
use super::text::{ascii, footnotes};
use super::{Look, WIDTH_MIN};

/// Draws the records of the experiment `activation`, then the remarks as footnotes.
///
/// Records of other experiments are passed over; without any of this one the answer says so.
/// Every line of the answer ends in a line feed and none is wider than `look.width`.
pub fn activation_table(records: &[Record], look: Look) -> String {
    let look = Look { width: look.width.max(WIDTH_MIN), ..look };
    let grouped = Activations::group(records);
    if grouped.panels.is_empty() && grouped.leftovers.is_empty() {
        return "Nobody looked when the kernel begins to read ahead.\n".to_owned();
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
    text.push_str(&footnotes(&notes, false, grouped.leftovers.len(), look));
    if look.ascii { ascii(&text) } else { text }
}

fn columns() -> [Column; 7] {
    [
        Column::new(["", ""], Kind::Name, KEPT),
        Column::new(["told", ""], Kind::Name, 5),
        Column::new(["begins", ""], Kind::Name, 6),
        Column::new(["agree", ""], Kind::Name, 2),
        Column::new(["first", "window"], Kind::Number, 3),
        Column::new(["largest", ""], Kind::Number, 4),
        Column::new(["windows", ""], Kind::Name, 1),
    ]
}

fn figures(row: &Row<'_>, notes: &mut Footnotes) -> Vec<Figure> {
    // That nothing came ahead is in the row already.
    let remarks: Vec<String> = row
        .record
        .remarks
        .iter()
        .filter(|remark| *remark != "nothing was read ahead")
        .cloned()
        .collect();
    let marks = notes.marks(&remarks);
    let suffix = if marks.is_empty() { marks } else { format!("[{marks}]") };
    let [first, largest] = row.first_and_largest();
    vec![
        Figure::plain(format!("{}, {}", row.start, row.gait())),
        Figure::plain(row.told()),
        Figure { suffix, ..Figure::plain(row.begins()) },
        Figure::plain(row.agreeing()),
        Figure::plain(first),
        Figure::plain(largest),
        Figure::plain(row.growth()),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::{absurd_readaheads, activation};
    use super::*;

    const PLAIN: Look = Look { width: 140, colour: false, ascii: false };

    #[test]
    fn a_row_says_when_it_begins_and_how_it_grows() {
        let mut unsure = activation("middle", "normal", 1, Some(2));
        unsure.remarks.push("the repetitions do not agree: it began at read 2, 3".into());
        let records = [unsure, activation("middle", "normal", 2, None)];
        let text = activation_table(&records, PLAIN);
        let row = |start| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
        let sequence = row("middle, one after the other");
        assert!(sequence.contains("read 2[1]") && sequence.contains("20 of 20"), "{text}");
        assert!(sequence.ends_with("32 KiB, 64 KiB, 128 KiB, 128 KiB"), "{text}");
        assert!(row("middle, leaving out 8 KiB").contains("never"), "{text}");
        assert!(text.contains(" [1] the repetitions do not agree"), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_whatever_the_records() {
        let mut records = absurd_readaheads();
        for record in &mut records {
            record.experiment = "activation".to_owned();
        }
        records.push(activation(&"s".repeat(90), &"a".repeat(90), u64::MAX / 8192, Some(7)));
        records.push(activation("begin", "normal", 1, Some(1)));
        for width in [10, WIDTH_MIN, 40, 60, 80, 100, 250] {
            for ascii in [false, true] {
                let text = activation_table(&records, Look { width, ascii, colour: false });
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
