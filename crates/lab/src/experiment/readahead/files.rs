//! The files that sequential readers read: one for all of them, or one for each.
//!
//! Own files are written one after the other, each whole, as a user's would be that were loaded one by one;
//! so a filesystem may lay them out beside each other or apart, and that is part of what is measured.
//! Reader `n` of `r` in the one file has its share from byte `n * size / r`, so that fewer readers are
//! further apart.
//!
//! Invariants:  [RDF-1] no two readers have a byte in common
//! Failure:     the files have no names where the system allows that, and are gone with the process.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::time::{Duration, Instant};

use forebay_io::{File, OpenOptions, Preallocate};

use crate::interrupt;
use crate::measure::{Coldness, empty_cache};
use crate::workfile::{Naming, Workfile};

/// Bytes that carry a number, in every file.
pub(in crate::experiment) const BLOCK_BYTES: u64 = 8192;

/// How long the page cache may resist: what the kernel still reads ahead cannot be dropped before it is
/// there, and a slow disk takes its time.
const EMPTYING_TIME_MAX: Duration = Duration::from_secs(20);

/// What readers read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// A file each.
    Own,
    /// A range each of one file.
    One,
}

impl Files {
    /// Both, in the order of tables.
    pub const ALL: [Files; 2] = [Files::Own, Files::One];

    /// Name in records and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Files::Own => "own",
            Files::One => "one",
        }
    }
}

impl fmt::Display for Files {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Files {
    type Err = String;

    fn from_str(name: &str) -> Result<Files, String> {
        let found = Files::ALL.into_iter().find(|files| files.name() == name.trim());
        found.ok_or_else(|| "there are own and one".to_owned())
    }
}

/// All files of a run.
#[derive(Debug)]
pub(super) struct Library<'a> {
    one: &'a Workfile,
    own: Vec<Workfile>,
    share_bytes: u64,
}

/// What one reader reads.
#[derive(Debug, Clone)]
pub(in crate::experiment) struct Share<'a> {
    pub(in crate::experiment) workfile: &'a Workfile,
    pub(in crate::experiment) range: Range<u64>,
}

/// The files that are to be made, one for each reader.
#[derive(Debug)]
pub(super) struct Own<'a> {
    pub(super) count: u32,
    /// Written and read.
    pub(super) share_bytes: u64,
    /// Reserved, if it is more than that.
    pub(super) apart_bytes: Option<u64>,
    pub(super) directory: &'a Path,
    pub(super) seed: u64,
}

impl<'a> Library<'a> {
    /// Makes `own` files in `directory`, beside the `one`. `progress` is told each of them.
    ///
    /// # Errors
    /// [`Interrupted`](interrupt::Interrupted), or what the system said.
    pub(super) fn make(
        one: &'a Workfile,
        own: &Own<'_>,
        progress: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Library<'a>> {
        let mut files = Vec::new();
        for number in 1..=own.count {
            interrupt::check()?;
            progress(&format!("writing file {number} of {}", own.count));
            let seed = own.seed.wrapping_add(u64::from(number));
            let mut file = Workfile::create(
                own.directory,
                own.share_bytes,
                BLOCK_BYTES,
                seed,
                Naming::Nameless,
            )?;
            if let Some(apart) = own.apart_bytes {
                let reserved = File::open(file.path(), &OpenOptions::new())?;
                reserved.preallocate(0..apart, Preallocate::Extend)?;
            }
            file.fill(|_| ())?;
            files.push(file);
        }
        Ok(Library { one, own: files, share_bytes: own.share_bytes })
    }

