/*
 * Look-ahead of b-tree scans.
 *
 * The functions of an index's access method lie in its relation-cache entry. Ours take the place of amgettuple,
 * amrescan and amendscan there, once for an index in a session, and call nbtree's. A scan that is not noted
 * passes through. A noted one is timed from row to row, and looked ahead of when reads wait: forebay-lookahead says
 * how far and of what, leaf.c knows the rows to come, request.c asks for them.
 *
 * How long a heap block took to read is the time from one amgettuple's return to the next one's entry, or to
 * the node's return, whichever is first: what the nodes above do with the row is not in it.
 *
 * It relies on BTScanOpaqueData, which is the same within a major version; its size is compared, and the row that it says the
 * scan is at with the row returned. A relation-cache entry keeps our functions while
 * it is open, so a scan has them from its beginning to its end; an entry built again later has them from the next query on.
 *
 * Failure: of what is called, only memory can fail a query, as anywhere in it; leaf.c says why reading leaves
 * ahead does not. No lock or pin is kept from one call to the next.
 */
#include "forebay.h"

#include "access/tableam.h"
#include "access/transam.h"
#include "access/visibilitymap.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

/* The scan looked up last, and what is known of it: NULL if it is to pass through. */
static IndexScanDesc last_desc = NULL;
static FbScan *last_scan = NULL;

/* The scan whose row is being fetched from the heap, timed. */
static FbScan *fetching = NULL;

/* Whether BTScanOpaqueData is the server's. It may change in a minor release. */
static enum {UNKNOWN, SAME, DIFFERS} state = UNKNOWN;

/* What carries out index scan nodes, before we took its place. */
static FbMethod scan_node;
static FbMethod index_only_node;

static bool get_tuple(IndexScanDesc desc, ScanDirection direction);
static TupleTableSlot *exec_scan(PlanState *node);
static TupleTableSlot *exec_index_only(PlanState *node);

/* Knows a scan no longer, neither by its keys nor by its descriptor. */
static void
forget(FbScan *scan)
{
	last_desc = NULL;
	if (fetching == scan)
		fetching = NULL;
	fb_detach(FB_OF_KEYS, scan->keys);
	if (scan->desc != NULL)
		fb_detach(FB_OF_SCAN, scan->desc);
}

/* The state of scans is another than ours: nothing is looked ahead of from now on. */
static void
refuse_state(void)
{
	dlist_iter	query;
	dlist_iter	scan;

	state = DIFFERS;
	last_desc = NULL;
	fetching = NULL;
	dlist_foreach(query, &fb_queries)
	{
		dlist_foreach(scan, &dlist_container(FbQuery, link, query.cur)->scans)
		{
			FbScan	   *one = dlist_container(FbScan, link, scan.cur);

			one->awake = false;
			if (one->ahead != NULL)
				one->ahead->leaves_awake = false;
		}
	}
	ereport(WARNING,
			(errmsg("forebay does not look ahead in index scans"),
			 errdetail("This server keeps the state of b-tree scans in another form than the one that forebay was built for."),
			 errhint("Build and install forebay for this release of PostgreSQL.")));
}

/* Whether the server's scan state is as large as ours. The same size asked for in the same kind of context takes the same space. */
static bool
same_state(IndexScanDesc desc)
{
	if (state == UNKNOWN)
	{
		void	   *ours = palloc(sizeof(BTScanOpaqueData));

		state = GetMemoryChunkSpace(ours) == GetMemoryChunkSpace(desc->opaque) ? SAME : DIFFERS;
		pfree(ours);
		if (state == DIFFERS)
			refuse_state();
	}
	return state == SAME;
}

/* Whether the scan is, as far as we can see, at the row that it has returned: then its state lies as ours. */
static inline bool
is_at_row(IndexScanDesc desc)
{
	BTScanPos	pos = &((BTScanOpaque) desc->opaque)->currPos;

	return (unsigned) pos->itemIndex < MaxTIDsPerBTreePage &&
		memcmp(&pos->items[pos->itemIndex].heapTid, &desc->xs_heaptid, sizeof(ItemPointerData)) == 0;
}

