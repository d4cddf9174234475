/*
 * Look-ahead of values that are stored out of line, in a TOAST table.
 *
 * When such a value is needed, the server searches the TOAST table's index for its number, and reads its chunks: for each
 * row at least two blocks more, which nothing prefetches. The scan that returned the row has the next rows in its
 * current leaf; if it is restarted for one value after another, ahead.c has found the rows of the next values. The first
 * value that is fetched shows which column of the scan's row the query reads. From then on the next rows are read ahead, and
 * ahead.c searches the index for their values in that column, and prefetches its leaves and the blocks of the chunks. A
 * row's page is read only if it is in shared buffers or the scan is certain to need it.
 *
 * Each fetch of a value is a separate index scan, with a new descriptor. While it lasts, it is registered like the scan of
 * a node (index_scan.c), which measures its reads.
 *
 * Left out: values of which only a part is read, rows of other scans than those of b-trees, and those in the next leaf.
 *
 * Failure: none beyond that of reading pages that the query reads too.
 */
#include "forebay.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "executor/executor.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* The column of at most this many values is looked for. */
#define TRIALS_MAX 64

/*
 * A query may need the values of some rows only. Of this many known ones, three quarters must be needed, or look-ahead ends.
 */
#define JUDGED_MIN 32

/* How many rows to find ahead at first. */
#define WANTED_MIN 4

/* Rows that were found for the values ahead of a scan that is restarted for them. */
struct FbFound
{
	/* By number modulo FB_VALUES_MOST; the number of the oldest, and the number after the last. */
	ItemPointerData rows[FB_VALUES_MOST];
	uint64		head;
	uint64		tail;
	/* How many to find ahead of the current one. */
	uint32		wanted;
	uint64		current;
};

/* The values of one column of a scan's rows. */
typedef struct FbToast
{
	/* Its values are the scan's rows from a row on. */
	FbAhead		ahead;
	/* Not a node's: the fetch of the current value. */
	FbScan		scan;
	IndexScanDesc fetch;
	slist_node	link;			/* in the scan that returns the rows */
	FbScan	   *owner;
	AttrNumber	column;
	/* The leaf of row 0, and its place there; or its number among the rows found. */
	BlockNumber leaf;
	int			step;
	int64		first;
	/* By number modulo FB_VALUES_MOST: which value a row has; invalid if it has none out of line. */
	Oid			ids[FB_VALUES_MOST];
	/* The row after the one whose value was fetched last, and the row after the last known. */
	uint64		next;
	uint64		end;
	/* Of the known values, those that were fetched and those that were not. */
	uint32		needed;
	uint32		skipped;
	/* A row of one value, for the probe. */
	TupleTableSlot *slot;
} FbToast;

static BTScanPos
fb_owner_position(FbScan *owner)
{
	return &((BTScanOpaque) (*owner->scan)->opaque)->currPos;
}

/* Whether a scan is at a row. */
static bool
fb_has_row(BTScanPos pos)
{
	return BTScanPosIsValid(*pos) && pos->itemIndex >= pos->firstItem && pos->itemIndex <= pos->lastItem;
}

/* The number of the value that a row has in a column, in that TOAST table; invalid if it has none there. */
static Oid
fb_value_id(HeapTuple row, AttrNumber column, TupleDesc desc, Oid table)
{
	struct varatt_external pointer;
	bool		null;
	Datum		value = heap_getattr(row, column, desc, &null);

	if (null || !VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(value)))
		return InvalidOid;
	VARATT_EXTERNAL_GET_POINTER(pointer, DatumGetPointer(value));
	return pointer.va_toastrelid == table ? pointer.va_valueid : InvalidOid;
}

