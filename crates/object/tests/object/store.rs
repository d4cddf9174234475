//! An in-memory store that shows the worst behavior of real stores.
//!
//! One [`World`] has the objects; each [`Handle`] is a client's access to them, with its own faults, delays and death.
//! Time is the runtime's, which advances only by sleeping: an hour takes as long as the requests in it.
//!
//! A request may fail before or after it takes effect, and an effect may be late, after the client has given up and
//! tried again. Conditions are evaluated when the request takes effect.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use fastrand::Rng;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Get,
    Put,
    Swap,
    Delete,
    List,
}

/// A request that took effect.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) what: What,
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone)]
struct Object {
    bytes: Bytes,
    tag: u64,
    modified: Instant,
}

/// Faults of a client's requests, each out of a thousand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// 503, without effect.
    pub(crate) unavailable: u32,
    /// The request takes effect, and the answer is lost.
    pub(crate) answer_lost: u32,
    /// The answer is lost, and the request takes effect later.
    pub(crate) late: u32,
    /// A body that is shorter than it should be.
    pub(crate) truncated: u32,
    /// A body with a wrong byte.
    pub(crate) damaged: u32,
    /// How far lists are out of date.
    pub(crate) lists_behind: Duration,
    /// Conditions are ignored.
    pub(crate) no_conditions: bool,
    /// Conditions of replacements (If-Match) are ignored.
    pub(crate) no_if_match: bool,
    /// There is no conditional PUT.
    pub(crate) no_updates: bool,
    /// 403, without effect.
    pub(crate) denied: bool,
    /// Time of a request: the first, and for one request in a hundred the second.
    pub(crate) latency: (Duration, Duration),
}

#[derive(Default)]
struct Inner {
    objects: BTreeMap<Path, Object>,
    /// Including deleted objects, for lists that are out of date: path, time of creation, time of deletion.
    history: Vec<(Path, Instant, Option<Instant>)>,
    tags: u64,
    events: Vec<Event>,
    late: Vec<(Instant, Path, Bytes, PutMode)>,
}

pub(crate) struct World {
    inner: Mutex<Inner>,
    epoch: Instant,
}

impl World {
    pub(crate) fn new(runtime: &Runtime) -> Arc<World> {
        let _context = runtime.enter();
        Arc::new(World { inner: Mutex::default(), epoch: Instant::now() })
    }

    pub(crate) fn handle(self: &Arc<Self>, faults: Faults, seed: u64) -> Arc<Handle> {
        let state = HandleState {
            rng: Rng::with_seed(seed ^ 0x5eed),
            faults,
            dies_after: None,
            requests: 0,
            denied: 0,
            in_flight: 0,
            in_flight_most: 0,
            at_next_get: None,
        };
        Arc::new(Handle { world: Arc::clone(self), state: Mutex::new(state) })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        self.inner().events.clone()
    }

    /// The paths of the objects that are there, below `prefix`.
    pub(crate) fn paths(&self, prefix: &str) -> Vec<String> {
        let inner = self.inner();
        inner.objects.keys().map(ToString::to_string).filter(|it| it.starts_with(prefix)).collect()
    }

    pub(crate) fn bytes_below(&self, prefix: &str) -> u64 {
        let inner = self.inner();
        let below = inner.objects.iter().filter(|(path, _)| path.as_ref().starts_with(prefix));
        below.map(|(_, it)| it.bytes.len() as u64).sum()
    }

    /// Changes a byte of an object, as a broken disk would.
    pub(crate) fn damage(&self, path: &str, at: usize) {
        let mut inner = self.inner();
        let object = inner.objects.get_mut(&Path::from(path)).unwrap();
        let mut bytes = object.bytes.to_vec();
        bytes[at] ^= 0x40;
        object.bytes = bytes.into();
    }

    /// Cuts an object to `len` bytes, like an incomplete copy.
    pub(crate) fn cut(&self, path: &str, len: usize) {
        self.inner().objects.get_mut(&Path::from(path)).unwrap().bytes.truncate(len);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.inner().objects.remove(&Path::from(path)).unwrap();
    }

    /// Applies the late effects that are due.
    fn settle(&self) {
        let now = Instant::now();
        let mut inner = self.inner();
        let late = std::mem::take(&mut inner.late);
        let (due, rest): (Vec<_>, Vec<_>) = late.into_iter().partition(|it| it.0 <= now);
        inner.late = rest;
        for (_, path, bytes, mode) in due {
            let _ = inner.put(&path, bytes, &mode, false);
        }
    }
}