/* Which noted scan this is, if any. */
static inline FbScan *
find(IndexScanDesc desc)
{
	if (desc != last_desc)
	{
		last_scan = state == DIFFERS ? NULL : fb_attached(FB_OF_SCAN, desc);
		last_desc = desc;
	}
	return last_scan;
}

/* The same of one that begins, or begins again: the first time its node's keys tell. */
static FbScan *
find_by_keys(IndexScanDesc desc, ScanKey keys)
{
	FbScan	   *scan = find(desc);

	if (scan != NULL)
		return scan;
	scan = fb_attached(FB_OF_KEYS, keys);
	if (scan == NULL || *scan->scan != desc || !same_state(desc))
		return NULL;
	/* A parallel plan that is begun again has left its last scan without an end. */
	if (scan->desc != NULL)
		fb_detach(FB_OF_SCAN, scan->desc);
	scan->desc = desc;
	fb_attach(FB_OF_SCAN, desc, scan);
	return last_scan = scan;
}

/*
 * A row is fetched, if one was: its reads and its time end here. That is so as well where a query begins, which a function
 * in the node's filter may run. Of a scan that an error has left nothing but our own memory is looked at.
 */
void
fb_scan_fetched(void)
{
	FbScan	   *scan = fetching;

	fetching = NULL;
	if (scan == NULL)
		return;
	scan->reads = pgBufferUsage.shared_blks_read - scan->reads;
	if (scan->reads > 0 && scan->timed)
	{
		instr_time	now;

		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, scan->since);
		scan->spent = (int64) (INSTR_TIME_GET_DOUBLE(now) * 1e9);
	}
}

/* The heap's row is there, or not wanted: tells what its block cost. */
static void
came(FbScan *scan)
{
	BlockNumber block = scan->block;
	int64		reads;
	int64		spent;

	if (fetching == scan)
		fb_scan_fetched();
	reads = scan->reads;
	spent = scan->spent;
	scan->block = InvalidBlockNumber;
	if (reads > 0)
		fbl_sampler_read(&scan->sampler, spent);
	else if (!scan->awake)
		return;
	if (scan->hints == NULL)
	{
		IndexScanDesc desc = *scan->scan;
		int			most = fb_distance_of(desc->heapRelation);
		uint8	   *memory;

		if (most == 0 || !fbl_read_waited(spent))
			return;
		if (scan->ahead != NULL && !fb_ahead_prepare(scan->ahead))
			scan->ahead = NULL;
		memory = MemoryContextAlloc(scan->query->estate->es_query_cxt, fbl_hints_size());
		scan->hints = fbl_hints_init(memory, most,
									 scan->ahead ? fb_ahead_takes_all(scan->ahead) : scan->whole && !scan->query->may_stop,
									 FB_COMBINE_BLOCKS, FB_GAP_BLOCKS, FB_OVER_READ_PERCENT);
	}
	/* Where the visibility map tells enough, the heap is not come to. */
	if (scan->index_only && reads == 0 && !fbl_hints_knows(scan->hints, block))
		return;
	fbl_hints_came(scan->hints, block, spent);
	scan->awake = !fbl_hints_asleep(scan->hints);
	if (scan->awake && scan->ahead != NULL && fbl_read_waited(spent))
	{
		scan->ahead->barren = 0;
		fb_ahead_wake(scan->ahead);
	}
}

static bool
is_all_visible(Relation heap, BlockNumber block, Buffer *map)
{
	FbLook		look = fb_look_begin(heap);
	bool		visible = VM_ALL_VISIBLE(heap, block, map);

	fb_look_end(&look);
	return visible;
}

/*
 * Foresees a block of the heap; false if there is nothing to do for it. `map` is a pin on a page of the visibility
 * map, invalid at first, that the caller releases in the end.
 */
