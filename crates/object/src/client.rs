//! The client of a store: requests with retries, deadlines and counters.
//!
//! An attempt has a time limit. After a transient failure the client retries, after a pause that doubles,
//! with jitter, until the deadline. A permanent failure is an error at once. Two kinds of failure depend on the
//! history: a refused connection and refused credentials are errors at once for a client that was never answered or
//! never allowed that operation; for any other client they are transient: the server is restarted, or the credentials
//! renewed.
//!
//! The name of a data object is used once, so that putting it twice puts the
//! same bytes. The one request that must not be repeated blindly is the conditional PUT of the manifest: its
//! outcome may be unknown, and the writer finds it out (`writer/publish`).
//!
//! If the answer to a read begins later than the 95th percentile, the client sends the request a second time, while the
//! first is in flight, and uses the answer that begins sooner. The transfer time depends on the number of bytes, not on
//! which answer carries them, so it is not considered.
//!
//! Invariants:  [CLI-1] a read returns exactly the requested bytes: a body that is cut short is a failed attempt
//! Concurrency: any number of requests at once, at most `in_flight` of them in progress.
//! Cancellation: a request ends with the future that waits for it; [`Client::cancel`] ends all of them.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use forebay_lookahead::DeviceCosts;
use futures_util::future::{BoxFuture, Either, FutureExt, select};
use futures_util::stream::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, PutMode,
    PutOptions, PutPayload, UpdateVersion,
};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::{Error, Result};
use crate::failure::{Failure, in_short};
use crate::latency::Latencies;
use crate::op::Op;
use crate::options::{COSTS_USUAL, Options};
use crate::stats::{Counters, Stats, count};
use crate::tier::LocalTier;

const PAUSE_LEAST: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_secs(5);
/// Minimum time of an attempt, also close to the deadline.
const LAST_ATTEMPT: Duration = Duration::from_secs(1);

/// The result of a conditional PUT.
#[derive(Debug)]
pub(crate) enum Swap {
    Done(UpdateVersion),
    /// The condition does not hold.
    Lost,
    /// It may have taken effect, and may still.
    Unknown(Arc<StoreError>),
}

pub(crate) struct Client {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    pub(crate) options: Options,
    pub(crate) counters: Counters,
    pub(crate) tier: Option<Arc<LocalTier>>,
    permits: Semaphore,
    latencies: Mutex<Latencies>,
    /// The costs as set or measured.
    costs: OnceLock<DeviceCosts>,
    rng: Mutex<Rng>,
    cancelled: watch::Sender<bool>,
    /// A bit for each [`Op`] that the store has executed successfully.
    allowed: AtomicU8,
}

/// The failure of an attempt.
enum Ended<T> {
    Done(T),
    /// The object is not there.
    Absent(Arc<StoreError>),
    /// To be retried.
    Passing(Arc<StoreError>),
    Final(Error),
}

tokio::task_local! {
    /// The time until which requests are retried, for all requests of [`Client::in_one_deadline`].
    static UNTIL: Instant;
}

