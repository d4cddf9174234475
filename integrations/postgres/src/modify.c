/*
 * The rows of a ModifyTable's plan, as the next ones that are inserted into indexes.
 *
 * INSERT ... SELECT, INSERT of several VALUES and UPDATE put one row at a time into the table and its indexes. When an
 * insert into an index waits, some rows of the plan are fetched before their turn (queue.c); for an index whose keys
 * are known from them, insert.c prefetches the leaves.
 *
 * An INSERT's row has the columns of the table. An UPDATE's row contains the new values and the place of the old row,
 * which has the other columns. The new row's place is not known; it is taken to be at the end of the table.
 *
 * A MERGE's row contains the source's columns and the place of the row that it matches, if any. The action for it is
 * found, and evaluated, as the server does later; so nothing in the actions may be volatile.
 *
 * Rows that an INSERT routes to partitions are recognized (routed.c) for each partition with an index whose inserts wait.
 *
 * Left out: a MERGE into partitions; rows that an UPDATE moves to another partition; columns that are generated. A BEFORE
 * trigger may change a row or suppress it, which costs a hint.
 *
 * Rows are fetched ahead of the changes of the rows before. So a scan may mark entries of its index dead before new entries
 * are inserted, which then take their places: in a hash index, the order of equal keys may differ from the server's.
 *
 * Failure: see queue.c and insert.c.
 */
#include "forebay.h"

#include "access/sysattr.h"
#include "catalog/partition.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/nodeModifyTable.h"
#include "optimizer/optimizer.h"
#include "utils/rel.h"

/* For fewer expected rows, the partitions' indexes are not looked up: that takes some microseconds for each. */
#define ROUTED_MIN 1000

typedef struct FbModify
{
	FbQueue		queue;
	dlist_node	link;			/* in `modifies`, until its query's memory is freed */
	MemoryContextCallback on_free;
	ModifyTableState *node;
	/* Its targets that look ahead. */
	int			target_count;
	/* Whether rows may be fetched ahead was determined, and what the result was. */
	bool		prepared;
	bool		possible;
	/* A MERGE that updates rows. */
	bool		updates;
	slist_head	inserts;		/* of FbInserts, those with hints */
} FbModify;

/* Those of all executing queries, the one that began last first. */
static dlist_head modifies = DLIST_STATIC_INIT(modifies);

static bool
fb_modify_wants_rows(FbQueue *queue)
{
	slist_iter	each;

	slist_foreach(each, &((FbModify *) queue)->inserts)
		if (slist_container(FbInserts, link, each.cur)->active)
			return true;
	return false;
}

/* A row is about to be returned: looks ahead from it. */
static void
fb_modify_look(FbQueue *queue)
{
	MemoryContext old = MemoryContextSwitchTo(GetPerTupleMemoryContext(queue->query->estate));
	slist_iter	each;

	slist_foreach(each, &((FbModify *) queue)->inserts)
	{
		FbInserts  *inserts = slist_container(FbInserts, link, each.cur);

		if (!inserts->active)
			continue;
		/* The rows before were used while there was no look-ahead. */
		if (inserts->tail < queue->head)
			inserts->head = inserts->tail = queue->head;
		fb_inserts_prefetch(inserts);
	}
	MemoryContextSwitchTo(old);
}

static void
fb_modify_restarted(FbQueue *queue)
{
	slist_iter	each;

	slist_foreach(each, &((FbModify *) queue)->inserts)
	{
		FbInserts  *inserts = slist_container(FbInserts, link, each.cur);

		inserts->head = inserts->tail = 0;
	}
}

static const FbQueueUse modify_use = {fb_modify_wants_rows, fb_modify_look, fb_modify_restarted};

/* Whether a row of an UPDATE's plan is for this target; `old` is the place of the row that it replaces. */
static bool
fb_row_is_for(FbInserts *inserts, TupleTableSlot *row, ItemPointer *old)
{
	ModifyTableState *node = inserts->modify->node;
	Datum		value;
	bool		null;

	if (node->mt_nrels > 1)
	{
		value = ExecGetJunkAttribute(row, node->mt_resultOidAttno, &null);
		if (null || DatumGetObjectId(value) != RelationGetRelid(inserts->heap))
			return false;
	}
	value = ExecGetJunkAttribute(row, inserts->result->ri_RowIdAttNo, &null);
	*old = (ItemPointer) DatumGetPointer(value);
	return !null;
}

