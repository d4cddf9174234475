/*
 * What an index scan with other key values would read: its leaf, and its heap blocks.
 *
 * The inner index scan of a nested loop restarts for each outer row, a scan with an array for each element. For a
 * row or an element that the scan has not reached, the conditions are copied and get its values, and the index is
 * descended with the conditions that fix its leading columns by equality. This has two parts, as the leaf may have to
 * be read from disk: the first reads only upper pages and returns the leaf's number, the second reads the leaf.
 *
 * It relies on nbtree's own comparisons, and on built-in operators: others could have side effects. An entry that
 * moves between the two parts, for example by a page split, costs a hint; one step to the right covers most such cases.
 *
 * Failure: an unreadable page is an error, as for the scan. So pages that are not in shared buffers are read only
 * if the scan is certain to read them too. All pins and locks are released before a function returns.
 */
#include "forebay.h"

#include "access/transam.h"
#include "catalog/pg_am.h"
#include "compat.h"
#include "executor/instrument.h"
#include "nodes/nodeFuncs.h"
#include "parser/parse_coerce.h"
#include "storage/bufmgr.h"
#include "utils/lsyscache.h"

/* One condition of the scan whose value is known ahead. */
typedef struct ProbeKey
{
	/* The scan's own key, which has the value unless it is from the outer row. */
	ScanKey		live;
	ScanKeyData own;
	/* The column of the outer row that has the value; 0 if none. */
	AttrNumber	column;
	/* The value is an element of an array. */
	bool		element;
	/* It is part of the search key, which the entries found are equal to. */
	bool		searched;
	int16		length;
} ProbeKey;

struct FbProbe
{
	IndexScanDesc *scan;
	ProbeKey   *keys;
	int			key_count;
	/* Which of the keys fixes each leading column. */
	int			prefix[INDEX_MAX_KEYS];
	BTScanInsertData search;
	/* The leaf found last, and whether the values before were on it too. */
	BlockNumber leaf;
	bool		again;
};

/* Whether an expression contains a value of the outer row; an expression_tree_walker. */
static bool
fb_of_outer_row(Node *node, void *context)
{
	ListCell   *each;

	if (node == NULL)
		return false;
	if (IsA(node, Param) && castNode(Param, node)->paramkind == PARAM_EXEC)
	{
		foreach(each, ((NestLoop *) context)->nestParams)
			if (lfirst_node(NestLoopParam, each)->paramno == castNode(Param, node)->paramid)
				return true;
		return false;
	}
	return expression_tree_walker(node, fb_of_outer_row, context);
}

/* The column of the outer row that an expression refers to; 0 if it is not such a column. */
static AttrNumber
fb_column_of(Node *node, NestLoop *join)
{
	ListCell   *each;

	while (node != NULL && IsA(node, RelabelType))
		node = (Node *) castNode(RelabelType, node)->arg;
	if (node == NULL || !IsA(node, Param) || castNode(Param, node)->paramkind != PARAM_EXEC)
		return 0;
	foreach(each, join->nestParams)
	{
		NestLoopParam *param = lfirst_node(NestLoopParam, each);

		if (param->paramno == castNode(Param, node)->paramid &&
			IsA(param->paramval, Var) && param->paramval->varattno > 0)
			return param->paramval->varattno;
	}
	return 0;
}

/* Adds a condition of the scan, if its value is known ahead and we can evaluate it. */
static void
fb_take_key(FbProbe *probe, ScanKey live, IndexRuntimeKeyInfo *runtime, int runtime_count,
			NestLoop *join, TupleDesc outer)
{
	ProbeKey   *key = &probe->keys[probe->key_count];

	if ((live->sk_flags & (SK_ROW_HEADER | SK_ROW_MEMBER | SK_SEARCHNULL | SK_SEARCHNOTNULL)) ||
		(join != NULL && (live->sk_flags & SK_SEARCHARRAY)) || live->sk_func.fn_oid >= FirstNormalObjectId)
		return;
	key->live = live;
	key->column = 0;
	key->element = (live->sk_flags & SK_SEARCHARRAY) != 0;
	for (int i = 0; i < runtime_count; i++)
	{
		Node	   *value;

		if (runtime[i].scan_key != live || join == NULL)
			continue;
		value = (Node *) runtime[i].key_expr->expr;
		key->column = fb_column_of(value, join);
		if (key->column == 0 && fb_of_outer_row(value, join))
			return;
		if (key->column > outer->natts)
			return;
	}
	if (key->column > 0)
		key->length = TupleDescAttr(outer, key->column - 1)->attlen;
	key->own = *live;
	/* A function keeps its state per FmgrInfo, so the copy needs its own. */
	fmgr_info_copy(&key->own.sk_func, &live->sk_func, CurrentMemoryContext);
	probe->key_count++;
}

