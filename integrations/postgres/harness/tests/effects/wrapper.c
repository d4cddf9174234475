/*
 * An extension that counts the calls of a query's nodes, in one of the two ways that extensions use.
 *
 * wrapper.way: 0, it does nothing; 1, by ExecSetExecProcNode;
 * 2, in ExecProcNode, permanently.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "fmgr.h"
#include "nodes/nodeFuncs.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static int	way = 0;
static int64 calls = 0;
static ExecutorStart_hook_type next_start;

/* The nodes of the last query. */
static struct
{
	PlanState  *node;
	ExecProcNodeMtd real;
}			nodes[100];
static int	node_count;

static TupleTableSlot *
exec_real(PlanState *node)
{
	int			at = 0;

	while (nodes[at].node != node)
		at++;
	calls++;
	return nodes[at].real(node);
}

static TupleTableSlot *
exec_first(PlanState *node)
{
	calls++;
	return node->ExecProcNodeReal(node);
}

static bool
wrap(PlanState *node, void *context)
{
	if (node == NULL)
		return false;
	nodes[node_count].node = node;
	nodes[node_count++].real = node->ExecProcNodeReal;
	if (way == 1)
		ExecSetExecProcNode(node, exec_real);
	else
		node->ExecProcNode = exec_first;
	return planstate_tree_walker(node, wrap, context);
}

static void
start(QueryDesc *query, int eflags)
{
	if (next_start)
		next_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	node_count = 0;
	if (way != 0)
		wrap(query->planstate, NULL);
}

PG_FUNCTION_INFO_V1(wrapper_calls);
Datum
wrapper_calls(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(calls);
}

void
_PG_init(void)
{
	DefineCustomIntVariable("wrapper.way", "How it counts.", NULL, &way, 0, 0, 2, PGC_USERSET, 0, NULL, NULL, NULL);
	next_start = ExecutorStart_hook;
	ExecutorStart_hook = start;
}
