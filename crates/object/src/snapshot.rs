//! A snapshot: files, their sizes and where each of their pages is, at one moment.
//!
//! A reader has the snapshot of a manifest. The writer has one that runs ahead of its manifest: pages that it has put
//! into objects already, names and sizes that have changed; publishing makes a manifest of it.
//!
//! Invariants:  [SNP-1] an object's count of live pages is the number of blocks that lead to it
//!              [SNP-2] an object moves to `obsolete` when it loses its last page, and is deleted from there only
//!              [SNP-3] an object gets its number before its pages are requested, so that a concurrent cut hides them

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::manifest::{Cut, FileEntry, Manifest, ObjectEntry, Obsolete};
use crate::format::object::Index;
use crate::map::{FileMap, Place};
use crate::{FileId, PageId};

#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) page_bytes: u32,
    pub(crate) files: BTreeMap<FileId, Arc<FileState>>,
    names: BTreeMap<Arc<str>, FileId>,
    /// By number, which is also the order of age.
    pub(crate) objects: BTreeMap<u64, Object>,
    pub(crate) obsolete: Vec<Obsolete>,
    pub(crate) next_object: u64,
    next_file: u32,
    /// The version of the next manifest, at the earliest.
    pub(crate) next_version: u64,
    /// Incremented by each change that a manifest must record.
    pub(crate) changes: u64,
    /// Whether names, sizes or pages have changed since the writer's caller last requested to publish everything: until
    /// then the changes are partial ([WRT-4]). Changes by merging do not count.
    pub(crate) is_partial: bool,
    /// Held by reads that use this snapshot, or a copy of it that has the same token.
    pub(crate) token: Arc<()>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct FileState {
    pub(crate) name: Arc<str>,
    pub(crate) bytes: u64,
    cuts: Vec<Cut>,
    pub(crate) map: FileMap,
}

#[derive(Debug, Clone)]
pub(crate) struct Object {
    pub(crate) entry: ObjectEntry,
    pub(crate) stamp: u64,
    /// Where its slots end, unless all have the same size.
    pub(crate) ends: Option<Arc<[u32]>>,
    /// Pages of it that are not overwritten, cut or removed.
    pub(crate) live: u32,
}

impl Snapshot {
    /// An empty snapshot, to [advance](Snapshot::advance) from.
    pub(crate) fn empty(page_bytes: u32) -> Snapshot {
        Snapshot {
            page_bytes,
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            objects: BTreeMap::new(),
            obsolete: Vec::new(),
            next_object: 0,
            next_file: 0,
            next_version: 1,
            changes: 0,
            is_partial: false,
            token: Arc::default(),
        }
    }

    /// Advances this snapshot to `manifest`, a later one; `new` are its objects that are not in this snapshot, with
    /// their indexes, oldest first. Objects without remaining pages are obsolete from the version after it.
    pub(crate) fn advance(&mut self, manifest: &Manifest, new: &[(ObjectEntry, Arc<Index>)]) {
        let removed: Vec<FileId> = self.files.keys().copied().collect();
        let stays = |id: &FileId| manifest.files.iter().any(|it| it.id == *id);
        for id in removed.into_iter().filter(|id| !stays(id)) {
            self.hide(id, 0);
            self.files.remove(&id);
        }
        for entry in &manifest.files {
            let file = Arc::make_mut(self.files.entry(entry.id).or_default());
            let before = std::mem::replace(&mut file.cuts, entry.cuts.clone());
            file.name = entry.name.as_str().into();
            file.bytes = entry.bytes;
            // A cut that is new here is newer than all objects here.
            for cut in entry.cuts.iter().filter(|cut| !before.contains(cut)) {
                self.hide(entry.id, cut.blocks);
            }
        }
        self.names = self.files.iter().map(|(id, it)| (Arc::clone(&it.name), *id)).collect();
        for (entry, index) in new {
            self.add(*entry, index);
        }
        // An object that is not named any more has no page left: the cuts that hid its pages may have been removed with
        // it.
        let named = |it: u64| manifest.objects.binary_search_by_key(&it, |it| it.id.number).is_ok();
        if self.objects.iter().any(|(number, it)| it.live > 0 && !named(*number)) {
            for file in self.files.values_mut() {
                Arc::make_mut(file).map.retain(named);
            }
        }
        self.objects.retain(|number, _| named(*number));
        self.obsolete.clone_from(&manifest.obsolete);
        self.next_object = manifest.next_object;
        self.next_file = manifest.next_file;
        self.next_version = manifest.version + 1;
        self.retire();
    }

