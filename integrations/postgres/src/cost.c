/*
 * What look-ahead costs an index scan, and whether the scan is cheaper without.
 *
 * Two kinds of scans may be. If many values have to be looked at for each block, as where rows lie in about the order of
 * the values, that may take longer than reads would wait. And if a scan reads most blocks of a range, in any order, the
 * kernel's readahead reads them for it in few large requests, provided that the device's readahead is large. No property
 * of a scan says which is faster, so a trial of forebay-lookahead compares both modes, by the time of reads and of looking
 * ahead (docs/adr/0034-dense-scans.md). Of a scan whose blocks ascend, which even a small readahead reads well, a smaller
 * part of the range is sufficient. Other scans have no trial: without look-ahead, each of their blocks would wait.
 *
 * Failure: out of memory, once in a scan.
 */
#include "forebay.h"

#include "utils/memutils.h"

/* Looking ahead is dear if it takes this long for each block that is read: the quickest disks read one in that time. */
#define DEAR_NS 20000
/* A scan is dense if it has read this many blocks, and one in so many of the range that they are in. */
#define DENSE_BLOCKS 1024
#define DENSE_ONE_IN 2
/* The same if its blocks ascend: in so many of eight steps, by at most so many blocks. */
#define ASCENDING_ONE_IN 4
#define ASCENDING_EIGHTHS 7
#define STEP_BLOCKS 16
/* Blocks read until it is known whether it is either, and from one report to the trial to the next. */
#define WEIGHED_BLOCKS 128
#define REPORTED_BLOCKS 16
/* Blocks read until the kernel's readahead has reached its size. */
#define READAHEAD_BLOCKS 128

/* Whether the scan may be cheaper without look-ahead. */
static bool
fb_may_cost_more(FbScan *scan)
{
	FbCost	   *cost = &scan->cost;
	bool		ascends = (uint64) cost->steps_near * 8 >= (uint64) cost->heap_blocks * ASCENDING_EIGHTHS;

	/* Without values to look at, it takes long only where it waits for leaves, as the scan would. */
	return (scan->ahead != NULL && cost->look_ns > (int64) cost->blocks * DEAR_NS) ||
		(cost->heap_blocks >= DENSE_BLOCKS &&
		 cost->heap_blocks > (cost->highest - cost->lowest) / (ascends ? ASCENDING_ONE_IN : DENSE_ONE_IN));
}

/* Weighs what the last blocks cost. */
static void
fb_weigh_cost(FbScan *scan)
{
	FbCost	   *cost = &scan->cost;

	if (cost->trial != NULL)
	{
		fbl_trial_spent(cost->trial, cost->blocks, Max(0, cost->read_ns + cost->look_ns),
						READAHEAD_BLOCKS + (scan->hints != NULL ? fbl_hints_ahead(scan->hints) : 0));
		cost->paused = fbl_trial_second(cost->trial);
		cost->undecided = fbl_trial_undecided(cost->trial);
	}
	else if (fb_may_cost_more(scan))
		cost->trial = fbl_trial_init(MemoryContextAlloc(scan->query->estate->es_query_cxt, fbl_trial_size()), DEAR_NS);
	cost->blocks = 0;
	cost->read_ns = cost->look_ns = 0;
}

/* A block of the heap or the index was read for the scan, in that time; less than 0 if it was not read, or not timed. */
void
fb_cost_read(FbScan *scan, int64 spent_ns)
{
	FbCost	   *cost = &scan->cost;

	if (spent_ns < 0)
		return;
	cost->read_ns += spent_ns;
	cost->blocks++;
	if (cost->blocks >= (cost->trial == NULL ? WEIGHED_BLOCKS : REPORTED_BLOCKS))
		fb_weigh_cost(scan);
}

/* The same for a block of the heap, whose number shows how dense the scan is. */
void
fb_cost_read_heap(FbScan *scan, BlockNumber block, int64 spent_ns)
{
	FbCost	   *cost = &scan->cost;

	if (spent_ns < 0)
		return;
	cost->lowest = cost->heap_blocks == 0 ? block : Min(cost->lowest, block);
	cost->highest = Max(cost->highest, block);
	cost->steps_near += block - cost->last <= STEP_BLOCKS;
	cost->last = block;
	cost->heap_blocks++;
	fb_cost_read(scan, spent_ns);
}
