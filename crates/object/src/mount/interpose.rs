//! Changes of names and sizes, made here and in the writer's snapshot; syncs, which are commits.

use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};

use forebay_io::{Change, Interpose, OsError, Preallocate};

use super::local::{LocalFile, Number};
use super::shared::Shared;
use crate::FileId;
use crate::error::{Error, Result};

const ENOENT: OsError = OsError::from_raw(2);
const ENAMETOOLONG: OsError = OsError::from_raw(36);

impl Interpose for Shared {
    fn execute(
        &self,
        change: &Change<'_>,
        make: &mut dyn FnMut() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        // Before anything is made here. A sync is allowed for a reader: it has nothing to sync.
        if !matches!(change, Change::Sync { .. } | Change::SyncDirectory { .. }) {
            self.writer()?;
        }
        match change {
            Change::Create { path } => self.create(path, make),
            Change::Remove { path } => {
                let _alone = self.naming();
                let file = self.known(path)?;
                make()?;
                // First in the snapshot: pages staged from a file that is not here are zeros, and must be dead.
                let removed = self.writer()?.remove_file(file);
                self.locals.remove(file);
                self.reported(removed)
            }
            Change::Rename { from, to } => {
                let _alone = self.naming();
                let (file, name) = (self.known(from)?, self.name(to)?);
                let replaced = self.view().file(name).filter(|it| *it != file);
                make()?;
                let renamed = self.writer()?.rename_file(file, name);
                replaced.into_iter().for_each(|it| self.locals.remove(it));
                self.reported(renamed)
            }
            Change::SetLen { file, len } => self.resize(file, *len, make),
            // Space in the store cannot be reserved, and reserved local space would be needed twice.
            Change::Preallocate { mode: Preallocate::Extend | Preallocate::KeepSize, .. } => {
                Err(OsError::EOPNOTSUPP)
            }
            Change::Sync { .. } | Change::SyncDirectory { .. } => self.reported(self.commit()),
            Change::Writeback { .. } => Ok(()),
            // Directories exist only locally; names in the store contain slashes.
            _ => make(),
        }
    }
}

impl Shared {
    fn reported<T>(&self, result: Result<T>) -> Result<T, OsError> {
        result.map_err(|error| self.failed(&error))
    }

    /// The name of a path in the tablespace.
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
        let _alone = self.naming();
        let (name, is_there) = (self.name(path)?, path.exists());
        if is_there && self.view().file(name).is_some() {
            // Another caller was faster: open the file.
            return make();
        }
        let mut made = || {
            make()?;
            // A second descriptor, for the mount; the first is the caller's.
            let opened = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
            let bytes = opened.metadata()?.len();
            let file = self.reported(self.writer()?.create_file(name))?;
            Ok(self.locals.add(file, opened, bytes)?)
        };
        // A file that stayed would be opened the next time as if it were a file of the tablespace: also one that was
        // made and could not be opened, as on filesystems without direct I/O.
        made().inspect_err(|_| _ = (!is_there).then(|| std::fs::remove_file(path)))
    }

    /// The right to change names: here and in the snapshot they change in the same order.
    fn naming(&self) -> MutexGuard<'_, ()> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of that number, if it belongs to the tablespace. Waits for a file that is being made.
    pub(super) fn tracked(&self, number: Number) -> Option<Arc<LocalFile>> {
        self.locals.by_number(number).or_else(|| {
            drop(self.naming());
            self.locals.by_number(number)
        })
    }

    fn resize(
        &self,
        file: &forebay_io::File,
        len: u64,
        make: &mut dyn FnMut() -> Result<(), OsError>,
    ) -> Result<(), OsError> {
        let Some(local) = self.tracked(file.number()) else {
            return make();
        };
        let page = self.locals.page_bytes;
        // The page in which the file ends, before or after, must be zeros beyond the end, in its object as well.
        let (_alone, before) = loop {
            let before = local.bytes();
            let edge = before.min(len);
            let partial = (edge % page != 0 && len != before).then_some(edge / page);
            if let Some(block) = partial {
                self.reported(self.bring_in(&local, block))?;
            }
            let alone = local.io.write().unwrap_or_else(PoisonError::into_inner);
            let is_here = partial.is_none_or(|block| self.locals.lacks(&local, block).is_none());
            if is_here && local.bytes() == before {
                break (alone, before); // [LOC-4]
            }
        };
        make()?;
        self.locals.resized(&local, len);
        match self.writer()?.set_len(local.id, len) {
            // Removed, here as well or about to be: only the system's copy is left.
            Err(Error::NoFile { .. }) => return Ok(()),
            set => self.reported(set)?,
        }
        let edge = before.min(len);
        if edge % page != 0 && len != before {
            self.locals.written(&local, &(edge - 1..edge));
        }
        Ok(())
    }

    /// Fetches a page if it is not present.
    pub(super) fn bring_in(&self, local: &LocalFile, block: u64) -> Result<()> {
        let page = crate::PageId { file: local.id, block: block as u32 };
        while let Some(drops) = self.locals.lacks(local, block) {
            let mut fetched = Ok(());
            let read = self.view().read_pages(&[page], &mut |_, bytes| {
                fetched = self.locals.bring_in(local, block, bytes, drops);
            });
            match read {
                // The thread that removes the file is about to record that here.
                Err(Error::NoFile { .. }) => drop(self.naming()),
                read => read?,
            }
            fetched.map_err(|error| Error::Local {
                path: format!("the local copy of {page}"),
                what: error.to_string(),
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::{Bucket, Mount, Options, Takeover};

    /// Otherwise syncs would acknowledge writes to the file that stayed, and no object would have them.
    #[test]
    fn a_file_that_was_made_and_could_not_be_opened_goes_again() {
        let directory = tempfile::tempdir().unwrap();
        let bucket = Bucket::new(Arc::new(InMemory::new()), "", Options::default()).unwrap();
        bucket.create(4096).unwrap();
        let writer = bucket.writer(Takeover::Refuse).unwrap();
        let mount = Mount::new(writer, directory.path(), 1 << 20).unwrap();
        let path = mount.directory().join("x");
        let made = mount.shared.execute(&Change::Create { path: &path }, &mut || {
            std::fs::write(&path, "").unwrap();
            Err(OsError::EOPNOTSUPP)
        });
        assert_eq!(made, Err(OsError::EOPNOTSUPP));
        assert!(!path.exists());
    }
}
