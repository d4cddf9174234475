//! A process with a limit on file sizes: operations fail with an error, and the process survives.

use forebay::{Error, ErrorKind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{PAGE, alone, builder, dirty, on_disk, set};

fn limit(bytes: usize) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: Some(bytes as u64), maximum }).unwrap();
}

#[test]
fn a_file_that_may_not_grow_is_an_error_and_no_signal() {
    alone(|| {
        let directory = tempfile::tempdir().unwrap();
        let pool = builder(directory.path()).build().unwrap();
        let file = dirty(&pool, "t", 1);
        limit(2 * PAGE);
        let error = file.extend(8).unwrap_err();
        assert!(matches!(error, Error::Io(forebay_io::Error::TooLarge { .. })), "{error}");
        assert!(error.to_string().contains("ulimit -f"), "{error}");
        assert_eq!((file.blocks(), file.extend(1).unwrap()), (1, 1..2));

        // A page that already exists: it stays dirty until the limit is raised.
        limit(PAGE / 2);
        set(&file, 2);
        assert_eq!(file.flush_file().unwrap_err().kind(), ErrorKind::Usage);
        limit(2 * PAGE);
        pool.close().unwrap();
        assert_eq!(on_disk(&file), 2);
    });
}

#[test]
fn a_pool_is_built_where_no_file_may_have_a_byte() {
    alone(|| {
        limit(0);
        let directory = tempfile::tempdir().unwrap();
        let pool = builder(directory.path()).build().unwrap();
        drop(pool);
    });
}
