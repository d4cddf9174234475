/*
 * The rows ahead of a b-tree scan.
 *
 * A scan keeps the matching rows of a whole leaf (BTScanOpaque->currPos.items), so our cursor can run ahead of the
 * scan's. At the leaf's end we read the next leaf and copy the heap blocks of its rows, under a share lock that is
 * released before we return. We modify no state of the scan, so its rows cannot change. A page that changes between
 * our read and the scan's costs a hint too many or too few.
 *
 * The next leaf is read only if the scan would read it too because all its rows are needed, or if the leaf is in
 * shared buffers anyway: an unreadable leaf is an error, and a LIMIT must not meet errors after its last row. For the
 * same reason, conditions are evaluated by the functions that the scan uses, and only by built-in ones.
 *
 * Scans with array keys and parallel scans stay in their leaf: only the scan knows which leaf is next.
 */
#include "forebay.h"

#include "access/transam.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* The result of reading one leaf ahead. */
typedef struct Leaf
{
	BlockNumber *rows;			/* heap blocks, in index order */
	int			row_count;
	BlockNumber beyond;			/* its neighbour in the scan's direction */
	bool		ends;			/* the scan's range ends in it */
} Leaf;

static BTScanOpaque
fb_opaque_of(IndexScanDesc desc)
{
	return (BTScanOpaque) desc->opaque;
}

/* Whether we can evaluate a condition of the scan, without side effects. */
static bool
fb_is_plain(ScanKey key)
{
	return !(key->sk_flags & (SK_ISNULL | SK_ROW_HEADER | SK_ROW_MEMBER | SK_SEARCHARRAY | SK_SEARCHNULL | SK_SEARCHNOTNULL)) &&
		key->sk_func.fn_oid < FirstNormalObjectId;
}

/* Whether we may read leaves ahead of the scan's, and can evaluate all of its conditions. */
static bool
fb_may_look_beyond(FbScan *scan, IndexScanDesc desc)
{
	BTScanOpaque so = fb_opaque_of(desc);

	if (so->numArrayKeys != 0 || desc->parallel_scan != NULL)
		return false;
	for (int i = 0; i < so->numberOfKeys; i++)
		if (!fb_is_plain(&so->keyData[i]))
			return false;
	return true;
}

/* Whether a row matches the scan's conditions; sets *ends if no row after it does. */
static bool
fb_row_matches(IndexScanDesc desc, IndexTuple row, ScanDirection direction, bool *ends)
{
	BTScanOpaque so = fb_opaque_of(desc);
	int			required = ScanDirectionIsForward(direction) ? SK_BT_REQFWD : SK_BT_REQBKWD;

	for (int i = 0; i < so->numberOfKeys; i++)
	{
		ScanKey		key = &so->keyData[i];
		bool		null;
		Datum		value = index_getattr(row, key->sk_attno, RelationGetDescr(desc->indexRelation), &null);

		if (null || !DatumGetBool(FunctionCall2Coll(&key->sk_func, key->sk_collation, value, key->sk_argument)))
		{
			if (!null && (key->sk_flags & required))
				*ends = true;
			return false;
		}
	}
	return true;
}

/* The rows of an index entry; *count is how many: a posting list of duplicates has several. */
ItemPointer
fb_rows_of_entry(IndexTuple entry, int *count)
{
	*count = BTreeTupleIsPosting(entry) ? BTreeTupleGetNPosting(entry) : 1;
	return BTreeTupleIsPosting(entry) ? BTreeTupleGetPosting(entry) : &entry->t_tid;
}

/* Whether all conditions are on the index's first column, so that all rows between two matching rows match too. */
static bool
fb_is_range(BTScanOpaque so)
{
	for (int i = 0; i < so->numberOfKeys; i++)
		if (so->keyData[i].sk_attno != 1)
			return false;
	return true;
}

