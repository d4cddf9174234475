/*
 * Prefetching blocks through the kernel.
 *
 * The caller has checked that the blocks are not in shared buffers. PrefetchBuffer, which checks and prefetches a
 * single block, is not used, because adjacent blocks share a request here.
 *
 * Callers must pass blocks within the relation: the segment of a block beyond its end cannot be opened, which
 * is an error. Temporary relations are never prefetched, as their buffers are elsewhere.
 */
#include "forebay.h"

#include "compat.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/spccache.h"
#include "utils/wait_event.h"

#define COMBINE_BLOCKS 32
#define OVER_READ_PERCENT 50

/* Whether a block of the main fork is in shared buffers now. Costs one look-up in the buffer table. */
bool
fb_in_buffers(Relation rel, BlockNumber block)
{
	BufferTag	tag;
	uint32		hash;
	LWLock	   *lock;
	int			buffer;

	FbInitBufferTag(&tag, rel, MAIN_FORKNUM, block);
	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);
	LWLockAcquire(lock, LW_SHARED);
	buffer = BufTableLookup(&tag, hash);
	LWLockRelease(lock);
	return buffer >= 0;
}

/* Prefetches consecutive blocks of the main fork, with one request for each segment. Does not wait for them. */
void
fb_prefetch(Relation rel, BlockNumber first, BlockNumber blocks)
{
#if PG_VERSION_NUM >= 170000
	smgrprefetch(RelationGetSmgr(rel), MAIN_FORKNUM, first, blocks);
#else
	while (blocks > 0)
	{
		BlockNumber here = Min(blocks, RELSEG_SIZE - first % RELSEG_SIZE);
		File		file;
		off_t		offset;

		if (fb_segment(rel, first, &file, &offset))
			FilePrefetch(file, offset, here * BLCKSZ, WAIT_EVENT_DATA_FILE_PREFETCH);
		else
		{
			/* The segment is not open: this opens it, for the next iteration. */
			smgrprefetch(RelationGetSmgr(rel), MAIN_FORKNUM, first);
			here = 1;
		}
		first += here;
		blocks -= here;
	}
#endif
}

/*
 * Makes the hints of a scan in `context`. A request has at most COMBINE_BLOCKS blocks. Gaps up to `gap_blocks` between
 * blocks of a batch are read through, unless the scan may stop, if that adds at most OVER_READ_PERCENT to the batch.
 *
 * Index scans read through gaps. Where the blocks are dense, the kernel's readahead serves the server in few large
 * requests, and single blocks cannot compete (docs/adr/0034-dense-scans.md). Bitmap scans, whose blocks ascend, do not:
 * there it was slower by a third.
 */
fbl_hints *
fb_hints_make(MemoryContext context, int most, bool takes_all, int gap_blocks)
{
	return fbl_hints_init(MemoryContextAlloc(context, fbl_hints_size()), most, takes_all,
						  COMBINE_BLOCKS, takes_all ? gap_blocks : 0, OVER_READ_PERCENT);
}

/*
 * Whether a relation has a block of that number. *known is a lower bound of its length, 0 at first: relations that are
 * being read do not become shorter.
 */
bool
fb_has_block(Relation rel, BlockNumber block, BlockNumber *known)
{
	if (block >= *known)
		*known = RelationGetNumberOfBlocks(rel);
	return block < *known;
}

/*
 * The maximum look-ahead distance in a relation, in blocks; 0 if there is no look-ahead. It is the larger of the
 * tablespace's setting and ours; 0 in the tablespace's setting disables prefetching, including ours.
 */
int
fb_distance_of(Relation rel)
{
	int			concurrency;

	if (RelationUsesLocalBuffers(rel))
		return 0;
#if PG_VERSION_NUM >= 160000
	/* With direct I/O there is no page cache to fill. */
	if (io_direct_flags & IO_DIRECT_DATA)
		return 0;
#endif
	concurrency = get_tablespace_io_concurrency(rel->rd_rel->reltablespace);
	return concurrency == 0 ? 0 : Max(concurrency, fb_distance_max);
}
