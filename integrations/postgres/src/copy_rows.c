/*
 * The rows that COPY has put into the table, as the next ones that are inserted into its indexes.
 *
 * COPY puts up to a thousand rows into the table at a time, and then inserts them into each index, one after the other.
 * So when a row is inserted into an index, the rows after it are in the table's pages, which are in shared buffers. The
 * next rows are those that the same command has put behind the current row. A command that inserts one row at a time
 * has none there, and look-ahead stops after a few looks.
 *
 * Failure: none beyond that of reading the table's pages, which the command has just written.
 */
#include "forebay.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/* After this many consecutive rows without a next one, none is looked for while this many are inserted. */
#define LONE_MAX 16
#define LONE_PAUSE 256

static bool
fb_next_copied(FbInserts *inserts, ItemPointer tid, TupleTableSlot **values)
{
	if (!fb_table_rows_next(&inserts->table_rows, tid))
		return false;
	*values = fb_table_rows_stored(&inserts->table_rows, ItemPointerGetOffsetNumber(tid));
	return true;
}

/* A row is inserted: returns its leaf, and makes sure that the rows after it are the next ones. */
static BlockNumber
fb_take_copied(FbInserts *inserts, ItemPointer tid)
{
	while (inserts->head != inserts->tail)
	{
		FbNextRow  *row = &inserts->rows[inserts->head++ % FB_VALUES_MOST];

		if (ItemPointerEquals(&row->tid, tid))
		{
			inserts->lone = 0;
			return row->leaf;
		}
	}
	/* The last row of some, or one elsewhere. */
	if (++inserts->lone < LONE_MAX)
		fb_table_rows_begin(&inserts->table_rows, tid);
	else if (inserts->lone == LONE_MAX + LONE_PAUSE)
		inserts->lone = 0;
	return InvalidBlockNumber;
}

const FbRowSource fb_copied_rows = {fb_next_copied, fb_take_copied};

/* The table of a command; invalid if there is none. Raises no errors: those of the command come in its own order. */
static Oid
fb_table_of(RangeVar *name)
{
	if (name->schemaname != NULL)
		return get_relname_relid(name->relname, get_namespace_oid(name->schemaname, true));
	return RelnameGetRelid(name->relname);
}

/* A COPY begins. Returns whether it checks foreign keys; then the caller must call fb_copied_keys_end. */
bool
fb_copy_begin(CopyStmt *copy)
{
	Oid			relation = copy->is_from && copy->relation != NULL ? fb_table_of(copy->relation) : InvalidOid;
	Relation	heap = OidIsValid(relation) ? fb_try_open(relation) : NULL;
	bool		has_keys;

	if (heap == NULL)
		return false;
	fb_expect_inserts(heap);
	has_keys = fb_copied_keys_begin(heap);
	relation_close(heap, AccessShareLock);
	return has_keys;
}
