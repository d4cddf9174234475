/*
 * Look-ahead of index scans.
 *
 * The functions of an index's access method are in its relation-cache entry. Once for each index in a session, we
 * install a copy there whose amgettuple, amrescan and amendscan are ours (and aminsert, see insert.c); they call the
 * server's. A scan that is not registered passes through. A registered scan is timed from row to row, and look-ahead
 * starts when its reads wait: forebay-lookahead decides how far and which blocks, leaf.c provides the rows ahead of a
 * b-tree scan and other_indexes.c those of others, request.c prefetches them.
 *
 * While a scan's reads do not wait, it is idle: its rows are only counted, until the session has read a number of blocks
 * that the sampler chooses, and on from there if the backend has not blocked meanwhile.
 *
 * The time of a heap block's read is measured from one amgettuple's return to the entry of the next, or to
 * the node's return, whichever is first: it excludes what the nodes above do with the row.
 *
 * This relies on the state of the server's scans, which does not change within a major version. Two checks guard it: its
 * size is compared, and the row at its current position is compared with the row returned. A relation-cache entry keeps
 * our functions while it is open, so a scan has them from beginning to end; a rebuilt entry gets them with the next query.
 *
 * Failure: of the functions called, only memory allocation can fail a query, as anywhere in it; leaf.c says why reading
 * leaves ahead cannot. No lock or pin is kept from one call to the next.
 */
#include "forebay.h"

#include <sys/resource.h>

#include "access/tableam.h"
#include "access/transam.h"
#include "access/visibilitymap.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

/* After this many starts of a scan before which something was read, its rows may have values in a TOAST table. */
#define STARTS_WITH_READS 16

/*
 * After this many rows ahead that the visibility map is sufficient for, an index-only scan does not look ahead until a
 * read waits: it may have waited for the map only.
 */
#define VISIBLE_ROWS_MAX 256

/* After this many scans between whose starts the session has read nothing, a scan begins idle. */
#define SCANS_IN_MEMORY 16

/* The scan looked up last, and its FbScan: NULL if it must pass through. */
static IndexScanDesc last_desc = NULL;
static FbScan *last_scan = NULL;

/* The scan whose row is being fetched from the heap, with its time measured. */
static FbScan *fetching = NULL;

/* How many scans have begun since the session read something, up to SCANS_IN_MEMORY, and its counter of reads then. */
static int	scans_in_memory = 0;
static int64 reads_before_them = -1;

/* The functions that executed index scan nodes before we replaced them. */
static FbMethod scan_node;
static FbMethod index_only_node;

static bool fb_gettuple(IndexScanDesc desc, ScanDirection direction);
static TupleTableSlot *fb_exec_index_scan(PlanState *node);
static TupleTableSlot *fb_exec_index_only(PlanState *node);

static bool
fb_btree_is_at_row(IndexScanDesc desc)
{
	BTScanPos	pos = &((BTScanOpaque) desc->opaque)->currPos;

	return (unsigned) pos->itemIndex < MaxTIDsPerBTreePage &&
		memcmp(&pos->items[pos->itemIndex].heapTid, &desc->xs_heaptid, sizeof(ItemPointerData)) == 0;
}

static FbIndexKind btree = {
	.name = "b-tree",
	.am = BTREE_AM_OID,
	.gettuple = btgettuple,
	.rescan = btrescan,
	.endscan = btendscan,
	.state_size = sizeof(BTScanOpaqueData),
	.is_at_row = fb_btree_is_at_row,
};

/* The kind of an index; NULL if it has no look-ahead. */
static inline FbIndexKind *
fb_index_kind(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID ? &btree : fb_other_index_kind(index);
}

/* Removes a scan from the registry, both by its keys and by its descriptor. */
static void
fb_scan_unregister(FbScan *scan)
{
	last_desc = NULL;
	if (!slist_is_empty(&scan->toasts))
	{
		fetching = NULL;
		fb_toasts_release(scan);
	}
	if (fetching == scan)
		fetching = NULL;
	fb_detach(FB_OF_KEYS, scan->keys);
	if (scan->desc != NULL)
		fb_detach(FB_OF_SCAN, scan->desc);
}

/* The server's scan state differs from ours: disables look-ahead in scans of that kind from now on. */
static void
fb_refuse_state(FbIndexKind *kind)
{
	dlist_iter	query;
	dlist_iter	scan;

	kind->state = FB_DIFFERS;
	last_desc = NULL;
	fetching = NULL;
	dlist_foreach(query, &fb_queries)
	{
		dlist_foreach(scan, &dlist_container(FbQuery, link, query.cur)->scans)
		{
			FbScan	   *one = dlist_container(FbScan, link, scan.cur);

			if (one->kind != kind)
				continue;
			one->active = one->pages_active = false;
			if (one->ahead != NULL)
				one->ahead->leaves_active = false;
		}
	}
	ereport(WARNING,
			(errmsg("forebay does not look ahead in index scans"),
			 errdetail("This server keeps the state of %s scans in another form than the one that forebay was built for.",
					   kind->name),
			 errhint("Build and install forebay for this release of PostgreSQL.")));
}

