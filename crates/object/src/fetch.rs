//! Fetching: from the requested pages to ranged GETs, and back.
//!
//! Pages that are adjacent in an object share a request, up to the size of an object. A gap is read through
//! if its bytes cost less than another request, within the share that may be wasted. The coalescing is that of
//! `forebay-lookahead`, applied to slots.
//!
//! Failure: a page whose checksum does not match is read again, twice, since bytes that were damaged in transit are
//!          intact in the store.

use std::ops::Range;

use bytes::Bytes;
use forebay_lookahead::{Costs, Limits, Run, coalesce};
use futures_util::future::try_join;
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use object_store::path::Path;

use crate::PageId;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::format::Broken;
use crate::format::object::{ObjectId, slot_bytes, span, verify};
use crate::snapshot::Snapshot;
use crate::stats::count;
use crate::tier::{Hit, SlotKey};

/// A request for more than this part of an object counts as one for many pages.
const MANY_PART: u64 = 16;
/// How often damaged bytes are requested.
pub(crate) const READS_MAX: u32 = 3;

/// One ranged GET: its bytes, and each requested page in it with its index in the list of wanted pages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    range: Range<u64>,
    slots: u32,
    /// The requested pages, and the range of each.
    places: Vec<(Place, Range<u64>)>,
}

/// The position of a wanted page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    object: ObjectId,
    key: SlotKey,
    /// Its index in the list of wanted pages.
    index: usize,
}

/// The requests and the tier reads that fetch the wanted pages.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) gets: Vec<Fetch>,
    /// Pages that the local tier has.
    pub(crate) kept: Vec<(Hit, Place)>,
}

impl Fetch {
    /// The indexes of its pages in the list of wanted pages.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = usize> + '_ {
        self.places.iter().map(|(place, _)| place.index)
    }
}

impl Plan {
    /// The indexes in the list of wanted pages of all pages that exist.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = usize> + '_ {
        let kept = self.kept.iter().map(|(_, place)| place.index);
        self.gets.iter().flat_map(Fetch::indexes).chain(kept)
    }
}

/// The limits of a client's requests.
fn limits(client: &Client, page_bytes: u32) -> Limits {
    Limits {
        combine_blocks: (client.options.object_bytes / slot_bytes(page_bytes)).max(1) as u32,
        gap_blocks: Costs::new(client.costs()).gap_blocks(page_bytes),
        over_read_percent: client.options.over_read_percent,
    }
}

/// Plans how to fetch `wanted`; a page that is in no object was never written. Pages in the local tier are read from
/// there, unless that would split a request to the store into several.
pub(crate) fn plan(client: &Client, snapshot: &Snapshot, wanted: &[PageId]) -> Plan {
    let limits = limits(client, snapshot.page_bytes);
    let gets = requests(snapshot, &places(snapshot, wanted), limits);
    let Some(tier) = &client.tier else {
        return Plan { gets, kept: Vec::new() };
    };
    let mut plan = Plan::default();
    for fetch in gets {
        let look_up = |(place, _): &(Place, _)| (tier.find(place.key), *place);
        let found: Vec<_> = fetch.places.iter().map(look_up).collect();
        let left: Vec<Place> = found.iter().filter(|it| it.0.is_none()).map(|it| it.1).collect();
        let mut left = requests(snapshot, &left, limits);
        if left.len() > 1 {
            plan.gets.push(fetch);
        } else {
            plan.gets.append(&mut left);
            plan.kept.extend(found.into_iter().filter_map(|(hit, place)| Some((hit?, place))));
        }
    }
    plan
}

/// The positions of `wanted`, by object and slot. Pages of a file that does not exist have none.
fn places(snapshot: &Snapshot, wanted: &[PageId]) -> Vec<Place> {
    let place = |(index, page): (usize, &PageId)| {
        let (object, slot) = snapshot.locate(*page).ok()??;
        let key = SlotKey { stamp: object.stamp, slot };
        Some(Place { object: object.entry.id, key, index })
    };
    let mut places: Vec<Place> = wanted.iter().enumerate().filter_map(place).collect();
    places.sort_unstable();
    places
}

/// The GETs that fetch `places`, which are sorted.
fn requests(snapshot: &Snapshot, places: &[Place], limits: Limits) -> Vec<Fetch> {
    let mut fetches = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    for group in places.chunk_by(|left, right| left.object == right.object) {
        let mut slots: Vec<u32> = group.iter().map(|it| it.key.slot).collect();
        slots.dedup();
        let ends = snapshot.objects[&group[0].object.number].ends.as_deref();
        let range = |first, count| span(ends, snapshot.page_bytes, first, count);
        runs.clear();
        coalesce(&slots, limits, &mut runs);
        let mut left = group;
        for run in &runs {
            let end = left.partition_point(|it| it.key.slot < run.first + run.blocks);
            let (own, rest) = left.split_at(end);
            left = rest;
            fetches.push(Fetch {
                range: range(run.first, run.blocks),
                slots: run.blocks,
                places: own.iter().map(|it| (*it, range(it.key.slot, 1))).collect(),
            });
        }
    }
    fetches
}