/* The row at a place in the table; NULL if there is none. */
static TupleTableSlot *
fb_old_row(FbInserts *inserts, ItemPointer tid)
{
	BlockNumber block = ItemPointerGetBlockNumber(tid);

	/* A row that the command's snapshot sees does not change, so an earlier copy has it. */
	if (inserts->table_rows.block != block && !fb_table_rows_copy_page(&inserts->table_rows, block))
		return NULL;
	return fb_table_rows_stored(&inserts->table_rows, ItemPointerGetOffsetNumber(tid));
}

/* The new row that an UPDATE makes of a row of its plan; NULL if that is not known. */
static TupleTableSlot *
fb_updated_row(FbInserts *inserts, TupleTableSlot *row)
{
	ItemPointer tid;
	TupleTableSlot *old;

	if (!inserts->result->ri_projectNewInfoValid || !fb_row_is_for(inserts, row, &tid))
		return NULL;
	if (!inserts->needs_old)
		return ExecGetUpdateNewTuple(inserts->result, row, ExecStoreAllNullTuple(inserts->table_rows.slot));
	old = fb_old_row(inserts, tid);
	/* Between two rows of the plan, the slot of the new row is not in use. */
	return old != NULL ? ExecGetUpdateNewTuple(inserts->result, row, old) : NULL;
}

#if PG_VERSION_NUM >= 150000
/* The row that a MERGE inserts for a row of its plan, or updates another to; NULL if there is none, or it is not known. */
static TupleTableSlot *
fb_merged_row(FbInserts *inserts, TupleTableSlot *row)
{
	ResultRelInfo *result = inserts->result;
	ExprContext *context = inserts->modify->node->ps.ps_ExprContext;
	ListCell   *each;
	ItemPointer tid;
	TupleTableSlot *old = NULL;
	bool		matched = fb_row_is_for(inserts, row, &tid);

	if (matched)
	{
		old = inserts->modify->updates ? fb_old_row(inserts, tid) : NULL;
		if (old == NULL)
			return NULL;
	}
	/* As the server sets it before each use. */
	context->ecxt_scantuple = old;
	context->ecxt_innertuple = row;
	context->ecxt_outertuple = NULL;
	foreach(each, FbMergeActions(result, matched, context))
	{
		MergeActionState *action = lfirst(each);
		CmdType		type = action->mas_action->commandType;

		if (ExecQual(action->mas_whenqual, context))
			return type == CMD_INSERT || type == CMD_UPDATE ? ExecProject(action->mas_proj) : NULL;
	}
	return NULL;
}
#endif

/* The row that is inserted for a row of the plan; NULL if there is none, or it is not known. */
static TupleTableSlot *
fb_inserted_row(FbInserts *inserts, TupleTableSlot *row)
{
	switch (inserts->modify->node->operation)
	{
		case CMD_INSERT:
			/* Its columns are those of the table. */
			return inserts->routed != NULL ? fb_routed_row(inserts, row) : row;
#if PG_VERSION_NUM >= 150000
		case CMD_MERGE:
			return fb_merged_row(inserts, row);
#endif
		default:
			return fb_updated_row(inserts, row);
	}
}

static bool
fb_next_planned(FbInserts *inserts, ItemPointer tid, TupleTableSlot **values)
{
	FbQueue    *queue = &inserts->modify->queue;

	if (!fb_queue_has(queue, inserts->tail))
		return false;
	inserts->elsewhere = false;
	*values = fb_inserted_row(inserts, fb_queue_row(queue, inserts->tail));
	/* At the end of the table. */
	ItemPointerSet(tid, MaxBlockNumber, MaxOffsetNumber);
	return true;
}

static BlockNumber
fb_take_planned(FbInserts *inserts, ItemPointer tid)
{
	FbQueue    *queue = &inserts->modify->queue;
	uint64		number = queue->head - 1;
	bool		looked = queue->held && number >= inserts->head && number < inserts->tail;

	inserts->head = Min(queue->head, inserts->tail);
	return looked ? inserts->rows[number % FB_VALUES_MOST].leaf : InvalidBlockNumber;
}

