/*
 * Look-ahead of the inner index scans of nested loops.
 *
 * Each outer row begins the inner scan anew, so that the scan itself has nothing to look ahead in. Here some outer
 * rows are fetched before their turn, kept in a queue, and for them the inner index is looked at (probe.c): for the
 * far ones only its upper pages, and their leaf is asked for; for the near ones the leaf, and their heap blocks are
 * asked for. How many is for forebay-lookahead to say, from how long reads of heap blocks and of leaves wait; the
 * near stage is the reader of the leaves.
 *
 * Nothing is done until a read of the inner scan waits. Then a function of ours takes the place of the outer node's
 * own, if its rows may be computed ahead (outer_safe.c), and leaves it again when nothing waits and the queue is
 * empty. Rows in the queue are copies without pins, in slots of the kind that the node returns, as the join's
 * expressions may be compiled for that.
 *
 * It relies on the executor's ExecReScan, which calls what is registered with a node's expression context before
 * anything else, and so tells us to drop the queue. A nested loop never runs backward, and marks nothing.
 *
 * Failure: errors of the outer node pass through. The queue goes with the query's memory.
 */
#include "forebay.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

/* Most rows in a queue; a power of two. What they take is bounded by work_mem, too. */
#define QUEUE_ROWS (2 * FB_DISTANCE_MOST)
/* A row of the outer node is looked ahead for by so many heap blocks; the scan itself looks ahead from there. */
#define ROW_BLOCKS 64
/* Where the query may stop, one row is ahead for so many that were taken. */
#define TAKEN_FOR_EACH 10
/* Scans begun that are timed though none read a leaf lately. */
#define WATCH_SCANS 64

typedef struct Row
{
	TupleTableSlot *slot;
	Size		size;
	/* Where the inner scan will begin; invalid if that is not known. */
	BlockNumber leaf;
	/* There are more heap blocks than were asked for. */
	bool		longer;
} Row;

struct FbJoin
{
	dlist_node	running;		/* in the list of those whose outer node is ours */
	FbQuery    *query;
	NestLoop   *plan;
	PlanState  *outer;
	FbScan	   *scan;
	bool		whole;
	bool		sure;
	/* The inner scan is left after its first row. */
	bool		first_only;

	bool		prepared;
	/* What takes_all said then. */
	bool		all;
	FbProbe    *probe;			/* NULL if there is nothing to be done ahead */
	ExecProcNodeMtd real;		/* NULL while the outer node is its own */
	MemoryContext scratch;
	const TupleTableSlotOps *ops;
	TupleDesc	desc;

	fbl_hints  *leaves;			/* NULL until a leaf is waited for */
	bool		leaves_awake;
	int			watch;

	/* Counted from the last rescan: rows taken; queued from `head`, looked for their leaf and probed, and read. */
	Row		   *rows;
	uint64		taken;
	uint64		head;
	uint64		probed;
	uint64		found;
	uint64		tail;
	/* A row behind which nothing is probed until it is handed out, plus one. */
	uint64		barrier;
	Size		size;
	bool		ended;
	/* The row handed out last was probed: its scan has nothing to look ahead for. */
	bool		leads;
	bool		held;

	bool		in_call;
	bool		registered;
	bool		rescanned;
};

static dlist_head running = DLIST_STATIC_INIT(running);

static Row *
row_at(FbJoin *join, uint64 number)
{
	return &join->rows[number % QUEUE_ROWS];
}

/* Whether all outer rows will be taken. */
static bool
takes_all(FbJoin *join)
{
	return join->whole && !join->query->may_stop;
}

static void
clear_row(FbJoin *join, Row *row)
{
	ExecClearTuple(row->slot);
	join->size -= row->size;
	row->size = 0;
}

/* Forgets the rows of an outer node that is begun anew. */
static void
drop_rows(FbJoin *join)
{
	for (uint64 i = join->head - (join->held ? 1 : 0); i < join->tail; i++)
		clear_row(join, row_at(join, i));
	join->held = false;
	join->taken = join->head = join->probed = join->found = join->tail = join->barrier = 0;
	join->ended = false;
	join->rescanned = false;
	if (join->scan->hints != NULL)
		fbl_hints_jump(join->scan->hints);
	if (join->leaves != NULL)
		fbl_hints_jump(join->leaves);
}

/* The outer node's expression context is reset: it is begun anew, unless it does so itself as it works. */
static void
context_reset(Datum arg)
{
	FbJoin	   *join = (FbJoin *) DatumGetPointer(arg);

	join->registered = false;
	if (!join->in_call)
		join->rescanned = true;
}