bool
fb_scan_foresee(FbScan *scan, IndexScanDesc desc, BlockNumber block, Buffer *map)
{
	Relation	heap = desc->heapRelation;

	if (fbl_hints_knows(scan->hints, block))
		return false;
	if (!fb_has_block(heap, block, &scan->heap_blocks) || (scan->index_only && is_all_visible(heap, block, map)))
		return false;
	fbl_hints_foresee(scan->hints, block, fb_in_buffers(heap, block));
	return true;
}

/* Asks for what was foreseen. */
void
fb_scan_ask(FbScan *scan, IndexScanDesc desc)
{
	const struct fbl_run *runs;
	size_t		count = fbl_hints_due(scan->hints, &runs);

	for (size_t i = 0; i < count; i++)
		fb_ask(desc->heapRelation, runs[i].first, Min(runs[i].blocks, scan->heap_blocks - runs[i].first));
}

/* Foresees rows as far as the hints have room, and asks for their blocks. */
static void
look_ahead(FbScan *scan, IndexScanDesc desc)
{
	uint32		room = fbl_hints_room(scan->hints);
	BlockNumber before = scan->block;
	Buffer		map = InvalidBuffer;

	if (room == 0)
		return;
	while (room > 0)
	{
		BlockNumber block = fb_cursor_next(scan, desc);

		if (block == InvalidBlockNumber)
			break;
		if (block != before && fb_scan_foresee(scan, desc, block, &map))
			room--;
		before = block;
	}
	if (map != InvalidBuffer)
		ReleaseBuffer(map);
	fb_scan_ask(scan, desc);
}

/* Takes note of where the scan is, and whether it has gone there from row to row. */
static void
follow(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	BTScanPos	pos = &((BTScanOpaque) desc->opaque)->currPos;
	int			step = ScanDirectionIsForward(direction) ? 1 : -1;

	if (scan->rescanned || scan->direction != direction)
	{
		scan->rescanned = false;
		scan->direction = direction;
		fb_cursor_reset(scan, desc);
		/* Others foresee blocks too, where the scan is begun again and again. */
		if (scan->ahead == NULL)
			fbl_hints_jump(scan->hints);
	}
	else if (scan->leaf != pos->currPage)
	{
		if (!fb_cursor_follow(scan, desc))
			fb_cursor_reset(scan, desc);
	}
	else if (pos->itemIndex != scan->item + step)
	{
		fb_cursor_reset(scan, desc);
		fbl_hints_jump(scan->hints);
	}
	scan->leaf = pos->currPage;
	scan->item = pos->itemIndex;
}

/*
 * Our function before a node's own costs as much as a tenth of a row that is in memory. So it is there only while the
 * scan is timed; where somebody else has come before us, or after, it stays as it is.
 */
static void
time_node(FbScan *scan, bool timed)
{
	ExecProcNodeMtd real = scan->index_only ? index_only_node.own : scan_node.own;
	ExecProcNodeMtd ours = scan->index_only ? exec_index_only : exec_scan;

	fb_replace_method(scan->node, timed ? real : ours, timed ? ours : real);
}

/* Takes note of where the scan is where nothing else is to be done. What it misses has the cursor put there again. */
static inline void
stay(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	BTScanPos	pos = &((BTScanOpaque) desc->opaque)->currPos;

	if (scan->leaf == pos->currPage && pos->itemIndex == scan->item + (ScanDirectionIsForward(direction) ? 1 : -1))
		scan->item = pos->itemIndex;
}

