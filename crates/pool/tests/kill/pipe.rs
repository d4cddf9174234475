//! The messages from a writer to its parent.
//!
//! ```text
//! message: length of the rest, u16; 1 and an operation as the log has it, or 2, worker u8, serial u64, LSN u64
//! ```
//!
//! Each message is one write to the pipe, and shorter than the pipe's atomic size. The message during which the writer
//! dies may be incomplete: if an intention was not reported, nothing was done for it yet; if an acknowledgement was not
//! reported, it was not given.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use forebay::Lsn;

use crate::engine::op::{Entry, Reader, Record};
use crate::engine::worker::Witness;

const INTENDED: u8 = 1;
const ACKNOWLEDGED: u8 = 2;

pub(crate) enum Message {
    Intended(Entry),
    Acknowledged { worker: u8, serial: u64, lsn: Lsn },
}

/// The writer's end: its standard output, unbuffered.
pub(crate) struct Teller(Mutex<File>);

impl Teller {
    pub(crate) fn new() -> io::Result<Teller> {
        Ok(Teller(Mutex::new(File::from(io::stdout().as_fd().try_clone_to_owned()?))))
    }

    fn send(&self, message: &[u8]) {
        let mut bytes = (message.len() as u16).to_le_bytes().to_vec();
        bytes.extend(message);
        let sent = self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes);
        sent.expect("the process that started this one listens until it is dead");
    }
}

impl Witness for Teller {
    fn intended(&self, entry: &Entry) {
        let mut message = vec![INTENDED];
        message.extend(Record::Entry(entry.clone()).encode());
        self.send(&message);
    }

    fn acknowledged(&self, worker: u8, serial: u64, lsn: Lsn) {
        let mut message = vec![ACKNOWLEDGED, worker];
        message.extend(serial.to_le_bytes());
        message.extend(lsn.0.to_le_bytes());
        self.send(&message);
    }
}

/// Returns the next message; `None` once the writer is dead.
pub(crate) fn hear(from: &mut impl Read) -> Option<Message> {
    let mut len = [0; 2];
    from.read_exact(&mut len).ok()?;
    let mut message = vec![0; usize::from(u16::from_le_bytes(len))];
    from.read_exact(&mut message).ok()?;
    let mut rest = Reader(&message);
    match rest.byte()? {
        INTENDED => match Record::decode(rest.0)? {
            Record::Entry(entry) => Some(Message::Intended(entry)),
            Record::Image { .. } => None,
        },
        _ => {
            let (worker, serial, lsn) = (rest.byte()?, rest.long()?, rest.lsn()?);
            Some(Message::Acknowledged { worker, serial, lsn })
        }
    }
}
