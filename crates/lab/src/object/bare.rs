//! A bare client of the store: its results with requests of one size, a fixed number in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;
use forebay_object::in_short;
use forebay_object::object_store::path::Path;
use forebay_object::object_store::{Error, ObjectStore, ObjectStoreExt};
use futures_util::future::try_join_all;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::retry::again;
use forebay_measure::interrupt;
use forebay_measure::statistics::median;

/// Size of the objects that it reads and puts: as large as those of a tablespace.
pub(super) const OBJECT_BYTES: u64 = 8 << 20;
/// Objects that it reads from.
const OBJECTS: u64 = 16;

/// The client, with its own objects.
pub(super) struct Bare {
    store: Arc<dyn ObjectStore>,
    pub(super) runtime: Arc<Runtime>,
    prefix: Path,
    body: Bytes,
    repeats: Arc<AtomicU64>,
}

/// The result of a cell.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Rates {
    pub(super) requests_per_s: f64,
    pub(super) bytes_per_s: f64,
    pub(super) wait_us_p50: Option<f64>,
    pub(super) wait_us_p99: Option<f64>,
}

impl Bare {
    /// With its objects put below `prefix`.
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        runtime: Arc<Runtime>,
        prefix: Path,
        seed: u64,
    ) -> anyhow::Result<Bare> {
        let mut body = vec![0; OBJECT_BYTES as usize];
        Rng::with_seed(seed).fill(&mut body);
        let bare = Bare { store, runtime, prefix, body: body.into(), repeats: Arc::default() };
        bare.put("read", OBJECTS, 4)?;
        Ok(bare)
    }

    /// `count` PUTs of whole objects, `in_flight` at a time.
    pub(super) fn put(&self, name: &str, count: u64, in_flight: u32) -> anyhow::Result<Rates> {
        let begun = Instant::now();
        let workers = u64::from(in_flight).min(count);
        let waits = self.workers(workers, |worker| {
            let (store, body) = (Arc::clone(&self.store), self.body.clone());
            let repeats = self.counted();
            let paths: Vec<Path> =
                (worker..count).step_by(workers as usize).map(|at| self.path(name, at)).collect();
            async move {
                let mut waits = Vec::new();
                for path in paths {
                    interrupt::check()?;
                    let begun = Instant::now();
                    let put = || store.put(&path, body.clone().into());
                    again(&repeats, put).await.map_err(|it| failed("put an object", &it))?;
                    waits.push(begun.elapsed());
                }
                Ok(waits)
            }
        })?;
        Ok(rates(waits, OBJECT_BYTES, begun.elapsed()))
    }

    /// GETs of `size` bytes at random offsets for this long, `in_flight` at a time.
    pub(super) fn get(
        &self,
        size: u64,
        in_flight: u32,
        time: Duration,
        seed: u64,
    ) -> anyhow::Result<Rates> {
        let begun = Instant::now();
        let waits = self.workers(u64::from(in_flight), |worker| {
            let (store, repeats) = (Arc::clone(&self.store), self.counted());
            let paths: Vec<Path> = (0..OBJECTS).map(|at| self.path("read", at)).collect();
            let mut rng = Rng::with_seed(seed ^ worker << 32);
            async move {
                let mut waits = Vec::new();
                // At least one, however long it takes.
                while waits.is_empty() || begun.elapsed() < time {
                    interrupt::check()?;
                    let start = rng.u64(0..=(OBJECT_BYTES - size) / size) * size;
                    let path = &paths[rng.usize(..paths.len())];
                    let begun = Instant::now();
                    let get = async || match store.get_range(path, start..start + size).await {
                        Ok(bytes) if bytes.len() as u64 != size => Err(Error::Generic {
                            store: "forebay-lab",
                            source: "an answer was cut short".into(),
                        }),
                        done => done.map(drop),
                    };
                    again(&repeats, get).await.map_err(|it| failed("read", &it))?;
                    waits.push(begun.elapsed());
                }
                Ok(waits)
            }
        })?;
        Ok(rates(waits, size, begun.elapsed()))
    }

    /// Separate tasks, so that more than one core serves them.
    fn workers<W>(&self, workers: u64, worker: impl Fn(u64) -> W) -> anyhow::Result<Vec<Duration>>
    where
        W: Future<Output = anyhow::Result<Vec<Duration>>> + Send + 'static,
    {
        let tasks: Vec<_> = (0..workers).map(|at| self.runtime.spawn(worker(at))).collect();
        let done = self.runtime.block_on(try_join_all(tasks))?;
        Ok(done.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat())
    }

    /// How often requests were retried.
    pub(super) fn repeats(&self) -> u64 {
        self.repeats.load(Ordering::Relaxed)
    }

    fn counted(&self) -> impl Fn() + use<> {
        let repeats = Arc::clone(&self.repeats);
        move || _ = repeats.fetch_add(1, Ordering::Relaxed)
    }

    fn path(&self, name: &str, at: u64) -> Path {
        self.prefix.clone().join(format!("{name}-{at}"))
    }
}

fn failed(what: &str, error: &Error) -> anyhow::Error {
    anyhow::anyhow!("cannot {what}: {}", in_short(error))
}

fn rates(mut waits: Vec<Duration>, size: u64, elapsed: Duration) -> Rates {
    waits.sort_unstable();
    let per_s = waits.len() as f64 / elapsed.as_secs_f64();
    let (p50, p99) = percentiles(&mut waits);
    Rates {
        requests_per_s: per_s,
        bytes_per_s: per_s * size as f64,
        wait_us_p50: p50,
        wait_us_p99: p99,
    }
}

/// In microseconds; the second only from 100 requests on.
pub(super) fn percentiles(waits: &mut [Duration]) -> (Option<f64>, Option<f64>) {
    waits.sort_unstable();
    let us: Vec<f64> = waits.iter().map(|it| it.as_secs_f64() * 1e6).collect();
    let p99 = (us.len() >= 100).then(|| us[us.len() * 99 / 100]);
    (median(&us), p99)
}