/* btgettuple for a scan that may have to descend the index for it: its time tells whether leaves are waited for. */
static bool
get_tuple_anew(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	int64		reads = pgBufferUsage.shared_blks_read;
	bool		timed = fb_ahead_watches(scan->ahead);
	BTScanPos	pos = &((BTScanOpaque) desc->opaque)->currPos;
	int64		spent = -1;
	instr_time	since;
	bool		found;

	scan->begins = false;
	if (timed)
		INSTR_TIME_SET_CURRENT(since);
	found = btgettuple(desc, direction);
	reads = pgBufferUsage.shared_blks_read - reads;
	if (timed && reads > 0)
	{
		instr_time	now;

		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, since);
		spent = (int64) (INSTR_TIME_GET_DOUBLE(now) * 1e9);
	}
	fb_ahead_began(scan->ahead, found ? pos->currPage : InvalidBlockNumber, reads, spent);
	return found;
}

/* Idle, a row is counted before it is there: the one that the scan has ended at is none. */
static void
count_rows(FbScan *scan, IndexScanDesc desc)
{
	if (scan->idle && scan->row_total > scan->rows_before && !BTScanPosIsValid(((BTScanOpaque) desc->opaque)->currPos))
		scan->row_total--;
	scan->rows_before = scan->row_total;
}

/* btgettuple for a scan that is watched. */
static pg_noinline bool
get_tuple_watched(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	BlockNumber block;
	int64		hits;
	bool		found;

	if (scan->idle)
	{
		BlockNumber leaf = ((BTScanOpaque) desc->opaque)->currPos.currPage;

		/* What was read is the leaf that it came to, or the row before. */
		scan->reads = pgBufferUsage.shared_blks_read;
		if (scan->leaf != leaf)
		{
			scan->leaf = leaf;
			scan->row_total++;
			return btgettuple(desc, direction);
		}
		count_rows(scan, desc);
		scan->idle = false;
		fbl_sampler_read(&scan->sampler, -1);
		time_node(scan, true);
	}
	/* Another's, if that has a node that somebody else carries out. */
	if (fetching != NULL)
		fb_scan_fetched();
	if (scan->block != InvalidBlockNumber)
		came(scan);
	hits = pgBufferUsage.shared_blks_hit;
	found = scan->ahead != NULL && (scan->begins || scan->ahead->source->follow != NULL)
		? get_tuple_anew(scan, desc, direction) : btgettuple(desc, direction);
	if (scan->owed > 0)
		fb_look_settle(desc->indexRelation, &scan->owed, pgBufferUsage.shared_blks_hit - hits);
	if (!found)
		return false;
	if (unlikely(!is_at_row(desc)))
	{
		refuse_state();
		return true;
	}
	if (scan->ahead != NULL && scan->ahead->source->follow != NULL)
		scan->ahead->source->follow(scan->ahead, direction);
	scan->row_total++;
	block = ItemPointerGetBlockNumberNoCheck(&desc->xs_heaptid);
	/* The scan has the block of the row before in its hands: there is no read, and nothing new to foresee. */
	if (block == scan->last && scan->ahead == NULL)
	{
		stay(scan, desc, direction);
		return true;
	}
	scan->block = scan->last = block;
	if (scan->awake && !(scan->ahead != NULL && fb_ahead_leads(scan->ahead)))
	{
		follow(scan, desc, direction);
		look_ahead(scan, desc);
	}
	else
		scan->rescanned = true; /* where it is will be looked up when it wakes */
	scan->reads = pgBufferUsage.shared_blks_read;
	scan->spent = -1;
	scan->timed = fbl_sampler_begin(&scan->sampler) || scan->awake;
	if (scan->timed)
		INSTR_TIME_SET_CURRENT(scan->since);
	else if (scan->ahead == NULL && fbl_sampler_rests(&scan->sampler))
	{
		scan->block = scan->last = InvalidBlockNumber;
		scan->idle = true;
		scan->leaf = ((BTScanOpaque) desc->opaque)->currPos.currPage;
		time_node(scan, false);
		return true;
	}
	fetching = scan;
	return true;
}

/* btgettuple for another scan than the last. */
static pg_noinline bool
get_tuple_elsewhere(IndexScanDesc desc, ScanDirection direction)
{
	return find(desc) != NULL ? get_tuple(desc, direction) : btgettuple(desc, direction);
}

