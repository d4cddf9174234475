/*
 * The rows of a b-tree scan that are to come.
 *
 * A scan keeps the matching rows of a whole leaf (BTScanOpaque->currPos.items), so a cursor of ours can run ahead of
 * its own. At the leaf's end the next leaf is looked at: under a share lock, that ends before we return, the heap
 * blocks of its rows are copied. Nothing of the scan is touched, so it cannot return other rows for it. What
 * changes between our look and the scan's own costs a hint too many or too few.
 *
 * The next leaf is looked at only where the scan would read it too: it takes all its rows, or the leaf is in
 * shared buffers anyway. For an unreadable leaf is an error, and a LIMIT must not meet errors behind its last row. So
 * too for the conditions: they are asked by the same functions that the scan uses, and by the server's own only.
 *
 * Scans with array keys and parallel scans stay in their leaf: which is next is known to the scan alone.
 */
#include "forebay.h"

#include "access/transam.h"
#include "storage/bufmgr.h"

/* What one look at a leaf ahead brings. */
typedef struct Leaf
{
	BlockNumber *rows;			/* heap blocks, in index order */
	int			row_count;
	BlockNumber beyond;			/* its neighbour in the scan's direction */
	bool		ends;			/* the scan's range ends in it */
} Leaf;

static BTScanOpaque
opaque_of(IndexScanDesc desc)
{
	return (BTScanOpaque) desc->opaque;
}

/* Whether a condition of the scan can be asked by us, without side effects. */
static bool
is_plain(ScanKey key)
{
	return !(key->sk_flags & (SK_ISNULL | SK_ROW_HEADER | SK_ROW_MEMBER | SK_SEARCHARRAY | SK_SEARCHNULL | SK_SEARCHNOTNULL)) &&
		key->sk_func.fn_oid < FirstNormalObjectId;
}

/* Whether leaves ahead of the scan's may be looked at, and all of its conditions be asked. */
static bool
may_look_beyond(FbScan *scan, IndexScanDesc desc)
{
	BTScanOpaque so = opaque_of(desc);

	if (so->numArrayKeys != 0 || desc->parallel_scan != NULL)
		return false;
	for (int i = 0; i < so->numberOfKeys; i++)
		if (!is_plain(&so->keyData[i]))
			return false;
	return true;
}

