/*
 * The extension's settings and hooks, and which nodes of a plan it looks at.
 *
 * A query is walked through once, when it starts. What looks ahead for a kind of node, or tells the kernel of it, is
 * shown each such node then, with whether all of its rows will be taken; what they do with it is theirs to say.
 *
 * Failure: a server version that is not known is refused when the library is loaded.
 */
#include "forebay.h"

#include "compat.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

/* What `make install` looks for in the library. */
extern PGDLLEXPORT const char forebay_built_for[];
PGDLLEXPORT const char forebay_built_for[] = "forebay, built for PostgreSQL " PG_VERSION;

void		_PG_init(void);

bool		fb_enabled = true;
int			fb_distance_max = 256;

dlist_head	fb_queries = DLIST_STATIC_INIT(fb_queries);

static ExecutorStart_hook_type next_start;
static ExecutorRun_hook_type next_run;

/* What is known where a node is walked through. */
typedef struct Walk
{
	EState	   *estate;
	FbQuery   **query;			/* NULL until something is found */
	FbReader   *reader;			/* NULL if nothing is told of it, nor traced */
	Bitmapset  *subplans;		/* the numbers of their topmost nodes */
	Bitmapset **walked;			/* those of them that were walked through */
	PlanState  *parent;			/* NULL at the top */
	/* Whether all rows of what is walked through now are taken. */
	bool		whole;
	/* And there is no exception to that, not even a rare one. */
	bool		sure;
} Walk;

/* The query's memory goes, with all that was noted of it. */
static void
query_gone(void *arg)
{
	FbQuery    *query = arg;

	fb_scans_gone(query);
#if PG_VERSION_NUM < 180000
	fb_bitmaps_gone(query);
#endif
	fb_joins_gone(query);
	fb_detach(FB_OF_ESTATE, query->estate);
	dlist_delete(&query->link);
}

static FbQuery *
query_of(Walk *walk)
{
	if (*walk->query == NULL)
	{
		FbQuery    *query = MemoryContextAllocZero(walk->estate->es_query_cxt, sizeof(FbQuery));

		query->estate = walk->estate;
		dlist_init(&query->scans);
		dlist_init(&query->bitmaps);
		dlist_init(&query->joins);
		fb_attach(FB_OF_ESTATE, query->estate, query);
		dlist_push_head(&fb_queries, &query->link);
		query->gone.func = query_gone;
		query->gone.arg = query;
		MemoryContextRegisterResetCallback(walk->estate->es_query_cxt, &query->gone);
		*walk->query = query;
	}
	return *walk->query;
}

/* Whether all rows of a node are taken, given that all of its parent's are or not. */
static bool
is_whole(PlanState *node, PlanState *parent, bool whole, Bitmapset *subplans)
{
	/* An uncorrelated EXISTS wants one row, and others are not told apart. */
	if (bms_is_member(node->plan->plan_node_id, subplans))
		return false;
	if (parent == NULL)
		return whole;
	switch (nodeTag(parent))
	{
		case T_SortState:
		case T_HashState:
			return true;
		case T_AggState:
			return whole ||
				castNode(AggState, parent)->aggstrategy == AGG_PLAIN ||
				castNode(AggState, parent)->aggstrategy == AGG_HASHED;
		case T_NestLoopState:
			{
				JoinState  *join = (JoinState *) parent;

				return whole &&
					!(node == innerPlanState(parent) &&
					  (join->single_match || join->jointype == JOIN_SEMI || join->jointype == JOIN_ANTI));
			}
#if PG_VERSION_NUM >= 150000
		case T_WindowAggState:
			/* It ends where its run condition no longer holds, unless it has to hand on or pass over what follows. */
			return whole && (castNode(WindowAggState, parent)->runcondition == NULL ||
							 castNode(WindowAggState, parent)->use_pass_through);
#endif
		case T_SetOpState:
			/* From 18 on the right side is left where the left one has ended. */
			return whole && node != innerPlanState(parent);
		case T_LimitState:
		case T_MergeJoinState:
		case T_CustomScanState:
		case T_ForeignScanState:
			return false;
		default:
			return whole;
	}
}

