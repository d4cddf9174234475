//! What the records of `checkpoint` say: what order and company are worth, and what pacing is.

use serde_json::Value;

use super::NAME;
use crate::report::{Conclusion, Record};

/// Below this part of the baseline's time, something is gained.
const CLEAR: f64 = 0.95;

/// Spreading is advised when readers wait so many times as long beside a checkpoint at once.
const PACING_GAIN: f64 = 1.5;

/// Fewer reads than this are no evidence.
const READS_MIN: f64 = 200.0;

/// Two tablespaces end together when the first has taken this part of the second's time.
const TOGETHER: f64 = 0.9;

/// The conclusions, the most useful first.
pub(super) fn draw(records: &[Record]) -> Vec<Conclusion> {
    let mut advice = Vec::new();
    for cache in ["direct", "buffered"] {
        let here: Vec<&Record> =
            records.iter().filter(|record| record.cell_text("cache") == cache).collect();
        advice.extend(writing(&here, cache));
        advice.extend(pacing(&here, cache, advice.iter().any(|one| !one.setting.is_empty())));
        advice.extend(tablespaces(&here, cache));
    }
    if advice.is_empty() {
        let why = "No conclusion: nothing that could be compared was measured.";
        advice.push(sentence(why.to_owned()));
    }
    advice
}

fn sentence(sentence: String) -> Conclusion {
    Conclusion {
        experiment: NAME.to_owned(),
        sentence,
        setting: String::new(),
        value: String::new(),
    }
}

fn flag(record: &Record, key: &str) -> bool {
    record.cell.get(key).and_then(Value::as_bool) == Some(true)
}

/// Cells that were written as fast as they could be, of one pattern.
fn plain<'a>(records: &[&'a Record], dirty: &str) -> Vec<&'a Record> {
    let is_plain = |record: &&&Record| {
        record.cell_text("dirty") == dirty && !flag(record, "paced") && !flag(record, "foreground")
    };
    records.iter().filter(is_plain).copied().collect()
}

/// What order and company gain over one synchronous write after another, pattern by pattern.
fn writing(records: &[&Record], cache: &str) -> Option<Conclusion> {
    let (mut gains, mut others) = (Vec::new(), Vec::new());
    for dirty in ["clustered", "uniform", "zipfian", "two-tablespaces"] {
        let cells = plain(records, dirty);
        let baseline = cells.iter().find(|record| record.metric("ratio_to_arrival") == Some(1.0));
        let ordered = cells
            .iter()
            .filter(|record| record.cell_text("elevator") != "arrival" && flag(record, "combine"));
        let best = ordered
            .filter_map(|record| Some((record, record.metric("ratio_to_arrival")?)))
            .min_by(|a, b| f64::total_cmp(&a.1, &b.1));
        let (Some(baseline), Some((best, ratio))) = (baseline, best) else { continue };
        let apart = best.metric("seconds_max") < baseline.metric("seconds_min");
        if ratio <= CLEAR && apart {
            gains.push((ratio, dirty));
        } else {
            others.push(dirty);
        }
    }
    gains.sort_by(|a, b| f64::total_cmp(&a.0, &b.0));
    let range = match gains.as_slice() {
        [] if others.is_empty() => return None,
        [] => {
            return Some(sentence(format!(
                "Neither order nor company gains anything on this disk ({cache}): one write after \
                 another is as fast."
            )));
        }
        [(ratio, dirty)] => format!("{ratio:.2} ({dirty})"),
        [(least, best), .., (most, worst)] => {
            format!("{least:.2} ({best}) to {most:.2} ({worst})")
        }
    };
    let nothing = match others.as_slice() {
        [] => String::new(),
        some => format!("; nothing is gained when {}", some.join(" or ")),
    };
    Some(sentence(format!(
        "Write a checkpoint in the disk's order, neighbours together: it takes {range} of the time of one \
         page after another ({cache}{nothing})."
    )))
}

/// What readers wait beside a checkpoint at once and a spread one. `is_set`: the setting was advised.
fn pacing(records: &[&Record], cache: &str, is_set: bool) -> Option<Conclusion> {
    let beside = |paced: bool| {
        let found = records.iter().find(|record| {
            flag(record, "foreground")
                && flag(record, "paced") == paced
                && record.metric("foreground_reads").is_some_and(|reads| reads >= READS_MIN)
                && !record.is_not_cold()
        })?;
        let times =
            found.metric("foreground_us_p99")? / found.metric("foreground_before_us_p99")?;
        Some((found.metric("foreground_us_p99")?, times))
    };
    let ((at_once, times_at_once), (spread, times_spread)) = (beside(false)?, beside(true)?);
    let figures = format!(
        "99 of 100 reads take {times_spread:.1} times as long at most as without a checkpoint, beside \
         one that is written at once {times_at_once:.1} times ({cache})"
    );
    if at_once / spread < PACING_GAIN {
        return Some(sentence(format!(
            "Spreading a checkpoint gains readers little here: {figures}."
        )));
    }
    let mut advice = sentence(format!("Spread checkpoints over their interval: {figures}."));
    if !is_set {
        (advice.setting, advice.value) = ("checkpoint_completion_target".into(), "0.9".into());
    }
    Some(advice)
}

