/*
 * Look-ahead of the checks of foreign keys for the rows of a COPY.
 *
 * COPY checks foreign keys when all of its rows are in the table, but no hook of the server reaches the functions of its
 * triggers. Each check executes a query, though, which begins and runs through our hooks: it locks the row of the other
 * table that has the values in its parameters. foreign_keys.c finds the row of the COPY that has them.
 *
 * Failure: see foreign_keys.c.
 */
#include "forebay.h"

#include "access/relation.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "utils/rel.h"

/* A COPY into a table with foreign keys. */
struct FbCopy
{
	FbCopy	   *outer;			/* a trigger of this one executes it */
	FbQuery		query;
	Oid			table;
	FbCheck		check;
};

/* The innermost COPY that is executed; NULL if there is none. */
FbCopy	   *fb_copy = NULL;

/* A COPY into a table begins. Returns whether it checks foreign keys; then the caller must call fb_copied_keys_end. */
bool
fb_copied_keys_begin(Relation table)
{
	TriggerDesc *triggers = table->trigdesc;
	FbCopy	   *copy;
	EState	   *estate;

	if (triggers == NULL || !triggers->trig_insert_after_row || table->rd_rel->relkind != RELKIND_RELATION ||
		RelationUsesLocalBuffers(table))
		return false;
	estate = CreateExecutorState();
	copy = MemoryContextAllocZero(estate->es_query_cxt, sizeof(FbCopy));
	copy->query.estate = estate;
	copy->table = RelationGetRelid(table);
	for (int i = 0; i < triggers->numtriggers; i++)
		if (TRIGGER_FOR_INSERT(triggers->triggers[i].tgtype))
			fb_foreign_key_make(&copy->query, &triggers->triggers[i], table);
	if (slist_is_empty(&copy->query.foreign_keys))
	{
		FreeExecutorState(estate);
		return false;
	}
	copy->outer = fb_copy;
	fb_copy = copy;
	return true;
}

/* The COPY has ended, possibly by an error. */
void
fb_copied_keys_end(void)
{
	FbCopy	   *copy = fb_copy;

	fb_copy = copy->outer;
	FreeExecutorState(copy->query.estate);
}

/* The table whose rows a query locks by the values of its parameters, if it may be the check of a row; or invalid. */
static Oid
fb_checked_table(QueryDesc *query)
{
	PlanState  *lock = query->planstate;

	if (!IsA(lock, LockRowsState) || !IsA(outerPlanState(lock), IndexScanState) || query->params == NULL)
		return InvalidOid;
	return RelationGetRelid(((ScanState *) outerPlanState(lock))->ss_currentRelation);
}

/* A query is about to run while a COPY is executed; returns whether it is the check of a row. */
bool
fb_copied_key_runs(QueryDesc *query)
{
	Oid			other = fb_checked_table(query);
	FbForeignKey *key = OidIsValid(other) ? fb_foreign_key_to(&fb_copy->query, other, query->params) : NULL;
	Relation	table;

	if (key == NULL)
		return false;
	table = fb_check_needs_table(key) ? relation_open(fb_copy->table, NoLock) : NULL;
	fb_check_begins(&fb_copy->check, key, table, NULL, query->params);
	if (table != NULL)
		relation_close(table, NoLock);
	return true;
}

/* The check has run. */
void
fb_copied_key_ran(void)
{
	Relation	table;

	if (fb_check_was_quiet(&fb_copy->check))
		return;
	table = relation_open(fb_copy->table, NoLock);
	fb_check_ends(&fb_copy->check, table);
	relation_close(table, NoLock);
}
