//! The oracle: which states of a tablespace a recovery may find.
//!
//! Each commit changes some pages, sizes and names; the oracle keeps the whole tablespace as it was last
//! acknowledged, and as it would be after the commit in progress. Recovery must find one of these two, all of it.

use std::collections::BTreeMap;

use fastrand::Rng;
use forebay_object::{FileId, Result, View, Writer};

use super::pages::{PAGE, commit, pages, states};

/// The state of each page of each file, by name.
pub(crate) type Whole = BTreeMap<String, Vec<u64>>;

const BLOCKS_MAX: u32 = 60;

/// Changes a tablespace at random, and keeps its expected contents.
pub(crate) struct Life {
    rng: Rng,
    pub(crate) now: Whole,
    ids: BTreeMap<String, FileId>,
    state: u64,
}

impl Life {
    /// Continues from the contents of `view`, with states from `state` on.
    pub(crate) fn new(seed: u64, view: &View, state: u64) -> Result<Life> {
        let ids = view.files().into_iter().map(|it| (it.name, it.id)).collect();
        Ok(Life { rng: Rng::with_seed(seed), now: whole(view)?, ids, state })
    }

    /// Changes names and sizes, then pages.
    pub(crate) fn step(&mut self, writer: &Writer) -> Result<()> {
        self.state += 1;
        let name = format!("file {}", self.rng.u32(0..3));
        let Some(id) = self.ids.get(&name).copied() else {
            let id = writer.create_file(&name)?;
            self.ids.insert(name.clone(), id);
            self.now.insert(name, Vec::new());
            return self.commit(writer);
        };
        let blocks = self.now[&name].len() as u32;
        match self.rng.u32(0..20) {
            0 => {
                writer.remove_file(id)?;
                self.now.remove(&name);
                self.ids.remove(&name);
            }
            1 => {
                let other = format!("file {}", self.rng.u32(0..3));
                writer.rename_file(id, &other)?;
                let content = self.now.remove(&name).unwrap();
                self.ids.remove(&name);
                self.now.insert(other.clone(), content);
                self.ids.insert(other, id);
            }
            2 | 3 => self.resize(writer, &name, id, self.rng.clone().u32(0..=blocks))?,
            4..8 if blocks < BLOCKS_MAX => {
                let more = self.rng.u32(1..=BLOCKS_MAX - blocks);
                self.resize(writer, &name, id, blocks + more)?;
            }
            _ => {}
        }
        self.commit(writer)
    }

    fn resize(&mut self, writer: &Writer, name: &str, id: FileId, blocks: u32) -> Result<()> {
        self.rng.u32(..);
        writer.set_len(id, u64::from(blocks) * PAGE as u64)?;
        self.now.get_mut(name).unwrap().resize(blocks as usize, 0);
        Ok(())
    }

    fn commit(&mut self, writer: &Writer) -> Result<()> {
        let mut dirty = Vec::new();
        for (name, content) in &mut self.now {
            let id = self.ids[name];
            let share = self.rng.u32(1..10);
            for (block, state) in content.iter_mut().enumerate() {
                if self.rng.u32(0..10) < share {
                    *state = self.state;
                    dirty.extend(pages(id, [block as u32]));
                }
            }
        }
        dirty.sort_unstable();
        commit(writer, &dirty, self.state)?;
        Ok(())
    }
}

/// All pages of all files.
pub(crate) fn whole(view: &View) -> Result<Whole> {
    let one = |it: forebay_object::FileInfo| {
        let blocks = (it.bytes / PAGE as u64) as u32;
        Ok((it.name, states(view, it.id, blocks)?))
    };
    view.files().into_iter().map(one).collect()
}
