//! Reads, writes and flushes: bytes from the store, time from the scheduler.

use std::sync::Arc;

use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};

use super::buffers::Buffers;
use super::contents::{Contents, Span};
use super::nodes::Node;
use crate::model::Op;
use crate::scheduler::{Incoming, Scheduler};
use crate::store::Store;

/// Alignment of commands to a model.
const SECTOR_BYTES: u64 = 512;

/// Performs transfers of placed bytes.
#[derive(Debug)]
pub(super) struct Transfers {
    pub(super) scheduler: Scheduler,
    pub(super) store: Arc<Store>,
    pub(super) buffers: Arc<Buffers>,
}

impl Span {
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

impl Transfers {
    /// Reads `span` of `node`, and replies when the device would have. If no buffer is available, the bytes are
    /// copied only at that time.
    pub(super) fn read(
        &self,
        number: u64,
        contents: &Arc<Contents>,
        (node, span): (Node, &Span),
        reply: ReplyData,
    ) {
        let (offset, len) = (span.offset, span.len());
        let ticket = self.scheduler.arrive(&Incoming {
            number,
            op: Op::Read,
            file: &span.file,
            offset,
            len,
            places: &span.places(),
        });
        let buffers = Arc::clone(&self.buffers);
        if let Some(mut buffer) = buffers.take(len as usize) {
            let copied = contents.copy_out(node, offset, &mut buffer);
            self.scheduler.ready(
                ticket,
                Box::new(move || {
                    answer_read(reply, copied, &buffer);
                    buffers.put(buffer);
                }),
            );
        } else {
            let contents = Arc::clone(contents);
            self.scheduler.ready(
                ticket,
                Box::new(move || {
                    let mut buffer = buffers.take_always(len as usize);
                    let copied = contents.copy_out(node, offset, &mut buffer);
                    answer_read(reply, copied, &buffer);
                    buffers.put_always(buffer);
                }),
            );
        }
    }

    /// Writes `data`, which has the length of `span` of `node`, and replies when the device would have.
    pub(super) fn write(
        &self,
        number: u64,
        contents: &Contents,
        (node, span): (Node, &Span),
        data: &[u8],
        reply: ReplyWrite,
    ) {
        let ticket = self.scheduler.arrive(&Incoming {
            number,
            op: Op::Write,
            file: &span.file,
            offset: span.offset,
            len: data.len() as u64,
            places: &span.places(),
        });
        let copied = contents.copy_in(node, span.offset, data);
        let written = data.len() as u32;
        self.scheduler.ready(
            ticket,
            Box::new(move || match copied {
                Ok(()) => reply.written(written),
                Err(error) => reply.error(error),
            }),
        );
    }

    /// Makes the device flush for `file`, and replies when the device would have.
    pub(super) fn flush(&self, number: u64, file: &Arc<str>, reply: ReplyEmpty) {
        let (op, offset, len) = (Op::Flush, 0, 0);
        let ticket =
            self.scheduler.arrive(&Incoming { number, op, file, offset, len, places: &[] });
        self.scheduler.ready(ticket, Box::new(move || reply.ok()));
    }
}

fn answer_read(reply: ReplyData, copied: Result<(), Errno>, bytes: &[u8]) {
    match copied {
        Ok(()) => reply.data(bytes),
        Err(error) => reply.error(error),
    }
}
