//! A process that runs out of descriptors: the operation that needed one fails, and nothing else.

use std::fs::File;

use forebay::{CheckpointOptions, ErrorKind};
use forebay_io::OsError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{alone, builder, dirty, on_disk, set};

/// The kernel's own syncs (uring, aio) need a second descriptor of each file, at its first sync.
#[test]
fn a_checkpoint_short_of_descriptors_may_be_repeated() {
    alone(|| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(48), maximum }).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let pool = builder(directory.path()).build().unwrap();
        let files: Vec<_> = (0..8).map(|it| dirty(&pool, &format!("t{it}"), it)).collect();

        let mut taken = Vec::new();
        let full = loop {
            match File::open("/dev/null") {
                Ok(file) => taken.push(file),
                Err(error) => break OsError::from(error),
            }
        };
        assert_eq!(full, OsError::EMFILE);
        if let Err(error) = pool.checkpoint(CheckpointOptions::now()) {
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            assert!(error.to_string().contains("ulimit -n"), "{error}");
        }
        let more = pool.open_file("more", &forebay::FileOptions::new().create(true)).unwrap_err();
        assert_eq!(more.kind(), ErrorKind::Retry, "{more}");

        drop(taken);
        pool.checkpoint(CheckpointOptions::now()).unwrap();
        for (byte, file) in (100..).zip(&files) {
            set(file, byte);
        }
        pool.close().unwrap();
        assert!((100..).zip(&files).all(|(byte, file)| on_disk(file) == byte));
    });
}
