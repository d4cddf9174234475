/*
 * Look-ahead of the inner index scans of nested loops.
 *
 * Each outer row restarts the inner scan. Here some outer rows are fetched before their turn (queue.c); ahead.c searches
 * the inner index for their values. Nothing is done until a read of the inner scan waits. If the inner side is a
 * partitioned table, each partition's scan looks ahead for the outer rows that the server searches it for (pruning.c).
 *
 * Failure: see queue.c.
 */
#include "forebay.h"

#include "access/xact.h"
#include "executor/executor.h"

typedef struct FbJoin FbJoin;

/* One inner scan. */
typedef struct FbJoinSide
{
	/* Its values are the outer rows since the last rescan, by their numbers in the queue. */
	FbAhead		ahead;
	FbJoin	   *join;
	/* Its number among the children of the Append. */
	int			child;
} FbJoinSide;

struct FbJoin
{
	FbQueue		outer;
	NestLoopState *node;
	/* The LIMIT above the inner scan; NULL if there is none. */
	LimitState *limit;
	/* All outer rows are used, without exceptions. */
	bool		sure;
	/* Whether outer rows may be fetched ahead was determined, and what the result was. */
	bool		prepared;
	bool		possible;
	/* Its inner scans are children of this; NULL if there is only one. */
	AppendState *append;
	/* Which of them a row needs; NULL if each row needs all. */
	FbPruning  *pruning;
	int			side_count;
	FbJoinSide	sides[FLEXIBLE_ARRAY_MEMBER];
};

static void
fb_join_restarted(FbQueue *queue)
{
	FbJoin	   *join = (FbJoin *) queue;

	for (int i = 0; i < join->side_count; i++)
		fb_ahead_restart(&join->sides[i].ahead);
	if (join->pruning != NULL)
		fb_pruning_restart(join->pruning);
}

static bool
fb_join_wants_rows(FbQueue *queue)
{
	FbJoin	   *join = (FbJoin *) queue;
	bool		wanted = false;

	for (int i = 0; i < join->side_count; i++)
	{
		join->sides[i].ahead.leads = false;
		wanted |= fb_ahead_is_active(&join->sides[i].ahead);
	}
	return wanted;
}

/* An outer row is about to be returned: looks ahead from it. */
static void
fb_join_look(FbQueue *queue)
{
	FbJoin	   *join = (FbJoin *) queue;

	for (int i = 0; i < join->side_count; i++)
	{
		FbAhead    *ahead = &join->sides[i].ahead;

		ahead->head = queue->head;
		ahead->taken++;
		/* The other values of the conditions are known only to the inner scan, from its first row on. */
		if (ahead->taken > 1 && fb_ahead_is_active(ahead))
			fb_ahead_look(ahead, ahead->head);
		fb_ahead_take(ahead, ahead->head++);
	}
}

static const FbQueueUse join_use = {fb_join_wants_rows, fb_join_look, fb_join_restarted};

static bool
fb_join_has_row(FbAhead *ahead, uint64 number)
{
	FbQueue    *outer = &((FbJoinSide *) ahead)->join->outer;
	instr_time	since;
	bool		has;

	if (number < outer->tail)
		return true;
	/* The outer plan's time is not that of looking ahead. */
	INSTR_TIME_SET_CURRENT(since);
	has = fb_queue_has(outer, number);
	ahead->scan->cost.look_ns -= fb_elapsed_ns(since);
	return has;
}

static bool
fb_join_set_row(FbAhead *ahead, uint64 number)
{
	FbJoinSide *side = (FbJoinSide *) ahead;
	FbJoin	   *join = side->join;
	TupleTableSlot *row = fb_queue_row(&join->outer, number);

	return (join->pruning == NULL || fb_pruning_keeps(join->pruning, side->child, number, row)) &&
		fb_probe_set(ahead->probe, row, (Datum) 0);
}

/* Determines, once, whether outer rows may be fetched ahead and determine what the inner scans will do. */
static bool
fb_join_prepare_rows(FbJoin *join, bool whole)
{
	FbQuery    *query = join->outer.query;
	PlanState  *outer = join->outer.node;
	bool		sure = whole && join->sure;

	if (join->prepared)
		return join->possible;
	join->prepared = true;
	/* A serializable transaction locks each row that it reads: an extra row may make another's update fail. */
	if (!sure && IsolationIsSerializable())
		return false;
	if (!fb_outer_is_safe(outer->plan, query->estate->es_plannedstmt, whole, sure))
		return false;
	if (join->append != NULL && fb_is_pruned(join->append))
	{
		join->pruning = fb_pruning_make(join->node, join->append);
		if (join->pruning == NULL)
			return false;
	}
	join->possible = fb_queue_prepare(&join->outer);
	return join->possible;
}

