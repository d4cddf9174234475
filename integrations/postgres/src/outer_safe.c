/*
 * Whether rows of a plan may be computed before they are requested.
 *
 * Rows of the plan of a nested loop's outer side, or of a ModifyTable, are fetched ahead of their use. This must not be
 * observable: the code that computes them must have no effects and must not depend on anything that happens meanwhile; if
 * rows after the last used one might never have been computed, it must raise no errors and call only immutable functions;
 * and if the query may stop at any row, the next row must be available in bounded time.
 *
 * The lists are allowlists: nodes and expressions of a later server are refused until they are added here.
 *
 * Failure: none; a plan that is not known to be safe is treated as unsafe.
 */
#include "forebay.h"

#include "access/transam.h"
#include "catalog/pg_proc.h"
#include "compat.h"
#include "nodes/nodeFuncs.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

typedef struct Check
{
	PlannedStmt *statement;
	/* Stable functions are allowed: the statement runs to its end, and nothing else in it has effects. */
	bool		stable;
	bool		no_errors;
	bool		steady;
	/* No other expression is evaluated between two rows: functions that only change a state of their own are allowed. */
	bool		alone;
} Check;

static bool fb_plan_is_safe(Plan *plan, Check *check);
static bool fb_node_is_unsafe(Node *node, void *context);

static bool
fb_function_is_unsafe(Oid function, void *context)
{
	Check	   *check = context;
	char		volatility = func_volatile(function);

	if (check->alone && (function == F_NEXTVAL || function == F_GEN_RANDOM_UUID || function == FB_F_RANDOM))
		return false;
	if (volatility == PROVOLATILE_VOLATILE || (volatility == PROVOLATILE_STABLE && !check->stable))
		return true;
	return check->no_errors && !get_func_leakproof(function);
}

/* Whether a subplan is unsafe. */
static bool
fb_subplan_is_unsafe(SubPlan *subplan, Check *check)
{
	return check->no_errors ||
		!fb_plan_is_safe(list_nth(check->statement->subplans, subplan->plan_id - 1), check);
}

/* Whether an expression contains anything unsafe; an expression_tree_walker. */
static bool
fb_node_is_unsafe(Node *node, void *context)
{
	Check	   *check = context;

	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_List:
		case T_TargetEntry:
		case T_Var:
		case T_Const:
		case T_Param:
		case T_FuncExpr:
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
		case T_ScalarArrayOpExpr:
		case T_BoolExpr:
		case T_RelabelType:
		case T_CaseExpr:
		case T_CaseWhen:
		case T_CaseTestExpr:
		case T_CoalesceExpr:
		case T_NullTest:
		case T_BooleanTest:
		case T_RowExpr:
			break;
		case T_CoerceViaIO:
		case T_ArrayExpr:
		case T_ArrayCoerceExpr:
		case T_ConvertRowtypeExpr:
		case T_FieldSelect:
		case T_RowCompareExpr:
		case T_MinMaxExpr:
		case T_SubscriptingRef:
			if (check->no_errors)
				return true;
			break;
		case T_NextValueExpr:
			if (!check->alone)
				return true;
			break;
		case T_SQLValueFunction:
			if (check->no_errors || !check->stable)
				return true;
			break;
		case T_Aggref:
			if (check->no_errors || castNode(Aggref, node)->aggfnoid >= FirstNormalObjectId)
				return true;
			break;
		case T_WindowFunc:
			if (check->no_errors || castNode(WindowFunc, node)->winfnoid >= FirstNormalObjectId)
				return true;
			break;
		case T_SubPlan:
			if (fb_subplan_is_unsafe(castNode(SubPlan, node), check))
				return true;
			break;
		case T_AlternativeSubPlan:
			break;
		default:
			return true;
	}
	return check_functions_in_node(node, fb_function_is_unsafe, context) ||
		expression_tree_walker(node, fb_node_is_unsafe, context);
}

/* Whether all children of an Append may be run ahead. */
static bool
fb_all_safe(List *plans, Check *check)
{
	ListCell   *each;

	foreach(each, plans)
		if (!fb_plan_is_safe(lfirst(each), check))
			return false;
	return true;
}

