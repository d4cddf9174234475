//! The registry: which files are open, by number and by location.
//!
//! A file is identified by its device and inode, so that several names of it (`a/b`, `a//b`, links of both kinds, a
//! later rename, or a path through a nested tablespace) do not create two caches of one file. The names under which it
//! was opened are recorded as well: if one refers to another file now, or to none, that is not opened while the first
//! is open.
//!
//! Invariants:  [REG-2] file numbers have 31 bits, and none is used twice
//!              [REG-1] a file on disk is open once in a pool
//!              [REG-3] only one file of one name is open
//! Concurrency: lookups by threads that evict or write a page take a lock of that file; changes are made by opening,
//!              closing and dropping. `places` is also the right to open: only one thread at a time opens files.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use forebay_io::OpenOptions;
use forebay_lookahead::Detector;

use super::disk_file::{DiskFile, directory};
use super::file::{BLOCKS_MAX, FileCore};
use crate::cache::file::CachedFile;
use crate::cache::table::PageTable;
use crate::error::Error;
use crate::store::checksum::Checksum;
use crate::store::codec;
use crate::store::options::FileOptions;
use crate::store::tablespace::Space;
use crate::store::torn::DOUBLE_WRITE_NAME;
use crate::tag::FileId;

#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The open files, in the order of their numbers.
    by_id: RwLock<BTreeMap<FileId, Arc<FileCore>>>,
    /// By number, for every file that was ever opened; each part is twice as long as the one before, and created when
    /// its first file is opened.
    slots: [OnceLock<Box<[FileSlot]>>; PARTS],
    places: Mutex<Places>,
    next: AtomicU32,
}

/// Numbers have 31 bits ([REG-2]).
const PARTS: usize = 31;

/// The state of one file number.
#[derive(Debug, Default)]
struct FileSlot {
    /// The file while it is open. Separate from `by_id`, so that threads which evict pages of different files do not
    /// contend.
    file: RwLock<Option<Arc<FileCore>>>,
    /// The number of its tablespace. A checkpoint that sorts by tablespaces must get the same answer for a file each
    /// time, even if the file has been closed meanwhile.
    tablespace: AtomicU16,
}

/// Device and inode.
type Inode = (u64, u64);

/// The location of each file, and whether more files may be opened.
#[derive(Debug, Default)]
struct Places {
    by_inode: HashMap<Inode, FileId>,
    /// By name, with the real path of the directory.
    by_path: HashMap<PathBuf, FileId>,
    /// The file's entries in the two maps.
    of: HashMap<FileId, (Inode, Vec<PathBuf>)>,
    closed: bool,
}

impl Places {
    /// Records that the file, which has `inode`, was opened as `path`.
    fn note(&mut self, id: FileId, inode: Inode, path: PathBuf) {
        let (_, paths) = self.of.entry(id).or_insert((inode, Vec::new()));
        self.by_inode.insert(inode, id);
        if self.by_path.insert(path.clone(), id) != Some(id) {
            paths.push(path);
        }
    }

    fn forget(&mut self, id: FileId) {
        let Some((inode, paths)) = self.of.remove(&id) else { return };
        self.by_inode.remove(&inode);
        for path in paths {
            // Another file may have been opened under a name that this one had.
            if self.by_path.get(&path) == Some(&id) {
                self.by_path.remove(&path);
            }
        }
    }
}

