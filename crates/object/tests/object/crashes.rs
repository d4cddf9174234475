//! A writer dies at any of its requests, and the next one finds the last acknowledged checkpoint whole.

use std::env;

use forebay_object::{Error, Takeover};

use super::oracle::{Life, Whole, whole};
use super::site::Site;
use super::store::Faults;

/// Seeded runs; the long run has more.
const RUNS: u64 = 300;

pub(crate) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| env::var(name).ok().map(|it| it.parse::<u64>().unwrap());
    let first = number("FOREBAY_SEED").unwrap_or(1);
    first..first + number("FOREBAY_OBJECT_RUNS").unwrap_or(usual)
}

#[test]
fn recovery_finds_the_last_acknowledged_checkpoint_whole_wherever_the_writer_dies() {
    let mut died = 0;
    for seed in seeds(RUNS) {
        died += u32::from(run(seed));
    }
    assert!(u64::from(died) * 2 > seeds(RUNS).count() as u64, "most writers die under way: {died}");
}

/// Commits and maintenance until the writer dies, then recovery. Returns whether it died before it was done.
fn run(seed: u64) -> bool {
    let mut rng = fastrand::Rng::with_seed(seed);
    let site = Site::new();
    let (bucket, handle) = site.created(seed);
    let faults = Faults {
        answer_lost: rng.choice([0, 30]).unwrap(),
        late: rng.choice([0, 30]).unwrap(),
        unavailable: rng.choice([0, 50]).unwrap(),
        truncated: rng.choice([0, 20]).unwrap(),
        ..Faults::default()
    };
    handle.set_faults(faults);
    let at = |what: &str| format!("FOREBAY_SEED={seed}: {what}");
    let writer =
        bucket.writer(Takeover::Refuse).unwrap_or_else(|it| panic!("{}: {it}", at("open")));
    let mut life = Life::new(seed, &writer.view(), 0).unwrap();
    let (mut acknowledged, mut pending) = (Whole::new(), None);
    handle.die_after(rng.u64(1..120), rng.bool());
    let mut died = false;
    for _ in 0..30 {
        match life.step(&writer) {
            Ok(()) => acknowledged = life.now.clone(),
            Err(error) => {
                assert!(error.is_retryable(), "{}: {error}", at("a dead store"));
                pending = Some(life.now.clone());
                died = true;
                break;
            }
        }
        if rng.u32(0..4) == 0 && writer.maintain().is_err() {
            died = true;
            break;
        }
    }
    drop(writer);

    // Requests in flight may still take effect, before, during and after the takeover.
    let (bucket, _) = site.bucket(Faults::default(), seed ^ 0xdead);
    assert!(matches!(bucket.writer(Takeover::Refuse), Err(Error::Held { .. })), "{}", at("held"));
    let writer = bucket.writer(Takeover::Force).unwrap();
    let found = whole(&writer.view()).unwrap_or_else(|it| panic!("{}: {it}", at("recovery")));
    assert!(
        found == acknowledged || Some(&found) == pending.as_ref(),
        "{}: {found:?}\nis neither {acknowledged:?}\nnor {pending:?}",
        at("another state")
    );
    site.sleep(std::time::Duration::from_secs(5));
    let mut life = Life::new(seed, &writer.view(), 1 << 20).unwrap();
    for _ in 0..3 {
        life.step(&writer).unwrap_or_else(|it| panic!("{}: {it}", at("going on")));
        writer.maintain().unwrap_or_else(|it| panic!("{}: {it}", at("maintenance")));
    }
    writer.close().unwrap();
    let (elsewhere, _) = site.bucket(Faults::default(), seed ^ 0xbeef);
    assert_eq!(whole(&elsewhere.reader().unwrap().view()).unwrap(), life.now, "{}", at("a reader"));

    // Nothing is leaked permanently: the next writer has what is needed and nothing else.
    let writer = elsewhere.writer(Takeover::Refuse).unwrap();
    writer.maintain().unwrap();
    let space = writer.space();
    assert_eq!(site.world.bytes_below("space/data"), space.stored_bytes, "{}", at("strays"));
    assert_eq!(site.world.paths("space/data").len(), space.objects, "{}", at("obsolete"));
    died
}

#[test]
fn a_writer_that_could_not_publish_goes_on_when_the_store_is_back() {
    for seed in seeds(30) {
        let site = Site::new();
        let (bucket, handle) = site.created(seed);
        let writer = bucket.writer(Takeover::Refuse).unwrap();
        let mut life = Life::new(seed, &writer.view(), 0).unwrap();
        for round in 0..6 {
            life.step(&writer).unwrap();
            let (elsewhere, _) = site.bucket(Faults::default(), seed + 1000 + round);
            let before = life.now.clone();
            handle.set_faults(Faults { unavailable: 500, late: 900, ..Faults::default() });
            let stepped = life.step(&writer);
            let reader = elsewhere.reader().unwrap();
            let seen = whole(&reader.view()).unwrap();
            assert!(
                seen == life.now || (stepped.is_err() && seen == before),
                "FOREBAY_SEED={seed}"
            );
            handle.set_faults(Faults::default());
            if stepped.is_err() {
                // The caller has the pages again; its next commit includes them.
                writer.publish().unwrap();
                break;
            }
        }
        drop(writer);
        bucket.writer(Takeover::Force).unwrap();
    }
}
