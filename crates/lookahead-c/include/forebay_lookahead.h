/* Generated from crates/lookahead-c/src/lib.rs: `FOREBAY_HEADER=write cargo test -p forebay-lookahead-c`. */

#ifndef FOREBAY_LOOKAHEAD_H
#define FOREBAY_LOOKAHEAD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

// For a consumer that may stop, the look-ahead grows by one block for each this many blocks that it took.
#define FBL_TAKEN_FOR_EACH 10

// Maximum look-ahead in blocks, whatever the consumer specifies: half of the blocks that are remembered.
#define FBL_HINTS_MOST 1024

// The hints for one consumer of one file: `fbl_hints_size()` bytes aligned to 8, made by `fbl_hints_init`.
struct fbl_hints;

// The trial of two read modes: `fbl_trial_size()` bytes aligned to 8, made by `fbl_trial_init`.
struct fbl_trial;

// A block's position in its file, counted in blocks from 0.
typedef uint32_t fbl_block;

// One request: consecutive blocks, of which the first and the last are wanted.
struct fbl_run {
  // The first block.
  fbl_block first;
  // Length in blocks, gaps included.
  uint32_t blocks;
  // How many of them are wanted.
  uint32_t wanted;
};

// Counts of the predicted blocks.
struct fbl_counts {
  // Blocks prefetched, before their reads.
  uint64_t asked;
  // Prefetched blocks that the consumer then read.
  uint64_t useful;
  // Predicted blocks that were in the consumer's own cache.
  uint64_t resident;
  // Time that reads waited for a device, prefetched or not, in nanoseconds.
  uint64_t waited_ns;
  // Maximum look-ahead in blocks when requests were made.
  uint64_t ahead_most;
};

// Chooses the steps of one consumer that are timed.
struct fbl_sampler {
  // Steps until the sampler rests.
  uint32_t left;
  // Reads that are not timed before the next timed step, and their number after a timed read.
  uint32_t skip;
  uint32_t skips;
  // Timed reads in a row that did not wait, since the timing rate was last reduced.
  uint32_t fast_reads;
  // Whether a step has read something since the last pause.
  bool has_read;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Whether a read that took this long, in nanoseconds, was a read from a device: a reader without hints then creates
// them.
bool fbl_read_waited(int64_t read_ns);

// Size of one consumer's hints, in bytes.
uintptr_t fbl_hints_size(void);

// Creates hints in `memory`: idle until a read waits. They look ahead by at most `most` blocks (and never by more than
// 1024); `takes_all` if the consumer will certainly take all predicted blocks. A request covers at most
// `combine_blocks` blocks, and reads through gaps of up to `gap_blocks`, for at most `over_read_percent` unneeded
// blocks for each hundred wanted ones.
//
// Returns null, and creates nothing, if `memory` is null.
//
// # Safety
// `memory` is null, or `fbl_hints_size()` writable bytes aligned to 8.
struct fbl_hints *fbl_hints_init(uint8_t *memory,
                                 uint32_t most,
                                 bool takes_all,
                                 uint32_t combine_blocks,
                                 uint32_t gap_blocks,
                                 uint32_t over_read_percent);

// Whether hints are idle because no read waits: the caller need not predict anything.
//
// # Safety
// `hints` is null or was made by `fbl_hints_init`, and no other thread uses it.
bool fbl_hints_is_idle(struct fbl_hints *hints);

// How many more blocks to predict now; 0 until a whole batch of them is worthwhile.
//
// # Safety
// As for `fbl_hints_is_idle`.
uint32_t fbl_hints_available(struct fbl_hints *hints);

// Predicted blocks that the consumer has not reached.
//
// # Safety
// As for `fbl_hints_is_idle`.
uint32_t fbl_hints_ahead(struct fbl_hints *hints);

// Sets another maximum for the look-ahead, in blocks: at least 1, and at most 1024.
//
// # Safety
// As for `fbl_hints_is_idle`.
void fbl_hints_set_most(struct fbl_hints *hints, uint32_t most);

// Whether this block was predicted recently: there is nothing to do for it.
//
// # Safety
// As for `fbl_hints_is_idle`.
bool fbl_hints_contains(struct fbl_hints *hints, uint32_t block);

// Predicts a block that is not yet known: the next one in the order of use. `resident` if the consumer has it in its
// own cache.
//
// # Safety
// As for `fbl_hints_is_idle`.
void fbl_hints_predict(struct fbl_hints *hints,
                       uint32_t block,
                       bool resident);

// Sets `*runs` to the requests to make now, in ascending order; returns how many. They stay valid until the next call
// with these hints.
//
// # Safety
// As for `fbl_hints_is_idle`; `runs` can be written.
uintptr_t fbl_hints_take_runs(struct fbl_hints *hints,
                              const struct fbl_run **runs);

// Records that the consumer reached a block, and that reading it took `read_ns` nanoseconds; less than 0 if the
// consumer had it in its own cache.
//
// # Safety
// As for `fbl_hints_is_idle`.
void fbl_hints_on_read(struct fbl_hints *hints,
                       uint32_t block,
                       int64_t read_ns);

// Records that the consumer jumped elsewhere: the predicted blocks are not the ones it will take next.
//
// # Safety
// As for `fbl_hints_is_idle`.
void fbl_hints_jump(struct fbl_hints *hints);

// The counts of the blocks predicted so far.
//
// # Safety
// As for `fbl_hints_is_idle`.
struct fbl_counts fbl_hints_counts(struct fbl_hints *hints);

// Returns a sampler that times all steps at first.
struct fbl_sampler fbl_sampler_new(void);

// Begins a step; returns whether to time it.
//
// # Safety
// `sampler` is null or was made by `fbl_sampler_new`, and no other thread uses it.
bool fbl_sampler_begin(struct fbl_sampler *sampler);

// Records that the current step has read something, which took `read_ns` nanoseconds; less than 0 if it was not timed.
//
// # Safety
// As for `fbl_sampler_begin`.
void fbl_sampler_read(struct fbl_sampler *sampler,
                      int64_t read_ns);

// Returns how many reads end a pause that begins now, in which no step need be observed; 0 if there is none.
//
// # Safety
// As for `fbl_sampler_begin`.
uint32_t fbl_sampler_pause(const struct fbl_sampler *sampler);

// A pause has ended: times all steps until one reads something, or the sampler rests.
//
// # Safety
// As for `fbl_sampler_begin`.
void fbl_sampler_resume(struct fbl_sampler *sampler);

// Size of a trial, in bytes.
uintptr_t fbl_trial_size(void);

// Creates a trial in `memory`, which begins with the first mode. If a block costs more than `waiting_ns` nanoseconds
// in that mode, the second is tried early.
//
// Returns null, and creates nothing, if `memory` is null.
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

// Whether the mode has not proved itself yet: a caller that measures a part of its reads measures all until it has.
//
// # Safety
// As for `fbl_trial_second`.
bool fbl_trial_undecided(struct fbl_trial *trial);

// Records that reading `blocks` took `spent_ns` nanoseconds. If the mode changes now, the next `known` blocks still
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