/* Adds a column to the search key, for values of a type; returns false if comparing them may have effects. */
static bool
fb_search_column(BTScanInsert search, Relation index, AttrNumber column, Oid type, Oid collation)
{
	Oid			own_type = index->rd_opcintype[column - 1];
	int			flags = index->rd_indoption[column - 1] << SK_BT_INDOPTION_SHIFT;
	ScanKey		to = &search->scankeys[column - 1];
	Oid			order;

	if (type == own_type || !OidIsValid(type))
	{
		FmgrInfo   *info = index_getprocinfo(index, column, BTORDER_PROC);

		if (info->fn_oid >= FirstNormalObjectId)
			return false;
		ScanKeyEntryInitializeWithInfo(to, flags, column, InvalidStrategy, type, collation, info, (Datum) 0);
		return true;
	}
	order = get_opfamily_proc(index->rd_opfamily[column - 1], own_type, type, BTORDER_PROC);
	if (!OidIsValid(order) || order >= FirstNormalObjectId)
		return false;
	ScanKeyEntryInitialize(to, flags, column, InvalidStrategy, type, collation, order, (Datum) 0);
	return true;
}

/* Adds a leading column to the search key; returns false if no condition fixes it by equality. */
static bool
fb_take_column(FbProbe *probe, Relation index, AttrNumber column)
{
	for (int i = 0; i < probe->key_count; i++)
	{
		ScanKey		key = &probe->keys[i].own;

		if (key->sk_attno != column || key->sk_strategy != BTEqualStrategyNumber)
			continue;
		if (!fb_search_column(&probe->search, index, column, key->sk_subtype, key->sk_collation))
			return false;
		probe->prefix[column - 1] = i;
		probe->keys[i].searched = true;
		return true;
	}
	return false;
}

/*
 * Makes a probe for an index scan, in the current memory context, which must be the query's: for the inner scan of a
 * nested loop, or for a scan with an array if `join` is NULL. Returns NULL if the values do not determine where the scan
 * goes. The scan must have begun.
 */
FbProbe *
fb_probe_make(FbScan *scan, NestLoop *join, TupleDesc outer)
{
	IndexScanState *plain = (IndexScanState *) scan->node;
	IndexOnlyScanState *only = (IndexOnlyScanState *) scan->node;
	ScanKey		keys = scan->index_only ? only->ioss_ScanKeys : plain->iss_ScanKeys;
	int			key_count = scan->index_only ? only->ioss_NumScanKeys : plain->iss_NumScanKeys;
	IndexRuntimeKeyInfo *runtime = scan->index_only ? only->ioss_RuntimeKeys : plain->iss_RuntimeKeys;
	int			runtime_count = scan->index_only ? only->ioss_NumRuntimeKeys : plain->iss_NumRuntimeKeys;
	Relation	index = (*scan->scan)->indexRelation;
	ScanDirection order = scan->index_only ? ((IndexOnlyScan *) scan->node->plan)->indexorderdir
		: ((IndexScan *) scan->node->plan)->indexorderdir;
	FbProbe    *probe = palloc0(sizeof(FbProbe));
	bool		varies = false;

	probe->scan = scan->scan;
	/* A backward scan begins after the last entry with its values. */
	probe->search.nextkey = ScanDirectionIsBackward(order);
	probe->keys = palloc0(Max(key_count, 1) * sizeof(ProbeKey));
	for (int i = 0; i < key_count; i++)
		fb_take_key(probe, &keys[i], runtime, runtime_count, join, outer);
	while (probe->search.keysz < IndexRelationGetNumberOfKeyAttributes(index) &&
		   fb_take_column(probe, index, probe->search.keysz + 1))
	{
		ProbeKey   *key = &probe->keys[probe->prefix[probe->search.keysz++]];

		varies |= key->column > 0 || key->element;
	}
	if (!varies)
		return NULL;
	_bt_metaversion(index, &probe->search.heapkeyspace, &probe->search.allequalimage);
	return probe;
}

/*
 * Makes a probe for rows that equal other rows in the leading columns of an index: each is compared with the column of
 * the same number. Returns NULL if comparing them may have effects.
 */