/*
 * Whether a node is the top of a subplan that was walked through. One subplan is in each of an Append's children whose
 * target list has it.
 */
static bool
is_known(PlanState *node, Walk *walk)
{
	int			number = node->plan->plan_node_id;

	if (!bms_is_member(number, walk->subplans))
		return false;
	if (bms_is_member(number, *walk->walked))
		return true;
	*walk->walked = bms_add_member(*walk->walked, number);
	return false;
}

/* The numbers of the topmost nodes of a query's subplans. A parallel worker has only those that it may run. */
static Bitmapset *
subplans_of(EState *estate)
{
	Bitmapset  *numbers = NULL;
	ListCell   *each;

	foreach(each, estate->es_subplanstates)
		if (lfirst(each) != NULL)
			numbers = bms_add_member(numbers, ((PlanState *) lfirst(each))->plan->plan_node_id);
	return numbers;
}

/* Notes what is to be looked at in a node and below; a planstate_tree_walker. */
static bool
walk_plan(PlanState *node, void *context)
{
	Walk		walk = *(Walk *) context;

	if (node == NULL || is_known(node, &walk))
		return false;
	walk.whole = is_whole(node, walk.parent, walk.whole, walk.subplans);
	walk.sure = walk.sure && walk.whole && (walk.parent == NULL || fb_surely_takes_all(walk.parent, node));
	if (IsA(node, IndexScanState) || IsA(node, IndexOnlyScanState))
		fb_scan_register(query_of(&walk), node, walk.whole);
#if PG_VERSION_NUM < 180000
	if (IsA(node, BitmapHeapScanState))
		fb_bitmap_register(query_of(&walk), node, walk.whole);
#endif
	if (walk.reader != NULL)
		fb_reader_note(walk.reader, node);
	walk.parent = node;
	planstate_tree_walker(node, walk_plan, &walk);
	if (IsA(node, NestLoopState) && *walk.query != NULL)
		fb_join_register(*walk.query, castNode(NestLoopState, node), walk.whole, walk.sure);
	return false;
}

static void
start(QueryDesc *query, int eflags)
{
	fb_scan_fetched();
	if (next_start)
		next_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if (fb_enabled && !(eflags & EXEC_FLAG_EXPLAIN_ONLY))
	{
		FbQuery    *ours = NULL;
		Bitmapset  *walked = NULL;
		Walk		walk = {
			.estate = query->estate,
			.query = &ours,
			.subplans = subplans_of(query->estate),
			.walked = &walked,
			.reader = fb_reader_begin(query->estate->es_query_cxt),
			.whole = !(eflags & EXEC_FLAG_BACKWARD),
			.sure = true,
		};

		walk_plan(query->planstate, &walk);
		bms_free(walk.subplans);
		bms_free(walked);
	}
}

/* How many rows are asked for is only known here. */
static void
run(FB_RUN_ARGS)
{
	FbQuery    *ours = count != 0 ? fb_attached(FB_OF_ESTATE, query->estate) : NULL;

	if (ours != NULL)
		ours->may_stop = true;
	if (next_run)
		next_run(FB_RUN_PASS);
	else
		standard_ExecutorRun(FB_RUN_PASS);
}

void
_PG_init(void)
{
	DefineCustomBoolVariable("forebay.enabled",
							 "Whether index scans look ahead.",
							 "Off, queries that start from now on run none of forebay's code.",
							 &fb_enabled, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("forebay.distance_max",
							"How many blocks a scan looks ahead at most.",
							"A tablespace's effective_io_concurrency holds where it is more; where it is 0, nothing is prefetched.",
							&fb_distance_max, 256, 0, FB_DISTANCE_MOST, PGC_USERSET, 0, NULL, NULL, NULL);
	fb_stats_init();
	fb_explain_init();
	fb_strategy_init();
	fb_trace_init();
#if PG_VERSION_NUM >= 150000
	MarkGUCPrefixReserved("forebay");
#else
	EmitWarningsOnPlaceholders("forebay");
#endif
	next_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
	next_run = ExecutorRun_hook;
	ExecutorRun_hook = run;
}
