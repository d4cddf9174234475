//! Changes of names and sizes, executed and recorded in the journal.
//!
//! Syncs make no system call: the scratch files need not outlive the process, and the journal decides what is durable.

use forebay_io::{Change, DirectFiles, Interpose, OsError, Preallocate};

use crate::disk::{Disk, State};
use crate::fault::{Fault, What};
use crate::journal::{ContentEvent, Entry, NameEvent};

/// Two directories are two nodes, and no operation here changes two nodes in one step.
const EXDEV: OsError = OsError::from_raw(18);

type Make<'m> = &'m mut dyn FnMut() -> Result<(), OsError>;

impl Interpose for Disk {
    fn execute(&self, change: &Change<'_>, make: Make<'_>) -> Result<(), OsError> {
        if let Change::Sync { file, .. } = change {
            return self.sync(file);
        }
        let (what, path, len) = match change {
            Change::Create { path } => (What::Create, *path, 0),
            Change::MakeDirectory { path } => (What::MakeDirectory, *path, 0),
            Change::Remove { path } => (What::Remove, *path, 0),
            Change::Rename { from, .. } => (What::Rename, *from, 0),
            Change::SyncDirectory { path } => (What::SyncDirectory, *path, 0),
            Change::SetLen { file, len } => (What::Resize, file.path(), *len),
            Change::Preallocate { file, range, .. } => (What::Resize, file.path(), range.end),
            Change::Writeback { file, range, .. } => {
                (What::Writeback, file.path(), range.end.saturating_sub(range.start))
            }
            other => panic!("the disk knows no {other:?}"),
        };
        let since = self.position();
        if let Fault::Fail(error) = self.fault(what, path, 0, len) {
            return Err(error);
        }
        let mut state = self.state();
        match change {
            Change::SetLen { file, len } => {
                make()?;
                let node = state.node(file);
                state.note(node, ContentEvent::Resize { len: *len });
            }
            Change::Preallocate { file, range, mode } => {
                make()?;
                let node = state.node(file);
                if *mode == Preallocate::Extend {
                    state.note(node, ContentEvent::Grow { len: range.end });
                }
            }
            Change::SyncDirectory { path } => match self.directory_node(&state, path) {
                Ok(node) => state.journal.entries.push(Entry::Synced { node, since }),
                // Around this disk everything is durable.
                Err(EXDEV) => {}
                Err(error) => return Err(error),
            },
            Change::Writeback { .. } => {}
            _ => return self.change_names(&mut state, change, make),
        }
        Ok(())
    }

    fn direct_files(&self) -> Option<DirectFiles> {
        self.direct()
    }
}

impl Disk {
    fn change_names(
        &self,
        state: &mut State,
        change: &Change<'_>,
        make: Make<'_>,
    ) -> Result<(), OsError> {
        let (directory, event) = match change {
            Change::Create { path } | Change::MakeDirectory { path } => {
                let is_directory = matches!(change, Change::MakeDirectory { .. });
                let (directory, name) = self.place(state, path)?;
                make()?;
                let node = state.born(path, is_directory)?;
                state.entries_of(directory).insert(name.clone(), node);
                (directory, NameEvent::Link { name, node, is_directory })
            }
            Change::Remove { path } => {
                let (directory, name) = self.place(state, path)?;
                make()?;
                state.entries_of(directory).remove(&name);
                (directory, NameEvent::Unlink { name })
            }
            Change::Rename { from, to } => {
                let (directory, from) = self.place(state, from)?;
                let (other, to) = self.place(state, to)?;
                if directory != other {
                    return Err(EXDEV);
                }
                make()?;
                let names = state.entries_of(directory);
                let node = names.remove(&from).expect("what was renamed has been there");
                names.insert(to.clone(), node);
                (directory, NameEvent::Rename { to, node })
            }
            other => panic!("the disk knows no {other:?}"),
        };
        state.journal.entries.push(Entry::Names { directory, event });
        Ok(())
    }
}
