//! Files that lose their bytes while they are read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Aligned, Mounted, direct, mounted};

const HOUR: &str = "about = \"An hour for any command\"\n[fixed]\nsize = \"1GiB\"\ncommand_time = \"3600s\"\n\
                    rate = \"0MB/s\"\nflush_time = \"3600s\"\nconcurrency = 4096\n";

const MIB: usize = 1 << 20;

/// This number of reads of 1 MiB has more bytes in progress than the server copies at once.
const READS: usize = 136;

fn control(mount: &Path, word: &str) {
    std::fs::write(mount.join(".forebay/control"), word).unwrap();
}

fn wait_for_in_flight(mount: &Mounted, count: u64) {
    while mount.emulation.counters().in_flight < count {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read_a_mib(file: &Arc<File>) -> JoinHandle<Vec<u8>> {
    let file = Arc::clone(file);
    std::thread::spawn(move || {
        let mut into = Aligned::new(MIB);
        let read = file.read_at(into.bytes(), 0).unwrap();
        into.bytes()[..read].to_vec()
    })
}

#[test]
fn a_read_under_way_never_sees_what_another_file_has_where_its_bytes_were() {
    let Some(mount) = mounted(HOUR) else { return };
    control(&mount.path, "timing off");
    let (old, new) = (mount.path.join("old"), mount.path.join("new"));
    std::fs::write(&old, vec![1; MIB]).unwrap();
    File::open(&old).unwrap().sync_all().unwrap();
    control(&mount.path, "timing on");

    let disk = Arc::new(direct(&mount.path.join("disk")));
    let before: Vec<_> = (1..READS).map(|_| read_a_mib(&disk)).collect();
    wait_for_in_flight(&mount, READS as u64 - 1);
    let reader = read_a_mib(&Arc::new(direct(&old)));
    wait_for_in_flight(&mount, READS as u64);
    File::options().write(true).open(&old).unwrap().set_len(0).unwrap();
    File::create(&new).unwrap();
    let writer = std::thread::spawn(move || {
        let mut from = Aligned::new(MIB);
        from.bytes().fill(2);
        direct(&new).write_all_at(from.bytes(), 0).unwrap();
    });
    wait_for_in_flight(&mount, READS as u64 + 1);

    control(&mount.path, "timing off");
    let read = reader.join().unwrap();
    assert!(read.iter().all(|byte| *byte != 2), "[CON-1] the other file's bytes");
    writer.join().unwrap();
    for one in before {
        one.join().unwrap();
    }
}
