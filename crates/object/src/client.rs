//! The client of a store: requests that are tried again, in time, and counted.
//!
//! An attempt has a time limit; one that failed in a way that may pass is made again after a pause that doubles,
//! with jitter, until the deadline. A data object has a name that is used once, so that putting it twice puts the
//! same bytes. The one request that must not be repeated blindly is the conditional PUT of the manifest: its
//! outcome may be unknown, and it is the writer who finds out (`writer/publish`).
//!
//! A read whose answer begins later than 95 of 100 do is asked for a second time beside the first, and the answer that
//! begins sooner counts. Its bytes take their time by their number, whichever answer they come in, so that is not looked at.
//!
//! Invariants:  [CLI-1] a read gives exactly the bytes asked for: a body that is cut short is a failed attempt
//! Concurrency: any number of requests at once, at most `in_flight` of them under way.
//! Cancellation: a request ends with the future that waits for it; [`Client::cancel`] ends all of them.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::pin::pin;
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
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Error, Result};
use crate::latency::Latencies;
use crate::options::{COSTS_USUAL, Options};
use crate::probe::probe;
use crate::stats::{Counters, Stats, count};
use crate::tier::LocalTier;

const PAUSE_LEAST: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_secs(5);

/// What is asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Bytes from an object.
    Get,
    /// A new object, or another manifest.
    Put,
    /// An object that goes.
    Delete,
    /// The names below a prefix.
    List,
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Op::Get => "reading",
            Op::Put => "putting",
            Op::Delete => "deleting",
            Op::List => "listing",
        })
    }
}

/// What came of a conditional PUT.
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
    /// As they were set or measured.
    costs: OnceLock<DeviceCosts>,
    rng: Mutex<Rng>,
    cancelled: watch::Sender<bool>,
}