/* Examines a leaf, which is read if necessary. If the page is not a usable leaf, the range ends there. */
static void
fb_look_at(FbScan *scan, IndexScanDesc desc, BlockNumber block, bool only_links, Leaf *leaf)
{
	ScanDirection direction = scan->direction;
	FbLook		look = fb_look_begin(desc->indexRelation);
	Buffer		buffer = ReadBuffer(desc->indexRelation, block);
	Page		page;
	BTPageOpaque links;
	OffsetNumber first;
	OffsetNumber last;
	/* The row at the leaf's end matches, and therefore all before it. */
	bool		all = false;
	bool		ends;

	scan->owed += fb_look_end(&look);
	leaf->row_count = 0;
	leaf->beyond = InvalidBlockNumber;
	leaf->ends = true;
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	links = fb_page_links(page);
	if (links == NULL || !P_ISLEAF(links) || P_ISDELETED(links))
	{
		UnlockReleaseBuffer(buffer);
		return;
	}
	leaf->ends = false;
	if (ScanDirectionIsForward(direction))
		leaf->beyond = P_RIGHTMOST(links) ? InvalidBlockNumber : links->btpo_next;
	else
		leaf->beyond = P_LEFTMOST(links) ? InvalidBlockNumber : links->btpo_prev;

	first = P_FIRSTDATAKEY(links);
	last = P_IGNORE(links) || only_links ? 0 : PageGetMaxOffsetNumber(page);
	if (first <= last && fb_is_range(fb_opaque_of(desc)))
	{
		OffsetNumber end = ScanDirectionIsForward(direction) ? last : first;

		all = fb_row_matches(desc, (IndexTuple) PageGetItem(page, PageGetItemId(page, end)), direction, &ends);
	}
	for (int i = 0; i + first <= last && !leaf->ends; i++)
	{
		OffsetNumber at = ScanDirectionIsForward(direction) ? first + i : last - i;
		ItemId		item = PageGetItemId(page, at);
		IndexTuple	row = (IndexTuple) PageGetItem(page, item);

		if (!ItemIdIsDead(item) && (all || fb_row_matches(desc, row, direction, &leaf->ends)))
		{
			int			count;
			ItemPointer rows = fb_rows_of_entry(row, &count);

			for (int j = 0; j < count && leaf->row_count < MaxTIDsPerBTreePage; j++)
				leaf->rows[leaf->row_count++] = ItemPointerGetBlockNumberNoCheck(&rows[j]);
		}
	}
	UnlockReleaseBuffer(buffer);
}

/* The neighbour of the scan's own leaf. */
static BlockNumber
fb_beyond_current(FbScan *scan, IndexScanDesc desc)
{
	BTScanPos	pos = &fb_opaque_of(desc)->currPos;
	Leaf		leaf;

	if (!fb_may_look_beyond(scan, desc))
		return InvalidBlockNumber;
	if (ScanDirectionIsForward(scan->direction))
		return pos->moreRight && pos->nextPage != P_NONE ? pos->nextPage : InvalidBlockNumber;
	if (!pos->moreLeft)
		return InvalidBlockNumber;
	/* In most versions, only the page has the link to the left; the scan has just read that page. */
	leaf.rows = NULL;
	fb_look_at(scan, desc, pos->currPage, true, &leaf);
	return leaf.beyond;
}

/*
 * Records the leaf after a known one, and prefetches it, so that it is in memory when its rows are needed. Adjacent
 * leaves are left to the kernel's readahead, which hints would end.
 */
static void
fb_go_beyond(FbScan *scan, IndexScanDesc desc, BlockNumber leaf, BlockNumber beyond)
{
	Relation	index = desc->indexRelation;

	scan->cursor.beyond = beyond;
	if (beyond == leaf + 1)
		return;
	/* A damaged link must not cost more than a hint, as the scan may stop before it. */
	if (beyond != InvalidBlockNumber && fb_has_block(index, beyond, &scan->index_blocks) && !fb_in_buffers(index, beyond))
		fb_prefetch(index, beyond, 1);
}

