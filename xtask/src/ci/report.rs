//! The results of the steps, and the closing table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The result of one step.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) name: &'static str,
    pub(super) seconds: f64,
    /// Of these, compiling.
    pub(super) build_s: f64,
    /// None where the step runs no tests.
    pub(super) tests: Option<Tests>,
    /// One line for each test that could not run: `suite: test: reason`.
    pub(super) skips: Vec<String>,
}

/// Tests counted from the closing lines of test binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tests {
    pub(super) passed: usize,
    /// Marked `#[ignore]`, or a documentation example that is not run.
    pub(super) ignored: usize,
}

impl Found {
    /// Adds the figures of `line` if it is the closing line of a test binary.
    pub(super) fn add_line(&mut self, line: &str) {
        let Some(figures) = line.strip_prefix("test result: ") else {
            return;
        };
        let figure = |kind: &str| {
            let words = figures.split([';', '.']).find_map(|part| part.trim().strip_suffix(kind));
            words.and_then(|figure| figure.trim().parse().ok()).unwrap_or(0_usize)
        };
        let tests = self.tests.get_or_insert_default();
        tests.passed += figure("passed");
        tests.ignored += figure("ignored");
    }

    pub(super) fn tests_run(&self) -> usize {
        self.tests.map_or(0, |tests| tests.passed + tests.ignored)
    }
}

/// The closing table: a line for each step, then every skipped test with its reason.
pub(super) fn table(finished: &[Found]) -> String {
    let [time, build] = ["seconds", "building"];
    let [passed, ignored, skips] = ["passed", "ignored", "skipped"];
    let mut text =
        format!("{:<10} {time:>8} {build:>8} {passed:>8} {ignored:>8} {skips:>8}\n", "step");
    let mut total = Found { name: "total", tests: Some(Tests::default()), ..Found::default() };
    for step in finished {
        line(&mut text, step);
        total.seconds += step.seconds;
        total.build_s += step.build_s;
        total.skips.extend_from_slice(&step.skips);
        if let (Some(total), Some(tests)) = (&mut total.tests, step.tests) {
            total.passed += tests.passed;
            total.ignored += tests.ignored;
        }
    }
    line(&mut text, &total);
    // Writing into a String cannot fail.
    let _ = writeln!(text, "skipped tests (not passes): {}", total.skips.len());
    for step in finished {
        for skip in grouped(&step.skips) {
            let _ = writeln!(text, "  {}: {skip}", step.name);
        }
    }
    text
}

fn line(text: &mut String, found: &Found) {
    let Found { name, seconds, build_s, tests, skips } = found;
    let mut figures = tests.map_or(["-"; 3].map(str::to_owned), |tests| {
        [tests.passed, tests.ignored, skips.len()].map(|figure| figure.to_string())
    });
    if !skips.is_empty() {
        figures[2] = skips.len().to_string();
    }
    let [passed, ignored, skips] = figures;
    let _ = writeln!(
        text,
        "{name:<10} {seconds:>8.1} {build_s:>8.1} {passed:>8} {ignored:>8} {skips:>8}"
    );
}

/// Skips with one suite and one reason as one line.
fn grouped(skips: &[String]) -> Vec<String> {
    let mut groups: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for skip in skips {
        let (suite, rest) = skip.split_once(": ").unwrap_or((skip, ""));
        let (test, reason) = rest.split_once(": ").unwrap_or((rest, ""));
        groups.entry((suite, reason)).or_default().push(test);
    }
    let line = |((suite, reason), tests): ((&str, &str), Vec<&str>)| match tests.len() {
        1 => format!("{suite}: {}: {reason}", tests[0]),
        count => format!("{suite}: {count} tests ({} ...): {reason}", tests[0]),
    };
    groups.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let mut found = Found::default();
        found.add_line("test a ... ok");
        assert_eq!(found.tests, None);
        found.add_line(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.12s",
        );
        found.add_line("test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured");
        assert_eq!(found.tests, Some(Tests { passed: 14, ignored: 1 }));
    }

    #[test]
    fn the_table_counts_skips_and_gives_their_reasons() {
        let finished = [
            Found { name: "fmt", seconds: 0.5, ..Found::default() },
            Found {
                name: "test",
                seconds: 1.5,
                build_s: 1.0,
                tests: Some(Tests { passed: 7, ignored: 1 }),
                skips: vec!["lab: page: no chromium".to_owned()],
            },
        ];
        let text = table(&finished);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines,
            [
                "step seconds building passed ignored skipped",
                "fmt 0.5 0.0 - - -",
                "test 1.5 1.0 7 1 1",
                "total 2.0 1.0 7 1 1",
                "skipped tests (not passes): 1",
                "test: lab: page: no chromium",
            ]
        );
    }

    #[test]
    fn skips_for_one_reason_are_one_line_that_counts_them() {
        let skips = ["io: a: no uring", "io: b: no uring", "io: c: no root: none"];
        let skips: Vec<String> = skips.map(str::to_owned).into();
        assert_eq!(grouped(&skips), ["io: c: no root: none", "io: 2 tests (a ...): no uring"]);
    }
}
