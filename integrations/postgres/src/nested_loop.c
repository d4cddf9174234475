/*
 * Look-ahead of the inner index scans of nested loops.
 *
 * Each outer row restarts the inner scan. Here some outer rows are fetched before their turn and kept in a queue;
 * ahead.c searches the inner index for their values.
 *
 * Nothing is done until a read of the inner scan waits. Then our function replaces the outer node's own, if its rows
 * may be computed ahead (outer_safe.c), and is removed again when no read waits and the queue is
 * empty. Rows in the queue are copies without pins, in slots of the kind that the node returns, as the join's
 * expressions may be compiled for that kind.
 *
 * It relies on the executor's ExecReScan, which first calls the callbacks registered with a node's expression context:
 * ours drops the queue. A nested loop never runs backward, and does not support mark and restore.
 *
 * Failure: errors of the outer node pass through. The queue is freed with the query's memory.
 */
#include "forebay.h"

#include "access/xact.h"
#include "compat.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

typedef struct Row
{
	TupleTableSlot *slot;
	Size		size;
} Row;

typedef struct FbJoin
{
	/* Its values are the outer rows since the last rescan; `head` is the first in the queue. */
	FbAhead		ahead;
	slist_node	link;			/* in its query, once look-ahead has started */
	NestLoop   *plan;
	PlanState  *outer;
	/* The LIMIT above the inner scan; NULL if there is none. */
	LimitState *limit;
	/* `whole` holds without exceptions. */
	bool		sure;

	/* The function that executes the outer node when ours does not; NULL until ours is installed first. */
	ExecProcNodeMtd real;
	/* Our function is installed. */
	bool		active;
	const TupleTableSlotOps *ops;
	TupleDesc	desc;
	/* Rows by their number modulo FB_VALUES_MOST, and the number after the last. work_mem bounds their size. */
	Row		   *rows;
	uint64		tail;
	Size		size;
	bool		ended;
	/* The row before `head` was returned, and is in use. */
	bool		held;

	bool		in_call;
	bool		registered;
	bool		rescanned;
} FbJoin;

static TupleTableSlot *fb_exec_outer(PlanState *node);

static Row *
fb_join_row_at(FbJoin *join, uint64 number)
{
	return &join->rows[number % FB_VALUES_MOST];
}

static EState *
fb_estate_of(FbJoin *join)
{
	return join->ahead.scan->query->estate;
}

static void
fb_join_clear_row(FbJoin *join, Row *row)
{
	ExecClearTuple(row->slot);
	join->size -= row->size;
	row->size = 0;
}

/* Drops the rows of an outer node that is restarted. */
static void
fb_join_drop_rows(FbJoin *join)
{
	for (uint64 i = join->ahead.head - (join->held ? 1 : 0); i < join->tail; i++)
		fb_join_clear_row(join, fb_join_row_at(join, i));
	join->held = false;
	join->tail = 0;
	join->ended = false;
	join->rescanned = false;
	fb_ahead_restart(&join->ahead);
}

/* The outer node's expression context is reset: the node is restarted, unless it resets the context as it runs. */
static void
fb_join_context_reset(Datum arg)
{
	FbJoin	   *join = (FbJoin *) DatumGetPointer(arg);

	join->registered = false;
	if (!join->in_call)
		join->rescanned = true;
}

static TupleTableSlot *
fb_call_outer(FbJoin *join)
{
	TupleTableSlot *slot;

	join->in_call = true;
	slot = join->real(join->outer);
	join->in_call = false;
	return slot;
}

/* Copies a row of the outer node to the queue. */
static void
fb_join_enqueue(FbJoin *join, TupleTableSlot *from)
{
	Row		   *row = fb_join_row_at(join, join->tail);
	void	   *chunk;

	if (row->slot == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(fb_estate_of(join)->es_query_cxt);

		row->slot = FbMakeSlot(join->desc, join->ops);
		MemoryContextSwitchTo(old);
	}
	ExecCopySlot(row->slot, from);
	/* Otherwise the copy of a row in a buffer would hold another pin. */
	ExecMaterializeSlot(row->slot);
	if (join->ops == &TTSOpsVirtual)
		chunk = ((VirtualTupleTableSlot *) row->slot)->data;
	else if (join->ops == &TTSOpsMinimalTuple)
		chunk = ((MinimalTupleTableSlot *) row->slot)->mintuple;
	else
		chunk = ((HeapTupleTableSlot *) row->slot)->tuple;
	row->size = chunk != NULL ? GetMemoryChunkSpace(chunk) : 0;
	join->size += row->size;
	join->tail++;
}

/* Whether the row is in the queue; fetches it if it is the next one. */
static bool
fb_join_has_row(FbAhead *ahead, uint64 number)
{
	FbJoin	   *join = (FbJoin *) ahead;
	TupleTableSlot *slot;

	if (number < join->tail)
		return true;
	if (join->ended || join->size >= (Size) work_mem * 1024)
		return false;
	slot = fb_call_outer(join);
	if (TupIsNull(slot))
	{
		join->ended = true;
		return false;
	}
	fb_join_enqueue(join, slot);
	return true;
}

static bool
fb_join_set_row(FbAhead *ahead, uint64 number)
{
	return fb_probe_set(ahead->probe, fb_join_row_at((FbJoin *) ahead, number)->slot, (Datum) 0);
}

/* Removes our function from the outer node, unless another extension has wrapped it since. */
static void
fb_join_leave(FbJoin *join)
{
	join->active = !fb_replace_method(join->outer, fb_exec_outer, join->real);
}

