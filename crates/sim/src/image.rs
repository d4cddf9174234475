//! Images: a tree of directories and files, at rest.
//!
//! The content of a disk when it boots, and the state that a power cut leaves.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) type Entries = BTreeMap<OsString, Tree>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tree {
    Directory(Entries),
    File(Arc<Vec<u8>>),
}

/// Files with their names and bytes. Cheap to clone: bytes are shared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    pub(crate) root: Entries,
}

impl Image {
    /// An empty disk.
    pub fn empty() -> Image {
        Image::default()
    }

    /// Reads the contents of `directory`, recursively.
    ///
    /// # Errors
    /// The system's error; also an error if an entry is neither file nor directory.
    pub fn read_from(directory: &Path) -> io::Result<Image> {
        Ok(Image { root: read_entries(directory)? })
    }

    /// Writes the image into `directory`, which exists and is empty.
    ///
    /// # Errors
    /// The system's error.
    pub fn write_to(&self, directory: &Path) -> io::Result<()> {
        write_entries(&self.root, directory)
    }

    /// The bytes of the file `path`, relative to the root.
    pub fn file(&self, path: impl AsRef<Path>) -> Option<&[u8]> {
        match self.tree(path.as_ref())? {
            Tree::File(bytes) => Some(bytes),
            Tree::Directory(_) => None,
        }
    }

    /// True when `path`, relative to the root, is a file or directory.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.tree(path.as_ref()).is_some()
    }

    /// The paths of all files, relative to the root, in order.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        list(&self.root, Path::new(""), &mut paths);
        paths
    }

    fn tree(&self, path: &Path) -> Option<&Tree> {
        let mut names = path.iter();
        let mut tree = self.root.get(names.next()?)?;
        for name in names {
            tree = inside(tree, name)?;
        }
        Some(tree)
    }
}

fn inside<'t>(tree: &'t Tree, name: &OsStr) -> Option<&'t Tree> {
    match tree {
        Tree::Directory(entries) => entries.get(name),
        Tree::File(_) => None,
    }
}

fn list(entries: &Entries, above: &Path, paths: &mut Vec<PathBuf>) {
    for (name, tree) in entries {
        let path = above.join(name);
        match tree {
            Tree::Directory(entries) => list(entries, &path, paths),
            Tree::File(_) => paths.push(path),
        }
    }
}

fn read_entries(directory: &Path) -> io::Result<Entries> {
    let mut entries = Entries::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let (kind, path) = (entry.file_type()?, entry.path());
        let tree = if kind.is_dir() {
            Tree::Directory(read_entries(&path)?)
        } else if kind.is_file() {
            Tree::File(Arc::new(std::fs::read(&path)?))
        } else {
            let what = format!("{} is neither a file nor a directory", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        entries.insert(entry.file_name(), tree);
    }
    Ok(entries)
}

fn write_entries(entries: &Entries, directory: &Path) -> io::Result<()> {
    for (name, tree) in entries {
        let path = directory.join(name);
        match tree {
            Tree::File(bytes) => std::fs::write(path, &**bytes)?,
            Tree::Directory(entries) => {
                std::fs::create_dir(&path)?;
                write_entries(entries, &path)?;
            }
        }
    }
    Ok(())
}
