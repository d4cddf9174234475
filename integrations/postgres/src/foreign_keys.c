/*
 * Look-ahead of the checks and actions of foreign keys.
 *
 * The server checks a foreign key by a trigger for each row, at the end of the command: it runs a query that looks for
 * the row referred to. When a row is deleted that others may refer to, the query looks for those, or deletes or updates
 * them. By then the command has written all of its rows. So the next rows are those behind the current one in the table
 * (table_rows.c); ahead.c searches the other table's index for their values, and prefetches its leaves and heap blocks.
 *
 * The executor keeps the functions of a command's triggers with each of its tables. Ours replaces the server's
 * there. Those of COPY cannot be replaced: copied_keys.c recognizes the queries. A call's wait is the time in which the
 * process did not run; the query's own computing is no wait.
 *
 * Left out: constraints that are deferred; rows routed to partitions, and actions of actions, whose triggers are
 * not known when a query starts; actions of updates. From 19 on, the server itself gathers the checks of 64 rows and
 * searches for them in the index's order: only deletes look ahead there.
 *
 * Failure: the pages of the other table and its index that are read here are those that the query reads, so an unreadable
 * one is an error of the command. Rows in another order cost hints, and look-ahead stops after a few.
 */
#include "forebay.h"

#include <time.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_constraint.h"
#include "commands/trigger.h"
#include "compat.h"
#include "executor/instrument.h"
#include "storage/bufmgr.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* After this many consecutive rows that were not among the next ones, none is looked for while this many pass. */
#define STRAY_MAX 16
#define STRAY_PAUSE 256

/* Most heap blocks remembered for the rows ahead; a power of two. */
#define FOUND_MAX 4096

/* The row of a COPY that is checked is looked for among this many of its next ones. */
#define CANDIDATES 16
/* A table is extended by at most this many pages at a time, and a COPY fills first what an earlier one has left. */
#define EXTENDED_MAX 64
/* Most checks from one search for a row to the next. */
#define SEARCH_PAUSE_MAX 1023

/* A heap block that the query for a row will read. */
typedef struct Found
{
	uint64		number;			/* of the row */
	BlockNumber block;
} Found;

/* One trigger of a foreign key, on one table of a command. */
struct FbForeignKey
{
	/* Its values are the rows from the one on with which `rows` began. */
	FbAhead		ahead;
	/* Not a node's: what ahead.c uses of one, and the index and the table that the queries search. */
	FbScan		scan;
	IndexScanDescData desc;
	IndexScanDesc scanned;
	slist_node	link;			/* in its query */
	MemoryContextCallback on_free;
	PlanState  *node;			/* the ModifyTable */
	/* The server's function. */
	PGFunction	real;
	Oid			constraint;
	/* The table and the index that are searched; the latter is invalid until a query waits. */
	Oid			table;
	Oid			index;
	/* Rows of the command refer to one in the other table; or they are deleted, and rows there may refer to them. */
	bool		checks;
	bool		unsuitable;
	/* The table had this many blocks when the command began. */
	BlockNumber blocks_before;
	/* For COPY: its number in the transaction; after how many checks a row is searched for again, now and next time. */
	CommandId	copy;
	uint32		until_search;
	uint32		search_pause;
	/* How many of its rows were checked. */
	uint64		check_count;

	/* All that follows is valid if there is an index. */
	FbTableRows rows;
	/* The columns of the command's rows, in the order of the index, and a description of them. */
	AttrNumber	columns[INDEX_MAX_KEYS];
	int			which[INDEX_MAX_KEYS];	/* of the constraint's columns they are */
	TupleDesc	desc_of_values;
	/* Places and values of the rows, by number modulo FB_VALUES_MOST. The next one to be taken, and the one after the last. */
	ItemPointerData *tids;
	TupleTableSlot **values;
	uint64		next;
	uint64		end;
	uint32		strays;
	/* A queue, by number modulo FOUND_MAX, in the order of the rows. */
	Found	   *found;
	uint64		found_head;
	uint64		found_tail;
};

