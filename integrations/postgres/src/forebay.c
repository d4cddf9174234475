/*
 * The extension's settings and hooks, and which nodes of a plan it registers.
 *
 * The plan of a query is walked once, when the query starts. Each node is passed to the module that looks ahead for its
 * kind, or advises the kernel about it, with whether all of its rows will be read; the module decides what to do.
 *
 * Failure: an unknown server version is refused when the library is loaded.
 */
#include "forebay.h"

#include "access/parallel.h"
#include "compat.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "tcop/utility.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

/* What `make install` looks for in the library. */
extern PGDLLEXPORT const char forebay_built_for[];
PGDLLEXPORT const char forebay_built_for[] = "forebay, built for PostgreSQL " PG_VERSION;

void		_PG_init(void);

bool		fb_enabled = true;
int			fb_distance_max = 256;

dlist_head	fb_queries = DLIST_STATIC_INIT(fb_queries);

/* A command that is expected to write fewer rows does not look ahead in indexes. */
#define WRITES_MIN 20

static ExecutorStart_hook_type next_start;
static ExecutorRun_hook_type next_run;
static ProcessUtility_hook_type next_utility;

/* The walk of a plan. */
typedef struct Walk
{
	EState	   *estate;
	FbQuery    *query;			/* NULL until a node is registered */
	FbReader   *reader;			/* NULL if there is no advice and no trace */
	Bitmapset  *subplans;		/* the numbers of their topmost nodes */
	Bitmapset  *walked;			/* those of them that were walked */
} Walk;

/* The walk at a node. */
typedef struct Step
{
	Walk	   *walk;
	PlanState  *parent;			/* NULL at the top */
	/* Whether all rows of the current node are read. */
	bool		whole;
	/* Whether `whole` has no exception, not even a rare one. */
	bool		sure;
	/* Whether the current node is executed once, with no other scan before or after it. */
	bool		once;
} Step;

/* The query's memory is about to be freed: removes all that was registered for it. */
static void
fb_query_freed(void *arg)
{
	FbQuery    *query = arg;

	fb_scans_release(query);
#if PG_VERSION_NUM < 180000
	if (!slist_is_empty(&query->bitmaps))
		fb_bitmaps_release(query);
#endif
	if (!slist_is_empty(&query->queues))
		fb_queues_release(query);
	fb_detach(FB_OF_ESTATE, query->estate);
	dlist_delete(&query->link);
}

static FbQuery *
fb_query_of(Walk *walk)
{
	if (walk->query == NULL)
	{
		FbQuery    *query = MemoryContextAlloc(walk->estate->es_query_cxt, sizeof(FbQuery));

		memset(query, 0, sizeof(FbQuery));
		query->estate = walk->estate;
		dlist_init(&query->scans);
		fb_attach(FB_OF_ESTATE, query->estate, query);
		dlist_push_head(&fb_queries, &query->link);
		query->on_free.func = fb_query_freed;
		query->on_free.arg = query;
		MemoryContextRegisterResetCallback(walk->estate->es_query_cxt, &query->on_free);
		walk->query = query;
	}
	return walk->query;
}

