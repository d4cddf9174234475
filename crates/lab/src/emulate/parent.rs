//! The process that started this one, watched until it ends.
//!
//! It is watched through a descriptor of that process, which stands for the whole process. Rejected: the signal that
//! Linux sends at a parent's death, since it is sent when the *thread* that made the child ends.

use std::sync::mpsc::Sender;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getppid, pidfd_open};

/// Notifies `ended` when the parent ends.
pub(super) fn watch(ended: Sender<()>) {
    let Some(parent) = getppid() else {
        return; // it lives in another namespace, where it cannot be seen
    };
    let Ok(process) = pidfd_open(parent, PidfdFlags::empty()) else {
        return; // a kernel before 5.3
    };
    std::thread::spawn(move || {
        let mut watched = [PollFd::new(&process, PollFlags::IN)];
        // If it ended before the descriptor was opened, the descriptor belongs to another process.
        while getppid() == Some(parent) && poll(&mut watched, None) == Err(Errno::INTR) {}
        let _ = ended.send(());
    });
}
