//! Leases: objects that a reader needs are kept while its lease lives.
//!
//! A lease is an empty object whose name says which reader has it, from which version on it needs objects, and how long
//! the lease lasts without renewal. A reader puts it before it reads the manifest, so that whatever it finds is
//! protected, puts it again after a third of that time, and deletes it at the end. The writer lists leases after it has
//! published a manifest and before it deletes objects that the manifest does not need.
//!
//! All times are the store's own: the writer puts a clock object just before it lists the leases, and the age of
//! a lease is how much older it is than that object. So clocks of machines need not agree. A list that is out of date
//! makes leases look younger; [`Options::grace`](crate::Options::grace) covers a lease that the list does not show yet.
//!
//! Invariants:  [LEA-1] from before a reader reads a manifest until it drops the snapshot, a lease of that version or
//!              an earlier one is in the store

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use tokio::sync::Mutex as AsyncMutex;

use crate::client::Client;
use crate::error::Result;

/// The object from whose age the age of leases is computed.
const CLOCK: &str = "clock";

/// Leases that are older than this multiple of their duration are expired.
const FORGOTTEN: u32 = 3;

#[derive(Debug)]
pub(crate) struct Leases {
    client: Arc<Client>,
    id: u64,
    /// Versions that are in use.
    held: Mutex<Vec<(u64, Weak<()>)>>,
    /// Versions of which a lease may be in the store.
    put: AsyncMutex<BTreeSet<u64>>,
}

impl Leases {
    pub(crate) fn new(client: Arc<Client>) -> Leases {
        let id = client.draw();
        Leases { client, id, held: Mutex::default(), put: AsyncMutex::default() }
    }

    /// Objects of `version` and later are needed while the token is held; effective in the store after the next
    /// [`Leases::renew`].
    pub(crate) fn hold(&self, version: u64) -> Arc<()> {
        let token = Arc::new(());
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.push((version, Arc::downgrade(&token)));
        token
    }

    /// Puts the lease of the oldest version in use, and deletes the others.
    pub(crate) async fn renew(&self) -> Result<()> {
        let mut put = self.put.lock().await;
        let oldest = {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.retain(|(_, token)| token.strong_count() > 0);
            held.iter().map(|(version, _)| *version).min()
        };
        if let Some(version) = oldest {
            put.insert(version);
            self.client.put(&self.path(version), Bytes::new()).await?;
        }
        for other in put.clone().into_iter().filter(|it| Some(*it) != oldest) {
            self.client.delete(&self.path(other)).await?;
            put.remove(&other);
        }
        Ok(())
    }

    fn path(&self, version: u64) -> Path {
        let millis = self.client.options.lease.as_millis();
        leases_path(&self.client).join(format!("{:016x}-{version:016x}-{millis}", self.id))
    }
}

/// The oldest version that a reader needs, if there is one.
pub(crate) async fn oldest_needed(client: &Client) -> Result<Option<u64>> {
    let directory = leases_path(client);
    client.put(&directory.clone().join(CLOCK), Bytes::new()).await?;
    let all = client.list(&directory).await?;
    let name = |path: &Path| path.filename().map(str::to_owned).unwrap_or_default();
    let clock = all.iter().find(|it| name(&it.location) == CLOCK).map(|it| it.last_modified);
    let mut oldest = None;
    for lease in &all {
        let Some((version, time)) = parse(&name(&lease.location)) else {
            continue;
        };
        // Without a clock object all leases count.
        let age = clock.map(|now| now - lease.last_modified);
        let age = age.and_then(|age| age.to_std().ok()).unwrap_or_default();
        if age <= time {
            oldest = Some(oldest.map_or(version, |it: u64| it.min(version)));
        } else if age > time * FORGOTTEN {
            client.delete(&lease.location).await?;
        }
    }
    Ok(oldest)
}

fn parse(name: &str) -> Option<(u64, Duration)> {
    let mut parts = name.split('-');
    let _id = parts.next()?;
    let version = u64::from_str_radix(parts.next()?, 16).ok()?;
    let millis = parts.next()?.parse().ok()?;
    Some((version, Duration::from_millis(millis)))
}

fn leases_path(client: &Client) -> Path {
    client.path(&["readers"])
}
