//! Requests that are slow, fail or return damaged bytes: retried in time, hedged, or given up.

use std::time::Duration;

use forebay_object::object_store::ObjectStoreExt;
use forebay_object::{Error, Options, Prices, Takeover};
use tokio::time::Instant;

use super::pages::{PAGE, commit, pages, states};
use super::site::Site;
use super::store::Faults;

const MEDIAN: Duration = Duration::from_millis(20);
const SLOW: Duration = Duration::from_millis(200);

/// One read in a hundred takes ten times as long.
fn latencies(hedge: bool) -> (Vec<Duration>, forebay_object::Stats) {
    let site = Site::new();
    let options = Options { hedge, ..site.options(1) };
    let (bucket, handle) = site.bucket_with(Faults::default(), options);
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..100), 1).unwrap();
    handle.set_faults(Faults { latency: (MEDIAN, SLOW), ..Faults::default() });
    let before = bucket.stats().gets;
    let view = writer.view();
    let mut took: Vec<Duration> = (0..3000)
        .map(|at| {
            let begun = site.runtime.block_on(async { Instant::now() });
            let mut bytes = vec![0; PAGE];
            view.read(file, at % 100, &mut bytes).unwrap();
            site.runtime.block_on(async { begun.elapsed() })
        })
        .collect();
    took.sort_unstable();
    let mut stats = bucket.stats();
    stats.gets -= before;
    (took, stats)
}

#[test]
fn a_second_request_halves_the_slowest_hundredth_for_few_requests_more() {
    let (without, stats) = latencies(false);
    assert_eq!((stats.gets, stats.hedges), (3000, 0));
    let (with, stats) = latencies(true);
    let p99 = |took: &[Duration]| took[took.len() * 995 / 1000];
    println!("{:?} -> {:?}, {} requests", p99(&without), p99(&with), stats.gets);
    assert!(p99(&with) * 2 <= p99(&without), "{:?} {:?}", p99(&with), p99(&without));
    assert!(stats.gets <= 3150 && stats.hedges_won > 5, "{stats:?}");
}

#[test]
fn an_unreachable_store_is_an_error_after_the_deadline_and_not_before() {
    let site = Site::new();
    let (bucket, handle) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..10), 1).unwrap();
    handle.set_faults(Faults { unavailable: 1000, ..Faults::default() });
    let begun = site.runtime.block_on(async { Instant::now() });
    let error = states(&writer.view(), file, 10).unwrap_err();
    let spent = site.runtime.block_on(async { begun.elapsed() });
    assert!(matches!(error, Error::Unreachable { attempts: 5.., .. }) && error.is_retryable());
    assert!((10..16).contains(&spent.as_secs()), "{spent:?}");
    handle.set_faults(Faults {
        unavailable: 300,
        damaged: 100,
        truncated: 100,
        ..Faults::default()
    });
    for _ in 0..20 {
        assert_eq!(states(&writer.view(), file, 10).unwrap(), [1; 10], "[CLI-1]");
    }
    assert!(bucket.stats().retries > 10);
}

#[test]
fn opening_an_unreachable_store_takes_one_deadline() {
    for latency in [Duration::ZERO, Duration::from_secs(3600)] {
        let site = Site::new();
        let (bucket, handle) = site.created(1);
        let latency = (latency, Duration::ZERO);
        handle.set_faults(Faults { unavailable: 1000, latency, ..Faults::default() });
        let takes = |open: &dyn Fn() -> Option<Error>| {
            let begun = site.runtime.block_on(async { Instant::now() });
            let error = open().unwrap();
            assert!(matches!(error, Error::Unreachable { .. }), "{error}");
            let spent = site.runtime.block_on(async { begun.elapsed() });
            assert!((10..=11).contains(&spent.as_secs()), "{spent:?}: {error}");
        };
        takes(&|| bucket.create(PAGE as u32).err());
        takes(&|| bucket.writer(Takeover::Refuse).err());
        takes(&|| bucket.reader().err());
    }
}

/// As if the credentials were being renewed by hand.
#[test]
fn credentials_that_are_refused_for_a_minute_do_not_end_a_commit() {
    let site = Site::new();
    let options = Options { deadline: Duration::from_secs(120), ..site.options(1) };
    let (bucket, handle) = site.bucket_with(Faults::default(), options);
    let denied = Faults { denied: true, ..Faults::default() };
    let begun = site.runtime.block_on(async { Instant::now() });
    handle.set_faults(denied.clone());
    let refused = bucket.create(PAGE as u32).unwrap_err();
    assert!(matches!(&refused, Error::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("AccessDenied"), "{refused}");
    let spent = site.runtime.block_on(async { begun.elapsed() });
    assert_eq!(spent, Duration::ZERO, "credentials that were never good are an error at once");

    handle.set_faults(Faults::default());
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..10), 1).unwrap();
    handle.set_faults(denied.clone());
    let later = std::sync::Arc::clone(&handle);
    let renewed = site.runtime.spawn(async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        later.set_faults(Faults::default());
    });
    commit(&writer, &pages(file, 0..10), 2).unwrap();
    site.runtime.block_on(renewed).unwrap();

    handle.set_faults(denied);
    let refused = commit(&writer, &pages(file, 0..10), 3).unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    handle.set_faults(Faults::default());
    commit(&writer, &pages(file, 0..10), 4).unwrap();
    assert_eq!(states(&bucket.reader().unwrap().view(), file, 10).unwrap(), [4; 10]);
}

