//! Fetching for requests: requests that were submitted together share GETs; each ends when its own pages have arrived.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use forebay_io::OsError;
use forebay_io::backend::{Sink, Transfer};

use super::shared::Shared;
use crate::error::Error;
use crate::fetch::{Fetch, execute, from_tier, plan};
use crate::view::View;
use crate::{FileId, PageId};

/// The state that fetches in progress share.
pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    pub(super) capacity: usize,
    pub(super) sink: Arc<dyn Sink>,
}

/// A page of a read.
pub(super) enum Piece {
    Here(Bytes),
    Wanted(u32),
}

/// Reads that wait for pages.
pub(super) struct Fetching {
    inner: Arc<Inner>,
    reads: Vec<Read>,
    /// The uses of a page: reads, and the page's index in each.
    wanted: BTreeMap<PageId, Vec<(usize, usize)>>,
}

struct Read {
    transfer: Transfer,
    /// `None` for a page that has not arrived.
    pieces: Vec<Option<Bytes>>,
    left: usize,
}

/// Reads whose fetches are in progress.
struct UnderWay {
    inner: Arc<Inner>,
    view: View,
    wanted: Vec<PageId>,
    owners: Vec<Vec<(usize, usize)>>,
    reads: Mutex<Vec<Option<Read>>>,
}

impl Fetching {
    pub(super) fn new(inner: Arc<Inner>) -> Fetching {
        Fetching { inner, reads: Vec::new(), wanted: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, transfer: Transfer, file: FileId, pieces: Vec<Piece>) {
        let read = self.reads.len();
        let mut left = 0;
        let mut fetched = |(at, piece)| match piece {
            Piece::Here(bytes) => Some(bytes),
            Piece::Wanted(block) => {
                left += 1;
                self.wanted.entry(PageId { file, block }).or_default().push((read, at));
                None
            }
        };
        let pieces = pieces.into_iter().enumerate().map(&mut fetched).collect();
        assert!(left > 0, "[OBK-1] a read would wait for nothing, and not end");
        self.reads.push(Read { transfer, pieces, left });
    }

    pub(super) fn start(self) {
        if self.reads.is_empty() {
            return;
        }
        let view = self.inner.shared.view();
        let (wanted, owners): (Vec<PageId>, Vec<_>) = self.wanted.into_iter().unzip();
        let runtime = view.runtime.clone();
        let reads = Mutex::new(self.reads.into_iter().map(Some).collect());
        let plan = plan(&view.client, &view.snapshot, &wanted);
        let under_way = Arc::new(UnderWay { inner: self.inner, view, wanted, owners, reads });
        let mut unwritten = vec![true; under_way.wanted.len()];
        plan.indexes().for_each(|index| unwritten[index] = false);
        let zeros = Bytes::from(vec![0; under_way.view.page_bytes() as usize]);
        let arrived = (0..unwritten.len()).filter(|index| unwritten[*index]);
        under_way.arrived(arrived.map(|index| (index, zeros.clone())).collect());
        for fetch in plan.gets {
            runtime.spawn(Arc::clone(&under_way).get(fetch));
        }
        if !plan.kept.is_empty() {
            runtime.spawn(async move {
                let UnderWay { view, wanted, .. } = &*under_way;
                let (pages, left) =
                    from_tier(&view.client, &view.snapshot, &plan.kept, wanted).await;
                under_way.arrived(pages);
                for fetch in left {
                    tokio::spawn(Arc::clone(&under_way).get(fetch));
                }
            });
        }
    }
}

impl UnderWay {
    async fn get(self: Arc<Self>, fetch: Fetch) {
        let view = &self.view;
        match execute(&view.client, view.page_bytes(), &fetch, &self.wanted).await {
            Ok(pages) => self.arrived(pages),
            Err(error) => {
                let error = match error {
                    Error::Missing { path } => view.missing(path).await,
                    error => error,
                };
                self.fail(fetch.indexes(), &error);
            }
        }
    }

    /// Delivers pages; reads that have all their pages end.
    fn arrived(&self, pages: Vec<(usize, Bytes)>) {
        let mut done = Vec::new();
        {
            let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            for (index, bytes) in pages {
                for (read, at) in &self.owners[index] {
                    // A missing read has already failed because of another of its pages.
                    let Some(own) = &mut reads[*read] else {
                        continue;
                    };
                    own.pieces[*at] = Some(bytes.clone());
                    own.left -= 1;
                    if own.left == 0 {
                        done.extend(reads[*read].take());
                    }
                }
            }
        }
        for mut read in done {
            let moved = fill(&mut read, u64::from(self.view.page_bytes()));
            self.inner.finished(read.transfer, Ok(moved));
        }
    }

    fn fail(&self, indexes: impl Iterator<Item = usize>, error: &Error) {
        let code = self.inner.shared.failed(error);
        let failed: Vec<Read> = {
            let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            let owners = indexes.flat_map(|index| &self.owners[index]);
            owners.filter_map(|(read, _)| reads[*read].take()).collect()
        };
        for read in failed {
            self.inner.finished(read.transfer, Err::<u64, OsError>(code));
        }
    }
}

/// Copies the pages into the buffers of the read; returns the number of bytes.
fn fill(read: &mut Read, page_bytes: u64) -> u64 {
    let (start, remaining) = (read.transfer.position(), read.transfer.remaining());
    let mut skip = (start % page_bytes) as usize;
    let len = read.transfer.file().len().unwrap_or(u64::MAX);
    // Like a read of a file, it ends at the end of the file.
    let mut left = remaining.min(len.saturating_sub(start)) as usize;
    let moved = left as u64;
    let mut slices = read.transfer.slices_mut();
    let mut target = slices.iter_mut().map(|it| &mut **it);
    let mut into = target.next().unwrap_or_default();
    for piece in &read.pieces {
        let piece = piece.as_deref().expect("[OBK-1] all of its pages are there");
        let mut from = &piece[skip.min(piece.len())..];
        skip = 0;
        while !from.is_empty() && left > 0 {
            if into.is_empty() {
                match target.next() {
                    Some(next) => into = next,
                    None => return moved,
                }
            }
            let count = from.len().min(into.len()).min(left);
            let (head, rest) = std::mem::take(&mut into).split_at_mut(count);
            head.copy_from_slice(&from[..count]);
            (into, from) = (rest, &from[count..]);
            left -= count;
        }
    }
    moved - left as u64
}