/* Whether all rows of a node are read, given whether all of its parent's are. */
static bool
fb_is_whole(PlanState *node, PlanState *parent, bool whole, Bitmapset *subplans)
{
	/* An uncorrelated EXISTS needs one row, and cannot be distinguished from other subplans. */
	if (subplans != NULL && bms_is_member(node->plan->plan_node_id, subplans))
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
			/* It ends when its run condition is no longer true, unless it must process the following rows. */
			return whole && (castNode(WindowAggState, parent)->runcondition == NULL ||
							 castNode(WindowAggState, parent)->use_pass_through);
#endif
		case T_SetOpState:
			/* From 18 on the right side is not read to its end if the left side has ended. */
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
 * Whether a node is the top of a subplan that was walked already. A subplan in a target list appears in each child of
 * an Append.
 */
static bool
fb_is_walked(PlanState *node, Walk *walk)
{
	int			number = node->plan->plan_node_id;

	if (walk->subplans == NULL || !bms_is_member(number, walk->subplans))
		return false;
	if (bms_is_member(number, walk->walked))
		return true;
	walk->walked = bms_add_member(walk->walked, number);
	return false;
}

/* The numbers of the topmost nodes of a query's subplans. A parallel worker has only those that it may run. */
static Bitmapset *
fb_subplans_of(EState *estate)
{
	Bitmapset  *numbers = NULL;
	ListCell   *each;

	foreach(each, estate->es_subplanstates)
		if (lfirst(each) != NULL)
			numbers = bms_add_member(numbers, ((PlanState *) lfirst(each))->plan->plan_node_id);
	return numbers;
}

/* Whether the only child of a node is executed once, if the node is. */
static bool
fb_executes_once(PlanState *node)
{
	switch (nodeTag(node))
	{
		case T_ModifyTableState:
		case T_LockRowsState:
		case T_AggState:
		case T_LimitState:
		case T_ResultState:
			return true;
		default:
			return false;
	}
}

/* Whether a scan has a value for each column of a unique index, and so finds at most one row. */
static bool
fb_is_unique_search(PlanState *node)
{
	bool		index_only = IsA(node, IndexOnlyScanState);
	Relation	index = index_only ? ((IndexOnlyScanState *) node)->ioss_RelationDesc
		: ((IndexScanState *) node)->iss_RelationDesc;
	ScanKey		keys = index_only ? ((IndexOnlyScanState *) node)->ioss_ScanKeys : ((IndexScanState *) node)->iss_ScanKeys;
	int			count = index_only ? ((IndexOnlyScanState *) node)->ioss_NumScanKeys
		: ((IndexScanState *) node)->iss_NumScanKeys;

	if (index == NULL || !index->rd_index->indisunique || count < index->rd_index->indnkeyatts)
		return false;
	for (int i = 0; i < index->rd_index->indnkeyatts; i++)
		if (keys[i].sk_attno != i + 1 || keys[i].sk_strategy != BTEqualStrategyNumber ||
			(keys[i].sk_flags & (SK_SEARCHARRAY | SK_ROW_HEADER | SK_SEARCHNULL | SK_SEARCHNOTNULL)) != 0)
			return false;
	return true;
}

/*
 * Whether a scan looks for a single row, and is executed once: one of a unique key, or one that the check of a foreign
 * key locks. Nothing comes after that row, and registering the scan would cost a thirtieth of the query.
 */
static bool
fb_finds_one_row(PlanState *parent, PlanState *node)
{
	return (parent != NULL && IsA(parent, LockRowsState) && node->plan->plan_rows <= 1) || fb_is_unique_search(node);
}

/* Whether a query is no more than such a scan. */
static bool
fb_query_finds_one_row(QueryDesc *query)
{
	PlanState  *node = query->planstate;
	PlanState  *parent = NULL;

	if (IsA(node, LockRowsState))
	{
		parent = node;
		node = outerPlanState(node);
	}
	return (IsA(node, IndexScanState) || IsA(node, IndexOnlyScanState)) && query->estate->es_subplanstates == NIL &&
		fb_finds_one_row(parent, node);
}

/* Registers the nodes of a subtree; a planstate_tree_walker. */
static bool
fb_walk_plan(PlanState *node, void *context)
{
	Step		step = *(Step *) context;
	Walk	   *walk = step.walk;
	bool		is_index_scan;

	if (node == NULL || fb_is_walked(node, walk))
		return false;
	step.whole = fb_is_whole(node, step.parent, step.whole, walk->subplans);
	step.sure = step.sure && step.whole && (step.parent == NULL || fb_surely_takes_all(step.parent, node));
	step.once = step.once &&
		(step.parent == NULL || (node == outerPlanState(step.parent) && fb_executes_once(step.parent)));
	is_index_scan = IsA(node, IndexScanState) || IsA(node, IndexOnlyScanState);
	if (is_index_scan && !(step.once && fb_finds_one_row(step.parent, node)))
		fb_scan_register(fb_query_of(walk), node, step.whole);
#if PG_VERSION_NUM < 180000
	if (IsA(node, BitmapHeapScanState))
		fb_bitmap_register(fb_query_of(walk), node, step.whole);
#endif
	if (fb_writes && IsA(node, ModifyTableState) && outerPlanState(node)->plan->plan_rows >= WRITES_MIN)
	{
		fb_modify_register(fb_query_of(walk), castNode(ModifyTableState, node));
		fb_foreign_keys_register(fb_query_of(walk), castNode(ModifyTableState, node));
	}
	if (walk->reader != NULL)
		fb_reader_note(walk->reader, node);
	/* For most queries of one row, this is all of the plan. */
	if (is_index_scan && node->initPlan == NIL && node->subPlan == NIL)
		return false;
	step.parent = node;
	planstate_tree_walker(node, fb_walk_plan, &step);
	if (IsA(node, NestLoopState) && walk->query != NULL)
		fb_join_register(walk->query, castNode(NestLoopState, node), step.whole, step.sure);
	return false;
}

static void
fb_executor_start(QueryDesc *query, int eflags)
{
	fb_scan_fetched();
	if (next_start)
		next_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if (fb_enabled && !(eflags & EXEC_FLAG_EXPLAIN_ONLY))
	{
		FbReader   *reader = fb_reader_begin(query->estate->es_query_cxt);
		Walk		walk = {.estate = query->estate, .reader = reader};
		Step		step = {
			.walk = &walk,
			.whole = !(eflags & EXEC_FLAG_BACKWARD),
			/* The leader may stop a worker at any row: a LIMIT above the Gather is not in the worker's plan. */
			.sure = !IsParallelWorker(),
			.once = !(eflags & EXEC_FLAG_REWIND),
		};

		if (reader == NULL && fb_query_finds_one_row(query))
			return;
		walk.subplans = fb_subplans_of(query->estate);
		fb_walk_plan(query->planstate, &step);
		bms_free(walk.subplans);
		bms_free(walk.walked);
	}
}

/* The number of requested rows is known only here. */
static void
fb_executor_run(FB_RUN_ARGS)
{
	FbQuery    *ours = count != 0 ? fb_attached(FB_OF_ESTATE, query->estate) : NULL;
	bool		checks = fb_copy != NULL && fb_copied_key_runs(query);

	if (ours != NULL)
		ours->may_stop = true;
	if (next_run)
		next_run(FB_RUN_PASS);
	else
		standard_ExecutorRun(FB_RUN_PASS);
	if (checks)
		fb_copied_key_ran();
}

static void
fb_run_utility(PlannedStmt *statement, const char *text, bool read_only_tree, ProcessUtilityContext where,
			   ParamListInfo params, QueryEnvironment *environment, DestReceiver *to, QueryCompletion *completion)
{
	if (next_utility)
		next_utility(statement, text, read_only_tree, where, params, environment, to, completion);
	else
		standard_ProcessUtility(statement, text, read_only_tree, where, params, environment, to, completion);
}

static void
fb_process_utility(PlannedStmt *statement, const char *text, bool read_only_tree, ProcessUtilityContext where,
				   ParamListInfo params, QueryEnvironment *environment, DestReceiver *to, QueryCompletion *completion)
{
	Node	   *command = statement->utilityStmt;
	const bool	copies = fb_enabled && fb_writes && IsA(command, CopyStmt) && fb_copy_begin(castNode(CopyStmt, command));
	const MemoryContext vacuum =
		fb_enabled && IsA(command, VacuumStmt) ? fb_vacuum_begin(castNode(VacuumStmt, command)) : NULL;

	if (IsA(command, DiscardStmt) && castNode(DiscardStmt, command)->target == DISCARD_ALL)
		fb_trace_clear();
	if (!copies && vacuum == NULL)
	{
		fb_run_utility(statement, text, read_only_tree, where, params, environment, to, completion);
		return;
	}
	PG_TRY();
	{
		fb_run_utility(statement, text, read_only_tree, where, params, environment, to, completion);
	}
	PG_FINALLY();
	{
		if (copies)
			fb_copied_keys_end();
		if (vacuum != NULL)
			MemoryContextDelete(vacuum);
	}
	PG_END_TRY();
}

void
_PG_init(void)
{
	DefineCustomBoolVariable("forebay.enabled",
							 "Whether scans and writes look ahead.",
							 "Off, queries that start from now on run none of forebay's code.",
							 &fb_enabled, true, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("forebay.distance_max",
							"How many blocks a scan looks ahead at most.",
							"A tablespace's effective_io_concurrency holds where it is more; where it is 0, nothing is prefetched.",
							&fb_distance_max, 256, 0, FB_DISTANCE_MOST, PGC_USERSET, 0, NULL, NULL, NULL);
	fb_insert_init();
	fb_budget_init();
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
	ExecutorStart_hook = fb_executor_start;
	next_run = ExecutorRun_hook;
	ExecutorRun_hook = fb_executor_run;
	next_utility = ProcessUtility_hook;
	ProcessUtility_hook = fb_process_utility;
}