/* Pins and locks the page of a row, and finds the row there. Returns false, with nothing locked, if there is none. */
static bool
fb_row_lock(FbScan *owner, ItemPointer tid, HeapTuple row, Buffer *buffer)
{
	Relation	heap = (*owner->scan)->heapRelation;
	FbLook		look = fb_look_begin(heap);
	OffsetNumber at = ItemPointerGetOffsetNumber(tid);
	ItemId		item = NULL;
	Page		page;
	int64		reads;
	instr_time	since;

	INSTR_TIME_SET_CURRENT(since);
	*buffer = ReadBuffer(heap, ItemPointerGetBlockNumber(tid));
	reads = fb_look_end(&look);
	owner->owed_heap += reads;
	fb_scan_has_read(owner, ItemPointerGetBlockNumber(tid), reads > 0 ? fb_elapsed_ns(since) : -1);
	LockBuffer(*buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(*buffer);
	if (!PageIsNew(page) && at <= PageGetMaxOffsetNumber(page))
		item = PageGetItemId(page, at);
	/* An update that left the index alone has moved the row. */
	if (item != NULL && ItemIdIsRedirected(item))
		item = PageGetItemId(page, ItemIdGetRedirect(item));
	if (item == NULL || !ItemIdIsNormal(item))
	{
		UnlockReleaseBuffer(*buffer);
		return false;
	}
	row->t_data = (HeapTupleHeader) PageGetItem(page, item);
	row->t_len = ItemIdGetLength(item);
	row->t_tableOid = RelationGetRelid(heap);
	return true;
}

/* The value of a row in the column; invalid if it has none. */
static Oid
fb_row_value(FbToast *toast, ItemPointer tid)
{
	Relation	heap = (*toast->owner->scan)->heapRelation;
	HeapTupleData row;
	Buffer		buffer;
	Oid			id;

	if (!fb_row_lock(toast->owner, tid, &row, &buffer))
		return InvalidOid;
	id = fb_value_id(&row, toast->column, RelationGetDescr(heap), heap->rd_rel->reltoastrelid);
	UnlockReleaseBuffer(buffer);
	return id;
}

/* The place of a row of the scan's leaf; NULL if the leaf ends before it. */
static ItemPointer
fb_row_of_leaf(FbToast *toast, uint64 number)
{
	BTScanPos	pos = fb_owner_position(toast->owner);
	int64		at = toast->first + (int64) number * toast->step;

	if (pos->currPage != toast->leaf || at < pos->firstItem || at > pos->lastItem)
		return NULL;
	return &pos->items[at].heapTid;
}

/* The place of a row that was found for a value; NULL if it was not found yet. */
static ItemPointer
fb_row_found(FbToast *toast, uint64 number)
{
	struct FbFound *found = toast->owner->found;
	uint64		at = toast->first + number;

	if (at < found->head)
		return NULL;
	if (at < found->tail)
		return &found->rows[at % FB_VALUES_MOST];
	/* Doubled while there are too few. */
	if (found->wanted <= at - found->current)
		found->wanted = Min(2 * found->wanted, FB_VALUES_MOST / 2);
	return NULL;
}

/* Reads the next row; false if it is not known, or its page must not be read. */
static bool
fb_toast_has(FbAhead *ahead, uint64 number)
{
	FbToast    *toast = (FbToast *) ahead;
	FbScan	   *owner = toast->owner;
	Relation	heap = (*owner->scan)->heapRelation;
	ItemPointer tid;

	if (number < toast->end)
		return true;
	if (toast->needed + toast->skipped >= JUDGED_MIN && toast->skipped > toast->needed / 3)
		return false;
	tid = owner->found != NULL ? fb_row_found(toast, toast->end) : fb_row_of_leaf(toast, toast->end);
	if (tid == NULL || !fb_has_block(heap, ItemPointerGetBlockNumber(tid), &owner->heap_blocks) ||
		(!ahead->all && !fb_in_buffers(heap, ItemPointerGetBlockNumber(tid))))
		return false;
	toast->ids[toast->end++ % FB_VALUES_MOST] = fb_row_value(toast, tid);
	return true;
}

static bool
fb_toast_set(FbAhead *ahead, uint64 number)
{
	FbToast    *toast = (FbToast *) ahead;
	Oid			id = toast->ids[number % FB_VALUES_MOST];

	if (!OidIsValid(id))
		return false;
	ExecClearTuple(toast->slot);
	toast->slot->tts_values[0] = ObjectIdGetDatum(id);
	toast->slot->tts_isnull[0] = false;
	ExecStoreVirtualTuple(toast->slot);
	return fb_probe_set(ahead->probe, toast->slot, (Datum) 0);
}

static FbProbe *
fb_toast_prepare(FbAhead *ahead)
{
	FbToast    *toast = (FbToast *) ahead;
	TupleDesc	desc = CreateTemplateTupleDesc(1);

	TupleDescInitEntry(desc, 1, NULL, OIDOID, -1, 0);
	FbTupleDescFinalize(desc);
	toast->slot = FbMakeSlot(desc, &TTSOpsVirtual);
	return fb_probe_make_equal(toast->scan.scan, desc);
}

/* Values wait: the scan has to find the rows for them. */
static void
fb_toast_wake(FbAhead *ahead)
{
	FbScan	   *owner = ((FbToast *) ahead)->owner;

	if (owner->found != NULL)
		fb_ahead_activate(owner->ahead);
}

static const FbSource rows_of_scan = {
	.prepare = fb_toast_prepare,
	.has = fb_toast_has,
	.set = fb_toast_set,
	.wake = fb_toast_wake,
};

/* The scan has found rows for a value ahead. */
void
fb_toast_found(FbScan *owner, const ItemPointerData *rows, int count)
{
	struct FbFound *found = owner->found;

	for (int i = 0; i < count; i++)
	{
		if (found->tail - found->head == FB_VALUES_MOST)
			found->head++;
		found->rows[found->tail++ % FB_VALUES_MOST] = rows[i];
	}
}

bool
fb_toasts_are_active(FbScan *owner)
{
	slist_iter	each;

	slist_foreach(each, &owner->toasts)
		if (fb_ahead_is_active(&slist_container(FbToast, link, each.cur)->ahead))
			return true;
	return false;
}

/* Whether the scan should find more rows for the values ahead. */
bool
fb_toasts_want_rows(FbScan *owner)
{
	return owner->found != NULL && owner->found->tail - owner->found->current < owner->found->wanted &&
		fb_toasts_are_active(owner);
}

/* The number of a row among those found; that of the next one to be found if it is not among them. */
static uint64
fb_number_of_found(struct FbFound *found, ItemPointer tid)
{
	for (uint64 i = found->head; i < found->tail; i++)
		if (ItemPointerEquals(&found->rows[i % FB_VALUES_MOST], tid))
			return i;
	return found->tail;
}

/* The values of known rows up to a number, excluded, were not needed. */
static void
fb_toast_skip(FbToast *toast, uint64 number)
{
	for (; toast->next < number; toast->next++)
		toast->skipped += OidIsValid(toast->ids[toast->next % FB_VALUES_MOST]);
}

/* Makes the current row of the scan row 0, if it has that value; returns whether it has. */
static bool
fb_toast_restart(FbToast *toast, Oid id)
{
	FbScan	   *owner = toast->owner;
	BTScanPos	pos = fb_owner_position(owner);
	bool		forward = ScanDirectionIsForward(owner->query->estate->es_direction) ==
		ScanDirectionIsForward(castNode(IndexScan, owner->node->plan)->indexorderdir);

	if (!fb_has_row(pos) || fb_row_value(toast, &pos->items[pos->itemIndex].heapTid) != id)
		return false;
	fb_toast_skip(toast, toast->end);
	fb_ahead_restart(&toast->ahead);
	toast->leaf = pos->currPage;
	toast->step = forward ? 1 : -1;
	toast->first = pos->itemIndex;
	toast->ids[0] = id;
	toast->next = toast->end = 1;
	if (owner->found != NULL)
	{
		toast->first = fb_number_of_found(owner->found, &pos->items[pos->itemIndex].heapTid);
		/* If it is not among them, the next row found is row 1. */
		if (toast->first == owner->found->tail)
			toast->first--;
	}
	return true;
}

/* Whether a value is that of the current row, or of one that is known; the rows before it are then done. */
static bool
fb_toast_take(FbToast *toast, Oid id)
{
	/* A query may need a value twice. */
	if (toast->next > 0 && toast->ids[(toast->next - 1) % FB_VALUES_MOST] == id)
		return true;
	for (uint64 number = toast->next; number < toast->end; number++)
		if (toast->ids[number % FB_VALUES_MOST] == id)
		{
			fb_toast_skip(toast, number);
			toast->needed++;
			toast->next++;
			return true;
		}
	return fb_toast_restart(toast, id);
}

/* From now on, keeps the rows that are found for the values ahead, if the scan can be looked ahead for. */
static void
fb_keep_found(FbScan *owner)
{
	if (owner->found != NULL || owner->ahead == NULL || !fb_ahead_prepare(owner->ahead))
		return;
	owner->found = MemoryContextAllocZero(owner->query->estate->es_query_cxt, sizeof(struct FbFound));
	owner->found->wanted = WANTED_MIN;
}

/* Prepares look-ahead for a column, in the memory of the query. */
static FbToast *
fb_toast_make(FbScan *owner, AttrNumber column, IndexScanDesc fetch)
{
	FbToast    *toast = MemoryContextAllocZero(owner->query->estate->es_query_cxt, sizeof(FbToast));
	bool		whole;

	fb_keep_found(owner);
	/* For each value ahead, no more rows are found than are used. */
	whole = owner->found != NULL ? owner->ahead->whole : owner->whole;
	toast->owner = owner;
	toast->column = column;
	toast->scan = (FbScan) {
		.kind = owner->kind,
		.query = owner->query,
		.scan = &toast->fetch,
		.whole = whole,
		.sampler = fbl_sampler_new(),
		.block = InvalidBlockNumber,
		.last = InvalidBlockNumber,
		.index = RelationGetRelid(fetch->indexRelation),
	};
	fb_stats_expect(toast->scan.index);
	fb_ahead_init(&toast->ahead, &toast->scan, &rows_of_scan, whole);
	slist_push_head(&owner->toasts, &toast->link);
	return toast;
}

/* The column of the scan's current row that has a value; 0 if none has. */
static AttrNumber
fb_column_with(FbScan *owner, Oid id)
{
	Relation	heap = (*owner->scan)->heapRelation;
	TupleDesc	desc = RelationGetDescr(heap);
	BTScanPos	pos = fb_owner_position(owner);
	AttrNumber	found = 0;
	HeapTupleData row;
	Buffer		buffer;

	if (!fb_has_row(pos) || !fb_row_lock(owner, &pos->items[pos->itemIndex].heapTid, &row, &buffer))
		return 0;
	for (AttrNumber i = 1; i <= desc->natts && found == 0; i++)
		if (TupleDescAttr(desc, i - 1)->attlen == -1 && !TupleDescAttr(desc, i - 1)->attisdropped &&
			fb_value_id(&row, i, desc, heap->rd_rel->reltoastrelid) == id)
			found = i;
	UnlockReleaseBuffer(buffer);
	return found;
}

/* The values to which one of a scan's rows belongs; NULL if none does. */
static FbToast *
fb_toast_among(FbScan *owner, Oid id, IndexScanDesc fetch)
{
	slist_iter	each;
	AttrNumber	column;
	FbToast    *toast;

	slist_foreach(each, &owner->toasts)
	{
		toast = slist_container(FbToast, link, each.cur);
		if (fb_toast_take(toast, id))
			return toast;
	}
	if (owner->toast_trials >= TRIALS_MAX)
		return NULL;
	owner->toast_trials++;
	column = fb_column_with(owner, id);
	if (column == 0)
		return NULL;
	toast = fb_toast_make(owner, column, fetch);
	return fb_toast_take(toast, id) ? toast : NULL;
}

/*
 * A value is about to be fetched from a TOAST table: looks ahead from it. Returns the scan as which the fetch is
 * registered; NULL if it is not a value of a scan's current row.
 */
FbScan *
fb_toast_begins(IndexScanDesc fetch, ScanKey keys, int key_count)
{
	dlist_iter	queries;
	dlist_iter	scans;

	/* With more keys, only some chunks are needed. */
	if (key_count != 1)
		return NULL;
	dlist_foreach(queries, &fb_queries)
		dlist_foreach(scans, &dlist_container(FbQuery, link, queries.cur)->scans)
		{
			FbScan	   *owner = dlist_container(FbScan, link, scans.cur);
			FbToast    *toast;

			if (!owner->expects_toast || *owner->scan == NULL ||
				(*owner->scan)->heapRelation->rd_rel->reltoastrelid != RelationGetRelid(fetch->heapRelation))
				continue;
			toast = fb_toast_among(owner, DatumGetObjectId(keys[0].sk_argument), fetch);
			if (toast == NULL)
				continue;
			toast->fetch = fetch;
			toast->ahead.head = toast->next - 1;
			toast->ahead.taken++;
			if (owner->found != NULL)
				owner->found->current = toast->first + toast->ahead.head;
			if (fb_ahead_is_active(&toast->ahead))
				fb_ahead_look(&toast->ahead, toast->ahead.head);
			fb_ahead_take(&toast->ahead, toast->ahead.head);
			return &toast->scan;
		}
	return NULL;
}

/* A scan's reads wait: installs our functions for the index of its table's TOAST table. */
void
fb_toast_expect(FbScan *scan)
{
	Relation	heap = (*scan->scan)->heapRelation;
	Relation	table;
	List	   *indexes;
	ListCell   *each;

	if (scan->node == NULL || scan->index_only || scan->kind->next != NULL || scan->expects_toast ||
		!OidIsValid(heap->rd_rel->reltoastrelid) || fb_distance_of(heap) == 0)
		return;
	table = fb_try_open(heap->rd_rel->reltoastrelid);
	if (table == NULL)
		return;
	indexes = RelationGetIndexList(table);
	foreach(each, indexes)
	{
		Relation	index = fb_try_open(lfirst_oid(each));

		if (index == NULL)
			continue;
		scan->expects_toast |= fb_install_am(index);
		relation_close(index, AccessShareLock);
	}
	list_free(indexes);
	relation_close(table, AccessShareLock);
}

/* Adds the counts of the values of a scan's rows. */
void
fb_toast_counts(FbScan *owner, struct fbl_counts *counts)
{
	slist_iter	each;

	slist_foreach(each, &owner->toasts)
		fb_counts_add(counts, fb_scan_counts(&slist_container(FbToast, link, each.cur)->scan));
}

/* A scan ends: adds the counts of its values to their index. Raises no errors. */
void
fb_toasts_release(FbScan *owner)
{
	slist_iter	each;

	slist_foreach(each, &owner->toasts)
	{
		FbScan	   *scan = &slist_container(FbToast, link, each.cur)->scan;

		fb_scan_add_counts(scan);
		/* An error has ended the fetch. */
		if (scan->desc != NULL)
			fb_detach(FB_OF_SCAN, scan->desc);
	}
	slist_init(&owner->toasts);
}