/* Time in which this process ran, in nanoseconds. */
static int64
fb_cpu_ns(void)
{
	struct timespec now = {0};

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (int64) now.tv_sec * 1000000000 + now.tv_nsec;
}

static FbForeignKey *
fb_foreign_key_of(FbAhead *ahead)
{
	return (FbForeignKey *) ((char *) ahead - offsetof(FbForeignKey, ahead));
}

/* Copies the next row's values; false if there is no row. */
static bool
fb_foreign_key_has(FbAhead *ahead, uint64 number)
{
	FbForeignKey *key = fb_foreign_key_of(ahead);
	ItemPointer tid = &key->tids[key->end % FB_VALUES_MOST];
	TupleTableSlot **to = &key->values[key->end % FB_VALUES_MOST];
	TupleTableSlot *row;

	if (number < key->end)
		return true;
	if (!fb_table_rows_next(&key->rows, tid))
		return false;
	row = fb_table_rows_stored(&key->rows, ItemPointerGetOffsetNumber(tid));
	if (*to == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(ahead->scan->query->estate->es_query_cxt);

		*to = FbMakeSlot(key->desc_of_values, &TTSOpsVirtual);
		MemoryContextSwitchTo(old);
	}
	ExecClearTuple(*to);
	for (int i = 0; i < key->desc_of_values->natts; i++)
		(*to)->tts_values[i] = slot_getattr(row, key->columns[i], &(*to)->tts_isnull[i]);
	ExecStoreVirtualTuple(*to);
	ExecMaterializeSlot(*to);
	key->end++;
	return true;
}

static bool
fb_foreign_key_set(FbAhead *ahead, uint64 number)
{
	return fb_probe_set(ahead->probe, fb_foreign_key_of(ahead)->values[number % FB_VALUES_MOST], (Datum) 0);
}

static void
fb_foreign_key_found(FbAhead *ahead, uint64 number, BlockNumber block)
{
	FbForeignKey *key = fb_foreign_key_of(ahead);

	/* Those of the first rows are forgotten. */
	if (key->found_tail - key->found_head == FOUND_MAX)
		key->found_head++;
	key->found[key->found_tail++ % FOUND_MAX] = (Found) {number, block};
}

static FbProbe *
fb_foreign_key_probe(FbAhead *ahead)
{
	FbForeignKey *key = fb_foreign_key_of(ahead);

	return fb_probe_make_equal(&key->scanned, key->desc_of_values);
}

static const FbSource rows_of_command = {
	.prepare = fb_foreign_key_probe,
	.has = fb_foreign_key_has,
	.set = fb_foreign_key_set,
	.found = fb_foreign_key_found,
};

/*
 * Whether an index begins with the constraint's columns in its table, in any order; sets to which of them each column of
 * the index belongs.
 */
static bool
fb_index_has_columns(Relation index, const AttrNumber *columns, int count, int *which)
{
	if (index->rd_rel->relam != BTREE_AM_OID || index->rd_rel->relkind != RELKIND_INDEX || !index->rd_index->indisvalid ||
		IndexRelationGetNumberOfKeyAttributes(index) < count || RelationGetIndexPredicate(index) != NIL)
		return false;
	for (int i = 0; i < count; i++)
	{
		which[i] = -1;
		for (int j = 0; j < count; j++)
			if (columns[j] == index->rd_index->indkey.values[i])
				which[i] = j;
		if (which[i] < 0)
			return false;
	}
	return true;
}

