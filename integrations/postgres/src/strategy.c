/*
 * Readahead strategies: access hints to the kernel about how a relation is being read.
 *
 * The kernel guesses from the reads of a descriptor whether more will follow, and reads ahead for it. The executor does
 * not have to guess: a plan says which relations it reads, and how. posix_fadvise() on the backend's own
 * descriptors of a relation's segments passes that on:
 *
 *	os			no advice
 *	hint		sequential scans and VACUUM: SEQUENTIAL; index and bitmap scans, ANALYZE: RANDOM
 *	max			SEQUENTIAL, for every access
 *	adaptive	as hint where reads have been seen to cost less with it, otherwise no advice
 *
 * Advice is set while a query, or a VACUUM, that wants it runs. The FbFile of a relation counts its readers, by
 * access; the advice is the one on which all of them agree, and NORMAL if they disagree or there is no reader. It is
 * computed again when a reader begins or ends, and when the setting changes, also at the end of a transaction. A reader
 * belongs to a memory context, and ends with it, however that ends.
 *
 * Adaptive: a trial by forebay-lookahead for each relation and access in a session, between no advice and the hint,
 * by the time that the scan node takes from one block that it reads to the next. The trial is for the heap in index
 * scans and for the index in index-only scans. An index under an index scan or bitmap gets no advice, as its reads
 * cannot be distinguished.
 *
 * It relies on segments.c. A descriptor that fd.c closes when too many files are open loses its advice, and a new
 * segment of a relation has none: the next query sets it. Catalogs never get advice. On 18, reads by I/O workers
 * (io_method=worker) go through the workers' own descriptors, which no other process can advise.
 *
 * Failure: the result of posix_fadvise() is ignored. Out of memory fails the query that begins, as anywhere in it.
 */
#include "forebay.h"

#include <fcntl.h>

#include "access/relation.h"
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "compat.h"
#include "storage/fd.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* Where the system has no posix_fadvise(), the setting is refused; the numbers do not matter. */
#if !defined(POSIX_FADV_NORMAL) || !defined(USE_POSIX_FADVISE)
#define FB_NO_ADVICE
#undef POSIX_FADV_NORMAL
#undef POSIX_FADV_RANDOM
#undef POSIX_FADV_SEQUENTIAL
#define POSIX_FADV_NORMAL 0
#define POSIX_FADV_RANDOM 1
#define POSIX_FADV_SEQUENTIAL 2
#endif

/* Up to this many segments, relations are always advised; larger ones if a scan expects as many rows as segments. */
#define SEGMENTS_FEW 64
/* Most relations whose trials are kept. */
#define FILES_MOST 512
/* Blocks that the kernel may have read ahead when the advice changes: 8 MiB, the largest setting seen in use. */
#define KNOWN_SEQUENTIAL (8 * 1024 * 1024 / BLCKSZ)
#define KNOWN_RANDOM 32
/* A block that takes longer has waited for the disk: a system call, and two bytes a nanosecond. */
#define WAITING_NS (12000 + BLCKSZ / 2)

typedef enum Strategy
{
	STRATEGY_OS,
	STRATEGY_HINT,
	STRATEGY_MAX,
	STRATEGY_ADAPTIVE
} Strategy;

static const struct config_enum_entry strategy_names[] = {
	{"os", STRATEGY_OS, false},
	{"hint", STRATEGY_HINT, false},
	{"max", STRATEGY_MAX, false},
	{"adaptive", STRATEGY_ADAPTIVE, false},
	{NULL, 0, false}
};

static int	strategy = STRATEGY_OS;

/* A relation's main fork that is being read, or has a trial. */
struct FbFile
{
	FbLocator	key;
	/* Readers, by access. */
	int			readers[FB_ACCESSES];
	/* The advice set on its descriptors. */
	int			advice;
	/* NULL until `adaptive` wants one. */
	struct fbl_trial *trials[FB_ACCESSES];
};

static HTAB *files = NULL;

/* One relation that a reader reads in one mode. */
typedef struct Use
{
	slist_node	link;
	FbFile	   *file;
	FbAccess	access;
} Use;

