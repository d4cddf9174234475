/*
 * Look-ahead of bitmap heap scans, on PostgreSQL 14 to 17; from 18 on the server's read streams do it.
 *
 * The server hints block by block, effective_io_concurrency blocks ahead, resident or not. Here a second iterator
 * over the same bitmap runs ahead by as much as forebay-lookahead decides, skips blocks in shared buffers, and
 * prefetches merged runs. For that, our own function fetches the scan's next row: a node visits
 * many pages in one call when its conditions reject their rows, so code outside the node cannot see which it reads.
 *
 * All state of the scan stays in the node's own fields, used as the server's node uses them, so that its rescan, end
 * and EXPLAIN keep working. Our iterator is the node's prefetch_iterator: the server frees it with the bitmap.
 *
 * Left to the server: parallel scans, whose iterator is shared; tables that are not heap; and, before the releases of
 * May 2025, scans that need no columns. Those skip all-visible pages, which was found to be wrong then; we must
 * neither copy nor change that.
 *
 * It relies on the block being read by table_scan_bitmap_next_block, whose time is what the block cost.
 *
 * Failure: the calls for the scan fail as in the server's function. Look-ahead adds only memory allocation.
 */
#include "forebay.h"

#if PG_VERSION_NUM < 180000

#include "access/heapam.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "utils/guc.h"

/* The first minor release that reads pages even if no column is needed. */
#if PG_VERSION_NUM >= 170000
#define READS_ALL_SINCE 170005
#elif PG_VERSION_NUM >= 160000
#define READS_ALL_SINCE 160009
#elif PG_VERSION_NUM >= 150000
#define READS_ALL_SINCE 150013
#else
#define READS_ALL_SINCE 140018
#endif

/* One registered bitmap heap scan node. */
typedef struct FbBitmap
{
	slist_node	link;			/* in its query */
	FbQuery    *query;
	BitmapHeapScanState *node;
	/* All its rows are read, as far as the plan shows. */
	bool		whole;
	int			most;

	/* NULL until a read waits for the first time. */
	fbl_hints  *hints;
	bool		active;
	/* Which pages are timed. */
	struct fbl_sampler sampler;
	/* Our iterator has reached the end of the bitmap. */
	bool		at_end;

	/* Its counters, added to its index's at the end: to the first one's if its bitmap combines several. */
	Oid			index;
	uint64		start_total;
	uint64		row_total;
} FbBitmap;

/* The function that executed these nodes before we replaced it. */
static FbMethod bitmap_node;

/* The bitmap looked up last, a cache for the rows after its first. */
static FbBitmap *last = NULL;

static FbBitmap *
fb_bitmap_lookup(PlanState *node)
{
	if (last == NULL || &last->node->ss.ps != node)
		last = fb_attached(FB_OF_BITMAP, node);
	return last;
}

/* Creates the bitmap, and the scan of the table if the server leaves that to the first row. */
static void
fb_bitmap_begin(FbBitmap *bitmap, BitmapHeapScanState *node)
{
	TIDBitmap  *tbm = (TIDBitmap *) MultiExecProcNode(outerPlanState(node));

	if (tbm == NULL || !IsA(tbm, TIDBitmap))
		elog(ERROR, "a bitmap heap scan got something else than a bitmap");
	node->tbm = tbm;
	node->tbmiterator = tbm_begin_iterate(tbm);
	node->tbmres = NULL;
#if PG_VERSION_NUM >= 170000
	if (node->ss.ss_currentScanDesc == NULL)
		node->ss.ss_currentScanDesc =
			table_beginscan_bm(node->ss.ss_currentRelation, node->ss.ps.state->es_snapshot, 0, NULL,
							   node->ss.ps.plan->qual != NIL || node->ss.ps.plan->targetlist != NIL);
#endif
	node->initialized = true;
	bitmap->start_total++;
	bitmap->at_end = false;
	if (bitmap->hints != NULL)
		fbl_hints_jump(bitmap->hints);
}