/* Whether the server's scan state has our size: equal sizes take equal space in the same kind of memory context. */
static bool
fb_same_state(FbIndexKind *kind, IndexScanDesc desc)
{
	if (kind->state == FB_UNKNOWN)
	{
		void	   *ours = palloc(kind->state_size);

		kind->state = GetMemoryChunkSpace(ours) == GetMemoryChunkSpace(desc->opaque) ? FB_SAME : FB_DIFFERS;
		pfree(ours);
		if (kind->state == FB_DIFFERS)
			fb_refuse_state(kind);
	}
	return kind->state == FB_SAME;
}

/* Whether a scan looks for a row with which a row to insert would conflict. */
static inline bool
fb_looks_for_conflict(IndexScanDesc desc)
{
	return desc->xs_snapshot != NULL && desc->xs_snapshot->snapshot_type == SNAPSHOT_DIRTY;
}

/* The registered scan of this descriptor, or NULL. */
static inline FbScan *
fb_scan_lookup(IndexScanDesc desc)
{
	if (desc != last_desc)
	{
		/* Not remembered, so that each call of such a scan gets to fb_gettuple_other. */
		if (fb_looks_for_conflict(desc))
			return NULL;
		last_scan = fb_attached(FB_OF_SCAN, desc);
		if (last_scan != NULL && last_scan->kind->state == FB_DIFFERS)
			last_scan = NULL;
		last_desc = desc;
	}
	return last_scan;
}

/* The fetch of a value has ended; by an error, if its descriptor's memory is already used again. */
static void
fb_scan_forget_toast(FbScan *scan)
{
	fb_detach(FB_OF_SCAN, scan->desc);
	scan->desc = NULL;
	scan->block = InvalidBlockNumber;
	last_desc = NULL;
}

/* The same for a scan that begins or restarts: the first time it is found by its node's keys. */
static FbScan *
fb_scan_lookup_keys(IndexScanDesc desc, ScanKey keys)
{
	FbScan	   *scan = fb_scan_lookup(desc);

	if (scan != NULL && scan->node != NULL)
		return scan;
	if (scan != NULL)
		fb_scan_forget_toast(scan);
	scan = fb_attached(FB_OF_KEYS, keys);
	if (scan == NULL || *scan->scan != desc || !fb_same_state(scan->kind, desc))
		return NULL;
	/* A restarted parallel plan never ended its last scan. */
	if (scan->desc != NULL)
		fb_detach(FB_OF_SCAN, scan->desc);
	scan->desc = desc;
	fb_attach(FB_OF_SCAN, desc, scan);
	return last_scan = scan;
}

static pg_noinline void
fb_fetch_ends(FbScan *scan)
{
	fetching = NULL;
	scan->reads = pgBufferUsage.shared_blks_read - scan->reads;
	if (scan->reads > 0 && scan->timed)
		scan->spent = fb_elapsed_ns(scan->since);
}

/*
 * Ends the measurement of a row's fetch, if one is under way: its reads and its time. Also called where a query begins,
 * which a function in the node's filter may run. For a scan that an error has left, this touches only our own memory.
 */
void
fb_scan_fetched(void)
{
	if (fetching != NULL)
		fb_fetch_ends(fetching);
}

/* A read of the heap waited for the first time: makes its hints. Returns false if there is no look-ahead. */
bool
fb_scan_make_hints(FbScan *scan)
{
	int			most = fb_distance_of((*scan->scan)->heapRelation);

	if (most == 0)
		return false;
	if (scan->ahead != NULL && !fb_ahead_prepare(scan->ahead))
		scan->ahead = NULL;
	fb_toast_expect(scan);
	scan->hints = fb_hints_make(scan->query->estate->es_query_cxt, most,
								scan->ahead ? fb_ahead_takes_all(scan->ahead) : scan->whole && !scan->query->may_stop,
								FB_GAP_BLOCKS);
	return true;
}

/* A block of the heap was read for the scan, in that time; less than 0 if it was in shared buffers, or not timed. */
void
fb_scan_has_read(FbScan *scan, BlockNumber block, int64 spent)
{
	if (scan->hints == NULL)
	{
		if (!fbl_read_waited(spent) || !fb_scan_make_hints(scan))
			return;
	}
	fbl_hints_on_read(scan->hints, block, spent);
	fb_cost_read_heap(scan, block, spent);
	scan->active = !fbl_hints_is_idle(scan->hints);
	if (scan->active && scan->ahead != NULL && fbl_read_waited(spent))
	{
		scan->ahead->unproductive = 0;
		fb_ahead_activate(scan->ahead);
	}
}

