//! Profiles: which model with which figures, as a few lines of TOML.
//!
//! A profile says in a sentence what it is, and has one section for what it is made of: `[disk]`,
//! `[flash]`, `[cloud]` or `[fixed]`. Two more may stand over it: `[array]` makes many of one, and
//! `[controller]` stands before everything. Worked example:
//!
//! ```toml
//! about = "Four 7200 rpm disks, striped"
//!
//! [array]
//! of = "7200rpm"      # a shipped profile; or leave it out and write a [disk] here
//! level = "raid0"
//! count = 4
//! stripe = "64KiB"
//! ```
//!
//! Sizes (`64KiB`, `1TB`), times (`8.5ms`) and rates (`120MB/s`) are written with their units. The profiles
//! that are shipped are in `profiles/` of this crate, and commented for who wants to write one.
//!
//! Invariants:  [PRF-1] what was parsed can be built: whatever makes no device is refused when it is read
//! Failure:     [`ProfileError`]; a key that is not known is refused, and the ones there are listed.

pub(crate) mod amount;
mod shipped;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::model::{Device, disk, fixed};

/// Smallest and largest unit of a device that a profile may name, in bytes.
const LOGICAL_BLOCK_BYTES: [u64; 2] = [512, 4096];

/// Why there is no such profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No shipped profile is called so, and it is no path of a `.toml` file.
    #[error(
        "there is no profile {spec:?}; name one of {}, or the path of a .toml file of your own",
        names.join(", ")
    )]
    Unknown {
        /// What was asked for.
        spec: String,
        /// What could have been.
        names: Vec<&'static str>,
    },
    /// The file cannot be read.
    #[error("the profile {} cannot be read: {source}; name a file that you may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is no TOML, or has a key that is not known, or a value that is no size, time or rate.
    #[error("the profile {name} is wrong: {reason}")]
    Syntax {
        /// The profile's name.
        name: String,
        /// Line, key, and what there could have been instead.
        reason: String,
    },
    /// Each value is one, but together they make no device.
    #[error("the profile {name} makes no device: {reason}")]
    Meaning {
        /// The profile's name.
        name: String,
        /// Which values, and what they would have to be.
        reason: String,
    },
}

/// A device that can be built.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// A shipped profile's name, or a file's without its ending.
    pub name: String,
    /// What it is, in one sentence without a full stop.
    pub about: String,
    /// Size of the address space, in bytes.
    pub size_bytes: u64,
    /// Unit of addressing that the device tells the system, in bytes.
    pub logical_block_bytes: u64,
    base: Base,
}

/// What a file may say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    about: String,
    #[serde(default = "sector", deserialize_with = "amount::bytes")]
    logical_block: u64,
    disk: Option<disk::Parameters>,
    fixed: Option<fixed::Parameters>,
}

fn sector() -> u64 {
    LOGICAL_BLOCK_BYTES[0]
}

/// What a device is made of.
#[derive(Debug, Clone, PartialEq)]
enum Base {
    Disk(disk::Parameters),
    Fixed(fixed::Parameters),
}

impl Base {
    fn build(&self, seed: u64) -> Result<Box<dyn Device>, String> {
        match self {
            Self::Disk(parameters) => disk::build(parameters, seed),
            Self::Fixed(parameters) => Ok(fixed::build(parameters)),
        }
    }
}

impl Profile {
    /// The profiles that come with Forebay: name and text.
    #[must_use]
    pub fn shipped() -> &'static [(&'static str, &'static str)] {
        shipped::SHIPPED
    }

    /// A shipped profile by name, or one of a file by a path that ends in `.toml`.
    ///
    /// # Errors
    /// [`ProfileError`]: each variant says what to do.
    pub fn load(spec: &str) -> Result<Self, ProfileError> {
        if let Some((name, text)) = Self::shipped().iter().find(|(name, _)| *name == spec) {
            return Self::parse(text, name);
        }
        let path = Path::new(spec);
        if path.extension().is_none_or(|ending| ending != "toml") {
            let names = Self::shipped().iter().map(|(name, _)| *name).collect();
            return Err(ProfileError::Unknown { spec: spec.into(), names });
        }
        let text = std::fs::read_to_string(path)
            .map_err(|source| ProfileError::Unreadable { path: path.into(), source })?;
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        Self::parse(&text, &name.unwrap_or_default())
    }

    /// A profile from its text.
    ///
    /// # Errors
    /// [`ProfileError::Syntax`] and [`ProfileError::Meaning`]: change what they name.
    pub fn parse(text: &str, name: &str) -> Result<Self, ProfileError> {
        let written: Written = toml::from_str(text).map_err(|error| ProfileError::Syntax {
            name: name.into(),
            reason: error.to_string().trim_end().into(),
        })?;
        let meaning = |reason: String| ProfileError::Meaning { name: name.into(), reason };
        let logical_block_bytes = written.logical_block;
        if !LOGICAL_BLOCK_BYTES.contains(&logical_block_bytes) {
            return Err(meaning("`logical_block` is 512 or 4096".into()));
        }
        let bases = [written.disk.map(Base::Disk), written.fixed.map(Base::Fixed)];
        let mut bases = bases.into_iter().flatten();
        let (Some(base), None) = (bases.next(), bases.next()) else {
            return Err(meaning("it has one section of `[disk]` and `[fixed]`".into()));
        };
        let about = written.about.trim_end_matches('.').to_owned();
        let size_bytes = base.build(0).map_err(meaning)?.size_bytes();
        Ok(Self { name: name.into(), about, size_bytes, logical_block_bytes, base })
    }

    /// The device. What is left to chance in it (the angle of a platter, jitter) follows from `seed`.
    ///
    /// # Panics
    /// Never: what was parsed can be built.
    #[must_use]
    pub fn build(&self, seed: u64) -> Box<dyn Device> {
        self.base.build(seed).expect("[PRF-1] what was parsed can be built")
    }
}
