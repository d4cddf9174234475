//! A store in a sparse file.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

#[derive(Debug)]
pub(super) struct Sparse {
    file: File,
}

impl Sparse {
    pub(super) fn open(path: &Path, size_bytes: u64) -> io::Result<Sparse> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = options.create_new(true).open(path)?;
                std::fs::remove_file(path)?;
                made
            }
            Err(error) => return Err(error),
        };
        let facts = file.metadata()?;
        if !facts.is_file() {
            let why = format!("{} is not an ordinary file; name one", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // Two emulations on the same file would overwrite each other's data.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.display();
                let why = format!(
                    "another emulated disk has its data in {path}; unmount that or name another"
                );
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if facts.len() < size_bytes {
            file.set_len(size_bytes)?;
        }
        Ok(Sparse { file })
    }

    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    pub(super) fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.file.write_all_at(from, at)
    }

    pub(super) fn discard(&self, at: u64, len: u64) -> io::Result<()> {
        if len == 0 || self.punch(at, len) {
            return Ok(());
        }
        // The filesystem cannot punch holes: zeros read the same and only cost space.
        let zeros = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let here = (len - done).min(zeros.len() as u64);
            self.file.write_all_at(&zeros[..here as usize], at + done)?;
            done += here;
        }
        Ok(())
    }

    #[cfg(all(target_os = "linux", not(forebay_portable)))]
    pub(super) fn room_bytes(&self) -> u64 {
        let facts = rustix::fs::fstatvfs(&self.file);
        facts.map_or(u64::MAX, |facts| facts.f_bavail.saturating_mul(facts.f_frsize))
    }

    #[cfg(not(all(target_os = "linux", not(forebay_portable))))]
    pub(super) fn room_bytes(&self) -> u64 {
        u64::MAX
    }

    #[cfg(all(target_os = "linux", not(forebay_portable)))]
    fn punch(&self, at: u64, len: u64) -> bool {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, at, len).is_ok()
    }

    #[cfg(not(all(target_os = "linux", not(forebay_portable))))]
    fn punch(&self, _at: u64, _len: u64) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_the_data_of_one_store_at_a_time_and_a_device_of_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine");
        std::fs::write(&path, b"kept").unwrap();
        let store = Sparse::open(&path, 1 << 20).unwrap();
        let second = Sparse::open(&path, 2 << 20).unwrap_err();
        assert!(second.kind() == io::ErrorKind::ResourceBusy, "[STO-3] {second}");
        assert!(second.to_string().contains("another emulated disk"), "{second}");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20, "it is not made longer");
        drop(store);
        drop(Sparse::open(&path, 1 << 20).unwrap());

        let device = Sparse::open(Path::new("/dev/null"), 1 << 20).unwrap_err();
        assert!(device.kind() == io::ErrorKind::InvalidInput, "{device}");
    }

    #[test]
    fn a_file_that_was_there_keeps_its_bytes_and_its_name_and_one_that_was_made_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let mine = directory.path().join("mine");
        std::fs::write(&mine, b"kept").unwrap();
        let store = Sparse::open(&mine, 1 << 20).unwrap();
        let mut found = [0; 4];
        store.read(0, &mut found).unwrap();
        assert_eq!(&found, b"kept");
        store.write(9000, b"more").unwrap();
        drop(store);
        let bytes = std::fs::read(&mine).unwrap();
        assert_eq!((bytes.len(), &bytes[9000..9004]), (1 << 20, b"more".as_slice()));

        let made = directory.path().join("made");
        let store = Sparse::open(&made, 1 << 20).unwrap();
        store.write((1 << 20) - 1, b"x").unwrap();
        assert!(!made.exists());
    }
}
