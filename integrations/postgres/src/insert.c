/*
 * Look-ahead of inserts into b-tree indexes.
 *
 * For the rows that a command will insert next, the index is descended as far as level 1, and the leaves that they will
 * be inserted into are prefetched. forebay-lookahead decides how many, from how long inserts wait. The next rows are in
 * the table already (COPY, see copy_rows.c), or are those of the plan (INSERT and UPDATE, see modify.c).
 *
 * What is known about a command's inserts into one index is attached to the executor's IndexInfo, in the field reserved
 * for the access method, which nbtree does not use. It ends with the command.
 *
 * Left out: operator classes, and functions in an index's expressions or predicate, that are not built in, as these could
 * have effects; rows whose key is stored out of line.
 *
 * Failure: the pages read here are those that the insert itself reads, so an unreadable one is an error of the command.
 * All pins and locks are released before a function returns. An entry that moves to another leaf costs a hint.
 */
#include "forebay.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "catalog/index.h"
#include "catalog/pg_inherits.h"
#include "compat.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "nodes/nodeFuncs.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/rel.h"

/* The time to write a dirty block to the kernel, in nanoseconds, where a read needs its buffer. */
#define WRITE_NS 30000
/* After this many consecutive rows without a leaf to prefetch, as with sorted keys, it stops until an insert waits. */
#define UNPRODUCTIVE_MAX 64

bool		fb_writes = true;

/* Attached with the first row, as most commands insert a single one; and where there is no look-ahead. */
static FbInserts first_row;
static FbInserts nothing = {.unsuitable = true};

/* The command's memory is freed: adds its counts. */
static void
fb_inserts_freed(void *arg)
{
	FbInserts  *inserts = arg;
	struct fbl_counts counts;

	if (inserts->hints == NULL)
		return;
	counts = fbl_hints_counts(inserts->hints);
	fb_stats_add_inserts(inserts->index_oid, &counts);
}

static FbInserts *
fb_inserts_make(Relation index, Relation heap, IndexInfo *info)
{
	FbInserts  *inserts = MemoryContextAllocZero(info->ii_Context, sizeof(FbInserts));

	inserts->index = index;
	inserts->heap = heap;
	inserts->info = info;
	inserts->index_oid = RelationGetRelid(index);
	inserts->sampler = fbl_sampler_new();
	inserts->on_free.func = fb_inserts_freed;
	inserts->on_free.arg = inserts;
	MemoryContextRegisterResetCallback(info->ii_Context, &inserts->on_free);
	fb_stats_expect(inserts->index_oid);
	return inserts;
}

static bool
fb_is_not_of_server(Oid function, void *context)
{
	return function >= FirstNormalObjectId;
}

/* Whether an expression calls a function that is not the server's own; an expression_tree_walker. */
bool
fb_calls_others(Node *node, void *context)
{
	return node != NULL && (check_functions_in_node(node, fb_is_not_of_server, context) ||
							expression_tree_walker(node, fb_calls_others, context));
}

/* Whether an index has only comparisons, and functions, of the server itself. */
static bool
fb_index_is_suitable(FbInserts *inserts)
{
	Relation	index = inserts->index;
	IndexInfo  *info = inserts->info;

	if (fb_distance_of(index) == 0 || inserts->heap->rd_tableam != GetHeapamTableAmRoutine() ||
		fb_calls_others((Node *) info->ii_Expressions, NULL) || fb_calls_others((Node *) info->ii_Predicate, NULL))
		return false;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		if (index_getprocid(index, i + 1, BTORDER_PROC) >= FirstNormalObjectId)
			return false;
	return true;
}