impl Files {
    /// Prevents any further opening, if no file is open. Decided under the right to open, so that no file is opened in
    /// between.
    pub(crate) fn shut_if_empty(&self) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        places.closed |= by_id.is_empty();
        places.closed
    }

    pub(crate) fn get(&self, id: FileId) -> Option<Arc<FileCore>> {
        self.slot(id)?.file.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn all(&self) -> Vec<Arc<FileCore>> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The first file after that of number `id`, or of all, for which `which` is true.
    pub(crate) fn next_after(
        &self,
        id: Option<FileId>,
        which: impl Fn(&FileCore) -> bool,
    ) -> Option<Arc<FileCore>> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        let after = id.map_or(Bound::Unbounded, Bound::Excluded);
        by_id.range((after, Bound::Unbounded)).map(|(_, file)| file).find(|it| which(it)).cloned()
    }

    /// The number of the tablespace that the file is in, or was in.
    pub(crate) fn tablespace(&self, id: FileId) -> usize {
        self.slot(id).map_or(0, |slot| slot.tablespace.load(Ordering::Relaxed)).into()
    }

    /// The state of that file number, if it was ever assigned.
    fn slot(&self, id: FileId) -> Option<&FileSlot> {
        let (part, place) = place_of(id);
        self.slots.get(part)?.get()?.get(place)
    }

    /// Assigns the file number to `file`, in the tablespace of that number.
    fn set(&self, file: &Arc<FileCore>, tablespace: usize) {
        let (part, place) = place_of(file.id);
        let make = || (0..1 << part).map(|_| FileSlot::default()).collect();
        let slot = &self.slots[part].get_or_init(make)[place];
        slot.tablespace.store(tablespace as u16, Ordering::Relaxed);
        *slot.file.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(file));
        self.by_id
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(file.id, Arc::clone(file));
    }

    /// Opens the file `name` in `space`, the tablespace of that number, or returns the one that is already open.
    pub(crate) fn open(
        &self,
        (number, space): (usize, &Arc<Space>),
        name: &str,
        page_bytes: usize,
        checksum: Checksum,
        options: &FileOptions,
    ) -> Result<Arc<FileCore>, Error> {
        let name = &check_name(name)?;
        check_options(options)?;
        let path = space.directory.join(name);
        let mut places = loop {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            if places.closed {
                return Err(Error::Closed);
            }
            let inode = space.volume.number(&path)?;
            let place = place_of_name(space, &path);
            let known = |id: Option<&FileId>| self.get(*id?);
            let named = known(place.as_ref().and_then(|place| places.by_path.get(place)));
            let found = known(inode.and_then(|inode| places.by_inode.get(&inode)));
            let Some(file) = named.as_ref().or(found.as_ref()).map(Arc::clone) else {
                break places;
            };
            if !matches!(file.check_open_now(), Some(Ok(()))) {
                // Another thread is closing or dropping it: wait until that has ended.
                drop(places);
                file.wait_resized();
                continue;
            }
            if found.is_none_or(|found| found.id != file.id) {
                let (file, read_only) = (Arc::clone(&file.path), file.read_only); // [REG-3]
                return Err(Error::Detached { file, replaced: inode.is_some(), read_only });
            }
            let file = same(file, space, checksum, options)?;
            if let (Some(inode), Some(place)) = (inode, place) {
                places.note(file.id, inode, place);
            }
            return Ok(file);
        };
        let (file, place) = self.open_new(space, name, page_bytes, checksum, options)?;
        let inode = file.disk.inode();
        if places.by_inode.contains_key(&inode) {
            // Its name was just given to a file that is open: look again ([REG-1]).
            drop(places);
            return self.open((number, space), name, page_bytes, checksum, options);
        }
        let file = Arc::new(file);
        places.note(file.id, inode, place);
        self.set(&file, number);
        Ok(file)
    }

    fn open_new(
        &self,
        space: &Arc<Space>,
        name: &str,
        page_bytes: usize,
        checksum: Checksum,
        options: &FileOptions,
    ) -> Result<(FileCore, PathBuf), Error> {
        let path = space.directory.join(name);
        let open = OpenOptions::new().create(options.create).create_new(options.create_new);
        let disk = DiskFile::open(
            &space.volume,
            path.clone(),
            page_bytes,
            space.cache,
            options.read_only,
            &open,
        )?;
        if !options.read_only {
            space.torn.check_support(&disk.file(), page_bytes)?;
        }
        // Also for a file that already existed: the thread that created it may not have reached this point, or the sync
        // may have failed.
        let sync_directory = !options.read_only;
        #[cfg(forebay_bug)]
        let sync_directory = sync_directory && !forebay_io::bug::is_planted("skip_directory_sync");
        if sync_directory {
            space.latched(space.volume.sync_directory(directory(&path)).map_err(Error::Io))?;
        }
        let place = place_of_name(space, &path).unwrap_or_else(|| path.clone());
        let path: Arc<Path> = path.into();
        let (len, page) = (disk.len()?, page_bytes as u64);
        if !len.is_multiple_of(page) && !options.ignore_partial_page {
            return Err(Error::PartialPage { file: path, len, page_bytes: page });
        }
        if len / page > BLOCKS_MAX {
            return Err(Error::Io(forebay_io::Error::TooLarge { file: path, end: len }));
        }
        let id = FileId(self.next.fetch_add(1, Ordering::Relaxed));
        // The highest bit is for checkpoints, see `Pages`.
        assert!(id.0 < 1 << 31, "[REG-2] a pool opens fewer than 2^31 files in its life");
        let file = FileCore {
            cached: CachedFile::new(
                id,
                path,
                PageTable::with_images(space.torn.has_images()),
                len / page,
            ),
            space: Arc::clone(space),
            name: name.to_owned(),
            checksum,
            zero_pages: options.zero_pages,
            codec: options.codec.clone(),
            read_only: options.read_only,
            disk,
            detector: Mutex::new(Detector::default()),
            // A file that was just created, or extended by a process that then crashed, is not durable.
            changes: AtomicU64::new(1),
            changes_synced: AtomicU64::new(0),
        };
        Ok((file, place))
    }

    /// Opens a read-only file again by its name, which may refer to another inode now. Returns its number of pages.
    ///
    /// # Errors
    /// Those of opening. [`Error::OpenOtherwise`] when the name refers to a file that the pool has open under another
    /// name ([REG-1]). The file then stays as it was.
    pub(crate) fn open_again(&self, file: &FileCore) -> Result<u64, Error> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = |inode| places.by_inode.get(&inode).is_none_or(|&id| id == file.id);
        let pages = file.disk.open_again(is_free)?;
        let inode = file.disk.inode();
        if let Some((_, paths)) = places.of.get(&file.id).cloned() {
            places.forget(file.id);
            // Its other names may still refer to the previous inode.
            let volume = &file.space.volume;
            for path in paths {
                if volume.number(&path).is_ok_and(|number| number == Some(inode)) {
                    places.note(file.id, inode, path);
                }
            }
        }
        Ok(pages)
    }

    /// Removes a file that is closed or dropped, after `finish`: until then no thread opens again what still exists
    /// under its name.
    pub(crate) fn forget(
        &self,
        file: &FileCore,
        finish: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let finished = finish();
        file.space.torn.forget(file.id);
        places.forget(file.id);
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).remove(&file.id);
        if let Some(slot) = self.slot(file.id) {
            *slot.file.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        finished
    }
}

