//! Plots: the position of every stroke and every word of a [`Plot`], for the template that writes the SVG.
//!
//! It is drawn here and not by a script, so that it appears in print as well; the figures are titles of the
//! points, which browsers show under the pointer. Worked example: ticks 0, 1, 4, 16 are equally
//! spaced; 41,230 blocks/s on an axis that ends at 50,000 are at 82 % of its height.
//!
//! Invariants:  [PLO-1] every point, band and label lies within the drawing, and is a number

use serde_json::{Value, json};

use super::{Line, Plot, Point, numbers};
use crate::lists::unique;

const LEFT: f64 = 52.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;

/// Steps of the vertical axis.
const STEPS: u32 = 4;

/// Colours of lines; the style sheet has this many.
const INKS: usize = 8;

/// Width of a character of a label, roughly, and height of its line.
const LETTER: f64 = 6.8;
const LINE: f64 = 16.0;

/// Both scales.
struct Frame {
    ticks: usize,
    width: f64,
    height: f64,
    most: f64,
}

impl Frame {
    /// Ticks are equally spaced.
    fn x(&self, tick: usize) -> f64 {
        let last = self.ticks.max(2) - 1;
        let share = tick.min(last) as f64 / last as f64; // [PLO-1]
        tenths(LEFT + share * (self.width - LEFT - RIGHT))
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value / self.most).clamp(0.0, 1.0); // [PLO-1]
        tenths(self.height - BOTTOM - share * (self.height - TOP - BOTTOM))
    }
}

/// Draws `plot` in this width and height in pixels, measured from its top left corner; `None` if no line has two
/// points above 0.
pub(super) fn draw(plot: &Plot, width: f64, height: f64) -> Option<Value> {
    let mut plot = plot.clone();
    for line in &mut plot.lines {
        line.points.retain(|it| [it.y, it.low, it.high].iter().all(|number| number.is_finite()));
    }
    let points = plot.lines.iter().flat_map(|line| &line.points);
    let most = points.map(|point| point.y.max(point.high)).fold(0.0, f64::max);
    let longest = plot.lines.iter().map(|line| line.points.len()).max().unwrap_or(0);
    if longest < 2 || most <= 0.0 || most > 1e300 {
        return None;
    }
    // Some room above the highest, for the words of the mark.
    let frame = Frame { ticks: plot.ticks.len(), width, height, most: round_up(most * 1.04) };
    let steps = (0..=STEPS).map(|step| {
        let value = frame.most * f64::from(step) / f64::from(STEPS);
        json!({ "at": frame.y(value), "text": numbers::compact(value) })
    });
    let curves = plot.lines.iter().zip(inks(&plot.lines));
    Some(json!({
        "width": width,
        "height": height,
        "left": LEFT,
        "right": width - RIGHT,
        "bottom": height - BOTTOM,
        "title": plot.title,
        "x_name": plot.x_name,
        "y_name": plot.y_name,
        "description": description(&plot),
        "steps": steps.collect::<Value>(),
        "ticks": ticks(&plot.ticks, &frame),
        "lines": curves.map(|(line, ink)| curve(line, ink, &frame, &plot)).collect::<Value>(),
        "mark": plot.mark.as_ref().map(|(point, text)| mark(point, text, &frame)),
    }))
}

/// A line, with the corners of the area from the slowest to the fastest rounds, and its points.
fn curve(line: &Line, ink: usize, frame: &Frame, plot: &Plot) -> Value {
    let points = &line.points;
    let corner = |x: usize, y: f64| format!("{},{}", frame.x(x), frame.y(y));
    let joined = |corners: Vec<String>| corners.join(" ");
    let upper = points.iter().map(|point| corner(point.x, point.high));
    let lower = points.iter().rev().map(|point| corner(point.x, point.low));
    let dot = |point: &Point| {
        let [y, low, high] = [point.y, point.low, point.high].map(numbers::number);
        let tick = plot.ticks.get(point.x).map_or("", String::as_str);
        let title = format!("{}, {} {tick}: {y} ({low} to {high})", line.name, plot.x_name);
        json!({ "x": frame.x(point.x), "y": frame.y(point.y), "title": title })
    };
    json!({
        "name": line.name,
        "ink": ink,
        "dashed": line.dashed,
        "band": joined(upper.chain(lower).collect()),
        "path": joined(points.iter().map(|point| corner(point.x, point.y)).collect()),
        "points": points.iter().map(dot).collect::<Value>(),
    })
}

/// A colour for each line: the same one for two lines that share their first word, if dashes distinguish them.
fn inks(lines: &[Line]) -> Vec<usize> {
    let first_word = |line: &Line| line.name.split(' ').next().map(str::to_owned);
    let looks = lines.iter().map(|line| (first_word(line), line.dashed)).collect::<Vec<_>>();
    // The n-th line of a look has the colour of the n-th one of the other look.
    let nth = |at: usize| looks[..at].iter().filter(|look| **look == looks[at]).count();
    let owners: Vec<_> = (0..lines.len()).map(|at| (&looks[at].0, nth(at))).collect();
    let inks = unique(&owners);
    owners.iter().filter_map(|owner| Some(inks.iter().position(|it| it == owner)? % INKS)).collect()
}

/// Labels of the horizontal axis: each, or each second one and so on, so that the widest has room.
fn ticks(labels: &[String], frame: &Frame) -> Value {
    let widest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let needed = (widest + 1) as f64 * LETTER * labels.len() as f64;
    let every = (needed / (frame.width - LEFT - RIGHT)).ceil() as usize;
    let labels = labels.iter().enumerate().step_by(every.max(1));
    labels.map(|(tick, label)| json!({ "at": frame.x(tick), "text": label })).collect()
}