/* A query, or a VACUUM: lives in a memory context, and ends with it. */
struct FbReader
{
	MemoryContext context;
	slist_head	uses;
	slist_head	watches;
	MemoryContextCallback on_free;
};

/* Sets advice on the open descriptors of a file; closed ones are opened if there are few. */
static void
fb_apply_advice(FbFile *file, int advice)
{
	SMgrRelation smgr = FbSmgrOpen(file->key);
	File		segment;
	off_t		offset;

	for (BlockNumber block = 0; fb_segment_of(smgr, block, &segment, &offset); block += RELSEG_SIZE)
	{
		int			fd = FileGetRawDesc(segment);

		if (fd < 0 && advice != POSIX_FADV_NORMAL && block / RELSEG_SIZE < SEGMENTS_FEW &&
			FileSize(segment) >= 0)
			fd = FileGetRawDesc(segment);
#ifndef FB_NO_ADVICE
		if (fd >= 0)
			(void) posix_fadvise(fd, 0, 0, advice);
#endif
	}
	file->advice = advice;
}

/* The advice for one access. */
static int
fb_advice_for(FbFile *file, FbAccess access, Strategy by)
{
	bool		sequential = access == FB_SEQUENTIAL || access == FB_VACUUM;

	switch (by)
	{
		case STRATEGY_MAX:
			return POSIX_FADV_SEQUENTIAL;
		case STRATEGY_HINT:
			break;
		case STRATEGY_ADAPTIVE:
			if (fbl_trial_second(file->trials[access]))
				break;
			return POSIX_FADV_NORMAL;
		default:
			return POSIX_FADV_NORMAL;
	}
	return sequential ? POSIX_FADV_SEQUENTIAL : POSIX_FADV_RANDOM;
}

/* The advice on which all readers of a file agree. */
static int
fb_advice_of(FbFile *file, Strategy by)
{
	int			advice = -1;

	for (int access = 0; access < FB_ACCESSES; access++)
	{
		int			wanted;

		if (file->readers[access] == 0)
			continue;
		wanted = fb_advice_for(file, access, by);
		if (advice >= 0 && advice != wanted)
			return POSIX_FADV_NORMAL;
		advice = wanted;
	}
	return advice < 0 ? POSIX_FADV_NORMAL : advice;
}

static void
fb_update_advice(FbFile *file, Strategy by)
{
	int			advice = fb_advice_of(file, by);

	if (advice != file->advice)
		fb_apply_advice(file, advice);
}

/* Removes a file without readers, unless it has a trial and there is room. */
static void
fb_file_forget(FbFile *file)
{
	bool		learnt = false;

	for (int access = 0; access < FB_ACCESSES; access++)
	{
		if (file->readers[access] != 0)
			return;
		learnt |= file->trials[access] != NULL;
	}
	if (learnt && hash_get_num_entries(files) <= FILES_MOST)
		return;
	for (int access = 0; access < FB_ACCESSES; access++)
		if (file->trials[access] != NULL)
			pfree(file->trials[access]);
	hash_search(files, &file->key, HASH_REMOVE, NULL);
}

/* Ends a reader: called when its memory context is reset. */
static void
fb_reader_freed(void *arg)
{
	FbReader   *reader = arg;
	slist_iter	each;

	slist_foreach(each, &reader->uses)
	{
		Use		   *use = slist_container(Use, link, each.cur);

		use->file->readers[use->access]--;
		fb_update_advice(use->file, strategy);
		fb_file_forget(use->file);
	}
	fb_watches_release(&reader->watches);
}

static pg_noinline FbReader *
fb_reader_create(MemoryContext context)
{
	FbReader   *reader = MemoryContextAllocZero(context, sizeof(FbReader));

	reader->context = context;
	reader->on_free.func = fb_reader_freed;
	reader->on_free.arg = reader;
	MemoryContextRegisterResetCallback(context, &reader->on_free);
	return reader;
}

/* Begins a reader, which lasts until the context is reset. NULL if there is no advice to give and no trace. */
FbReader *
fb_reader_begin(MemoryContext context)
{
	return strategy == STRATEGY_OS && !fb_trace ? NULL : fb_reader_create(context);
}