/* The index with which the other table is searched; invalid if there is none. */
static Oid
fb_find_index(Relation table, const AttrNumber *columns, int count, int *which)
{
	List	   *indexes = RelationGetIndexList(table);
	Oid			found = InvalidOid;
	ListCell   *each;

	foreach(each, indexes)
	{
		Relation	index = fb_try_open(lfirst_oid(each));

		if (index == NULL)
			continue;
		if (fb_distance_of(index) > 0 && fb_index_has_columns(index, columns, count, which))
			found = RelationGetRelid(index);
		/* As the table, the one found stays locked until the transaction ends. */
		relation_close(index, OidIsValid(found) ? NoLock : AccessShareLock);
		if (OidIsValid(found))
			break;
	}
	list_free(indexes);
	return found;
}

/* Prepares the columns and the rows of the command. */
static void
fb_prepare_rows(FbForeignKey *key, Relation table, const AttrNumber *columns, int count, const int *which)
{
	MemoryContext old = MemoryContextSwitchTo(key->scan.query->estate->es_query_cxt);

	key->desc_of_values = CreateTemplateTupleDesc(count);
	for (int i = 0; i < count; i++)
	{
		key->columns[i] = columns[which[i]];
		key->which[i] = which[i];
		TupleDescCopyEntry(key->desc_of_values, i + 1, RelationGetDescr(table), key->columns[i]);
		TupleDescAttr(key->desc_of_values, i)->atttypid =
			getBaseType(TupleDescAttr(key->desc_of_values, i)->atttypid);
	}
	FbTupleDescFinalize(key->desc_of_values);
	fb_table_rows_init(&key->rows, table);
	key->rows.deleted = !key->checks;
	if (key->checks)
		key->rows.readable = key->blocks_before;
	key->tids = palloc(FB_VALUES_MOST * sizeof(ItemPointerData));
	key->values = palloc0(FB_VALUES_MOST * sizeof(TupleTableSlot *));
	key->found = palloc(FOUND_MAX * sizeof(Found));
	MemoryContextSwitchTo(old);
}

/* A query waited for the first time: prepares look-ahead; returns false if that is not possible. */
static bool
fb_foreign_key_prepare(FbForeignKey *key, Relation table)
{
	AttrNumber	referring[INDEX_MAX_KEYS];
	AttrNumber	referred[INDEX_MAX_KEYS];
	int			which[INDEX_MAX_KEYS];
	int			count;
	HeapTuple	constraint = SearchSysCache1(CONSTROID, ObjectIdGetDatum(key->constraint));
	Relation	other;

	key->unsuitable = true;
	if (!HeapTupleIsValid(constraint))
		return false;
	FbForeignKeyColumns(constraint, &count, referring, referred);
	ReleaseSysCache(constraint);
	other = fb_try_open(key->table);
	if (other == NULL)
		return false;
	if (other->rd_rel->relkind == RELKIND_RELATION && other->rd_tableam == GetHeapamTableAmRoutine() &&
		table->rd_tableam == GetHeapamTableAmRoutine())
		key->index = fb_find_index(other, key->checks ? referred : referring, count, which);
	relation_close(other, OidIsValid(key->index) ? NoLock : AccessShareLock);
	if (!OidIsValid(key->index))
		return false;
	fb_prepare_rows(key, table, key->checks ? referring : referred, count, which);
	fb_stats_expect(key->index);
	key->unsuitable = false;
	return true;
}

/* Opens the table and the index; returns false if a trigger has dropped one of them since. */
static bool
fb_foreign_key_open(FbForeignKey *key)
{
	key->desc.heapRelation = try_relation_open(key->table, NoLock);
	if (key->desc.heapRelation == NULL)
		return false;
	key->desc.indexRelation = try_relation_open(key->index, NoLock);
	if (key->desc.indexRelation != NULL)
		return true;
	relation_close(key->desc.heapRelation, NoLock);
	return false;
}

static void
fb_foreign_key_close(FbForeignKey *key)
{
	relation_close(key->desc.indexRelation, NoLock);
	relation_close(key->desc.heapRelation, NoLock);
}

