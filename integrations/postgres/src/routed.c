/*
 * The rows of an INSERT into a partitioned table that are routed to one of its partitions.
 *
 * They are recognized by the partition's constraint, which is evaluated for rows ahead.
 *
 * Failure: constraints and partition keys that call functions which are not the server's own are refused.
 */
#include "forebay.h"

#include "access/relation.h"
#include "access/transam.h"
#include "access/tupconvert.h"
#include "catalog/partition.h"
#include "compat.h"
#include "executor/executor.h"
#include "utils/partcache.h"
#include "utils/rel.h"

/* How rows of a partitioned table become rows of one partition. */
struct FbRouted
{
	ExprState  *constraint;
	TupleConversionMap *map;	/* NULL if the columns are the same */
	TupleTableSlot *slot;
};

/* The row as it is in the partition; NULL if it is not routed there. */
TupleTableSlot *
fb_routed_row(FbInserts *inserts, TupleTableSlot *row)
{
	FbRouted   *routed = inserts->routed;
	ExprContext *context = GetPerTupleExprContext(inserts->estate);

	if (routed->map != NULL)
		row = execute_attr_map_slot(routed->map->attrMap, row, routed->slot);
	ResetExprContext(context);
	context->ecxt_scantuple = row;
	inserts->elsewhere = !ExecQual(routed->constraint, context);
	return inserts->elsewhere ? NULL : row;
}

/* Whether routing a row to a partition calls only functions of the server itself. */
static bool
fb_routing_is_plain(Relation partition, List *constraint)
{
	List	   *ancestors = get_partition_ancestors(RelationGetRelid(partition));
	ListCell   *each;

	if (fb_calls_others((Node *) constraint, NULL))
		return false;
	foreach(each, ancestors)
	{
		/* The command has locked it. */
		Relation	ancestor = relation_open(lfirst_oid(each), NoLock);
		PartitionKey key = RelationGetPartitionKey(ancestor);
		bool		plain = true;

		for (int i = 0; i < key->partnatts; i++)
			plain = plain && key->partsupfunc[i].fn_oid < FirstNormalObjectId;
		relation_close(ancestor, NoLock);
		if (!plain)
			return false;
	}
	return true;
}

/*
 * Prepares this for rows of a table that are routed to the partition of the inserts, in the memory of the command. Returns
 * false if recognizing a row could have effects.
 */
bool
fb_prepare_routed(FbInserts *inserts, Relation root)
{
	List	   *constraint = RelationGetPartitionQual(inserts->heap);
	FbRouted   *routed = palloc(sizeof(FbRouted));

	if (!fb_routing_is_plain(inserts->heap, constraint))
		return false;
	inserts->estate = CreateExecutorState();
	routed->constraint = ExecPrepareQual(constraint, inserts->estate);
	routed->map = convert_tuples_by_name(RelationGetDescr(root), RelationGetDescr(inserts->heap));
	routed->slot = FbMakeSlot(CreateTupleDescCopyConstr(RelationGetDescr(inserts->heap)), &TTSOpsVirtual);
	inserts->routed = routed;
	return true;
}