/* Adds a relation to a reader, for about `rows` rows; returns its file, or NULL if it gets no advice. */
static FbFile *
fb_read_relation(FbReader *reader, Relation rel, FbAccess access, double rows)
{
	SMgrRelation smgr;
	FbLocator	key;
	FbFile	   *file;
	Use		   *use;
	bool		found;
	int			advice;

	if (strategy == STRATEGY_OS || rel == NULL || RelationGetRelid(rel) < FirstNormalObjectId ||
		!RELKIND_HAS_STORAGE(rel->rd_rel->relkind))
		return NULL;
	/* This opens all of its segments, as the planner does. */
	smgr = RelationGetSmgr(rel);
	if (smgrnblocks(smgr, MAIN_FORKNUM) / RELSEG_SIZE > Max(rows, SEGMENTS_FEW))
		return NULL;
	if (files == NULL)
	{
		HASHCTL		shape = {.keysize = sizeof(FbLocator), .entrysize = sizeof(FbFile)};

		files = hash_create("forebay files", 64, &shape, HASH_ELEM | HASH_BLOBS);
	}
	key = FbLocatorOf(smgr);
	use = MemoryContextAlloc(reader->context, sizeof(Use));
	file = hash_search(files, &key, HASH_ENTER, &found);
	if (!found)
	{
		memset(file->readers, 0, sizeof(file->readers));
		memset(file->trials, 0, sizeof(file->trials));
		file->advice = POSIX_FADV_NORMAL;
	}
	use->file = file;
	use->access = access;
	file->readers[access]++;
	slist_push_head(&reader->uses, &use->link);
	advice = fb_advice_of(file, strategy);
	/* Set again even if unchanged: descriptors opened since then do not have it. */
	if (advice != file->advice || advice != POSIX_FADV_NORMAL)
		fb_apply_advice(file, advice);
	return file;
}

/* Records that reading `blocks` blocks of a file took `spent_ns` nanoseconds, which may change its advice. */
void
fb_file_read(FbFile *file, FbAccess access, uint32 blocks, int64 spent_ns)
{
	fbl_trial_spent(file->trials[access], blocks, spent_ns,
					access == FB_SEQUENTIAL ? KNOWN_SEQUENTIAL : KNOWN_RANDOM);
	fb_update_advice(file, strategy);
}

/* Starts timing a node that reads a relation, if a trial or the trace needs it. */
static void
fb_watch_node(FbReader *reader, PlanState *node, Relation rel, FbAccess access, FbFile *file)
{
	if (strategy != STRATEGY_ADAPTIVE)
		file = NULL;
	if (rel == NULL || (file == NULL && !fb_trace))
		return;
	if (file != NULL && file->trials[access] == NULL)
		file->trials[access] = fbl_trial_init(MemoryContextAlloc(TopMemoryContext, fbl_trial_size()), WAITING_NS);
	fb_watch(reader->context, &reader->watches, node, rel, access, file);
}

/* Registers what a node of a plan reads, after other functions have wrapped the node. */
void
fb_reader_note(FbReader *reader, PlanState *node)
{
	Relation	heap;
	Relation	index;
	FbFile	   *file;
	double		rows = node->plan->plan_rows;

	switch (nodeTag(node))
	{
		case T_SeqScanState:
		case T_TidRangeScanState:
			heap = ((ScanState *) node)->ss_currentRelation;
			file = fb_read_relation(reader, heap, FB_SEQUENTIAL, rows);
			fb_watch_node(reader, node, heap, FB_SEQUENTIAL, file);
			break;
		case T_IndexScanState:
			heap = ((ScanState *) node)->ss_currentRelation;
			fb_read_relation(reader, ((IndexScanState *) node)->iss_RelationDesc, FB_INDEX, rows);
			file = fb_read_relation(reader, heap, FB_INDEX, rows);
			fb_watch_node(reader, node, heap, FB_INDEX, file);
			break;
		case T_IndexOnlyScanState:
			index = ((IndexOnlyScanState *) node)->ioss_RelationDesc;
			fb_read_relation(reader, ((ScanState *) node)->ss_currentRelation, FB_INDEX, rows);
			file = fb_read_relation(reader, index, FB_INDEX, rows);
			fb_watch_node(reader, node, index, FB_INDEX, file);
			break;
		case T_BitmapIndexScanState:
			fb_read_relation(reader, ((BitmapIndexScanState *) node)->biss_RelationDesc, FB_BITMAP, rows);
			break;
		case T_BitmapHeapScanState:
			heap = ((ScanState *) node)->ss_currentRelation;
			file = fb_read_relation(reader, heap, FB_BITMAP, rows);
			fb_watch_node(reader, node, heap, FB_BITMAP, file);
			break;
		default:
			break;
	}
}