static TupleTableSlot *
call_outer(FbJoin *join)
{
	TupleTableSlot *slot;

	join->in_call = true;
	slot = join->real(join->outer);
	join->in_call = false;
	return slot;
}

/* Copies a row of the outer node to the queue. */
static void
enqueue(FbJoin *join, TupleTableSlot *from)
{
	Row		   *row = row_at(join, join->tail);
	void	   *chunk;

	if (row->slot == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(join->query->estate->es_query_cxt);

		row->slot = MakeTupleTableSlot(join->desc, join->ops);
		MemoryContextSwitchTo(old);
	}
	ExecCopySlot(row->slot, from);
	/* A copy within buffers is one more pin otherwise. */
	ExecMaterializeSlot(row->slot);
	if (join->ops == &TTSOpsVirtual)
		chunk = ((VirtualTupleTableSlot *) row->slot)->data;
	else if (join->ops == &TTSOpsMinimalTuple)
		chunk = ((MinimalTupleTableSlot *) row->slot)->mintuple;
	else
		chunk = ((HeapTupleTableSlot *) row->slot)->tuple;
	row->size = chunk != NULL ? GetMemoryChunkSpace(chunk) : 0;
	row->leaf = InvalidBlockNumber;
	row->longer = false;
	join->size += row->size;
	join->tail++;
}

/* Fetches one more row of the outer node ahead; false if there is none, or it is too many. */
static bool
fetch_ahead(FbJoin *join)
{
	uint64		ahead = join->tail - join->head;
	TupleTableSlot *slot;

	/* The row handed out last has its place in the queue until the next one is. */
	if (join->ended || ahead >= QUEUE_ROWS - 1 || join->size >= (Size) work_mem * 1024 ||
		(!takes_all(join) && ahead > join->taken / TAKEN_FOR_EACH) ||
		join->all != takes_all(join))
		return false;
	slot = call_outer(join);
	if (TupIsNull(slot))
	{
		join->ended = true;
		return false;
	}
	enqueue(join, slot);
	return true;
}

static void
ask_due(fbl_hints *hints, Relation rel)
{
	const struct fbl_run *runs;
	size_t		count = fbl_hints_due(hints, &runs);

	for (size_t i = 0; i < count; i++)
		fb_ask(rel, runs[i].first, runs[i].blocks);
}

/* A leaf was come to, by us or by the scan; less than 0 if it was in shared buffers. */
static void
leaf_came(FbJoin *join, BlockNumber leaf, int64 spent_ns)
{
	if (join->leaves == NULL)
	{
		EState	   *estate = join->query->estate;
		int			most = fb_distance_of((*join->scan->scan)->indexRelation);

		if (most == 0 || !fbl_read_waited(spent_ns) || !fb_join_prepare(join))
			return;
		join->leaves = fbl_hints_init(MemoryContextAlloc(estate->es_query_cxt, fbl_hints_size()), most,
									  takes_all(join), FB_COMBINE_BLOCKS, FB_GAP_BLOCKS, FB_OVER_READ_PERCENT);
	}
	fbl_hints_came(join->leaves, leaf, spent_ns);
	join->leaves_awake = !fbl_hints_asleep(join->leaves);
}

/* Finds a queued row's leaf, for which it needs the upper pages only. */
static void
find_leaf(FbJoin *join, Row *row)
{
	MemoryContext old = MemoryContextSwitchTo(join->scratch);

	if (fb_probe_set(join->probe, row->slot))
		row->leaf = fb_probe_leaf(join->probe, join->all);
	MemoryContextSwitchTo(old);
}

/*
 * The far stage: finds the leaves of rows, and asks for them. No more rows are looked at than there is room for
 * leaves, lest the next row be late where few of them bring one.
 */
static void
ask_leaves(FbJoin *join, uint32 room)
{
	Relation	index = (*join->scan->scan)->indexRelation;

	for (uint32 rows = room; rows > 0; rows--)
	{
		Row		   *row;

		if (join->found == join->tail && !fetch_ahead(join))
			break;
		row = row_at(join, join->found++);
		find_leaf(join, row);
		if (row->leaf == InvalidBlockNumber || fbl_hints_knows(join->leaves, row->leaf))
			continue;
		fbl_hints_foresee(join->leaves, row->leaf, fb_in_buffers(index, row->leaf));
	}
	ask_due(join->leaves, index);
}

