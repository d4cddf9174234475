//! Backend selection: which backend is chosen, and what is reported about those that cannot be used.

use forebay_io::backend::Refusal;
use forebay_io::{CacheMode, Error, Io, IoOptions, Kind, Prefer};
use libtest_mimic::Trial;

use crate::bench::{Bench, Cell};
use crate::harness::{Claim, Outcome, named_trial, seed};

#[cfg(all(target_os = "linux", not(forebay_portable)))]
mod linux;

/// Claims that depend on the backend and cache mode.
pub(crate) fn claims(cell: Cell) -> Vec<Claim> {
    #[cfg(all(target_os = "linux", not(forebay_portable)))]
    if cell.kind == Kind::Uring {
        return linux::uring_claims();
    }
    let _ = cell;
    Vec::new()
}

/// Claims about opening in general.
pub(crate) fn general_claims() -> Vec<Trial> {
    let held = |name: &str, body: fn()| {
        named_trial(name.to_owned(), move || {
            body();
            Outcome::Held
        })
    };
    let mut trials = vec![
        held("aio/buffered/is_refused_with_a_typed_error", aio_buffered_is_refused),
        held("ladder/requesting_one_backend_gives_it_or_an_error", one_or_an_error),
        held("ladder/auto_takes_the_best_and_says_why_not_a_better_one", auto_says_why),
        held("ladder/settings_out_of_range_are_refused", settings_out_of_range),
    ];
    for claim in linux_claims() {
        let cell = Cell { kind: Kind::Threads, cache: CacheMode::Buffered };
        let name = format!("ladder/{}", claim.name);
        trials.push(named_trial(name, move || (claim.body)(&Bench::new(cell, seed()))));
    }
    trials
}

pub(crate) fn child_bodies() -> Vec<Claim> {
    #[cfg(all(target_os = "linux", not(forebay_portable)))]
    return linux::child_bodies();
    #[cfg(not(all(target_os = "linux", not(forebay_portable))))]
    Vec::new()
}

#[cfg(all(target_os = "linux", not(forebay_portable)))]
fn linux_claims() -> Vec<Claim> {
    linux::general_claims()
}

/// On other systems the same names report that they cannot be tested.
#[cfg(not(all(target_os = "linux", not(forebay_portable))))]
fn linux_claims() -> Vec<Claim> {
    let names = ["with_uring_blocked_auto_falls_back", "with_uring_missing_auto_falls_back"];
    let skip = |_: &Bench| Outcome::Skipped("this build has no io_uring to block".to_owned());
    names.map(|name| Claim { name, body: skip }).into()
}

fn options(prefer: Prefer, cache: CacheMode) -> IoOptions {
    IoOptions { prefer, cache, queue_depth: 8, ..IoOptions::default() }
}

fn aio_buffered_is_refused() {
    match Io::open(&options(Prefer::Only(Kind::Aio), CacheMode::Buffered)) {
        Err(Error::Unavailable { backend: Kind::Aio, why }) => {
            assert_eq!(why.source, None, "the system is not asked");
            assert!(why.to_string().contains("open the files direct"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

fn one_or_an_error() {
    for kind in Kind::ALL {
        for cache in [CacheMode::Buffered, CacheMode::Direct] {
            match Io::open(&options(Prefer::Only(kind), cache)) {
                Ok(io) => {
                    assert_eq!((io.kind(), io.report().chosen), (kind, kind));
                    assert!(kind.serves(cache));
                    assert!(io.report().refused.is_empty());
                }
                Err(Error::Unavailable { backend, why }) => {
                    assert_eq!((backend, why.backend), (kind, kind));
                    assert!(matches!(kind, Kind::Uring | Kind::Aio), "{kind} works everywhere");
                    assert_said(&why);
                }
                Err(other) => panic!("{kind}: {other:?}"),
            }
        }
    }
}

/// Each better backend is reported with the failed step and the remedy.
fn auto_says_why() {
    for cache in [CacheMode::Buffered, CacheMode::Direct] {
        let io = Io::open(&options(Prefer::Auto, cache)).unwrap();
        let report = io.report();
        assert_eq!(report.chosen, io.kind());
        let better: Vec<Kind> =
            Kind::ALL.into_iter().take_while(|&kind| kind != report.chosen).collect();
        let refused: Vec<Kind> = report.refused.iter().map(|refusal| refusal.backend).collect();
        assert_eq!(refused, better, "{report}");
        report.refused.iter().for_each(assert_said);
        for kind in better {
            let alone = Io::open(&options(Prefer::Only(kind), cache));
            assert!(matches!(alone, Err(Error::Unavailable { .. })), "{kind} was passed over");
        }
    }
}

fn assert_said(why: &Refusal) {
    assert!(!why.step.is_empty() && !why.remedy().is_empty(), "{why:?}");
    assert!(why.to_string().contains(why.remedy()), "{why}");
}

fn settings_out_of_range() {
    let base = options(Prefer::Auto, CacheMode::Buffered);
    for bad in [
        IoOptions { queue_depth: 0, ..base.clone() },
        IoOptions { queue_depth: 32_769, ..base.clone() },
        IoOptions { workers: 0, ..base.clone() },
        IoOptions { workers: 1025, ..base.clone() },
    ] {
        let opened = Io::open(&bad);
        assert!(matches!(opened, Err(Error::Setting { .. })), "{opened:?}");
    }
}
