//! The disks under a server's tablespaces, and what the laboratory measures on them.
//!
//! Tablespaces on one device share it, so one setting is right for all of them. A disk is measured in a directory
//! next to the server's own, on the same filesystem: nothing is ever created inside a data directory, where a backup
//! would include it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Proposal;
use super::server::{COMPLETION, DEFAULT_TABLESPACE, Server, is_hasty};
use crate::args::PostgresArgs;
use forebay_measure::facts::Storage;
use forebay_measure::report::{Advice, AppliesTo, Report};
use forebay_measure::units::shown_size;
use forebay_measure::{DiskRun, Laboratory, output, question};

/// Approximate duration of the experiments on a disk, in seconds.
const SECONDS: u32 = 75;

/// Additional seconds for each backend after the first, and for readers during checkpoints.
const SECONDS_MORE: u32 = 15;
const SECONDS_READERS: u32 = 25;

/// Tablespaces on one device.
#[derive(Debug)]
pub(super) struct Disk {
    /// The device's name, or else the filesystem's.
    pub(super) name: String,
    pub(super) tablespaces: Vec<u32>,
    /// Whether it has pg_default, the tablespace of everything that is not assigned to another one.
    pub(super) is_main: bool,
    /// A directory on it outside of every data directory, or why there is none, unless that is already reported.
    pub(super) room: Result<PathBuf, Option<String>>,
    pub(super) report: Option<Report>,
}

/// Each disk with its tablespaces, the main one first. All disks that cannot be seen are treated as one.
pub(super) fn of(server: &Server) -> Vec<Disk> {
    let mut disks: Vec<Disk> = Vec::new();
    for tablespace in &server.tablespaces {
        let name = tablespace
            .storage
            .as_ref()
            .map_or_else(|| "a disk that cannot be seen".to_owned(), name);
        let is_main = tablespace.oid == DEFAULT_TABLESPACE;
        match disks.iter_mut().find(|disk| disk.name == name) {
            Some(disk) => {
                disk.tablespaces.push(tablespace.oid);
                disk.is_main |= is_main;
            }
            None => {
                let closed = server.data_directory.as_deref();
                let directory =
                    tablespace.directory.as_deref().filter(|_| tablespace.storage.is_some());
                let room = directory.map_or_else(
                    || Err(None),
                    |directory| next_to(directory, closed.unwrap_or(directory)).map_err(Some),
                );
                let tablespaces = vec![tablespace.oid];
                disks.push(Disk { name, tablespaces, is_main, room, report: None });
            }
        }
    }
    disks.sort_by_key(|disk| !disk.is_main);
    disks
}

fn name(storage: &Storage) -> String {
    let profile = storage.profile().map(|profile| format!("the emulated {profile}"));
    let device = || storage.device.as_ref().map(|device| device.name.clone());
    let mount = || storage.mount_point.clone();
    profile.or_else(device).or_else(mount).unwrap_or_else(|| storage.directory.clone())
}

/// The nearest directory above both `directory` and the data directory `closed`, on the filesystem of the first.
fn next_to(directory: &Path, closed: &Path) -> Result<PathBuf, String> {
    let device = |path: &Path| std::fs::metadata(path).map(|facts| facts.dev()).ok();
    let own = directory.ancestors().find_map(device);
    let outside = |path: &&Path| !path.starts_with(closed) && *path != directory;
    let found = directory.ancestors().find(outside).filter(|path| device(path) == own);
    let found =
        found.ok_or("it is all the server's own: nothing is written into a data directory")?;
    output::check_directory(found, found).map_err(|error| error.to_string())?;
    Ok(found.to_owned())
}

