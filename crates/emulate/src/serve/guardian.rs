//! A small process that outlives the server: if the server ends without notice, it unmounts.
//!
//! A FUSE mount whose server was killed stays, and answers every request with "not connected". The dead process
//! cannot remove it, so the guardian, a shell, waits for the end of a pipe that only the
//! server holds open. The server writes to the pipe what was mounted, and `done` after an orderly end; then the
//! guardian does nothing. It leaves a mount alone that differs from this description in the mount table: another
//! process has mounted that. If another mount covers ours, it waits a while for ours to be uncovered.
//!
//! Rejected: the option auto_unmount of fusermount3, which ordinary users may have only together with
//! allow_other, and then only where the system's administrator allows that.
//!
//! Failure: without a shell there is no guardian, and a kill leaves the mount; that is an error at the start.

use std::io::{PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::mounting::Mounted;
use super::{Error, mounting};

/// `$1`: the mount point; `$2`: the same, as the mount table shows it; `$3`: the directory around it, if both must
/// be removed, too.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
ours=
while read -r word rest; do
    [ "$word" = done ] && exit 0
    ours=$rest
done
state() {
    found=none
    while read -r mount parent device root point rest; do
        [ "$point" = "$2" ] || continue
        kind=${rest#* - }
        if [ "$mount $device ${kind%% *}" = "$ours" ]; then
            found=ours
        elif [ "$found" = ours ]; then
            found=covered
        fi
    done < /proc/self/mountinfo
}
found=ours
if [ -n "$ours" ]; then
    tries=600
    state "$1" "$2"
    while [ $found = covered ] && [ $tries -gt 0 ]; do
        tries=$((tries - 1))
        sleep 1
        state "$1" "$2"
    done
fi
if [ $found = ours ]; then
    fusermount3 -u -z -q -- "$1" || umount -l -- "$1"
fi
[ -n "$3" ] && rmdir -- "$1" "$3"
"#;

#[derive(Debug)]
pub(super) struct Guardian {
    child: Option<Child>,
    pipe: Option<PipeWriter>,
}

impl Guardian {
    /// Starts a guardian for `mount_point`.
    pub(super) fn post(mount_point: &Path, remove: Option<&Path>) -> Result<Guardian, Error> {
        let failed =
            |source| Error::Io { doing: "start a guardian of the mount".to_owned(), source };
        let (reader, pipe) = std::io::pipe().map_err(failed)?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).arg("forebay-guardian").arg(mount_point);
        command.arg(mounting::escaped(mount_point));
        command.args(remove);
        command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null());
        // Not in the server's process group, which Ctrl-C or a kill of the group reaches; nor in its directory.
        command.current_dir("/").process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Guardian { child: Some(child), pipe: Some(pipe) })
    }

    /// Writes to it what was mounted, so that it unmounts nothing else.
    pub(super) fn knows(&mut self, mounted: &Mounted) {
        if let (Some(pipe), Some(facts)) = (&mut self.pipe, &mounted.facts) {
            // A guardian that has ended unmounts nothing.
            let _ = pipe.write_all(format!("mounted {facts}\n").as_bytes());
        }
    }

    /// Leaves the unmounting to the guardian, which does it when this process has ended, or sooner.
    pub(super) fn take_over(&mut self) {
        drop(self.pipe.take());
        if let Some(mut child) = self.child.take() {
            // While this process runs, the guardian's exit must be reaped.
            std::thread::spawn(move || child.wait());
        }
    }

    /// Ends the guardian: the mount has ended.
    pub(super) fn dismiss(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // A guardian that has ended needs no message.
            let _ = pipe.write_all(b"done\n");
            drop(pipe);
            let _ = self.child.take().map(|mut child| child.wait());
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.dismiss();
    }
}
