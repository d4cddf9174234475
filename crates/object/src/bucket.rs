//! A bucket: a store and a prefix, where one tablespace is or will be.

use std::sync::Arc;

use object_store::{ObjectStore, PutMode};

use crate::client::{Client, Swap};
use crate::conditions::prove_conditions;
use crate::error::{Error, Result};
use crate::manifest::{manifest_path, read_manifest};
use crate::options::{Options, check_page_bytes};
use crate::reader::Reader;
use crate::runtime::Executor;
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::writer::{Takeover, Writer};

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