/* An insert waited for the first time: prepares look-ahead, if the index is suitable. */
static void
fb_inserts_prepare(FbInserts *inserts)
{
	MemoryContext old;

	if (fb_modify_find(inserts))
		inserts->unsuitable = !fb_index_is_suitable(inserts) || !fb_modify_prepare(inserts);
	else
	{
		inserts->unsuitable = !fb_index_is_suitable(inserts);
		inserts->source = &fb_copied_rows;
	}
	if (inserts->unsuitable)
		return;
	old = MemoryContextSwitchTo(inserts->info->ii_Context);
	/* Without values: those of each row are set by fb_set_row. */
	inserts->search = _bt_mkscankey(inserts->index, NULL);
	inserts->search->keysz = IndexRelationGetNumberOfKeyAttributes(inserts->index);
	_bt_metaversion(inserts->index, &inserts->search->heapkeyspace, &inserts->search->allequalimage);
	inserts->rows = palloc(FB_VALUES_MOST * sizeof(FbNextRow));
	fb_table_rows_init(&inserts->table_rows, inserts->heap);
	if (inserts->estate == NULL && (inserts->info->ii_Expressions != NIL || inserts->info->ii_Predicate != NIL))
		inserts->estate = CreateExecutorState();
	inserts->hints = fb_hints_make(inserts->info->ii_Context, fb_distance_of(inserts->index), true, 0);
	MemoryContextSwitchTo(old);
}

/* Makes a row the one that the index's expressions are evaluated for; returns false if it will not be in the index. */
static bool
fb_set_expressions_row(FbInserts *inserts, TupleTableSlot *row)
{
	ExprContext *context = GetPerTupleExprContext(inserts->estate);

	ResetExprContext(context);
	context->ecxt_scantuple = row;
	if (inserts->info->ii_Predicate != NIL && inserts->info->ii_PredicateState == NULL)
		inserts->info->ii_PredicateState = ExecPrepareQual(inserts->info->ii_Predicate, inserts->estate);
	return ExecQual(inserts->info->ii_PredicateState, context);
}

/* Sets the search key to a row's values; returns false if it has no entry, or the values are not all in the row. */
static bool
fb_set_row(FbInserts *inserts, TupleTableSlot *row)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];

	if ((inserts->info->ii_Expressions != NIL || inserts->info->ii_Predicate != NIL) &&
		!fb_set_expressions_row(inserts, row))
		return false;
	FormIndexDatum(inserts->info, row, inserts->estate, values, nulls);
	for (int i = 0; i < inserts->search->keysz; i++)
	{
		ScanKey		key = &inserts->search->scankeys[i];

		if (!nulls[i] && TupleDescAttr(RelationGetDescr(inserts->index), i)->attlen == -1 &&
			VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
			return false;
		key->sk_argument = values[i];
		key->sk_flags = (inserts->index->rd_indoption[i] << SK_BT_INDOPTION_SHIFT) | (nulls[i] ? SK_ISNULL : 0);
	}
	return true;
}

/* Finds the leaf of the next row, and records it. Returns false if there is no next row. */
static bool
fb_find_next(FbInserts *inserts)
{
	FbNextRow  *next = &inserts->rows[inserts->tail % FB_VALUES_MOST];
	TupleTableSlot *values;

	if (inserts->tail - inserts->head == FB_VALUES_MOST || !inserts->source->next(inserts, &next->tid, &values))
		return false;
	/* Entries with equal keys are in the order of their tids, except where there can be only one. */
	inserts->search->scantid = inserts->search->heapkeyspace && !inserts->index->rd_index->indisunique ? &next->tid : NULL;
	next->leaf = InvalidBlockNumber;
	if (values != NULL && fb_set_row(inserts, values))
	{
		FbLook		look = fb_look_begin(inserts->index);

		next->leaf = fb_descend(inserts->index, inserts->heap, inserts->search, true);
		inserts->owed += fb_look_end(&look);
		/* The link to it may be damaged. */
		if (!fb_has_block(inserts->index, next->leaf, &inserts->index_blocks))
			next->leaf = InvalidBlockNumber;
	}
	inserts->tail++;
	return true;
}

