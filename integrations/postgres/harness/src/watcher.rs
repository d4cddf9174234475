//! A process that outlives the test and cleans up after it.
//!
//! A destructor does not run on Ctrl-C, SIGKILL or an abort. The watcher, a shell in a separate process group,
//! holds the read end of a pipe. A line in it means that all is done already; its end without one, that the test
//! has ended: the watcher stops the server at once and removes the directory.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{Error, Result};

/// `$1` is the directory. The working directory of the process is checked, since its number may have been reused.
/// What another process still writes there, initdb say, can only be removed when that is over.
const SCRIPT: &str = r#"trap '' INT HUP TERM
read -r done && exit 0
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
its() { [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]; }
if [ -n "$pid" ] && its "$1"; then
    kill -QUIT "$pid"
    while its "$1"; do sleep 0.1; done
fi
tries=0
until rm -rf -- "$1" || [ $tries -ge 100 ]; do tries=$((tries + 1)); sleep 0.2; done"#;

#[derive(Debug)]
pub(crate) struct Watcher(Child);

impl Watcher {
    /// Watches over `directory`, and the server in its `data`.
    pub(crate) fn start(directory: &Path) -> Result<Watcher> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(directory).current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Watcher).map_err(Error::file(Path::new("sh")))
    }

    /// Ends it, after server and directory were removed.
    pub(crate) fn dismiss(&mut self) {
        if let Some(pipe) = self.0.stdin.as_mut() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.0.wait();
    }
}
