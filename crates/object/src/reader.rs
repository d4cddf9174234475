//! A reader: a snapshot of a manifest, refreshed on request.
//!
//! Concurrency: any thread; views of older versions stay valid while they are held.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::format::manifest::Manifest;
use crate::leases::Leases;
use crate::manifest::{read_indexes, read_manifest, reread_manifest};
use crate::runtime::Executor;
use crate::snapshot::Snapshot;
use crate::view::{View, Whose};

/// A tablespace, open for reading at one version.
#[derive(Debug)]
pub struct Reader {
    client: Arc<Client>,
    runtime: Executor,
    leases: Arc<Leases>,
    current: RwLock<View>,
    /// The right to refresh.
    refreshing: AsyncMutex<()>,
    _renewal: Renewal,
}

impl Reader {
    pub(crate) fn open(client: Arc<Client>, runtime: Executor) -> Result<Reader> {
        let leases = Arc::new(Leases::new(Arc::clone(&client)));
        // Protects whatever version is found when the manifest is read ([LEA-1]).
        let any = leases.hold(0);
        let opened = runtime.block_on(async {
            let begun = client.in_one_deadline(async {
                leases.renew().await?;
                let renewal = tokio::spawn(renew(Arc::clone(&client), Arc::clone(&leases)));
                Ok((Renewal(renewal), read_manifest(&client).await?.0))
            });
            let (renewal, manifest) = begun.await?;
            let empty = Snapshot::empty(manifest.page_bytes);
            Ok((advanced(&client, empty, &manifest).await?, manifest.version, renewal))
        });
        let (snapshot, version, renewal) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                drop(any);
                // It would expire anyway, and does if the store does not answer.
                if !Error::is_silence(&error) {
                    let _ = runtime.block_on(leases.renew());
                }
                return Err(error);
            }
        };
        let whose = Whose::Reader { version, _lease: leases.hold(version) };
        drop(any);
        let view = View {
            client: Arc::clone(&client),
            runtime: runtime.clone(),
            snapshot: Arc::new(snapshot),
            whose,
        };
        let current = RwLock::new(view);
        let refreshing = AsyncMutex::default();
        let reader = Reader { client, runtime, leases, current, refreshing, _renewal: renewal };
        reader.runtime.block_on(reader.leases.renew())?;
        Ok(reader)
    }

    /// The pages of the reader's current version. A view keeps its version.
    #[must_use]
    pub fn view(&self) -> View {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The reader's current version.
    #[must_use]
    pub fn version(&self) -> u64 {
        match self.view().whose {
            Whose::Reader { version, .. } => version,
            Whose::Writer(_) => unreachable!("a reader's view is a reader's"),
        }
    }

    /// Moves to the newest version. Returns whether there was a newer one.
    ///
    /// # Errors
    /// Those of [`Bucket::reader`](crate::Bucket::reader); then the reader stays where it is.
    pub fn refresh(&self) -> Result<bool> {
        self.runtime.block_on(async {
            let _alone = self.refreshing.lock().await;
            let before = self.view();
            let (manifest, _) = reread_manifest(&self.client).await?;
            let version = manifest.version;
            let snapshot = Snapshot::clone(&before.snapshot);
            let snapshot = advanced(&self.client, snapshot, &manifest).await?;
            if version < before.snapshot.next_version {
                return Ok(false);
            }
            let whose = Whose::Reader { version, _lease: self.leases.hold(version) };
            let view = View { snapshot: Arc::new(snapshot), whose, ..before };
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = view;
            self.leases.renew().await?;
            Ok(true)
        })
    }

    /// Gives the leases up, so that the writer may delete the objects. The lease of a dropped reader expires.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`].
    pub fn close(self) -> Result<()> {
        let leases = Arc::clone(&self.leases);
        let runtime = self.runtime.clone();
        drop(self);
        runtime.block_on(leases.renew())
    }
}

/// The task that renews the lease while this exists.
#[derive(Debug)]
struct Renewal(JoinHandle<()>);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn renew(client: Arc<Client>, leases: Arc<Leases>) {
    loop {
        sleep(client.options.lease / 3).await;
        if let Err(error) = leases.renew().await {
            tracing::warn!(%error, "a reader's lease could not be renewed");
            if matches!(error, Error::Closed) {
                return;
            }
        }
    }
}

/// Advances `snapshot` to the version of `manifest`.
async fn advanced(
    client: &Client,
    mut snapshot: Snapshot,
    manifest: &Manifest,
) -> Result<Snapshot> {
    let new = read_indexes(client, manifest, &snapshot).await?;
    snapshot.advance(manifest, &new);
    Ok(snapshot)
}