impl Inner {
    fn put(
        &mut self,
        path: &Path,
        bytes: Bytes,
        mode: &PutMode,
        no_conditions: bool,
    ) -> Result<u64> {
        let there = self.objects.get(path).map(|it| it.tag.to_string());
        let refused = match mode {
            PutMode::Overwrite => None,
            PutMode::Create => there.as_ref().map(|_| Error::AlreadyExists {
                path: path.to_string(),
                source: "it is there".into(),
            }),
            PutMode::Update(version) => (there != version.e_tag).then(|| Error::Precondition {
                path: path.to_string(),
                source: "it is another".into(),
            }),
        };
        if let (Some(refused), false) = (refused, no_conditions) {
            return Err(refused);
        }
        self.tags += 1;
        let now = Instant::now();
        if there.is_none() {
            self.history.push((path.clone(), now, None));
        }
        let what = if *mode == PutMode::Overwrite { What::Put } else { What::Swap };
        let len = bytes.len() as u64;
        self.events.push(Event { what, bytes: len });
        self.objects.insert(path.clone(), Object { bytes, tag: self.tags, modified: now });
        Ok(self.tags)
    }
}

struct HandleState {
    rng: Rng,
    faults: Faults,
    /// After this many requests every request fails; whether the last one takes effect.
    dies_after: Option<(u64, bool)>,
    requests: u64,
    denied: u64,
    in_flight: usize,
    in_flight_most: usize,
    at_next_get: Option<Box<dyn FnOnce() + Send>>,
}

impl HandleState {
    /// Decides the fate of the next request.
    fn fate(&mut self) -> Fate {
        self.requests += 1;
        self.denied += u64::from(self.faults.denied);
        let HandleState { rng, faults, dies_after, requests, .. } = self;
        let mut dice = |of_thousand: u32| rng.u32(0..1000) < of_thousand;
        match dies_after {
            Some((last, _)) if *requests > *last => Fate::Unavailable,
            Some((last, done)) if *requests == *last => {
                if *done {
                    Fate::AnswerLost
                } else {
                    Fate::Unavailable
                }
            }
            _ if faults.denied => Fate::Denied,
            _ if dice(faults.unavailable) => Fate::Unavailable,
            _ if dice(faults.answer_lost) => Fate::AnswerLost,
            _ if dice(faults.late) => Fate::Late(Duration::from_millis(rng.u64(1..3000))),
            _ => Fate::Done,
        }
    }
}

pub(crate) struct Handle {
    pub(crate) world: Arc<World>,
    state: Mutex<HandleState>,
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Unavailable,
    Denied,
    AnswerLost,
    Late(Duration),
}

impl Handle {
    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state.lock().unwrap().faults = faults;
    }

    /// Requests that were denied.
    pub(crate) fn denied(&self) -> u64 {
        self.state.lock().unwrap().denied
    }

    pub(crate) fn in_flight_most(&self) -> usize {
        self.state.lock().unwrap().in_flight_most
    }

    /// The request number `request`, counted from now, is the last one; `done` says whether it takes effect.
    pub(crate) fn die_after(&self, request: u64, done: bool) {
        let mut state = self.state.lock().unwrap();
        state.dies_after = Some((state.requests + request, done));
    }

    /// Runs `meanwhile` during the next GET, after its result is determined.
    pub(crate) fn at_next_get(&self, meanwhile: impl FnOnce() + Send + 'static) {
        self.state.lock().unwrap().at_next_get = Some(Box::new(meanwhile));
    }

    async fn begin(&self) -> Fate {
        let (fate, time) = {
            let mut state = self.state.lock().unwrap();
            state.in_flight += 1;
            state.in_flight_most = state.in_flight_most.max(state.in_flight);
            let fate = state.fate();
            let HandleState { rng, faults, .. } = &mut *state;
            let (usual, slow) = faults.latency;
            (fate, if slow > usual && rng.u32(0..100) == 0 { slow } else { usual })
        };
        let _in_flight = InFlight(&self.state);
        if !time.is_zero() {
            sleep(time).await;
        }
        self.world.settle();
        fate
    }

    fn dice(&self, of_thousand: impl Fn(&Faults) -> u32) -> bool {
        let mut state = self.state.lock().unwrap();
        let most = of_thousand(&state.faults);
        state.rng.u32(0..1000) < most
    }

    fn meta(&self, path: &Path, object: &Object) -> ObjectMeta {
        let age = object.modified - self.world.epoch;
        let base = DateTime::<Utc>::from_timestamp(1_700_000_000, 0).unwrap();
        ObjectMeta {
            location: path.clone(),
            last_modified: base + TimeDelta::from_std(age).unwrap(),
            size: object.bytes.len() as u64,
            e_tag: Some(object.tag.to_string()),
            version: None,
        }
    }
}

/// Ends a request also when its future is dropped.
struct InFlight<'a>(&'a Mutex<HandleState>);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().in_flight -= 1;
    }
}

fn denied() -> Error {
    Error::PermissionDenied { path: "a".to_owned(), source: "<Code>AccessDenied</Code>".into() }
}

fn unavailable() -> Error {
    Error::Generic { store: "simulated", source: "503 Slow Down".into() }
}

fn not_requested(what: &str) -> Error {
    Error::NotImplemented { operation: what.to_owned(), implementer: "simulated".to_owned() }
}

fn not_found(path: &Path) -> Error {
    Error::NotFound { path: path.to_string(), source: "no such object".into() }
}

