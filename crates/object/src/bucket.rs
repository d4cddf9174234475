//! A bucket: a store and a prefix, where one tablespace is or will be.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, UpdateVersion};

use crate::client::{Client, Swap};
use crate::error::{Error, Result};
use crate::fetch::{READS_MAX, corrupt, data_path, get_verified};
use crate::format::manifest::{Manifest, ObjectEntry};
use crate::format::object::{Index, decode_tail, tail_bytes};
use crate::options::{Options, check_page_bytes};
use crate::reader::Reader;
use crate::runtime::Executor;
use crate::snapshot::Snapshot;
use crate::stats::{Stats, count};
use crate::writer::Writer;

/// Age after which a probe object may be deleted, whichever process put it.
const PROBE_LIFE: Duration = Duration::from_secs(3600);

/// What to do when another writer has the tablespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takeover {
    /// Fail, and leave the tablespace to the other writer.
    Refuse,
    /// Fence the other writer off: whatever it does from now on is refused, and what it had acknowledged stays.
    Force,
}

/// The location of a tablespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Bucket {
    client: Arc<Client>,
    runtime: Executor,
}

impl Bucket {
    /// The tablespace below `prefix`. No request is sent to the store yet. If `store` has its own retries, switch them
    /// off: `options` control retries.
    ///
    /// # Errors
    /// [`Error::Setting`]; [`Error::Local`] for the directory of a local tier that is in use, or not a tier's.
    pub fn new(store: Arc<dyn ObjectStore>, prefix: &str, options: Options) -> Result<Bucket> {
        let runtime = Executor::new(options.runtime.clone())?;
        let client = Arc::new(Client::new(store, prefix, options)?);
        Ok(Bucket { client, runtime })
    }

    /// Makes an empty tablespace of pages of `page_bytes`, a power of two from 512 to 65,536.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotConditional`], [`Error::Setting`]; [`Error::Unreachable`] after one
    /// [`Options::deadline`]; [`Error::Unconnected`], [`Error::Refused`] at once.
    pub fn create(&self, page_bytes: u32) -> Result<()> {
        check_page_bytes(page_bytes, self.client.options.object_bytes)?;
        self.runtime.block_on(self.client.in_one_deadline(self.create_empty(page_bytes)))
    }

    async fn create_empty(&self, page_bytes: u32) -> Result<()> {
        let client = &self.client;
        prove_conditions(client).await?;
        let path = manifest_path(client);
        let stamp = client.draw();
        let manifest = Snapshot::empty(page_bytes).manifest(1, stamp, 0, false).encode();
        for attempt in 1.. {
            let swapped =
                client.swap_known(&path, manifest.clone().into(), PutMode::Create).await?;
            if let Swap::Done(_) = swapped {
                return Ok(());
            }
            match read_manifest(client).await {
                Ok((found, _)) if found.stamp == stamp => return Ok(()),
                Ok(_) => return Err(Error::Exists { path }),
                Err(Error::Absent { .. }) if attempt < 10 => client.pause(attempt).await,
                Err(error) => return Err(error),
            }
        }
        unreachable!("the loop ends by returning")
    }

    /// Opens the tablespace for writing, as the only writer.
    ///
    /// # Errors
    /// [`Error::Absent`]; [`Error::Held`] if another writer has not closed it and `takeover` does not fence that off;
    /// [`Error::NotConditional`], [`Error::Corrupt`], [`Error::Format`]; [`Error::Unreachable`] after one
    /// [`Options::deadline`]; [`Error::Unconnected`], [`Error::Refused`] at once.
    pub fn writer(&self, takeover: Takeover) -> Result<Writer> {
        Writer::open(Arc::clone(&self.client), self.runtime.clone(), takeover)
    }

    /// Opens the tablespace for reading, in its current state. The writer keeps the objects that the reader needs while
    /// the reader is open, and never waits for it.
    ///
    /// # Errors
    /// [`Error::Absent`], [`Error::Corrupt`], [`Error::Format`]; [`Error::Unreachable`] after one
    /// [`Options::deadline`]; [`Error::Unconnected`], [`Error::Refused`] at once, also if a reader may not put its
    /// lease.
    pub fn reader(&self) -> Result<Reader> {
        Reader::open(Arc::clone(&self.client), self.runtime.clone())
    }

    /// Ends the requests of every reader, writer and mount opened here, on all threads, with [`Error::Closed`], and
    /// refuses new ones. What was acknowledged stays; a writer that was not closed before has to be taken over.
    pub fn cancel(&self) {
        self.client.cancel();
    }

    /// The requests to the store so far, of everything opened here.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.client.stats()
    }

    /// The newest failure of the local tier's disk. Reads go to the store instead.
    #[must_use]
    pub fn tier_failure(&self) -> Option<Error> {
        self.client.tier.as_ref()?.failure()
    }
}