impl Client {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        options: Options,
    ) -> Result<Client> {
        options.check()?;
        let prefix = Path::parse(prefix).map_err(|_| Error::Setting {
            setting: "the prefix",
            value: prefix.to_owned(),
            expected: "it should be names with slashes between them",
        })?;
        let tier = options.tier.as_ref().map(LocalTier::open).transpose()?;
        let rng = options.seed.map_or_else(Rng::new, Rng::with_seed);
        Ok(Client {
            store,
            prefix,
            permits: Semaphore::new(options.in_flight),
            costs: options.costs.map_or_else(OnceLock::new, OnceLock::from),
            options,
            counters: Counters::default(),
            tier,
            latencies: Mutex::default(),
            rng: Mutex::new(rng),
            cancelled: watch::Sender::new(false),
            allowed: AtomicU8::new(0),
        })
    }

    /// The path of an object below the prefix.
    pub(crate) fn path(&self, parts: &[&str]) -> Path {
        parts.iter().fold(self.prefix.clone(), |path, part| path.join(*part))
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.counters.stats(&self.options.prices);
        if let Some(tier) = &self.tier {
            tier.add_to(&mut stats);
        }
        stats
    }

    /// Costs of a request and of a byte.
    pub(crate) fn costs(&self) -> DeviceCosts {
        self.costs.get().copied().unwrap_or(COSTS_USUAL)
    }

    /// Whether the costs are set or measured.
    pub(crate) fn knows_costs(&self) -> bool {
        self.costs.get().is_some()
    }

    /// Sets the measured costs, unless another caller has.
    pub(crate) fn set_costs(&self, costs: DeviceCosts) {
        let _ = self.costs.set(costs);
    }

    /// A number that no other client draws.
    pub(crate) fn draw(&self) -> u64 {
        match self.options.seed {
            Some(_) => self.rng().u64(1..),
            // The time as well: two machines resumed from the same state have the same keys.
            None => RandomState::new().hash_one(Instant::now()).max(1),
        }
    }

    /// Ends the requests in progress and refuses new ones.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latencies(&self) -> MutexGuard<'_, Latencies> {
        // An estimate, usable even after a panic of another thread.
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all of an object, and its version; `None` if it is not there.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<(Bytes, UpdateVersion)>> {
        let once = || self.get_once(path, None).boxed();
        match self.repeat(Op::Get, path, once).await? {
            None => Ok(None),
            Some((bytes, meta)) => {
                Ok(Some((bytes, UpdateVersion { e_tag: meta.e_tag, version: meta.version })))
            }
        }
    }

    /// Reads the bytes `range` of an object ([CLI-1]); `None` if it is not there.
    pub(crate) async fn get_range(&self, path: &Path, range: Range<u64>) -> Result<Option<Bytes>> {
        let once = || self.get_hedged(path, range.clone()).boxed();
        let Some((bytes, meta)) = self.repeat(Op::Get, path, once).await? else { return Ok(None) };
        if (bytes.len() as u64) < range.end - range.start {
            let (size, end) = (meta.size, range.end);
            let what = format!("it has {size} bytes, and the manifest names bytes up to {end}");
            return Err(Error::Corrupt { path: path.clone(), what });
        }
        Ok(Some(bytes))
    }

    /// Puts a data object, whose name is used once.
    pub(crate) async fn put(&self, path: &Path, bytes: Bytes) -> Result<()> {
        let once = || {
            let payload = PutPayload::from_bytes(bytes.clone());
            self.put_once(path, payload, PutMode::Overwrite).boxed()
        };
        self.repeat(Op::Put, path, once).await.map(drop)
    }

    /// One attempt to put an object if `mode` allows it.
    pub(crate) async fn swap(&self, path: &Path, bytes: Bytes, mode: PutMode) -> Result<Swap> {
        let limit = self.limit(self.until());
        match self.attempt(Op::Put, path, limit, self.put_if(path, bytes, mode)).await {
            Ended::Done(swap) => Ok(swap),
            Ended::Absent(_) => Ok(Swap::Lost),
            Ended::Passing(source) => Ok(Swap::Unknown(source)),
            Ended::Final(error) => Err(not_conditional(error)),
        }
    }

    /// Retries the same until the outcome is known, for puts that may be done twice.
    pub(crate) async fn swap_known(
        &self,
        path: &Path,
        bytes: Bytes,
        mode: PutMode,
    ) -> Result<Swap> {
        let once = || self.put_if(path, bytes.clone(), mode.clone()).boxed();
        let swapped = self.repeat(Op::Put, path, once).await.map_err(not_conditional)?;
        Ok(swapped.unwrap_or(Swap::Lost))
    }

    /// Deletes an object; a missing object is not an error.
    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        let once = || {
            count(&self.counters.deletes, 1);
            let one = futures_util::stream::iter([Ok(path.clone())]).boxed();
            let deleted = self.store.delete_stream(one);
            async move { deleted.try_for_each(|_| async { Ok(()) }).await }.boxed()
        };
        self.repeat(Op::Delete, path, once).await?;
        Ok(())
    }

    /// Lists the objects below `path`.
    pub(crate) async fn list(&self, path: &Path) -> Result<Vec<ObjectMeta>> {
        let once = || {
            count(&self.counters.lists, 1);
            self.store.list(Some(path)).try_collect().boxed()
        };
        Ok(self.repeat(Op::List, path, once).await?.unwrap_or_default())
    }

    /// Waits before attempt `attempt` of a retried operation.
    pub(crate) async fn pause(&self, attempt: u32) {
        let most = PAUSE_LEAST.saturating_mul(1 << attempt.min(12)).min(PAUSE_MOST);
        let part = 0.5 + self.rng().f64() / 2.0;
        sleep(most.mul_f64(part)).await;
    }

    /// Gives all requests of `work` one common deadline, instead of one for each request.
    pub(crate) async fn in_one_deadline<T>(&self, work: impl Future<Output = T>) -> T {
        UNTIL.scope(Instant::now() + self.options.deadline, work).await
    }

    /// The time until which a request that begins now is retried.
    fn until(&self) -> Instant {
        UNTIL.try_with(|it| *it).unwrap_or_else(|_| Instant::now() + self.options.deadline)
    }

    /// The time limit of an attempt.
    fn limit(&self, until: Instant) -> Duration {
        (until - Instant::now()).max(LAST_ATTEMPT).min(self.options.attempt_timeout)
    }

    /// The error of a request that was retried until its deadline.
    pub(crate) fn gave_up(
        op: Op,
        path: Path,
        attempts: u32,
        spent: Duration,
        source: Arc<StoreError>,
    ) -> Error {
        match Failure::of(&source) {
            Failure::Denied => Error::Refused { op, path, source },
            _ => Error::Unreachable { op, path, attempts, spent, source },
        }
    }

    async fn repeat<'a, T>(
        &'a self,
        op: Op,
        path: &Path,
        once: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<Option<T>>
    where
        T: 'a,
    {
        let begun = Instant::now();
        let until = self.until();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let source = match self.attempt(op, path, self.limit(until), once()).await {
                Ended::Done(done) => return Ok(Some(done)),
                // A PUT fails with "not found" only if the bucket does not exist.
                Ended::Absent(source) if op == Op::Put => {
                    return Err(Error::Refused { op, path: path.clone(), source });
                }
                Ended::Absent(_) => return Ok(None),
                Ended::Final(error) => return Err(error),
                Ended::Passing(source) => source,
            };
            if Instant::now() >= until {
                let spent = begun.elapsed();
                return Err(Client::gave_up(op, path.clone(), attempts, spent, source));
            }
            count(&self.counters.retries, 1);
            tracing::debug!(%path, attempts, error = %source, "{op} failed");
            let _ = timeout_at(until, self.pause(attempts)).await;
        }
    }

    /// One attempt, within `limit` and within the requests that may be in flight.
    async fn attempt<T>(
        &self,
        op: Op,
        path: &Path,
        limit: Duration,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Ended<T> {
        let mut cancelled = self.cancelled.subscribe();
        let cancelled = pin!(cancelled.wait_for(|it| *it));
        let work = pin!(async {
            let _permit = self.permits.acquire().await;
            timeout(limit, request).await
        });
        match select(cancelled, work).await {
            Either::Left(_) => Ended::Final(Error::Closed),
            Either::Right((Ok(Ok(done)), _)) => {
                self.allowed.fetch_or(1 << op as u8, Ordering::Relaxed);
                Ended::Done(done)
            }
            Either::Right((Ok(Err(error)), _)) => self.judge(op, path, error),
            Either::Right((Err(_), _)) => {
                let why = format!("no answer within {limit:?}");
                Ended::Passing(Arc::new(StoreError::Generic {
                    store: "forebay-object",
                    source: why.into(),
                }))
            }
        }
    }

    fn judge<T>(&self, op: Op, path: &Path, error: StoreError) -> Ended<T> {
        let allowed = self.allowed.load(Ordering::Relaxed);
        let (source, path) = (Arc::new(error), path.clone());
        match Failure::of(&source) {
            Failure::Transient => Ended::Passing(source),
            Failure::Denied if allowed & 1 << op as u8 != 0 => Ended::Passing(source),
            Failure::Unconnected if allowed != 0 => Ended::Passing(source),
            Failure::Unconnected => Ended::Final(Error::Unconnected { op, path, source }),
            Failure::Absent => {
                self.allowed.fetch_or(1 << op as u8, Ordering::Relaxed);
                Ended::Absent(source)
            }
            Failure::PastEnd => {
                let what = "it ends before the bytes that the manifest names".to_owned();
                Ended::Final(Error::Corrupt { path, what })
            }
            Failure::Denied | Failure::Unsupported | Failure::Permanent => {
                Ended::Final(Error::Refused { op, path, source })
            }
        }
    }

    async fn put_if(&self, path: &Path, bytes: Bytes, mode: PutMode) -> Result<Swap, StoreError> {
        match self.put_once(path, PutPayload::from_bytes(bytes), mode).await {
            Ok(tag) => Ok(Swap::Done(tag)),
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {
                Ok(Swap::Lost)
            }
            Err(error) => Err(error),
        }
    }

    async fn put_once(
        &self,
        path: &Path,
        payload: PutPayload,
        mode: PutMode,
    ) -> Result<UpdateVersion, StoreError> {
        count(&self.counters.puts, 1);
        count(&self.counters.bytes_written, payload.content_length() as u64);
        let options = PutOptions { mode, ..PutOptions::default() };
        Ok(self.store.put_opts(path, payload, options).await?.into())
    }

    async fn get_once(
        &self,
        path: &Path,
        range: Option<Range<u64>>,
    ) -> Result<(Bytes, ObjectMeta), StoreError> {
        let answer = self.ask(path, range.clone()).await?;
        self.body(answer, range).await
    }

    /// The beginning of an answer: its bytes are not read yet.
    async fn ask(&self, path: &Path, range: Option<Range<u64>>) -> Result<GetResult, StoreError> {
        count(&self.counters.gets, 1);
        let range = range.map(GetRange::Bounded);
        self.store.get_opts(path, GetOptions { range, ..GetOptions::default() }).await
    }

    async fn body(
        &self,
        answer: GetResult,
        range: Option<Range<u64>>,
    ) -> Result<(Bytes, ObjectMeta), StoreError> {
        let meta = answer.meta.clone();
        // If the object ends within the range, fewer bytes are expected.
        let expected = range.map_or(meta.size, |it| it.end.min(meta.size).saturating_sub(it.start));
        let bytes = answer.bytes().await?;
        count(&self.counters.bytes_read, bytes.len() as u64);
        if bytes.len() as u64 != expected {
            let why = format!("{} bytes arrived instead of {expected}", bytes.len());
            return Err(StoreError::Generic { store: "forebay-object", source: why.into() });
        }
        Ok((bytes, meta))
    }

    async fn get_hedged(
        &self,
        path: &Path,
        range: Range<u64>,
    ) -> Result<(Bytes, ObjectMeta), StoreError> {
        let begun = Instant::now();
        let first = pin!(self.ask(path, Some(range.clone())));
        let late = self.latencies().late().filter(|_| self.options.hedge);
        let answer = match late {
            None => first.await,
            Some(late) => match select(first, pin!(sleep(late))).await {
                Either::Left((answer, _)) => answer,
                Either::Right(((), first)) if !self.latencies().take_hedge() => first.await,
                Either::Right(((), first)) => {
                    count(&self.counters.hedges, 1);
                    match select(first, pin!(self.ask(path, Some(range.clone())))).await {
                        Either::Left((Ok(answer), _)) => Ok(answer),
                        Either::Left((Err(_), second)) => second.await,
                        Either::Right((Ok(answer), _)) => {
                            count(&self.counters.hedges_won, 1);
                            Ok(answer)
                        }
                        Either::Right((Err(_), first)) => first.await,
                    }
                }
            },
        }?;
        self.latencies().add(begun.elapsed());
        self.body(answer, Some(range)).await
    }
}

/// The error of a conditional request: the store may lack conditions.
fn not_conditional(error: Error) -> Error {
    match error {
        Error::Refused { source, .. } if Failure::of(&source) == Failure::Unsupported => {
            Error::NotConditional { why: in_short(&source) }
        }
        error => error,
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Client")
            .field("store", &self.store.to_string())
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