static const FbRowSource planned_rows = {fb_next_planned, fb_take_planned};

/* The ModifyTable that inserts into an index, given by its relation or its IndexInfo; NULL if there is none. */
static FbModify *
fb_modify_of(Relation index, IndexInfo *info, ResultRelInfo **to, int *at)
{
	dlist_iter	each;

	dlist_foreach(each, &modifies)
	{
		FbModify   *modify = dlist_container(FbModify, link, each.cur);

		for (int i = 0; i < modify->target_count; i++)
		{
			ResultRelInfo *result = &modify->node->resultRelInfo[i];

			for (int j = 0; j < result->ri_NumIndices; j++)
			{
				if (result->ri_IndexRelationInfo[j] != info && result->ri_IndexRelationDescs[j] != index)
					continue;
				*to = result;
				*at = j;
				return modify;
			}
		}
	}
	return NULL;
}

/*
 * The INSERT into a partitioned table that routes rows to one of its partitions, and has made this IndexInfo for that;
 * NULL if there is none.
 */
static FbModify *
fb_modify_routing_to(Relation partition, IndexInfo *info)
{
	List	   *ancestors;
	dlist_iter	each;

	if (!partition->rd_rel->relispartition)
		return NULL;
	ancestors = get_partition_ancestors(RelationGetRelid(partition));
	dlist_foreach(each, &modifies)
	{
		FbModify   *modify = dlist_container(FbModify, link, each.cur);

		if (modify->node->operation == CMD_INSERT && modify->node->mt_partition_tuple_routing != NULL &&
			info->ii_Context == modify->queue.query->estate->es_query_cxt &&
			list_member_oid(ancestors, RelationGetRelid(modify->node->rootResultRelInfo->ri_RelationDesc)))
			return modify;
	}
	return NULL;
}

/* Finds the ModifyTable that inserts into an index; returns false if it is another command. */
bool
fb_modify_find(FbInserts *inserts)
{
	int			at;

	inserts->modify = fb_modify_of(NULL, inserts->info, &inserts->result, &at);
	if (inserts->modify == NULL)
		inserts->modify = fb_modify_routing_to(inserts->heap, inserts->info);
	return inserts->modify != NULL;
}

/* The IndexInfo with which the current command, if it is a ModifyTable, inserts into an index; or NULL. */
IndexInfo *
fb_modify_index_of(Relation index)
{
	ResultRelInfo *result;
	int			at;

	return fb_modify_of(index, NULL, &result, &at) != NULL ? result->ri_IndexRelationInfo[at] : NULL;
}

/* Whether no expression of the command is evaluated between two rows, but those of constraints and indexes. */
static bool
fb_plan_is_alone(FbModify *modify)
{
	ModifyTable *plan = castNode(ModifyTable, modify->node->ps.plan);

	if (FB_IS_MERGE(modify->node) || modify->queue.query->estate->es_plannedstmt->hasModifyingCTE ||
		plan->returningLists != NIL || plan->withCheckOptionLists != NIL || plan->onConflictAction != ONCONFLICT_NONE)
		return false;
	/* The triggers of partitions are not known here. */
	if (modify->node->mt_partition_tuple_routing != NULL)
		return false;
	for (int i = 0; i < modify->node->mt_nrels; i++)
	{
		TriggerDesc *triggers = modify->node->resultRelInfo[i].ri_TrigDesc;

		if (triggers != NULL && (triggers->trig_insert_before_row || triggers->trig_update_before_row))
			return false;
	}
	return true;
}

/*
 * Determines from which columns an index's keys and predicate are computed. Returns false if one is generated, as it is
 * computed only when the row is inserted.
 */
