//! Changes of names and sizes, made here and in the writer's snapshot; syncs, which are commits.

use std::path::Path;
use std::sync::PoisonError;

use forebay_io::{Change, Interpose, OsError, Preallocate};

use super::Shared;
use crate::FileId;
use crate::error::{Error, Result};

const ENOENT: OsError = OsError::from_raw(2);
const ENAMETOOLONG: OsError = OsError::from_raw(36);

impl Interpose for Shared {
    fn carry_out(
        &self,
        change: &Change<'_>,
        make: &mut dyn FnMut() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        // Before anything is made here; of what a reader has nothing is to be synced.
        if !matches!(change, Change::Sync { .. } | Change::SyncDirectory { .. }) {
            self.writer()?;
        }
        match change {
            Change::Create { path } => self.create(path, make),
            Change::Remove { path } => {
                let file = self.known(path)?;
                make()?;
                self.locals.remove(file);
                self.told(self.writer()?.remove_file(file))
            }
            Change::Rename { from, to } => {
                let (file, name) = (self.known(from)?, self.name(to)?);
                let replaced = self.view().file(name).filter(|it| *it != file);
                make()?;
                replaced.into_iter().for_each(|it| self.locals.remove(it));
                self.told(self.writer()?.rename_file(file, name))
            }
            Change::SetLen { file, len } => self.resize(file, *len, make),
            // Space in the store cannot be reserved, and here it would be needed twice.
            Change::Preallocate { mode: Preallocate::Extend | Preallocate::KeepSize, .. } => {
                Err(OsError::EOPNOTSUPP)
            }
            Change::Sync { .. } | Change::SyncDirectory { .. } => self.told(self.commit()),
            Change::Writeback { .. } => Ok(()),
            // Directories are where files are; the store knows names with slashes.
            _ => make(),
        }
    }
}

impl Shared {
    fn told<T>(&self, result: Result<T>) -> Result<T, OsError> {
        result.map_err(|error| self.failed(&error))
    }

    /// The name in the tablespace of a path.
    fn name<'p>(&self, path: &'p Path) -> Result<&'p str, OsError> {
        let inside = path.strip_prefix(&self.root).map_err(|_| ENOENT)?;
        inside.to_str().ok_or(ENAMETOOLONG)
    }

    fn known(&self, path: &Path) -> Result<FileId, OsError> {
        self.view().file(self.name(path)?).ok_or(ENOENT)
    }

    fn create(
        &self,
        path: &Path,
        make: &mut dyn FnMut() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        let name = self.name(path)?;
        make()?;
        // A second open, for the mount; the first is the caller's.
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = opened.metadata()?.len();
        let file = self.told(self.writer()?.create_file(name))?;
        Ok(self.locals.add(file, opened, bytes)?)
    }

    fn resize(
        &self,
        file: &forebay_io::File,
        len: u64,
        make: &mut dyn FnMut() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        let Some(local) = self.locals.by_number(file.number()) else {
            return make();
        };
        let page = self.locals.page_bytes;
        let shorter = len < local.bytes();
        if shorter && !len.is_multiple_of(page) {
            // Its rest is cut here, and reads as zeros when the file grows again.
            self.told(self.bring_in(&local, len / page))?;
        }
        {
            let _alone = local.io.write().unwrap_or_else(PoisonError::into_inner);
            make()?;
            self.locals.resized(&local, len);
            if local.is_removed() {
                return Ok(());
            }
            self.told(self.writer()?.set_len(local.id, len))?;
        }
        if shorter && !len.is_multiple_of(page) && local.has(len / page) {
            self.locals.written(&local, &(len - 1..len));
        }
        Ok(())
    }

    /// Fetches a page that is not here, if there is one.
    pub(super) fn bring_in(&self, local: &super::local::LocalFile, block: u64) -> Result<()> {
        let page = crate::PageId { file: local.id, block: block as u32 };
        while let Some(drops) = self.locals.lacks(local, block) {
            let mut fetched = Ok(());
            self.view().read_pages(&[page], &mut |_, bytes| {
                fetched = self.locals.bring_in(local, block, bytes, drops);
            })?;
            fetched.map_err(|error| Error::Local {
                path: format!("the local copy of {page}"),
                what: error.to_string(),
            })?;
        }
        Ok(())
    }
}
