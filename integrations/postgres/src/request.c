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
#include "utils/spccache.h"
#include "utils/wait_event.h"

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