/* The number of the row that the trigger is called for; FB_NO_NUMBER if it was not expected. */
static uint64
fb_take_row(FbForeignKey *key, ItemPointer tid)
{
	while (key->next < key->end)
	{
		uint64		number = key->next++;

		if (ItemPointerEquals(&key->tids[number % FB_VALUES_MOST], tid))
		{
			key->strays = 0;
			return number;
		}
	}
	if (++key->strays < STRAY_MAX)
	{
		fb_ahead_restart(&key->ahead);
		key->next = key->end = 0;
		key->found_head = key->found_tail;
		fb_table_rows_begin(&key->rows, tid);
		/* Looking ahead begins when this row turns out to be the next one. */
		fb_foreign_key_has(&key->ahead, 0);
	}
	else if (key->strays == STRAY_MAX + STRAY_PAUSE)
		key->strays = 0;
	return FB_NO_NUMBER;
}

static bool
fb_row_has_null(FbForeignKey *key, TupleTableSlot *row)
{
	for (int i = 0; i < key->desc_of_values->natts; i++)
		if (row->tts_isnull[i])
			return true;
	return false;
}

/* Whether a row without nulls has the values of a query, which come in the order of the constraint. */
static bool
fb_row_has_values(FbForeignKey *key, TupleTableSlot *row, ParamListInfo values)
{
	for (int i = 0; i < key->desc_of_values->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(key->desc_of_values, i);

		if (key->which[i] >= values->numParams ||
			!datumIsEqual(row->tts_values[i], values->params[key->which[i]].value, column->attbyval, column->attlen))
			return false;
	}
	return true;
}

/*
 * Looks for the row of a COPY with these values in a page, and makes it the one that was taken last. Returns false if it is
 * not there.
 */
static bool
fb_find_copied(FbForeignKey *key, BlockNumber block, ParamListInfo values)
{
	key->next = key->end = 0;
	key->found_head = key->found_tail;
	if (!fb_table_rows_begin_at(&key->rows, block, key->copy))
		return false;
	for (uint64 number = 0; fb_foreign_key_has(&key->ahead, number); number++)
	{
		TupleTableSlot *row = key->values[number % FB_VALUES_MOST];

		if (ItemPointerGetBlockNumber(&key->tids[number % FB_VALUES_MOST]) != block)
			break;
		if (!fb_row_has_null(key, row) && fb_row_has_values(key, row, values))
		{
			key->next = number + 1;
			return true;
		}
	}
	return false;
}

/* Looks for that row in the last pages that the table had before, and in the first one behind them, more and more rarely. */
static uint64
fb_search_copied(FbForeignKey *key, ParamListInfo values)
{
	BlockNumber first = key->blocks_before > EXTENDED_MAX ? key->blocks_before - EXTENDED_MAX : 0;

	if (key->until_search > 0)
	{
		key->until_search--;
		return FB_NO_NUMBER;
	}
	fb_ahead_restart(&key->ahead);
	for (BlockNumber block = first; block <= key->blocks_before; block++)
		if (fb_find_copied(key, block, values))
		{
			key->search_pause = 0;
			return key->next - 1;
		}
	key->until_search = key->search_pause;
	key->search_pause = Min(2 * key->search_pause + 1, SEARCH_PAUSE_MAX);
	return FB_NO_NUMBER;
}

/* The number of the row of a COPY with these values; FB_NO_NUMBER if it was not found. */
static uint64
fb_take_values(FbForeignKey *key, ParamListInfo values)
{
	int			compared = 0;

	for (uint64 number = key->next; compared < CANDIDATES && number - key->next < FB_DISTANCE_MOST; number++)
	{
		TupleTableSlot *row;

		if (!fb_foreign_key_has(&key->ahead, number))
			break;
		row = key->values[number % FB_VALUES_MOST];
		/* It is not checked. */
		if (fb_row_has_null(key, row))
			continue;
		if (fb_row_has_values(key, row, values))
		{
			key->next = number + 1;
			return number;
		}
		compared++;
	}
	return fb_search_copied(key, values);
}