#[test]
fn an_object_that_was_cut_or_deleted_is_reported_as_that_and_not_as_a_store_or_a_lease_that_is_late()
 {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..10), 1).unwrap();
    let (elsewhere, _) = site.bucket(Faults::default(), 2);
    let reader = elsewhere.reader().unwrap();
    let object = site.paths("space/data").remove(0);
    let fails = |expected: &dyn Fn(&Error) -> bool| {
        for view in [writer.view(), reader.view()] {
            let before = elsewhere.stats().retries;
            let error = states(&view, file, 10).unwrap_err();
            assert!(expected(&error) && error.to_string().contains(&object), "{error}");
            assert_eq!(elsewhere.stats().retries, before, "{error}");
        }
    };
    site.world.cut(&object, 1000);
    fails(&|error| matches!(error, Error::Corrupt { what, .. } if what.contains("1000 bytes")));
    site.world.remove(&object);
    fails(&|error| matches!(error, Error::Missing { .. }));
    assert!(!reader.refresh().unwrap());
    fails(&|error| matches!(error, Error::Missing { .. }));

    site.world.remove("space/manifest");
    for error in [reader.refresh().unwrap_err(), writer.close().unwrap_err()] {
        let text = error.to_string();
        assert!(matches!(error, Error::Missing { .. }) && !text.contains("create"), "{text}");
    }
}

#[test]
fn an_answer_that_never_comes_ends_with_the_attempt() {
    let site = Site::new();
    let (bucket, handle) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    handle.set_faults(Faults {
        latency: (Duration::from_secs(3600), Duration::ZERO),
        ..Faults::default()
    });
    let file = writer.create_file("table").unwrap();
    let error = commit(&writer, &pages(file, 0..10), 1).unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("no answer within 1s"), "{error}");
}

#[test]
fn requests_and_bytes_have_their_price() {
    let site = Site::new();
    let prices = Prices { thousand_puts: 5.0, thousand_gets: 0.4, gibibyte_read: 90.0 };
    let (bucket, _) = site.bucket_with(Faults::default(), Options { prices, ..site.options(1) });
    bucket.create(PAGE as u32).unwrap();
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    let before = bucket.stats();
    commit(&writer, &pages(file, 0..242), 1).unwrap();
    let after = bucket.stats();
    // Two objects and a manifest.
    assert_eq!(after.puts - before.puts, 3);
    assert!((after.cost - before.cost - 3.0 * 0.005).abs() < 1e-9);
    states(&writer.view(), file, 242).unwrap();
    let read = bucket.stats();
    assert_eq!((read.gets - after.gets, read.pages_read - after.pages_read), (2, 242));
    let bytes = (read.bytes_read - after.bytes_read) as f64;
    assert!((read.cost - after.cost - 0.0008 - bytes / f64::from(1 << 30) * 90.0).abs() < 1e-9);
}

#[test]
fn scattered_pages_cost_few_requests_and_little_over_read() {
    let site = Site::new();
    let (bucket, _) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    commit(&writer, &pages(file, 0..20_000), 1).unwrap();
    // Clustered ranges, with one page in ten of them not wanted: the requests of a bitmap scan.
    let mut rng = fastrand::Rng::with_seed(5);
    let wanted = (0..20_000).filter(|at| at % 5000 < 1000 && rng.u32(0..10) > 0);
    let wanted = pages(file, wanted);
    let before = bucket.stats();
    writer.view().read_pages(&wanted, &mut |_, _| {}).unwrap();
    let stats = bucket.stats();
    let (gets, over) = (stats.gets - before.gets, stats.pages_over_read - before.pages_over_read);
    assert!(gets * 3 <= wanted.len() as u64, "{gets} requests for {} pages", wanted.len());
    assert!(over * 20 <= wanted.len() as u64, "{over} pages too many");
}

#[test]
fn cancelling_ends_what_is_waited_for() {
    let site = Site::new();
    let (bucket, handle) = site.created(1);
    let writer = bucket.writer(Takeover::Refuse).unwrap();
    let file = writer.create_file("table").unwrap();
    handle.set_faults(Faults {
        latency: (Duration::from_millis(900), Duration::ZERO),
        ..Faults::default()
    });
    let other = bucket.clone();
    let cancel = site.runtime.spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        other.cancel();
    });
    let begun = site.runtime.block_on(async { Instant::now() });
    assert!(matches!(commit(&writer, &pages(file, 0..10), 1), Err(Error::Closed)));
    let spent = site.runtime.block_on(async { begun.elapsed() });
    assert!(spent < Duration::from_millis(600), "{spent:?}");
    site.runtime.block_on(cancel).unwrap();
    assert!(matches!(bucket.reader(), Err(Error::Closed)));
}

/// A client was killed while it probed the store; another one may be probing it now.
#[test]
fn what_killed_clients_have_tried_a_store_with_goes_when_a_writer_opens() {
    let site = Site::new();
    let (bucket, handle) = site.created(1);
    let put = |name: &str| {
        let path = format!("space/probes/{name}").into();
        site.runtime.block_on(handle.put(&path, "x".into())).unwrap();
    };
    put("old");
    site.sleep(Duration::from_secs(3700));
    put("young");
    bucket.writer(Takeover::Refuse).unwrap();
    assert_eq!(site.paths("space/probes"), ["space/probes/young"]);
}
