//! Of two writers only one continues: the one that was taken over gets an error, and loses nothing it had acknowledged.

use forebay_object::{Error, Takeover};

use super::oracle::{Life, Whole, whole};
use super::pages::{PAGE, commit, pages, states};
use super::site::Site;
use super::store::Faults;

#[test]
fn a_writer_that_was_taken_over_gets_an_error_and_its_acknowledged_pages_stay() {
    let Some(site) = Site::start() else { return };
    let (bucket, _) = site.created(1);
    let old = bucket.writer(Takeover::Refuse).unwrap();
    let file = old.create_file("table").unwrap();
    commit(&old, &pages(file, 0..3), 1).unwrap();
    assert!(matches!(bucket.writer(Takeover::Refuse), Err(Error::Held { epoch: 1 })));

    let (elsewhere, _) = site.bucket(Faults::default(), 2);
    let new = elsewhere.writer(Takeover::Force).unwrap();
    let refused = commit(&old, &pages(file, 0..3), 2);
    assert!(matches!(refused, Err(Error::Fenced { epoch: 1, by: 2 })), "{refused:?}");
    // Permanently, whatever it tries ([WRT-3]).
    assert!(matches!(old.publish(), Err(Error::Fenced { .. })));
    assert!(matches!(old.create_file("x"), Err(Error::Fenced { .. })));
    assert!(matches!(old.maintain(), Err(Error::Fenced { .. })));
    assert_eq!(states(&new.view(), file, 3).unwrap(), [1; 3], "[WRT-1]");
    commit(&new, &pages(file, [1]), 3).unwrap();
    assert!(matches!(old.close(), Err(Error::Fenced { .. })));
    assert_eq!(states(&bucket.reader().unwrap().view(), file, 3).unwrap(), [1, 3, 1]);
}

/// Each writer takes over from the other at random, between and in the middle of commits, over a store that loses
/// answers.
#[test]
fn of_two_writers_that_fight_one_is_acknowledged_at_a_time() {
    let mut fenced = 0;
    for seed in Site::fights() {
        let mut rng = fastrand::Rng::with_seed(seed);
        let Some(site) = Site::start() else { return };
        let faults = Site::unsure();
        let buckets = [site.bucket(faults.clone(), seed), site.bucket(faults, seed + 1_000_000)];
        buckets[0].0.create(PAGE as u32).unwrap();
        let mut writers = [None, None];
        // Everything that was acknowledged, and the states that may have been reached in addition.
        let (mut acknowledged, mut unsure) = (Whole::new(), Vec::new());
        for step in 1..12_u64 {
            let who = rng.usize(0..2);
            let at = format!("FOREBAY_SEED={seed}, step {step}");
            if writers[who].is_none() {
                let Ok(writer) = buckets[who].0.writer(Takeover::Force) else {
                    continue;
                };
                let found = whole(&writer.view()).unwrap_or_else(|it| panic!("{at}: {it}"));
                let known = found == acknowledged || unsure.contains(&found);
                assert!(known, "[WRT-1] {at}: {found:?} was never acknowledged");
                (acknowledged, unsure) = (found, Vec::new());
                writers[who] = Some(writer);
                continue;
            }
            let writer = writers[who].take().unwrap();
            let view = writer.view();
            let mut life = match Life::new(rng.u64(..), &view, step << 8) {
                Ok(life) => life,
                Err(error) => {
                    assert!(matches!(error, Error::Fenced { .. }), "{at}: {error}");
                    fenced += 1;
                    continue;
                }
            };
            let before = life.now.clone();
            match life.step(&writer) {
                // With nothing to publish no request is sent.
                Ok(()) if life.now == before => writers[who] = Some(writer),
                Ok(()) => {
                    assert!(before == acknowledged || unsure.contains(&before), "{at}: both");
                    (acknowledged, unsure) = (life.now, Vec::new());
                    let _ = writer.maintain();
                    writers[who] = Some(writer);
                }
                Err(Error::Fenced { .. }) => fenced += 1,
                Err(error) => {
                    assert!(error.is_retryable(), "{at}: {error}");
                    unsure.push(life.now);
                }
            }
        }
    }
    assert!(fenced as usize > Site::fights().count() / 2, "they fight: {fenced}");
}
