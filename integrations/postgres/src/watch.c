/*
 * Watched scan nodes: which blocks they read, and how long that takes.
 *
 * For a trial of strategies, and for the trace, our function wraps a node's. The buffer manager's counters show how
 * many blocks a call reads. The clock is read before each call that may read: in a scan by pages, a call that may leave
 * the page; in an index scan, every call, until none has read for a while. Reads by the node's expressions count too.
 *
 * A scan's position is taken from the scan descriptors of heap and nbtree, which do not change within a major version.
 *
 * Failure: none. Watches live in the query's memory, and end with the reader that created them.
 */
#include "forebay.h"

#include "access/heapam.h"
#include "catalog/pg_am.h"
#include "executor/instrument.h"

/* A node's calls are timed until this many in a row have not read. */
#define WATCH_CALLS 64

/* A scan node that is timed, for a trial or the trace. */
typedef struct Watch
{
	slist_node	link;
	PlanState  *node;
	ExecProcNodeMtd real;
	FbAccess	access;
	FbFile	   *file;			/* NULL if there is no trial */
	Oid			relation;
	/* Its scan goes from page to page, and exposes its position in the page. */
	bool		by_page;
	/* How many more calls are timed if none reads. */
	int			left;
	/* The block read last. */
	BlockNumber last;
	uint32		last_blocks;
} Watch;

static Watch *last_watch = NULL;

static Watch *
fb_watch_of(PlanState *node)
{
	if (last_watch == NULL || last_watch->node != node)
		last_watch = fb_attached(FB_OF_WATCHED, node);
	return last_watch;
}

static int64
fb_blocks_read(void)
{
	return pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read;
}

static HeapScanDesc
fb_page_scan(Watch *watch)
{
	return (HeapScanDesc) ((ScanState *) watch->node)->ss_currentScanDesc;
}

/* Whether the next row of a scan by pages may be on another page. */
static bool
fb_page_ends(Watch *watch)
{
	HeapScanDesc scan = fb_page_scan(watch);

	return scan == NULL || (int) scan->rs_cindex <= 0 || (int) scan->rs_cindex + 1 >= (int) scan->rs_ntuples;
}

/* The block at which a node is, as far as is known. */
static BlockNumber
fb_block_of(Watch *watch)
{
	PlanState  *node = watch->node;

	if (watch->by_page)
	{
		HeapScanDesc scan = fb_page_scan(watch);

		if (scan != NULL && scan->rs_cblock != InvalidBlockNumber)
			return scan->rs_cblock;
		/* It has reached its end within one call, reading on from its last block. */
		return watch->access == FB_SEQUENTIAL ? watch->last + 1 : InvalidBlockNumber;
	}
	if (IsA(node, IndexOnlyScanState))
	{
		IndexScanDesc scan = ((IndexOnlyScanState *) node)->ioss_ScanDesc;

		if (scan == NULL || scan->indexRelation->rd_rel->relam != BTREE_AM_OID)
			return InvalidBlockNumber;
		return ((BTScanOpaque) scan->opaque)->currPos.currPage;
	}
	if (IsA(node, IndexScanState) && !TupIsNull(((ScanState *) node)->ss_ScanTupleSlot))
		return ItemPointerGetBlockNumberNoCheck(&((ScanState *) node)->ss_ScanTupleSlot->tts_tid);
	return InvalidBlockNumber;
}

/* Records what a call of a node has read; `spent_ns` is less than 0 if it was not timed. */
static void
fb_has_read(Watch *watch, uint32 blocks, int64 spent_ns)
{
	if (watch->file != NULL && spent_ns >= 0)
		fb_file_read(watch->file, watch->access, blocks, spent_ns);
	if (fb_trace)
	{
		BlockNumber block = fb_block_of(watch);
		/* This call, or the last one, may have read blocks ahead of the scan's position too. */
		uint32		step = watch->by_page ? Max(blocks, watch->last_blocks) : 1;

		/* If the scan has not moved, the read was of the index under it, or of the heap under an index-only scan. */
		if (block == InvalidBlockNumber || (!watch->by_page && block == watch->last))
			return;
		fb_trace_read(watch->relation, watch->access, block, blocks, block - (watch->last + 1) < step, spent_ns);
		watch->last = block;
		watch->last_blocks = blocks;
	}
}

/* Executes a scan node instead of the server's function, which it calls. */
static TupleTableSlot *
fb_exec_watched(PlanState *node)
{
	Watch	   *watch = fb_watch_of(node);
	int64		reads = fb_blocks_read();
	int64		spent_ns = -1;
	bool		timed = fb_trace || (watch->by_page ? fb_page_ends(watch) : watch->left > 0);
	instr_time	since;
	TupleTableSlot *row;

	INSTR_TIME_SET_ZERO(since);
	if (timed)
		INSTR_TIME_SET_CURRENT(since);
	row = watch->real(node);
	reads = fb_blocks_read() - reads;
	if (reads <= 0)
	{
		if (watch->left > 0)
			watch->left--;
		return row;
	}
	if (timed)
		spent_ns = fb_elapsed_ns(since);
	watch->left = WATCH_CALLS;
	fb_has_read(watch, reads, spent_ns);
	return row;
}

/* Starts watching a node; `file` is NULL if no trial needs its reads. */
void
fb_watch(MemoryContext context, slist_head *watches, PlanState *node, Relation rel, FbAccess access, FbFile *file)
{
	Watch	   *watch = MemoryContextAllocZero(context, sizeof(Watch));

	watch->node = node;
	watch->access = access;
	watch->file = file;
	watch->relation = RelationGetRelid(rel);
	watch->by_page = !IsA(node, IndexScanState) && !IsA(node, IndexOnlyScanState) &&
		rel->rd_tableam == GetHeapamTableAmRoutine();
	watch->left = WATCH_CALLS;
	watch->last = InvalidBlockNumber;
	fb_attach(FB_OF_WATCHED, node, watch);
	slist_push_head(watches, &watch->link);
	watch->real = node->ExecProcNodeReal;
	node->ExecProcNodeReal = fb_exec_watched;
}

/* The memory of these watches is about to be freed. */
void
fb_watches_release(slist_head *watches)
{
	slist_iter	each;

	last_watch = NULL;
	slist_foreach(each, watches)
		fb_detach(FB_OF_WATCHED, slist_container(Watch, link, each.cur)->node);
}
