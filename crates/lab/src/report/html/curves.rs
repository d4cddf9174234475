//! Curves: figures against readahead, as an inline SVG with a logarithmic axis.
//!
//! A readahead is doubled from one sensible setting to the next, so that its axis is logarithmic; none at
//! all, which has no logarithm, stands at the left edge by itself. Like the timeline it is drawn here and
//! not by a script, so that it is in print as well. A ceiling is a dashed line across.
//!
//! Invariants:  [CRV-1] nothing of a report but numbers is written into the drawing
//!              [CRV-2] every point lies within the frame

use std::fmt::Write;

use super::super::numbers;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;
const TICKS: u32 = 4;

/// Least room between two labels of the axis.
const LABEL_APART: f64 = 62.0;

/// Colours of lines, in the order in which they are given out.
const INKS: [&str; 6] = ["ink-threads", "ink-uring", "ink-aio", "ink-fio", "ink-sync", "ink-other"];

/// The colour of line `number`.
pub(super) fn ink(number: usize) -> &'static str {
    INKS[number % INKS.len()]
}

/// One line.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    /// Readahead in bytes and figure, ascending.
    pub(super) points: Vec<(u64, f64)>,
    /// What could be had at most, drawn across.
    pub(super) ceiling: Option<f64>,
}

/// Both scales of a drawing.
struct Frame {
    /// Logarithms of the smallest readahead that is not 0 and of the largest.
    low: f64,
    high: f64,
    most: f64,
}

impl Frame {
    fn of(lines: &[Line]) -> Option<Frame> {
        let bytes = || lines.iter().flat_map(|line| &line.points).map(|(bytes, _)| *bytes);
        let logarithms = || bytes().filter(|&bytes| bytes > 0).map(|bytes| (bytes as f64).log2());
        let figures = lines
            .iter()
            .flat_map(|line| line.points.iter().map(|(_, figure)| *figure).chain(line.ceiling));
        let most = figures.fold(0.0, f64::max);
        let low = logarithms().reduce(f64::min)?;
        let high = logarithms().reduce(f64::max)?;
        // None at all has a step of its own before the first.
        let low = if bytes().any(|bytes| bytes == 0) { low - 1.0 } else { low };
        (most > 0.0 && most.is_finite() && high > low).then(|| Frame {
            low,
            high,
            most: round_up(most),
        })
    }

    fn x(&self, bytes: u64) -> f64 {
        let at = if bytes == 0 { self.low } else { (bytes as f64).log2() };
        let share = ((at - self.low) / (self.high - self.low)).clamp(0.0, 1.0); // [CRV-2]
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, figure: f64) -> f64 {
        HEIGHT - BOTTOM - (figure / self.most).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// The drawing of `lines`; `None` where there are not two readaheads with a figure.
pub(super) fn draw(lines: &[Line]) -> Option<String> {
    let frame = Frame::of(lines)?;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-hidden=\"true\">");
    axes(&mut svg, &frame, lines);
    for (number, line) in lines.iter().enumerate() {
        let ink = ink(number);
        // Writing to a String cannot fail, here and below.
        if let Some(ceiling) = line.ceiling {
            let (y, right) = (frame.y(ceiling), WIDTH - RIGHT);
            let _ = write!(
                svg,
                "<line class=\"{ink}\" stroke=\"currentColor\" stroke-width=\"1.2\" \
                 stroke-dasharray=\"6 4\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
        }
        let mut path = String::new();
        for (index, (bytes, figure)) in line.points.iter().enumerate() {
            let step = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1}", frame.x(*bytes), frame.y(*figure));
        }
        let _ = write!(
            svg,
            "<path class=\"{ink}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" d=\"{path}\"/>"
        );
        for (bytes, figure) in &line.points {
            let _ = write!(
                svg,
                "<circle class=\"{ink}\" fill=\"currentColor\" r=\"3.2\" cx=\"{:.1}\" cy=\"{:.1}\"/>",
                frame.x(*bytes),
                frame.y(*figure)
            );
        }
    }
    svg.push_str("</svg>");
    Some(svg)
}

fn axes(svg: &mut String, frame: &Frame, lines: &[Line]) {
    for tick in 0..=TICKS {
        let figure = frame.most * (f64::from(tick) / f64::from(TICKS));
        let (y, right) = (frame.y(figure), WIDTH - RIGHT);
        let _ = write!(
            svg,
            "<line class=\"ink-grid\" stroke=\"currentColor\" x1=\"{LEFT}\" x2=\"{right}\" \
             y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            numbers::number(figure)
        );
    }
    // The readaheads that were measured, as far as there is room.
    let mut settings: Vec<u64> =
        lines.iter().flat_map(|line| line.points.iter().map(|(bytes, _)| *bytes)).collect();
    settings.sort_unstable();
    settings.dedup();
    let mut last = f64::NEG_INFINITY;
    for bytes in settings {
        let x = frame.x(bytes);
        if x - last < LABEL_APART {
            continue;
        }
        last = x;
        let label = match bytes {
            0 => "none".to_owned(),
            bytes => numbers::bytes(bytes).replace(".0 ", " "),
        };
        let _ = write!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            HEIGHT - 10.0
        );
    }
}