/* Registers what a VACUUM or ANALYZE will read of a relation, if the lock is available without waiting. */
static void
fb_vacuum_reads(FbReader *reader, Oid id, bool vacuum)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(id, AccessShareLock))
		return;
	rel = try_relation_open(id, NoLock);
	if (rel != NULL)
	{
		/* ANALYZE reads blocks as a bitmap scan does: ascending, with gaps. */
		fb_read_relation(reader, rel, vacuum ? FB_VACUUM : FB_BITMAP, INT_MAX);
		if (vacuum && rel->rd_rel->relkind != RELKIND_INDEX)
		{
			ListCell   *each;
			List	   *indexes = RelationGetIndexList(rel);

			foreach(each, indexes)
				fb_vacuum_reads(reader, lfirst_oid(each), true);
			list_free(indexes);
			if (OidIsValid(rel->rd_rel->reltoastrelid))
				fb_vacuum_reads(reader, rel->rd_rel->reltoastrelid, true);
		}
		relation_close(rel, NoLock);
	}
	UnlockRelationOid(id, AccessShareLock);
}

/*
 * A VACUUM or ANALYZE begins: registers what it will read of the tables that it names. Returns the memory context that
 * the caller deletes at its end, which outlives its transactions; NULL if there is no advice to give.
 */
MemoryContext
fb_vacuum_begin(VacuumStmt *command)
{
	MemoryContext context;
	FbReader   *reader;
	ListCell   *named;
	ListCell   *child;

	if (strategy == STRATEGY_OS)
		return NULL;
	context = AllocSetContextCreate(CurrentMemoryContext, "forebay vacuum", ALLOCSET_SMALL_SIZES);
	reader = fb_reader_begin(context);
	foreach(named, command->rels)
	{
		VacuumRelation *one = lfirst_node(VacuumRelation, named);
		Oid			id = OidIsValid(one->oid) ? one->oid : RangeVarGetRelid(one->relation, NoLock, true);

		if (OidIsValid(id))
			foreach(child, find_all_inheritors(id, NoLock, NULL))
				fb_vacuum_reads(reader, lfirst_oid(child), command->is_vacuumcmd);
	}
	MemoryContextSetParent(context, TopMemoryContext);
	return context;
}

#ifdef FB_NO_ADVICE
static bool
fb_strategy_check(int *to, void **extra, GucSource source)
{
	if (*to != STRATEGY_OS)
		GUC_check_errdetail("forebay.readahead_strategy must be \"os\" where there is no posix_fadvise().");
	return *to == STRATEGY_OS;
}
#else
#define fb_strategy_check NULL
#endif

/* The setting changes, or is restored as its transaction ends. */
static void
fb_strategy_assign(int to, void *extra)
{
	HASH_SEQ_STATUS each;
	FbFile	   *file;

	if (files == NULL)
		return;
	hash_seq_init(&each, files);
	while ((file = hash_seq_search(&each)) != NULL)
		fb_update_advice(file, to);
}

void
fb_strategy_init(void)
{
	DefineCustomEnumVariable("forebay.readahead_strategy",
							 "What the kernel is advised of how relations are read.",
							 "os: nothing. hint: sequential scans and VACUUM are sequential, index and bitmap scans random. "
							 "max: all is sequential. adaptive: as hint where that was seen to cost less.",
							 &strategy, STRATEGY_OS, strategy_names, PGC_USERSET, 0,
							 fb_strategy_check, fb_strategy_assign, NULL);
}
