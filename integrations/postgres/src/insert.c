/*
 * Look-ahead of inserts into b-tree indexes.
 *
 * COPY puts up to a thousand rows into the table at a time, and then inserts them into each index, one after the other.
 * So when a row is inserted into an index, the rows after it are in the table's pages, which are in shared buffers.
 * Here these rows are read, the index is descended for each of them as far as level 1, and the leaves that they will be
 * inserted into are prefetched. forebay-lookahead decides how many, from how long inserts wait.
 *
 * The next rows are those that the same command has put behind the current row. A command that inserts one row at a
 * time has none there, and look-ahead stops after a few looks.
 *
 * What is known about an insert into one index is attached to the executor's IndexInfo, in the field reserved for the
 * access method, which nbtree does not use. It ends with the command.
 *
 * Left out: expression and partial indexes, as evaluating an expression early could change which error a command
 * reports first; operator classes that are not built in; rows whose key is stored out of line.
 *
 * Failure: the pages read here are those that the insert itself reads, so an unreadable one is an error of the command.
 * All pins and locks are released before a function returns. An entry that moves to another leaf costs a hint.
 */
#include "forebay.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/transam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "compat.h"
#include "executor/instrument.h"
#include "nodes/parsenodes.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* After this many consecutive rows without a next one, none is looked for while this many are inserted. */
#define LONE_MAX 16
#define LONE_PAUSE 256
/* The time to write a dirty block to the kernel, in nanoseconds, where a read needs its buffer. */
#define WRITE_NS 30000
/* After this many consecutive rows without a leaf to prefetch, as with sorted keys, it stops until an insert waits. */
#define UNPRODUCTIVE_MAX 64
/* Of a partitioned table, the indexes of at most this many partitions are looked ahead for. */
#define PARTITIONS_MAX 256

/* A row that will be inserted. */
typedef struct NextRow
{
	ItemPointerData tid;
	/* Where it will be inserted; invalid if unknown. */
	BlockNumber leaf;
} NextRow;

/* The inserts of one command into one index. */
typedef struct FbInserts
{
	MemoryContextCallback on_free;
	Oid			index;
	/* Which inserts are timed. */
	struct fbl_sampler sampler;
	/* NULL until an insert waits for a read. */
	fbl_hints  *hints;
	bool		active;
	/* The index, or the table, is not one that can be looked ahead for. */
	bool		unsuitable;
	/* Pages of the index that were read ahead and are not counted yet. */
	int64		owed;
	/* A lower bound of the number of blocks of the index. */
	BlockNumber index_blocks;

	/* All that follows is valid if there are hints. */
	BTScanInsertData search;
	/* The next rows, by number modulo FB_VALUES_MOST: the first, and the number after the last. */
	NextRow    *rows;
	uint32		head;
	uint32		tail;
	/* Consecutive rows without a next one. */
	uint32		lone;
	/* Consecutive next rows without a leaf to prefetch. */
	uint32		unproductive;
	/* A copy of the table's page that has the row after the last, and where that row is. */
	PGAlignedBlock *page;
	BlockNumber block;
	OffsetNumber at;
	/* The command that puts the rows there, within its transaction. */
	CommandId	command;
	/* There is no row after the last, so far. */
	bool		ended;
} FbInserts;

static bool fb_writes = true;

/* Attached with the first row, as most commands insert a single one; and where there is no look-ahead. */
static FbInserts first_row;
static FbInserts nothing = {.unsuitable = true};

static ProcessUtility_hook_type next_utility = NULL;

/* The command's memory is freed: adds its counts. */
static void
fb_inserts_freed(void *arg)
{
	FbInserts  *inserts = arg;
	struct fbl_counts counts;

	if (inserts->hints == NULL)
		return;
	counts = fbl_hints_counts(inserts->hints);
	fb_stats_add_inserts(inserts->index, &counts);
}

static FbInserts *
fb_inserts_make(Relation index, IndexInfo *info)
{
	FbInserts  *inserts = MemoryContextAllocZero(info->ii_Context, sizeof(FbInserts));

	inserts->index = RelationGetRelid(index);
	inserts->sampler = fbl_sampler_new();
	inserts->on_free.func = fb_inserts_freed;
	inserts->on_free.arg = inserts;
	MemoryContextRegisterResetCallback(info->ii_Context, &inserts->on_free);
	fb_stats_expect(inserts->index);
	return inserts;
}

