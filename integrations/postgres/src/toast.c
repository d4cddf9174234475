/*
 * Look-ahead of values that are stored out of line, in a TOAST table.
 *
 * When such a value is needed, the server searches the TOAST table's index for its number, and reads its chunks: for each
 * row at least two blocks more, which nothing prefetches. The scan that returned the row has the next rows in its
 * current leaf. So when the first value waits, it is found out which column of the scan's row has it; then the rows of the
 * leaf are read ahead, and ahead.c searches the index for their values in that column, and prefetches its leaves and the
 * blocks of the chunks. A row's page is read only if it is in shared buffers or the scan is certain to need it.
 *
 * Each fetch of a value is an index scan of its own, with a new descriptor. While it lasts, it is registered like a
 * node's (index_scan.c), which measures its reads.
 *
 * Left out: values of which only a part is read, rows of other scans than those of b-trees, and rows in other leaves.
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

/* For at most this many values of a scan it is found out which column they are in. */
#define TRIALS_MAX 64

/* The values of one column of a scan's rows. */
typedef struct FbToast
{
	/* Its values are the scan's rows from a row of the current leaf on. */
	FbAhead		ahead;
	/* Not a node's: the fetch of the current value. */
	FbScan		scan;
	IndexScanDesc fetch;
	slist_node	link;			/* in the scan that returns the rows */
	FbScan	   *owner;
	AttrNumber	column;
	/* The leaf of row 0, and its place there. */
	BlockNumber leaf;
	int			first;
	int			step;
	/* By number modulo FB_VALUES_MOST: which value a row has; invalid if it has none out of line. */
	Oid			ids[FB_VALUES_MOST];
	/* The row after the one whose value was fetched last, and the row after the last known. */
	uint64		next;
	uint64		end;
	/* A row of one value, for the probe. */
	TupleTableSlot *slot;
} FbToast;

static BTScanPos
fb_owner_position(FbScan *owner)
{
	return &((BTScanOpaque) (*owner->scan)->opaque)->currPos;
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

	*buffer = ReadBuffer(heap, ItemPointerGetBlockNumber(tid));
	owner->owed_heap += fb_look_end(&look);
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

/* Reads the next row of the leaf; false if there is none, or its page must not be read. */
static bool
fb_toast_has(FbAhead *ahead, uint64 number)
{
	FbToast    *toast = (FbToast *) ahead;
	BTScanPos	pos = fb_owner_position(toast->owner);
	Relation	heap = (*toast->owner->scan)->heapRelation;
	int64		at = toast->first + (int64) toast->end * toast->step;
	ItemPointer tid;

	if (number < toast->end)
		return true;
	if (pos->currPage != toast->leaf || at < pos->firstItem || at > pos->lastItem)
		return false;
	tid = &pos->items[at].heapTid;
	if (!fb_has_block(heap, ItemPointerGetBlockNumber(tid), &toast->owner->heap_blocks) ||
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

static const FbSource rows_of_leaf = {
	.prepare = fb_toast_prepare,
	.has = fb_toast_has,
	.set = fb_toast_set,
};

/* Makes the current row of the scan row 0, if it has that value; returns whether it has. */
static bool
fb_toast_restart(FbToast *toast, Oid id)
{
	FbScan	   *owner = toast->owner;
	BTScanPos	pos = fb_owner_position(owner);
	bool		forward = ScanDirectionIsForward(owner->query->estate->es_direction) ==
		ScanDirectionIsForward(castNode(IndexScan, owner->node->plan)->indexorderdir);

	if (!BTScanPosIsValid(*pos) || fb_row_value(toast, &pos->items[pos->itemIndex].heapTid) != id)
		return false;
	fb_ahead_restart(&toast->ahead);
	toast->leaf = pos->currPage;
	toast->first = pos->itemIndex;
	toast->step = forward ? 1 : -1;
	toast->ids[0] = id;
	toast->next = 0;
	toast->end = 1;
	return true;
}

/* Whether a value is that of the current row, or of one that is known; the rows before it are then done. */
static bool
fb_toast_take(FbToast *toast, Oid id)
{
	/* A query may need a value twice. */
	if (toast->next > 0 && toast->ids[(toast->next - 1) % FB_VALUES_MOST] == id)
		return true;
	while (toast->next < toast->end)
		if (toast->ids[toast->next++ % FB_VALUES_MOST] == id)
			return true;
	if (!fb_toast_restart(toast, id))
		return false;
	toast->next = 1;
	return true;
}

/* Prepares look-ahead for a column, in the memory of the query. */
static FbToast *
fb_toast_make(FbScan *owner, AttrNumber column, IndexScanDesc fetch)
{
	FbToast    *toast = MemoryContextAllocZero(owner->query->estate->es_query_cxt, sizeof(FbToast));

	toast->owner = owner;
	toast->column = column;
	toast->scan = (FbScan) {
		.kind = owner->kind,
		.query = owner->query,
		.scan = &toast->fetch,
		.whole = owner->whole,
		.sampler = fbl_sampler_new(),
		.block = InvalidBlockNumber,
		.last = InvalidBlockNumber,
		.index = RelationGetRelid(fetch->indexRelation),
	};
	fb_stats_expect(toast->scan.index);
	fb_ahead_init(&toast->ahead, &toast->scan, &rows_of_leaf, owner->whole);
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

	if (!BTScanPosIsValid(*pos) || !fb_row_lock(owner, &pos->items[pos->itemIndex].heapTid, &row, &buffer))
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