FbProbe *
fb_probe_make_equal(IndexScanDesc *scan, TupleDesc rows)
{
	Relation	index = (*scan)->indexRelation;
	FbProbe    *probe = palloc0(sizeof(FbProbe));

	probe->scan = scan;
	probe->keys = palloc0(rows->natts * sizeof(ProbeKey));
	for (int i = 0; i < rows->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(rows, i);
		ProbeKey   *key = &probe->keys[i];
		Oid			own_type = index->rd_opcintype[i];

		key->column = i + 1;
		key->length = column->attlen;
		key->searched = true;
		probe->prefix[i] = i;
		if (!fb_search_column(&probe->search, index, i + 1,
							  IsBinaryCoercible(column->atttypid, own_type) ? own_type : column->atttypid,
							  index->rd_indcollation[i]))
			return NULL;
	}
	probe->key_count = probe->search.keysz = rows->natts;
	_bt_metaversion(index, &probe->search.heapkeyspace, &probe->search.allequalimage);
	return probe;
}

/* Sets the values of an outer row, or an element. Returns false if the scan finds nothing for it, or may not. */
bool
fb_probe_set(FbProbe *probe, TupleTableSlot *row, Datum element)
{
	for (int i = 0; i < probe->key_count; i++)
	{
		ProbeKey   *key = &probe->keys[i];
		bool		null = false;

		if (key->column > 0)
		{
			key->own.sk_argument = slot_getattr(row, key->column, &null);
			if (!null && key->length == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(key->own.sk_argument)))
				return false;
		}
		else if (key->element)
			key->own.sk_argument = element;
		else
		{
			null = (key->live->sk_flags & SK_ISNULL) != 0;
			key->own.sk_argument = key->live->sk_argument;
		}
		if (null)
			return false;
	}
	for (int i = 0; i < probe->search.keysz; i++)
		probe->search.scankeys[i].sk_argument = probe->keys[probe->prefix[i]].own.sk_argument;
	return true;
}

/* Whether the values are after an entry; equal values are if the scan goes backward. */
static bool
fb_lie_behind(BTScanInsert search, Relation index, Page page, OffsetNumber at)
{
	return _bt_compare(index, search, page, at) >= (search->nextkey ? 0 : 1);
}