/* Whether a row matches the scan's conditions; *ends if none behind it does. */
static bool
matches(IndexScanDesc desc, IndexTuple row, ScanDirection direction, bool *ends)
{
	BTScanOpaque so = opaque_of(desc);
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

/* Copies the heap blocks of an index entry into `to`, `most` at most; there are several if it stands for duplicates. */
int
fb_copy_blocks(IndexTuple row, BlockNumber *to, int most)
{
	int			count;

	if (!BTreeTupleIsPosting(row))
	{
		if (most > 0)
			*to = ItemPointerGetBlockNumberNoCheck(&row->t_tid);
		return Min(most, 1);
	}
	count = Min(BTreeTupleGetNPosting(row), most);
	for (int i = 0; i < count; i++)
		to[i] = ItemPointerGetBlockNumberNoCheck(BTreeTupleGetPostingN(row, i));
	return count;
}

/* Whether all conditions are for the index's first column, so that what lies between two rows that match does too. */
static bool
is_range(BTScanOpaque so)
{
	for (int i = 0; i < so->numberOfKeys; i++)
		if (so->keyData[i].sk_attno != 1)
			return false;
	return true;
}

/* Looks at a leaf, which is read if need be. Where it is no leaf to be looked at, the range ends there. */
static void
look_at(FbScan *scan, IndexScanDesc desc, BlockNumber block, bool only_links, Leaf *leaf)
{
	ScanDirection direction = scan->direction;
	FbLook		look = fb_look_begin(desc->indexRelation);
	Buffer		buffer = ReadBuffer(desc->indexRelation, block);
	Page		page;
	BTPageOpaque links;
	OffsetNumber first;
	OffsetNumber last;
	/* The row at the leaf's end matches, and so all before it. */
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
	if (first <= last && is_range(opaque_of(desc)))
	{
		OffsetNumber end = ScanDirectionIsForward(direction) ? last : first;

		all = matches(desc, (IndexTuple) PageGetItem(page, PageGetItemId(page, end)), direction, &ends);
	}
	for (int i = 0; i + first <= last && !leaf->ends; i++)
	{
		OffsetNumber at = ScanDirectionIsForward(direction) ? first + i : last - i;
		ItemId		item = PageGetItemId(page, at);
		IndexTuple	row = (IndexTuple) PageGetItem(page, item);

		if (!ItemIdIsDead(item) && (all || matches(desc, row, direction, &leaf->ends)))
			leaf->row_count += fb_copy_blocks(row, leaf->rows + leaf->row_count,
											  MaxTIDsPerBTreePage - leaf->row_count);
	}
	UnlockReleaseBuffer(buffer);
}

/* The neighbour of the scan's own leaf. */
static BlockNumber
beyond_current(FbScan *scan, IndexScanDesc desc)
{
	BTScanPos	pos = &opaque_of(desc)->currPos;
	Leaf		leaf;

	if (!may_look_beyond(scan, desc))
		return InvalidBlockNumber;
	if (ScanDirectionIsForward(scan->direction))
		return pos->moreRight && pos->nextPage != P_NONE ? pos->nextPage : InvalidBlockNumber;
	if (!pos->moreLeft)
		return InvalidBlockNumber;
	/* The link to the left is in the page alone, in most versions; the scan has just read that page. */
	leaf.rows = NULL;
	look_at(scan, desc, pos->currPage, true, &leaf);
	return leaf.beyond;
}

/*
 * Takes note of the leaf behind a known one, and asks for it, so that it is there when its rows are due. Leaves that
 * lie one after the other are left to the kernel's readahead, which hints would end.
 */
static void
go_beyond(FbScan *scan, IndexScanDesc desc, BlockNumber leaf, BlockNumber beyond)
{
	Relation	index = desc->indexRelation;

	scan->cursor.beyond = beyond;
	if (beyond == leaf + 1)
		return;
	/* A damaged link must not cost a scan that stops before it more than a hint. */
	if (beyond != InvalidBlockNumber && fb_has_block(index, beyond, &scan->index_blocks) && !fb_in_buffers(index, beyond))
		fb_ask(index, beyond, 1);
}

/* Puts the cursor behind the row that the scan has just returned. */
void
fb_cursor_reset(FbScan *scan, IndexScanDesc desc)
{
	FbCursor   *cursor = &scan->cursor;

	cursor->in_rows = false;
	cursor->leaf_count = 0;
	cursor->at = opaque_of(desc)->currPos.itemIndex + (ScanDirectionIsForward(scan->direction) ? 1 : -1);
	/* Which leaf is next is looked up when it is wanted: few scans get there. */
	cursor->beyond = P_NONE;
}

/* The scan has gone on to its next leaf. False if that is not one that the cursor is ahead in. */
bool
fb_cursor_follow(FbScan *scan, IndexScanDesc desc)
{
	FbCursor   *cursor = &scan->cursor;

	if (cursor->leaf_count == 0 || cursor->leaves[0] != opaque_of(desc)->currPos.currPage)
		return false;
	cursor->leaf_count--;
	memmove(cursor->leaves, cursor->leaves + 1, cursor->leaf_count * sizeof(cursor->leaves[0]));
	return true;
}

/* Goes to the leaf behind; false if there is none, or it is not to be looked at now. */
static bool
next_leaf(FbScan *scan, IndexScanDesc desc)
{
	FbCursor   *cursor = &scan->cursor;
	BlockNumber block;
	Leaf		leaf;

	if (cursor->beyond == P_NONE)
		go_beyond(scan, desc, opaque_of(desc)->currPos.currPage, beyond_current(scan, desc));
	block = cursor->beyond;
	if (block == InvalidBlockNumber || cursor->leaf_count == FB_LEAVES_MAX)
		return false;
	if ((!scan->whole || scan->query->may_stop) && !fb_in_buffers(desc->indexRelation, block))
		return false;
	if (cursor->rows == NULL)
		cursor->rows = MemoryContextAlloc(scan->query->estate->es_query_cxt,
										  MaxTIDsPerBTreePage * sizeof(BlockNumber));
	leaf.rows = cursor->rows;
	look_at(scan, desc, block, false, &leaf);
	cursor->in_rows = true;
	cursor->at = 0;
	cursor->row_count = leaf.row_count;
	cursor->leaves[cursor->leaf_count++] = block;
	go_beyond(scan, desc, block, leaf.ends ? InvalidBlockNumber : leaf.beyond);
	return true;
}

/* The heap block of the next row to come; invalid if none can be foreseen now. */
BlockNumber
fb_cursor_next(FbScan *scan, IndexScanDesc desc)
{
	FbCursor   *cursor = &scan->cursor;
	BTScanPos	pos = &opaque_of(desc)->currPos;

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
		if (!next_leaf(scan, desc))
			return InvalidBlockNumber;
	}
}