/* Moves the cursor to just after the row that the scan has returned last. */
void
fb_cursor_reset(FbScan *scan, IndexScanDesc desc)
{
	FbCursor   *cursor = &scan->cursor;

	cursor->in_rows = false;
	cursor->leaf_count = 0;
	cursor->at = fb_opaque_of(desc)->currPos.itemIndex + (ScanDirectionIsForward(scan->direction) ? 1 : -1);
	/* The next leaf is looked up when it is needed: few scans get there. */
	cursor->beyond = P_NONE;
}

/* Whether the scan has passed the cursor, which moves only while the hints have room. */
bool
fb_cursor_is_behind(FbScan *scan, IndexScanDesc desc)
{
	FbCursor   *cursor = &scan->cursor;
	BTScanPos	pos = &fb_opaque_of(desc)->currPos;
	bool		forward = ScanDirectionIsForward(scan->direction);

	if (cursor->leaf_count > 0)
		return false;
	/* In a leaf that was read ahead, the cursor counts the rows in the scan's direction. */
	if (cursor->in_rows)
		return cursor->at <= (forward ? pos->itemIndex - pos->firstItem : pos->lastItem - pos->itemIndex);
	return forward ? cursor->at <= pos->itemIndex : cursor->at >= pos->itemIndex;
}

/* The scan has moved to its next leaf. Returns false if that is not a leaf that the cursor has read ahead. */
bool
fb_cursor_follow(FbScan *scan, IndexScanDesc desc)
{
	FbCursor   *cursor = &scan->cursor;

	if (cursor->leaf_count == 0 || cursor->leaves[0] != fb_opaque_of(desc)->currPos.currPage)
		return false;
	cursor->leaf_count--;
	memmove(cursor->leaves, cursor->leaves + 1, cursor->leaf_count * sizeof(cursor->leaves[0]));
	return true;
}

/* Moves the cursor to the next leaf; returns false if there is none, or it must not be read now. */
static bool
fb_next_leaf(FbScan *scan, IndexScanDesc desc)
{
	FbCursor   *cursor = &scan->cursor;
	BlockNumber block;
	Leaf		leaf;

	if (cursor->beyond == P_NONE)
		fb_go_beyond(scan, desc, fb_opaque_of(desc)->currPos.currPage, fb_beyond_current(scan, desc));
	block = cursor->beyond;
	if (block == InvalidBlockNumber || cursor->leaf_count == FB_LEAVES_MAX)
		return false;
	if ((!scan->whole || scan->query->may_stop) && !fb_in_buffers(desc->indexRelation, block))
		return false;
	if (cursor->rows == NULL)
		cursor->rows = MemoryContextAlloc(scan->query->estate->es_query_cxt,
										  MaxTIDsPerBTreePage * sizeof(BlockNumber));
	leaf.rows = cursor->rows;
	fb_look_at(scan, desc, block, false, &leaf);
	cursor->in_rows = true;
	cursor->at = 0;
	cursor->row_count = leaf.row_count;
	cursor->leaves[cursor->leaf_count++] = block;
	fb_go_beyond(scan, desc, block, leaf.ends ? InvalidBlockNumber : leaf.beyond);
	return true;
}

/* The heap block of the cursor's next row; invalid if none can be predicted now. */
BlockNumber
fb_cursor_next(FbScan *scan, IndexScanDesc desc)
{
	FbCursor   *cursor = &scan->cursor;
	BTScanPos	pos = &fb_opaque_of(desc)->currPos;

	for (;;)
	{
		if (cursor->in_rows)
		{
			if (cursor->at < cursor->row_count)
				return cursor->rows[cursor->at++];
		}
		else if (cursor->at >= pos->firstItem && cursor->at <= pos->lastItem)
		{
			BlockNumber block = ItemPointerGetBlockNumberNoCheck(&pos->items[cursor->at].heapTid);

			cursor->at += ScanDirectionIsForward(scan->direction) ? 1 : -1;
			return block;
		}
		if (!fb_next_leaf(scan, desc))
			return InvalidBlockNumber;
	}
}
