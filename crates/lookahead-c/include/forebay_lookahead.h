/* Generated from crates/lookahead-c/src/lib.rs: `FOREBAY_HEADER=write cargo test -p forebay-lookahead-c`. */

#ifndef FOREBAY_LOOKAHEAD_H
#define FOREBAY_LOOKAHEAD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

// A consumer that may stop is looked ahead of by one block, or whatever it takes, for so many that it took.
#define FBL_TAKEN_FOR_EACH 10

// Most blocks to be ahead of a consumer, whatever it says: half of what is remembered.
#define FBL_HINTS_MOST 1024

// The hints for one consumer of one file: `fbl_hints_size()` bytes aligned to 8, made by `fbl_hints_init`.
struct fbl_hints;

// The trial of two read modes: `fbl_trial_size()` bytes aligned to 8, made by `fbl_trial_init`.
struct fbl_trial;

// A block's position in its file, counted in blocks from 0.
typedef uint32_t fbl_block;

// One request: a row of blocks, the first and the last of which are wanted.
struct fbl_run {
  // The first block.
  fbl_block first;
  // Length in blocks, gaps included.
  uint32_t blocks;
  // How many of them are wanted.
  uint32_t wanted;
};

// What became of the blocks foreseen.
struct fbl_counts {
  // Blocks prefetched, before their reads.
  uint64_t asked;
  // Those of them that the consumer came to.
  uint64_t useful;
  // Foreseen blocks that were in the consumer's own cache.
  uint64_t resident;
  // Time that reads waited for a device, whether asked for or not, in nanoseconds.
  uint64_t waited_ns;
  // Most blocks that it was ahead when it asked.
  uint64_t ahead_most;
};

// Chooses the steps of one consumer that are timed.
struct fbl_sampler {
  // Steps until it rests.
  uint32_t left;
  // Steps to be passed over before the next that is timed, and from then to the one after.
  uint32_t skip;
  uint32_t skips;
  // Timed reads in a row that did not wait, since fewer were timed.
  uint32_t calm;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Whether a read that took so long, in nanoseconds, came from a device: a reader without hints makes them then.
bool fbl_read_waited(int64_t read_ns);

// How many bytes one consumer's hints take.
uintptr_t fbl_hints_size(void);

// Makes hints in `memory`: asleep until a read waits. They look ahead by `most` blocks at most (and 1024 at the
// very most); `takes_all` if the consumer will surely take all it is foreseen to. A request covers `combine_blocks`
// blocks at most, and reads through gaps of up to `gap_blocks`, for at most `over_read_percent` unneeded
// blocks in a hundred wanted ones.
//
// Returns null, and makes nothing, when `memory` is null.
//
// # Safety
// `memory` is null, or `fbl_hints_size()` writable bytes aligned to 8.
struct fbl_hints *fbl_hints_init(uint8_t *memory,
                                 uint32_t most,
                                 bool takes_all,
                                 uint32_t combine_blocks,
                                 uint32_t gap_blocks,
                                 uint32_t over_read_percent);

// Whether nothing is to be foreseen, as no read waits.
//
// # Safety
// `hints` is null or was made by `fbl_hints_init`, and no other thread uses it.
bool fbl_hints_asleep(struct fbl_hints *hints);

// How many more blocks to foresee now; 0 until a whole batch of them is worth it.
//
// # Safety
// As for `fbl_hints_asleep`.
uint32_t fbl_hints_room(struct fbl_hints *hints);

// Whether this block was foreseen recently: there is nothing to do for it.
//
// # Safety
// As for `fbl_hints_asleep`.
bool fbl_hints_knows(struct fbl_hints *hints, uint32_t block);

// Foresees a block that is not known: the next one in the order of use. `resident` if the consumer has it in its
// own cache.
//
// # Safety
// As for `fbl_hints_asleep`.
void fbl_hints_foresee(struct fbl_hints *hints,
                       uint32_t block,
                       bool resident);

// The requests to make now, ascending, in `*runs`; returns how many. They stay there until the next call with these
// hints.
//
// # Safety
// As for `fbl_hints_asleep`; `runs` can be written.
uintptr_t fbl_hints_due(struct fbl_hints *hints,
                        const struct fbl_run **runs);

// The consumer came to a block, and reading it took `read_ns` nanoseconds; less than 0 if it had it in its own
// cache.
//
// # Safety
// As for `fbl_hints_asleep`.
void fbl_hints_came(struct fbl_hints *hints,
                    uint32_t block,
                    int64_t read_ns);

// The consumer went elsewhere: what was foreseen is not what it will take next.
//
// # Safety
// As for `fbl_hints_asleep`.
void fbl_hints_jump(struct fbl_hints *hints);

// What became of the blocks foreseen so far.
//
// # Safety
// As for `fbl_hints_asleep`.
struct fbl_counts fbl_hints_counts(struct fbl_hints *hints);

// A sampler that has all steps timed at first.
struct fbl_sampler fbl_sampler_new(void);

// A step begins: whether to time it.
//
// # Safety
// `sampler` is null or was made by `fbl_sampler_new`, and no other thread uses it.
bool fbl_sampler_begin(struct fbl_sampler *sampler);

// That step has read something, which took `read_ns` nanoseconds; less than 0 if it was not timed.
//
// # Safety
// As for `fbl_sampler_begin`.
void fbl_sampler_read(struct fbl_sampler *sampler, int64_t read_ns);

// Whether none has read for a while, and none is timed until one does.
//
// # Safety
// As for `fbl_sampler_begin`.
bool fbl_sampler_rests(const struct fbl_sampler *sampler);

// How many bytes a trial takes.
uintptr_t fbl_trial_size(void);

// Makes a trial in `memory`, that begins with the first mode. Where a block costs that more than `waiting_ns`
// nanoseconds, the second is tried early.
//
// Returns null, and makes nothing, when `memory` is null.
//
// # Safety
// `memory` is null, or `fbl_trial_size()` writable bytes aligned to 8.
struct fbl_trial *fbl_trial_init(uint8_t *memory,
                                 uint64_t waiting_ns);

// Whether to read in the second mode now.
//
// # Safety
// `trial` is null or was made by `fbl_trial_init`, and no other thread uses it.
bool fbl_trial_second(struct fbl_trial *trial);

// Reading `blocks` took `spent_ns` nanoseconds. If the mode changes now, the next `known` blocks still
// count for the old one.
//
// # Safety
// As for `fbl_trial_second`.
void fbl_trial_spent(struct fbl_trial *trial,
                     uint32_t blocks,
                     uint64_t spent_ns,
                     uint32_t known);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FOREBAY_LOOKAHEAD_H */
