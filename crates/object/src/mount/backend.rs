//! The backend: serves local pages at once and fetches others, for all requests that were submitted together.
//!
//! Invariants:  [OBK-1] a transfer is handed to the sink once, when its last page is there or one of them has failed

use std::fmt;
use std::sync::{Arc, PoisonError};

use forebay_io::backend::{Backend, Driven, Next, Sink, Transfer, Want, attempt};
use forebay_io::{Kind, Op, OsError};

use super::fetching::{Fetching, Inner, Piece};
use super::local::LocalFile;
use super::shared::Shared;

pub(super) struct ObjectBackend(Arc<Inner>);

impl ObjectBackend {
    pub(super) fn new(shared: Arc<Shared>, capacity: usize, sink: Arc<dyn Sink>) -> ObjectBackend {
        ObjectBackend(Arc::new(Inner { shared, capacity, sink }))
    }
}

impl Inner {
    fn start(self: &Arc<Self>, transfers: impl Iterator<Item = Transfer>) {
        let mut remote = Fetching::new(Arc::clone(self));
        for transfer in transfers {
            self.start_one(transfer, &mut remote);
        }
        remote.start();
    }

    fn start_one(self: &Arc<Self>, mut transfer: Transfer, remote: &mut Fetching) {
        loop {
            let local = self.shared.tracked(transfer.file().number());
            let result = match (transfer.op(), local) {
                (Op::SyncData | Op::SyncAll, _) => return self.sync(transfer),
                (Op::Write, Some(local)) => self.write(&local, &mut transfer),
                (Op::Read, Some(local)) => match self.read(&local, &mut transfer) {
                    Some(result) => result,
                    None => match self.pieces(&local, &transfer) {
                        // The pages have arrived since: there is nothing left to wait for.
                        Ok(pieces) if !pieces.iter().any(|it| matches!(it, Piece::Wanted(_))) => {
                            continue;
                        }
                        Ok(pieces) => return remote.add(transfer, local.id, pieces),
                        Err(error) => Err(error),
                    },
                },
                // Not a file of the tablespace: the system handles it.
                (_, None) => attempt(&mut transfer),
            };
            match self.sink.finished(transfer, result) {
                Next::Done => return,
                Next::Again(rest) => transfer = rest,
            }
        }
    }

    /// Answers a transfer, and starts the rest of it.
    pub(super) fn finished(self: &Arc<Self>, transfer: Transfer, result: Result<u64, OsError>) {
        if let Next::Again(rest) = self.sink.finished(transfer, result) {
            self.start(std::iter::once(rest));
        }
    }

    fn sync(self: &Arc<Self>, mut transfer: Transfer) {
        let inner = Arc::clone(self);
        self.shared.view().runtime.spawn_blocking(move || {
            // It comes back as a change of its file, after that one's own latch was looked at.
            let result = attempt(&mut transfer);
            inner.finished(transfer, result);
        });
    }

    fn write(&self, local: &LocalFile, transfer: &mut Transfer) -> Result<u64, OsError> {
        let shared = &self.shared;
        let writer = shared.writer()?;
        let page = shared.locals.page_bytes;
        let range = transfer.position()..transfer.position() + transfer.remaining();
        let (_io, end_before) = loop {
            if shared.locals.is_full() {
                shared.make_room(writer).map_err(|error| {
                    shared.failed(&error);
                    OsError::ENOSPC
                })?;
            }
            // Pages that are written in part must be present, and so must the last page if the file grows: after a cut,
            // the object may have more bytes of it.
            let end_before = local.bytes();
            let edges = [range.start, range.end, end_before.min(range.start)];
            let edges = edges.into_iter().filter(|edge| edge % page != 0).map(|edge| edge / page);
            for edge in edges.clone() {
                shared.bring_in(local, edge).map_err(|error| shared.failed(&error))?;
            }
            let io = local.io.read().unwrap_or_else(PoisonError::into_inner);
            // They may have been dropped since, as clean pages are [LOC-4].
            let are_here = edges.clone().all(|edge| shared.locals.lacks(local, edge).is_none());
            if are_here && local.bytes() >= end_before {
                break (io, end_before);
            }
        };
        if end_before < range.start && end_before % page != 0 {
            shared.locals.written(local, &(end_before - 1..end_before));
        }
        let mut moved = attempt(transfer)?;
        let end = range.start + moved;
        if end < range.end && end % page != 0 {
            // A partially written page is written to its end, before another thread reads it.
            let rest = (page - end % page).min(range.end - end);
            let slices = transfer.slices();
            let bytes = slices.iter().flat_map(|it| it.iter().copied());
            let bytes: Vec<u8> = bytes.skip(moved as usize).take(rest as usize).collect();
            if local.write(end, &bytes).is_ok() {
                moved += rest;
            } else {
                shared.locals.broke(local, end / page);
                moved -= moved.min(end % page);
            }
        }
        let written = range.start..range.start + moved;
        if let Some(bytes) = shared.locals.written(local, &written) {
            writer.grow(local.id, bytes).map_err(|error| shared.failed(&error))?;
        }
        Ok(moved)
    }

    /// Reads a range that is present as a whole; `None` if something must be fetched.
    fn read(&self, local: &LocalFile, transfer: &mut Transfer) -> Option<Result<u64, OsError>> {
        let locals = &self.shared.locals;
        let range = transfer.position()..transfer.position() + transfer.remaining();
        let _io = local.io.read().unwrap_or_else(PoisonError::into_inner);
        let end = range.end.min(local.bytes());
        let view = self.shared.view();
        let is_here = |block: u64| {
            let page = crate::PageId { file: local.id, block: block as u32 };
            // A page that was never written is a hole here, too.
            local.has(block) || view.snapshot.locate(page).is_ok_and(|place| place.is_none())
        };
        let here = local.is_removed() || locals.blocks(&(range.start..end)).all(is_here);
        here.then(|| attempt(transfer))
    }

    /// The pages of a read: the bytes of the present ones, and those that must be fetched.
    fn pieces(&self, local: &LocalFile, transfer: &Transfer) -> Result<Vec<Piece>, OsError> {
        let locals = &self.shared.locals;
        let _io = local.io.read().unwrap_or_else(PoisonError::into_inner);
        let end = (transfer.position() + transfer.remaining()).min(local.bytes());
        let piece = |block: u64| {
            if !local.has(block) {
                return Ok(Piece::Wanted(block as u32));
            }
            let start = block * locals.page_bytes;
            let len = local.bytes().saturating_sub(start).min(locals.page_bytes);
            let mut bytes = vec![0; len as usize];
            local.read(start, &mut bytes)?;
            Ok(Piece::Here(bytes.into()))
        };
        locals.blocks(&(transfer.position()..end)).map(piece).collect()
    }
}

impl Backend for ObjectBackend {
    /// Like `threads`, it delivers completions without a driving thread.
    fn kind(&self) -> Kind {
        Kind::Threads
    }

    fn capacity(&self) -> usize {
        self.0.capacity
    }

    fn start(&self, transfers: &mut Vec<Transfer>) {
        self.0.start(transfers.drain(..));
    }

    fn drive(&self, _: &Want<'_>) -> Driven {
        Driven::SelfDriven
    }

    fn notes(&self) -> Vec<String> {
        let failure = self.0.shared.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let tier = self.0.shared.view().client.tier.as_ref().and_then(|it| it.failure());
        failure.iter().chain(&tier).map(ToString::to_string).collect()
    }
}

impl fmt::Debug for ObjectBackend {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("ObjectBackend").field(&self.0.shared).finish()
    }
}