    /// What each of `readers` reads.
    pub(super) fn shares(&self, files: Files, readers: u32) -> Vec<Share<'_>> {
        let own = || {
            let whole = |workfile| Share { workfile, range: 0..self.share_bytes };
            self.own.iter().take(readers as usize).map(whole).collect()
        };
        let one = || {
            let ranges = ranges(self.one.size_bytes(), readers, self.share_bytes);
            ranges.into_iter().map(|range| Share { workfile: self.one, range }).collect()
        };
        let shares: Vec<Share<'_>> = match files {
            Files::Own => own(),
            Files::One => one(),
        };
        assert_eq!(shares.len(), readers as usize, "[RDF-1] a share for each reader");
        shares
    }

    /// Empties the page cache of all of them, so that none takes memory from another either.
    ///
    /// # Errors
    /// [`Interrupted`](interrupt::Interrupted), or what the system said.
    pub(super) fn empty(&self) -> anyhow::Result<Coldness> {
        let mut found = Coldness::Cold;
        for workfile in std::iter::once(self.one).chain(&self.own) {
            let coldness = emptied(workfile)?;
            if coldness != Coldness::Cold {
                found = coldness;
            }
        }
        Ok(found)
    }
}

/// Empties the page cache of `workfile`, waiting for what is still being read ahead.
///
/// # Errors
/// [`Interrupted`](interrupt::Interrupted), or what the system said.
pub(in crate::experiment) fn emptied(workfile: &Workfile) -> anyhow::Result<Coldness> {
    let begun = Instant::now();
    let file = File::open(workfile.path(), &OpenOptions::new().read_only(true))?;
    loop {
        interrupt::check()?;
        let coldness = empty_cache(&file)?;
        if !matches!(coldness, Coldness::Warm { .. }) || begun.elapsed() > EMPTYING_TIME_MAX {
            return Ok(coldness);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A range of `share` bytes for each of `readers`, spread over a file of `size` bytes.
pub(in crate::experiment) fn ranges(size: u64, readers: u32, share: u64) -> Vec<Range<u64>> {
    let blocks_apart = size / BLOCK_BYTES / u64::from(readers.max(1));
    let apart = blocks_apart * BLOCK_BYTES;
    let length = share.min(apart); // [RDF-1]
    (0..u64::from(readers)).map(|number| number * apart..number * apart + length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_one_file_are_as_far_apart_as_it_allows() {
        let mib = 1 << 20;
        assert_eq!(ranges(64 * mib, 2, 16 * mib), [0..16 * mib, 32 * mib..48 * mib]);
        for readers in [1, 2, 3, 7, 32, 256] {
            let ranges = ranges(64 * mib, readers, 16 * mib);
            assert_eq!(ranges.len(), readers as usize);
            for pair in ranges.windows(2) {
                assert!(pair[0].end <= pair[1].start, "[RDF-1] {ranges:?}");
            }
            assert!(ranges.iter().all(|range| range.end <= 64 * mib && range.start < range.end));
            assert!(ranges.iter().all(|range| range.start.is_multiple_of(BLOCK_BYTES)));
        }
    }

    fn own(directory: &Path, apart_bytes: Option<u64>) -> Own<'_> {
        Own { count: 3, share_bytes: 1 << 16, apart_bytes, directory, seed: 7 }
    }

    #[test]
    fn own_files_are_different_ones_and_gone_afterwards() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path();
        let one = Workfile::create(path, 1 << 20, BLOCK_BYTES, 7, Naming::Nameless).unwrap();
        let mut told = Vec::new();
        let progress = &mut |label: &str| told.push(label.to_owned());
        let library = Library::make(&one, &own(path, None), progress).unwrap();
        assert_eq!(told, ["writing file 1 of 3", "writing file 2 of 3", "writing file 3 of 3"]);
        let shares = library.shares(Files::Own, 2);
        assert_eq!(shares[0].range, 0..1 << 16);
        assert_ne!(shares[0].workfile.stamp(0), shares[1].workfile.stamp(0));
        assert_eq!(library.empty().unwrap(), Coldness::Cold);
        drop(library);
        drop(one);
        if cfg!(target_os = "linux") {
            assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
        }
    }

    #[test]
    fn files_that_are_to_be_apart_are_longer_than_what_is_read_of_them() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path();
        let one = Workfile::create(path, 1 << 20, BLOCK_BYTES, 7, Naming::Nameless).unwrap();
        let made = Library::make(&one, &own(path, Some(1 << 20)), &mut |_| ());
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
