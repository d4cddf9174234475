//! Plots: where every stroke and every word of a [`Plot`] stands, for the template that writes the SVG.
//!
//! It is drawn here and not by a script, so that it is in print as well; the figures are titles of the
//! points, which browsers show under the pointer. Worked example: ticks 0, 1, 4, 16 stand equally far
//! apart, 41,230 blocks/s on an axis that ends at 50,000 stand at 82 % of its height.
//!
//! Invariants:  [PLO-1] every point, band and label lies within the drawing, and is a number
//!              [PLO-2] no two labels of marks cover each other, as far as there is room

use serde::Serialize;

use super::{Line, Plot, Point, numbers};

const LEFT: f64 = 52.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;

/// Steps of the vertical axis.
const STEPS: u32 = 4;

/// Colours of lines; the style sheet has as many.
const INKS: usize = 8;

/// Width of a character of a label, roughly, and height of its line.
const LETTER: f64 = 6.8;
const LINE: f64 = 16.0;

/// A drawing, in pixels from its top left corner.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Drawing {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    bottom: f64,
    title: String,
    x_name: String,
    y_name: String,
    /// The plot in words, for those who cannot see it.
    description: String,
    /// Steps of the vertical axis, and ticks of the horizontal one.
    steps: Vec<Label>,
    ticks: Vec<Label>,
    lines: Vec<Curve>,
    marks: Vec<Mark>,
}

#[derive(Debug, Clone, Serialize)]
struct Label {
    at: f64,
    text: String,
}

#[derive(Debug, Clone, Serialize)]
struct Curve {
    name: String,
    /// Number of its colour.
    ink: usize,
    dashed: bool,
    /// Corners of the area from the slowest to the fastest rounds, and of the line.
    band: String,
    path: String,
    points: Vec<Dot>,
}

#[derive(Debug, Clone, Serialize)]
struct Dot {
    x: f64,
    y: f64,
    title: String,
}

#[derive(Debug, Clone, Serialize)]
struct Mark {
    x: f64,
    y: f64,
    /// Where its text begins.
    text_x: f64,
    text_y: f64,
    text: String,
}

/// Both scales.
struct Frame<'p> {
    ticks: &'p [(f64, String)],
    width: f64,
    height: f64,
    most: f64,
}

impl Frame<'_> {
    /// Ticks are equally far apart; between them by value.
    fn x(&self, value: f64) -> f64 {
        let after = self.ticks.partition_point(|(tick, _)| *tick < value);
        let place = match (
            after.checked_sub(1).map(|before| self.ticks[before].0),
            self.ticks.get(after),
        ) {
            (None, _) => 0.0,
            (Some(before), Some((next, _))) => {
                after as f64 - 1.0 + (value - before) / (next - before)
            }
            (Some(_), None) => self.ticks.len() as f64 - 1.0,
        };
        let share = place / (self.ticks.len().max(2) as f64 - 1.0);
        tenths(LEFT + share * (self.width - LEFT - RIGHT))
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.most).clamp(0.0, 1.0); // [PLO-1]
        tenths(self.height - BOTTOM - share * (self.height - TOP - BOTTOM))
    }
}

/// Draws `plot` so many pixels wide and high; `None` where no line has two points above 0.
pub(super) fn draw(plot: &Plot, width: f64, height: f64) -> Option<Drawing> {
    let measured = |line: &Line| -> Vec<Point> {
        let numbers = |point: &&Point| {
            [point.x, point.y, point.low, point.high].iter().all(|it| it.is_finite())
        };
        line.points.iter().filter(numbers).copied().collect()
    };
    let lines: Vec<(&Line, Vec<Point>)> =
        plot.lines.iter().map(|line| (line, measured(line))).collect();
    let points = || lines.iter().flat_map(|(_, points)| points);
    let most = points().map(|point| point.y.max(point.high)).fold(0.0, f64::max);
    let longest = lines.iter().map(|(_, points)| points.len()).max().unwrap_or(0);
    if longest < 2 || most <= 0.0 || most > 1e300 {
        return None;
    }
    // Some room above the highest, for the words of marks.
    let frame = Frame { ticks: &plot.ticks, width, height, most: round_up(most * 1.04) };
    let steps = (0..=STEPS).map(|step| {
        let value = frame.most * f64::from(step) / f64::from(STEPS);
        Label { at: frame.y(value), text: numbers::compact(value) }
    });
    let inks = inks(&plot.lines);
    let curves =
        lines.iter().zip(inks).map(|((line, points), ink)| curve(line, points, ink, &frame, plot));
    Some(Drawing {
        width,
        height,
        left: LEFT,
        right: width - RIGHT,
        bottom: height - BOTTOM,
        title: plot.title.clone(),
        x_name: plot.x_name.clone(),
        y_name: plot.y_name.clone(),
        description: description(plot, &lines),
        steps: steps.collect(),
        ticks: ticks(&frame),
        lines: curves.collect(),
        marks: marks(plot, &frame),
    })
}

