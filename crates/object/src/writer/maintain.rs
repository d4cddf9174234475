//! Maintenance: merges objects with many dead pages, and deletes objects that nothing needs.
//!
//! Run it between checkpoints, on a thread that has the time: a merge reads and puts as much as it merges. An object is
//! deleted in three steps: a manifest without it is published; the leases of readers, listed after that, need no
//! version before it, and the reads of this process that began before have ended; then the object is deleted ([WRT-2]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use tokio::time::{Instant, sleep};

use super::{Publish, State, Writer};
use crate::PageId;
use crate::error::{Error, Result};
use crate::fetch::{data_path, get_verified};
use crate::format::manifest::ObjectEntry;
use crate::format::object::{Builder, Built, ObjectId, decode_tail, span, tail_bytes, verify};
use crate::leases::oldest_needed;
use crate::merge::{Candidate, Limits, choose};
use crate::snapshot::Snapshot;
use crate::stats::count;

/// How long deleting waits for reads of this process that began before, the first time.
const READS_PATIENCE: Duration = Duration::from_secs(2);

/// The results of maintenance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintained {
    /// Objects merged into others.
    pub merged: usize,
    /// Objects deleted.
    pub deleted: usize,
    /// Objects that only readers at older versions need, or that are in their grace period.
    pub waiting: usize,
}

impl Writer {
    /// Merges objects with many dead pages and deletes objects that are not needed. If names, sizes or staged pages
    /// wait to be published, the merges are published with them.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Fenced`], [`Error::Refused`], [`Error::Corrupt`]; steps that were completed
    /// stay.
    pub fn maintain(&self) -> Result<Maintained> {
        self.runtime.block_on(async {
            let mut done = Maintained::default();
            loop {
                // The lock is released between steps, so that commits can run.
                let mut state = self.state.lock().await;
                self.delete_obsolete(&mut state, &mut done).await?;
                let merged = self.merge(&mut state).await?;
                done.merged += merged;
                if merged == 0 {
                    done.waiting = self.snapshot().obsolete.len();
                    return Ok(done);
                }
            }
        })
    }

    async fn delete_obsolete(&self, state: &mut State, done: &mut Maintained) -> Result<()> {
        self.publish_changes(state, false).await?;
        if self.snapshot().obsolete.iter().any(|it| it.since > state.base.version) {
            self.replace_manifest(state, Publish { all: false, held: true }).await?;
        }
        let now = Instant::now();
        let grace = self.client.options.grace;
        // When objects became obsolete before this was opened is unknown: they count from the opening.
        let ripe = state.published_at.iter().rposition(|it| now - it.1 >= grace);
        // Versions older than the newest one that is old enough are no longer needed.
        state.published_at.drain(..ripe.unwrap_or_default());
        let ripe = ripe.map_or(0, |_| state.published_at[0].0);
        let published = state.base.version.min(ripe);
        if !self.snapshot().obsolete.iter().any(|it| it.since <= published) {
            return self.delete_strays(state).await;
        }
        // After the publishing: a client that reads a manifest from now on does not find these objects in it.
        let needed = oldest_needed(&self.client).await?.unwrap_or(u64::MAX);
        let obsolete: Vec<ObjectId> = {
            let snapshot = self.snapshot();
            let free = snapshot.obsolete.iter().filter(|it| it.since <= published.min(needed));
            free.map(|it| it.id).collect()
        };
        if obsolete.is_empty() || !self.reads_have_ended(state).await {
            return self.delete_strays(state).await;
        }
        self.delete_all(&obsolete).await?;
        done.deleted += obsolete.len();
        self.change(|snapshot| snapshot.obsolete.retain(|it| !obsolete.contains(&it.id)));
        self.delete_strays(state).await
    }

    async fn delete_strays(&self, state: &mut State) -> Result<()> {
        let strays = std::mem::take(&mut state.strays);
        let deleted = self.delete_all(&strays).await;
        if deleted.is_err() {
            state.strays = strays;
        }
        deleted
    }

    async fn delete_all(&self, ids: &[ObjectId]) -> Result<()> {
        let paths: Vec<_> = ids.iter().map(|id| data_path(&self.client, *id)).collect();
        let deletes: FuturesUnordered<_> =
            paths.iter().map(|path| self.client.delete(path)).collect();
        deletes.try_collect::<()>().await
    }