/* The near stage: looks at the leaves of rows, and asks for their heap blocks; of no more rows than there is room for. */
static void
ask_heap(FbJoin *join, uint32 room)
{
	IndexScanDesc desc = *join->scan->scan;
	Buffer		map = InvalidBuffer;
	BlockNumber before = InvalidBlockNumber;

	for (uint32 rows = room; rows > 0 && room > 0 && join->barrier <= join->head; rows--)
	{
		BlockNumber blocks[ROW_BLOCKS];
		MemoryContext old;
		Row		   *row;
		int64		spent_ns;
		int			count;
		int			at;

		if (join->probed == join->found)
		{
			if (join->found == join->tail && !fetch_ahead(join))
				break;
			find_leaf(join, row_at(join, join->found++));
		}
		row = row_at(join, join->probed);
		if (row->leaf == InvalidBlockNumber)
		{
			join->probed++;
			continue;
		}
		old = MemoryContextSwitchTo(join->scratch);
		count = 0;
		if (fb_probe_set(join->probe, row->slot))
		{
			count = fb_probe_look(join->probe, row->leaf, blocks, join->first_only ? 1 : ROW_BLOCKS, join->all,
								  &row->longer, &spent_ns);
			leaf_came(join, row->leaf, spent_ns);
		}
		MemoryContextSwitchTo(old);
		for (at = 0; at < count && room > 0; at++)
		{
			if (blocks[at] != before && fb_scan_foresee(join->scan, desc, blocks[at], &map))
				room--;
			before = blocks[at];
		}
		/* What there was no room for is come back to. */
		if (at < count)
			break;
		join->probed++;
		if (row->longer && count > 0 && !join->first_only)
			join->barrier = join->probed;
	}
	if (map != InvalidBuffer)
		ReleaseBuffer(map);
	fb_scan_ask(join->scan, desc);
}

/* Looks ahead as far as there is room. */
static void
look_ahead(FbJoin *join)
{
	uint32		room = join->leaves_awake ? fbl_hints_room(join->leaves) : 0;

	join->found = Max(join->found, join->head);
	if (room > 0)
		ask_leaves(join, room);
	room = join->scan->awake ? fbl_hints_room(join->scan->hints) : 0;
	join->probed = Max(join->probed, join->head);
	if (room > 0)
		ask_heap(join, room);
	MemoryContextReset(join->scratch);
}

/* Whether anything is to be looked ahead for. */
static bool
is_awake(FbJoin *join)
{
	return join->scan->awake || join->leaves_awake;
}

/* Leaves the outer node to itself. */
static void
leave(FbJoin *join)
{
	ExecSetExecProcNode(join->outer, join->real);
	join->real = NULL;
	join->leads = false;
	dlist_delete(&join->running);
}

static TupleTableSlot *
next_row(FbJoin *join)
{
	Row		   *row;

	if (join->rescanned)
		drop_rows(join);
	if (join->held)
		clear_row(join, row_at(join, join->head - 1));
	join->held = false;
	join->leads = false;
	if (join->head == join->tail)
	{
		TupleTableSlot *slot;

		if (join->ended)
		{
			join->ended = false;
			return NULL;
		}
		slot = call_outer(join);
		if (TupIsNull(slot))
			return slot;
		join->taken++;
		if (!is_awake(join))
		{
			leave(join);
			return slot;
		}
		/* Only the inner scan knows its other values, and has them from its first row on. */
		if (join->taken == 1)
			return slot;
		enqueue(join, slot);
	}
	else
		join->taken++;
	if (is_awake(join))
		look_ahead(join);
	row = row_at(join, join->head++);
	join->held = true;
	join->leads = join->head <= join->probed && !row->longer;
	return row->slot;
}

/* In the place of what carries out an outer node. */
static TupleTableSlot *
exec_outer(PlanState *node)
{
	dlist_iter	each;

	dlist_foreach(each, &running)
	{
		FbJoin	   *join = dlist_container(FbJoin, running, each.cur);
		TupleTableSlot *slot;

		if (join->outer != node)
			continue;
		slot = next_row(join);
		if (!join->registered)
		{
			join->registered = true;
			RegisterExprContextCallback(node->ps_ExprContext, context_reset, PointerGetDatum(join));
		}
		return slot;
	}
	elog(ERROR, "forebay: nothing is known of this outer node");
}

/*
 * Finds out whether rows can be looked ahead for, once, when the inner scan has begun and waits. If not, the scan
 * is as any other.
 */
