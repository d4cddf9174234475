/*
 * Asking the kernel for blocks ahead of their reads.
 *
 * The caller has looked whether the block is in shared buffers, which is why PrefetchBuffer, that looks and asks
 * for a single block, is not used: neighbours share a request here.
 *
 * It relies on the block being within the relation: the segment of a block beyond its end cannot be opened, and
 * that is an error. Callers see to it. Temporary relations are never asked for, their buffers are elsewhere.
 */
#include "forebay.h"

#include "compat.h"
#include "storage/bufmgr.h"
#include "storage/fd.h"
#include "utils/spccache.h"
#include "utils/wait_event.h"

/* Whether a block of the main fork is in shared buffers just now. It costs a look into the buffer table. */
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

/* Asks the kernel for a row of blocks of the main fork: one request for each segment. It does not wait for them. */
void
fb_ask(Relation rel, BlockNumber first, BlockNumber blocks)
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
			/* A segment that is not open: this opens it, for the next time round. */
			smgrprefetch(RelationGetSmgr(rel), MAIN_FORKNUM, first);
			here = 1;
		}
		first += here;
		blocks -= here;
	}
#endif
}

/*
 * Whether a relation has a block of that number. *known is how many it surely has, 0 at first: relations that are read do
 * not become shorter.
 */
bool
fb_has_block(Relation rel, BlockNumber block, BlockNumber *known)
{
	if (block >= *known)
		*known = RelationGetNumberOfBlocks(rel);
	return block < *known;
}

/*
 * How far to look ahead in a relation at most, in blocks; 0 if not at all. The setting of its tablespace holds,
 * unless ours says more; a user who sets theirs to 0 wants no prefetching, ours neither.
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
