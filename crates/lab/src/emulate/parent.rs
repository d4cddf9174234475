//! The process that started this one, watched until it ends.
//!
//! By a descriptor of that process, which is for the whole of it. Rejected: the signal that Linux sends at a
//! parent's death, which it sends when the *thread* that made the child ends.

use std::sync::mpsc::Sender;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, Signal, getppid, pidfd_open, set_parent_process_death_signal};

/// Has `ended` told when the parent ends.
///
/// # Errors
/// When no thread can be made.
pub(super) fn watch(ended: Sender<()>) -> anyhow::Result<()> {
    let Some(parent) = getppid() else {
        return Ok(()); // it lives in another namespace, where it cannot be seen
    };
    let Ok(process) = pidfd_open(parent, PidfdFlags::empty()) else {
        // A kernel before 5.3: better for a thread than for nobody.
        set_parent_process_death_signal(Some(Signal::TERM))?;
        return Ok(());
    };
    if getppid() != Some(parent) {
        let _ = ended.send(()); // it ended meanwhile
        return Ok(());
    }
    std::thread::Builder::new().name("emulate-parent".to_owned()).spawn(move || {
        let mut watched = [PollFd::new(&process, PollFlags::IN)];
        while poll(&mut watched, None) == Err(rustix::io::Errno::INTR) {}
        let _ = ended.send(());
    })?;
    Ok(())
}