/// Whether two tablespaces end together under `balanced`, and under `sorted` not.
fn tablespaces(records: &[&Record], cache: &str) -> Option<Conclusion> {
    let cells = plain(records, "two-tablespaces");
    let share = |elevator: &str| {
        let mut cells = cells
            .iter()
            .filter(|record| record.cell_text("elevator") == elevator && flag(record, "combine"));
        // The last backend asked for is the best.
        let times = cells.next_back()?.metrics.get("tablespace_seconds")?.as_array()?;
        let times: Vec<f64> = times.iter().filter_map(Value::as_f64).collect();
        let [a, b] = times[..] else { return None };
        Some(a.min(b) / a.max(b)).filter(|share| share.is_finite())
    };
    let (sorted, balanced) = (share("sorted")?, share("balanced")?);
    let verdict = if balanced >= TOGETHER && sorted < TOGETHER {
        "Balance tablespaces"
    } else {
        "Of two tablespaces"
    };
    Some(sentence(format!(
        "{verdict} ({cache}): one is done after {:.0} % of the other's time when balanced, after {:.0} % \
         when sorted.",
        balanced * 100.0,
        sorted * 100.0
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(dirty: &str, elevator: &str, seconds: f64, ratio: f64) -> Record {
        let map = |value: Value| value.as_object().cloned().unwrap();
        let combine = elevator != "arrival";
        Record {
            rounds: Vec::new(),
            experiment: NAME.to_owned(),
            cell: map(json!({
                "dirty": dirty, "elevator": elevator, "combine": combine, "cache": "direct",
                "backend": if combine { "uring" } else { "sync" }, "paced": false,
                "foreground": false,
            })),
            metrics: map(json!({
                "seconds": seconds, "seconds_min": seconds * 0.9, "seconds_max": seconds * 1.1,
                "ratio_to_arrival": ratio,
            })),
            remarks: Vec::new(),
        }
    }

    fn beside(paced: bool, p99: f64, reads: u32) -> Record {
        let mut made = record("uniform", "balanced", 18.0, 1.0);
        made.cell.insert("paced".into(), json!(paced));
        made.cell.insert("foreground".into(), json!(true));
        made.metrics = json!({
            "foreground_us_p99": p99, "foreground_before_us_p99": 400.0, "foreground_reads": reads,
        })
        .as_object()
        .cloned()
        .unwrap();
        made
    }

    fn told(records: &[Record]) -> String {
        draw(records).into_iter().map(|advice| advice.sentence).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn order_and_company_are_advised_where_they_gain() {
        let mut records = vec![
            record("clustered", "arrival", 9.0, 1.0),
            record("clustered", "balanced", 1.8, 0.2),
            record("uniform", "arrival", 9.0, 1.0),
            record("uniform", "balanced", 8.0, 0.89),
        ];
        let words = told(&records);
        assert!(words.contains("0.20 (clustered) of the time"), "{words}");
        assert!(words.contains("nothing is gained when uniform"), "its rounds overlap: {words}");
        records.push(record("uniform", "sorted", 3.6, 0.4));
        assert!(told(&records).contains("0.20 (clustered) to 0.40 (uniform) of the time"));
        let same =
            [record("clustered", "arrival", 9.0, 1.0), record("clustered", "balanced", 8.9, 0.99)];
        assert!(told(&same).contains("gains anything"));
    }

    #[test]
    fn spreading_is_advised_where_readers_gain_by_it_and_set_once() {
        let records = [beside(false, 3600.0, 900), beside(true, 500.0, 900)];
        let advice = draw(&records);
        assert_eq!(advice.len(), 1);
        assert!(advice[0].sentence.contains("1.2 times as long"), "{}", advice[0].sentence);
        assert!(advice[0].sentence.contains("9.0 times"), "{}", advice[0].sentence);
        assert_eq!(advice[0].setting, "checkpoint_completion_target");
        let told = told(&[beside(false, 500.0, 900), beside(true, 480.0, 900)]);
        assert!(told.contains("gains readers little"), "{told}");
    }

    #[test]
    fn a_handful_of_reads_is_no_evidence() {
        let told = told(&[beside(false, 3600.0, 20), beside(true, 500.0, 900)]);
        assert!(told.contains("No conclusion"), "{told}");
    }

    #[test]
    fn tablespaces_that_end_together_are_told_from_those_that_do_not() {
        let mut sorted = record("two-tablespaces", "sorted", 2.0, 0.4);
        sorted.metrics.insert("tablespace_seconds".into(), json!([1.0, 2.0]));
        let mut balanced = record("two-tablespaces", "balanced", 1.5, 0.3);
        balanced.metrics.insert("tablespace_seconds".into(), json!([1.45, 1.5]));
        let told = told(&[sorted, balanced]);
        assert!(told.contains("Balance tablespaces (direct)"), "{told}");
        assert!(told.contains("97 % of the other's time when balanced, after 50 %"), "{told}");
    }
}
