//! A small process that outlives the server: when the server is gone without a word, it unmounts.
//!
//! A FUSE mount whose server was killed stays, and answers everything with "not connected". Nobody in the
//! dead process can do anything about it, so the guardian, a shell, waits for the end of a pipe that only the
//! server holds open. It is told `done` after an orderly end and then does nothing.
//!
//! Rejected: the option auto_unmount of fusermount3, which ordinary users may have only together with
//! allow_other, and then only where the system's administrator allows that.
//!
//! Failure: without a shell there is no guardian, and a kill leaves the mount; that is an error at the start.

use std::io::{PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::Error;

/// `$1`: the mount point; `$2`: the directory around it, if both are to go, too.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
read -r word
[ "$word" = done ] && exit 0
fusermount3 -u -z -q -- "$1" || umount -l -- "$1"
[ -n "$2" ] && rmdir -- "$1" "$2"
"#;

#[derive(Debug)]
pub(super) struct Guardian {
    child: Child,
    pipe: Option<PipeWriter>,
}

impl Guardian {
    /// Guards `mount_point` from now on.
    pub(super) fn post(mount_point: &Path, remove: Option<&Path>) -> Result<Guardian, Error> {
        let failed =
            |source| Error::Io { doing: "start a guardian of the mount".to_owned(), source };
        let (reader, pipe) = std::io::pipe().map_err(failed)?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).arg("forebay-guardian").arg(mount_point);
        command.args(remove);
        command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null());
        // Not in the server's group, which a Ctrl-C or a kill of the group reaches; nor in its directory.
        command.current_dir("/").process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Guardian { child, pipe: Some(pipe) })
    }

    /// Lets it go: the mount is no more.
    pub(super) fn dismiss(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // A guardian that is gone needs no word.
            let _ = pipe.write_all(b"done\n");
            drop(pipe);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.dismiss();
    }
}