/* Whether a node's expressions other than its target list and filter, if evaluated for each row, are unsafe. */
static bool
fb_own_is_unsafe(Plan *plan, Check *check)
{
	switch (nodeTag(plan))
	{
		case T_IndexScan:
			return fb_node_is_unsafe((Node *) ((IndexScan *) plan)->indexqual, check) ||
				fb_node_is_unsafe((Node *) ((IndexScan *) plan)->indexqualorig, check) ||
				fb_node_is_unsafe((Node *) ((IndexScan *) plan)->indexorderby, check) ||
				fb_node_is_unsafe((Node *) ((IndexScan *) plan)->indexorderbyorig, check);
		case T_IndexOnlyScan:
			return fb_node_is_unsafe((Node *) ((IndexOnlyScan *) plan)->indexqual, check) ||
				fb_node_is_unsafe((Node *) ((IndexOnlyScan *) plan)->indexorderby, check);
		case T_BitmapIndexScan:
			return fb_node_is_unsafe((Node *) ((BitmapIndexScan *) plan)->indexqual, check);
		case T_BitmapHeapScan:
			return fb_node_is_unsafe((Node *) ((BitmapHeapScan *) plan)->bitmapqualorig, check);
		case T_TidScan:
			return fb_node_is_unsafe((Node *) ((TidScan *) plan)->tidquals, check);
		case T_ValuesScan:
			return fb_node_is_unsafe((Node *) ((ValuesScan *) plan)->values_lists, check);
		case T_FunctionScan:
			{
				ListCell   *each;

				foreach(each, ((FunctionScan *) plan)->functions)
					if (fb_node_is_unsafe(lfirst_node(RangeTblFunction, each)->funcexpr, check))
						return true;
				return false;
			}
		case T_Result:
			return fb_node_is_unsafe(((Result *) plan)->resconstantqual, check);
		case T_NestLoop:
			return fb_node_is_unsafe((Node *) ((Join *) plan)->joinqual, check);
		case T_HashJoin:
			return fb_node_is_unsafe((Node *) ((Join *) plan)->joinqual, check) ||
				fb_node_is_unsafe((Node *) ((HashJoin *) plan)->hashclauses, check);
		case T_MergeJoin:
			return fb_node_is_unsafe((Node *) ((Join *) plan)->joinqual, check) ||
				fb_node_is_unsafe((Node *) ((MergeJoin *) plan)->mergeclauses, check);
		default:
			return false;
	}
}

/* Whether a node and its subtree may be run ahead. */
static bool
fb_plan_is_safe(Plan *plan, Check *check)
{
	Check		below = *check;
	ListCell   *each;

	if (plan == NULL)
		return true;
	switch (nodeTag(plan))
	{
		case T_SeqScan:
		case T_IndexScan:
		case T_IndexOnlyScan:
		case T_SubqueryScan:
		case T_ValuesScan:
		case T_WorkTableScan:
		case T_Material:
		case T_Result:
			break;
		case T_Sort:
			/* A sort returns its first row after the subtree is done, which then raises no errors and takes no time. */
			below.no_errors = false;
			below.steady = false;
			break;
		case T_Append:
		case T_MergeAppend:
		case T_BitmapHeapScan:
		case T_BitmapIndexScan:
		case T_BitmapAnd:
		case T_BitmapOr:
		case T_TidScan:
		case T_NestLoop:
		case T_HashJoin:
		case T_MergeJoin:
		case T_Hash:
		case T_Unique:
			if (check->steady)
				return false;
			break;
		case T_CteScan:
		case T_FunctionScan:
		case T_Agg:
		case T_Group:
		case T_WindowAgg:
		case T_IncrementalSort:
		case T_Limit:
		case T_SetOp:
		case T_Memoize:
		case T_Gather:
		case T_GatherMerge:
			if (check->steady || check->no_errors)
				return false;
			break;
		default:
			return false;
	}
	if (check->steady && plan->qual != NIL)
		return false;
	if (fb_node_is_unsafe((Node *) plan->targetlist, check) || fb_node_is_unsafe((Node *) plan->qual, check) ||
		fb_own_is_unsafe(plan, check))
		return false;
	foreach(each, plan->initPlan)
		if (fb_subplan_is_unsafe(lfirst_node(SubPlan, each), check))
			return false;
	if (IsA(plan, CteScan) &&
		!fb_plan_is_safe(list_nth(check->statement->subplans, ((CteScan *) plan)->ctePlanId - 1), check))
		return false;
	if ((IsA(plan, SubqueryScan) && !fb_plan_is_safe(((SubqueryScan *) plan)->subplan, &below)) ||
		(IsA(plan, Append) && !fb_all_safe(((Append *) plan)->appendplans, &below)) ||
		(IsA(plan, MergeAppend) && !fb_all_safe(((MergeAppend *) plan)->mergeplans, &below)) ||
		(IsA(plan, BitmapAnd) && !fb_all_safe(((BitmapAnd *) plan)->bitmapplans, &below)) ||
		(IsA(plan, BitmapOr) && !fb_all_safe(((BitmapOr *) plan)->bitmapplans, &below)))
		return false;
	return fb_plan_is_safe(outerPlan(plan), &below) && fb_plan_is_safe(innerPlan(plan), &below);
}