    /// Waits until no read of this process uses an earlier snapshot; not for long, as commits wait meanwhile.
    async fn reads_have_ended(&self, state: &mut State) -> bool {
        if state.old_tokens.iter().any(|token| token.strong_count() > 0) {
            return false;
        }
        let old = self.change(|snapshot| std::mem::take(&mut snapshot.token));
        state.old_tokens.push(Arc::downgrade(&old));
        drop(old);
        let begun = Instant::now();
        loop {
            state.old_tokens.retain(|token| token.strong_count() > 0);
            if state.old_tokens.is_empty() {
                return true;
            }
            if begun.elapsed() >= READS_PATIENCE {
                return false;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// One step of merging; returns how many objects were merged.
    async fn merge(&self, state: &mut State) -> Result<usize> {
        let snapshot = self.snapshot();
        let limits =
            Limits { object_bytes: self.client.options.object_bytes, credit: state.credit };
        let objects = snapshot.objects.values();
        let candidates: Vec<Candidate> =
            objects.map(|it| Candidate { entry: it.entry, live: it.live }).collect();
        let groups = choose(&candidates, limits);
        let mut merged = 0;
        for group in groups {
            let victims: Vec<ObjectEntry> =
                group.iter().map(|number| snapshot.objects[number].entry).collect();
            merged += victims.len();
            let Some(built) = self.build(&victims).await? else { continue };
            let cost = built.bytes.len() as u64;
            // No other task puts pages meanwhile; pages that were cut or removed stay so.
            let made = self.put_objects(state, std::iter::once(Ok(built))).await?;
            count(&self.client.counters.bytes_merged, cost);
            state.credit = state.credit.saturating_sub(cost);
            self.change(|now| {
                for (entry, index) in &made {
                    now.add_newest(*entry, index);
                }
            });
        }
        Ok(merged)
    }

    /// Builds one object of the live pages of `victims`, if there are any left.
    async fn build(&self, victims: &[ObjectEntry]) -> Result<Option<Built>> {
        let id = self.new_object();
        // A snapshot taken after that: cuts from here on hide pages in the object ([SNP-3]).
        let snapshot = &*self.snapshot();
        let reads: FuturesUnordered<_> =
            victims.iter().map(|victim| self.live_pages(snapshot, *victim)).collect();
        let pages: Vec<BTreeMap<PageId, Bytes>> = reads.try_collect().await?;
        let pages: BTreeMap<PageId, Bytes> = pages.into_iter().flatten().collect();
        if pages.is_empty() {
            return Ok(None);
        }
        let compression = self.client.options.compression;
        let stamp = self.client.draw();
        let mut builder = Builder::new(id, stamp, snapshot.page_bytes, pages.len(), compression);
        for (page, from) in &pages {
            builder.push(*page, |bytes| {
                bytes.copy_from_slice(from);
                Ok::<(), Error>(())
            })?;
        }
        Ok(Some(builder.finish()))
    }

    async fn live_pages(
        &self,
        snapshot: &Snapshot,
        victim: ObjectEntry,
    ) -> Result<BTreeMap<PageId, Bytes>> {
        let path = data_path(&self.client, victim.id);
        let live = |bytes: &Bytes| {
            let tail = tail_bytes(victim.slots, victim.runs, victim.compression) as usize;
            let at = bytes.len().saturating_sub(tail);
            let (page_bytes, tail) = (snapshot.page_bytes, &bytes[at..]);
            let index = decode_tail(victim.id, page_bytes, victim.slots, at as u64, tail)?;
            let mut live = BTreeMap::new();
            let blocks = index.runs.iter().flat_map(|run| {
                (run.first..run.first + run.count).map(|block| PageId { file: run.file, block })
            });
            for (at, page) in (0..).zip(blocks) {
                // A removed file has no pages.
                if snapshot
                    .locate(page)
                    .is_ok_and(|it| it.is_some_and(|it| (it.0.entry.id, it.1) == (victim.id, at)))
                {
                    let slot = span(index.ends.as_deref(), snapshot.page_bytes, at, 1);
                    let slot = bytes.slice(slot.start as usize..slot.end as usize);
                    live.insert(page, verify(victim.id, page, snapshot.page_bytes, &slot)?);
                }
            }
            Ok(live)
        };
        match get_verified(&self.client, &path, 0..victim.bytes, live).await {
            Err(Error::Missing { path }) => Err(self.view().missing(path).await),
            done => done,
        }
    }

    /// Deletes objects that earlier writers have put and no manifest names.
    pub(super) async fn delete_unreferenced(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        let base = state.base.version;
        state.published_at.push((base, Instant::now()));
        let snapshot = self.snapshot();
        let all = self.client.list(&self.client.path(&["data"])).await?;
        let named = |id: &ObjectId| {
            snapshot.objects.get(&id.number).is_some_and(|it| it.entry.id == *id)
                || snapshot.obsolete.iter().any(|it| it.id == *id)
        };
        let strays = all
            .iter()
            .filter_map(|it| ObjectId::parse(it.location.filename()?))
            // Objects of a later epoch belong to a writer that has taken over from this one.
            .filter(|id| id.epoch < self.epoch && !named(id));
        state.strays.extend(strays);
        self.delete_strays(&mut state).await
    }
}