/* The heap row was fetched, or is not needed: reports what its block cost. */
static void
fb_scan_row_returned(FbScan *scan)
{
	BlockNumber block = scan->block;
	int64		reads;
	int64		spent;

	if (fetching == scan)
		fb_fetch_ends(scan);
	if (scan->owed_heap > 0)
		fb_look_settle((*scan->scan)->heapRelation, &scan->owed_heap, pgBufferUsage.shared_blks_hit - scan->hits);
	reads = scan->reads;
	spent = scan->spent;
	scan->block = InvalidBlockNumber;
	if (reads > 0)
		fbl_sampler_read(&scan->sampler, spent);
	else if (!scan->active)
		return;
	/* Where the visibility map is sufficient, the heap is not read. */
	if (scan->index_only && reads == 0 && scan->hints != NULL && !fbl_hints_contains(scan->hints, block))
		return;
	fb_scan_has_read(scan, block, spent);
}

static bool
fb_is_all_visible(FbScan *scan, Relation heap, BlockNumber block, Buffer *map)
{
	FbLook		look = fb_look_begin(heap);
	bool		visible = VM_ALL_VISIBLE(heap, block, map);

	scan->owed_heap += fb_look_end(&look);
	return visible;
}

/*
 * Registers a block of the heap as predicted; returns false if there is nothing to do for it. `map` is a pin on a page
 * of the visibility map, invalid at first, that the caller releases at the end.
 */
bool
fb_scan_predict(FbScan *scan, IndexScanDesc desc, BlockNumber block, Buffer *map)
{
	Relation	heap = desc->heapRelation;

	if (fbl_hints_contains(scan->hints, block))
		return false;
	if (!fb_has_block(heap, block, &scan->heap_blocks))
		return false;
	if (scan->index_only && fb_is_all_visible(scan, heap, block, map))
	{
		scan->visible_rows++;
		return false;
	}
	scan->visible_rows = 0;
	fbl_hints_predict(scan->hints, block, fb_in_buffers(heap, block));
	return true;
}

/* Prefetches the predicted blocks that are due. */
void
fb_scan_prefetch(FbScan *scan, IndexScanDesc desc)
{
	const struct fbl_run *runs;
	size_t		count = fbl_hints_take_runs(scan->hints, &runs);

	for (size_t i = 0; i < count; i++)
		fb_prefetch(desc->heapRelation, runs[i].first, Min(runs[i].blocks, scan->heap_blocks - runs[i].first));
}

/* Predicts rows while the hints have room, and prefetches their blocks. */
static void
fb_scan_look_ahead(FbScan *scan, IndexScanDesc desc)
{
	uint32		room = fb_room(scan->hints, desc->heapRelation);
	BlockNumber before = scan->block;
	Buffer		map = InvalidBuffer;
	instr_time	since;

	if (room == 0)
		return;
	INSTR_TIME_SET_CURRENT(since);
	while (room > 0 && scan->visible_rows < VISIBLE_ROWS_MAX)
	{
		BlockNumber block = fb_cursor_next(scan, desc);

		if (block == InvalidBlockNumber)
			break;
		if (block != before && fb_scan_predict(scan, desc, block, &map))
			room--;
		before = block;
	}
	if (map != InvalidBuffer)
		ReleaseBuffer(map);
	if (scan->visible_rows >= VISIBLE_ROWS_MAX)
	{
		scan->visible_rows = 0;
		scan->active = false;
	}
	fb_scan_prefetch(scan, desc);
	scan->cost.look_ns += fb_elapsed_ns(since);
}

/* The same for a scan of another kind than b-tree: for its heap, and for its index. */
static void
fb_scan_look_next(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	uint32		room = scan->active && !scan->cost.paused && !scan->exhausted ? fb_room(scan->hints, desc->heapRelation) : 0;
	uint32		pages_room = scan->pages_active && !scan->pages_exhausted ? fb_room(scan->pages, desc->indexRelation) : 0;
	Buffer		map = InvalidBuffer;
	const struct fbl_run *runs;
	size_t		run_count;
	int			count;
	instr_time	since;

	if (room == 0 && pages_room == 0)
		return;
	INSTR_TIME_SET_CURRENT(since);
	if (scan->next == NULL)
		scan->next = MemoryContextAlloc(scan->query->estate->es_query_cxt, FB_VALUES_MOST * sizeof(FbNextBlock));
	count = scan->kind->next(desc, direction, scan->next,
							 Min(FB_VALUES_MOST, 2 * fb_distance_of(desc->heapRelation)));
	for (int i = 0; i < count; i++)
	{
		BlockNumber block = scan->next[i].block;

		if (!scan->next[i].of_index)
		{
			if (room > 0 && fb_scan_predict(scan, desc, block, &map))
				room--;
		}
		else if (pages_room > 0 && !fbl_hints_contains(scan->pages, block) &&
				 fb_has_block(desc->indexRelation, block, &scan->index_blocks))
		{
			fbl_hints_predict(scan->pages, block, fb_in_buffers(desc->indexRelation, block));
			pages_room--;
		}
	}
	scan->exhausted = room > 0;
	scan->pages_exhausted = true;
	if (map != InvalidBuffer)
		ReleaseBuffer(map);
	if (scan->active)
		fb_scan_prefetch(scan, desc);
	run_count = scan->pages_active ? fbl_hints_take_runs(scan->pages, &runs) : 0;
	for (size_t i = 0; i < run_count; i++)
		fb_prefetch(desc->indexRelation, runs[i].first, runs[i].blocks);
	scan->cost.look_ns += fb_elapsed_ns(since);
}