static TupleTableSlot *
fb_join_next_row(FbJoin *join)
{
	FbAhead    *ahead = &join->ahead;

	if (join->rescanned)
		fb_join_drop_rows(join);
	if (join->held)
		fb_join_clear_row(join, fb_join_row_at(join, ahead->head - 1));
	join->held = false;
	ahead->leads = false;
	if (ahead->head == join->tail)
	{
		TupleTableSlot *slot;

		if (join->ended)
		{
			join->ended = false;
			return NULL;
		}
		slot = fb_call_outer(join);
		if (TupIsNull(slot))
			return slot;
		ahead->taken++;
		if (!fb_ahead_is_active(ahead))
		{
			fb_join_leave(join);
			return slot;
		}
		/* The other values of the conditions are known only to the inner scan, from its first row on. */
		if (ahead->taken == 1)
			return slot;
		fb_join_enqueue(join, slot);
	}
	else
		ahead->taken++;
	if (fb_ahead_is_active(ahead))
		fb_ahead_look(ahead, ahead->head);
	fb_ahead_take(ahead, ahead->head);
	join->held = true;
	return fb_join_row_at(join, ahead->head++)->slot;
}

/* Executes an outer node instead of the server's function. */
static TupleTableSlot *
fb_exec_outer(PlanState *node)
{
	FbJoin	   *join = fb_attached(FB_OF_OUTER, node);
	TupleTableSlot *slot;

	if (join == NULL)
		elog(ERROR, "forebay: nothing is known of this outer node");
	if (!join->active)
		return join->real(node);
	slot = fb_join_next_row(join);
	if (!join->registered)
	{
		join->registered = true;
		RegisterExprContextCallback(node->ps_ExprContext, fb_join_context_reset, PointerGetDatum(join));
	}
	return slot;
}

/* Returns a probe, if outer rows may be fetched ahead and determine what the inner scan will do. */
static FbProbe *
fb_join_prepare(FbAhead *ahead)
{
	FbJoin	   *join = (FbJoin *) ahead;
	TupleDesc	desc = ExecGetResultType(join->outer);
	FbProbe    *probe;
	bool		fixed;
	bool		sure = ahead->all && join->sure;

	/* A serializable transaction locks each row that it reads: an extra row may make another's update fail. */
	if (!sure && IsolationIsSerializable())
		return NULL;
	join->ops = ExecGetResultSlotOps(join->outer, &fixed);
	if (!fixed)
		join->ops = &TTSOpsMinimalTuple;
	if (join->ops != &TTSOpsVirtual && join->ops != &TTSOpsMinimalTuple &&
		join->ops != &TTSOpsHeapTuple && join->ops != &TTSOpsBufferHeapTuple)
		return NULL;
	if (!fb_outer_is_safe(join->outer->plan, fb_estate_of(join)->es_plannedstmt, ahead->all, sure))
		return NULL;
	probe = fb_probe_make(ahead->scan, join->plan, desc);
	if (probe == NULL)
		return NULL;
	/* The inner scan has begun, so the limit is known. */
	if (join->limit != NULL && !join->limit->noCount)
		ahead->most = Max(1, Min(FB_VALUE_BLOCKS, join->limit->count + join->limit->offset));
	else if (join->limit != NULL)
		ahead->most = FB_VALUE_BLOCKS;
	/* A copy, as no resource owner must count our slots' references to it. */
	join->desc = CreateTupleDescCopyConstr(desc);
	join->rows = palloc0(FB_VALUES_MOST * sizeof(Row));
	if (join->outer->ps_ExprContext == NULL)
		ExecAssignExprContext(fb_estate_of(join), join->outer);
	return probe;
}

/* Installs our function: from the next row on, the outer node's rows pass through it. */
static void
fb_join_wake(FbAhead *ahead)
{
	FbJoin	   *join = (FbJoin *) ahead;

	if (join->active)
		return;
	if (join->real == NULL)
	{
		fb_attach(FB_OF_OUTER, join->outer, join);
		slist_push_head(&ahead->scan->query->joins, &join->link);
	}
	join->real = join->outer->ExecProcNodeReal;
	join->active = fb_replace_method(join->outer, join->real, fb_exec_outer);
}

static const FbSource outer_rows = {fb_join_prepare, fb_join_has_row, fb_join_set_row, fb_join_wake, NULL};

/* Registers a nested loop whose inner side is a registered index scan, or a cache or a limit above one. */
void
fb_join_register(FbQuery *query, NestLoopState *node, bool whole, bool sure)
{
	PlanState  *inner = innerPlanState(node);
	LimitState *limit = NULL;
	FbScan	   *scan;
	FbJoin	   *join;

	if (IsA(inner, MemoizeState))
		inner = outerPlanState(inner);
	if (IsA(inner, LimitState))
	{
		limit = castNode(LimitState, inner);
		inner = outerPlanState(inner);
	}
	scan = fb_scan_of(inner);
	if (scan == NULL || castNode(NestLoop, node->js.ps.plan)->nestParams == NIL)
		return;
	join = MemoryContextAllocZero(query->estate->es_query_cxt, sizeof(FbJoin));
	join->plan = castNode(NestLoop, node->js.ps.plan);
	join->outer = outerPlanState(node);
	join->sure = sure;
	join->limit = limit;
	join->ahead.fetched = true;
	if (node->js.single_match || node->js.jointype == JOIN_SEMI || node->js.jointype == JOIN_ANTI)
		join->ahead.most = 1;
	fb_ahead_init(&join->ahead, scan, &outer_rows, whole);
}

/* The query's memory is about to be freed: removes its joins. */
void
fb_joins_release(FbQuery *query)
{
	slist_iter	each;

	slist_foreach(each, &query->joins)
		fb_detach(FB_OF_OUTER, slist_container(FbJoin, link, each.cur)->outer);
}