/* Finds the leaves of the next rows while the hints have room, and prefetches them. */
void
fb_inserts_prefetch(FbInserts *inserts)
{
	const struct fbl_run *runs;
	size_t		count;

	for (uint32 room = fb_room(inserts->hints, inserts->index); room > 0 && inserts->unproductive < UNPRODUCTIVE_MAX;)
	{
		BlockNumber leaf;
		bool		resident;

		if (!fb_find_next(inserts))
			break;
		if (inserts->elsewhere)
			continue;
		room--;
		inserts->unproductive++;
		leaf = inserts->rows[(inserts->tail - 1) % FB_VALUES_MOST].leaf;
		if (leaf == InvalidBlockNumber || fbl_hints_contains(inserts->hints, leaf))
			continue;
		resident = fb_in_buffers(inserts->index, leaf);
		fbl_hints_predict(inserts->hints, leaf, resident);
		if (!resident)
			inserts->unproductive = 0;
	}
	count = fbl_hints_take_runs(inserts->hints, &runs);
	for (size_t i = 0; i < count; i++)
		fb_prefetch(inserts->index, runs[i].first, runs[i].blocks);
}

/* The state when a row's leaf is about to be read. */
typedef struct Visit
{
	BlockNumber leaf;
	int64		reads;
	int64		hits;
	int64		writes;
	bool		timed;
	instr_time	since;
} Visit;

/* A row's leaf is about to be read. `tid` is where the row is in the table, NULL if it is not there yet. */
static void
fb_visit_begin(FbInserts *inserts, ItemPointer tid, Visit *visit)
{
	visit->leaf = InvalidBlockNumber;
	if (inserts->active)
	{
		visit->leaf = inserts->source->take(inserts, tid);
		/* Rows of a plan are fetched, and looked ahead for, when the plan is run. */
		if (inserts->modify == NULL)
			fb_inserts_prefetch(inserts);
	}
	visit->timed = fbl_sampler_begin(&inserts->sampler) || inserts->active;
	visit->reads = pgBufferUsage.shared_blks_read;
	visit->hits = pgBufferUsage.shared_blks_hit;
	visit->writes = pgBufferUsage.shared_blks_written;
	if (visit->timed)
		INSTR_TIME_SET_CURRENT(visit->since);
}

/* The row's leaf was read. */
static void
fb_visit_end(FbInserts *inserts, const Visit *visit)
{
	int64		reads = pgBufferUsage.shared_blks_read - visit->reads;
	int64		spent_ns = -1;

	if (reads > 0)
	{
		/* The rest is the wait for reads. */
		if (visit->timed)
			spent_ns = Max(0, fb_elapsed_ns(visit->since) -
						   WRITE_NS * (pgBufferUsage.shared_blks_written - visit->writes));
		fbl_sampler_read(&inserts->sampler, spent_ns);
	}
	else if (!inserts->active)
		return;
	if (inserts->owed > 0)
		fb_look_settle(inserts->index, &inserts->owed, pgBufferUsage.shared_blks_hit - visit->hits);
	if (inserts->hints == NULL && fbl_read_waited(spent_ns))
		fb_inserts_prepare(inserts);
	if (inserts->hints == NULL)
		return;
	fbl_hints_on_read(inserts->hints, visit->leaf, spent_ns);
	if (fbl_read_waited(spent_ns))
		inserts->unproductive = 0;
	inserts->active = !fbl_hints_is_idle(inserts->hints) && inserts->unproductive < UNPRODUCTIVE_MAX;
	if (inserts->active && inserts->modify != NULL)
		fb_modify_wake(inserts);
}

/* btinsert, for a command that has inserted a row before. */
static pg_noinline bool
fb_insert_watched(FbInserts *inserts, Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation heap,
				  IndexUniqueCheck check, bool unchanged, IndexInfo *info)
{
	bool		inserted;
	Visit		visit;

	/* Its leaf was read to look for a conflict. */
	if (inserts->checked)
	{
		inserts->checked = false;
		return btinsert(index, values, isnull, tid, heap, check, unchanged, info);
	}
	fb_visit_begin(inserts, tid, &visit);
	inserted = btinsert(index, values, isnull, tid, heap, check, unchanged, info);
	fb_visit_end(inserts, &visit);
	return inserted;
}