/// The mark at a point, with its words above and left of it, since curves rise from below.
fn mark(point: &Point, text: &str, frame: &Frame) -> Value {
    let (x, y) = (frame.x(point.x), frame.y(point.y));
    let long = text.chars().count() as f64 * LETTER;
    let text_x = (x - long + LETTER / 2.0).clamp(0.0, (frame.width - long).max(0.0));
    let text_y = (y - LINE).max(LINE);
    json!({ "x": x, "y": y, "text_x": tenths(text_x), "text_y": tenths(text_y), "text": text })
}

/// The drawing, and for each line its start and its extent.
fn description(plot: &Plot) -> String {
    let mut text = format!("{}: {} by {}.", plot.title, plot.y_name, plot.x_name);
    for Line { name, points, .. } in &plot.lines {
        let best = points.iter().map(|point| point.y).reduce(f64::max);
        if let (Some(first), Some(best)) = (points.first(), best) {
            let [first, best] = [first.y, best].map(numbers::number);
            text.push_str(&format!(" {name}: from {first}, at best {best}."));
        }
    }
    text + &plot.mark.as_ref().map_or(String::new(), |(_, mark)| format!(" {mark}."))
}

/// The next number whose quarters are round, times a power of ten.
fn round_up(most: f64) -> f64 {
    let power = 10f64.powf(most.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 5.0, 6.0, 8.0, 10.0];
    let enough = steps.into_iter().find(|step| step * power >= most * (1.0 - 1e-9));
    enough.unwrap_or(10.0) * power
}

fn tenths(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::super::{Part, sample};
    use super::*;

    fn line(name: &str, dashed: bool, points: &[(usize, f64)]) -> Line {
        let points = points.iter().map(|&(x, y)| Point { x, y, low: y * 0.9, high: y * 1.1 });
        Line { name: name.to_owned(), dashed, points: points.collect() }
    }

    fn plot(lines: Vec<Line>) -> Plot {
        let ticks = ["0", "1", "4", "16"].map(str::to_owned).to_vec();
        Plot { ticks, lines, x_name: "depth".into(), ..Plot::default() }
    }

    #[test]
    fn ticks_are_equidistant_and_more_is_higher() {
        let curve = line("uring direct", false, &[(0, 10.0), (2, 30.0), (3, 40.0)]);
        let drawn = draw(&plot(vec![curve]), 400.0, 300.0).unwrap();
        let third = (400.0 - LEFT - RIGHT) / 3.0;
        let points = drawn["lines"][0]["points"].as_array().unwrap();
        let xs: Vec<&Value> = points.iter().map(|dot| &dot["x"]).collect();
        assert_eq!(xs, [LEFT, tenths(LEFT + 2.0 * third), 400.0 - RIGHT]);
        assert!(points[0]["y"].as_f64() > points[1]["y"].as_f64());
        assert_eq!(drawn["steps"][4]["text"], "50.0");
        assert_eq!(points[1]["title"], "uring direct, depth 4: 30.0 (27.0 to 33.0)");
    }

    #[test]
    fn lines_of_one_name_share_a_colour_if_dashes_distinguish_them() {
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
        let absurd = [(0, f64::NAN), (1, -1e299), (2, 1e299), (3, f64::INFINITY), (99, 0.0)];
        let mut plot = plot(vec![line("a", false, &absurd), line("b", true, &[])]);
        let far = Point { x: 39, y: 1e299, low: 0.0, high: 0.0 };
        plot.mark = Some((far, "knee".repeat(40)));
        let drawn = draw(&plot, 400.0, 300.0).unwrap();
        let inside = |place: &Value, [x, y]: [&str; 2]| {
            let is_in = |key, most: f64| (0.0..=most).contains(&place[key].as_f64().unwrap());
            is_in(x, 400.0) && is_in(y, 300.0)
        };
        let points = drawn["lines"][0]["points"].as_array().unwrap();
        assert!(points.iter().all(|dot| inside(dot, ["x", "y"])), "[PLO-1] {drawn}");
        let mark = &drawn["mark"];
        assert!(inside(mark, ["x", "y"]) && inside(mark, ["text_x", "text_y"]), "[PLO-1] {mark}");
        let written = drawn.to_string();
        assert!(!written.contains("NaN") && !written.contains("inf"), "[PLO-1]");
        assert!(!written.contains("null"), "[PLO-1]");
        plot.lines = vec![line("one point", false, &[(0, 1.0)])];
        assert!(draw(&plot, 400.0, 300.0).is_none(), "one point is no curve");
        plot.lines = vec![line("none", false, &[(0, 0.0), (1, 0.0)])];
        assert!(draw(&plot, 400.0, 300.0).is_none());
    }

    #[test]
    fn the_mark_has_a_text_for_screen_readers_and_labels_have_room() {
        let Part::Plot(plot) = &sample::depth_section().parts[0] else { panic!() };
        let drawn = draw(plot, 560.0, 400.0).unwrap();
        let description = drawn["description"].as_str().unwrap();
        assert!(description.ends_with(" knee at 64."), "{description}");
        let ticks = |plot: &Plot| draw(plot, 560.0, 400.0).unwrap()["ticks"].clone();
        assert_eq!(ticks(plot).as_array().map(Vec::len), Some(11));
        let long = Plot { ticks: vec!["a long label".to_owned(); 11], ..plot.clone() };
        assert_eq!(ticks(&long).as_array().map(Vec::len), Some(6));
    }
}
