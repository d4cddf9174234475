//! The files that sequential readers read: one for all of them, or one for each.
//!
//! Own files are written one after the other, each whole, like a user's files that are loaded one by one;
//! so a filesystem may place them next to each other or far from each other, and that is part of the measurement.
//! Reader `n` of `r` in the one file has its share from byte `n * size / r` to the next one's, so that fewer
//! readers have larger distances and each has more to read.
//!
//! Invariants:  [RDF-1] no two readers have a byte in common
//! Failure:     the files have no names where the system allows that, and end with the process.

use std::ops::Range;
use std::time::{Duration, Instant};

use forebay_io::{File, OpenOptions, Preallocate};

use super::settings::{BLOCK_BYTES, Files, Settings};
use crate::experiment::samples;
use forebay_measure::coldness::Coldness;
use forebay_measure::interrupt;
use forebay_measure::workfile::{Naming, Workfile};

/// How long pages may stay in the page cache: pages that the kernel still reads ahead cannot be dropped before they
/// have been read, and a slow disk takes long.
const EMPTYING_TIME_MAX: Duration = Duration::from_secs(20);

/// All files of a run.
#[derive(Debug)]
pub(super) struct Library<'a> {
    one: &'a Workfile,
    own: Vec<Workfile>,
    share_bytes: u64,
}

/// The part of one reader.
#[derive(Debug, Clone)]
pub(super) struct Share<'a> {
    pub(super) workfile: &'a Workfile,
    pub(super) range: Range<u64>,
}

impl<'a> Library<'a> {
    /// Makes the readers' own files, in addition to the `one`. `progress` receives the name of each.
    ///
    /// # Errors
    /// [`Interrupted`](interrupt::Interrupted), or what the system said.
    pub(super) fn make(
        one: &'a Workfile,
        settings: &Settings,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Library<'a>> {
        let (count, share_bytes) = (settings.own_files(), settings.share_bytes);
        let mut own = Vec::new();
        for number in 1..=count {
            interrupt::check()?;
            progress(&format!("writing file {number} of {count}"));
            let seed = settings.args.common.seed.wrapping_add(u64::from(number));
            let (directory, naming) = (&settings.args.common.dir, Naming::Nameless);
            let mut file = Workfile::create(directory, share_bytes, BLOCK_BYTES, seed, naming)?;
            if let Some(spacing) = settings.args.spacing {
                let reserved = File::open(file.path(), &OpenOptions::new())?;
                reserved.preallocate(0..spacing, Preallocate::Extend)?;
            }
            file.fill(|_| ())?;
            own.push(file);
        }
        Ok(Library { one, own, share_bytes })
    }

    /// The part of each of `readers`.
    pub(super) fn shares(&self, files: Files, readers: u32) -> Vec<Share<'_>> {
        let own = self.own.iter().map(|workfile| (workfile, 0..self.share_bytes));
        let one = ranges(self.one.size_bytes, readers).into_iter();
        let shares: Vec<_> = match files {
            Files::Own => own.take(readers as usize).collect(),
            Files::One => one.map(|range| (self.one, range)).collect(),
        };
        assert_eq!(shares.len(), readers as usize, "[RDF-1] a share for each reader");
        shares.into_iter().map(|(workfile, range)| Share { workfile, range }).collect()
    }

    /// All files: the page cache of all is emptied, so that none takes memory from another either.
    pub(super) fn all(&self) -> impl Iterator<Item = &Workfile> {
        std::iter::once(self.one).chain(&self.own)
    }
}

/// Empties the page cache of `workfile`, and waits for readahead that is still in flight.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or what the system said.
pub(super) fn emptied(workfile: &Workfile) -> anyhow::Result<Coldness> {
    let begun = Instant::now();
    loop {
        interrupt::check()?;
        let coldness = samples::emptied(workfile)?;
        if !matches!(coldness, Coldness::Warm { .. }) || begun.elapsed() > EMPTYING_TIME_MAX {
            return Ok(coldness);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A range for each of `readers`, together all of the first `size` bytes of a file.
pub(super) fn ranges(size: u64, readers: u32) -> Vec<Range<u64>> {
    let blocks_each = size / BLOCK_BYTES / u64::from(readers.max(1));
    let each = blocks_each * BLOCK_BYTES; // [RDF-1]
    (0..u64::from(readers)).map(|number| number * each..(number + 1) * each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::readahead::ReadaheadArgs;
    use std::path::Path;

    #[test]
    fn readers_of_one_file_are_as_distant_as_it_allows() {
        let mib = 1 << 20;
        assert_eq!(ranges(64 * mib, 2), [0..32 * mib, 32 * mib..64 * mib]);
        for readers in [1, 2, 3, 7, 32, 256] {
            let ranges = ranges(64 * mib, readers);
            assert_eq!(ranges.len(), readers as usize);
            for pair in ranges.windows(2) {
                assert!(pair[0].end <= pair[1].start, "[RDF-1] {ranges:?}");
            }
            assert!(ranges.iter().all(|range| range.end <= 64 * mib && range.start < range.end));
            assert!(ranges.iter().all(|range| range.start.is_multiple_of(BLOCK_BYTES)));
        }
    }

    fn settings(directory: &Path, spacing: Option<u64>) -> Settings {
        let options = "--quick --files own --set-via descriptor --share 64KiB --readers 3 --seed 7";
        let mut args: ReadaheadArgs = crate::experiment::typed(options);
        directory.clone_into(&mut args.common.dir);
        args.spacing = spacing;
        Settings::new(args).unwrap()
    }

    #[test]
    fn own_files_are_different_ones_and_removed_afterwards() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path();
        let one = Workfile::create(path, 1 << 20, BLOCK_BYTES, 7, Naming::Nameless).unwrap();
        let mut labels = Vec::new();
        let progress = &mut |label: &str| labels.push(label.to_owned());
        let library = Library::make(&one, &settings(path, None), progress).unwrap();
        assert_eq!(labels, ["writing file 1 of 3", "writing file 2 of 3", "writing file 3 of 3"]);
        let shares = library.shares(Files::Own, 2);
        assert_eq!(shares[0].range, 0..1 << 16);
        assert_ne!(shares[0].workfile.stamp(0), shares[1].workfile.stamp(0));
        assert!(library.all().all(|file| emptied(file).unwrap() == Coldness::Cold));
        drop(library);
        drop(one);
        if cfg!(target_os = "linux") {
            assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
        }
    }

    #[test]
    fn files_with_spacing_are_longer_than_what_is_read_of_them() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path();
        let one = Workfile::create(path, 1 << 20, BLOCK_BYTES, 7, Naming::Nameless).unwrap();
        let made = Library::make(&one, &settings(path, Some(1 << 20)), &mut |_| ());
        let library = match made {
            // A filesystem that reserves nothing.
            Err(error) if error.is::<forebay_io::Error>() => return,
            made => made.unwrap(),
        };
        let share = &library.shares(Files::Own, 1)[0];
        assert_eq!(std::fs::metadata(share.workfile.path()).unwrap().len(), 1 << 20);
        assert_eq!(share.range, 0..1 << 16);
    }
}