/* Records the scan's position, and resets the cursor if the scan did not get there row by row. */
static void
fb_track_scan(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	BTScanPos	pos = &((BTScanOpaque) desc->opaque)->currPos;
	int			step = ScanDirectionIsForward(direction) ? 1 : -1;

	if (scan->rescanned || scan->direction != direction)
	{
		scan->rescanned = false;
		scan->direction = direction;
		fb_cursor_reset(scan, desc);
		/* Where the scan is restarted repeatedly, ahead.c predicts blocks too. */
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
	else if (fb_cursor_is_behind(scan, desc))
		fb_cursor_reset(scan, desc);
	scan->leaf = pos->currPage;
	scan->item = pos->itemIndex;
}

/*
 * Our function around a node's own costs up to a tenth of a row that is in memory. So it is installed only while the
 * scan is timed; where another extension has wrapped the node, before or after us, nothing changes.
 */
static void
fb_time_node(FbScan *scan, bool timed)
{
	FbMethod   *method = scan->index_only ? &index_only_node : &scan_node;
	ExecProcNodeMtd ours = scan->index_only ? fb_exec_index_only : fb_exec_index_scan;

	if (!timed)
		fb_replace_method(scan->node, ours, method->own);
	else if (fb_method_is_own(method, scan->node))
		fb_replace_method(scan->node, method->own, ours);
}

/*
 * Whether a scan may begin idle: the session's scans have read nothing for a while, so this one probably does not either.
 * If it does, it is woken after its first read or, if that was of its leaf, after its second. A table with thousands of
 * partitions is as many scans, each too short to become idle by its own rows.
 */
static inline bool
fb_scans_are_in_memory(void)
{
	return scans_in_memory == SCANS_IN_MEMORY && reads_before_them == pgBufferUsage.shared_blks_read;
}

/* A scan begins: it stays idle only if nothing was read since it was registered, and no look-ahead was added to it. */
static void
fb_scan_begins(FbScan *scan)
{
	bool		may_idle = scan->idle && scan->ahead == NULL && fb_scans_are_in_memory();

	if (reads_before_them != pgBufferUsage.shared_blks_read)
		scans_in_memory = 0;
	reads_before_them = pgBufferUsage.shared_blks_read;
	scans_in_memory = Min(scans_in_memory + 1, SCANS_IN_MEMORY);
	scan->reads = reads_before_them;
	scan->wakes_at = reads_before_them + 1;
	if (scan->idle && !may_idle)
		fb_time_node(scan, true);
	scan->idle = may_idle;
}

/* Whether a scan is at its last row, so that there is nothing to look ahead to, as in a search for one row. */
static inline bool
fb_is_last_row(IndexScanDesc desc, ScanDirection direction)
{
	BTScanPos	pos = &((BTScanOpaque) desc->opaque)->currPos;

	return ScanDirectionIsForward(direction) ? pos->itemIndex == pos->lastItem && !pos->moreRight
		: pos->itemIndex == pos->firstItem && !pos->moreLeft;
}

/* Records the scan's position when there is nothing else to do. If it misses a move, the cursor is reset later. */
static inline void
fb_note_position(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	BTScanPos	pos = &((BTScanOpaque) desc->opaque)->currPos;

	if (scan->leaf == pos->currPage && pos->itemIndex == scan->item + (ScanDirectionIsForward(direction) ? 1 : -1))
		scan->item = pos->itemIndex;
}

/* btgettuple for a scan that may have to descend the index first: its time shows whether the scan waits for leaves. */
static bool
fb_gettuple_timed(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
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
		spent = fb_elapsed_ns(since);
	fb_ahead_began(scan->ahead, found ? pos->currPage : InvalidBlockNumber, reads, spent);
	return found;
}

/* An idle scan counts a row before it is returned: the call that reached the end of the scan returned none. */
static void
fb_scan_count_rows(FbScan *scan, IndexScanDesc desc)
{
	if (scan->idle && scan->kind == &btree && scan->row_total > scan->rows_before &&
		!BTScanPosIsValid(((BTScanOpaque) desc->opaque)->currPos))
		scan->row_total--;
	scan->rows_before = scan->row_total;
}

/* btgettuple for a scan that has read pages of its index ahead, or may do so. */
static pg_noinline bool
fb_gettuple_settled(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	int64		hits = pgBufferUsage.shared_blks_hit;
	bool		found = scan->ahead != NULL && (scan->begins || scan->ahead->source->follow != NULL)
		? fb_gettuple_timed(scan, desc, direction) : btgettuple(desc, direction);

	if (scan->owed > 0)
		fb_look_settle(desc->indexRelation, &scan->owed, pgBufferUsage.shared_blks_hit - hits);
	return found;
}

/* gettuple of a kind other than b-tree: its time shows whether the scan waits for pages of the index. */
static bool
fb_gettuple_paged(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	int64		reads = pgBufferUsage.shared_blks_read;
	bool		timed = fbl_sampler_begin(&scan->page_sampler) || scan->pages_active;
	BlockNumber page = scan->active || scan->pages_active ? scan->kind->next_page(desc, direction) : InvalidBlockNumber;
	int64		spent = -1;
	instr_time	since;
	bool		found;

	if (timed)
		INSTR_TIME_SET_CURRENT(since);
	found = scan->kind->gettuple(desc, direction);
	if (page != InvalidBlockNumber)
		scan->exhausted = scan->pages_exhausted = false;
	reads = pgBufferUsage.shared_blks_read - reads;
	if (reads > 0)
	{
		if (timed)
			spent = fb_elapsed_ns(since);
		fbl_sampler_read(&scan->page_sampler, spent);
		if (scan->pages == NULL && fbl_read_waited(spent))
			scan->pages = fb_hints_make(scan->query->estate->es_query_cxt, fb_distance_of(desc->indexRelation),
										scan->whole && !scan->query->may_stop, 0);
	}
	if (scan->pages != NULL && (reads > 0 || page != InvalidBlockNumber))
	{
		fbl_hints_on_read(scan->pages, page, spent);
		scan->pages_active = !fbl_hints_is_idle(scan->pages);
	}
	return found;
}

/*
 * How many reads of the session wake a scan that is idle from now on: none of them can make it look ahead before. 0 if it
 * may not be idle.
 */
static uint32
fb_scan_pause(FbScan *scan)
{
	uint32		reads = fbl_sampler_pause(&scan->sampler);
	uint32		ahead_reads;

	scan->wakes_at_start = false;
	if (reads == 0 || scan->pages_active || scan->owed > 0 || scan->owed_heap > 0)
		return 0;
	if (scan->ahead == NULL)
		return reads;
	if (scan->node == NULL || fb_ahead_is_observed(scan->ahead))
		return 0;
	ahead_reads = fbl_sampler_pause(&scan->ahead->sampler);
	scan->wakes_at_start = ahead_reads == 0;
	return scan->wakes_at_start ? reads : Min(reads, ahead_reads);
}

/*
 * How often the backend has blocked: for a lock, for a client, or for a read that waited. A read from the page cache does not
 * block.
 */
static int64
fb_times_blocked(void)
{
	struct rusage usage;

#ifdef RUSAGE_THREAD
	getrusage(RUSAGE_THREAD, &usage);
#else
	getrusage(RUSAGE_SELF, &usage);
#endif
	return usage.ru_nvcsw;
}

/* An idle scan is woken after that many reads of the session. */
static void
fb_scan_begin_pause(FbScan *scan, uint32 reads)
{
	scan->reads = pgBufferUsage.shared_blks_read;
	scan->wakes_at = scan->reads + reads;
	if (reads > 1)
		scan->blocked = fb_times_blocked();
}

/* Blocks were read while the scan was idle, or it has begun again. Returns false, and leaves it idle, if it may go on so. */
static pg_noinline bool
fb_scan_wake(FbScan *scan, IndexScanDesc desc)
{
	bool		single = scan->wakes_at == scan->reads + 1;

	if (single && scan->kind == &btree && scan->ahead == NULL &&
		scan->leaf != ((BTScanOpaque) desc->opaque)->currPos.currPage)
	{
		/* That was its new leaf. */
		scan->leaf = ((BTScanOpaque) desc->opaque)->currPos.currPage;
		fb_scan_begin_pause(scan, 1);
		return false;
	}
	/* Otherwise it was the previous row's heap block, or a value that is stored elsewhere. */
	fb_toast_expect(scan);
	/* None of many reads has waited. */
	if (!single && !scan->wakes_at_start && fb_times_blocked() == scan->blocked)
	{
		fb_scan_begin_pause(scan, fb_scan_pause(scan));
		return false;
	}
	fb_scan_count_rows(scan, desc);
	scan->idle = false;
	fbl_sampler_resume(&scan->sampler);
	if (scan->ahead != NULL && !scan->wakes_at_start)
		fbl_sampler_resume(&scan->ahead->sampler);
	fb_time_node(scan, true);
	return true;
}

/* gettuple for an idle scan. */
static inline bool
fb_gettuple_idle(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	bool		found;

	if (scan->kind == &btree)
	{
		scan->row_total++;
		return btgettuple(desc, direction);
	}
	found = scan->kind->gettuple(desc, direction);
	scan->row_total += found;
	return found;
}

/* btgettuple for a registered scan. */
static pg_noinline bool
fb_gettuple_watched(FbScan *scan, IndexScanDesc desc, ScanDirection direction)
{
	BlockNumber block;
	uint32		pause;
	bool		found;

	if (scan->idle && !fb_scan_wake(scan, desc))
		return fb_gettuple_idle(scan, desc, direction);
	/* Another scan's, if another extension's function executes its node. */
	fb_scan_fetched();
	if (scan->block != InvalidBlockNumber)
		fb_scan_row_returned(scan);
	if (scan->kind != &btree)
		found = fb_gettuple_paged(scan, desc, direction);
	else if (scan->owed > 0 || scan->ahead != NULL)
		found = fb_gettuple_settled(scan, desc, direction);
	else
		found = btgettuple(desc, direction);
	if (!found)
		return false;
	if (unlikely(!scan->kind->is_at_row(desc)))
	{
		fb_refuse_state(scan->kind);
		return true;
	}
	if (scan->ahead != NULL && scan->ahead->source->follow != NULL)
		scan->ahead->source->follow(scan->ahead, direction);
	scan->row_total++;
	block = ItemPointerGetBlockNumberNoCheck(&desc->xs_heaptid);
	/* The scan still pins the block of the previous row: there is no read, and nothing new to predict. */
	if (block == scan->last && scan->ahead == NULL)
	{
		if (scan->kind == &btree)
			fb_note_position(scan, desc, direction);
		return true;
	}
	scan->block = scan->last = block;
	if (scan->kind != &btree)
		fb_scan_look_next(scan, desc, direction);
	else if (scan->active && !scan->cost.paused && !(scan->ahead != NULL && fb_ahead_leads(scan->ahead)) &&
			 !fb_is_last_row(desc, direction))
	{
		fb_track_scan(scan, desc, direction);
		fb_scan_look_ahead(scan, desc);
	}
	else
		scan->rescanned = true; /* its position is looked up when it becomes active */
	scan->reads = pgBufferUsage.shared_blks_read;
	scan->hits = pgBufferUsage.shared_blks_hit;
	scan->spent = -1;
	scan->timed = fbl_sampler_begin(&scan->sampler) || (scan->active && (!scan->cost.paused || scan->cost.undecided));
	if (scan->timed)
		INSTR_TIME_SET_CURRENT(scan->since);
	else if ((pause = fb_scan_pause(scan)) > 0)
	{
		scan->block = scan->last = InvalidBlockNumber;
		scan->idle = true;
		fb_scan_begin_pause(scan, pause);
		scan->begins = false;
		if (scan->kind == &btree)
			scan->leaf = ((BTScanOpaque) desc->opaque)->currPos.currPage;
		fb_time_node(scan, false);
		return true;
	}
	fetching = scan;
	return true;
}

/* btgettuple for a scan other than the last. */
static pg_noinline bool
fb_gettuple_other(IndexScanDesc desc, ScanDirection direction)
{
	if (fb_scan_lookup(desc) != NULL)
		return fb_gettuple(desc, direction);
	if (fb_looks_for_conflict(desc))
		return fb_check_conflict(desc, direction);
	return btgettuple(desc, direction);
}

/* Replaces btgettuple. Every instruction before the server's own counts here. */
static bool
fb_gettuple(IndexScanDesc desc, ScanDirection direction)
{
	FbScan	   *scan = last_scan;

	/* A scan is looked up when it begins: the last result stays valid until then. */
	if (unlikely(desc != last_desc))
		return fb_gettuple_other(desc, direction);
	if (scan == NULL)
		return btgettuple(desc, direction);
	if (!scan->idle || pgBufferUsage.shared_blks_read >= scan->wakes_at)
		return fb_gettuple_watched(scan, desc, direction);
	scan->row_total++;
	return btgettuple(desc, direction);
}

/* Replaces gettuple of a kind other than b-tree. */
static bool
fb_gettuple_of_kind(IndexScanDesc desc, ScanDirection direction)
{
	FbScan	   *scan = fb_scan_lookup(desc);

	if (scan == NULL)
		return fb_index_kind(desc->indexRelation)->gettuple(desc, direction);
	if (scan->idle && pgBufferUsage.shared_blks_read < scan->wakes_at)
		return fb_gettuple_idle(scan, desc, direction);
	return fb_gettuple_watched(scan, desc, direction);
}

/* Whether a scan fetches a value from a TOAST table. */
static inline bool
fb_fetches_toast(IndexScanDesc desc)
{
	return desc->heapRelation != NULL && desc->heapRelation->rd_rel->relkind == RELKIND_TOASTVALUE;
}

/* The fetch of a value from a TOAST table begins: registers it, if it is that of a row of a registered scan. */
static pg_noinline FbScan *
fb_scan_begin_toast(IndexScanDesc desc, ScanKey keys, int key_count)
{
	FbScan	   *scan = fb_attached(FB_OF_SCAN, desc);

	if (scan != NULL)
		fb_scan_forget_toast(scan);
	scan = fb_same_state(&btree, desc) ? fb_toast_begins(desc, keys, key_count) : NULL;
	if (scan != NULL)
	{
		scan->desc = desc;
		fb_attach(FB_OF_SCAN, desc, scan);
	}
	last_desc = NULL;
	return scan;
}

/* rescan for a scan that begins, or was not idle. */
static pg_noinline void
fb_rescan_watched(IndexScanDesc desc, ScanKey keys, int key_count, ScanKey orders, int order_count)
{
	FbScan	   *scan = fb_fetches_toast(desc) ? fb_scan_begin_toast(desc, keys, key_count) : fb_scan_lookup_keys(desc, keys);

	if (scan != NULL)
	{
		if (scan->block != InvalidBlockNumber)
			fb_scan_row_returned(scan);
		fb_scan_count_rows(scan, desc);
		scan->rescanned = true;
		scan->last = InvalidBlockNumber;
		scan->start_total++;
		scan->begins = true;
		if (scan->wakes_at_start)
			scan->wakes_at = 0;		/* at once */
		if (scan->start_total == 1 && scan->node != NULL)
			fb_scan_begins(scan);
		if (scan->ahead != NULL && scan->ahead->source->follow != NULL)
			fb_ahead_restart(scan->ahead);
		/* The reads may be those of values that are stored elsewhere. */
		if (scan->ahead != NULL && pgBufferUsage.shared_blks_read != scan->reads_at_start)
		{
			scan->reads_at_start = pgBufferUsage.shared_blks_read;
			if (++scan->starts_with_reads == STARTS_WITH_READS)
				fb_toast_expect(scan);
		}
	}
	fb_index_kind(desc->indexRelation)->rescan(desc, keys, key_count, orders, order_count);
}

/* Replaces rescan of all kinds. */
static void
fb_rescan(IndexScanDesc desc, ScanKey keys, int key_count, ScanKey orders, int order_count)
{
	FbScan	   *scan = last_scan;

	/* The inner scan of a nested loop whose pages are in memory. */
	if (desc == last_desc && scan != NULL && scan->idle && pgBufferUsage.shared_blks_read < scan->wakes_at &&
		!scan->wakes_at_start)
	{
		fb_scan_count_rows(scan, desc);
		scan->start_total++;
		scan->kind->rescan(desc, keys, key_count, orders, order_count);
	}
	else
		fb_rescan_watched(desc, keys, key_count, orders, order_count);
}

/* Whether a scan's reads have waited, so that it has counts. */
bool
fb_scan_has_hints(FbScan *scan)
{
	return scan->hints != NULL || scan->pages != NULL || (scan->ahead != NULL && scan->ahead->leaves != NULL);
}

/* The counts of a scan's hints: those for its heap, and those for pages of its index. */
struct fbl_counts
fb_scan_counts(FbScan *scan)
{
	struct fbl_counts counts = {0};

	if (scan->hints != NULL)
		fb_counts_add(&counts, fbl_hints_counts(scan->hints));
	if (scan->pages != NULL)
		fb_counts_add(&counts, fbl_hints_counts(scan->pages));
	if (scan->ahead != NULL && scan->ahead->leaves != NULL)
		fb_counts_add(&counts, fbl_hints_counts(scan->ahead->leaves));
	return counts;
}

/* Adds the counts of a scan that has ended, possibly by an error, to its index. Raises no errors. */
void
fb_scan_add_counts(FbScan *scan)
{
	struct fbl_counts counts;

	if (scan->start_total == 0)
		return;
	if (fb_scan_has_hints(scan))
		counts = fb_scan_counts(scan);
	fb_stats_add(scan->index, scan->start_total, scan->row_total, fb_scan_has_hints(scan) ? &counts : NULL);
}

/* Replaces endscan of all kinds. */
static void
fb_endscan(IndexScanDesc desc)
{
	FbScan	   *scan = fb_scan_lookup(desc);

	last_desc = NULL;
	if (scan != NULL && scan->node == NULL)
	{
		if (scan->block != InvalidBlockNumber)
			fb_scan_row_returned(scan);
		fb_scan_forget_toast(scan);
	}
	else if (scan != NULL)
	{
		fb_scan_unregister(scan);
		/* Its descriptor's address may be reused by another scan before the query's memory is freed. */
		dlist_delete(&scan->link);
		fb_scan_count_rows(scan, desc);
		fb_scan_add_counts(scan);
		if (fb_scan_has_hints(scan))
			fb_explain_log(scan);
	}
	fb_index_kind(desc->indexRelation)->endscan(desc);
}

/* Called when a node returns a row: the time of its block ends here. */
static inline TupleTableSlot *
fb_node_returns(PlanState *node, TupleTableSlot *row)
{
	FbScan	   *scan = fetching;

	if (scan != NULL && scan->node == node)
	{
		/* By far the most frequent case when no read waits. */
		if (!scan->active && pgBufferUsage.shared_blks_read == scan->reads && scan->owed_heap == 0)
		{
			fetching = NULL;
			scan->block = InvalidBlockNumber;
		}
		else
			fb_scan_row_returned(scan);
	}
	return row;
}

static TupleTableSlot *
fb_exec_index_scan(PlanState *node)
{
	return fb_node_returns(node, scan_node.own(node));
}

static TupleTableSlot *
fb_exec_index_only(PlanState *node)
{
	return fb_node_returns(node, index_only_node.own(node));
}

/*
 * Installs our functions in an index's relation-cache entry, if possible; returns whether they are there.
 *
 * The routine is one constant for all B-trees since PostgreSQL 19, so the entry gets another routine. It is the same for
 * all indexes: a copy of the server's with our functions. Before 19, the entry's own copy stays in the entry's memory.
 */
bool
fb_install_am(Relation index)
{
	FbIndexKind *kind = fb_index_kind(index);

	if (kind == NULL)
		return false;
	if (index->rd_indam == &kind->ours)
		return true;
	if (kind->server == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		kind->server = GetIndexAmRoutine(index->rd_amhandler);
		MemoryContextSwitchTo(old);
		kind->ours = *kind->server;
		kind->ours.amgettuple = kind == &btree ? fb_gettuple : fb_gettuple_of_kind;
		kind->ours.amrescan = fb_rescan;
		kind->ours.amendscan = fb_endscan;
		if (kind == &btree)
			kind->ours.aminsert = fb_insert;
	}
	/* Another extension has replaced functions already: leave this index to it. */
	if (memcmp(index->rd_indam, kind->server, sizeof(IndexAmRoutine)) != 0 || kind->server->amgettuple != kind->gettuple ||
		kind->server->amrescan != kind->rescan || kind->server->amendscan != kind->endscan ||
		(kind == &btree && kind->server->aminsert != btinsert))
		return false;
	index->rd_indam = &kind->ours;
	return true;
}

/* Whether the server itself reads the table, at any time, with the same relation-cache entries as a query. */
bool
fb_is_of_server(Relation heap)
{
	return RelationGetRelid(heap) < FirstNormalObjectId || heap->rd_rel->relkind == RELKIND_TOASTVALUE;
}

/* A node's array of keys: unique to the node, even if it is empty. */
static ScanKey
fb_keys_of(PlanState *node)
{
	return IsA(node, IndexOnlyScanState) ? ((IndexOnlyScanState *) node)->ioss_ScanKeys
		: ((IndexScanState *) node)->iss_ScanKeys;
}

/* Registers an index scan node, at its query's start. */
void
fb_scan_register(FbQuery *query, PlanState *node, bool whole)
{
	bool		index_only = IsA(node, IndexOnlyScanState);
	Relation	index = index_only ? ((IndexOnlyScanState *) node)->ioss_RelationDesc
		: ((IndexScanState *) node)->iss_RelationDesc;
	Relation	heap = ((ScanState *) node)->ss_currentRelation;
	FbScan	   *scan;

	/* Another table access method may keep its rows elsewhere than in the block of their TID. */
	if (index == NULL || RelationUsesLocalBuffers(heap) || fb_is_of_server(heap) ||
		heap->rd_tableam != GetHeapamTableAmRoutine() || !fb_install_am(index) ||
		fb_index_kind(index)->state == FB_DIFFERS)
		return;

	if (query->scan_is_used)
		scan = MemoryContextAllocZero(query->estate->es_query_cxt, sizeof(FbScan));
	else
		scan = &query->scan;
	query->scan_is_used = true;
	scan->kind = fb_index_kind(index);
	scan->query = query;
	scan->node = node;
	scan->scan = index_only ? &((IndexOnlyScanState *) node)->ioss_ScanDesc : &((IndexScanState *) node)->iss_ScanDesc;
	scan->index_only = index_only;
	scan->whole = whole;
	scan->sampler = scan->page_sampler = fbl_sampler_new();
	scan->block = InvalidBlockNumber;
	scan->last = InvalidBlockNumber;
	scan->rescanned = true;
	scan->leaf = InvalidBlockNumber;
	scan->index = RelationGetRelid(index);
	scan->keys = fb_keys_of(node);
	fb_stats_expect(scan->index);
	fb_attach(FB_OF_KEYS, scan->keys, scan);
	dlist_push_head(&query->scans, &scan->link);
	if (scan->kind == &btree)
		fb_elements_register(scan, scan->keys, index_only ? ((IndexOnlyScanState *) node)->ioss_NumScanKeys
						 : ((IndexScanState *) node)->iss_NumScanKeys);
	scan->idle = scan->kind == &btree && scan->ahead == NULL && fb_scans_are_in_memory();
	if (!scan->idle)
		fb_time_node(scan, true);
}

/* The FbScan of a node; NULL if it is not registered. */
FbScan *
fb_scan_of(PlanState *node)
{
	if (!IsA(node, IndexScanState) && !IsA(node, IndexOnlyScanState))
		return NULL;
	return fb_attached(FB_OF_KEYS, fb_keys_of(node));
}

/* The query's memory is about to be freed: removes its scans, ended or not. */
void
fb_scans_release(FbQuery *query)
{
	dlist_iter	iter;

	dlist_foreach(iter, &query->scans)
	{
		FbScan	   *scan = dlist_container(FbScan, link, iter.cur);

		fb_scan_add_counts(scan);
		fb_scan_unregister(scan);
	}
}
