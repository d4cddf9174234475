//! Where undo logs and mount points are: a directory that only this user can write to.
//!
//! An undo log names paths to remove and devices to set, as root if the run was root's. So
//! no other user may create one there or modify one. The directory is opened without following
//! a link and checked through the descriptor, and every file in it is reached through that same
//! descriptor: nothing can be exchanged after the check.
//!
//! Invariants:  [PLC-1] the chosen directory belongs to this user, and no other user can enter it
//! Failure:     the next candidate is taken; when there is none, the error names what was wrong with each.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};

/// Overrides where undo logs and mount points are.
pub const STATE_DIRECTORY: &str = "FOREBAY_STATE_DIR";

/// The suffix of an undo log's name.
pub(super) const SUFFIX: &str = ".ledger";

/// A directory for undo logs, open.
#[derive(Debug, Clone)]
pub(super) struct Place {
    descriptor: Arc<OwnedFd>,
    pub(super) path: PathBuf,
}

/// Possible directories for undo logs, best first. `variable` reads the environment.
fn candidates(
    variable: impl Fn(&str) -> Option<PathBuf>,
    temporary: &Path,
    uid: u32,
) -> Vec<PathBuf> {
    if let Some(given) = variable(STATE_DIRECTORY).filter(|path| !path.as_os_str().is_empty()) {
        return vec![given];
    }
    // The same directory for root however it became root: sudo keeps the user's variables.
    let runtime = if uid == 0 { Some("/run".into()) } else { variable("XDG_RUNTIME_DIR") };
    let first = runtime.filter(|path| path.is_absolute()).map(|path| path.join("forebay"));
    first.into_iter().chain([temporary.join(format!("forebay-{uid}"))]).collect()
}

/// The candidates of this process.
pub(super) fn candidates_here() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    candidates(|name| std::env::var_os(name).map(PathBuf::from), &std::env::temp_dir(), uid)
}

/// The result of `make` in the first suitable directory.
pub(super) fn in_first<T>(make: impl Fn(&Place) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut refusals = Vec::new();
    for candidate in candidates_here() {
        match Place::make(&candidate).map_err(Into::into).and_then(|place| make(&place)) {
            Ok(made) => return Ok(made),
            Err(error) => refusals.push(format!("{}: {error:#}", candidate.display())),
        }
    }
    anyhow::bail!(
        "there is no directory for an undo log ({}); name one that only you can enter in \
         {STATE_DIRECTORY}",
        refusals.join("; ")
    )
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

impl Place {
    /// Opens `path`, and makes it if it does not exist.
    ///
    /// # Errors
    /// It cannot be made, or other users have access to it.
    pub(super) fn make(path: &Path) -> io::Result<Place> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Place::open(path),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens `path`.
    ///
    /// # Errors
    /// It does not exist, or other users have access to it.
    pub(super) fn open(path: &Path) -> io::Result<Place> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let facts = rustix::fs::fstat(&descriptor)?;
        if facts.st_uid != rustix::process::geteuid().as_raw() {
            return Err(refused(format!("it belongs to user {}", facts.st_uid)));
        }
        let mode = facts.st_mode & 0o777;
        if mode & 0o077 != 0 {
            return Err(refused(format!("others may enter it (mode {mode:o}); chmod 700 it")));
        }
        Ok(Place { descriptor: Arc::new(descriptor), path: path.to_owned() })
    }

    /// The names of the undo logs in this directory.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(Some(name).filter(|name| name.ends_with(SUFFIX)));
        }
        names.sort();
        Ok(names)
    }

    fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(&self.descriptor, name, flags, mode)?.into())
    }

    /// Makes the undo log `name`, which must not exist yet.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        self.file(name, OFlags::CREATE | OFlags::EXCL)
    }

    /// Opens the undo log `name`.
    ///
    /// # Errors
    /// Among others: it is not an ordinary file that belongs to this user.
    pub(super) fn existing(&self, name: &str) -> io::Result<File> {
        // Do not hang on a pipe with the name of an undo log.
        let file = self.file(name, OFlags::NONBLOCK)?;
        let facts = file.metadata()?;
        if !facts.is_file() || facts.uid() != rustix::process::geteuid().as_raw() {
            return Err(refused("it is no ordinary file of this user".to_owned()));
        }
        Ok(file)
    }

    /// Removes the undo log `name`.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }
}

