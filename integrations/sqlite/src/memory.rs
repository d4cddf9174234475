//! Fallible allocation.
//!
//! When memory is exhausted, SQLite continues with what it has, or returns SQLITE_NOMEM. `Vec::push`, `Box::new` and
//! similar functions abort the process instead. So code that SQLite calls allocates by the functions below only; clippy.toml
//! denies the others, and a test lets each allocation of a query fail in turn. Maps do not use the standard library's
//! default hasher: its keys are thread-local, in memory that the dynamic loader allocates at first use, and aborts if it cannot.
//!
//! Invariants:  [MEM-1] an allocation that fails leaves the list, map or text unchanged
//! Concurrency: none; functions of their arguments.
//! Failure:     `NoMemory`, which ends look-ahead for a file.

#![expect(unsafe_code, reason = "the standard library has no box that may be refused")]
#![expect(
    clippy::disallowed_methods,
    reason = "after room was made for one more, they allocate nothing"
)]

use std::alloc::Layout;
use std::collections::{HashMap, TryReserveError, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash};

/// An allocation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoMemory;

impl From<TryReserveError> for NoMemory {
    fn from(_: TryReserveError) -> NoMemory {
        NoMemory
    }
}

pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// Fallible `push`, `insert` and `extend`.
pub(crate) trait Grow<T> {
    /// Adds a value at the end.
    fn grow(&mut self, value: T) -> Result<(), NoMemory>;
    /// Adds a value before the one at this place.
    fn grow_at(&mut self, at: usize, value: T) -> Result<(), NoMemory>;
    /// Adds values at the end, as many as there is memory for.
    fn grow_by(&mut self, values: impl IntoIterator<Item = T>) -> Result<(), NoMemory> {
        values.into_iter().try_for_each(|value| self.grow(value))
    }
}

impl<T> Grow<T> for Vec<T> {
    fn grow(&mut self, value: T) -> Result<(), NoMemory> {
        self.try_reserve(1)?;
        self.push(value);
        Ok(())
    }

    fn grow_at(&mut self, at: usize, value: T) -> Result<(), NoMemory> {
        self.try_reserve(1)?;
        self.insert(at, value);
        Ok(())
    }
}

impl<T> Grow<T> for VecDeque<T> {
    fn grow(&mut self, value: T) -> Result<(), NoMemory> {
        self.try_reserve(1)?;
        self.push_back(value);
        Ok(())
    }

    fn grow_at(&mut self, at: usize, value: T) -> Result<(), NoMemory> {
        self.try_reserve(1)?;
        self.insert(at, value);
        Ok(())
    }
}

/// Sets a key's value.
pub(crate) fn insert<K: Eq + Hash, V>(
    map: &mut Map<K, V>,
    key: K,
    value: V,
) -> Result<(), NoMemory> {
    map.try_reserve(1)?;
    map.insert(key, value);
    Ok(())
}

/// The values, as a list.
pub(crate) fn list<T>(values: impl IntoIterator<Item = T>) -> Result<Vec<T>, NoMemory> {
    let mut all = Vec::new();
    all.grow_by(values)?;
    Ok(all)
}

/// Replaces the contents of a list by these bytes.
pub(crate) fn refill(all: &mut Vec<u8>, bytes: &[u8]) -> Result<(), NoMemory> {
    all.clear();
    all.try_reserve(bytes.len())?;
    all.extend_from_slice(bytes);
    Ok(())
}

/// A list with this value, `count` times.
pub(crate) fn filled<T: Copy>(value: T, count: usize) -> Result<Vec<T>, NoMemory> {
    let mut all = Vec::new();
    all.try_reserve_exact(count)?;
    all.resize(count, value);
    Ok(all)
}

/// Copies a text.
pub(crate) fn text(of: &str) -> Result<String, NoMemory> {
    let mut text = String::new();
    add_text(&mut text, of)?;
    Ok(text)
}

/// Adds to a text.
pub(crate) fn add_text(text: &mut String, more: &str) -> Result<(), NoMemory> {
    text.try_reserve(more.len())?;
    text.push_str(more);
    Ok(())
}

/// Moves a value to the heap.
pub(crate) fn boxed<T>(value: T) -> Result<Box<T>, NoMemory> {
    const { assert!(size_of::<T>() > 0, "what has no bytes is not allocated") };
    // SAFETY: the layout has a size above 0. Allocated memory is written before it becomes a box, which frees it with
    // the same layout.
    unsafe {
        let memory = std::alloc::alloc(Layout::new::<T>()).cast::<T>();
        if memory.is_null() {
            return Err(NoMemory);
        }
        memory.write(value);
        Ok(Box::from_raw(memory))
    }
}

/// A short text in a fixed buffer. Text that does not fit is cut off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    bytes: [u8; Line::MAX],
    len: usize,
}

impl Line {
    const MAX: usize = 256;

    pub(crate) fn of(text: impl fmt::Display) -> Line {
        let mut line = Line { bytes: [0; Line::MAX], len: 0 };
        let _ = fmt::write(&mut line, format_args!("{text}")); // an error means that the line is full
        line
    }

    pub(crate) fn as_str(&self) -> &str {
        let chunk = self.bytes[..self.len].utf8_chunks().next();
        chunk.map_or("", |chunk| chunk.valid())
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let more = text.len().min(room.len());
        room[..more].copy_from_slice(&text.as_bytes()[..more]);
        self.len += more;
        if more == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
