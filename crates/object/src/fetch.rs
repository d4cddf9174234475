//! Fetching: from the pages that are wanted to ranged GETs, and back.
//!
//! Pages that are neighbours in an object share a request, up to the size of an object, and a gap is read through
//! where its bytes cost less than another request, within the share that may be wasted. That is the coalescing of
//! `forebay-lookahead`, over slots.
//!
//! Failure: a page whose checksum does not match is read again, twice, since what is damaged on the way is whole in
//!          the store.

use std::ops::Range;

use bytes::Bytes;
use forebay_lookahead::{Costs, Limits, Run, coalesce};
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use object_store::path::Path;

use crate::PageId;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::format::Broken;
use crate::format::object::{ObjectId, slot_bytes, span, verify};
use crate::snapshot::Snapshot;
use crate::stats::count;

/// How often damaged bytes are asked for.
pub(crate) const READS_MAX: u32 = 3;

/// One ranged GET, and what of it is wanted: bytes, and each page's place in the list of wanted ones.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    object: ObjectId,
    range: Range<u64>,
    slots: u32,
    pages: Vec<(Range<u64>, usize)>,
}

impl Fetch {
    /// The places of its pages in the list of wanted ones.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = usize> + '_ {
        self.pages.iter().map(|(_, index)| *index)
    }
}

/// What bounds the requests of a client.
pub(crate) fn limits(client: &Client, page_bytes: u32) -> Limits {
    Limits {
        combine_blocks: (client.options.object_bytes / slot_bytes(page_bytes)).max(1) as u32,
        gap_blocks: Costs::new(client.costs()).gap_blocks(page_bytes),
        over_read_percent: client.options.over_read_percent,
    }
}

/// The requests that fetch `wanted`; what is in none of them was never written.
pub(crate) fn plan(snapshot: &Snapshot, wanted: &[PageId], limits: Limits) -> Result<Vec<Fetch>> {
    let mut places = Vec::with_capacity(wanted.len());
    for (index, page) in wanted.iter().enumerate() {
        places.extend(snapshot.locate(*page)?.map(|(object, slot)| (object, slot, index)));
    }
    places.sort_unstable();
    let mut fetches = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    for group in places.chunk_by(|left, right| left.0 == right.0) {
        let mut slots: Vec<u32> = group.iter().map(|it| it.1).collect();
        slots.dedup();
        let object = group[0].0;
        let ends = snapshot.objects[&object.number].ends.as_deref();
        let range = |first, count| span(ends, snapshot.page_bytes, first, count);
        runs.clear();
        coalesce(&slots, limits, |_| u32::MAX, &mut runs);
        let mut left = group;
        for run in &runs {
            let end = left.partition_point(|it| it.1 < run.first + run.blocks);
            let (own, rest) = left.split_at(end);
            left = rest;
            fetches.push(Fetch {
                object,
                range: range(run.first, run.blocks),
                slots: run.blocks,
                pages: own.iter().map(|it| (range(it.1, 1), it.2)).collect(),
            });
        }
    }
    Ok(fetches)
}

/// Carries out one of them; gives each page with its place in the list of wanted ones.
pub(crate) async fn carry_out(
    client: &Client,
    page_bytes: u32,
    fetch: &Fetch,
    wanted: &[PageId],
) -> Result<Vec<(usize, Bytes)>> {
    let path = data_path(client, fetch.object);
    let within = |at: u64| (at - fetch.range.start) as usize;
    let pages = |bytes: &Bytes| {
        let page = |(slot, index): &(Range<u64>, usize)| {
            let slot = bytes.slice(within(slot.start)..within(slot.end));
            Ok((*index, verify(fetch.object, wanted[*index], page_bytes, &slot)?))
        };
        fetch.pages.iter().map(page).collect::<Result<Vec<_>, Broken>>()
    };
    let pages = get_verified(client, &path, fetch.range.clone(), pages).await?;
    count(&client.counters.pages_read, fetch.pages.len() as u64);
    let over = (fetch.slots as usize).saturating_sub(fetch.pages.len());
    count(&client.counters.pages_over_read, over as u64);
    Ok(pages)
}

