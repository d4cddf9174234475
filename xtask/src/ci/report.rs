//! What the steps found, and the closing table.

use std::fmt::Write;

/// Tests counted from the closing lines of test binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Marked `#[ignore]`, or a documentation example that is not run.
    pub(crate) ignored: u64,
}

impl Counts {
    /// Adds the figures of `line` if it is the closing line of a test binary.
    pub(crate) fn add_line(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else {
            return;
        };
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(figure), Some(kind)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(figure) = figure.parse::<u64>() else {
                continue;
            };
            match kind {
                "passed" => self.passed += figure,
                "failed" => self.failed += figure,
                "ignored" => self.ignored += figure,
                _ => {}
            }
        }
    }
}

/// What one step has to report when it did not fail.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// None where the step runs no tests.
    pub(crate) counts: Option<Counts>,
    /// One line per test that could not run: `suite: test: reason`.
    pub(crate) skips: Vec<String>,
}

impl Outcome {
    /// Adds what another command of the same step found.
    pub(crate) fn add(&mut self, other: Self) {
        if let Some(more) = other.counts {
            let counts = self.counts.get_or_insert_default();
            counts.passed += more.passed;
            counts.failed += more.failed;
            counts.ignored += more.ignored;
        }
        self.skips.extend(other.skips);
    }
}

/// A step that passed.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) name: &'static str,
    pub(crate) seconds: f64,
    /// Of these, compiling.
    pub(crate) build_s: f64,
    pub(crate) outcome: Outcome,
}

/// The closing table: a line per step, then every skipped test with its reason.
pub(crate) fn table(finished: &[Finished]) -> String {
    let mut out = String::new();
    let (mut seconds, mut build_s) = (0.0, 0.0);
    let mut total = Counts::default();
    let mut skipped = 0;
    let mut line = |name: &str, seconds: [f64; 2], counts: Option<Counts>, skips: usize| {
        let figure = |value: fn(Counts) -> u64| counts.map_or("-".into(), |c| value(c).to_string());
        let (passed, ignored) = (figure(|c| c.passed), figure(|c| c.ignored));
        let skips = if counts.is_some() || skips > 0 { skips.to_string() } else { "-".into() };
        // Writing into a String cannot fail.
        let [seconds, build] = seconds;
        let _ = writeln!(
            out,
            "{name:<10} {seconds:>8.1} {build:>8.1} {passed:>8} {ignored:>8} {skips:>8}"
        );
    };
    for step in finished {
        let counts = step.outcome.counts;
        seconds += step.seconds;
        build_s += step.build_s;
        total.passed += counts.map_or(0, |counts| counts.passed);
        total.ignored += counts.map_or(0, |counts| counts.ignored);
        skipped += step.outcome.skips.len();
        line(step.name, [step.seconds, step.build_s], counts, step.outcome.skips.len());
    }
    line("total", [seconds, build_s], Some(total), skipped);
    let [step, time, build] = ["step", "seconds", "building"];
    let [passed, ignored, skips] = ["passed", "ignored", "skipped"];
    let mut text =
        format!("{step:<10} {time:>8} {build:>8} {passed:>8} {ignored:>8} {skips:>8}\n{out}");
    let _ = writeln!(text, "skipped tests (not passes): {skipped}");
    for step in finished {
        for skip in grouped(&step.outcome.skips) {
            let _ = writeln!(text, "  {}: {skip}", step.name);
        }
    }
    text
}

/// Skips with one suite and one reason as one line, in order of their first.
fn grouped(skips: &[String]) -> Vec<String> {
    let mut groups: Vec<((&str, &str), Vec<&str>)> = Vec::new();
    for skip in skips {
        let mut parts = skip.splitn(3, ": ");
        let suite = parts.next().unwrap_or_default();
        let test = parts.next().unwrap_or_default();
        let key = (suite, parts.next().unwrap_or_default());
        match groups.iter_mut().find(|group| group.0 == key) {
            Some(group) => group.1.push(test),
            None => groups.push((key, vec![test])),
        }
    }
    let line = |((suite, reason), tests): &((&str, &str), Vec<&str>)| match &tests[..] {
        [one] => format!("{suite}: {one}: {reason}"),
        [first, ..] => format!("{suite}: {} tests ({first} ...): {reason}", tests.len()),
        [] => String::new(),
    };
    groups.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let mut counts = Counts::default();
        counts.add_line(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.12s",
        );
        counts.add_line("test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured");
        counts.add_line("test a ... ok");
        assert_eq!(counts, Counts { passed: 14, failed: 5, ignored: 1 });
    }

    #[test]
    fn the_table_counts_skips_and_gives_their_reasons() {
        let counts = Some(Counts { passed: 7, failed: 0, ignored: 1 });
        let finished = [
            Finished { name: "fmt", seconds: 0.5, build_s: 0.0, outcome: Outcome::default() },
            Finished {
                name: "test",
                seconds: 1.5,
                build_s: 1.0,
                outcome: Outcome { counts, skips: vec!["lab: page: no chromium".into()] },
            },
        ];
        let text = table(&finished);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1].split_whitespace().collect::<Vec<_>>(),
            ["fmt", "0.5", "0.0", "-", "-", "-"]
        );
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>(),
            ["test", "1.5", "1.0", "7", "1", "1"]
        );
        assert_eq!(
            lines[3].split_whitespace().collect::<Vec<_>>(),
            ["total", "2.0", "1.0", "7", "1", "1"]
        );
        assert_eq!(lines[4], "skipped tests (not passes): 1");
        assert_eq!(lines[5], "  test: lab: page: no chromium");
    }

    #[test]
    fn skips_for_one_reason_are_one_line_that_counts_them() {
        let skips = ["io: a: no uring", "io: b: no uring", "io: c: no root: none"];
        let skips: Vec<String> = skips.map(str::to_owned).into();
        assert_eq!(grouped(&skips), ["io: 2 tests (a ...): no uring", "io: c: no root: none"]);
    }
}