    /// The manifest of this snapshot, the one after `version`.
    pub(crate) fn manifest(&self, version: u64, stamp: u64, epoch: u32, held: bool) -> Manifest {
        let oldest = self.objects.keys().next().copied().unwrap_or(u64::MAX);
        let files = self.files.iter().map(|(id, file)| FileEntry {
            id: *id,
            name: file.name.to_string(),
            bytes: file.bytes,
            // A cut that hides no page of any object is no longer needed.
            cuts: file.cuts.iter().copied().filter(|cut| cut.before > oldest).collect(),
        });
        Manifest {
            version,
            stamp,
            epoch,
            held,
            page_bytes: self.page_bytes,
            next_object: self.next_object,
            next_file: self.next_file,
            files: files.collect(),
            objects: self.objects.values().map(|it| it.entry).collect(),
            obsolete: self.obsolete.clone(),
        }
    }

    pub(crate) fn file(&self, id: FileId) -> Result<&FileState> {
        self.files.get(&id).map(|it| &**it).ok_or_else(|| Error::NoFile { file: id.0.to_string() })
    }

    pub(crate) fn file_named(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    /// The object and slot of a page; `None` if it was never written.
    pub(crate) fn locate(&self, page: PageId) -> Result<Option<(&Object, u32)>> {
        let place = self.file(page.file)?.map.places(page.block, 1).next();
        Ok(place.map(|it| (&self.objects[&it.object], it.slot)))
    }

    pub(crate) fn create_file(&mut self, name: &str) -> Result<FileId> {
        if self.names.contains_key(name) {
            return Err(Error::NameTaken { file: name.to_owned() });
        }
        let id = FileId(self.next_file);
        self.next_file += 1;
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name), id);
        let file = FileState { name, bytes: 0, cuts: Vec::new(), map: FileMap::default() };
        self.files.insert(id, Arc::new(file));
        self.has_changed();
        Ok(id)
    }

    pub(crate) fn remove_file(&mut self, id: FileId) -> Result<()> {
        self.file(id)?;
        self.hide(id, 0);
        let file = self.files.remove(&id).expect("it has just been there");
        self.names.remove(&file.name);
        self.has_changed();
        self.retire();
        Ok(())
    }

    /// Renames a file; an existing file of that name is removed.
    pub(crate) fn rename_file(&mut self, id: FileId, name: &str) -> Result<()> {
        self.file(id)?;
        match self.file_named(name) {
            Some(own) if own == id => return Ok(()),
            Some(other) => self.remove_file(other)?,
            None => {}
        }
        let name: Arc<str> = name.into();
        let file = Arc::make_mut(self.files.get_mut(&id).expect("it has just been there"));
        self.names.remove(&file.name);
        file.name = Arc::clone(&name);
        self.names.insert(name, id);
        self.has_changed();
        Ok(())
    }

    pub(crate) fn set_len(&mut self, id: FileId, bytes: u64) -> Result<()> {
        let before = self.file(id)?.bytes;
        if bytes == before {
            return Ok(());
        }
        Arc::make_mut(self.files.get_mut(&id).expect("it has just been there")).bytes = bytes;
        self.has_changed();
        let blocks = bytes.div_ceil(u64::from(self.page_bytes)).min(u64::from(u32::MAX)) as u32;
        if bytes < before {
            self.hide(id, blocks);
            // Also hides pages of objects that are being put, whose numbers are below the next.
            let cut = Cut { before: self.next_object, blocks };
            let file = Arc::make_mut(self.files.get_mut(&id).expect("it has just been there"));
            // A shorter and later cut hides everything that a longer one does.
            file.cuts.retain(|it| it.blocks < blocks);
            if file.cuts.last().is_none_or(|last| last.before < cut.before) {
                file.cuts.push(cut);
            }
            self.retire();
        }
        Ok(())
    }

    fn has_changed(&mut self) {
        self.changes += 1;
        self.is_partial = true;
    }

    /// Maps the pages of new objects to these objects. But if pages were cut off after their objects got their
    /// numbers, in files that are long enough for them again, it maps none and returns those pages. If a page is in
    /// several objects, the last one counts.
    pub(crate) fn stage(&mut self, objects: &[(ObjectEntry, Index)]) -> Vec<PageId> {
        let mut after = self.clone();
        let mut cut = BTreeSet::new();
        for (entry, index) in objects {
            for run in &index.runs {
                if !cut.is_empty() {
                    let blocks = run.first..run.first + run.count;
                    blocks.for_each(|block| _ = cut.remove(&PageId { file: run.file, block }));
                }
            }
            cut.extend(after.add_newest(*entry, index));
        }
        if cut.is_empty() {
            *self = after;
            self.is_partial = true;
        }
        cut.into_iter().collect()
    }

    /// Maps the pages of a new object, the newest of all. Returns those that are not mapped because they were
    /// cut off after the object got its number, though the file is long enough for them again.
    pub(crate) fn add_newest(&mut self, entry: ObjectEntry, index: &Index) -> Vec<PageId> {
        let mut cut = self.add(entry, index);
        cut.retain(|page| {
            let start = u64::from(page.block) * u64::from(self.page_bytes);
            self.file(page.file).is_ok_and(|file| start < file.bytes)
        });
        self.next_object = self.next_object.max(entry.id.number + 1);
        self.changes += 1;
        self.retire();
        cut
    }

    /// Adds an object; returns the pages that a cut hides.
    fn add(&mut self, entry: ObjectEntry, index: &Index) -> Vec<PageId> {
        let number = entry.id.number;
        self.objects.insert(
            number,
            Object { entry, stamp: index.stamp, ends: index.ends.clone(), live: 0 },
        );
        let Snapshot { files, objects, .. } = self;
        let mut hidden = Vec::new();
        let mut slot = 0;
        for run in &index.runs {
            // The pages of a removed file are dead.
            if let Some(file) = files.get_mut(&run.file) {
                let cuts = file.cuts.iter().filter(|cut| cut.before > number);
                let room = cuts.map(|cut| cut.blocks.saturating_sub(run.first)).min();
                let count = run.count.min(room.unwrap_or(u32::MAX));
                if count > 0 {
                    let place = Place { first: run.first, count, object: number, slot };
                    let freed = |old: u64, count| free(objects, old, count);
                    Arc::make_mut(file).map.set(place, freed);
                    objects.get_mut(&number).expect("just inserted").live += count;
                }
                let cut = run.first + count..run.first + run.count;
                hidden.extend(cut.map(|block| PageId { file: run.file, block }));
            }
            slot += run.count;
        }
        hidden
    }

    /// Removes the blocks from `blocks` on.
    fn hide(&mut self, id: FileId, blocks: u32) {
        let Snapshot { files, objects, .. } = self;
        if let Some(file) = files.get_mut(&id) {
            Arc::make_mut(file).map.cut(blocks, |object, count| free(objects, object, count));
        }
    }

    /// Retires objects without a live page: they are not needed from the next version on ([SNP-2]).
    pub(crate) fn retire(&mut self) {
        let since = self.next_version;
        let Snapshot { objects, obsolete, changes, .. } = self;
        objects.retain(|_, object| {
            if object.live == 0 {
                let ObjectEntry { id, bytes, .. } = object.entry;
                obsolete.push(Obsolete { id, bytes, since });
                *changes += 1;
            }
            object.live > 0
        });
    }

    /// Stored bytes of live pages.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.objects.values().map(|it| it.entry.bytes_of(it.live)).sum()
    }

    /// Bytes of objects, including obsolete ones.
    pub(crate) fn stored_bytes(&self) -> u64 {
        let live: u64 = self.objects.values().map(|it| it.entry.bytes).sum();
        live + self.obsolete.iter().map(|it| it.bytes).sum::<u64>()
    }

    /// Number of runs in memory.
    pub(crate) fn runs(&self) -> usize {
        self.files.values().map(|file| file.map.runs()).sum()
    }
}