/* Reports the heap blocks that the query for a row has read: its wait is divided among them. */
static void
fb_report_found(FbForeignKey *key, uint64 number, int64 waited_ns)
{
	uint64		first;
	uint64		count;

	while (key->found_head < key->found_tail && key->found[key->found_head % FOUND_MAX].number < number)
		key->found_head++;
	first = key->found_head;
	while (key->found_head < key->found_tail && key->found[key->found_head % FOUND_MAX].number == number)
		key->found_head++;
	count = key->found_head - first;
	for (uint64 i = first; i < key->found_head; i++)
		fbl_hints_on_read(key->scan.hints, key->found[i % FOUND_MAX].block,
						  waited_ns < 0 ? -1 : waited_ns / (int64) count);
}

/*
 * The query for a row has ended, which has read some blocks in a time of waiting; less than 0 if it has read none, or the
 * time is not known.
 */
static void
fb_row_checked(FbForeignKey *key, uint64 number, int64 reads, int64 waited_ns)
{
	FbAhead    *ahead = &key->ahead;
	FbScan	   *scan = &key->scan;
	int64		each_ns = waited_ns < 0 ? -1 : waited_ns / reads;

	if (number < ahead->probed && scan->hints != NULL)
		fb_report_found(key, number, waited_ns);
	else
	{
		/* Which of them waited is not known. */
		fb_ahead_began(ahead, fb_ahead_leaf(ahead, number), reads, each_ns);
		if (scan->hints == NULL && fbl_read_waited(each_ns) && !fb_scan_make_hints(scan))
			key->unsuitable = true;
		if (scan->hints != NULL && reads > 0)
			fbl_hints_on_read(scan->hints, InvalidBlockNumber, each_ns);
	}
	if (scan->ahead == NULL)
		key->unsuitable = true;
	scan->active = scan->hints != NULL && !fbl_hints_is_idle(scan->hints);
	if (fbl_read_waited(each_ns))
		ahead->unproductive = 0;
}

/* Whether the next check looks ahead, for which the table must be open. */
bool
fb_check_needs_table(FbForeignKey *key)
{
	return !key->unsuitable && fb_ahead_is_active(&key->ahead);
}

/* Whether a check has neither looked ahead nor read anything: then there is nothing to report. */
bool
fb_check_was_quiet(FbCheck *check)
{
	return !check->looks && pgBufferUsage.shared_blks_read == check->reads;
}

/*
 * The server is about to check a row of a table, given by its place, or by its values if it is of a COPY: looks ahead from
 * it, and begins to measure.
 */
void
fb_check_begins(FbCheck *check, FbForeignKey *key, Relation table, ItemPointer tid, ParamListInfo values)
{
	FbAhead    *ahead = &key->ahead;

	key->check_count++;
	check->key = key;
	check->number = FB_NO_NUMBER;
	check->looks = fb_check_needs_table(key);
	check->reads = pgBufferUsage.shared_blks_read;
	if (check->looks && !fb_foreign_key_open(key))
		key->unsuitable = true;
	if (key->unsuitable)
		return;
	if (check->looks)
	{
		key->rows.heap = table;
		check->number = tid != NULL ? fb_take_row(key, tid) : fb_take_values(key, values);
		ahead->leads = false;
		if (check->number != FB_NO_NUMBER)
		{
			ahead->head = check->number;
			ahead->taken++;
			fb_ahead_look(ahead, check->number);
			fb_ahead_take(ahead, check->number);
		}
		/* The server refuses changes of a table or index that its session has open, and a trigger may make some. */
		fb_foreign_key_close(key);
	}
	check->timed = fbl_sampler_begin(&key->scan.sampler) || fb_ahead_is_active(ahead);
	check->reads = pgBufferUsage.shared_blks_read;
	check->hits = pgBufferUsage.shared_blks_hit;
	if (check->timed)
	{
		check->cpu_ns = fb_cpu_ns();
		INSTR_TIME_SET_CURRENT(check->since);
	}
}

