//! Random runs compared with a naive model, which keeps the whole history and does not use journals.
//!
//! For each file the model keeps its state after each change, and which of those states the newest sync covered. A
//! crash image is legal if each of its sectors is that of some state since then, perhaps truncated by a later one, and
//! if its size is one that the file has had since then.

use std::collections::BTreeMap;

use forebay_io::File;
use forebay_sim::{DiskOptions, Image};
use proptest::prelude::*;

use crate::rig::{Rig, SECTOR};

#[derive(Debug, Clone)]
enum Step {
    Create { name: u8 },
    Remove { name: u8 },
    Rename { from: u8, to: u8 },
    Write { name: u8, offset: u16, len: u16 },
    Resize { name: u8, len: u16 },
    Sync { name: u8 },
    SyncNames,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..3_u8;
    prop_oneof![
        2 => name().prop_map(|name| Step::Create { name }),
        1 => name().prop_map(|name| Step::Remove { name }),
        1 => (name(), name()).prop_map(|(from, to)| Step::Rename { from, to }),
        8 => (name(), 0..4000_u16, 1..3000_u16)
            .prop_map(|(name, offset, len)| Step::Write { name, offset, len }),
        2 => (name(), 0..6000_u16).prop_map(|(name, len)| Step::Resize { name, len }),
        3 => name().prop_map(|name| Step::Sync { name }),
        2 => Just(Step::SyncNames),
    ]
}

/// The states of a file, starting with the one that its newest sync covered.
#[derive(Debug, Clone)]
struct History(Vec<Vec<u8>>);

impl History {
    fn now(&self) -> &Vec<u8> {
        self.0.last().unwrap()
    }

    fn allows(&self, bytes: &[u8]) -> bool {
        let size = self.0.iter().any(|state| state.len() == bytes.len());
        let sector = |at: usize| {
            let end = (at + SECTOR).min(bytes.len());
            self.0.iter().enumerate().any(|(index, state)| {
                // Its tail may have been truncated since, and be zeroes from later growth.
                self.0[index..].iter().any(|later| {
                    let mut state = state[..state.len().min(later.len())].to_vec();
                    state.resize(state.len().max(end), 0);
                    state[at..end] == bytes[at..end]
                })
            })
        };
        size && (0..bytes.len()).step_by(SECTOR).all(sector)
    }
}

/// The file that each name refers to.
type Names = BTreeMap<u8, usize>;

/// A change of names.
#[derive(Debug, Clone, Copy)]
enum Renamed {
    Gets { name: u8, file: usize },
    Loses { name: u8 },
    Moves { file: usize, to: u8 },
}

fn renamed(names: &Names, change: Renamed) -> Names {
    let mut names = names.clone();
    match change {
        Renamed::Gets { name, file } => {
            names.insert(name, file);
        }
        Renamed::Loses { name } => {
            names.remove(&name);
        }
        Renamed::Moves { file, to } => {
            names.retain(|_, it| *it != file);
            names.insert(to, file);
        }
    }
    names
}

struct Model {
    files: Vec<(File, History)>,
    /// The names at the newest sync of the directory.
    durable: Names,
    /// The changes since then.
    changes: Vec<Renamed>,
}

impl Model {
    fn now(&self) -> Names {
        self.changes.iter().fold(self.durable.clone(), |names, change| renamed(&names, *change))
    }

    fn take(&mut self, rig: &Rig, step: &Step, number: u8) {
        let path = |name: u8| rig.path(&name.to_string());
        let now = self.now();
        match *step {
            Step::Create { name } => {
                if !now.contains_key(&name) {
                    let file = rig.open(&name.to_string());
                    self.changes.push(Renamed::Gets { name, file: self.files.len() });
                    self.files.push((file, History(vec![Vec::new()])));
                }
            }
            Step::Remove { name } => {
                if now.contains_key(&name) {
                    rig.volume.remove(&path(name)).unwrap();
                    self.changes.push(Renamed::Loses { name });
                }
            }
            Step::Rename { from, to } => {
                if let Some(file) = now.get(&from).filter(|_| from != to) {
                    rig.volume.rename(&path(from), &path(to)).unwrap();
                    self.changes.push(Renamed::Moves { file: *file, to });
                }
            }
            Step::SyncNames => {
                rig.volume.sync_directory(rig.disk.directory()).unwrap();
                self.durable = now;
                self.changes.clear();
            }
            Step::Write { name, .. } | Step::Resize { name, .. } | Step::Sync { name } => {
                if let Some(file) = now.get(&name) {
                    let (file, history) = &mut self.files[*file];
                    change_file(rig, file, history, step, number);
                }
            }
        }
    }

    /// Checks that some subset of the name changes explains the names, and that each file is legal.
    fn check(&self, image: &Image) -> Result<(), TestCaseError> {
        let explains = |subset: u32| {
            let chosen = self.changes.iter().enumerate().filter(|(at, _)| subset & 1 << at != 0);
            let names = chosen.fold(self.durable.clone(), |names, (_, it)| renamed(&names, *it));
            (0..3_u8).all(|name| match (names.get(&name), image.file(name.to_string())) {
                (None, None) => true,
                (Some(file), Some(bytes)) => self.files[*file].1.allows(bytes),
                _ => false,
            })
        };
        let changes = self.changes.len() as u32;
        prop_assert!((0..1_u32 << changes).any(explains), "{:?}", image.files());
        Ok(())
    }
}

fn change_file(rig: &Rig, file: &File, history: &mut History, step: &Step, number: u8) {
    let mut state = history.now().clone();
    match *step {
        Step::Write { offset, len, .. } => {
            let (offset, len) = (usize::from(offset), usize::from(len));
            rig.write(file, offset as u64, &vec![number; len]);
            state.resize(state.len().max(offset + len), 0);
            state[offset..offset + len].fill(number);
        }
        Step::Resize { len, .. } => {
            file.set_len(len.into()).unwrap();
            state.resize(len.into(), 0);
        }
        _ => {
            file.sync_data().unwrap();
            history.0.clear();
        }
    }
    history.0.push(state);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn every_crash_image_is_legal_and_crs_1_crs_2_hold(
        steps in proptest::collection::vec(step(), 1..24),
        seed: u64,
    ) {
        let options = DiskOptions { seed, ..DiskOptions::default() };
        let rig = Rig::boot(&Image::empty(), options);
        let mut model = Model { files: Vec::new(), durable: Names::new(), changes: Vec::new() };
        for (number, step) in steps.iter().enumerate() {
            model.take(&rig, step, number as u8 + 1);
            let (journal, at) = (rig.disk.journal(), rig.disk.position());
            for crash in 0..8 {
                model.check(&journal.crash(at, seed.wrapping_add(crash)))?;
            }
        }
        let journal = rig.disk.journal();
        let mut replay = journal.replay();
        replay.advance_to(journal.len());
        let seen = replay.seen();
        for (name, file) in model.now() {
            prop_assert_eq!(seen.file(name.to_string()), Some(&model.files[file].1.now()[..]));
        }
        prop_assert_eq!(model.now().len(), seen.files().len());
    }
}
