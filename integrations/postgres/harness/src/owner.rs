//! Who runs the server: oneself, or, for root, a user that PostgreSQL accepts.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Error, Result};

/// The user of a server's processes and files; none where that is oneself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner(Option<(u32, u32)>);

impl Owner {
    pub(crate) fn find() -> Owner {
        if !rustix::process::geteuid().is_root() {
            return Owner(None);
        }
        let id = |which: &str, name: &str| {
            let asked =
                Command::new("id").args([which, name]).stderr(Stdio::null()).output().ok()?;
            String::from_utf8(asked.stdout).ok()?.trim().parse::<u32>().ok()
        };
        let user = |name| Some((id("-u", name)?, id("-g", name)?));
        // 65534 is `nobody` on every Linux we know of, with or without a line in /etc/passwd.
        Owner(Some(user("postgres").or_else(|| user("nobody")).unwrap_or((65534, 65534))))
    }

    /// A command that this user runs, in a directory that it can enter.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").stdin(Stdio::null());
        if let Owner(Some((user, group))) = self {
            command.uid(user).gid(group);
        }
        command
    }

    /// Makes a directory of this user's.
    pub(crate) fn make_directory(self, path: &Path) -> Result<()> {
        fs::create_dir(path).map_err(Error::file(path))?;
        match self.0 {
            Some((user, group)) => chown(path, Some(user), Some(group)).map_err(Error::file(path)),
            None => Ok(()),
        }
    }
}
