//! Filesystems on a loop device over an emulated disk.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::emulated;
use crate::command::{make_filesystem, scratch, wait_until};
use crate::skip::{can_emulate, skipped};

/// A loop device with a filesystem on it; both are removed when this is dropped.
struct Mounted {
    device: String,
    directory: PathBuf,
}

fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output =
        Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let failed = || format!("{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(stderr) } else { Err(failed()) }
}

/// Unmounts `directory`, which other processes of the machine may look at.
fn unmount(directory: &Path) {
    wait_until("the filesystem to be unused", || {
        let unmounted = run("umount", &[directory.to_str().unwrap()]);
        let busy = unmounted.as_ref().is_err_and(|error| error.contains("target is busy"));
        assert!(busy || unmounted.is_ok(), "{unmounted:?}");
        !busy
    });
}

impl Mounted {
    fn new(disk: &Path, directory: &Path, make: (&str, &[&str])) -> Result<Mounted, String> {
        let disk = disk.to_str().unwrap();
        let device = run("losetup", &["--find", "--show", "--direct-io=on", disk])?;
        let mounted = Mounted { device, directory: directory.to_owned() };
        run(make.0, &[make.1, &[mounted.device.as_str()]].concat())?;
        run("mount", &[&mounted.device, directory.to_str().unwrap()])?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run("umount", &[self.directory.to_str().unwrap()]);
        let _ = run("losetup", &["--detach", &self.device]);
    }
}

#[test]
fn a_filesystem_on_a_loop_device_over_it_is_sound() {
    const TEST: &str = "a_filesystem_on_a_loop_device_over_it_is_sound";
    if !can_emulate(TEST) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skipped(TEST, "a loop device takes root");
    }
    let scratch = scratch();
    let kinds: [(&str, &[&str], &str, &[&str]); 3] = [
        ("mkfs.ext4", &["-q", "-F"], "fsck.ext4", &["-f", "-n"]),
        ("mkfs.xfs", &["-q", "-f"], "xfs_repair", &["-n"]),
        ("mkfs.btrfs", &["-q", "-f"], "btrfs", &["check", "--readonly"]),
    ];
    for (make, make_args, check, check_args) in kinds {
        if run(make, &["-V"]).is_err_and(|stderr| stderr.contains("No such file")) {
            skipped(TEST, &format!("no {make} on PATH"));
            continue;
        }
        let mut options = super::options();
        options.size_bytes = Some(8 << 30);
        let disk = forebay_lab::emulate::Emulated::start("instant", &options).unwrap();
        let directory = scratch.path().join(make);
        std::fs::create_dir(&directory).unwrap();
        let new = || Mounted::new(&disk.disk(), &directory, (make, make_args));
        let mounted = match make_filesystem(new) {
            Ok(mounted) => mounted,
            Err(stderr) if stderr.starts_with("losetup") || stderr.starts_with("mount") => {
                skipped(TEST, &stderr); // no loop devices, or no such filesystem in this kernel
                continue;
            }
            Err(stderr) => panic!("{stderr}"),
        };
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| (n ^ n >> 9) as u8).collect();
        for name in ["a", "b"] {
            std::fs::write(directory.join(name), &bytes).unwrap();
        }
        std::fs::remove_file(directory.join("a")).unwrap();
        unmount(&directory);
        run("mount", &[&mounted.device, directory.to_str().unwrap()]).unwrap();
        assert!(std::fs::read(directory.join("b")).unwrap() == bytes, "{make}");
        unmount(&directory);
        run(check, &[check_args, &[mounted.device.as_str()]].concat()).unwrap();
        drop(mounted);
        assert!(disk.log().unwrap().iter().any(|one| one.file == "disk" && one.len > 4096));
        drop(disk);
    }
    drop(emulated("instant"));
}
