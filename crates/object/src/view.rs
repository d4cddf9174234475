//! A view: the pages of one snapshot, for reading.

use std::sync::Arc;

use object_store::path::Path;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::fetch::{data_path, fetch};
use crate::manifest::reread_manifest;
use crate::runtime::Executor;
use crate::snapshot::Snapshot;
use crate::{FileId, PageId};

/// A file in a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Its number.
    pub id: FileId,
    /// Its name.
    pub name: String,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// Whose view it is, which decides what a missing object means.
#[derive(Debug, Clone)]
pub(crate) enum Whose {
    /// The writer's, of this epoch.
    Writer(u32),
    /// A reader's; its lease lasts as long as the token is held.
    Reader { version: u64, _lease: Arc<()> },
}

/// The files and pages of one snapshot, which does not change while others commit. Cheap to clone.
#[derive(Debug, Clone)]
pub struct View {
    pub(crate) client: Arc<Client>,
    pub(crate) runtime: Executor,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) whose: Whose,
}

impl View {
    /// Size of a page, in bytes.
    #[must_use]
    pub fn page_bytes(&self) -> u32 {
        self.snapshot.page_bytes
    }

    /// The file of that name.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<FileId> {
        self.snapshot.file_named(name)
    }

    /// All files, by number.
    #[must_use]
    pub fn files(&self) -> Vec<FileInfo> {
        let info = |(id, file): (&FileId, &Arc<crate::snapshot::FileState>)| FileInfo {
            id: *id,
            name: file.name.to_string(),
            bytes: file.bytes,
        };
        self.snapshot.files.iter().map(info).collect()
    }

    /// Reads pages of `file` from block `first` on until `into` is full; its length is a multiple of the page size.
    /// Blocks that were never written are zeros.
    ///
    /// # Errors
    /// [`Error::Setting`] for another length, and those of [`View::read_pages`].
    pub fn read(&self, file: FileId, first: u32, into: &mut [u8]) -> Result<()> {
        let page = self.page_bytes() as usize;
        let count = into.len() / page;
        if !into.len().is_multiple_of(page) || u64::from(first) + count as u64 > 1 << 32 {
            return Err(Error::Setting {
                setting: "the length of a read",
                value: into.len().to_string(),
                expected: "it should be a multiple of the page size, and end in the file",
            });
        }
        let wanted: Vec<PageId> =
            (0..count as u32).map(|at| PageId { file, block: first + at }).collect();
        self.read_pages(&wanted, &mut |page_id, bytes| {
            let at = (page_id.block - first) as usize * page;
            into[at..at + page].copy_from_slice(bytes);
        })
    }

    /// Reads all of `wanted`, in any order, in as few requests as possible, and passes each page to `deliver`. A page
    /// that was never written is zeros.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: try later. [`Error::Expired`]: the reader's lease ran out. [`Error::Fenced`]: another
    /// writer has taken over. [`Error::Corrupt`], [`Error::Missing`]: the store has lost data.
    pub fn read_pages(
        &self,
        wanted: &[PageId],
        deliver: &mut dyn FnMut(PageId, &[u8]),
    ) -> Result<()> {
        let pages = self.runtime.block_on(self.fetched(wanted))?;
        let zeros = vec![0; self.page_bytes() as usize];
        for (page, bytes) in wanted.iter().zip(pages) {
            deliver(*page, bytes.as_deref().unwrap_or(&zeros));
        }
        Ok(())
    }

    pub(crate) async fn fetched(&self, wanted: &[PageId]) -> Result<Vec<Option<bytes::Bytes>>> {
        match fetch(&self.client, &self.snapshot, wanted).await {
            Err(Error::Missing { path }) => Err(self.missing(path).await),
            done => done,
        }
    }

    /// Why an object is not there: the newest manifest says whether it should be.
    pub(crate) async fn missing(&self, path: Path) -> Error {
        let manifest = match reread_manifest(&self.client).await {
            Ok((manifest, _)) => manifest,
            Err(error) => return error,
        };
        match self.whose {
            Whose::Writer(epoch) if manifest.epoch != epoch => {
                Error::Fenced { epoch, by: manifest.epoch }
            }
            Whose::Reader { version, .. }
                if manifest.objects.iter().all(|it| data_path(&self.client, it.id) != path) =>
            {
                Error::Expired { version }
            }
            _ => Error::Missing { path },
        }
    }
}
