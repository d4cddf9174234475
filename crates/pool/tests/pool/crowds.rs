//! Many threads, few frames: every thread makes progress, and every page has its latest contents.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use forebay::{Error, StrategyKind};

use crate::site::{Site, create, number_in, numbered, set, wait_until};

/// Errors that any thread may get when many threads compete for few frames.
fn is_passing(error: &Error) -> bool {
    matches!(error, Error::NoFreeFrame { .. } | Error::Busy { .. } | Error::Invalidated { .. })
}

#[test]
fn sixty_four_threads_share_sixteen_frames() {
    let site = Site::new();
    let pool = site.builder(16).frame_wait(Duration::from_secs(30)).build().unwrap();
    let file = numbered(&pool, "table", 100, 0);
    let added: Mutex<Vec<u64>> = Mutex::new(vec![0; 100]);
    thread::scope(|scope| {
        for seed in 0..64 {
            let (pool, file, added) = (&pool, &file, &added);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let strategy = pool.strategy(StrategyKind::ALL[seed as usize % 4]);
                for _ in 0..60 {
                    let block = random.u32(..100);
                    if random.bool() {
                        number_in(&file.read_with(block, &strategy).unwrap());
                        continue;
                    }
                    let mut page = file.write_with(block, &strategy).unwrap();
                    let number = number_in(&page);
                    set(&mut page, number + 1000);
                    added.lock().unwrap()[block as usize] += 1000;
                }
            });
        }
    });
    let added = added.into_inner().unwrap();
    for (block, added) in (0..).zip(added) {
        assert_eq!(number_in(&file.read(block).unwrap()), u64::from(block) + added);
    }
    // The cleaner may still be writing.
    wait_until("all pins to go", || pool.stats().frames_pinned == 0);
}

#[test]
fn many_files_are_opened_closed_and_flushed_at_once() {
    let site = Site::new();
    let pool = site.pool(24);
    let sums: Vec<Mutex<u64>> = (0..6).map(|_| Mutex::new(0)).collect();
    let open = |name: usize| pool.open_file(&format!("file {name}"), &create());
    for name in 0..6 {
        open(name).unwrap().extend(8).unwrap();
    }
    thread::scope(|scope| {
        for seed in 0..16 {
            let (sums, open, pool) = (&sums, &open, &pool);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..50 {
                    let name = random.usize(..6);
                    let file = open(name).unwrap();
                    let done = match random.u32(..10) {
                        0 => file.clone().close(),
                        1 => file.flush_file().map(drop),
                        2 => pool.flush_and_sync().map(drop),
                        _ => file.write(random.u32(..8)).map(|mut page| {
                            let number = number_in(&page);
                            set(&mut page, number + 1);
                            *sums[name].lock().unwrap() += 1;
                        }),
                    };
                    assert!(done.as_ref().err().is_none_or(is_passing), "{done:?}");
                }
            });
        }
    });
    pool.close().unwrap();
    let pool = site.pool(24);
    for (name, sum) in sums.iter().enumerate() {
        let file = pool.open_file(&format!("file {name}"), &create()).unwrap();
        let found: u64 = (0..8).map(|block| number_in(&file.read(block).unwrap())).sum();
        assert_eq!(found, *sum.lock().unwrap(), "file {name}");
    }
}