fn free(objects: &mut BTreeMap<u64, Object>, number: u64, count: u32) {
    let object =
        objects.get_mut(&number).expect("[SNP-2] a place leads to an object that is there");
    let left = object.live.checked_sub(count);
    object.live = left.expect("[SNP-1] no more pages are freed than are live");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::object::{Compression, IndexRun, ObjectId};

    fn entry(number: u64, runs: &[IndexRun]) -> ObjectEntry {
        let slots = runs.iter().map(|run| run.count).sum();
        let id = ObjectId { epoch: 1, number };
        let compression = Compression::None;
        ObjectEntry { id, bytes: 100, slots, runs: runs.len() as u32, compression }
    }

    fn follow(reader: &mut Snapshot, manifest: &Manifest, indexes: &BTreeMap<u64, Arc<Index>>) {
        let new = manifest.objects.iter().filter(|it| !reader.objects.contains_key(&it.id.number));
        let new: Vec<_> = new.map(|it| (*it, Arc::clone(&indexes[&it.id.number]))).collect();
        reader.advance(manifest, &new);
    }

    proptest! {
        /// A reader that follows manifests and indexes, or opens the newest one, has the same state as the writer.
        #[test]
        fn a_manifest_says_where_every_page_is(
            steps in proptest::collection::vec((0_u8..5, 0_u32..2, 0_u32..60, 1_u32..30), 1..60),
        ) {
            let mut now = Snapshot::empty(4096);
            let mut follower = Snapshot::empty(4096);
            let mut indexes = BTreeMap::new();
            for (at, (what, file, first, count)) in steps.into_iter().enumerate() {
                if at % 7 == 0 {
                    follow(&mut follower, &now.manifest(2, 0, 1, true), &indexes);
                }
                let name = format!("file {file}");
                let Some(id) = now.file_named(&name) else {
                    now.create_file(&name).unwrap();
                    continue;
                };
                match what {
                    0 => now.set_len(id, u64::from(first) * 4096).unwrap(),
                    1 if count > 25 => now.remove_file(id).unwrap(),
                    _ => {
                        let bytes = u64::from(first + count) * 4096;
                        now.set_len(id, now.file(id).unwrap().bytes.max(bytes)).unwrap();
                        let runs = vec![IndexRun { file: id, first, count }];
                        let number = now.next_object;
                        let (entry, index) = (entry(number, &runs), Index { stamp: number, runs, ends: None });
                        now.add_newest(entry, &index);
                        indexes.insert(number, Arc::new(index));
                    }
                }
            }
            let manifest = now.manifest(2, 0, 1, true);
            let mut loaded = Snapshot::empty(4096);
            follow(&mut loaded, &manifest, &indexes);
            follow(&mut follower, &manifest, &indexes);
            for (id, file) in &now.files {
                let places = |map: &FileMap| map.places(0, 200).collect::<Vec<_>>();
                prop_assert_eq!(places(&file.map), places(&loaded.files[id].map));
                prop_assert_eq!(places(&file.map), places(&follower.files[id].map));
            }
            let live = |it: &Snapshot| it.objects.values().map(|it| it.live).collect::<Vec<_>>();
            prop_assert_eq!(live(&now), live(&loaded), "[SNP-1]");
            prop_assert_eq!(live(&now), live(&follower), "[SNP-1]");
            prop_assert_eq!(now.obsolete.len(), loaded.obsolete.len(), "[SNP-2]");
        }
    }
}