/* Returns a probe for an inner scan; NULL if looking ahead for it is not possible. */
static FbProbe *
fb_join_prepare(FbAhead *ahead)
{
	FbJoin	   *join = ((FbJoinSide *) ahead)->join;

	if (!fb_join_prepare_rows(join, ahead->all))
		return NULL;
	/* The inner scan has begun, so the limit is known. */
	if (join->limit != NULL && !join->limit->noCount)
		ahead->most = Max(1, Min(FB_VALUE_ROWS, join->limit->count + join->limit->offset));
	else if (join->limit != NULL)
		ahead->most = FB_VALUE_ROWS;
	if (join->pruning != NULL)
		ahead->spread = join->append->as_nplans;
	return fb_probe_make(ahead->scan, castNode(NestLoop, join->node->js.ps.plan), ExecGetResultType(join->outer.node));
}

static void
fb_join_wake(FbAhead *ahead)
{
	fb_queue_wake(&((FbJoinSide *) ahead)->join->outer);
}

static const FbSource outer_rows = {
	.prepare = fb_join_prepare,
	.has = fb_join_has_row,
	.set = fb_join_set_row,
	.wake = fb_join_wake,
};

/* Whether the inner side returns at most one row for an outer row. */
static bool
fb_joins_one_row(NestLoopState *node)
{
	return node->js.single_match || node->js.jointype == JOIN_SEMI || node->js.jointype == JOIN_ANTI;
}

/* Whether the children of an Append are scanned for each outer row, or it is known which of them are. */
static bool
fb_scans_children(NestLoopState *join, AppendState *append)
{
	/* Once a child has found the only row, the next ones are not executed. */
	return append->as_nplans <= FB_PARTITIONS_MAX && (!fb_joins_one_row(join) || fb_is_pruned(append));
}

/* Whether a node is a scan that a nested loop can look ahead for. */
static FbScan *
fb_inner_scan_of(PlanState *node)
{
	FbScan	   *scan = fb_scan_of(node);

	return scan != NULL && scan->kind->next == NULL ? scan : NULL;
}

/*
 * Registers a nested loop whose inner side is a registered index scan, or a cache or a limit above one, or an Append of
 * such scans.
 */
void
fb_join_register(FbQuery *query, NestLoopState *node, bool whole, bool sure)
{
	PlanState  *inner = innerPlanState(node);
	PlanState **children = &inner;
	int			child_count = 1;
	LimitState *limit = NULL;
	AppendState *append = NULL;
	FbJoin	   *join = NULL;

	if (castNode(NestLoop, node->js.ps.plan)->nestParams == NIL)
		return;
	if (IsA(inner, MemoizeState))
		inner = outerPlanState(inner);
	if (IsA(inner, LimitState))
	{
		limit = castNode(LimitState, inner);
		inner = outerPlanState(inner);
	}
	else if (IsA(inner, AppendState))
	{
		append = castNode(AppendState, inner);
		if (!fb_scans_children(node, append))
			return;
		children = append->appendplans;
		child_count = append->as_nplans;
	}
	for (int i = 0; i < child_count; i++)
	{
		FbScan	   *scan = fb_inner_scan_of(children[i]);
		FbJoinSide *side;

		if (scan == NULL)
			continue;
		if (join == NULL)
		{
			join = MemoryContextAllocZero(query->estate->es_query_cxt,
										  offsetof(FbJoin, sides) + child_count * sizeof(FbJoinSide));
			join->outer.query = query;
			join->outer.node = outerPlanState(node);
			join->outer.use = &join_use;
			join->node = node;
			join->sure = sure;
			join->limit = limit;
			join->append = append;
		}
		side = &join->sides[join->side_count++];
		side->join = join;
		side->child = i;
		side->ahead.fetched = true;
		if (fb_joins_one_row(node))
			side->ahead.most = 1;
		fb_ahead_init(&side->ahead, scan, &outer_rows, whole);
	}
}
