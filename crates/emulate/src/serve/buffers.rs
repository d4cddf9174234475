//! Buffers for reads in progress: reused, and bounded.
//!
//! A read's bytes are copied out of the store while the model's time runs. With hundreds of megabytes in
//! progress that would take as much memory; beyond the bound, the bytes are copied when the answer is due.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maximum bytes that reads in progress may hold.
const LENT_BYTES_MAX: usize = 128 << 20;

/// Bytes that are kept for later reads.
const IDLE_BYTES_MAX: usize = 32 << 20;

#[derive(Debug, Default)]
pub(super) struct Buffers {
    lent_bytes: AtomicUsize,
    idle: Mutex<Idle>,
}

#[derive(Debug, Default)]
struct Idle {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Buffers {
    /// A buffer of `len` bytes with arbitrary contents, if the bound allows one. Return it with [`Buffers::put`].
    pub(super) fn take(&self, len: usize) -> Option<Vec<u8>> {
        if self.lent_bytes.fetch_add(len, Ordering::Relaxed) + len > LENT_BYTES_MAX {
            self.lent_bytes.fetch_sub(len, Ordering::Relaxed);
            return None;
        }
        Some(self.take_always(len))
    }

    /// A buffer of `len` bytes with arbitrary contents, not counted against the bound.
    pub(super) fn take_always(&self, len: usize) -> Vec<u8> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = idle.buffers.iter().rposition(|buffer| buffer.capacity() >= len);
        let mut buffer = match fits {
            Some(at) => idle.buffers.swap_remove(at),
            None => Vec::with_capacity(len.next_power_of_two()),
        };
        idle.bytes -= if fits.is_some() { buffer.capacity() } else { 0 };
        drop(idle);
        buffer.resize(len, 0);
        buffer
    }

    /// Takes back a buffer from [`Buffers::take`].
    pub(super) fn put(&self, buffer: Vec<u8>) {
        self.lent_bytes.fetch_sub(buffer.len(), Ordering::Relaxed);
        self.put_always(buffer);
    }

    /// Takes back a buffer from [`Buffers::take_always`].
    pub(super) fn put_always(&self, buffer: Vec<u8>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + buffer.capacity() <= IDLE_BYTES_MAX {
            idle.bytes += buffer.capacity();
            idle.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_the_bound_holds() {
        let buffers = Buffers::default();
        let first = buffers.take(1 << 20).unwrap();
        let address = first.as_ptr();
        buffers.put(first);
        let again = buffers.take(4096).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (address, 4096));
        assert!(buffers.take(LENT_BYTES_MAX).is_none(), "4096 are lent");
        buffers.put(again);
        assert!(buffers.take(LENT_BYTES_MAX).is_some());
    }
}