bool
fb_join_prepare(FbJoin *join)
{
	EState	   *estate = join->query->estate;
	TupleDesc	desc = ExecGetResultType(join->outer);
	MemoryContext old;
	bool		fixed;

	if (join->prepared)
		return join->probe != NULL;
	join->prepared = true;
	join->all = takes_all(join);
	join->ops = ExecGetResultSlotOps(join->outer, &fixed);
	if (!fixed)
		join->ops = &TTSOpsMinimalTuple;
	if (join->ops != &TTSOpsVirtual && join->ops != &TTSOpsMinimalTuple &&
		join->ops != &TTSOpsHeapTuple && join->ops != &TTSOpsBufferHeapTuple)
		return false;
	if (!fb_outer_is_safe(join->outer->plan, estate->es_plannedstmt, join->all, join->all && join->sure))
		return false;

	old = MemoryContextSwitchTo(estate->es_query_cxt);
	join->probe = fb_probe_make(join->scan, join->plan, desc);
	if (join->probe != NULL)
	{
		/* A copy, as no resource owner is to count our slots' use of it. */
		join->desc = CreateTupleDescCopyConstr(desc);
		join->rows = palloc0(QUEUE_ROWS * sizeof(Row));
		join->scratch = AllocSetContextCreate(estate->es_query_cxt, "forebay probe", ALLOCSET_SMALL_SIZES);
		if (join->outer->ps_ExprContext == NULL)
			ExecAssignExprContext(estate, join->outer);
	}
	MemoryContextSwitchTo(old);
	return join->probe != NULL;
}

/* Whether the hints for the inner scan's heap are for a reader that surely takes all. */
bool
fb_join_takes_all(FbJoin *join)
{
	return takes_all(join);
}

/* The inner scan waits: from its next row on, the outer node's rows go through ours. */
void
fb_join_wake(FbJoin *join)
{
	if (join->real != NULL || !fb_join_prepare(join))
		return;
	join->real = join->outer->ExecProcNodeReal;
	ExecSetExecProcNode(join->outer, exec_outer);
	dlist_push_head(&running, &join->running);
}

/* Whether the join has looked ahead for the inner scan that runs, which has nothing to add. */
bool
fb_join_leads(FbJoin *join)
{
	return join->first_only || join->leads;
}

/* Whether the time to begin the inner scan is worth knowing, to be told to fb_join_began. */
bool
fb_join_watches(FbJoin *join)
{
	return !join->leads && (join->leaves_awake || join->watch > 0);
}

/* The inner scan has begun, at a leaf if it found something; it read so many pages, which took so long if that is known. */
void
fb_join_began(FbJoin *join, BlockNumber leaf, int64 reads, int64 spent_ns)
{
	if (reads > 0)
		join->watch = WATCH_SCANS;
	else if (join->watch > 0)
		join->watch--;
	/* The near stage has come to this leaf before. */
	if (join->leads || (reads == 0 && !join->leaves_awake))
		return;
	leaf_came(join, leaf, reads > 0 ? spent_ns : -1);
	if (join->leaves_awake)
		fb_join_wake(join);
}

/* Notes a nested loop whose inner side is an index scan that is noted, or a cache above one. */
void
fb_join_register(FbQuery *query, NestLoopState *node, bool whole, bool sure)
{
	PlanState  *inner = innerPlanState(node);
	dlist_iter	each;

	if (IsA(inner, MemoizeState))
		inner = outerPlanState(inner);
	if (!IsA(inner, IndexScanState) && !IsA(inner, IndexOnlyScanState))
		return;
	dlist_foreach(each, &query->scans)
	{
		FbScan	   *scan = dlist_container(FbScan, link, each.cur);
		FbJoin	   *join;

		if (scan->node != inner)
			continue;
		join = MemoryContextAllocZero(query->estate->es_query_cxt, sizeof(FbJoin));
		join->query = query;
		join->plan = castNode(NestLoop, node->js.ps.plan);
		join->outer = outerPlanState(node);
		join->scan = scan;
		join->whole = whole;
		join->sure = sure;
		join->first_only = node->js.single_match ||
			node->js.jointype == JOIN_SEMI || node->js.jointype == JOIN_ANTI;
		join->watch = WATCH_SCANS;
		scan->join = join;
		return;
	}
}

/* The query's memory goes, with its joins. */
void
fb_joins_gone(FbQuery *query)
{
	dlist_mutable_iter each;

	dlist_foreach_modify(each, &running)
		if (dlist_container(FbJoin, running, each.cur)->query == query)
			dlist_delete(each.cur);
}
