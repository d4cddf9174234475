//! Thread numbers: small numbers for the living threads of the process.
//!
//! A thread gets its number at its first call and returns it when it ends; the lowest free one is assigned next, so
//! there are only as many numbers as threads alive at once. The number is kept in a thread-local without a destructor:
//! reading it is one load, with no check whether the thread is ending. The destructor that returns it belongs to a
//! second thread-local, which is accessed only when the number is taken.
//!
//! [`std::thread::ThreadId`] was rejected: its numbers are never reused, so they cannot index a
//! table.
//!
//! Invariants:  [STAT-1] a number belongs to one living thread at most
//! Concurrency: returning a number happens before the next taking (both hold the lock), so whatever the former owner
//!              stored under its number, the next owner sees.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Stands for the number of a thread that has not called yet.
const NOT_ASKED: usize = usize::MAX;

/// Stands for the number of a thread that is ending, and has returned its number.
const ENDING: usize = usize::MAX - 1;

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { next: 0, free: BTreeSet::new() });

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NOT_ASKED) };
    static OWNED: OwnNumber = const { OwnNumber(Cell::new(None)) };
}

/// The calling thread's number, or one that is larger than any if it has none.
#[inline]
pub(super) fn get() -> usize {
    NUMBER.get()
}

/// Assigns a number to the calling thread if it has none yet, and returns [`get`] afterwards.
#[cold]
pub(super) fn get_or_take() -> usize {
    if NUMBER.get() == NOT_ASKED {
        // A thread that is so far terminated that it could not return a number does not get one.
        NUMBER.set(OWNED.try_with(OwnNumber::take).unwrap_or(ENDING));
    }
    NUMBER.get()
}

/// Returns a thread's number when the thread ends.
struct OwnNumber(Cell<Option<usize>>);

impl OwnNumber {
    fn take(&self) -> usize {
        let number = numbers().take();
        self.0.set(Some(number));
        number
    }
}

impl Drop for OwnNumber {
    fn drop(&mut self) {
        // Destructors of other thread-locals may still count after this one.
        NUMBER.set(ENDING);
        if let Some(number) = self.0.take() {
            numbers().give_back(number);
        }
    }
}

/// The numbers in use are those below `next` and not in `free`.
struct Numbers {
    next: usize,
    free: BTreeSet<usize>,
}

impl Numbers {
    fn take(&mut self) -> usize {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn give_back(&mut self, number: usize) {
        assert!(number < self.next, "[STAT-1] number {number} was never given out");
        let was_out = self.free.insert(number);
        assert!(was_out, "[STAT-1] number {number} was given back twice");
    }
}

fn numbers() -> MutexGuard<'static, Numbers> {
    // The asserts are placed where the numbers are still consistent.
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier};
    use std::thread;

    #[test]
    fn the_lowest_free_number_is_given_out_next() {
        let mut numbers = Numbers { next: 0, free: BTreeSet::new() };
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [0, 1, 2]);
        numbers.give_back(1);
        numbers.give_back(0);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [0, 1, 3]);
    }

    // [STAT-1]
    #[test]
    fn threads_that_live_at_once_have_different_numbers() {
        const THREADS: usize = 40;
        let barrier = Arc::new(Barrier::new(THREADS));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let barrier = Arc::clone(&barrier);
                thread::spawn(move || {
                    let number = get_or_take();
                    barrier.wait();
                    assert_eq!(get(), number);
                    number
                })
            })
            .collect();
        let numbers: BTreeSet<usize> =
            threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(numbers.len(), THREADS);
    }

    #[test]
    fn threads_one_after_another_do_not_use_the_numbers_up() {
        // Other tests have threads as well, but not that many at once.
        let highest = (0..1000).map(|_| thread::spawn(get_or_take).join().unwrap()).max();
        assert!(highest.unwrap() < 500, "{highest:?}");
    }

    #[test]
    fn a_thread_that_gave_its_number_back_gets_no_other() {
        struct Last;
        impl Drop for Last {
            fn drop(&mut self) {
                assert_eq!(get_or_take(), ENDING);
            }
        }
        thread_local!(static LAST: Last = const { Last });
        // What is accessed first is destroyed last; a panic there would abort the test.
        let ended = thread::spawn(|| {
            LAST.with(|_| ());
            assert!(get_or_take() < ENDING);
        });
        ended.join().unwrap();
    }
}
