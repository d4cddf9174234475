/*
 * The rows that a command has put into a table, or has deleted.
 *
 * A cursor goes through the table's pages from a given row on, and returns the rows that the same command has written.
 * A page is copied, so that nothing is locked or pinned between two rows.
 *
 * The cursor ends at a page that is not in shared buffers, as the command may not have written it. Pages that the table
 * got since the command began are read: a bulk insert fills them one after the other.
 *
 * Failure: none beyond that of reading such a page.
 */
#include "forebay.h"

#include "access/transam.h"
#include "access/xact.h"
#include "compat.h"
#include "executor/executor.h"
#include "storage/bufmgr.h"

/* Initializes a cursor, which has no rows yet, in the current memory context. */
void
fb_table_rows_init(FbTableRows *rows, Relation heap)
{
	rows->heap = heap;
	rows->readable = InvalidBlockNumber;
	rows->page = palloc(sizeof(PGAlignedBlock));
	rows->block = InvalidBlockNumber;
	rows->ended = true;
	/* A copy, as no resource owner must count our slot's reference to it. */
	rows->slot = FbMakeSlot(CreateTupleDescCopyConstr(RelationGetDescr(heap)), &TTSOpsHeapTuple);
}

/* Copies a page of the table; returns false if it must not be read, or is empty. */
bool
fb_table_rows_copy_page(FbTableRows *rows, BlockNumber block)
{
	FbLook		look;
	Buffer		buffer;

	rows->block = InvalidBlockNumber;
	if (block >= RelationGetNumberOfBlocks(rows->heap) ||
		(block < rows->readable && !fb_in_buffers(rows->heap, block)))
		return false;
	look = fb_look_begin(rows->heap);
	buffer = ReadBuffer(rows->heap, block);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	memcpy(rows->page->data, BufferGetPage(buffer), BLCKSZ);
	UnlockReleaseBuffer(buffer);
	rows->owed += fb_look_end(&look);
	rows->block = block;
	return !PageIsNew((Page) rows->page->data);
}

/* The row at that place of the copied page, until the next call; NULL if there is none. */
TupleTableSlot *
fb_table_rows_stored(FbTableRows *rows, OffsetNumber at)
{
	Page		page = (Page) rows->page->data;
	ItemId		item = at <= PageGetMaxOffsetNumber(page) ? PageGetItemId(page, at) : NULL;

	if (item == NULL || !ItemIdIsNormal(item))
		return NULL;
	rows->tuple.t_len = ItemIdGetLength(item);
	ItemPointerSet(&rows->tuple.t_self, rows->block, at);
	rows->tuple.t_tableOid = RelationGetRelid(rows->heap);
	rows->tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
	return ExecStoreHeapTuple(&rows->tuple, rows->slot, false);
}

/* A row of the copied page that this transaction has put there, or deleted; NULL if there is none. */
static HeapTupleHeader
fb_own_row(FbTableRows *rows, OffsetNumber at)
{
	Page		page = (Page) rows->page->data;
	ItemId		item = at <= PageGetMaxOffsetNumber(page) ? PageGetItemId(page, at) : NULL;
	HeapTupleHeader row = item != NULL && ItemIdIsNormal(item) ? (HeapTupleHeader) PageGetItem(page, item) : NULL;
	bool		is_deleted;

	if (row == NULL || (row->t_infomask & HEAP_COMBOCID))
		return NULL;
	is_deleted = !(row->t_infomask & HEAP_XMAX_INVALID);
	if (is_deleted != rows->deleted ||
		(is_deleted && ((row->t_infomask & HEAP_XMAX_IS_MULTI) || HEAP_XMAX_IS_LOCKED_ONLY(row->t_infomask))))
		return NULL;
	return TransactionIdIsCurrentTransactionId(is_deleted ? HeapTupleHeaderGetRawXmax(row)
											   : HeapTupleHeaderGetRawXmin(row)) ? row : NULL;
}

/* The command's first row at or after the cursor, in its page; false if there is none. */
static bool
fb_find_in_page(FbTableRows *rows)
{
	for (; rows->at <= PageGetMaxOffsetNumber((Page) rows->page->data); rows->at++)
	{
		HeapTupleHeader row = fb_own_row(rows, rows->at);

		if (row != NULL && HeapTupleHeaderGetRawCommandId(row) == rows->command)
			return true;
	}
	return false;
}

/* Begins after a row that the command has written. */
void
fb_table_rows_begin(FbTableRows *rows, ItemPointer tid)
{
	OffsetNumber at = ItemPointerGetOffsetNumber(tid);
	HeapTupleHeader row = NULL;

	if (fb_table_rows_copy_page(rows, ItemPointerGetBlockNumber(tid)))
		row = fb_own_row(rows, at);
	rows->ended = row == NULL;
	if (row == NULL)
		return;
	rows->command = HeapTupleHeaderGetRawCommandId(row);
	rows->at = at + 1;
}

/* Begins with the first row that a command of that number has written in a page; returns false if there is none. */
bool
fb_table_rows_begin_at(FbTableRows *rows, BlockNumber block, CommandId command)
{
	rows->command = command;
	rows->at = FirstOffsetNumber;
	rows->ended = !fb_table_rows_copy_page(rows, block) || !fb_find_in_page(rows);
	return !rows->ended;
}

/* Moves to the next row and returns its place; false if there is none. */
bool
fb_table_rows_next(FbTableRows *rows, ItemPointer tid)
{
	if (rows->ended)
		return false;
	if (!fb_find_in_page(rows))
	{
		/* The table's pages were filled one after the other. */
		rows->at = FirstOffsetNumber;
		rows->ended = !fb_table_rows_copy_page(rows, rows->block + 1) || !fb_find_in_page(rows);
	}
	if (rows->ended)
		return false;
	ItemPointerSet(tid, rows->block, rows->at++);
	return true;
}