/* Whether no part of a statement has effects. */
static bool
fb_has_no_effects(PlannedStmt *statement)
{
	Check		check = {.statement = statement, .stable = true};
	ListCell   *each;

	if (statement->commandType != CMD_SELECT || statement->hasModifyingCTE || statement->rowMarks != NIL ||
		!fb_plan_is_safe(statement->planTree, &check))
		return false;
	foreach(each, statement->subplans)
		if (!fb_plan_is_safe(lfirst(each), &check))
			return false;
	return true;
}

/*
 * Whether rows of a plan may be computed before they are requested. `sure`: all its rows are computed anyway; `whole`:
 * all are, as far as is known ahead, with rare exceptions.
 */
bool
fb_outer_is_safe(Plan *plan, PlannedStmt *statement, bool whole, bool sure)
{
	Check		check = {.statement = statement, .no_errors = !sure, .steady = !whole};

	if (fb_plan_is_safe(plan, &check))
		return true;
	/*
	 * Stable functions are constant only while the statement runs, not if it returns control between rows and a setting
	 * may change, and only if nothing in it has effects.
	 */
	check.stable = true;
	return sure && fb_plan_is_safe(plan, &check) && fb_has_no_effects(statement);
}

/*
 * Whether rows of a ModifyTable's plan may be computed before they are requested. All are computed, unless the command
 * fails; if it would fail for two reasons, it may then report the other. `alone`: no expression of the command is
 * evaluated between two rows.
 */
bool
fb_modify_is_safe(Plan *plan, PlannedStmt *statement, bool alone)
{
	Check		check = {.statement = statement, .stable = alone, .alone = alone};

	return fb_plan_is_safe(plan, &check);
}

/* Whether the actions of a MERGE may be evaluated again for a row, before its turn; `updates`: one of them is an UPDATE. */
bool
fb_merge_is_safe(Plan *plan, PlannedStmt *statement, bool *updates)
{
#if PG_VERSION_NUM >= 150000
	Check		check = {.statement = statement};
	ListCell   *lists;
	ListCell   *each;

	foreach(lists, castNode(ModifyTable, plan)->mergeActionLists)
		foreach(each, lfirst_node(List, lists))
		{
			MergeAction *action = lfirst_node(MergeAction, each);

			if (fb_node_is_unsafe(action->qual, &check) || fb_node_is_unsafe((Node *) action->targetList, &check))
				return false;
			*updates = *updates || action->commandType == CMD_UPDATE;
		}
#if PG_VERSION_NUM >= 170000
	if (fb_node_is_unsafe((Node *) castNode(ModifyTable, plan)->mergeJoinConditions, &check))
		return false;
#endif
#endif
	return true;
}

/* Whether a node whose rows are all read is certain to read all rows of a child. */
bool
fb_surely_takes_all(PlanState *node, PlanState *child)
{
	switch (nodeTag(node))
	{
		case T_NestLoopState:
		case T_AggState:
		case T_SortState:
		case T_IncrementalSortState:
		case T_MaterialState:
		case T_AppendState:
		case T_MergeAppendState:
		case T_GatherState:
		case T_GatherMergeState:
		case T_UniqueState:
		case T_GroupState:
		case T_ModifyTableState:
		case T_LockRowsState:
		case T_SubqueryScanState:
		case T_ResultState:
		case T_HashState:
			return true;
		case T_HashJoinState:
			/* If the inner side is empty, the outer side is not read to its end. */
			return child == innerPlanState(node);
		default:
			return false;
	}
}
