//! Conclusions from the cells of `sync`: what a commit costs, and PostgreSQL's wal_sync_method.
//!
//! Source:      PostgreSQL, xlog.h and the documentation of wal_sync_method: fdatasync is the default on Linux.

use super::cell::{Cell, Method, Place, Row};
use super::settings::NAME;
use crate::experiment::Outcome;
use forebay_measure::lists::grouped;
use forebay_measure::report::{Advice, AppliesTo, Conclusion, Verdict, numbers};
use forebay_measure::statistics::{Estimate, Floor, Judge, Judgement};

/// The verdicts, the advice and the sentences. `filesystem`: its type.
pub(super) fn draw(filesystem: Option<&str>, rows: &[Row], floor: Floor) -> Outcome {
    let judge = judge(rows, floor);
    let in_memory = filesystem.filter(|name| ["tmpfs", "ramfs"].contains(name));
    let mut sentences = Vec::new();
    if let Some(name) = in_memory {
        sentences.push(format!(
            "On {name} a sync does nothing and costs nothing: these figures say nothing about a disk."
        ));
    }
    sentences.extend(commit(rows));
    let commits = rows.iter().filter(|row| row.cell.is_a_commit());
    sentences.extend(commits.filter_map(|row| Some(format!("{}.", row.failure.as_ref()?))));
    Outcome {
        verdicts: verdicts(rows, &judge),
        advice: wal_sync_method(rows, &judge).filter(|_| in_memory.is_none()).into_iter().collect(),
        conclusions: Conclusion::all(NAME, sentences),
        ..Outcome::default()
    }
}

/// Comparisons: the methods of each kind of write, each with fdatasync; and fdatasync with the best of the
/// others.
fn judge(rows: &[Row], floor: Floor) -> Judge {
    let measured = rows.iter().filter(|row| !row.rounds.is_empty());
    let by_writes = grouped(measured, |row| row.cell.row_label());
    let rates = by_writes.iter().map(|(_, rows)| rows.iter().map(|row| row.rates()).collect());
    Judge::new(&rates.collect::<Vec<_>>(), rows.len(), floor)
}

/// The same for the methods of one kind of write.
fn within(rows: &[Row], cell: Cell, judge: &Judge) -> Judge {
    let label = cell.row_label();
    let alike = rows.iter().filter(|row| row.cell.row_label() == label && !row.rounds.is_empty());
    judge.within(&alike.map(Row::rates).collect::<Vec<_>>())
}

fn find(rows: &[Row], cell: Cell) -> Option<&Row> {
    rows.iter().find(|row| row.cell == cell && !row.rounds.is_empty())
}

/// What a commit costs, alone and with concurrent ones, in a sentence.
fn commit(rows: &[Row]) -> Option<String> {
    let one = find(rows, Cell::COMMIT)?;
    let per_s = |row: &Row| row.median(|round| Some(round.syncs_per_s)).map(numbers::number);
    let mut sentence = format!(
        "A commit, 8 KiB overwritten and synced by fdatasync, takes a median of {}: {} a second from one writer",
        one.text(),
        per_s(one)?
    );
    if let Some(many) = find(rows, Cell { writers: 16, ..Cell::COMMIT }) {
        sentence.push_str(&format!(", {} from 16", per_s(many)?));
    }
    if let Some(appended) = find(rows, Cell { place: Place::Appended, ..Cell::COMMIT }) {
        sentence.push_str(&format!("; appended it takes {}", appended.text()));
    }
    Some(sentence + ".")
}

/// Compares every method with fdatasync on the same writes.
fn verdicts(rows: &[Row], judge: &Judge) -> Vec<Verdict> {
    let judged = |row: &Row| {
        let rival = find(rows, Cell { method: Method::Fdatasync, ..row.cell })?;
        let judge = within(rows, row.cell, judge);
        let ratio = judge.ratio(&row.rates(), &rival.rates());
        let ratio = ratio.filter(|_| row.cell != rival.cell)?;
        let of = [row, rival].map(|row| row.cell.method.to_string());
        Some(Verdict::new(NAME, row.cell.row_label(), of, ratio))
    };
    rows.iter().filter_map(judged).collect()
}

/// The default, the best of the other methods that PostgreSQL can choose, and its gain; the best of
/// each round is chosen by the other rounds.
fn best_choice<'r>(rows: &'r [Row], judge: &Judge) -> Option<(&'r Row, &'r Row, Estimate)> {
    let default = find(rows, Cell::COMMIT)?;
    let others: Vec<&'r Row> = rows
        .iter()
        .filter(|row| row.cell.is_a_commit() && row.cell.method.wal_sync_method().is_some())
        .filter(|row| row.cell != Cell::COMMIT && row.rounds.len() == default.rounds.len())
        .collect();
    let rates: Vec<Vec<f64>> = others.iter().map(|row| row.rates()).collect();
    let judge = within(rows, default.cell, judge);
    let (best, ratio) = judge.ratio_to_best(&default.rates(), &rates)?;
    Some((default, others[best], ratio.inverse()))
}

/// Whether more rounds could decide if another method than the default is better.
pub(super) fn is_undecided(rows: &[Row]) -> bool {
    best_choice(rows, &judge(rows, Floor::default()))
        .is_some_and(|(_, _, gain)| gain.inverse().judgement() == Judgement::Undecided)
}