/// How an attempt failed.
enum Failure {
    /// Not for good.
    Passing(Arc<StoreError>),
    /// The object is not there.
    NotFound,
    Final(Error),
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
        })
    }

    /// The path of an object below the prefix.
    pub(crate) fn path(&self, parts: &[&str]) -> Path {
        parts.iter().fold(self.prefix.clone(), |path, part| path.join(*part))
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.counters.stats(&self.options.prices);
        if let Some(tier) = &self.tier {
            tier.tell(&mut stats);
        }
        stats
    }

    /// What a request and a byte take.
    pub(crate) fn costs(&self) -> DeviceCosts {
        self.costs.get().copied().unwrap_or(COSTS_USUAL)
    }

    /// Finds out what they take, where that is not set.
    pub(crate) async fn know_costs(&self) -> Result<()> {
        if self.costs.get().is_none() {
            // The first to come has measured as well.
            let _ = self.costs.set(probe(self).await?);
        }
        Ok(())
    }

    /// A number that no other client draws.
    pub(crate) fn draw(&self) -> u64 {
        match self.options.seed {
            Some(_) => self.rng().u64(1..),
            // The time as well: a machine that is resumed twice from one state has the same keys.
            None => RandomState::new().hash_one(Instant::now()).max(1),
        }
    }

    /// Ends what is under way and refuses what comes.
    pub(crate) fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latencies(&self) -> MutexGuard<'_, Latencies> {
        // An estimate, whatever a panic has left of it.
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of an object, and which version of it that is; `None` if it is not there.
    pub(crate) async fn get(&self, path: &Path) -> Result<Option<(Bytes, UpdateVersion)>> {
        let once = || self.get_once(path, None).boxed();
        match self.repeat(Op::Get, path, once).await? {
            None => Ok(None),
            Some((bytes, meta)) => {
                Ok(Some((bytes, UpdateVersion { e_tag: meta.e_tag, version: meta.version })))
            }
        }
    }

    /// The bytes `range` of an object ([CLI-1]); `None` if it is not there.
    pub(crate) async fn get_range(&self, path: &Path, range: Range<u64>) -> Result<Option<Bytes>> {
        let once = || self.get_hedged(path, range.clone()).boxed();
        self.repeat(Op::Get, path, once).await
    }

    /// Puts a data object, whose name is used once.
    pub(crate) async fn put(&self, path: &Path, bytes: Bytes) -> Result<()> {
        let once = || {
            let payload = PutPayload::from_bytes(bytes.clone());
            self.put_once(path, payload, PutMode::Overwrite).map(|it| it.map(drop)).boxed()
        };
        self.repeat(Op::Put, path, once).await?.ok_or_else(|| Error::Refused {
            op: Op::Put,
            path: path.clone(),
            source: Arc::new(StoreError::Generic {
                store: "forebay-object",
                source: "there is no such bucket".into(),
            }),
        })
    }

    /// One attempt to put an object if `mode` allows it.
    pub(crate) async fn swap(&self, path: &Path, bytes: Bytes, mode: PutMode) -> Result<Swap> {
        let attempt = self.attempt(self.put_once(path, PutPayload::from_bytes(bytes), mode));
        match attempt.await {
            Err(Failure::Passing(source)) => Ok(Swap::Unknown(source)),
            Err(Failure::NotFound) => Ok(Swap::Lost),
            Err(Failure::Final(error)) => Err(error),
            Ok(Ok(tag)) => Ok(Swap::Done(tag)),
            Ok(Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. })) => {
                Ok(Swap::Lost)
            }
            Ok(Err(
                error @ (StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }),
            )) => Err(Error::NotConditional { why: error.to_string() }),
            Ok(Err(source)) => match self.judge(Op::Put, path, source) {
                Failure::Passing(source) => Ok(Swap::Unknown(source)),
                Failure::NotFound => Ok(Swap::Lost),
                Failure::Final(error) => Err(error),
            },
        }
    }

    /// Deletes an object; that it is not there is fine.
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

    /// What is below `path`.
    pub(crate) async fn list(&self, path: &Path) -> Result<Vec<ObjectMeta>> {
        let once = || {
            count(&self.counters.lists, 1);
            self.store.list(Some(path)).try_collect().boxed()
        };
        Ok(self.repeat(Op::List, path, once).await?.unwrap_or_default())
    }

    /// A pause before attempt `attempt` of something that is tried again.
    pub(crate) async fn pause(&self, attempt: u32) {
        let most = PAUSE_LEAST.saturating_mul(1 << attempt.min(12)).min(PAUSE_MOST);
        let part = 0.5 + self.rng().f64() / 2.0;
        sleep(most.mul_f64(part)).await;
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
        let mut attempts = 0;
        loop {
            attempts += 1;
            let failure = match self.attempt(once()).await {
                Ok(Ok(done)) => return Ok(Some(done)),
                Ok(Err(source)) => self.judge(op, path, source),
                Err(failure) => failure,
            };
            let source = match failure {
                Failure::NotFound => return Ok(None),
                Failure::Final(error) => return Err(error),
                Failure::Passing(source) => source,
            };
            let spent = begun.elapsed();
            if spent >= self.options.deadline {
                return Err(Error::Unreachable { op, path: path.clone(), attempts, spent, source });
            }
            count(&self.counters.retries, 1);
            tracing::debug!(%path, attempts, error = %source, "{op} failed");
            self.pause(attempts).await;
        }
    }

    /// One attempt, in time and within the requests that may be in flight.
    async fn attempt<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<Result<T, StoreError>, Failure> {
        let mut cancelled = self.cancelled.subscribe();
        let cancelled = pin!(cancelled.wait_for(|it| *it));
        let limit = self.options.attempt_timeout;
        let work = pin!(async {
            let _permit = self.permits.acquire().await;
            timeout(limit, request).await
        });
        match select(cancelled, work).await {
            Either::Left(_) => Err(Failure::Final(Error::Closed)),
            Either::Right((Ok(result), _)) => Ok(result),
            Either::Right((Err(_), _)) => {
                let why = format!("no answer within {limit:?}");
                Err(Failure::Passing(Arc::new(StoreError::Generic {
                    store: "forebay-object",
                    source: why.into(),
                })))
            }
        }
    }

    fn judge(&self, op: Op, path: &Path, error: StoreError) -> Failure {
        match error {
            StoreError::NotFound { .. } => Failure::NotFound,
            // A store that says 503 or drops the connection has no other word for it.
            StoreError::Generic { .. } => Failure::Passing(Arc::new(error)),
            error => {
                let source = Arc::new(error);
                Failure::Final(Error::Refused { op, path: path.clone(), source })
            }
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

    /// The beginning of an answer: its bytes are still to come.
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
        let expected = range.map_or(meta.size, |range| range.end - range.start);
        let bytes = answer.bytes().await?;
        count(&self.counters.bytes_read, bytes.len() as u64);
        if bytes.len() as u64 != expected {
            let why = format!("{} bytes came instead of {expected}", bytes.len());
            return Err(StoreError::Generic { store: "forebay-object", source: why.into() });
        }
        Ok((bytes, meta))
    }

    async fn get_hedged(&self, path: &Path, range: Range<u64>) -> Result<Bytes, StoreError> {
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
        Ok(self.body(answer, Some(range)).await?.0)
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
