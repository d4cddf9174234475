//! Profiles: a model and its parameters, in a few lines of TOML.
//!
//! A profile describes itself in a sentence, and has one section for the device: `[disk]`,
//! `[flash]`, `[cloud]` or `[fixed]`. Two more sections may wrap it: `[array]` makes an array of that device, and
//! `[controller]` is in front of everything. Worked example:
//!
//! ```toml
//! about = "Four 7200 rpm disks, striped"
//!
//! [disk]
//! like = "7200rpm"       # a shipped profile: its section of the same name, and what follows changed
//! write_cache = "0KiB"
//!
//! [array]
//! level = "raid0"
//! count = 4
//! stripe = "64KiB"
//! ```
//!
//! Sizes (`64KiB`, `1TB`), times (`8.5ms`) and rates (`120MB/s`) are written with their units. The shipped profiles
//! are in `profiles/` of this crate, with comments for authors of new ones.
//!
//! Invariants:  [PRF-1] a parsed profile can be built: a profile that makes no valid device is refused when it is read
//! Failure:     [`ProfileError`]; an unknown key is refused, and the known ones are listed.

pub(crate) mod amount;
mod shipped;

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::model::{Device, array, cloud, controller, disk, fixed, flash};

/// Smallest and largest logical block of a device that a profile may set, in bytes.
const LOGICAL_BLOCK_BYTES: [u64; 2] = [512, 4096];

/// Why a profile cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// No shipped profile has this name, and it is not the path of a `.toml` file.
    #[error(
        "there is no profile {spec:?}; name one of {}, or the path of a .toml file of your own",
        names.join(", ")
    )]
    Unknown {
        /// The requested profile.
        spec: String,
        /// The names of the shipped profiles.
        names: Vec<&'static str>,
    },
    /// The file cannot be read.
    #[error("the profile {} cannot be read: {source}; name a file that you may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It is not TOML, or has an unknown key, or a value that is not a size, time or rate.
    #[error("the profile {name} is wrong: {reason}")]
    Syntax {
        /// The profile's name.
        name: String,
        /// Line, key, and what is accepted there.
        reason: String,
    },
    /// Each value is valid, but together they make no valid device.
    #[error("the profile {name} makes no device: {reason}")]
    Meaning {
        /// The profile's name.
        name: String,
        /// Which values, and what they must be.
        reason: String,
    },
}

/// A device that can be built.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// A shipped profile's name, or a file's name without its extension.
    pub name: String,
    /// Description, in one sentence without a full stop.
    pub about: String,
    /// Size of the address space, in bytes.
    pub size_bytes: u64,
    /// Logical block size that the device reports to the system, in bytes.
    pub logical_block_bytes: u64,
    parts: Parts,
}

/// The contents of a file. The sections are parsed after the profile that they are like is known.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    about: String,
    #[serde(default = "sector", deserialize_with = "amount::bytes")]
    logical_block: u64,
    disk: Option<Table>,
    flash: Option<Table>,
    cloud: Option<Table>,
    fixed: Option<Table>,
    array: Option<Table>,
    controller: Option<Table>,
}

fn sector() -> u64 {
    LOGICAL_BLOCK_BYTES[0]
}

/// The parts of a device, from the inside out.
#[derive(Debug, Clone, PartialEq)]
struct Parts {
    base: Base,
    array: Option<array::Parameters>,
    controller: Option<controller::Parameters>,
}

#[derive(Debug, Clone, PartialEq)]
enum Base {
    Disk(disk::Parameters),
    Flash(flash::Parameters),
    Cloud(cloud::Parameters),
    Fixed(fixed::Parameters),
}

impl Base {
    fn build(&self, seed: u64) -> Result<Box<dyn Device>, String> {
        match self {
            Self::Disk(parameters) => disk::build(parameters, seed),
            Self::Flash(parameters) => flash::build(parameters),
            Self::Cloud(parameters) => cloud::build(parameters, seed),
            Self::Fixed(parameters) => fixed::build(parameters),
        }
    }
}

