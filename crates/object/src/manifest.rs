//! The manifest of a tablespace, read from its store, and the indexes of the objects that it names.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{StreamExt, TryStreamExt};
use object_store::UpdateVersion;
use object_store::path::Path;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::fetch::{READS_MAX, corrupt, data_path, get_verified};
use crate::format::manifest::{Manifest, ObjectEntry};
use crate::format::object::{Index, decode_tail, tail_bytes};
use crate::snapshot::Snapshot;
use crate::stats::count;

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
