//! Timeline: the longest read of each slot of time, as lines of an inline SVG.
//!
//! A checkpoint that is written at once shows as a tooth in every interval, a spread one as a low hedge.
//! Under the lines, a bar for each way says when its checkpoints were under way. It is drawn here and not
//! by a script, so that it is in print and without scripts as well; the table beside it has the figures.
//!
//! Invariants:  [TML-1] nothing of a report but numbers is written into the drawing
//!              [TML-2] every point lies within the frame
//!              [TML-3] where nobody read there is a gap, not a zero

use std::fmt::Write;

use super::super::checkpoint::{Panel, Way};
use super::super::numbers;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
/// Room for the bars of two to four ways, and the axis of time.
const BOTTOM: f64 = 52.0;
const BAR_HEIGHT: f64 = 5.0;
const TICKS: u32 = 4;

/// What is drawn, and the same in words.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) svg: String,
    pub(super) description: String,
}

/// Both scales of a drawing.
struct Frame {
    seconds_most: f64,
    ms_most: f64,
}

impl Frame {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (seconds / self.seconds_most).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT) // [TML-2]
    }

    fn y(&self, ms: f64) -> f64 {
        HEIGHT - BOTTOM - (ms / self.ms_most).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// The drawing of a group; `None` when nobody read in it.
pub(super) fn draw(panel: &Panel<'_>) -> Option<Timeline> {
    let drawn: Vec<(&Way<'_>, Vec<Option<f64>>)> = panel
        .ways
        .iter()
        .map(|way| (way, way.over_time()))
        .filter(|(_, points)| points.iter().any(Option::is_some))
        .collect();
    let most = |points: &[Option<f64>]| points.iter().flatten().copied().fold(0.0, f64::max);
    let ms_most = drawn.iter().map(|(_, points)| most(points)).fold(0.0, f64::max);
    let seconds = drawn.iter().map(|(way, points)| points.len() as f64 * way.slot_seconds());
    let seconds_most = seconds.fold(0.0, f64::max);
    if !(ms_most > 0.0 && ms_most.is_finite() && seconds_most > 0.0 && seconds_most.is_finite()) {
        return None;
    }
    let frame = Frame { seconds_most, ms_most: round_up(ms_most) };
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-hidden=\"true\">");
    axes(&mut svg, &frame);
    let mut description = String::from("Line plot of the longest read of each slot of time.");
    for (index, (way, points)) in drawn.iter().enumerate() {
        let ink = if way.paced { "ink-uring" } else { "ink-threads" };
        let dash = if way.paced { " stroke-dasharray=\"6 3\"" } else { "" };
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            svg,
            "<path class=\"{ink}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.8\"{dash} \
             d=\"{}\"/>",
            path(&frame, points, way.slot_seconds())
        );
        let top = HEIGHT - BOTTOM + 4.0 + index as f64 * (BAR_HEIGHT + 1.5);
        for (from, to) in way.spans() {
            let (left, right) = (frame.x(from), frame.x(to));
            let _ = write!(
                svg,
                "<rect class=\"{ink}\" fill=\"currentColor\" x=\"{left:.1}\" y=\"{top:.1}\" \
                 width=\"{:.1}\" height=\"{BAR_HEIGHT}\"/>",
                (right - left).max(1.0)
            );
        }
        let _ = write!(
            description,
            " Checkpoints {}: at most {} ms.",
            way.pace(),
            numbers::number(most(points))
        );
    }
    svg.push_str("</svg>");
    Some(Timeline { svg, description })
}

fn axes(svg: &mut String, frame: &Frame) {
    for tick in 0..=TICKS {
        let ms = frame.ms_most * f64::from(tick) / f64::from(TICKS);
        let (y, right) = (frame.y(ms), WIDTH - RIGHT);
        let _ = write!(
            svg,
            "<line class=\"ink-grid\" stroke=\"currentColor\" x1=\"{LEFT}\" x2=\"{right}\" \
             y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            numbers::number(ms)
        );
    }
    // At round moments, four to ten of them.
    let step = round_up(frame.seconds_most / 10.0);
    for tick in 0..=(frame.seconds_most / step) as u32 {
        let seconds = step * f64::from(tick);
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            frame.x(seconds),
            HEIGHT - 8.0,
            numbers::number(seconds)
        );
    }
}

/// Straight lines from slot to slot, each point in the middle of its slot, broken at gaps [TML-3].
fn path(frame: &Frame, points: &[Option<f64>], slot_seconds: f64) -> String {
    let mut path = String::new();
    let mut is_drawing = false;
    for (index, point) in points.iter().enumerate() {
        let Some(ms) = point else {
            is_drawing = false;
            continue;
        };
        let (x, y) = (frame.x((index as f64 + 0.5) * slot_seconds), frame.y(*ms));
        let step = if is_drawing { 'L' } else { 'M' };
        let _ = write!(path, "{step}{x:.1} {y:.1}");
        is_drawing = true;
    }
    path
}

/// The next of 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::super::super::checkpoint::Checkpoints;
    use super::super::super::sample::{absurd_checkpoints, beside};
    use super::*;
    use serde_json::json;

    fn drawn(records: &[crate::report::Record]) -> Vec<Timeline> {
        Checkpoints::group(records).beside.iter().filter_map(draw).collect()
    }

    #[test]
    fn both_paces_are_drawn_with_their_checkpoints() {
        let drawn = drawn(&[beside("direct", false, 9.0), beside("direct", true, 1.25)]);
        let [timeline] = &drawn[..] else { panic!("one group: {drawn:?}") };
        assert_eq!(timeline.svg.matches("<path").count(), 2);
        assert_eq!(timeline.svg.matches("<rect").count(), 4);
        assert!(timeline.svg.contains("stroke-dasharray"), "colour is not the only difference");
        assert!(timeline.svg.contains(">10.0</text>"), "8.1 ms lie below the next round number");
        assert!(timeline.description.contains("at once: at most 8.10 ms"), "{timeline:?}");
        assert!(timeline.description.contains("spread: at most 1.12 ms"), "{timeline:?}");
    }

    #[test]
    fn where_nobody_read_the_line_is_broken() {
        let mut record = beside("direct", true, 2.0);
        record
            .metrics
            .insert("foreground_us_max_over_time".into(), json!([1000, 2000, null, 1000, 1000]));
        let svg = &drawn(&[record])[0].svg;
        let path = svg.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(path.matches('M').count(), 2, "[TML-3] {path}");
        assert_eq!(path.matches('L').count(), 2, "[TML-3] {path}");
    }

    #[test]
    fn nothing_leaves_the_frame_and_no_text_gets_in() {
        let mut records = absurd_checkpoints();
        for record in &mut records {
            record.cell.insert("elevator".into(), json!("<b>"));
        }
        for timeline in drawn(&records) {
            assert!(!timeline.svg.contains("<b>"), "[TML-1]");
            for point in timeline.svg.split(['M', 'L']).skip(1) {
                let numbers = point.split(['"', ' ']).filter_map(|word| word.parse::<f64>().ok());
                for number in numbers.take(2) {
                    assert!((0.0..=WIDTH).contains(&number), "[TML-2] {number} in {point}");
                }
            }
        }
        assert_eq!([0.9, 1.0, 1.1, 4.0, 7.0].map(round_up), [1.0, 1.0, 2.0, 5.0, 10.0]);
    }
}