/* Whether the keys of an index are plain columns with the server's own comparisons. */
static bool
fb_index_is_suitable(Relation index, Relation heap, IndexInfo *info)
{
	if (info->ii_Expressions != NIL || info->ii_Predicate != NIL || fb_distance_of(index) == 0 ||
		heap->rd_tableam != GetHeapamTableAmRoutine())
		return false;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		if (info->ii_IndexAttrNumbers[i] <= 0 ||
			index_getprocid(index, i + 1, BTORDER_PROC) >= FirstNormalObjectId)
			return false;
	return true;
}

/* An insert waited for the first time: prepares look-ahead, if the index is suitable. */
static void
fb_inserts_prepare(FbInserts *inserts, Relation index, Relation heap, IndexInfo *info)
{
	MemoryContext old;
	BTScanInsert key;

	if (!fb_index_is_suitable(index, heap, info))
	{
		inserts->unsuitable = true;
		return;
	}
	old = MemoryContextSwitchTo(info->ii_Context);
	/* Without values: those of each row are set by fb_set_row. */
	key = _bt_mkscankey(index, NULL);
	inserts->search = *key;
	pfree(key);
	inserts->search.keysz = IndexRelationGetNumberOfKeyAttributes(index);
	_bt_metaversion(index, &inserts->search.heapkeyspace, &inserts->search.allequalimage);
	inserts->rows = palloc(FB_VALUES_MOST * sizeof(NextRow));
	inserts->page = palloc(sizeof(PGAlignedBlock));
	inserts->ended = true;
	inserts->hints = fbl_hints_init(palloc(fbl_hints_size()), fb_distance_of(index), true,
									FB_COMBINE_BLOCKS, FB_GAP_BLOCKS, FB_OVER_READ_PERCENT);
	MemoryContextSwitchTo(old);
}