fn curve(line: &Line, points: &[Point], ink: usize, frame: &Frame<'_>, plot: &Plot) -> Curve {
    let corner = |x: f64, y: f64| format!("{},{}", frame.x(x), frame.y(y));
    let joined = |corners: Vec<String>| corners.join(" ");
    let upper = points.iter().map(|point| corner(point.x, point.high));
    let lower = points.iter().rev().map(|point| corner(point.x, point.low));
    let tick = |x: f64| {
        let known = plot.ticks.iter().find(|(tick, _)| *tick == x);
        known.map_or_else(|| numbers::number(x), |(_, text)| text.clone())
    };
    let dot = |point: &Point| {
        let [y, low, high] = [point.y, point.low, point.high].map(numbers::number);
        let title =
            format!("{}, {} {}: {y} ({low} to {high})", line.name, plot.x_name, tick(point.x));
        Dot { x: frame.x(point.x), y: frame.y(point.y), title }
    };
    Curve {
        name: line.name.clone(),
        ink,
        dashed: line.dashed,
        band: joined(upper.chain(lower).collect()),
        path: joined(points.iter().map(|point| corner(point.x, point.y)).collect()),
        points: points.iter().map(dot).collect(),
    }
}

/// A colour for each line: the same one for two lines that share their first word, if dashes tell them apart.
fn inks(lines: &[Line]) -> Vec<usize> {
    let first_word = |line: &Line| line.name.split(' ').next().unwrap_or("").to_owned();
    let mut given: Vec<(String, bool, usize)> = Vec::new();
    for line in lines {
        let word = first_word(line);
        let is_taken = |ink| given.iter().any(|it| (it.1, it.2) == (line.dashed, ink));
        let shared = given.iter().find(|it| it.0 == word && !is_taken(it.2)).map(|it| it.2);
        let unused = given.iter().map(|it| it.2 + 1).max().unwrap_or(0);
        let ink = shared.unwrap_or(unused);
        given.push((word, line.dashed, ink));
    }
    given.into_iter().map(|(_, _, ink)| ink % INKS).collect()
}

/// Labels of the horizontal axis, as far as there is room.
fn ticks(frame: &Frame<'_>) -> Vec<Label> {
    let mut free = f64::NEG_INFINITY;
    let labels = frame.ticks.iter().filter_map(|(value, text)| {
        let (at, half) = (frame.x(*value), text.chars().count() as f64 * LETTER / 2.0);
        let fits = at - half >= free;
        if fits {
            free = at + half + LETTER;
        }
        fits.then(|| Label { at, text: text.clone() })
    });
    labels.collect()
}

/// Marks with their words above and left of them, or below them where there is no room [PLO-2].
fn marks(plot: &Plot, frame: &Frame<'_>) -> Vec<Mark> {
    let mut placed: Vec<Mark> = Vec::new();
    for mark in plot.marks.iter().filter(|mark| mark.y.is_finite()) {
        let (x, y) = (frame.x(mark.x), frame.y(mark.y));
        let long = |text: &str| text.chars().count() as f64 * LETTER;
        let last = (frame.width - long(&mark.text)).max(0.0);
        // Left of the point, since curves come from below.
        let text_x = tenths((x - long(&mark.text) + LETTER / 2.0).clamp(0.0, last));
        let is_free = |text_y: f64| {
            text_y > LINE
                && text_y < frame.height - BOTTOM
                && placed.iter().all(|other| {
                    (other.text_y - text_y).abs() >= LINE
                        || other.text_x + long(&other.text) < text_x
                        || text_x + long(&mark.text) < other.text_x
                })
        };
        let above = (1..).map(|step| y - f64::from(step) * LINE).take_while(|&at| at > 0.0);
        let below =
            (2..).map(|step| y + f64::from(step) * LINE).take_while(|&at| at < frame.height);
        let text_y = above.chain(below).find(|&at| is_free(at)).unwrap_or(LINE);
        placed.push(Mark { x, y, text_x, text_y: tenths(text_y), text: mark.text.clone() });
    }
    placed
}

/// What is drawn, and for each line where it starts and how far it gets.
fn description(plot: &Plot, lines: &[(&Line, Vec<Point>)]) -> String {
    let mut text = format!("{}: {} by {}.", plot.title, plot.y_name, plot.x_name);
    for (line, points) in lines {
        let best = points.iter().max_by(|a, b| a.y.total_cmp(&b.y));
        if let (Some(first), Some(best)) = (points.first(), best) {
            let [first, best] = [first.y, best.y].map(numbers::number);
            text.push_str(&format!(" {}: from {first}, at best {best}.", line.name));
        }
    }
    for mark in &plot.marks {
        text.push_str(&format!(" {}.", mark.text));
    }
    text
}

