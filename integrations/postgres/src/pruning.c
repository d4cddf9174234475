/*
 * Which children of an Append are executed for an outer row of a nested loop.
 *
 * If the inner side is a partitioned table, the server determines by the outer row's values which partitions it scans.
 * We ask it the same for rows ahead: the parameters of the join get the row's values for the time of the call.
 *
 * Failure: conditions whose evaluation could have effects or fail are refused when this is prepared.
 */
#include "forebay.h"

#include "access/transam.h"
#include "compat.h"
#include "executor/execPartition.h"
#include "nodes/nodeFuncs.h"

struct FbPruning
{
	NestLoopState *join;
	PartitionPruneState *state;
	MemoryContext context;
	/* By the row's number modulo FB_VALUES_MOST: its children, and the number after it; 0 if they are not known. */
	Bitmapset **children;
	uint64	   *known;
};

/* The join's parameter of that number, if it is a column of the outer row; or NULL. */
static NestLoopParam *
fb_plain_param(NestLoop *join, int number)
{
	ListCell   *each;

	foreach(each, join->nestParams)
	{
		NestLoopParam *param = lfirst_node(NestLoopParam, each);

		if (param->paramno == number && IsA(param->paramval, Var) && param->paramval->varattno > 0)
			return param;
	}
	return NULL;
}

/* Whether evaluating a value may have effects, fail, or need more than an outer row; an expression_tree_walker. */
static bool
fb_value_is_unsafe(Node *node, void *join)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_List:
		case T_Const:
		case T_RelabelType:
			break;
		case T_Param:
			if (castNode(Param, node)->paramkind == PARAM_EXEC &&
				fb_plain_param(join, castNode(Param, node)->paramid) == NULL)
				return true;
			break;
		default:
			return true;
	}
	return expression_tree_walker(node, fb_value_is_unsafe, join);
}

static bool
fb_steps_are_safe(List *steps, NestLoop *join)
{
	ListCell   *each;
	ListCell   *function;

	foreach(each, steps)
	{
		PartitionPruneStepOp *step = lfirst(each);

		if (!IsA(step, PartitionPruneStepOp))
			continue;
		foreach(function, step->cmpfns)
			if (lfirst_oid(function) >= FirstNormalObjectId)
				return false;
		if (fb_value_is_unsafe((Node *) step->exprs, join))
			return false;
	}
	return true;
}

/* Whether the server determines the children of an Append again for each outer row. */
bool
fb_is_pruned(AppendState *append)
{
	return append->as_prune_state != NULL && append->as_prune_state->do_exec_prune;
}

/* Prepares this in the current memory context; returns NULL if the children of a row cannot be known ahead. */
FbPruning *
fb_pruning_make(NestLoopState *join, AppendState *append)
{
	PartitionPruneState *state = append->as_prune_state;
	FbPruning  *pruning;

	for (int i = 0; i < state->num_partprunedata; i++)
		for (int j = 0; j < state->partprunedata[i]->num_partrelprunedata; j++)
			if (!fb_steps_are_safe(state->partprunedata[i]->partrelprunedata[j].exec_pruning_steps,
								   castNode(NestLoop, join->js.ps.plan)))
				return NULL;
	pruning = palloc(sizeof(FbPruning));
	pruning->join = join;
	pruning->state = state;
	pruning->context = CurrentMemoryContext;
	pruning->children = palloc0(FB_VALUES_MOST * sizeof(Bitmapset *));
	pruning->known = palloc0(FB_VALUES_MOST * sizeof(uint64));
	return pruning;
}

/* Forgets all rows: they are numbered from 0 again. */
void
fb_pruning_restart(FbPruning *pruning)
{
	memset(pruning->known, 0, FB_VALUES_MOST * sizeof(uint64));
}

/* The children for a row, as the server determines them. */
static Bitmapset *
fb_pruned_children(FbPruning *pruning, TupleTableSlot *row)
{
	NestLoop   *plan = castNode(NestLoop, pruning->join->js.ps.plan);
	ParamExecData *values = pruning->join->js.ps.ps_ExprContext->ecxt_param_exec_vals;
	ParamExecData *before = palloc(list_length(plan->nestParams) * sizeof(ParamExecData));
	Bitmapset  *children;
	ListCell   *each;

	foreach(each, plan->nestParams)
	{
		NestLoopParam *param = lfirst_node(NestLoopParam, each);
		ParamExecData *value = &values[param->paramno];

		before[foreach_current_index(each)] = *value;
		if (fb_plain_param(plan, param->paramno) != NULL)
			value->value = slot_getattr(row, param->paramval->varattno, &value->isnull);
	}
	children = FbFindMatchingSubPlans(pruning->state);
	foreach(each, plan->nestParams)
		values[lfirst_node(NestLoopParam, each)->paramno] = before[foreach_current_index(each)];
	pfree(before);
	return children;
}

/* Whether a child is executed for a row. */
bool
fb_pruning_keeps(FbPruning *pruning, int child, uint64 number, TupleTableSlot *row)
{
	uint64		at = number % FB_VALUES_MOST;

	if (pruning->known[at] != number + 1)
	{
		MemoryContext old = MemoryContextSwitchTo(pruning->context);

		bms_free(pruning->children[at]);
		pruning->children[at] = NULL;
		pruning->children[at] = fb_pruned_children(pruning, row);
		pruning->known[at] = number + 1;
		MemoryContextSwitchTo(old);
	}
	return bms_is_member(child, pruning->children[at]);
}