/* In the place of btgettuple. Each instruction before the server's own counts here: nothing is saved, nothing awaited. */
static bool
get_tuple(IndexScanDesc desc, ScanDirection direction)
{
	FbScan	   *scan = last_scan;

	/* A scan is looked up when it is begun: what was found last holds until then. */
	if (unlikely(desc != last_desc))
		return get_tuple_elsewhere(desc, direction);
	if (scan == NULL)
		return btgettuple(desc, direction);
	if (!scan->idle || pgBufferUsage.shared_blks_read != scan->reads)
		return get_tuple_watched(scan, desc, direction);
	scan->row_total++;
	return btgettuple(desc, direction);
}

/* In the place of btrescan. */
static void
rescan(IndexScanDesc desc, ScanKey keys, int key_count, ScanKey orders, int order_count)
{
	FbScan	   *scan = find_by_keys(desc, keys);

	if (scan != NULL)
	{
		if (scan->block != InvalidBlockNumber)
			came(scan);
		count_rows(scan, desc);
		scan->rescanned = true;
		scan->last = InvalidBlockNumber;
		scan->start_total++;
		scan->begins = true;
		if (scan->ahead != NULL && scan->ahead->source->follow != NULL)
			fb_ahead_restart(scan->ahead);
	}
	btrescan(desc, keys, key_count, orders, order_count);
}

/* What became of the hints for a scan: those for its heap, and those for leaves where it is begun again and again. */
struct fbl_counts
fb_scan_counts(FbScan *scan)
{
	struct fbl_counts counts = {0};
	struct fbl_counts leaves;

	if (scan->hints != NULL)
		counts = fbl_hints_counts(scan->hints);
	if (scan->ahead == NULL || scan->ahead->leaves == NULL)
		return counts;
	leaves = fbl_hints_counts(scan->ahead->leaves);
	counts.asked += leaves.asked;
	counts.useful += leaves.useful;
	counts.resident += leaves.resident;
	counts.waited_ns += leaves.waited_ns;
	counts.ahead_most = Max(counts.ahead_most, leaves.ahead_most);
	return counts;
}

/* A scan is at its end, also by an error: its numbers go to its index. It raises no errors. */
static void
add_counts(FbScan *scan)
{
	struct fbl_counts counts = fb_scan_counts(scan);
	uint64		values[FB_STATS] = {
		[FB_SCANS] = scan->start_total,
		[FB_ROWS] = scan->row_total,
		[FB_PREFETCHED] = counts.asked,
		[FB_USEFUL] = counts.useful,
		[FB_WASTED] = counts.asked - counts.useful,
		[FB_RESIDENT] = counts.resident,
		[FB_WAITED_NS] = counts.waited_ns,
	};

	if (scan->start_total > 0)
		fb_stats_add(scan->index, values);
}

/* In the place of btendscan. */
static void
end_scan(IndexScanDesc desc)
{
	FbScan	   *scan = find(desc);

	last_desc = NULL;
	if (scan != NULL)
	{
		forget(scan);
		/* Its descriptor's place may be another scan's before the query's memory goes. */
		dlist_delete(&scan->link);
		count_rows(scan, desc);
		add_counts(scan);
		fb_explain_log(scan);
	}
	btendscan(desc);
}

/* In the place of what carries out the node: its row is there, so the time for its block ends. */
static inline TupleTableSlot *
node_returns(PlanState *node, TupleTableSlot *row)
{
	FbScan	   *scan = fetching;

	if (scan != NULL && scan->node == node)
	{
		/* By far the most frequent case where nothing waits. */
		if (!scan->awake && pgBufferUsage.shared_blks_read == scan->reads)
		{
			fetching = NULL;
			scan->block = InvalidBlockNumber;
		}
		else
			came(scan);
	}
	return row;
}

static TupleTableSlot *
exec_scan(PlanState *node)
{
	return node_returns(node, scan_node.own(node));
}