/// Executes one of the fetches; returns each page with its index in the list of wanted pages.
pub(crate) async fn execute(
    client: &Client,
    page_bytes: u32,
    fetch: &Fetch,
    wanted: &[PageId],
) -> Result<Vec<(usize, Bytes)>> {
    let object = fetch.places[0].0.object;
    let path = data_path(client, object);
    let within = |at: u64| (at - fetch.range.start) as usize;
    let pages = |bytes: &Bytes| {
        let page = |(place, slot): &(Place, Range<u64>)| {
            let slot = bytes.slice(within(slot.start)..within(slot.end));
            let page = verify(object, wanted[place.index], page_bytes, &slot)?;
            Ok(((place.index, page), (place.key, slot)))
        };
        fetch.places.iter().map(page).collect::<Result<Vec<_>, Broken>>()
    };
    let verified = get_verified(client, &path, fetch.range.clone(), pages).await?;
    let (pages, slots): (Vec<_>, Vec<_>) = verified.into_iter().unzip();
    count(&client.counters.pages_read, pages.len() as u64);
    let over = (fetch.slots as usize).saturating_sub(pages.len());
    count(&client.counters.pages_over_read, over as u64);
    if let Some(tier) = &client.tier {
        tier.missed(pages.len());
        let many = (fetch.range.end - fetch.range.start) * MANY_PART > client.options.object_bytes;
        tier.admit(page_bytes, many, slots.into_iter());
    }
    Ok(pages)
}

/// Reads pages from the local tier, each with its index in the list of wanted pages; also returns requests for those
/// that cannot be read there undamaged.
pub(crate) async fn from_tier(
    client: &Client,
    snapshot: &Snapshot,
    kept: &[(Hit, Place)],
    wanted: &[PageId],
) -> (Vec<(usize, Bytes)>, Vec<Fetch>) {
    let Some(tier) = client.tier.as_ref().filter(|_| !kept.is_empty()) else {
        return (Vec::new(), Vec::new());
    };
    let hits: Vec<Hit> = kept.iter().map(|it| it.0).collect();
    let mut pages = Vec::with_capacity(kept.len());
    let mut left = vec![true; kept.len()];
    for (at, slot) in tier.slots(&hits).await {
        let (hit, place) = &kept[at];
        match verify(place.object, wanted[place.index], snapshot.page_bytes, &slot) {
            Ok(page) => {
                left[at] = false;
                pages.push((place.index, page));
            }
            Err(Broken::Damaged(what)) => tier.is_damaged(hit, &what),
            Err(Broken::Version(_)) => unreachable!("a slot has no version"),
        }
    }
    tier.has_hit(pages.len());
    let left = kept.iter().zip(left).filter(|it| it.1).map(|it| it.0.1);
    let mut left: Vec<Place> = left.collect();
    left.sort_unstable();
    let limits = limits(client, snapshot.page_bytes);
    (pages, requests(snapshot, &left, limits))
}

/// Reads the bytes `range` of a data object and returns the result of `verify`; reads again while the bytes are
/// damaged.
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

/// The bytes of each wanted page; `None` for a page that was never written.
pub(crate) async fn fetch(
    client: &Client,
    snapshot: &Snapshot,
    wanted: &[PageId],
) -> Result<Vec<Option<Bytes>>> {
    wanted.iter().try_for_each(|it| snapshot.file(it.file).map(drop))?;
    let plan = plan(client, snapshot, wanted);
    let get = async |fetches: &[Fetch]| {
        let gets = fetches.iter().map(|it| execute(client, snapshot.page_bytes, it, wanted));
        gets.collect::<FuturesUnordered<_>>().try_concat().await
    };
    let kept = async {
        let (mut pages, left) = from_tier(client, snapshot, &plan.kept, wanted).await;
        pages.extend(get(&left).await?);
        Ok(pages)
    };
    let (kept, got) = try_join(kept, get(&plan.gets)).await?;
    let mut pages = vec![None; wanted.len()];
    got.into_iter().chain(kept).for_each(|(index, bytes)| pages[index] = Some(bytes));
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
        snapshot.add_newest(entry, &Index { stamp: 5, runs: runs.to_vec(), ends: None });
        let limits = Limits { combine_blocks: 1000, gap_blocks: 32, over_read_percent: 5 };
        let page = |file, block| PageId { file, block };
        let wanted = [page(one, 13), page(one, 14), page(one, 99), page(two, 0)];
        let plan =
            |wanted: &[PageId], limits| requests(&snapshot, &places(&snapshot, wanted), limits);
        let fetches = plan(&wanted, limits);
        let slot = |at: u64| at * 8208..(at + 1) * 8208;
        let place = |at: u32, index| {
            (Place { object, key: SlotKey { stamp: 5, slot: at }, index }, slot(at.into()))
        };
        let places = vec![place(3, 0), place(4, 1), place(5, 3)];
        let expected = Fetch { range: 3 * 8208..6 * 8208, slots: 3, places };
        assert_eq!(fetches, [expected]);
        // A page of a file that was removed meanwhile.
        let missing = page(FileId(99), 0);
        assert_eq!(plan(&[missing, page(one, 13)], limits)[0].indexes().collect::<Vec<_>>(), [1]);
        // One page in twenty may be wasted: here no gap is read.
        let separate = plan(&[page(one, 10), page(two, 2)], limits);
        assert_eq!(separate.len(), 2);
        let wasteful = Limits { over_read_percent: 400, ..limits };
        let joined = plan(&[page(one, 10), page(two, 2)], wasteful);
        assert_eq!(joined.len(), 1);
    }
}
