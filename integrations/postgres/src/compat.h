/*
 * The differences between PostgreSQL 14 to 19, behind names that are the same for all versions.
 */
#ifndef FB_COMPAT_H
#define FB_COMPAT_H

#if PG_VERSION_NUM < 140000 || PG_VERSION_NUM >= 200000
#error "forebay knows PostgreSQL 14 to 19; use a release of forebay that knows this server, or one of these servers"
#endif

#include "storage/buf_internals.h"
#include "storage/smgr.h"
#include "utils/rel.h"

#if PG_VERSION_NUM >= 160000
#define FbInitBufferTag(tag, rel, fork, block) InitBufferTag(tag, &(rel)->rd_locator, fork, block)
typedef RelFileLocatorBackend FbLocator;
#define FbLocatorOf(smgr) ((smgr)->smgr_rlocator)
#define FbSmgrOpen(key) smgropen((key).locator, (key).backend)
#else
#define FbInitBufferTag(tag, rel, fork, block) INIT_BUFFERTAG(*(tag), (rel)->rd_node, fork, block)
typedef RelFileNodeBackend FbLocator;
#define FbLocatorOf(smgr) ((smgr)->smgr_rnode)
#define FbSmgrOpen(key) smgropen((key).node, (key).backend)
#endif

#if PG_VERSION_NUM >= 160000
#define FbGetRoot(index, heap) _bt_getroot(index, heap, BT_READ)
#else
#define FbGetRoot(index, heap) _bt_getroot(index, BT_READ)
#endif

#if PG_VERSION_NUM >= 150000
#define FbForeignKeyColumns(constraint, count, referring, referred) \
	DeconstructFkConstraintRow(constraint, count, referring, referred, NULL, NULL, NULL, NULL, NULL)
#else
#define FbForeignKeyColumns(constraint, count, referring, referred) \
	DeconstructFkConstraintRow(constraint, count, referring, referred, NULL, NULL, NULL)
#endif

#if PG_VERSION_NUM >= 190000
#define FbTupleDescFinalize(desc) TupleDescFinalize(desc)
#define FbMakeSlot(desc, ops) MakeTupleTableSlot(desc, ops, 0)
#define FbShmemInitHash(name, entries, control, flags) ShmemInitHash(name, entries, control, flags)
#define FbRegisterExplainOption(name, handler) \
	RegisterExtensionExplainOption(name, handler, GUCCheckBooleanExplainOption)
#else
#define FbTupleDescFinalize(desc) ((void) (desc))
#define FbMakeSlot(desc, ops) MakeTupleTableSlot(desc, ops)
#define FbShmemInitHash(name, entries, control, flags) ShmemInitHash(name, entries, entries, control, flags)
#define FbRegisterExplainOption(name, handler) RegisterExtensionExplainOption(name, handler)
#endif

/* random() without arguments. */
#if PG_VERSION_NUM >= 170000
#define FB_F_RANDOM F_RANDOM_
#else
#define FB_F_RANDOM F_RANDOM
#endif

#if PG_VERSION_NUM >= 150000
#define FB_IS_MERGE(node) ((node)->operation == CMD_MERGE)
#else
#define FB_IS_MERGE(node) false
#endif
/* The actions of a MERGE, of which one is executed for a row of the plan; `context` has the row. */
#if PG_VERSION_NUM >= 170000
#define FbMergeActions(result, matched, context) \
	((result)->ri_MergeActions[!(matched) ? MERGE_WHEN_NOT_MATCHED_BY_TARGET : \
							   ExecQual((result)->ri_MergeJoinCondition, (context)) ? MERGE_WHEN_MATCHED : \
							   MERGE_WHEN_NOT_MATCHED_BY_SOURCE])
#else
#define FbMergeActions(result, matched, context) \
	((matched) ? (result)->ri_matchedMergeAction : (result)->ri_notMatchedMergeAction)
#endif

#if PG_VERSION_NUM >= 180000
/* Without the targets that were pruned. */
#define FbUpdatedColumns(node) ((node)->mt_updateColnosLists)
#else
#define FbUpdatedColumns(node) (castNode(ModifyTable, (node)->ps.plan)->updateColnosLists)
#endif

/* The children of an Append that remain for the current values of its parameters. */
#if PG_VERSION_NUM >= 180000
#define FbFindMatchingSubPlans(state) ExecFindMatchingSubPlans(state, false, NULL)
#elif PG_VERSION_NUM >= 150000
#define FbFindMatchingSubPlans(state) ExecFindMatchingSubPlans(state, false)
#else
#define FbFindMatchingSubPlans(state) ExecFindMatchingSubPlans(state)
#endif

#if PG_VERSION_NUM >= 180000
#define FB_RUN_ARGS QueryDesc *query, ScanDirection direction, uint64 count
#define FB_RUN_PASS query, direction, count
#else
#define FB_RUN_ARGS QueryDesc *query, ScanDirection direction, uint64 count, bool once
#define FB_RUN_PASS query, direction, count, once
#endif

#endif
