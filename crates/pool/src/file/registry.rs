//! The registry: which files are open, by number and by name.
//!
//! Concurrency: looked up by whoever evicts or writes a page; changed by opening, closing, dropping.
//!              `names` is also the right to open: a file is opened by one thread at a time.

use std::collections::HashMap;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use forebay_io::{OpenOptions, sync_directory};

use super::segments::{Segments, directory};
use super::{BLOCKS_MAX, FileCore, FileOptions};
use crate::checksum::Checksum;
use crate::error::Error;
use crate::table::PageTable;
use crate::tablespace::Space;
use crate::tag::FileId;

/// A file's tablespace and its name there.
type Name = (Arc<str>, String);

#[derive(Debug, Default)]
pub(crate) struct Files {
    by_id: RwLock<HashMap<FileId, Arc<FileCore>>>,
    names: Mutex<HashMap<Name, FileId>>,
    next: AtomicU32,
}

impl Files {
    pub(crate) fn get(&self, id: FileId) -> Option<Arc<FileCore>> {
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<FileCore>> {
        let mut files: Vec<_> =
            self.by_id.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        files.sort_unstable_by_key(|file| file.id);
        files
    }

    /// Opens the file `name`, or gives the one that is open already.
    pub(crate) fn open(
        &self,
        space: &Arc<Space>,
        name: &str,
        page_bytes: usize,
        checksum: Checksum,
        options: &FileOptions,
    ) -> Result<Arc<FileCore>, Error> {
        check_name(name)?;
        let key = (Arc::clone(&space.name), name.to_owned());
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = names.get(&key).and_then(|id| self.get(*id)) {
            return same(file, checksum, options);
        }
        let file = Arc::new(self.open_new(space, name, page_bytes, checksum, options)?);
        names.insert(key, file.id);
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        by_id.insert(file.id, Arc::clone(&file));
        Ok(file)
    }

    fn open_new(
        &self,
        space: &Arc<Space>,
        name: &str,
        page_bytes: usize,
        checksum: Checksum,
        options: &FileOptions,
    ) -> Result<FileCore, Error> {
        let path = space.directory.join(name);
        let is_new = !path.exists();
        let open = OpenOptions::new().create(options.create).create_new(options.create_new);
        let segments = Segments::open(
            path.clone(),
            page_bytes,
            space.segment_bytes,
            space.cache,
            options.read_only,
            &open,
        )?;
        if is_new {
            sync_directory(directory(&path))?;
        }
        let path: Arc<Path> = path.into();
        let (len, page) = (segments.len()?, page_bytes as u64);
        if !len.is_multiple_of(page) && !options.ignore_partial_page {
            return Err(Error::PartialPage { file: path, len, page_bytes: page });
        }
        if len / page > BLOCKS_MAX {
            return Err(Error::Io(forebay_io::Error::TooLarge { file: path, end: len }));
        }
        Ok(FileCore {
            id: FileId(self.next.fetch_add(1, Ordering::Relaxed)),
            space: Arc::clone(space),
            name: name.to_owned(),
            path,
            table: PageTable::new(),
            checksum,
            zero_pages: options.zero_pages,
            read_only: options.read_only,
            blocks: AtomicU64::new(len / page),
            fate: AtomicU8::new(0),
            segments,
            resize: Mutex::new(()),
        })
    }

    /// Forgets a file that is closed or dropped.
    pub(super) fn forget(&self, file: &FileCore) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (Arc::clone(&file.space.name), file.name.clone());
        if names.get(&key) == Some(&file.id) {
            names.remove(&key);
        }
        self.by_id.write().unwrap_or_else(PoisonError::into_inner).remove(&file.id);
    }
}

/// An open file can be opened again only in the same way.
fn same(
    file: Arc<FileCore>,
    checksum: Checksum,
    options: &FileOptions,
) -> Result<Arc<FileCore>, Error> {
    let differs = [
        (options.create_new, "existence (it was to be made anew)"),
        (file.read_only != options.read_only, "access (read-only or not)"),
        (file.checksum != checksum, "checksum"),
        (file.zero_pages != options.zero_pages, "rule for pages of zeroes"),
    ];
    match differs.into_iter().find(|(differs, _)| *differs) {
        None => Ok(file),
        Some((_, what)) => Err(Error::OpenOtherwise { file: Arc::clone(&file.path), what }),
    }
}

/// A name stays inside its tablespace.
fn check_name(name: &str) -> Result<(), Error> {
    let path = Path::new(name);
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if inside && !name.is_empty() && !name.ends_with('/') && name != crate::directory_lock::NAME {
        return Ok(());
    }
    Err(Error::Setting {
        setting: "the name of a file",
        value: format!("{name:?}"),
        expected: "it should be a relative path inside the tablespace's directory, without `..`"
            .to_owned(),
    })
}