/* The first entry of a page that the values are not after; one past the last entry if there is none. */
static OffsetNumber
fb_first_not_before(BTScanInsert search, Relation index, Page page, BTPageOpaque links)
{
	OffsetNumber low = P_FIRSTDATAKEY(links);
	OffsetNumber high = PageGetMaxOffsetNumber(page) + 1;

	while (low < high)
	{
		OffsetNumber middle = low + (high - low) / 2;

		if (fb_lie_behind(search, index, page, middle))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Whether all matching entries are to the right of a page, because it was split. */
static bool
fb_is_right_of(BTScanInsert search, Relation index, Page page, BTPageOpaque links)
{
	return !P_RIGHTMOST(links) && fb_lie_behind(search, index, page, P_HIKEY);
}

/* The leaf for a search key; invalid if there is none, or finding it needs a read that is not permitted. */
BlockNumber
fb_descend(Relation index, Relation heap, BTScanInsert search, bool may_read)
{
	Buffer		buffer = FbGetRoot(index, heap);
	BlockNumber next;

	if (buffer == InvalidBuffer)
		return InvalidBlockNumber;
	for (;;)
	{
		Page		page = BufferGetPage(buffer);
		BTPageOpaque links = fb_page_links(page);
		uint32		level;

		if (links == NULL || P_ISLEAF(links) || P_IGNORE(links))
		{
			next = links != NULL && P_ISLEAF(links) ? BufferGetBlockNumber(buffer) : InvalidBlockNumber;
			break;
		}
		level = links->btpo_level;
		if (fb_is_right_of(search, index, page, links))
			next = links->btpo_next;
		else
		{
			OffsetNumber at = fb_first_not_before(search, index, page, links);

			/* The first downlink of a page covers everything before the second. */
			at = Max(OffsetNumberPrev(at), P_FIRSTDATAKEY(links));
			if (at > PageGetMaxOffsetNumber(page))
			{
				next = InvalidBlockNumber;
				break;
			}
			next = BTreeTupleGetDownLink((IndexTuple) PageGetItem(page, PageGetItemId(page, at)));
			level--;
		}
		if (level == 0)
			break;
		if (!may_read && !fb_in_buffers(index, next))
		{
			next = InvalidBlockNumber;
			break;
		}
		/* Like _bt_relandgetbuf, but without its error for a damaged page. */
		LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
		buffer = ReleaseAndReadBuffer(buffer, index, next);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
	}
	UnlockReleaseBuffer(buffer);
	return next;
}

/* Whether the entries for the values that were set begin on a leaf that is in shared buffers, after its first entry. */
static bool
fb_begins_on(FbProbe *probe, Relation index, BlockNumber leaf)
{
	Buffer		buffer;
	Page		page;
	BTPageOpaque links;
	bool		begins;

	if (!fb_in_buffers(index, leaf))
		return false;
	buffer = ReadBuffer(index, leaf);
	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
	links = fb_page_links(page);
	begins = links != NULL && P_ISLEAF(links) && !P_IGNORE(links) &&
		P_FIRSTDATAKEY(links) <= PageGetMaxOffsetNumber(page) &&
		fb_lie_behind(&probe->search, index, page, P_FIRSTDATAKEY(links)) &&
		!fb_is_right_of(&probe->search, index, page, links);
	UnlockReleaseBuffer(buffer);
	return begins;
}

/*
 * The leaf for the values that were set; invalid if there is none, or finding it needs a read that is not permitted.
 * Where values ascend, hundreds lie on one leaf: it is tried first, which is cheaper than to descend.
 */
BlockNumber
fb_probe_leaf(FbProbe *probe, bool may_read)
{
	IndexScanDesc desc = *probe->scan;
	BlockNumber leaf;

	if (probe->again && fb_begins_on(probe, desc->indexRelation, probe->leaf))
		return probe->leaf;
	leaf = fb_descend(desc->indexRelation, desc->heapRelation, &probe->search, may_read);
	probe->again = leaf != InvalidBlockNumber && leaf == probe->leaf;
	probe->leaf = leaf;
	return leaf;
}

/* Whether an entry of the leaf matches all known conditions of the scan. */
static bool
fb_probe_matches(FbProbe *probe, Relation index, IndexTuple row)
{
	for (int i = 0; i < probe->key_count; i++)
	{
		ScanKey		key = &probe->keys[i].own;
		bool		null;
		Datum		value;

		if (probe->keys[i].searched)
			continue;
		value = index_getattr(row, key->sk_attno, RelationGetDescr(index), &null);
		if (null || !DatumGetBool(FunctionCall2Coll(&key->sk_func, key->sk_collation, value, key->sk_argument)))
			return false;
	}
	return true;
}

/*
 * Copies the places of the rows on a leaf, up to `most`, and returns how many; sets *longer if there may be more.
 * *spent_ns is how long reading the leaf took, less than 0 if it was in shared buffers.
 */
int
fb_probe_look(FbProbe *probe, BlockNumber leaf, ItemPointerData *rows, int most, bool may_read,
			  bool *longer, int64 *spent_ns)
{
	Relation	index = (*probe->scan)->indexRelation;
	bool		backward = probe->search.nextkey;
	int			count = 0;

	*longer = false;
	*spent_ns = -1;
	/* The second page is for entries that begin just after the first, or were moved there. */
	for (int pages = 0; pages < 2 && count == 0 && !*longer; pages++)
	{
		int64		reads = pgBufferUsage.shared_blks_read;
		instr_time	since;
		Buffer		buffer;
		Page		page;
		BTPageOpaque links;
		OffsetNumber at;
		OffsetNumber last;
		bool		right;

		if (leaf == P_NONE || leaf == InvalidBlockNumber)
			break;
		if (!may_read && !fb_in_buffers(index, leaf))
		{
			*longer = true;
			break;
		}
		INSTR_TIME_SET_CURRENT(since);
		buffer = ReadBuffer(index, leaf);
		if (pgBufferUsage.shared_blks_read != reads)
			*spent_ns = Max(*spent_ns, 0) + fb_elapsed_ns(since);
		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buffer);
		links = fb_page_links(page);
		/* The block may have become another kind of page since its number was found. */
		if (links == NULL || !P_ISLEAF(links) || P_IGNORE(links))
		{
			UnlockReleaseBuffer(buffer);
			break;
		}
		last = PageGetMaxOffsetNumber(page);
		right = fb_is_right_of(&probe->search, index, page, links);
		at = right ? last + 1 : fb_first_not_before(&probe->search, index, page, links);
		leaf = right || (!backward && at > last && !P_RIGHTMOST(links)) ? links->btpo_next : P_NONE;
		if (backward && !right)
			at--;
		for (; at >= P_FIRSTDATAKEY(links) && at <= last && !*longer; at += backward ? -1 : 1)
		{
			ItemId		item = PageGetItemId(page, at);
			IndexTuple	row = (IndexTuple) PageGetItem(page, item);
			ItemPointer found;
			int			found_count;

			if (_bt_compare(index, &probe->search, page, at) != 0)
				break;
			if (ItemIdIsDead(item) || !fb_probe_matches(probe, index, row))
				continue;
			found = fb_rows_of_entry(row, &found_count);
			for (int i = 0; i < found_count && count < most; i++)
				rows[count++] = found[i];
			*longer = count == most;
		}
		/* The rows of these values continue after the page. */
		if (count > 0 && (at > last ? !P_RIGHTMOST(links) : at < P_FIRSTDATAKEY(links) && !P_LEFTMOST(links)))
			*longer = true;
		UnlockReleaseBuffer(buffer);
	}
	return count;
}