/// What `verify` makes of the bytes `range` of a data object; asked for again while it finds them damaged.
pub(crate) async fn get_verified<T>(
    client: &Client,
    path: &Path,
    range: Range<u64>,
    verify: impl Fn(&Bytes) -> Result<T, Broken>,
) -> Result<T> {
    let mut reads = 0;
    loop {
        reads += 1;
        let bytes = client.get_range(path, range.clone()).await?;
        let bytes = bytes.ok_or_else(|| Error::Missing { path: path.clone() })?;
        match verify(&bytes) {
            Ok(verified) => return Ok(verified),
            Err(broken) if reads == READS_MAX => return Err(corrupt(path.clone(), broken)),
            Err(_) => count(&client.counters.retries, 1),
        }
    }
}

/// The bytes of each wanted page; `None` for what was never written.
pub(crate) async fn fetch(
    client: &Client,
    snapshot: &Snapshot,
    wanted: &[PageId],
) -> Result<Vec<Option<Bytes>>> {
    let mut pages = vec![None; wanted.len()];
    let fetches = plan(snapshot, wanted, limits(client, snapshot.page_bytes))?;
    let mut under_way: FuturesUnordered<_> =
        fetches.iter().map(|fetch| carry_out(client, snapshot.page_bytes, fetch, wanted)).collect();
    while let Some(arrived) = under_way.try_next().await? {
        for (index, bytes) in arrived {
            pages[index] = Some(bytes);
        }
    }
    Ok(pages)
}

pub(crate) fn data_path(client: &Client, id: ObjectId) -> Path {
    client.path(&["data", &id.name()])
}

pub(crate) fn corrupt(path: Path, broken: Broken) -> Error {
    match broken {
        Broken::Damaged(what) => Error::Corrupt { path, what },
        Broken::Version(found) => Error::Format { path, found, known: crate::format::VERSION },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;
    use crate::format::manifest::ObjectEntry;
    use crate::format::object::{Compression, Index, IndexRun};

    #[test]
    fn neighbours_in_an_object_share_a_request_whatever_their_files() {
        let mut snapshot = Snapshot::empty(8192);
        let (one, two) = (snapshot.create_file("a").unwrap(), snapshot.create_file("b").unwrap());
        let object = ObjectId { epoch: 1, number: 0 };
        let run = |file: FileId, first, count| IndexRun { file, first, count };
        let runs = [run(one, 10, 5), run(two, 0, 3)];
        let entry =
            ObjectEntry { id: object, bytes: 1, slots: 8, runs: 2, compression: Compression::None };
        snapshot.add_newest(entry, &Index { runs: runs.to_vec(), ends: None });
        let limits = Limits { combine_blocks: 1000, gap_blocks: 32, over_read_percent: 5 };
        let page = |file, block| PageId { file, block };
        let wanted = [page(one, 13), page(one, 14), page(one, 99), page(two, 0)];
        let fetches = plan(&snapshot, &wanted, limits).unwrap();
        let slot = |at: u64| at * 8208..(at + 1) * 8208;
        let pages = vec![(slot(3), 0), (slot(4), 1), (slot(5), 3)];
        let expected = Fetch { object, range: 3 * 8208..6 * 8208, slots: 3, pages };
        assert_eq!(fetches, [expected]);
        // One page in twenty may be wasted: here none.
        let apart = plan(&snapshot, &[page(one, 10), page(two, 2)], limits).unwrap();
        assert_eq!(apart.len(), 2);
        let wasteful = Limits { over_read_percent: 400, ..limits };
        let joined = plan(&snapshot, &[page(one, 10), page(two, 2)], wasteful).unwrap();
        assert_eq!(joined.len(), 1);
    }
}