/// The next of 1, 2, 2.5, 4 or 5 times a power of ten, or the power itself.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 4.0, 5.0, 8.0].map(|step| step * power);
    let up = steps.into_iter().find(|step| *step >= value).unwrap_or(10.0 * power);
    if up.is_finite() { up } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(u64, f64)], ceiling: Option<f64>) -> Line {
        Line { points: points.to_vec(), ceiling }
    }

    /// The points of path `number`.
    fn path(svg: &str, number: usize) -> Vec<(f64, f64)> {
        let path = svg.split(" d=\"").nth(number + 1).unwrap().split('"').next().unwrap();
        path.split(['M', 'L'])
            .filter_map(|point| point.split_once(' '))
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect()
    }

    #[test]
    fn doubling_the_readahead_is_one_step_to_the_right() {
        let points = [(4096, 10.0), (8192, 20.0), (16_384, 40.0)];
        let svg = draw(&[line(&points, Some(50.0)), line(&points, None)]).unwrap();
        let drawn = path(&svg, 0);
        assert!((drawn[1].0 - drawn[0].0 - (drawn[2].0 - drawn[1].0)).abs() < 0.2, "{drawn:?}");
        assert!(drawn[2].1 < drawn[1].1 && drawn[1].1 < drawn[0].1, "more is higher: {drawn:?}");
        assert_eq!(svg.matches("stroke-dasharray").count(), 1, "one ceiling");
        assert_eq!(svg.matches("<path").count(), 2);
        assert!(svg.contains(">4 KiB</text>") && svg.contains(">50.0</text>"), "{svg}");
    }

    #[test]
    fn none_at_all_stands_left_of_the_smallest() {
        let svg = draw(&[line(&[(0, 1.0), (131_072, 2.0), (262_144, 3.0)], None)]).unwrap();
        let drawn = path(&svg, 0);
        assert_eq!(drawn[0].0, LEFT);
        assert!(drawn[1].0 > LEFT + 100.0);
        assert!(svg.contains(">none</text>"));
    }

    #[test]
    fn nothing_leaves_the_frame_whatever_is_drawn() {
        let absurd = [(0, f64::MAX), (1, 0.0), (u64::MAX, 1e-300)];
        let svg = draw(&[line(&absurd, Some(f64::MAX))]).unwrap();
        for (x, y) in path(&svg, 0) {
            assert!((LEFT..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "[CRV-2] {x} {y}");
        }
        assert!(draw(&[]).is_none());
        assert!(draw(&[line(&[(4096, 1.0)], None)]).is_none(), "one point is no curve");
        assert!(draw(&[line(&[(4096, 0.0), (8192, 0.0)], None)]).is_none());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "[CRV-1]");
    }
}