/* The server has checked the row. */
void
fb_check_ends(FbCheck *check, Relation table)
{
	FbForeignKey *key = check->key;
	int64		reads = pgBufferUsage.shared_blks_read - check->reads;
	int64		hits = pgBufferUsage.shared_blks_hit - check->hits;
	int64		waited_ns = -1;

	if (key->unsuitable || fb_check_was_quiet(check))
		return;
	if (check->timed && reads > 0)
		waited_ns = Max(0, fb_elapsed_ns(check->since) - (fb_cpu_ns() - check->cpu_ns));
	if (reads > 0)
		fbl_sampler_read(&key->scan.sampler, waited_ns);
	if (!check->looks && !(waited_ns >= 0 && fbl_read_waited(waited_ns / reads)))
		return;
	if (!OidIsValid(key->index) && !fb_foreign_key_prepare(key, table))
		return;
	if (!fb_foreign_key_open(key))
	{
		key->unsuitable = true;
		return;
	}
	if (key->scan.owed > 0)
		fb_look_settle(key->desc.indexRelation, &key->scan.owed, hits);
	if (key->rows.owed > 0)
		fb_look_settle(table, &key->rows.owed, hits);
	fb_row_checked(key, check->number, reads, waited_ns);
	fb_foreign_key_close(key);
}

/* Replaces the server's function. */
static Datum
fb_foreign_key_called(PG_FUNCTION_ARGS)
{
	FbForeignKey *key = fcinfo->flinfo->fn_extra;
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	TupleTableSlot *row = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newslot : trigger->tg_trigslot;
	FbCheck		check;
	Datum		result;

	fb_check_begins(&check, key, trigger->tg_relation, &row->tts_tid, NULL);
	result = key->real(fcinfo);
	fb_check_ends(&check, trigger->tg_relation);
	return result;
}

static void
fb_foreign_key_add_counts(FbForeignKey *key, struct fbl_counts *counts)
{
	if (key->scan.hints != NULL)
		fb_counts_add(counts, fbl_hints_counts(key->scan.hints));
	if (key->ahead.leaves != NULL)
		fb_counts_add(counts, fbl_hints_counts(key->ahead.leaves));
}

/* Adds the counts of a ModifyTable's foreign keys; returns false if none has waited. */
bool
fb_foreign_key_counts(PlanState *node, struct fbl_counts *counts)
{
	FbQuery    *query = fb_attached(FB_OF_ESTATE, node->state);
	slist_iter	each;
	bool		any = false;

	if (query == NULL)
		return false;
	slist_foreach(each, &query->foreign_keys)
	{
		FbForeignKey *key = slist_container(FbForeignKey, link, each.cur);

		if (key->node != node || !OidIsValid(key->index))
			continue;
		fb_foreign_key_add_counts(key, counts);
		any = true;
	}
	return any;
}

/* The command's memory is freed: adds its counts. */
static void
fb_foreign_key_freed(void *arg)
{
	FbForeignKey *key = arg;
	struct fbl_counts counts = {0};

	if (!OidIsValid(key->index))
		return;
	fb_foreign_key_add_counts(key, &counts);
	fb_stats_add(key->index, 0, 0, &counts);
}

/* Whether a function checks a foreign key of new rows, or looks for rows that refer to a deleted one. */
static bool
fb_is_watched(Oid function, bool *checks)
{
	switch (function)
	{
#if PG_VERSION_NUM < 190000
		case F_RI_FKEY_CHECK_INS:
		case F_RI_FKEY_CHECK_UPD:
			*checks = true;
			return true;
#endif
		case F_RI_FKEY_CASCADE_DEL:
		case F_RI_FKEY_NOACTION_DEL:
		case F_RI_FKEY_RESTRICT_DEL:
		case F_RI_FKEY_SETNULL_DEL:
		case F_RI_FKEY_SETDEFAULT_DEL:
			*checks = false;
			return true;
		default:
			return false;
	}
}

