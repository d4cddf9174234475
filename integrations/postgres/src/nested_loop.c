/*
 * Look-ahead of the inner index scans of nested loops.
 *
 * Each outer row restarts the inner scan. Here some outer rows are fetched before their turn (queue.c); ahead.c searches
 * the inner index for their values. Nothing is done until a read of the inner scan waits.
 *
 * Failure: see queue.c.
 */
#include "forebay.h"

#include "access/xact.h"
#include "executor/executor.h"

typedef struct FbJoin
{
	/* Its values are the outer rows since the last rescan, by their numbers in the queue. */
	FbAhead		ahead;
	FbQueue		outer;
	NestLoop   *plan;
	/* The LIMIT above the inner scan; NULL if there is none. */
	LimitState *limit;
	/* `whole` holds without exceptions. */
	bool		sure;
} FbJoin;

static FbJoin *
fb_join_of(FbQueue *queue)
{
	return (FbJoin *) ((char *) queue - offsetof(FbJoin, outer));
}

static void
fb_join_restarted(FbQueue *queue)
{
	fb_ahead_restart(&fb_join_of(queue)->ahead);
}

static bool
fb_join_wants_rows(FbQueue *queue)
{
	FbAhead    *ahead = &fb_join_of(queue)->ahead;

	ahead->leads = false;
	return fb_ahead_is_active(ahead);
}

/* An outer row is about to be returned: looks ahead from it. */
static void
fb_join_look(FbQueue *queue)
{
	FbAhead    *ahead = &fb_join_of(queue)->ahead;

	ahead->head = queue->head;
	ahead->taken++;
	/* The other values of the conditions are known only to the inner scan, from its first row on. */
	if (ahead->taken > 1 && fb_ahead_is_active(ahead))
		fb_ahead_look(ahead, ahead->head);
	fb_ahead_take(ahead, ahead->head++);
}

static const FbQueueUse join_use = {fb_join_wants_rows, fb_join_look, fb_join_restarted};

static bool
fb_join_has_row(FbAhead *ahead, uint64 number)
{
	return fb_queue_has(&((FbJoin *) ahead)->outer, number);
}

static bool
fb_join_set_row(FbAhead *ahead, uint64 number)
{
	return fb_probe_set(ahead->probe, fb_queue_row(&((FbJoin *) ahead)->outer, number), (Datum) 0);
}

/* Returns a probe, if outer rows may be fetched ahead and determine what the inner scan will do. */
static FbProbe *
fb_join_prepare(FbAhead *ahead)
{
	FbJoin	   *join = (FbJoin *) ahead;
	PlanState  *outer = join->outer.node;
	FbProbe    *probe;
	bool		sure = ahead->all && join->sure;

	/* A serializable transaction locks each row that it reads: an extra row may make another's update fail. */
	if (!sure && IsolationIsSerializable())
		return NULL;
	if (!fb_outer_is_safe(outer->plan, ahead->scan->query->estate->es_plannedstmt, ahead->all, sure))
		return NULL;
	probe = fb_probe_make(ahead->scan, join->plan, ExecGetResultType(outer));
	if (probe == NULL || !fb_queue_prepare(&join->outer))
		return NULL;
	/* The inner scan has begun, so the limit is known. */
	if (join->limit != NULL && !join->limit->noCount)
		ahead->most = Max(1, Min(FB_VALUE_BLOCKS, join->limit->count + join->limit->offset));
	else if (join->limit != NULL)
		ahead->most = FB_VALUE_BLOCKS;
	return probe;
}

static void
fb_join_wake(FbAhead *ahead)
{
	fb_queue_wake(&((FbJoin *) ahead)->outer);
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
	if (scan == NULL || scan->kind->next != NULL || castNode(NestLoop, node->js.ps.plan)->nestParams == NIL)
		return;
	join = MemoryContextAllocZero(query->estate->es_query_cxt, sizeof(FbJoin));
	join->plan = castNode(NestLoop, node->js.ps.plan);
	join->outer.query = query;
	join->outer.node = outerPlanState(node);
	join->outer.use = &join_use;
	join->sure = sure;
	join->limit = limit;
	join->ahead.fetched = true;
	if (node->js.single_match || node->js.jointype == JOIN_SEMI || node->js.jointype == JOIN_ANTI)
		join->ahead.most = 1;
	fb_ahead_init(&join->ahead, scan, &outer_rows, whole);
}
