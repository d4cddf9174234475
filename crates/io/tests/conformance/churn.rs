//! Random reads and writes by several threads, checked against a model in memory.
//!
//! Each thread owns a region of one file and keeps several requests in flight on it. Requests that would overlap a
//! write wait for it first, because the contract does not order them. The model changes when a write is submitted and
//! is compared when a read has completed.

use std::sync::Arc;
use std::thread;

use fastrand::Rng;
use forebay_io::{Arena, File, Io, Lease, Op, Request, Ticket};

use crate::bench::{Bench, assert_same, bytes_of, noise, unit};

const THREADS: usize = 3;
const REGION: usize = 1 << 20;
const STEPS: usize = 120;
const WINDOW: usize = 8;
const LEASES_MAX: usize = 16;
const SLOT: usize = 16_384;

/// A queue depth at which the threads also encounter a full queue.
pub(crate) const QUEUE_DEPTH: usize = 16;

/// Reads and writes a file of `bench` through `io` and compares it with the models at the end.
pub(crate) fn churn(bench: &Bench, io: &Io) {
    let mut rng = bench.rng();
    let file = bench.file("churned", &vec![0; THREADS * REGION]);
    let models: Vec<Vec<u8>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|index| {
                let worker = Worker {
                    io: io.clone(),
                    file: file.clone(),
                    start: index * REGION,
                    unit: unit(&file),
                    arena: Arena::new(WINDOW * LEASES_MAX, SLOT).unwrap(),
                    rng: rng.fork(),
                    model: vec![0; REGION],
                    outstanding: Vec::new(),
                };
                scope.spawn(|| worker.run())
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    io.submit(Request::sync_data(&file)).wait().result.unwrap();
    assert_same(&bench.contents("churned"), &models.concat(), "the file after the churn");
}

struct Worker {
    io: Io,
    file: File,
    /// First byte of the region.
    start: usize,
    unit: usize,
    arena: Arc<Arena>,
    rng: Rng,
    model: Vec<u8>,
    outstanding: Vec<Outstanding>,
}

struct Outstanding {
    ticket: Ticket,
    op: Op,
    /// Within the region.
    offset: usize,
    len: usize,
}

impl Outstanding {
    fn conflicts(&self, op: Op, offset: usize, len: usize) -> bool {
        let overlaps = self.offset < offset + len && offset < self.offset + self.len;
        overlaps && (self.op == Op::Write || op == Op::Write)
    }
}

impl Worker {
    fn run(mut self) -> Vec<u8> {
        for _ in 0..STEPS {
            if self.outstanding.len() == WINDOW || self.rng.u8(..4) == 0 {
                self.settle_one();
            }
            self.submit_one();
        }
        while !self.outstanding.is_empty() {
            self.settle_one();
        }
        self.model
    }

    fn submit_one(&mut self) {
        let mut leases = self.leases();
        let len = leases.iter().map(Lease::len).sum();
        let offset = self.unit * self.rng.usize(..=(REGION - len) / self.unit);
        let op = if self.rng.bool() { Op::Read } else { Op::Write };
        while self.outstanding.iter().any(|one| one.conflicts(op, offset, len)) {
            self.settle_one();
        }
        let position = (self.start + offset) as u64;
        let request = if op == Op::Write {
            let bytes = noise(&mut self.rng, len);
            self.model[offset..offset + len].copy_from_slice(&bytes);
            let mut rest = bytes.as_slice();
            for lease in &mut leases {
                let (first, others) = rest.split_at(lease.len());
                lease.copy_from_slice(first);
                rest = others;
            }
            Request::write(&self.file, position, leases)
        } else {
            Request::read(&self.file, position, leases)
        };
        let ticket = self.io.submit(request);
        self.outstanding.push(Outstanding { ticket, op, offset, len });
    }

    /// A few leases of random lengths, occasionally many.
    fn leases(&mut self) -> Vec<Lease> {
        let most = if self.rng.u8(..8) == 0 { LEASES_MAX } else { 3 };
        let mut leases = self.arena.take_many(self.rng.usize(1..=most)).unwrap();
        for lease in &mut leases {
            lease.truncate(self.unit * self.rng.usize(1..=SLOT / self.unit));
        }
        leases
    }

    fn settle_one(&mut self) {
        let Some(last) = self.outstanding.len().checked_sub(1) else {
            return;
        };
        let Outstanding { ticket, op, offset, len } =
            self.outstanding.swap_remove(self.rng.usize(..=last));
        let found = bytes_of(ticket.wait());
        if op == Op::Read {
            let what = format!("{len} bytes read at {}", self.start + offset);
            assert_same(&found, &self.model[offset..offset + len], &what);
        }
    }
}
