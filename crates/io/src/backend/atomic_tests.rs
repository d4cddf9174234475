//! The flag of an atomic write reaches the kernel through every backend: the kernel itself refuses it on a file without
//! atomic writes, with no check by this crate.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use super::{Kind, Next, Sink, Want, open_raw};
use crate::answer::Recipient;
use crate::file::{File, OpenOptions};
use crate::memory::Arena;
use crate::op::Op;
use crate::options::IoOptions;
use crate::os_error::OsError;
use crate::properties::CacheMode;
use crate::request::Transfer;

/// Results of the attempts.
#[derive(Default)]
struct Answers(Mutex<Vec<Result<u64, OsError>>>);

impl Sink for Answers {
    fn finished(&self, _transfer: Transfer, result: Result<u64, OsError>) -> Next {
        self.0.lock().expect("no thread panicked").push(result);
        Next::Done
    }
}

fn write(file: &File, pieces: usize, atomic: bool) -> Transfer {
    let arena = Arena::new(pieces, 4096).expect("a few pages of memory");
    let leases = arena.take_many(pieces).expect("a new arena is free");
    Transfer {
        id: 0,
        op: Op::Write,
        file: file.clone(),
        offset: 0,
        leases,
        len: 4096 * pieces as u64,
        done: 0,
        limit: None,
        atomic,
        idle_attempts: 0,
        refused_by: None,
        sync: None,
        recipient: Recipient::Ticket(Arc::default()),
    }
}

#[test]
fn every_backend_requests_an_atomic_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let direct = OpenOptions::new().create(true).cache(CacheMode::Direct).buffered_if_refused(true);
    let file = File::open(&path, &direct).unwrap();
    if file.atomic_write().is_some() {
        return;
    }
    let options = IoOptions { queue_depth: 4, cache: file.cache_mode(), ..IoOptions::default() };
    for kind in Kind::ALL.into_iter().filter(|kind| kind.serves(file.cache_mode())) {
        let answers = Arc::new(Answers::default());
        let sink: Arc<dyn Sink> = Arc::clone(&answers) as Arc<dyn Sink>;
        let Ok(backend) = open_raw(kind, &options, &sink) else { continue };
        for (pieces, atomic) in [(1, false), (1, true), (2, true), (1, false)] {
            let had = answers.0.lock().unwrap().len();
            let done = || answers.0.lock().unwrap().len() > had;
            backend.start(&mut vec![write(&file, pieces, atomic)]);
            while !done() {
                let want = Want { id: None, satisfied: &done, block: true };
                let _ = backend.drive(&want);
                std::thread::yield_now();
            }
            let answer = answers.0.lock().unwrap()[had];
            match atomic {
                true => assert_eq!(answer, Err(OsError::EOPNOTSUPP), "{kind}, {pieces}"),
                false => assert_eq!(answer, Ok(4096), "{kind}"),
            }
        }
    }
}