/* Reports what a page cost: `spent` nanoseconds, or less than 0 if it was not read or not timed. */
static void
fb_bitmap_page_returned(FbBitmap *bitmap, BlockNumber block, int64 spent)
{
	if (bitmap->hints == NULL)
	{
		if (spent < 0)
			return;
		bitmap->hints = fb_hints_make(bitmap->query->estate->es_query_cxt, bitmap->most,
									  bitmap->whole && !bitmap->query->may_stop, 0);
	}
	fbl_hints_on_read(bitmap->hints, block, spent);
	bitmap->active = !fbl_hints_is_idle(bitmap->hints);
}

/* Predicts pages after `block` while the hints have room, and prefetches them. */
static void
fb_bitmap_look_ahead(FbBitmap *bitmap, BlockNumber block)
{
	BitmapHeapScanState *node = bitmap->node;
	Relation	heap = node->ss.ss_currentRelation;
	/* Later pages are in the bitmap if rows were added after the scan began; the scan skips them. */
	BlockNumber heap_blocks = ((HeapScanDesc) node->ss.ss_currentScanDesc)->rs_nblocks;
	uint32		room = fb_room(bitmap->hints, heap);
	const struct fbl_run *runs;
	size_t		count;

	if (room == 0 || bitmap->at_end)
		return;
	if (node->prefetch_iterator == NULL)
	{
		MemoryContext before = MemoryContextSwitchTo(node->ss.ps.state->es_query_cxt);

		node->prefetch_iterator = tbm_begin_iterate(node->tbm);
		MemoryContextSwitchTo(before);
	}
	while (room > 0)
	{
		TBMIterateResult *page = tbm_iterate(node->prefetch_iterator);

		if (page == NULL || page->blockno >= heap_blocks)
		{
			bitmap->at_end = true;
			break;
		}
		if (page->blockno <= block || fbl_hints_contains(bitmap->hints, page->blockno))
			continue;
		fbl_hints_predict(bitmap->hints, page->blockno, fb_in_buffers(heap, page->blockno));
		room--;
	}
	count = fbl_hints_take_runs(bitmap->hints, &runs);
	for (size_t i = 0; i < count; i++)
		fb_prefetch(heap, runs[i].first, runs[i].blocks);
}

/* Advances to the bitmap's next page that has rows for the scan; returns false if there is none. */
static bool
fb_bitmap_next_page(FbBitmap *bitmap)
{
	BitmapHeapScanState *node = bitmap->node;

	while ((node->tbmres = tbm_iterate(node->tbmiterator)) != NULL)
	{
		BlockNumber block = node->tbmres->blockno;
		int64		reads = pgBufferUsage.shared_blks_read;
		bool		timed = fbl_sampler_begin(&bitmap->sampler) || bitmap->active;
		int64		spent = -1;
		bool		has_rows;
		instr_time	since;

		CHECK_FOR_INTERRUPTS();
		if (timed)
			INSTR_TIME_SET_CURRENT(since);
		has_rows = table_scan_bitmap_next_block(node->ss.ss_currentScanDesc, node->tbmres);
		if (node->tbmres->ntuples >= 0)
			node->exact_pages++;
		else
			node->lossy_pages++;
		if (pgBufferUsage.shared_blks_read != reads)
		{
			if (timed)
				spent = fb_elapsed_ns(since);
			fbl_sampler_read(&bitmap->sampler, spent);
		}
		if (bitmap->active || spent >= 0)
			fb_bitmap_page_returned(bitmap, block, spent);
		if (bitmap->active)
			fb_bitmap_look_ahead(bitmap, block);
		if (has_rows)
			return true;
	}
	return false;
}

/* Whether the row in the slot still matches the bitmap's condition. */
static bool
fb_bitmap_recheck(ScanState *scan, TupleTableSlot *slot)
{
	ExprContext *context = scan->ps.ps_ExprContext;

	context->ecxt_scantuple = slot;
	return ExecQualAndReset(((BitmapHeapScanState *) scan)->bitmapqualorig, context);
}