impl Parts {
    fn build(&self, seed: u64) -> Result<Box<dyn Device>, String> {
        let member = |number: u64| {
            // Members differ in their random properties: no two platters are at the same angle.
            self.base.build(seed.wrapping_mul(1024).wrapping_add(number))
        };
        let device = match &self.array {
            Some(parameters) => array::build(parameters, member)?,
            None => member(0)?,
        };
        match &self.controller {
            Some(parameters) => controller::build(parameters, device),
            None => Ok(device),
        }
    }
}

/// A section as its parameters, applied over those of the profile that it is like.
fn section<T: DeserializeOwned>(name: &str, written: Option<Table>) -> Result<Option<T>, String> {
    let Some(written) = written else { return Ok(None) };
    let parameters = likened(name, written)?.try_into().map_err(|error: toml::de::Error| {
        format!("[{name}]: {}", error.to_string().trim_end().replace('\n', ", "))
    })?;
    Ok(Some(parameters))
}

/// A section whose missing keys are taken from the shipped profile that it is like.
fn likened(section: &str, mut changes: Table) -> Result<Table, String> {
    let like = match changes.remove("like") {
        None => return Ok(changes),
        Some(Value::String(like)) => like,
        Some(_) => return Err(format!("[{section}]: `like` is a name in quotes")),
    };
    let mut names = Vec::new();
    for (name, text) in Profile::shipped() {
        let found = text.parse::<Table>().ok().and_then(|mut table| table.remove(section));
        let Some(Value::Table(found)) = found else { continue };
        if *name == like {
            // A shipped profile may be like another one, never like itself.
            let mut table = likened(section, found)?;
            table.extend(changes);
            return Ok(table);
        }
        names.push(*name);
    }
    Err(format!("[{section}]: `like` names one of {}", names.join(", ")))
}

impl Profile {
    /// The shipped profiles: name and text.
    #[must_use]
    pub fn shipped() -> &'static [(&'static str, &'static str)] {
        shipped::SHIPPED
    }

    /// A shipped profile by name, or a profile from a file by a path that ends in `.toml`.
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
        let syntax = |reason: String| ProfileError::Syntax { name: name.into(), reason };
        let meaning = |reason: String| ProfileError::Meaning { name: name.into(), reason };
        let written: Written =
            toml::from_str(text).map_err(|error| syntax(error.to_string().trim_end().into()))?;
        let bases = [
            section("disk", written.disk).map_err(syntax)?.map(Base::Disk),
            section("flash", written.flash).map_err(syntax)?.map(Base::Flash),
            section("cloud", written.cloud).map_err(syntax)?.map(Base::Cloud),
            section("fixed", written.fixed).map_err(syntax)?.map(Base::Fixed),
        ];
        let mut bases = bases.into_iter().flatten();
        let (Some(base), None) = (bases.next(), bases.next()) else {
            return Err(meaning("it has one section of [disk], [flash], [cloud], [fixed]".into()));
        };
        let array = section("array", written.array).map_err(syntax)?;
        let controller = section("controller", written.controller).map_err(syntax)?;
        let parts = Parts { base, array, controller };
        let logical_block_bytes = written.logical_block;
        if !LOGICAL_BLOCK_BYTES.contains(&logical_block_bytes) {
            return Err(meaning("`logical_block` is 512 or 4096".into()));
        }
        let size_bytes = parts.build(0).map_err(meaning)?.size_bytes();
        let about = written.about.trim_end_matches('.').to_owned();
        Ok(Self { name: name.into(), about, size_bytes, logical_block_bytes, parts })
    }

    /// Whether the device is faster at first, while credits last.
    #[must_use]
    pub fn bursts(&self) -> bool {
        match &self.parts.base {
            Base::Cloud(volume) => volume.burst_iops.is_some() || volume.burst_bandwidth > 0,
            Base::Disk(_) | Base::Flash(_) | Base::Fixed(_) => false,
        }
    }

    /// Builds the device. Its random properties (the angle of a platter, jitter) follow from `seed`.
    ///
    /// # Panics
    /// Never: a parsed profile can be built.
    #[must_use]
    pub fn build(&self, seed: u64) -> Box<dyn Device> {
        self.parts.build(seed).expect("[PRF-1] what was parsed can be built")
    }
}

#[cfg(test)]
mod tests;