fn wal_sync_method(rows: &[Row], judge: &Judge) -> Option<Advice> {
    let (default, best, gain) = best_choice(rows, judge)?;
    let (now, advised) =
        (default.cell.method.wal_sync_method()?, best.cell.method.wal_sync_method()?);
    Advice::worth_it(
        NAME,
        (AppliesTo::Postgres, "wal_sync_method"),
        [now.to_owned(), advised.to_owned()],
        gain,
        format!(
            "Median latency of 8 KiB overwritten and made durable: {} by {advised}, {} by {now} \
             ({} rounds).",
            best.text(),
            default.text(),
            gain.rounds,
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::cell::Figures;
    use super::*;

    /// A cell whose rounds have these latencies.
    fn row(cell: Cell, latencies_us: &[f64]) -> Row {
        let figures = |&latency_us_p50: &f64| Figures {
            seconds: 0.25,
            syncs: 500,
            syncs_per_s: 1e6 / latency_us_p50,
            latency_us_p50,
            latency_us_p99: None,
        };
        Row { rounds: latencies_us.iter().map(figures).collect(), ..Row::new(cell) }
    }

    fn commit_by(method: Method, latencies_us: &[f64]) -> Row {
        row(Cell { method, ..Cell::COMMIT }, latencies_us)
    }

    /// Methods with their latencies, the disk twice as slow in the second round.
    fn methods(latencies: &[(Method, f64)]) -> Vec<Row> {
        let rounds = |us: f64| [us, us * 2.0, us * 1.03, us * 0.98, us];
        latencies.iter().map(|&(method, us)| commit_by(method, &rounds(us))).collect()
    }

    #[test]
    fn a_method_that_is_surely_faster_is_advised_with_its_latency() {
        let rows = methods(&[
            (Method::Fdatasync, 800.0),
            (Method::Fsync, 820.0),
            (Method::ODsync, 400.0),
            (Method::OSync, 700.0),
            (Method::ODirectODsync, 100.0),
        ]);
        let found = draw(Some("ext4"), &rows, Floor::default());
        let advice = &found.advice[0];
        assert_eq!(
            (advice.setting.as_str(), advice.advised.as_str()),
            ("wal_sync_method", "open_datasync")
        );
        assert_eq!(
            (advice.applies_to, advice.current.as_deref()),
            (AppliesTo::Postgres, Some("fdatasync"))
        );
        assert!((advice.gain - 2.0).abs() < 0.01, "{advice:?}");
        assert!(advice.evidence.contains("by open_datasync") && advice.evidence.contains("µs"));
        assert!(!is_undecided(&rows));
        assert_eq!(found.verdicts.len(), 4, "PostgreSQL lacks one of them, and others may have it");
    }

    #[test]
    fn neither_noise_nor_a_tmpfs_nor_other_writes_advise_anything() {
        let noisy = [
            commit_by(Method::Fdatasync, &[400.0, 500.0, 380.0]),
            commit_by(Method::ODsync, &[300.0, 520.0, 390.0]),
        ];
        assert!(draw(Some("ext4"), &noisy, Floor::default()).advice.is_empty());
        assert!(is_undecided(&noisy));
        let clear = methods(&[(Method::Fdatasync, 800.0), (Method::ODsync, 400.0)]);
        let tmpfs = draw(Some("tmpfs"), &clear, Floor::default());
        assert!(tmpfs.advice.is_empty());
        assert!(tmpfs.conclusions[0].sentence.contains("costs nothing"), "{tmpfs:?}");
        let appended: Vec<Row> = clear
            .iter()
            .map(|row| Row { cell: Cell { place: Place::Appended, ..row.cell }, ..row.clone() })
            .collect();
        assert!(
            draw(Some("ext4"), &appended, Floor::default()).advice.is_empty(),
            "WAL segments are recycled"
        );
        // Many disks sync sometimes in 0.1 ms and sometimes in 4 ms, whatever the method: three rounds in favour of one
        // occur by chance.
        let (slow, fast) = (4000.0, 100.0);
        let chance = [
            commit_by(Method::Fdatasync, &[slow, slow, slow]),
            commit_by(Method::ODsync, &[fast, fast, fast]),
            commit_by(Method::OSync, &[fast, slow, fast]),
            commit_by(Method::Fsync, &[slow, fast, slow]),
        ];
        assert!(draw(Some("ext4"), &chance, Floor::default()).advice.is_empty());
        assert!(is_undecided(&chance));
    }

    #[test]
    fn the_sentence_reports_what_a_commit_costs_and_what_is_refused() {
        let mut rows = methods(&[(Method::Fdatasync, 500.0)]);
        rows.push(row(Cell { writers: 16, ..Cell::COMMIT }, &[100.0, 100.0]));
        rows.push(row(Cell { place: Place::Appended, ..Cell::COMMIT }, &[900.0, 910.0]));
        let mut direct = commit_by(Method::ODirectODsync, &[]);
        direct.failure = Some("o_direct_o_dsync is refused here: Invalid argument".to_owned());
        rows.push(direct);
        let conclusions = draw(Some("ext4"), &rows, Floor::default()).conclusions;
        assert_eq!(
            conclusions[0].sentence,
            "A commit, 8 KiB overwritten and synced by fdatasync, takes a median of 500 µs (rounds \
             from 490 to 1,000): 2,000 a second from one writer, 10,000 from 16; appended it takes 905 µs."
        );
        assert!(conclusions[1].sentence.contains("o_direct_o_dsync is refused here"));
        let record = rows.last().unwrap().record("sync", "syncs_per_s");
        assert!(record.metrics["syncs_per_s"].is_null() && record.remarks[0].contains("refused"));
    }
}