/// The next of 1, 2, 2.5, 4, 5, 8 and 10 times a power of ten, whose quarters are round.
fn round_up(most: f64) -> f64 {
    let power = 10f64.powf(most.log10().floor());
    let steps = [1.0, 2.0, 2.5, 4.0, 5.0, 8.0, 10.0];
    let enough = steps.into_iter().find(|step| step * power >= most * (1.0 - 1e-9));
    enough.unwrap_or(10.0) * power
}

fn tenths(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::super::{PlotMark, sample};
    use super::*;

    fn line(name: &str, dashed: bool, points: &[(f64, f64)]) -> Line {
        let points = points.iter().map(|&(x, y)| Point { x, y, low: y * 0.9, high: y * 1.1 });
        Line { name: name.to_owned(), dashed, points: points.collect() }
    }

    fn plot(lines: Vec<Line>) -> Plot {
        let ticks = [0.0, 1.0, 4.0, 16.0].map(|tick| (tick, format!("{tick}"))).to_vec();
        Plot { ticks, lines, x_name: "depth".into(), ..Plot::default() }
    }

    #[test]
    fn ticks_are_equally_far_apart_and_more_is_higher() {
        let curve = line("uring direct", false, &[(0.0, 10.0), (4.0, 30.0), (16.0, 40.0)]);
        let drawn = draw(&plot(vec![curve]), 400.0, 300.0).unwrap();
        let third = (400.0 - LEFT - RIGHT) / 3.0;
        let xs: Vec<f64> = drawn.lines[0].points.iter().map(|dot| dot.x).collect();
        assert_eq!(xs, [LEFT, tenths(LEFT + 2.0 * third), 400.0 - RIGHT]);
        assert!(drawn.lines[0].points[0].y > drawn.lines[0].points[1].y);
        assert_eq!(drawn.steps[4].text, "50.0");
        assert_eq!(drawn.lines[0].points[1].title, "uring direct, depth 4: 30.0 (27.0 to 33.0)");
    }

    #[test]
    fn lines_of_one_name_share_a_colour_if_dashes_tell_them_apart() {
        let of = |names: &[(&str, bool)]| {
            inks(&names.iter().map(|(name, dashed)| line(name, *dashed, &[])).collect::<Vec<_>>())
        };
        assert_eq!(
            of(&[("sync direct", false), ("uring direct", false), ("sync buffered", true)]),
            [0, 1, 0]
        );
        assert_eq!(of(&[("8 own", false), ("8 one", false)]), [0, 1]);
        let workers =
            [("threads buffered", true), ("threads buffered 3", true), ("threads direct", false)];
        assert_eq!(of(&workers), [0, 1, 0]);
    }

    #[test]
    fn nothing_leaves_the_drawing_whatever_is_drawn() {
        let absurd = [
            (-5.0, 1.0),
            (0.0, f64::NAN),
            (1.0, -1e299),
            (2.5, 1e299),
            (4.0, f64::INFINITY),
            (99.0, 0.0),
        ];
        let mut plot = plot(vec![line("a", false, &absurd), line("b", true, &[])]);
        plot.marks = (0..40)
            .map(|at| PlotMark { x: f64::from(at), y: 1e299, text: "knee".repeat(at as usize) })
            .collect();
        plot.marks.push(PlotMark { x: 0.0, y: f64::NAN, text: "nowhere".to_owned() });
        let drawn = draw(&plot, 400.0, 300.0).unwrap();
        let inside = |x: f64, y: f64| (0.0..=400.0).contains(&x) && (0.0..=300.0).contains(&y);
        assert!(drawn.lines[0].points.iter().all(|dot| inside(dot.x, dot.y)), "[PLO-1] {drawn:?}");
        assert!(
            drawn.marks.iter().all(|it| inside(it.x, it.y) && inside(it.text_x, it.text_y)),
            "[PLO-1]"
        );
        let written = serde_json::to_string(&drawn).unwrap();
        assert!(
            !written.contains("NaN") && !written.contains("inf") && !written.contains("null"),
            "[PLO-1]"
        );
        plot.lines = vec![line("one point", false, &[(0.0, 1.0)])];
        assert!(draw(&plot, 400.0, 300.0).is_none(), "one point is no curve");
        plot.lines = vec![line("none", false, &[(0.0, 0.0), (1.0, 0.0)])];
        assert!(draw(&plot, 400.0, 300.0).is_none());
    }

    #[test]
    fn words_of_marks_do_not_cover_each_other() {
        let mut plot = sample::depth_section().headline.unwrap();
        let mark = plot.marks[0].clone();
        plot.marks = vec![mark.clone(), mark.clone(), mark];
        let drawn = draw(&plot, 560.0, 400.0).unwrap();
        for (index, one) in drawn.marks.iter().enumerate() {
            for other in &drawn.marks[..index] {
                assert!((one.text_y - other.text_y).abs() >= LINE, "[PLO-2] {:?}", drawn.marks);
            }
        }
        assert!(drawn.description.contains(&plot.marks[0].text));
    }
}