impl Disk {
    /// Measures the disk, if the user agrees. Returns why it was not measured, or that it was faster at
    /// first (a burst).
    ///
    /// # Errors
    /// [`BadInput`](forebay_measure::BadInput) if there is not enough space, or an interruption.
    pub(super) fn measure(
        &mut self,
        server: &Server,
        args: &PostgresArgs,
        laboratory: &dyn Laboratory,
    ) -> anyhow::Result<Option<String>> {
        let room = match &self.room {
            Ok(room) => room.clone(),
            Err(why) => {
                let remark = |why| format!("{} is not measured: {why}.", self.name);
                return Ok(why.as_ref().map(remark));
            }
        };
        let backends = server.backends();
        let busy = args.sustained.map_or(0, |sustained| sustained.as_secs() as u32);
        let mut seconds = SECONDS + SECONDS_MORE * (backends.len() as u32).saturating_sub(1) + busy;
        let is_hasty = self.is_main && server.setting(COMPLETION).is_some_and(is_hasty);
        if is_hasty {
            seconds += SECONDS_READERS;
        }
        let run = DiskRun {
            directory: room.clone(),
            backends: backends.join(","),
            readers: is_hasty,
            sustained: args.sustained,
            seed: args.seed,
        };
        let bytes = laboratory.space_bytes(&run)?;
        let what = format!(
            "{} under {}: about {seconds} s of reading and writing as fast as it goes, and {} that are removed afterwards",
            self.name,
            room.display(),
            shown_size(bytes)
        );
        if !args.yes && !question::ask(&format!("measure {what}?"))? {
            return Ok(Some(format!(
                "{} is not measured: that would take --yes ({what}).",
                self.name
            )));
        }
        output::note(&format!("measuring {what}"));
        let report = laboratory.measure(&run)?;
        let burst = report.device.as_ref().and_then(|device| device.burst.as_ref());
        let text = burst.map(|burst| format!("{}: {}", self.name, burst));
        self.report = Some(report);
        Ok(text)
    }

    /// The advice of its measurement for `setting` on `server`; the value may already be set.
    pub(super) fn advice(&self, server: &Server, setting: &str) -> Option<&Advice> {
        let applies = applies_to(server);
        let fits = |to| [applies, AppliesTo::Postgres, AppliesTo::BlockDevice].contains(&to);
        let advice = &self.report.as_ref()?.advice;
        advice.iter().find(|one| one.setting == setting && fits(one.applies_to))
    }

    /// A proposal of a measured gain; `why`: the reason why no query can prove it.
    pub(super) fn unproved(&self, why: &str, advice: Advice) -> Proposal {
        let not_applied =
            Some(format!("measured on {} and not proved on the server: {why}", self.name));
        Proposal { tablespace: None, proved: false, not_applied, advice }
    }
}

/// Which part of the laboratory's advice applies to `server`.
pub(super) fn applies_to(server: &Server) -> AppliesTo {
    match server.setting("io_method").map(|setting| setting.value.as_str()) {
        _ if server.major < 18 => AppliesTo::Postgres14To17,
        Some("worker") => AppliesTo::Postgres18Worker,
        Some("io_uring") => AppliesTo::Postgres18Uring,
        _ => AppliesTo::Postgres18Sync,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_measured_inside_of_a_data_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let data = scratch.path().join("data");
        std::fs::create_dir_all(data.join("base")).unwrap();
        let whole = |path: PathBuf| path.canonicalize().unwrap();
        let room = next_to(&whole(data.join("base")), &whole(data.clone())).unwrap();
        assert_eq!(room, whole(scratch.path().to_owned()));
        // A tablespace elsewhere is measured in a directory next to it.
        let elsewhere = scratch.path().join("fast/space");
        std::fs::create_dir_all(&elsewhere).unwrap();
        assert_eq!(next_to(&elsewhere, &data).unwrap(), scratch.path().join("fast"));
        // There is no directory next to the root of a separate filesystem.
        let refused = next_to(Path::new("/proc/sys"), Path::new("/proc/sys"))
            .and_then(|_| next_to(Path::new("/proc"), Path::new("/proc")));
        assert!(refused.is_err());
    }
}
