//! The writer: one at a time, fenced by its epoch.
//!
//! Opening replaces the manifest by one of the next epoch. From then on every manifest that the previous writer
//! puts fails on its condition, since the current manifest is not the one it knows. The previous writer finds that out
//! when it publishes, and loses nothing that it had acknowledged: that is in the manifest which was taken over.
//!
//! Names, sizes and pages change in a snapshot that runs ahead of the manifest. [`Writer::stage`] puts pages into
//! objects that no manifest names yet; [`Writer::publish`] makes all of it durable in one step.
//!
//! Invariants:  [WRT-1] what was acknowledged is in every later manifest, of this writer or another
//!              [WRT-2] an object is deleted only after a manifest without it was published, no lease and no read of
//!              this process needs it, and the grace is over
//!              [WRT-3] after it was fenced a writer publishes nothing
//!              [WRT-4] changed or staged data is published on request only, never by a merge: it may be half of a
//!              checkpoint
//! Concurrency: any thread. `state` is held across requests: it is the right to write.

mod maintain;
mod publish;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use futures_util::stream::{FuturesUnordered, StreamExt};
use object_store::{PutMode, UpdateVersion};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::client::{Client, Swap};
use crate::conditions::prove_conditions;
use crate::error::{Error, Result};
use crate::fetch::data_path;
use crate::format::manifest::{Manifest, ObjectEntry};
use crate::format::object::{Builder, Built, Index, ObjectId, slots_max};
use crate::manifest::{manifest_path, read_indexes, read_manifest};
use crate::op::Op;
use crate::options::{Options, check_page_bytes};
use crate::runtime::Executor;
use crate::snapshot::Snapshot;
use crate::stats::count;
use crate::view::{View, Whose};
use crate::{FileId, PageId};

pub use maintain::Maintained;

/// What to do when another writer has the tablespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takeover {
    /// Fail, and leave the tablespace to the other writer.
    Refuse,
    /// Fence the other writer off: whatever it does from now on is refused, and what it had acknowledged stays.
    Force,
}

/// Objects being put at once, which is also the number of objects in memory.
const PUTS_IN_FLIGHT: usize = 16;

/// How often taking over is tried while other writers do the same.
const TAKEOVERS_MAX: u32 = 10;

/// Writes the bytes of a page that is about to be put.
pub type Fill<'a> = dyn FnMut(PageId, &mut [u8]) -> Result<()> + 'a;

/// A tablespace, open for writing.
pub struct Writer {
    pub(crate) client: Arc<Client>,
    pub(crate) runtime: Executor,
    epoch: u32,
    /// Ahead of the manifest.
    pending: RwLock<Arc<Snapshot>>,
    state: AsyncMutex<State>,
    fenced: OnceLock<Error>,
}

/// Space of a tablespace, in the store and in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Stored bytes of live pages.
    pub live_bytes: u64,
    /// Bytes of objects, including those that wait to be deleted.
    pub stored_bytes: u64,
    /// Bytes of objects that wait to be deleted.
    pub obsolete_bytes: u64,
    /// Objects that are needed.
    pub objects: usize,
    /// Runs in memory, of 16 bytes each.
    pub runs: usize,
}

/// What to publish.
#[derive(Debug, Clone, Copy)]
struct Publish {
    /// Everything, or nothing if the publication of a part was not requested yet ([WRT-4]).
    all: bool,
    /// Whether this writer keeps the tablespace.
    held: bool,
}

struct State {
    base: Base,
    /// Manifests that may have taken effect, or may still: their stamps, and the number of changes that they contain.
    attempts: Vec<(u64, u64)>,
    /// Number of changes that the manifest contains.
    published: u64,
    /// Bytes that may be merged.
    credit: u64,
    /// Objects that may be in the store and that no manifest names.
    strays: Vec<ObjectId>,
    /// Tokens of snapshots that reads may still use.
    old_tokens: Vec<Weak<()>>,
    /// Versions and the times of their publication, oldest first, as far as the grace period needs them.
    published_at: Vec<(u64, Instant)>,
}

/// The manifest that the next one replaces.
struct Base {
    version: u64,
    stamp: u64,
    tag: UpdateVersion,
}

impl Writer {
    pub(crate) fn open(
        client: Arc<Client>,
        runtime: Executor,
        takeover: Takeover,
    ) -> Result<Writer> {
        let opened = runtime.clone();
        opened.block_on(async {
            let taken = client.in_one_deadline(take_over(&client, takeover)).await?;
            let (manifest, base) = taken;
            let epoch = manifest.epoch;
            let mut snapshot = Snapshot::empty(manifest.page_bytes);
            let indexes = read_indexes(&client, &manifest, &snapshot).await?;
            snapshot.advance(&manifest, &indexes);
            let credit = client.options.object_bytes;
            let published = snapshot.changes;
            let writer = Writer {
                client,
                runtime,
                epoch,
                pending: RwLock::new(Arc::new(snapshot)),
                state: AsyncMutex::new(State {
                    base,
                    attempts: Vec::new(),
                    published,
                    credit,
                    strays: Vec::new(),
                    old_tokens: Vec::new(),
                    published_at: Vec::new(),
                }),
                fenced: OnceLock::new(),
            };
            writer.delete_unreferenced().await?;
            Ok(writer)
        })
    }