/* Makes the look-ahead for a trigger, in the memory of the command; NULL if it is not one of a foreign key. */
FbForeignKey *
fb_foreign_key_make(FbQuery *query, Trigger *trigger, Relation table)
{
	FbForeignKey *key;
	bool		checks;

	if (!fb_is_watched(trigger->tgfoid, &checks))
		return NULL;
	key = MemoryContextAllocZero(query->estate->es_query_cxt, sizeof(FbForeignKey));
	key->constraint = trigger->tgconstraint;
	key->table = trigger->tgconstrrelid;
	key->checks = checks;
	key->blocks_before = checks ? RelationGetNumberOfBlocks(table) : 0;
	key->copy = GetCurrentCommandId(false);
	key->scanned = &key->desc;
	key->scan.query = query;
	key->scan.scan = &key->scanned;
	key->scan.whole = true;
	key->scan.sampler = fbl_sampler_new();
	key->ahead.fetched = true;
	key->ahead.most = checks ? 1 : 0;
	fb_ahead_init(&key->ahead, &key->scan, &rows_of_command, true);
	slist_push_head(&query->foreign_keys, &key->link);
	key->on_free.func = fb_foreign_key_freed;
	key->on_free.arg = key;
	MemoryContextRegisterResetCallback(query->estate->es_query_cxt, &key->on_free);
	return key;
}

/* Whether the next row of a COPY that is known has these values. */
static bool
fb_is_next(FbForeignKey *key, ParamListInfo values)
{
	TupleTableSlot *row;

	if (key->next >= key->end)
		return false;
	row = key->values[key->next % FB_VALUES_MOST];
	return !fb_row_has_null(key, row) && fb_row_has_values(key, row, values);
}

/*
 * The foreign key of a COPY whose check looks for these values in a table; NULL if none refers to that table. Of several, it
 * is the one whose next row has them, or else the one whose turn it is.
 */
FbForeignKey *
fb_foreign_key_to(FbQuery *query, Oid table, ParamListInfo values)
{
	FbForeignKey *found = NULL;
	slist_iter	each;

	slist_foreach(each, &query->foreign_keys)
	{
		FbForeignKey *key = slist_container(FbForeignKey, link, each.cur);

		if (key->table != table)
			continue;
		if (fb_is_next(key, values))
			return key;
		if (found == NULL || key->check_count < found->check_count)
			found = key;
	}
	return found;
}

static void
fb_foreign_key_register(FbQuery *query, ModifyTableState *node, ResultRelInfo *result, int at)
{
	Trigger    *trigger = &result->ri_TrigDesc->triggers[at];
	FmgrInfo   *function = &result->ri_TrigFunctions[at];
	FbForeignKey *key = OidIsValid(function->fn_oid) ? NULL : fb_foreign_key_make(query, trigger, result->ri_RelationDesc);

	if (key == NULL)
		return;
	fmgr_info_cxt(trigger->tgfoid, function, query->estate->es_query_cxt);
	key->node = &node->ps;
	key->real = function->fn_addr;
	function->fn_addr = fb_foreign_key_called;
	function->fn_extra = key;
}

/* Registers the foreign keys of a ModifyTable's tables, at its query's start. */
void
fb_foreign_keys_register(FbQuery *query, ModifyTableState *node)
{
	int			count = Min(node->mt_nrels, FB_PARTITIONS_MAX);

	for (int i = 0; i < count; i++)
	{
		ResultRelInfo *result = &node->resultRelInfo[i];

		if (result->ri_TrigDesc == NULL || result->ri_RelationDesc->rd_rel->relkind != RELKIND_RELATION ||
			RelationUsesLocalBuffers(result->ri_RelationDesc))
			continue;
		for (int j = 0; j < result->ri_TrigDesc->numtriggers; j++)
			fb_foreign_key_register(query, node, result, j);
	}
}