/// The part, and the index in it, of the file of that number.
fn place_of(id: FileId) -> (usize, usize) {
    let number = u64::from(id.get()) + 1;
    let part = number.ilog2();
    (part as usize, (number - (1 << part)) as usize)
}

/// The name, with the real path of its directory; `None` if the directory does not exist.
fn place_of_name(space: &Space, path: &Path) -> Option<PathBuf> {
    Some(space.volume.canonicalize(directory(path)).ok()?.join(path.file_name()?))
}

/// Checks that an open file is opened again with the same options.
fn same(
    file: Arc<FileCore>,
    space: &Arc<Space>,
    checksum: Checksum,
    options: &FileOptions,
) -> Result<Arc<FileCore>, Error> {
    if options.create_new {
        let source = forebay_io::OsError::from_raw(17); // EEXIST
        return Err(Error::Io(forebay_io::Error::Open { file: Arc::clone(&file.path), source }));
    }
    let differs = [
        (!Arc::ptr_eq(&file.space, space), "tablespace"),
        (file.read_only != options.read_only, "access (read-only or not)"),
        (file.checksum != checksum, "checksum"),
        (!codec::is_same(file.codec.as_ref(), options.codec.as_ref()), "codec"),
        (file.zero_pages != options.zero_pages, "rule for pages of zeroes"),
    ];
    match differs.into_iter().find(|(differs, _)| *differs) {
        None => Ok(file),
        Some((_, what)) => Err(Error::OpenOtherwise { file: Arc::clone(&file.path), what }),
    }
}

/// Checks that a name stays inside its tablespace, and is not reserved. Returns it without redundant parts.
fn check_name(name: &str) -> Result<String, Error> {
    let refused = |expected: &str| Error::Setting {
        setting: "the name of a file",
        value: format!("{name:?}"),
        expected: expected.to_owned(),
    };
    if name.contains('\0') {
        return Err(refused("it should have no zero byte: no filesystem takes one"));
    }
    let mut parts = Vec::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => parts.extend(part.to_str()),
            Component::CurDir => {}
            _ => {
                return Err(refused(
                    "it should be a relative path inside the tablespace's directory, without `..`",
                ));
            }
        }
    }
    let clean = parts.join("/");
    if clean.is_empty() || name.ends_with('/') {
        return Err(refused("it should name a file inside the tablespace's directory"));
    }
    let own = [crate::store::directory_lock::NAME, DOUBLE_WRITE_NAME];
    if clean.rsplit('/').next().is_some_and(|last| own.contains(&last)) {
        return Err(refused("a file of the pool's own has this name; choose another"));
    }
    Ok(clean)
}

fn check_options(options: &FileOptions) -> Result<(), Error> {
    if options.read_only && (options.create || options.create_new) {
        return Err(Error::Setting {
            setting: "read-only",
            value: "chosen when the file is created".to_owned(),
            expected: "open for reading what exists, or make it for writing".to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BufferPool, Tablespace, TornPages};

    #[test]
    #[cfg_attr(any(loom, shuttle), ignore = "outside a model")]
    fn a_removed_file_stays_in_its_tablespace() {
        let directory = tempfile::tempdir().unwrap();
        let spaces = ["a", "b"].map(|name| Tablespace::new(name, directory.path().join(name)));
        let [a, b] = spaces;
        let builder = BufferPool::builder().frames(8).checksum(Checksum::Off);
        let builder = builder.torn_pages(TornPages::Unprotected);
        let pool = builder.tablespace(a).tablespace(b).build().unwrap();
        let options = FileOptions::new().create(true);
        let files = ["a", "b"]
            .map(|space| pool.open_file("f", &options.clone().tablespace(space)).unwrap());
        let numbers = || files.each_ref().map(|file| file.core().files.tablespace(file.id()));
        assert_eq!(numbers(), [0, 1]);
        files[1].drop_file().unwrap();
        assert_eq!(numbers(), [0, 1], "a checkpoint that has listed its pages sorts by it");
    }

    #[test]
    fn reg_1_a_name_has_one_spelling() {
        for name in ["a/b", "a//b", "./a/b", "a/./b"] {
            assert_eq!(check_name(name).unwrap(), "a/b", "[REG-1] {name}");
        }
    }

    #[test]
    fn names_that_lead_elsewhere_or_are_taken_are_refused() {
        for name in [
            "",
            "/",
            "/etc/passwd",
            "../a",
            "a\0b",
            "a/../../b",
            ".",
            "a/",
            "forebay.lock",
            "in/forebay.lock",
            "forebay.doublewrite",
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("t.1").is_ok());
    }
}
