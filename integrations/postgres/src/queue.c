/*
 * Rows of a plan node that are fetched before their turn, and kept in a queue.
 *
 * Our function replaces the node's own, and is removed again when no rows are wanted ahead and the queue is empty. Rows
 * in the queue are copies without pins, in slots of the kind that the node returns, as the expressions of the node above
 * may be compiled for that kind. Who uses the queue decides first whether rows may be computed ahead (outer_safe.c).
 *
 * It relies on the executor's ExecReScan, which first calls the callbacks registered with a node's expression context:
 * ours drops the queue. The nodes above, nested loops and ModifyTable, never run backward, and do not support mark and
 * restore.
 *
 * Failure: errors of the node pass through. The queue is freed with the query's memory.
 */
#include "forebay.h"

#include "compat.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/memutils.h"

static FbRow *
fb_queue_at(FbQueue *queue, uint64 number)
{
	return &queue->rows[number % FB_VALUES_MOST];
}

static void
fb_queue_clear_row(FbQueue *queue, FbRow *row)
{
	ExecClearTuple(row->slot);
	queue->size -= row->size;
	row->size = 0;
}

/* Drops the rows of a node that is restarted. */
static void
fb_queue_drop_rows(FbQueue *queue)
{
	for (uint64 i = queue->head - (queue->held ? 1 : 0); i < queue->tail; i++)
		fb_queue_clear_row(queue, fb_queue_at(queue, i));
	queue->held = false;
	queue->head = queue->tail = 0;
	queue->ended = false;
	queue->rescanned = false;
	queue->use->restarted(queue);
}

/* The node's expression context is reset: the node is restarted, unless it resets the context as it runs. */
static void
fb_queue_context_reset(Datum arg)
{
	FbQueue    *queue = (FbQueue *) DatumGetPointer(arg);

	queue->registered = false;
	if (!queue->in_call)
		queue->rescanned = true;
}

static TupleTableSlot *
fb_queue_call(FbQueue *queue)
{
	/* A node may begin a scan, whose memory must last. */
	MemoryContext old = MemoryContextSwitchTo(queue->query->estate->es_query_cxt);
	TupleTableSlot *slot;

	queue->in_call = true;
	slot = queue->real(queue->node);
	queue->in_call = false;
	MemoryContextSwitchTo(old);
	return slot;
}

/* Copies a row of the node to the queue. */
static void
fb_queue_append(FbQueue *queue, TupleTableSlot *from)
{
	FbRow	   *row = fb_queue_at(queue, queue->tail);
	void	   *chunk;

	if (row->slot == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(queue->query->estate->es_query_cxt);

		row->slot = FbMakeSlot(queue->desc, queue->ops);
		MemoryContextSwitchTo(old);
	}
	ExecCopySlot(row->slot, from);
	/* Otherwise the copy of a row in a buffer would hold another pin. */
	ExecMaterializeSlot(row->slot);
	if (queue->ops == &TTSOpsVirtual)
		chunk = ((VirtualTupleTableSlot *) row->slot)->data;
	else if (queue->ops == &TTSOpsMinimalTuple)
		chunk = ((MinimalTupleTableSlot *) row->slot)->mintuple;
	else
		chunk = ((HeapTupleTableSlot *) row->slot)->tuple;
	row->size = chunk != NULL ? GetMemoryChunkSpace(chunk) : 0;
	queue->size += row->size;
	queue->tail++;
}

/* Whether the row of that number is in the queue; fetches it if it is the next one and work_mem has room. */
bool
fb_queue_has(FbQueue *queue, uint64 number)
{
	TupleTableSlot *slot;

	if (number < queue->tail)
		return true;
	/* The row before `head` may still be in use. */
	if (queue->ended || queue->size >= (Size) work_mem * 1024 || number - queue->head >= FB_VALUES_MOST - 1)
		return false;
	slot = fb_queue_call(queue);
	if (TupIsNull(slot))
	{
		queue->ended = true;
		return false;
	}
	fb_queue_append(queue, slot);
	return true;
}

/* A row that is in the queue. */
TupleTableSlot *
fb_queue_row(FbQueue *queue, uint64 number)
{
	return fb_queue_at(queue, number)->slot;
}

static TupleTableSlot *
fb_queue_next(FbQueue *queue)
{
	if (queue->rescanned)
		fb_queue_drop_rows(queue);
	if (queue->held)
		fb_queue_clear_row(queue, fb_queue_at(queue, queue->head - 1));
	queue->held = false;
	if (queue->head == queue->tail)
	{
		TupleTableSlot *slot;

		if (queue->ended)
		{
			queue->ended = false;
			return NULL;
		}
		slot = fb_queue_call(queue);
		if (TupIsNull(slot))
			return slot;
		if (!queue->use->wanted(queue))
		{
			/* Unless another extension has wrapped the node since. */
			queue->active = !fb_replace_method(queue->node, fb_exec_queued, queue->real);
			return slot;
		}
		fb_queue_append(queue, slot);
	}
	queue->use->look(queue);
	queue->held = true;
	return fb_queue_row(queue, queue->head++);
}

/* Executes a node instead of the server's function. */
TupleTableSlot *
fb_exec_queued(PlanState *node)
{
	FbQueue    *queue = fb_attached(FB_OF_QUEUED, node);
	TupleTableSlot *slot;

	if (queue == NULL)
		elog(ERROR, "forebay: nothing is known of this node");
	if (!queue->active)
		return queue->real(node);
	slot = fb_queue_next(queue);
	if (!queue->registered)
	{
		queue->registered = true;
		RegisterExprContextCallback(node->ps_ExprContext, fb_queue_context_reset, PointerGetDatum(queue));
	}
	return slot;
}

/* Prepares a queue for the rows of `queue->node`; returns false if they are of a kind that is not known. */
bool
fb_queue_prepare(FbQueue *queue)
{
	MemoryContext old;
	bool		fixed;

	queue->ops = ExecGetResultSlotOps(queue->node, &fixed);
	if (!fixed)
		queue->ops = &TTSOpsMinimalTuple;
	if (queue->ops != &TTSOpsVirtual && queue->ops != &TTSOpsMinimalTuple &&
		queue->ops != &TTSOpsHeapTuple && queue->ops != &TTSOpsBufferHeapTuple)
		return false;
	old = MemoryContextSwitchTo(queue->query->estate->es_query_cxt);
	/* A copy, as no resource owner must count our slots' references to it. */
	queue->desc = CreateTupleDescCopyConstr(ExecGetResultType(queue->node));
	queue->rows = palloc0(FB_VALUES_MOST * sizeof(FbRow));
	if (queue->node->ps_ExprContext == NULL)
		ExecAssignExprContext(queue->query->estate, queue->node);
	MemoryContextSwitchTo(old);
	return true;
}

/* Installs our function: from the next row on, the node's rows pass through it. */
void
fb_queue_wake(FbQueue *queue)
{
	if (queue->active)
		return;
	if (queue->real == NULL)
	{
		fb_attach(FB_OF_QUEUED, queue->node, queue);
		slist_push_head(&queue->query->queues, &queue->link);
	}
	queue->real = queue->node->ExecProcNodeReal;
	queue->active = fb_replace_method(queue->node, queue->real, fb_exec_queued);
}

/* The query's memory is about to be freed: removes its queues. */
void
fb_queues_release(FbQuery *query)
{
	slist_iter	each;

	slist_foreach(each, &query->queues)
		fb_detach(FB_OF_QUEUED, slist_container(FbQueue, link, each.cur)->node);
}