static bool
fb_know_columns(FbInserts *inserts)
{
	ModifyTableState *node = inserts->modify->node;
	IndexInfo  *info = inserts->info;
	List	   *updated = NIL;
	Bitmapset  *columns = NULL;
	int			column = -1;

	if (node->operation == CMD_UPDATE)
		updated = list_nth(FbUpdatedColumns(node), inserts->result - node->resultRelInfo);
	pull_varattnos((Node *) info->ii_Expressions, 1, &columns);
	pull_varattnos((Node *) info->ii_Predicate, 1, &columns);
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(inserts->index); i++)
		if (info->ii_IndexAttrNumbers[i] > 0)
			columns = bms_add_member(columns, info->ii_IndexAttrNumbers[i] - FirstLowInvalidHeapAttributeNumber);
	while ((column = bms_next_member(columns, column)) >= 0)
	{
		AttrNumber	number = column + FirstLowInvalidHeapAttributeNumber;

		/* Zero is the whole row, less are the system's columns. */
		if (number <= 0 || TupleDescAttr(RelationGetDescr(inserts->heap), number - 1)->attgenerated != '\0')
			return false;
		if (!list_member_int(updated, number))
			inserts->needs_old = true;
	}
	return true;
}

/* Prepares look-ahead for an index; returns false if the command's rows may not be fetched ahead, or lack its keys. */
bool
fb_modify_prepare(FbInserts *inserts)
{
	FbModify   *modify = inserts->modify;
	EState	   *estate = modify->queue.query->estate;

	if (!modify->prepared)
	{
		modify->prepared = true;
		modify->possible = !modify->queue.query->may_stop &&
			fb_modify_is_safe(modify->queue.node->plan, estate->es_plannedstmt, fb_plan_is_alone(modify)) &&
			(!FB_IS_MERGE(modify->node) ||
			 fb_merge_is_safe(modify->node->ps.plan, estate->es_plannedstmt, &modify->updates)) &&
			fb_queue_prepare(&modify->queue);
	}
	if (!modify->possible || !fb_know_columns(inserts))
		return false;
	if (inserts->result == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
		bool		prepared = fb_prepare_routed(inserts, modify->node->rootResultRelInfo->ri_RelationDesc);

		MemoryContextSwitchTo(old);
		if (!prepared)
			return false;
	}
	inserts->source = &planned_rows;
	slist_push_head(&modify->inserts, &inserts->link);
	return true;
}

void
fb_modify_wake(FbInserts *inserts)
{
	fb_queue_wake(&inserts->modify->queue);
}

/* Adds the counts of a ModifyTable's inserts; returns false if none has waited. */
bool
fb_modify_counts(PlanState *node, struct fbl_counts *counts)
{
	FbQueue    *queue = fb_attached(FB_OF_QUEUED, outerPlanState(node));
	slist_iter	each;

	if (queue == NULL)
		return false;
	slist_foreach(each, &((FbModify *) queue)->inserts)
		fb_counts_add(counts, fbl_hints_counts(slist_container(FbInserts, link, each.cur)->hints));
	return true;
}

/* The query's memory is about to be freed. */
static void
fb_modify_freed(void *arg)
{
	dlist_delete(&((FbModify *) arg)->link);
}

/* Registers a ModifyTable with several rows, at its query's start. */
void
fb_modify_register(FbQuery *query, ModifyTableState *node)
{
	FbModify   *modify;

	if (node->operation != CMD_INSERT && node->operation != CMD_UPDATE && (!FB_IS_MERGE(node) || node->mt_nrels > 1))
		return;
	modify = MemoryContextAllocZero(query->estate->es_query_cxt, sizeof(FbModify));
	modify->queue.query = query;
	modify->queue.node = outerPlanState(node);
	modify->queue.use = &modify_use;
	modify->node = node;
	modify->target_count = Min(node->mt_nrels, FB_PARTITIONS_MAX);
	for (int i = 0; i < modify->target_count; i++)
	{
		Relation	target = node->resultRelInfo[i].ri_RelationDesc;

		if (target->rd_rel->relkind == RELKIND_RELATION ||
			(target->rd_rel->relkind == RELKIND_PARTITIONED_TABLE &&
			 outerPlanState(node)->plan->plan_rows >= ROUTED_MIN))
			fb_expect_inserts(target);
	}
	modify->on_free.func = fb_modify_freed;
	modify->on_free.arg = modify;
	MemoryContextRegisterResetCallback(query->estate->es_query_cxt, &modify->on_free);
	dlist_push_head(&modifies, &modify->link);
}
