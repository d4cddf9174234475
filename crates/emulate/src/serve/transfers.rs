//! Reads, writes and flushes: bytes from the store, time from the clockwork.

use std::sync::Arc;

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};

use super::buffers::Buffers;
use crate::clockwork::{Clockwork, Incoming};
use crate::files::Stretch;
use crate::model::Op;
use crate::store::{Store, StoreError};

/// What commands to a model are multiples of.
const SECTOR_BYTES: u64 = 512;

/// Carries out transfers of placed bytes.
#[derive(Debug)]
pub(super) struct Transfers {
    pub(super) clockwork: Clockwork,
    pub(super) store: Arc<Store>,
    pub(super) buffers: Arc<Buffers>,
}

/// Which bytes of which file.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) file: Arc<str>,
    pub(super) offset: u64,
    pub(super) stretches: Vec<Stretch>,
}

impl Span {
    pub(super) fn len(&self) -> u64 {
        self.stretches.iter().map(|stretch| stretch.len).sum()
    }

    /// The commands that a device would get: whole sectors.
    fn places(&self) -> Vec<(u64, u64)> {
        let placed = self.stretches.iter().filter_map(|stretch| {
            let offset = stretch.device_offset?;
            let start = offset - offset % SECTOR_BYTES;
            let end = (offset + stretch.len).next_multiple_of(SECTOR_BYTES);
            Some((start, end - start))
        });
        placed.collect()
    }
}

pub(super) fn errno(error: &StoreError) -> Errno {
    match error {
        StoreError::Full { .. } => Errno::ENOSPC,
        StoreError::Io(error) => error.raw_os_error().map_or(Errno::EIO, Errno::from_i32),
    }
}

impl Transfers {
    /// Reads `span`, and replies when the device would have.
    pub(super) fn read(&self, number: u64, span: &Span, reply: ReplyData) {
        let len = span.len();
        let ticket = self.clockwork.arrive(&Incoming {
            number,
            op: Op::Read,
            file: &span.file,
            offset: span.offset,
            len,
            places: &span.places(),
        });
        let buffers = Arc::clone(&self.buffers);
        if let Some(mut buffer) = buffers.take(len as usize) {
            let copied = copy_out(&self.store, &span.stretches, &mut buffer);
            self.clockwork.ready(
                ticket,
                Box::new(move || {
                    answer_read(reply, copied, &buffer);
                    buffers.put(buffer);
                }),
            );
        } else {
            let (store, stretches) = (Arc::clone(&self.store), span.stretches.clone());
            self.clockwork.ready(
                ticket,
                Box::new(move || {
                    let mut buffer = buffers.take_always(len as usize);
                    let copied = copy_out(&store, &stretches, &mut buffer);
                    answer_read(reply, copied, &buffer);
                    buffers.put_always(buffer);
                }),
            );
        }
    }

    /// Writes `data`, which is as long as `span`, and replies when the device would have.
    pub(super) fn write(&self, number: u64, span: &Span, data: &[u8], reply: ReplyWrite) {
        let ticket = self.clockwork.arrive(&Incoming {
            number,
            op: Op::Write,
            file: &span.file,
            offset: span.offset,
            len: data.len() as u64,
            places: &span.places(),
        });
        let copied = copy_in(&self.store, &span.stretches, data);
        let written = data.len() as u32;
        self.clockwork.ready(
            ticket,
            Box::new(move || match copied {
                Ok(()) => reply.written(written),
                Err(error) => reply.error(errno(&error)),
            }),
        );
    }

    /// Has the device make durable what it was given, for `file`.
    pub(super) fn flush(&self, number: u64, file: &Arc<str>, reply: ReplyEmpty) {
        let (op, offset, len) = (Op::Flush, 0, 0);
        let ticket =
            self.clockwork.arrive(&Incoming { number, op, file, offset, len, places: &[] });
        self.clockwork.ready(ticket, Box::new(move || reply.ok()));
    }
}

fn answer_read(reply: ReplyData, copied: Result<(), StoreError>, bytes: &[u8]) {
    match copied {
        Ok(()) => reply.data(bytes),
        Err(error) => reply.error(errno(&error)),
    }
}

fn copy_out(store: &Store, stretches: &[Stretch], mut into: &mut [u8]) -> Result<(), StoreError> {
    for stretch in stretches {
        let here;
        (here, into) = into.split_at_mut(stretch.len as usize);
        match stretch.device_offset {
            Some(offset) => store.read(offset, here)?,
            None => here.fill(0),
        }
    }
    Ok(())
}

fn copy_in(store: &Store, stretches: &[Stretch], mut from: &[u8]) -> Result<(), StoreError> {
    for stretch in stretches {
        let here;
        (here, from) = from.split_at(stretch.len as usize);
        if let Some(offset) = stretch.device_offset {
            store.write(offset, here)?;
        }
    }
    Ok(())
}