/* The next row of the bitmap's pages; empty after the last. */
static TupleTableSlot *
fb_bitmap_next_row(ScanState *scan)
{
	BitmapHeapScanState *node = castNode(BitmapHeapScanState, scan);
	TupleTableSlot *slot = scan->ss_ScanTupleSlot;
	FbBitmap   *bitmap = fb_bitmap_lookup(&scan->ps);

	if (!node->initialized)
		fb_bitmap_begin(bitmap, node);
	while (node->tbmres != NULL || fb_bitmap_next_page(bitmap))
	{
		CHECK_FOR_INTERRUPTS();
		if (!table_scan_bitmap_next_tuple(scan->ss_currentScanDesc, node->tbmres, slot))
		{
			node->tbmres = NULL;
			continue;
		}
		if (!node->tbmres->recheck || fb_bitmap_recheck(scan, slot))
		{
			bitmap->row_total++;
			return slot;
		}
		InstrCountFiltered2(node, 1);
		ExecClearTuple(slot);
	}
	return ExecClearTuple(slot);
}

/* Executes the node instead of the server's function. */
static TupleTableSlot *
fb_exec_bitmap(PlanState *node)
{
	if (fb_bitmap_lookup(node) == NULL)
		return bitmap_node.own(node);
	return ExecScan((ScanState *) node, fb_bitmap_next_row, fb_bitmap_recheck);
}

/* Whether this release of the server may skip pages of the scan. */
static bool
fb_may_skip_pages(PlanState *node)
{
	return node->plan->qual == NIL && node->plan->targetlist == NIL &&
		atoi(GetConfigOption("server_version_num", false, false)) < READS_ALL_SINCE;
}

/* The first index that a bitmap is made from. */
static Oid
fb_first_index(PlanState *node)
{
	if (IsA(node, BitmapAndState))
		return fb_first_index(castNode(BitmapAndState, node)->bitmapplans[0]);
	if (IsA(node, BitmapOrState))
		return fb_first_index(castNode(BitmapOrState, node)->bitmapplans[0]);
	return RelationGetRelid(castNode(BitmapIndexScanState, node)->biss_RelationDesc);
}

/* Registers a bitmap heap scan node, at its query's start. */
void
fb_bitmap_register(FbQuery *query, PlanState *state, bool whole)
{
	BitmapHeapScanState *node = castNode(BitmapHeapScanState, state);
	Relation	heap = node->ss.ss_currentRelation;
	int			most = fb_distance_of(heap);
	FbBitmap   *bitmap;

	if (most == 0 || state->plan->parallel_aware || heap->rd_rel->relam != HEAP_TABLE_AM_OID ||
		fb_may_skip_pages(state))
		return;
	/* Our function does not call the one it replaces: another extension's function would be lost. */
	if (!fb_method_is_own(&bitmap_node, state))
		return;
	fb_replace_method(state, bitmap_node.own, fb_exec_bitmap);
	bitmap = MemoryContextAllocZero(query->estate->es_query_cxt, sizeof(FbBitmap));
	bitmap->query = query;
	bitmap->node = node;
	bitmap->whole = whole;
	bitmap->most = most;
	bitmap->sampler = fbl_sampler_new();
	bitmap->index = fb_first_index(outerPlanState(state));
	fb_stats_expect(bitmap->index);
	fb_attach(FB_OF_BITMAP, node, bitmap);
	slist_push_head(&query->bitmaps, &bitmap->link);
}

/* The query's memory is about to be freed: removes its scans, ended or not, and adds their counts. */
void
fb_bitmaps_release(FbQuery *query)
{
	slist_iter	each;

	last = NULL;
	slist_foreach(each, &query->bitmaps)
	{
		FbBitmap   *bitmap = slist_container(FbBitmap, link, each.cur);
		struct fbl_counts counts;

		fb_detach(FB_OF_BITMAP, bitmap->node);
		if (bitmap->hints != NULL)
			counts = fbl_hints_counts(bitmap->hints);
		if (bitmap->start_total > 0)
			fb_stats_add(bitmap->index, bitmap->start_total, bitmap->row_total, bitmap->hints != NULL ? &counts : NULL);
	}
}

#endif
