//! A small process that outlives the server: when the server is gone without a word, it unmounts.
//!
//! A FUSE mount whose server was killed stays, and answers everything with "not connected". Nobody in the
//! dead process can do anything about it, so the guardian, a shell, waits for the end of a pipe that only the
//! server holds open. It is told what was mounted, and `done` after an orderly end; then it does nothing. What
//! it does not find in the mount table as it was told it leaves alone: somebody else has mounted that. Under
//! something else it waits for a while for ours to come to light.
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

/// `$1`: the mount point; `$2`: the same as the mount table has it; `$3`: the directory around it, if both are to
/// go, too.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
ours=
while read -r word rest; do
    [ "$word" = done ] && exit 0
    ours=$rest
done
standing() {
    found=gone
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
    standing "$1" "$2"
    while [ $found = covered ] && [ $tries -gt 0 ]; do
        tries=$((tries - 1))
        sleep 1
        standing "$1" "$2"
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
    /// Guards `mount_point` from now on.
    pub(super) fn post(mount_point: &Path, remove: Option<&Path>) -> Result<Guardian, Error> {
        let failed =
            |source| Error::Io { doing: "start a guardian of the mount".to_owned(), source };
        let (reader, pipe) = std::io::pipe().map_err(failed)?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).arg("forebay-guardian").arg(mount_point);
        command.arg(mounting::escaped(mount_point));
        command.args(remove);
        command.stdin(reader).stdout(Stdio::null()).stderr(Stdio::null());
        // Not in the server's group, which a Ctrl-C or a kill of the group reaches; nor in its directory.
        command.current_dir("/").process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Guardian { child: Some(child), pipe: Some(pipe) })
    }

    /// Tells it what was mounted, so that it unmounts nothing else.
    pub(super) fn knows(&mut self, mounted: &Mounted) {
        if let (Some(pipe), Some(facts)) = (&mut self.pipe, &mounted.facts) {
            // A guardian that is gone unmounts nothing.
            let _ = pipe.write_all(format!("mounted {facts}\n").as_bytes());
        }
    }

    /// Leaves it to unmount when this process has ended, or sooner.
    pub(super) fn take_over(&mut self) {
        drop(self.pipe.take());
        if let Some(mut child) = self.child.take() {
            // As long as this process is there, its end is to be noticed.
            std::thread::spawn(move || child.wait());
        }
    }

    /// Lets it go: the mount is gone.
    pub(super) fn dismiss(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            // A guardian that is gone needs no word.
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