    /// The writer's epoch: higher than that of any earlier writer.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The current pages, including staged ones.
    #[must_use]
    pub fn view(&self) -> View {
        View {
            client: Arc::clone(&self.client),
            runtime: self.runtime.clone(),
            snapshot: self.snapshot(),
            whose: Whose::Writer(self.epoch),
        }
    }

    /// Makes an empty file. Like all changes of names and sizes, this is durable after the next [`Writer::publish`].
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::Fenced`].
    pub fn create_file(&self, name: &str) -> Result<FileId> {
        self.check()?;
        self.change(|snapshot| snapshot.create_file(name))
    }

    /// Removes a file and its pages.
    ///
    /// # Errors
    /// [`Error::NoFile`], [`Error::Fenced`].
    pub fn remove_file(&self, file: FileId) -> Result<()> {
        self.check()?;
        self.change(|snapshot| snapshot.remove_file(file))
    }

    /// Renames a file; an existing file of that name is removed in the same step.
    ///
    /// # Errors
    /// [`Error::NoFile`], [`Error::Fenced`].
    pub fn rename_file(&self, file: FileId, name: &str) -> Result<()> {
        self.check()?;
        self.change(|snapshot| snapshot.rename_file(file, name))
    }

    /// Sets the size of a file, in bytes. Pages beyond the size are discarded, even if the file grows again.
    ///
    /// # Errors
    /// [`Error::NoFile`], [`Error::Fenced`].
    pub fn set_len(&self, file: FileId, bytes: u64) -> Result<()> {
        self.check()?;
        self.change(|snapshot| snapshot.set_len(file, bytes))
    }

    /// Sets the size of a file to `bytes`, if it exists and is smaller.
    pub(crate) fn grow(&self, file: FileId, bytes: u64) -> Result<()> {
        self.check()?;
        self.change(|snapshot| match snapshot.file(file) {
            Ok(now) if now.bytes < bytes => snapshot.set_len(file, bytes),
            _ => Ok(()),
        })
    }

    /// Puts pages, which ascend by file and block, into objects. Calls `fill` for the bytes of each page, and again for
    /// those of a file that was cut meanwhile and has grown again. Pages are read from the objects from now on, and are
    /// durable after the next [`Writer::publish`].
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`], [`Error::Fenced`], and the error of `fill`; then no page is
    /// staged.
    ///
    /// # Panics
    /// The pages do not ascend.
    pub fn stage(&self, pages: &[PageId], fill: &mut Fill<'_>) -> Result<()> {
        self.runtime.block_on(async {
            let mut state = self.state.lock().await;
            self.put_pages(&mut state, pages, fill).await
        })
    }

    /// Makes all changes and staged pages so far durable, in one step; sends no request if there are none.
    /// Returns the version that has all of it.
    ///
    /// # Errors
    /// [`Error::Fenced`]; [`Error::Unreachable`]: whether it is durable is unknown, and the next call finds out;
    /// [`Error::Refused`].
    pub fn publish(&self) -> Result<u64> {
        self.runtime.block_on(async {
            let mut state = self.state.lock().await;
            self.publish_changes(&mut state, true).await
        })
    }

    /// [`Writer::stage`] and [`Writer::publish`]: a checkpoint.
    ///
    /// # Errors
    /// Those of the two.
    pub fn commit(&self, pages: &[PageId], fill: &mut Fill<'_>) -> Result<u64> {
        self.runtime.block_on(async {
            let mut state = self.state.lock().await;
            self.put_pages(&mut state, pages, fill).await?;
            self.publish_changes(&mut state, true).await
        })
    }

    /// The current space of the tablespace.
    #[must_use]
    pub fn space(&self) -> Space {
        let snapshot = self.snapshot();
        Space {
            live_bytes: snapshot.live_bytes(),
            stored_bytes: snapshot.stored_bytes(),
            obsolete_bytes: snapshot.obsolete.iter().map(|it| it.bytes).sum(),
            objects: snapshot.objects.len(),
            runs: snapshot.runs(),
        }
    }

    /// Publishes the remaining changes and releases the tablespace, so that the next writer need not take over.
    ///
    /// # Errors
    /// Those of [`Writer::publish`].
    pub fn close(self) -> Result<()> {
        self.release()
    }

    pub(crate) fn release(&self) -> Result<()> {
        self.runtime.block_on(async {
            let mut state = self.state.lock().await;
            self.replace_manifest(&mut state, Publish { all: true, held: false }).await?;
            // If the writer was fenced just now, that error stays.
            let _ = self.fenced.set(Error::Closed);
            Ok(())
        })
    }

    /// The last published version.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.runtime.block_on(async { self.state.lock().await.base.version })
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.pending.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Snapshot) -> T) -> T {
        let mut pending = self.pending.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut pending))
    }

    fn check(&self) -> Result<()> {
        self.fenced.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    async fn put_pages(
        &self,
        state: &mut State,
        pages: &[PageId],
        fill: &mut Fill<'_>,
    ) -> Result<()> {
        let mut done = Vec::new();
        let mut left = Cow::Borrowed(pages);
        while !left.is_empty() {
            match self.put_once(state, &left, fill).await {
                Ok(made) => done.extend(made),
                Err(error) => {
                    state.strays.extend(done.iter().map(|(entry, _)| entry.id));
                    return Err(error);
                }
            }
            // It is unknown whether the bytes from `fill` are from before the cut or after it.
            left = Cow::Owned(self.change(|snapshot| snapshot.stage(&done)));
        }
        let dirty: u64 = done.iter().map(|(entry, _)| entry.bytes).sum();
        count(&self.client.counters.bytes_dirty, dirty);
        state.credit = state.credit.saturating_add(2 * dirty);
        Ok(())
    }

    /// Puts pages into objects that no snapshot refers to yet.
    async fn put_once(
        &self,
        state: &mut State,
        pages: &[PageId],
        fill: &mut Fill<'_>,
    ) -> Result<Vec<(ObjectEntry, Index)>> {
        self.check()?;
        let page_bytes = self.snapshot().page_bytes;
        let Options { object_bytes, compression, .. } = self.client.options;
        let most = slots_max(object_bytes, page_bytes) as usize;
        let mut left = pages;
        let objects = std::iter::from_fn(|| {
            let slots = left.len().min(most);
            let mut builder = (slots > 0).then(|| {
                let (id, stamp) = (self.new_object(), self.client.draw());
                Builder::new(id, stamp, page_bytes, slots, compression)
            })?;
            while let [page, rest @ ..] = left
                && builder.has_room(object_bytes)
            {
                left = rest;
                if let Err(error) = builder.push(*page, |bytes| fill(*page, bytes)) {
                    return Some(Err(error));
                }
            }
            Some(Ok(builder.finish()))
        });
        self.put_objects(state, objects).await
    }

    fn new_object(&self) -> ObjectId {
        let number = self.change(|snapshot| {
            snapshot.next_object += 1;
            snapshot.next_object - 1
        });
        ObjectId { epoch: self.epoch, number }
    }

    /// Puts objects as they are made, several at once; returns them in their order. If one fails, those that may have
    /// reached the store are strays.
    async fn put_objects(
        &self,
        state: &mut State,
        objects: impl Iterator<Item = Result<Built>>,
    ) -> Result<Vec<(ObjectEntry, Index)>> {
        let mut done = Vec::new();
        let mut under_way = FuturesUnordered::new();
        let mut failed = None;
        for object in objects {
            let Built { id, bytes, index, slots, compression } = match object {
                Ok(built) => built,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            let (len, runs) = (bytes.len() as u64, index.runs.len() as u32);
            done.push((ObjectEntry { id, bytes: len, slots, runs, compression }, index));
            under_way
                .push(async move { self.client.put(&data_path(&self.client, id), bytes).await });
            if under_way.len() == PUTS_IN_FLIGHT
                && let Some(Err(error)) = under_way.next().await
            {
                failed = Some(error);
                break;
            }
        }
        while let (None, Some(put)) = (&failed, under_way.next().await) {
            failed = put.err();
        }
        match failed {
            None => Ok(done),
            Some(error) => {
                state.strays.extend(done.iter().map(|(entry, _)| entry.id));
                Err(error)
            }
        }
    }
}

/// Takes a tablespace over, and returns its manifest.
async fn take_over(client: &Client, takeover: Takeover) -> Result<(Manifest, Base)> {
    prove_conditions(client).await?;
    let begun = Instant::now();
    let mut lost = None;
    let path = manifest_path(client);
    let mut mine = Vec::new();
    for attempt in 1..=TAKEOVERS_MAX {
        let (found, tag) = read_manifest(client).await?;
        if mine.contains(&found.stamp) {
            // An answer was lost; this manifest is the one that was put.
            let base = Base { version: found.version, stamp: found.stamp, tag };
            return Ok((found, base));
        }
        if found.held && takeover == Takeover::Refuse {
            return Err(Error::Held { epoch: found.epoch });
        }
        check_page_bytes(found.page_bytes, client.options.object_bytes)?;
        // Only the fields about the writer change: all acknowledged data stays ([WRT-1]).
        let stamp = client.draw();
        let mut manifest = found;
        manifest.version += 1;
        manifest.epoch += 1;
        manifest.stamp = stamp;
        manifest.held = true;
        mine.push(stamp);
        let bytes = manifest.encode();
        match client.swap(&path, bytes.into(), PutMode::Update(tag)).await? {
            Swap::Done(tag) => {
                let base = Base { version: manifest.version, stamp, tag };
                return Ok((manifest, base));
            }
            Swap::Lost => lost = None,
            Swap::Unknown(source) => lost = Some(source),
        }
        client.pause(attempt).await;
    }
    if let Some(source) = lost {
        return Err(Client::gave_up(Op::Put, path, TAKEOVERS_MAX, begun.elapsed(), source));
    }
    let (found, _) = read_manifest(client).await?;
    Err(Error::Held { epoch: found.epoch })
}

impl fmt::Debug for Writer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Writer")
            .field("client", &self.client)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}