pub(crate) fn manifest_path(client: &Client) -> Path {
    client.path(&["manifest"])
}

pub(crate) async fn read_manifest(client: &Client) -> Result<(Manifest, UpdateVersion)> {
    let path = manifest_path(client);
    let mut reads = 0;
    loop {
        reads += 1;
        let Some((bytes, tag)) = client.get(&path).await? else {
            return Err(Error::Absent { path });
        };
        match Manifest::decode(&bytes) {
            Ok(manifest) => return Ok((manifest, tag)),
            Err(broken) if reads == READS_MAX => return Err(corrupt(path, broken)),
            Err(_) => count(&client.counters.retries, 1),
        }
    }
}

/// The same for a tablespace that is open, and therefore has a manifest.
pub(crate) async fn reread_manifest(client: &Client) -> Result<(Manifest, UpdateVersion)> {
    read_manifest(client).await.map_err(|error| match error {
        Error::Absent { path } => Error::Missing { path },
        error => error,
    })
}

/// Reads the indexes of those objects of `manifest` that `snapshot` does not have.
pub(crate) async fn read_indexes(
    client: &Client,
    manifest: &Manifest,
    snapshot: &Snapshot,
) -> Result<Vec<(ObjectEntry, Arc<Index>)>> {
    let new = manifest.objects.iter().filter(|it| !snapshot.objects.contains_key(&it.id.number));
    let index = |entry: ObjectEntry| async move {
        let path = data_path(client, entry.id);
        let tail = tail_bytes(entry.slots, entry.runs, entry.compression);
        let range = entry.bytes.saturating_sub(tail)..entry.bytes;
        let (page_bytes, before) = (manifest.page_bytes, range.start);
        let decode = |bytes: &Bytes| decode_tail(entry.id, page_bytes, entry.slots, before, bytes);
        Ok((entry, Arc::new(get_verified(client, &path, range, decode).await?)))
    };
    let entries: Vec<ObjectEntry> = new.copied().collect();
    let indexes = futures_util::stream::iter(entries).map(index);
    indexes.buffered(client.options.in_flight).try_collect().await
}

/// Refuses a store that does not enforce conditions: two writers could both be acknowledged there.
pub(crate) async fn prove_conditions(client: &Client) -> Result<()> {
    let path = client.path(&["probes", &format!("{:016x}", client.draw())]);
    let proved = try_conditions(client, &path).await;
    let swept = match proved {
        Ok(()) => delete_probes(client, &path).await,
        Err(error) => Err(error),
    };
    match swept {
        // A store that does not answer will not delete the probe either; a later client deletes it.
        Err(error) if error.is_silence() => Err(error),
        swept => swept.and(client.delete(&path).await),
    }
}

/// Deletes probe objects of clients that were killed; `own` has just been put, and its timestamp is the store's time.
async fn delete_probes(client: &Client, own: &Path) -> Result<()> {
    let all = client.list(&client.path(&["probes"])).await?;
    let now = all.iter().find(|it| it.location == *own).map(|it| it.last_modified);
    for probe in &all {
        let age = now.and_then(|now| (now - probe.last_modified).to_std().ok());
        if age.is_some_and(|age| age > PROBE_LIFE) {
            client.delete(&probe.location).await?;
        }
    }
    Ok(())
}

async fn try_conditions(client: &Client, path: &Path) -> Result<()> {
    let refuse = |why: &str| Err(Error::NotConditional { why: why.to_owned() });
    // Repeating a step does not change its outcome, since a lost answer proves nothing.
    client.put(path, "first".into()).await?;
    let Some((_, old)) = client.get(path).await? else {
        return refuse("an object that was put is not there");
    };
    if old.e_tag.is_none() && old.version.is_none() {
        return refuse("its objects have neither an ETag nor a version");
    }
    if let Swap::Done(_) = client.swap_known(path, "created".into(), PutMode::Create).await? {
        return refuse("it creates an object that is there (If-None-Match is ignored)");
    }
    client.put(path, "second".into()).await?;
    if let Swap::Done(_) = client.swap_known(path, "updated".into(), PutMode::Update(old)).await? {
        return refuse("it replaces an object that has changed (If-Match is ignored)");
    }
    // An earlier put whose answer was lost may still take effect and change the object: that is not a refusal.
    for _ in 0..3 {
        let Some((_, new)) = client.get(path).await? else {
            return refuse("an object that was put is not there");
        };
        if let Swap::Done(_) =
            client.swap_known(path, "updated".into(), PutMode::Update(new)).await?
        {
            return Ok(());
        }
        // After an update whose answer was lost, the condition no longer holds.
        if client.get(path).await?.is_some_and(|it| it.0 == "updated") {
            return Ok(());
        }
    }
    refuse("it does not replace an object that has not changed")
}
