/*
 * Counters of look-ahead for one scan: EXPLAIN (ANALYZE, FOREBAY) from PostgreSQL 18 on, a DEBUG1 line on all versions.
 *
 * A registered scan is found by its plan node, and its counters are those of this process: parallel workers
 * have their own, which count for the index and in their own lines.
 *
 * Failure: none beyond the failures of EXPLAIN and the log themselves.
 */
#include "forebay.h"

#include "compat.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/rel.h"

/* One scan's counters in one line; distance is the most blocks that it was ahead. */
#define COUNTS_FORMAT "prefetched=" UINT64_FORMAT " useful=" UINT64_FORMAT " resident=" UINT64_FORMAT \
	" waited=%.3f ms distance=" UINT64_FORMAT
#define COUNTS_ARGS(counts) \
	(counts).asked, (counts).useful, (counts).resident, (counts).waited_ns / 1e6, (counts).ahead_most

#if PG_VERSION_NUM >= 180000

#include "commands/defrem.h"
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"

#define OPTION "forebay"

static explain_per_node_hook_type next_node = NULL;
static explain_validate_options_hook_type next_validate = NULL;

/* Handles the option of EXPLAIN: (FOREBAY) or (FOREBAY false). */
static void
fb_explain_option(ExplainState *es, DefElem *option, ParseState *state)
{
	static char wanted;

	SetExplainExtensionState(es, GetExplainExtensionId(OPTION), defGetBoolean(option) ? &wanted : NULL);
}

static bool
fb_explain_is_wanted(ExplainState *es)
{
	return GetExplainExtensionState(es, GetExplainExtensionId(OPTION)) != NULL;
}

/* Without ANALYZE nothing runs, so there is nothing to show. */
static void
fb_explain_validate(ExplainState *es, List *options, ParseState *state)
{
	if (next_validate)
		next_validate(es, options, state);
	if (fb_explain_is_wanted(es) && !es->analyze)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("EXPLAIN option %s requires ANALYZE", "FOREBAY")));
}

/* The counters of a registered node: of an index scan, or of a ModifyTable's inserts into indexes and its foreign keys. */
static bool
fb_explain_counts(PlanState *node, struct fbl_counts *counts)
{
	FbScan	   *scan;

	if (IsA(node, ModifyTableState))
	{
		bool		inserts;
		bool		foreign_keys;

		memset(counts, 0, sizeof(*counts));
		inserts = fb_modify_counts(node, counts);
		foreign_keys = fb_foreign_key_counts(node, counts);
		return inserts || foreign_keys;
	}
	scan = fb_scan_of(node);
	if (scan == NULL)
		return false;
	*counts = fb_scan_counts(scan);
	fb_toast_counts(scan, counts);
	return true;
}

/* Adds the counters to the output for a registered node. */
static void
fb_explain_node(PlanState *node, List *ancestors, const char *relationship, const char *plan, ExplainState *es)
{
	struct fbl_counts counts;

	if (next_node)
		next_node(node, ancestors, relationship, plan, es);
	if (fb_explain_is_wanted(es) && fb_explain_counts(node, &counts))
	{
		if (es->format == EXPLAIN_FORMAT_TEXT)
		{
			ExplainIndentText(es);
			appendStringInfo(es->str, "Forebay: " COUNTS_FORMAT "\n", COUNTS_ARGS(counts));
			return;
		}
		ExplainOpenGroup("Forebay", "Forebay", true, es);
		ExplainPropertyUInteger("Prefetched", NULL, counts.asked, es);
		ExplainPropertyUInteger("Useful", NULL, counts.useful, es);
		ExplainPropertyUInteger("Resident", NULL, counts.resident, es);
		ExplainPropertyFloat("Waited", "ms", counts.waited_ns / 1e6, 3, es);
		ExplainPropertyUInteger("Distance", NULL, counts.ahead_most, es);
		ExplainCloseGroup("Forebay", "Forebay", true, es);
	}
}
#endif

/* Registers the option with EXPLAIN, if the server supports that. */
void
fb_explain_init(void)
{
#if PG_VERSION_NUM >= 180000
	FbRegisterExplainOption(OPTION, fb_explain_option);
	next_validate = explain_validate_options_hook;
	explain_validate_options_hook = fb_explain_validate;
	next_node = explain_per_node_hook;
	explain_per_node_hook = fb_explain_node;
#endif
}

/* Called when a scan ends whose reads have waited: logs its counters at DEBUG1, if that is enabled. */
void
fb_explain_log(FbScan *scan)
{
	struct fbl_counts counts;

	if (!message_level_is_interesting(DEBUG1))
		return;
	/* A client must not see what its functions read as another user. */
	if (client_min_messages <= DEBUG1 && !fb_may_read(scan->index, GetOuterUserId()))
		return;
	counts = fb_scan_counts(scan);
	ereport(DEBUG1,
			(errmsg_internal("forebay: index \"%s\": rows=" UINT64_FORMAT " " COUNTS_FORMAT,
							 RelationGetRelationName((*scan->scan)->indexRelation), scan->row_total,
							 COUNTS_ARGS(counts))));
}