#[async_trait]
impl ObjectStore for Handle {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let bytes: Bytes = payload.into();
        let fate = self.begin().await;
        let (no_conditions, no_updates) = {
            let state = self.state.lock().unwrap();
            let Faults { no_conditions, no_if_match, no_updates, .. } = state.faults;
            let is_update = matches!(options.mode, PutMode::Update(_));
            (no_conditions || no_if_match && is_update, no_updates)
        };
        if no_updates && matches!(options.mode, PutMode::Update(_)) {
            let (operation, implementer) = ("update".to_owned(), "simulated".to_owned());
            return Err(Error::NotImplemented { operation, implementer });
        }
        let put = |inner: &mut Inner| inner.put(path, bytes.clone(), &options.mode, no_conditions);
        match fate {
            Fate::Unavailable => Err(unavailable()),
            Fate::Denied => Err(denied()),
            Fate::Late(by) => {
                let due = Instant::now() + by;
                let mut inner = self.world.inner();
                inner.late.push((due, path.clone(), bytes.clone(), options.mode));
                Err(unavailable())
            }
            Fate::AnswerLost => {
                let _ = put(&mut self.world.inner());
                Err(unavailable())
            }
            Fate::Done => {
                let tag = put(&mut self.world.inner())?;
                Ok(PutResult {
                    e_tag: Some(tag.to_string()),
                    version: None,
                    extensions: Default::default(),
                })
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(not_requested("putting in parts"))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let fate = self.begin().await;
        if fate == Fate::Denied {
            return Err(denied());
        }
        if fate != Fate::Done {
            return Err(unavailable());
        }
        let (meta, mut bytes, range) = {
            let mut inner = self.world.inner();
            let object = inner.objects.get(path).ok_or_else(|| not_found(path))?.clone();
            let meta = self.meta(path, &object);
            let range = match options.range {
                None => 0..meta.size,
                Some(GetRange::Bounded(range)) => range.start..range.end.min(meta.size),
                Some(other) => panic!("a range that is not requested: {other}"),
            };
            let bytes = object.bytes.slice(range.start as usize..range.end as usize);
            let what = What::Get;
            let len = bytes.len() as u64;
            let event = Event { what, bytes: len };
            inner.events.push(event);
            (meta, bytes, range)
        };
        let meanwhile = self.state.lock().unwrap().at_next_get.take();
        meanwhile.into_iter().for_each(|it| it());
        if self.dice(|it| it.truncated) {
            bytes.truncate(bytes.len() / 2);
        }
        if self.dice(|it| it.damaged) && !bytes.is_empty() {
            let mut damaged = bytes.to_vec();
            let at = damaged.len() / 2;
            damaged[at] ^= 1;
            bytes = damaged.into();
        }
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed()),
            meta,
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let world = Arc::clone(&self.world);
        // Decided now, as the stream outlives the borrow; deletes take no time here.
        let fate = self.state.lock().unwrap().fate();
        self.world.settle();
        let delete = move |path: Result<Path>| {
            let path = path?;
            if fate == Fate::Denied {
                return Err(denied());
            }
            if fate == Fate::Unavailable {
                return Err(unavailable());
            }
            let mut inner = world.inner();
            let there = inner.objects.remove(&path).is_some();
            let now = Instant::now();
            let known = inner.history.iter_mut().rev().find(|it| it.0 == path && it.2.is_none());
            if let Some(entry) = known {
                entry.2 = Some(now);
            }
            let what = What::Delete;
            inner.events.push(Event { what, bytes: 0 });
            match (fate, there) {
                (Fate::AnswerLost | Fate::Late(_), _) => Err(unavailable()),
                (_, false) => Err(not_found(&path)),
                _ => Ok(path),
            }
        };
        paths.map(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (fate, behind) = {
            let mut state = self.state.lock().unwrap();
            (state.fate(), state.faults.lists_behind)
        };
        self.world.settle();
        if fate == Fate::Denied {
            return stream::iter([Err(denied())]).boxed();
        }
        if fate != Fate::Done {
            return stream::iter([Err(unavailable())]).boxed();
        }
        let mut inner = self.world.inner();
        let then = Instant::now() - behind;
        let below = |path: &Path| prefix.is_none_or(|prefix| path.prefix_matches(prefix));
        let shown = inner.history.iter().filter(|(path, arrived, went)| {
            below(path) && *arrived <= then && went.is_none_or(|went| went > then)
        });
        let all: Vec<Result<ObjectMeta>> = shown
            .map(|(path, arrived, _)| {
                let deleted = Object { bytes: Bytes::new(), tag: 0, modified: *arrived };
                let object = inner.objects.get(path).unwrap_or(&deleted);
                let modified = object.modified.min(then.max(*arrived));
                Ok(self.meta(path, &Object { modified, ..object.clone() }))
            })
            .collect();
        inner.events.push(Event { what: What::List, bytes: 0 });
        stream::iter(all).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(not_requested("listing by directories"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(not_requested("copying"))
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("simulated store")
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Handle")
    }
}