/// `prefix` with random letters, so that no two processes choose the same.
pub(super) fn random_name(prefix: &str) -> String {
    let random: String = std::iter::repeat_with(fastrand::alphanumeric).take(10).collect();
    format!("{}-{random}", prefix.trim_end_matches('-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn roots_logs_are_in_run_and_others_where_they_may_write() {
        let nothing = |_: &str| None;
        let temporary = Path::new("/tmp");
        let root = candidates(nothing, temporary, 0);
        assert_eq!(root, [Path::new("/run/forebay"), Path::new("/tmp/forebay-0")]);
        let session = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into());
        assert_eq!(candidates(session, temporary, 0), root, "as after sudo");
        let expected = [Path::new("/run/user/7/forebay"), Path::new("/tmp/forebay-7")];
        assert_eq!(candidates(session, temporary, 7), expected);
        let strange = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "relative".into());
        assert_eq!(candidates(strange, temporary, 7), [Path::new("/tmp/forebay-7")]);
        let given = |name: &str| (name == STATE_DIRECTORY).then(|| "/my/state".into());
        assert_eq!(candidates(given, temporary, 0), [Path::new("/my/state")]);
    }

    #[test]
    fn a_directory_that_others_may_enter_or_a_link_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let mine = scratch.path().join("mine");
        assert_eq!(Place::open(&mine).unwrap_err().kind(), io::ErrorKind::NotFound);
        let place = Place::make(&mine).unwrap();
        assert_eq!(fs::metadata(&mine).unwrap().permissions().mode() & 0o777, 0o700, "[PLC-1]");
        assert_eq!(place.path, mine);
        Place::make(&mine).unwrap();

        let link = scratch.path().join("link");
        symlink(&mine, &link).unwrap();
        assert!(Place::make(&link).is_err(), "[PLC-1]");

        fs::set_permissions(&mine, fs::Permissions::from_mode(0o770)).unwrap();
        let refused = Place::make(&mine).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "[PLC-1]");
        assert!(refused.to_string().contains("chmod 700"), "{refused}");
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        // For other users, root's directory; and for root one that belongs to another user.
        let scratch = tempfile::tempdir().unwrap();
        let theirs = scratch.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::set_permissions(&theirs, fs::Permissions::from_mode(0o700)).unwrap();
        if std::os::unix::fs::chown(&theirs, Some(65_533), None).is_err() {
            assert!(Place::make(Path::new("/proc")).is_err(), "[PLC-1]");
            return;
        }
        let refused = Place::make(&theirs).unwrap_err();
        assert!(refused.to_string().contains("65533"), "[PLC-1] {refused}");
    }

    #[test]
    fn a_link_or_a_pipe_named_like_a_log_is_not_followed_and_nothing_is_made_twice() {
        let scratch = tempfile::tempdir().unwrap();
        let place = Place::make(&scratch.path().join("state")).unwrap();
        let victim = scratch.path().join("victim");
        fs::write(&victim, "kept").unwrap();
        let name = "7-9.ledger";
        symlink(&victim, place.path.join(name)).unwrap();
        assert!(place.create(name).is_err());
        assert!(place.existing(name).is_err());
        place.remove(name).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"kept");

        drop(place.create(name).unwrap());
        assert!(place.create(name).is_err());
        assert_eq!(place.names().unwrap(), [name]);
        drop(place.existing(name).unwrap());
        fs::create_dir(place.path.join("8-8.ledger")).unwrap();
        assert!(place.existing("8-8.ledger").is_err());
    }
}