static TupleTableSlot *
exec_index_only(PlanState *node)
{
	return node_returns(node, index_only_node.own(node));
}

/* Whether our functions are in an index's relation-cache entry, putting them there if they can be. */
static bool
take_place(Relation index)
{
	IndexAmRoutine *am = index->rd_indam;

	if (am->amgettuple == get_tuple)
		return true;
	/* Somebody else is there already: leave this index to them. */
	if (index->rd_rel->relam != BTREE_AM_OID || am->amgettuple != btgettuple ||
		am->amrescan != btrescan || am->amendscan != btendscan)
		return false;
	am->amgettuple = get_tuple;
	am->amrescan = rescan;
	am->amendscan = end_scan;
	return true;
}

/* Whether the server reads a table for itself, in the midst of anything, with the same relation-cache entries as a query. */
static bool
is_of_server(Relation heap)
{
	return RelationGetRelid(heap) < FirstNormalObjectId || heap->rd_rel->relkind == RELKIND_TOASTVALUE;
}

/* A node's array of keys: its own, even if it is empty. */
static ScanKey
keys_of(PlanState *node)
{
	return IsA(node, IndexOnlyScanState) ? ((IndexOnlyScanState *) node)->ioss_ScanKeys
		: ((IndexScanState *) node)->iss_ScanKeys;
}

/* Notes an index scan node, from its query's start on. */
void
fb_scan_register(FbQuery *query, PlanState *node, bool whole)
{
	bool		index_only = IsA(node, IndexOnlyScanState);
	Relation	index = index_only ? ((IndexOnlyScanState *) node)->ioss_RelationDesc
		: ((IndexScanState *) node)->iss_RelationDesc;
	Relation	heap = ((ScanState *) node)->ss_currentRelation;
	FbMethod   *method = index_only ? &index_only_node : &scan_node;
	FbScan	   *scan;

	/* What is no heap may keep its rows elsewhere than in the block that their address says. */
	if (state == DIFFERS || index == NULL || RelationUsesLocalBuffers(heap) || is_of_server(heap) ||
		heap->rd_tableam != GetHeapamTableAmRoutine() || !take_place(index))
		return;
	if (fb_method_is_own(method, node))
		fb_replace_method(node, method->own, index_only ? exec_index_only : exec_scan);

	scan = MemoryContextAllocZero(query->estate->es_query_cxt, sizeof(FbScan));
	scan->query = query;
	scan->node = node;
	scan->scan = index_only ? &((IndexOnlyScanState *) node)->ioss_ScanDesc : &((IndexScanState *) node)->iss_ScanDesc;
	scan->index_only = index_only;
	scan->whole = whole;
	scan->sampler = fbl_sampler_new();
	scan->block = InvalidBlockNumber;
	scan->last = InvalidBlockNumber;
	scan->rescanned = true;
	scan->index = RelationGetRelid(index);
	scan->keys = keys_of(node);
	fb_stats_expect(scan->index);
	fb_attach(FB_OF_KEYS, scan->keys, scan);
	dlist_push_head(&query->scans, &scan->link);
	fb_elements_register(scan, scan->keys, index_only ? ((IndexOnlyScanState *) node)->ioss_NumScanKeys
						 : ((IndexScanState *) node)->iss_NumScanKeys);
}

/* What is known of a node's scan; NULL if it is not looked at. */
FbScan *
fb_scan_of(PlanState *node)
{
	if (!IsA(node, IndexScanState) && !IsA(node, IndexOnlyScanState))
		return NULL;
	return fb_attached(FB_OF_KEYS, keys_of(node));
}

/* The query's memory goes: so do its scans, ended or not. */
void
fb_scans_gone(FbQuery *query)
{
	dlist_iter	iter;

	dlist_foreach(iter, &query->scans)
	{
		FbScan	   *scan = dlist_container(FbScan, link, iter.cur);

		add_counts(scan);
		forget(scan);
	}
}
