/*
 * The trace of a session's reads: S if a read follows the last one of its scan, R if it does not.
 *
 * Recorded: each call of a scan node (sequential, TID range, index, index-only, bitmap heap) in this backend that
 * read blocks into shared buffers; the block is the scan's position after the call. A sequence may be read
 * several blocks at a time and ahead of the scan: it is one entry with their number. Not recorded: reads of an
 * index under an index scan or bitmap, and of the heap under an index-only scan (their blocks are counted in an entry,
 * or in none), of parallel workers, of VACUUM and other commands.
 *
 * The last FB_TRACE_READS are kept, in memory of the session, until forebay.trace is set off or on again, the session's
 * user or role changes, or DISCARD ALL. Only relations that the caller may read are shown.
 *
 * Failure: out of memory, when the first read of a session is recorded.
 */
#include "forebay.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#define FB_TRACE_READS 8192

typedef struct Read
{
	Oid			relation;
	BlockNumber block;
	uint32		blocks;
	uint8		access;
	bool		sequential;
	int64		spent_ns;
} Read;

bool		fb_trace = false;

static Read *ring = NULL;
/* Reads recorded since the trace was started. */
static uint64 total = 0;
/* The user whose queries are traced; what its functions do as other users counts as its own. */
static Oid	owner = InvalidOid;

static const char *const access_names[FB_ACCESSES] = {"sequential", "index", "bitmap", "vacuum"};

/* Clears the trace if the user or role has changed: another one must not see its reads. */
static void
fb_trace_check_owner(void)
{
	Oid			user = GetOuterUserId();

	if (owner != user)
		total = 0;
	owner = user;
}

void
fb_trace_clear(void)
{
	total = 0;
}

/* Records a read of `blocks` blocks that took `spent_ns` nanoseconds. */
void
fb_trace_read(Oid relation, FbAccess access, BlockNumber block, uint32 blocks, bool sequential, int64 spent_ns)
{
	fb_trace_check_owner();
	if (ring == NULL)
		ring = MemoryContextAlloc(TopMemoryContext, FB_TRACE_READS * sizeof(Read));
	ring[total++ % FB_TRACE_READS] = (Read) {
		.relation = relation,
		.block = block,
		.blocks = blocks,
		.access = access,
		.sequential = sequential,
		.spent_ns = spent_ns,
	};
}

/* forebay_trace(regclass): reads of one relation, or of all. */
PG_FUNCTION_INFO_V1(forebay_trace);
Datum
forebay_trace(PG_FUNCTION_ARGS)
{
	FuncCallContext *call;
	/* The next read to return. */
	uint64	   *next;

	if (SRF_IS_FIRSTCALL())
	{
		TupleDesc	shape;
		MemoryContext before;

		call = SRF_FIRSTCALL_INIT();
		before = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		if (get_call_result_type(fcinfo, NULL, &shape) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");
		call->tuple_desc = BlessTupleDesc(shape);
		call->user_fctx = palloc0(sizeof(uint64));
		MemoryContextSwitchTo(before);
	}
	call = SRF_PERCALL_SETUP();
	next = call->user_fctx;
	fb_trace_check_owner();
	if (total > FB_TRACE_READS)
		*next = Max(*next, total - FB_TRACE_READS);
	for (; *next < total; (*next)++)
	{
		const Read *read = &ring[*next % FB_TRACE_READS];
		Datum		values[7];
		bool		nulls[7] = {false};

		if ((!PG_ARGISNULL(0) && PG_GETARG_OID(0) != read->relation) || !fb_may_read(read->relation, GetUserId()))
			continue;
		values[0] = Int64GetDatum((int64) ++(*next));
		values[1] = ObjectIdGetDatum(read->relation);
		values[2] = CStringGetTextDatum(access_names[read->access]);
		values[3] = CStringGetTextDatum(read->sequential ? "S" : "R");
		values[4] = Int64GetDatum(read->block);
		values[5] = Int32GetDatum((int32) read->blocks);
		values[6] = Float8GetDatum(read->spent_ns / 1e6);
		SRF_RETURN_NEXT(call, HeapTupleGetDatum(heap_form_tuple(call->tuple_desc, values, nulls)));
	}
	SRF_RETURN_DONE(call);
}

static void
fb_trace_assign(bool on, void *extra)
{
	if (!on || !fb_trace)
		fb_trace_clear();
}

void
fb_trace_init(void)
{
	DefineCustomBoolVariable("forebay.trace",
							 "Whether the reads of this session's scans are recorded.",
							 "forebay_trace() and forebay_trace_summary show them.",
							 &fb_trace, false, PGC_USERSET, 0, NULL, fb_trace_assign, NULL);
}