/* btgettuple for a scan that looks for a row with which a row to insert would conflict (ON CONFLICT). */
bool
fb_check_conflict(IndexScanDesc desc, ScanDirection direction)
{
	IndexInfo  *info = fb_writes ? fb_modify_index_of(desc->indexRelation) : NULL;
	FbInserts  *inserts;
	Visit		visit;
	bool		found;

	/* The first call descends to the leaf. */
	if (info == NULL || BTScanPosIsValid(((BTScanOpaque) desc->opaque)->currPos))
		return btgettuple(desc, direction);
	inserts = info->ii_AmCache;
	if (inserts == NULL || inserts == &first_row)
		info->ii_AmCache = inserts = fb_inserts_make(desc->indexRelation, desc->heapRelation, info);
	if (inserts->unsuitable)
		return btgettuple(desc, direction);
	fb_visit_begin(inserts, NULL, &visit);
	found = btgettuple(desc, direction);
	fb_visit_end(inserts, &visit);
	inserts->checked = true;
	return found;
}

/* Replaces btinsert. */
bool
fb_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation heap, IndexUniqueCheck check,
		  bool unchanged, IndexInfo *info)
{
	FbInserts  *inserts;

	/* TOAST and some extensions pass none. */
	if (info == NULL)
		return btinsert(index, values, isnull, tid, heap, check, unchanged, info);
	inserts = info->ii_AmCache;
	if (inserts == &first_row)
		info->ii_AmCache = inserts = fb_enabled && fb_writes ? fb_inserts_make(index, heap, info) : &nothing;
	else if (inserts == NULL)
	{
		info->ii_AmCache = &first_row;
		inserts = &nothing;
	}
	if (inserts->unsuitable)
		return btinsert(index, values, isnull, tid, heap, check, unchanged, info);
	return fb_insert_watched(inserts, index, values, isnull, tid, heap, check, unchanged, info);
}

/* The relation, if it exists and can be locked without waiting; the command itself locks it again. */
Relation
fb_try_open(Oid relation)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(relation, AccessShareLock))
		return NULL;
	rel = try_relation_open(relation, NoLock);
	if (rel == NULL)
		UnlockRelationOid(relation, AccessShareLock);
	return rel;
}

/* Installs our functions for the indexes of a table that rows will be inserted into, or of its partitions. */
static void
fb_expect_inserts_into(Relation heap, int *partitions)
{
	List	   *related = NIL;
	bool		partitioned = heap->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	ListCell   *each;

	if (partitioned)
		related = find_inheritance_children(RelationGetRelid(heap), NoLock);
	else if (heap->rd_rel->relkind == RELKIND_RELATION && !fb_is_of_server(heap))
		related = RelationGetIndexList(heap);
	foreach(each, related)
	{
		Relation	one;

		if (partitioned && ++*partitions > FB_PARTITIONS_MAX)
			break;
		one = fb_try_open(lfirst_oid(each));
		if (one == NULL)
			continue;
		if (partitioned)
			fb_expect_inserts_into(one, partitions);
		else
			fb_install_am(one);
		relation_close(one, AccessShareLock);
	}
	list_free(related);
}

void
fb_expect_inserts(Relation heap)
{
	int			partitions = 0;

	fb_expect_inserts_into(heap, &partitions);
}

void
fb_insert_init(void)
{
	DefineCustomBoolVariable("forebay.writes",
							 "Whether commands look ahead in the indexes that they insert into, and for foreign keys.",
							 NULL,
							 &fb_writes, true, PGC_USERSET, 0, NULL, NULL, NULL);
}