/* Copies a page of the table, if it is in shared buffers. */
static bool
fb_copy_page(FbInserts *inserts, Relation heap, BlockNumber block)
{
	FbLook		look;
	Buffer		buffer;

	if (block >= RelationGetNumberOfBlocks(heap) || !fb_in_buffers(heap, block))
		return false;
	look = fb_look_begin(heap);
	buffer = ReadBuffer(heap, block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(inserts->page->data, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	fb_look_end(&look);
	inserts->block = block;
	return !PageIsNew((Page) inserts->page->data);
}

/* A row of the copied page that this transaction has put there; NULL if there is none. */
static HeapTupleHeader
fb_own_row(FbInserts *inserts, OffsetNumber at)
{
	Page		page = (Page) inserts->page->data;
	ItemId		item = PageGetItemId(page, at);
	HeapTupleHeader row = ItemIdIsNormal(item) ? (HeapTupleHeader) PageGetItem(page, item) : NULL;

	if (row == NULL || !(row->t_infomask & HEAP_XMAX_INVALID) || (row->t_infomask & HEAP_COMBOCID) ||
		!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetRawXmin(row)))
		return NULL;
	return row;
}

/* The command's first row at or after the cursor, in its page; NULL if there is none. */
static HeapTupleHeader
fb_row_in_page(FbInserts *inserts)
{
	for (; inserts->at <= PageGetMaxOffsetNumber((Page) inserts->page->data); inserts->at++)
	{
		HeapTupleHeader row = fb_own_row(inserts, inserts->at);

		if (row != NULL && HeapTupleHeaderGetRawCommandId(row) == inserts->command)
			return row;
	}
	return NULL;
}

/* Moves the cursor to just after a row that was inserted. */
static void
fb_continue_after(FbInserts *inserts, Relation heap, ItemPointer tid)
{
	OffsetNumber at = ItemPointerGetOffsetNumber(tid);
	HeapTupleHeader row = NULL;

	if (fb_copy_page(inserts, heap, ItemPointerGetBlockNumber(tid)) &&
		at <= PageGetMaxOffsetNumber((Page) inserts->page->data))
		row = fb_own_row(inserts, at);
	inserts->ended = row == NULL;
	if (row == NULL)
		return;
	inserts->command = HeapTupleHeaderGetRawCommandId(row);
	inserts->at = at + 1;
}

/* The next row after the last, and its tid; NULL if there is none. */
static HeapTupleHeader
fb_next_row(FbInserts *inserts, Relation heap, ItemPointer tid)
{
	HeapTupleHeader row;

	if (inserts->ended)
		return NULL;
	row = fb_row_in_page(inserts);
	if (row == NULL)
	{
		/* The table's pages were filled one after the other. */
		inserts->at = FirstOffsetNumber;
		if (fb_copy_page(inserts, heap, inserts->block + 1))
			row = fb_row_in_page(inserts);
	}
	if (row == NULL)
	{
		inserts->ended = true;
		return NULL;
	}
	ItemPointerSet(tid, inserts->block, inserts->at++);
	return row;
}

/* Sets the search key to a row's values; returns false if they are not all in the row. */
static bool
fb_set_row(FbInserts *inserts, Relation index, Relation heap, IndexInfo *info, HeapTupleHeader row, NextRow *next)
{
	BTScanInsert search = &inserts->search;
	HeapTupleData tuple;

	tuple.t_len = ItemIdGetLength(PageGetItemId((Page) inserts->page->data, ItemPointerGetOffsetNumber(&next->tid)));
	tuple.t_self = next->tid;
	tuple.t_tableOid = RelationGetRelid(heap);
	tuple.t_data = row;
	for (int i = 0; i < search->keysz; i++)
	{
		ScanKey		key = &search->scankeys[i];
		AttrNumber	column = info->ii_IndexAttrNumbers[i];
		bool		null;

		key->sk_argument = heap_getattr(&tuple, column, RelationGetDescr(heap), &null);
		if (!null && TupleDescAttr(RelationGetDescr(heap), column - 1)->attlen == -1 &&
			VARATT_IS_EXTERNAL(DatumGetPointer(key->sk_argument)))
			return false;
		key->sk_flags = (index->rd_indoption[i] << SK_BT_INDOPTION_SHIFT) | (null ? SK_ISNULL : 0);
	}
	/* Entries with equal keys are in the order of their tids, except where there can be only one. */
	search->scantid = search->heapkeyspace && !index->rd_index->indisunique ? &next->tid : NULL;
	return true;
}

/* Finds the leaf of the next row, and records both. Returns false if there is no next row. */
static bool
fb_find_next(FbInserts *inserts, Relation index, Relation heap, IndexInfo *info)
{
	NextRow    *next = &inserts->rows[inserts->tail % FB_VALUES_MOST];
	HeapTupleHeader row;

	if (inserts->tail - inserts->head == FB_VALUES_MOST)
		return false;
	row = fb_next_row(inserts, heap, &next->tid);
	if (row == NULL)
		return false;
	next->leaf = InvalidBlockNumber;
	if (fb_set_row(inserts, index, heap, info, row, next))
	{
		FbLook		look = fb_look_begin(index);

		next->leaf = fb_descend(index, heap, &inserts->search, true);
		inserts->owed += fb_look_end(&look);
		/* The link to it may be damaged. */
		if (!fb_has_block(index, next->leaf, &inserts->index_blocks))
			next->leaf = InvalidBlockNumber;
	}
	inserts->tail++;
	return true;
}

/* Finds the leaves of the next rows while the hints have room, and prefetches them. */
static void
fb_prefetch_next(FbInserts *inserts, Relation index, Relation heap, IndexInfo *info)
{
	const struct fbl_run *runs;
	size_t		count;

	for (uint32 room = fbl_hints_available(inserts->hints); room > 0 && inserts->unproductive < UNPRODUCTIVE_MAX; room--)
	{
		BlockNumber leaf;
		bool		resident;

		if (!fb_find_next(inserts, index, heap, info))
			break;
		inserts->unproductive++;
		leaf = inserts->rows[(inserts->tail - 1) % FB_VALUES_MOST].leaf;
		if (leaf == InvalidBlockNumber || fbl_hints_contains(inserts->hints, leaf))
			continue;
		resident = fb_in_buffers(index, leaf);
		fbl_hints_predict(inserts->hints, leaf, resident);
		if (!resident)
			inserts->unproductive = 0;
	}
	count = fbl_hints_take_runs(inserts->hints, &runs);
	for (size_t i = 0; i < count; i++)
		fb_prefetch(index, runs[i].first, runs[i].blocks);
}

/* A row is inserted: returns its leaf, invalid if unknown, and makes sure that the rows after it are the next ones. */
static BlockNumber
fb_take_row(FbInserts *inserts, Relation heap, ItemPointer tid)
{
	while (inserts->head != inserts->tail)
	{
		NextRow    *row = &inserts->rows[inserts->head++ % FB_VALUES_MOST];

		if (ItemPointerEquals(&row->tid, tid))
		{
			inserts->lone = 0;
			return row->leaf;
		}
	}
	/* The last row of some, or one elsewhere. */
	if (++inserts->lone < LONE_MAX)
		fb_continue_after(inserts, heap, tid);
	else if (inserts->lone == LONE_MAX + LONE_PAUSE)
		inserts->lone = 0;
	return InvalidBlockNumber;
}

/* btinsert, for a command that has inserted a row before. */
static pg_noinline bool
fb_insert_watched(FbInserts *inserts, Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation heap,
				  IndexUniqueCheck check, bool unchanged, IndexInfo *info)
{
	BlockNumber leaf = InvalidBlockNumber;
	int64		reads;
	int64		hits;
	int64		writes;
	int64		spent_ns = -1;
	bool		timed;
	bool		inserted;
	instr_time	since;

	if (inserts->active)
	{
		leaf = fb_take_row(inserts, heap, tid);
		fb_prefetch_next(inserts, index, heap, info);
	}
	timed = fbl_sampler_begin(&inserts->sampler) || inserts->active;
	reads = pgBufferUsage.shared_blks_read;
	hits = pgBufferUsage.shared_blks_hit;
	writes = pgBufferUsage.shared_blks_written;
	if (timed)
		INSTR_TIME_SET_CURRENT(since);
	inserted = btinsert(index, values, isnull, tid, heap, check, unchanged, info);
	reads = pgBufferUsage.shared_blks_read - reads;
	if (reads > 0)
	{
		/* The rest is the wait for reads. */
		if (timed)
			spent_ns = Max(0, fb_elapsed_ns(since) - WRITE_NS * (pgBufferUsage.shared_blks_written - writes));
		fbl_sampler_read(&inserts->sampler, spent_ns);
	}
	else if (!inserts->active)
		return inserted;
	if (inserts->owed > 0)
		fb_look_settle(index, &inserts->owed, pgBufferUsage.shared_blks_hit - hits);
	if (inserts->hints == NULL && fbl_read_waited(spent_ns))
		fb_inserts_prepare(inserts, index, heap, info);
	if (inserts->hints != NULL)
	{
		fbl_hints_on_read(inserts->hints, leaf, spent_ns);
		if (fbl_read_waited(spent_ns))
			inserts->unproductive = 0;
		inserts->active = !fbl_hints_is_idle(inserts->hints) && inserts->unproductive < UNPRODUCTIVE_MAX;
	}
	return inserted;
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
		info->ii_AmCache = inserts = fb_enabled && fb_writes ? fb_inserts_make(index, info) : &nothing;
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
static Relation
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

/* The table of a command; invalid if there is none. Raises no errors: those of the command come in its own order. */
static Oid
fb_table_of(RangeVar *name)
{
	if (name->schemaname != NULL)
		return get_relname_relid(name->relname, get_namespace_oid(name->schemaname, true));
	return RelnameGetRelid(name->relname);
}

/* Installs our functions for the indexes of a table that rows will be inserted into, or of its partitions. */
static void
fb_expect_inserts(Oid relation, int *partitions)
{
	Relation	rel = fb_try_open(relation);
	List	   *related = NIL;
	bool		partitioned;
	ListCell   *each;

	if (rel == NULL)
		return;
	partitioned = rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	if (partitioned)
		related = find_inheritance_children(relation, NoLock);
	else if (rel->rd_rel->relkind == RELKIND_RELATION && !fb_is_of_server(rel))
		related = RelationGetIndexList(rel);
	foreach(each, related)
	{
		Relation	index;

		if (partitioned)
		{
			if (++*partitions <= PARTITIONS_MAX)
				fb_expect_inserts(lfirst_oid(each), partitions);
			continue;
		}
		index = fb_try_open(lfirst_oid(each));
		if (index != NULL)
		{
			fb_install_am(index);
			relation_close(index, AccessShareLock);
		}
	}
	list_free(related);
	relation_close(rel, AccessShareLock);
}

static void
fb_insert_utility(PlannedStmt *statement, const char *text, bool read_only_tree, ProcessUtilityContext where,
				  ParamListInfo params, QueryEnvironment *environment, DestReceiver *to, QueryCompletion *completion)
{
	if (fb_enabled && fb_writes && IsA(statement->utilityStmt, CopyStmt))
	{
		CopyStmt   *copy = castNode(CopyStmt, statement->utilityStmt);
		Oid			relation = copy->is_from ? fb_table_of(copy->relation) : InvalidOid;
		int			partitions = 0;

		if (OidIsValid(relation))
			fb_expect_inserts(relation, &partitions);
	}
	if (next_utility)
		next_utility(statement, text, read_only_tree, where, params, environment, to, completion);
	else
		standard_ProcessUtility(statement, text, read_only_tree, where, params, environment, to, completion);
}

void
fb_insert_init(void)
{
	DefineCustomBoolVariable("forebay.writes",
							 "Whether COPY looks ahead in the indexes that it inserts into.",
							 NULL,
							 &fb_writes, true, PGC_USERSET, 0, NULL, NULL, NULL);
	next_utility = ProcessUtility_hook;
	ProcessUtility_hook = fb_insert_utility;
}
