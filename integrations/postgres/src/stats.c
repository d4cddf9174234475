/*
 * Counters of look-ahead for each index: the view forebay_stat_indexes.
 *
 * If the library is in shared_preload_libraries the counters are the server's, in shared memory of a size fixed
 * at its start; otherwise the session's. A scan adds its counts once, when it ends. All indexes that do not fit are
 * counted together, in an entry without a name. The next reader removes the entries of dropped indexes.
 *
 * A scan that has not waited has only a few rows to count, often one, and another follows soon. Its session keeps the
 * counts of some of them, and adds them together: a look-up of a single row does not touch the table. They are
 * added at the latest when the session reads the view or ends.
 *
 * A scan that an error ended adds its counts while its memory is being freed. So adding raises no errors: it allocates
 * no session memory (fb_stats_expect has done that), and if shared memory is full it uses the entry for others.
 *
 * Lock order: the only lock here is taken with no other held, and only the hash table is called under it.
 */
#include "forebay.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "compat.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#define TRANCHE "forebay"
/* How many indexes have pending counts, and for at most how many scans and rows. */
#define PENDING_INDEXES 4096
#define PENDING_SCANS 64
#define PENDING_ROWS 1024
/* Columns of the function: the index, and one for each counter. */
#define COLUMNS (FB_STATS + 1)

typedef struct Key
{
	Oid			database;
	Oid			index;			/* both invalid: the entry for others */
} Key;

typedef struct Entry
{
	Key			key;
	pg_atomic_uint64 values[FB_STATS];
} Entry;

/* The source of one row of the function. */
typedef struct Row
{
	Key			key;
	uint64		values[FB_STATS];
} Row;

/* Counts of an index that are not in the table yet. */
typedef struct Pending
{
	Oid			index;			/* in the session's own table it has an entry; invalid if there are no counts */
	uint32		scans;			/* 0 if there are none */
	uint64		rows;
} Pending;

static int	indexes_max = 5000;

/* By the index's OID modulo PENDING_INDEXES. */
static Pending pending[PENDING_INDEXES];

/* The table, in shared memory or of the session; NULL until it is created. */
static HTAB *entries = NULL;
/* NULL if the table is the session's. */
static LWLock *lock = NULL;

static void fb_stats_exit(int code, Datum arg);

static shmem_startup_hook_type next_startup = NULL;
#if PG_VERSION_NUM >= 150000
static shmem_request_hook_type next_request = NULL;
#endif

static void
fb_stats_acquire(LWLockMode mode)
{
	if (lock != NULL)
		LWLockAcquire(lock, mode);
}

static void
fb_stats_release(void)
{
	if (lock != NULL)
		LWLockRelease(lock);
}

/* An index's entry, created if necessary; NULL if there is no room. */
static Entry *
fb_stats_enter(Key key, HASHACTION action)
{
	bool		found;
	Entry	   *entry;

	if (hash_get_num_entries(entries) > indexes_max)
		action = HASH_FIND;
	entry = hash_search(entries, &key, action, &found);
	if (entry != NULL && !found)
		for (int i = 0; i < FB_STATS; i++)
			pg_atomic_init_u64(&entry->values[i], 0);
	return entry;
}

static HASHCTL
fb_stats_layout(void)
{
	HASHCTL		control = {.keysize = sizeof(Key), .entrysize = sizeof(Entry)};

	return control;
}

static const Key others = {InvalidOid, InvalidOid};

/* Requests the shared memory. */
static void
fb_shmem_request(void)
{
#if PG_VERSION_NUM >= 150000
	if (next_request)
		next_request();
#endif
	RequestAddinShmemSpace(add_size(hash_estimate_size(indexes_max + 1, sizeof(Entry)), fb_budget_size()));
	RequestNamedLWLockTranche(TRANCHE, 1);
}

/* Creates the table and the budget in shared memory, or attaches to them. */
static void
fb_shmem_startup(void)
{
	HASHCTL		control = fb_stats_layout();

	if (next_startup)
		next_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	lock = &GetNamedLWLockTranche(TRANCHE)->lock;
	entries = FbShmemInitHash("forebay", indexes_max + 1, &control, HASH_ELEM | HASH_BLOBS);
	fb_stats_enter(others, HASH_ENTER);
	fb_budget_attach();
	LWLockRelease(AddinShmemInitLock);
}

/* Defines the setting, and requests shared memory while the server starts. */
void
fb_stats_init(void)
{
	bool		preloaded = process_shared_preload_libraries_in_progress;

	DefineCustomIntVariable("forebay.stat_indexes_max",
							"For how many indexes forebay_stat_indexes has room.",
							"What is done for others is counted in one row without a name.",
							&indexes_max, 5000, 100, 1000000,
							preloaded ? PGC_POSTMASTER : PGC_SIGHUP, 0, NULL, NULL, NULL);
	if (!preloaded)
		return;
	next_startup = shmem_startup_hook;
	shmem_startup_hook = fb_shmem_startup;
#if PG_VERSION_NUM >= 150000
	next_request = shmem_request_hook;
	shmem_request_hook = fb_shmem_request;
#else
	fb_shmem_request();
#endif
}

/* Creates an index's entry in the session's own table. */
static pg_noinline void
fb_stats_expect_own(Oid index)
{
	Key			key = {MyDatabaseId, index};

	if (entries == NULL)
	{
		HASHCTL		control = fb_stats_layout();

		control.hcxt = TopMemoryContext;
		entries = hash_create("forebay", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		fb_stats_enter(others, HASH_ENTER);
	}
	fb_stats_enter(key, HASH_ENTER);
}

/* An index is about to be scanned: makes sure that its counts can be added without an error. */
void
fb_stats_expect(Oid index)
{
	static bool prepared = false;

	if (lock == NULL)
	{
		if (pending[index % PENDING_INDEXES].index != index)
			fb_stats_expect_own(index);
	}
	else if (!prepared)
	{
		on_shmem_exit(fb_stats_exit, 0);
		prepared = true;
	}
}

/* Adds to the counters of an index, one by one. Raises no errors. */
static void
fb_stats_write(Oid index, const uint64 *added)
{
	Key			key = {MyDatabaseId, index};
	Entry	   *entry;

	if (entries == NULL)
		return;
	fb_stats_acquire(LW_SHARED);
	entry = fb_stats_enter(key, HASH_FIND);
	if (entry == NULL && lock != NULL && hash_get_num_entries(entries) <= indexes_max)
	{
		fb_stats_release();
		fb_stats_acquire(LW_EXCLUSIVE);
		entry = fb_stats_enter(key, HASH_ENTER_NULL);
	}
	if (entry == NULL)
		entry = fb_stats_enter(others, HASH_FIND);
	if (entry != NULL)
		for (int i = 0; i < FB_STATS; i++)
			if (added[i] != 0)
				pg_atomic_fetch_add_u64(&entry->values[i], added[i]);
	fb_stats_release();
}

static void
fb_stats_flush(Pending *one)
{
	uint64		added[FB_STATS] = {[FB_SCANS] = one->scans, [FB_ROWS] = one->rows};

	if (one->scans > 0)
		fb_stats_write(one->index, added);
	one->index = InvalidOid;
	one->scans = 0;
	one->rows = 0;
}

static void
fb_stats_flush_all(void)
{
	for (int i = 0; i < PENDING_INDEXES; i++)
		fb_stats_flush(&pending[i]);
}

static void
fb_stats_exit(int code, Datum arg)
{
	fb_stats_flush_all();
}

/* Adds the counts of a scan to its index; `counts` is NULL if its reads have not waited. Raises no errors. */
void
fb_stats_add(Oid index, uint64 scans, uint64 rows, const struct fbl_counts *counts)
{
	Pending    *one = &pending[index % PENDING_INDEXES];

	if (counts != NULL || scans >= PENDING_SCANS || rows >= PENDING_ROWS)
	{
		uint64		added[FB_STATS] = {[FB_SCANS] = scans, [FB_ROWS] = rows};

		if (counts != NULL)
		{
			added[FB_PREFETCHED] = counts->asked;
			added[FB_USEFUL] = counts->useful;
			added[FB_WASTED] = counts->asked - counts->useful;
			added[FB_RESIDENT] = counts->resident;
			added[FB_WAITED_NS] = counts->waited_ns;
		}
		fb_stats_write(index, added);
		return;
	}
	if (one->index != index)
		fb_stats_flush(one);
	one->index = index;
	one->scans += scans;
	one->rows += rows;
	if (one->scans >= PENDING_SCANS || one->rows >= PENDING_ROWS)
		fb_stats_flush(one);
}

/* Adds the counts of the inserts into an index by one command. Raises no errors. */
void
fb_stats_add_inserts(Oid index, const struct fbl_counts *counts)
{
	uint64		added[FB_STATS] = {
		[FB_INSERT_PREFETCHED] = counts->asked,
		[FB_INSERT_USEFUL] = counts->useful,
		[FB_INSERT_WAITED_NS] = counts->waited_ns,
	};

	fb_stats_write(index, added);
}

/* Whether an entry's index exists. One whose creation is not committed does not: it gets a new entry afterwards. */
static bool
fb_stats_index_exists(Key key)
{
	if (!OidIsValid(key.index))
		return true;
	if (key.database != MyDatabaseId)
		return SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(key.database));
	return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(key.index));
}

/* Copies all entries, and removes those of dropped indexes. Returns *count rows. */
static Row *
fb_stats_copy_rows(int *count)
{
	Row		   *rows;
	HASH_SEQ_STATUS each;
	Entry	   *entry;
	int			copied = 0;
	int			kept = 0;
	long		room;

	*count = 0;
	if (entries == NULL)
		return NULL;
	fb_stats_flush_all();
	fb_stats_acquire(LW_SHARED);
	room = hash_get_num_entries(entries);
	fb_stats_release();
	/* Entries added in between are left to the next call. */
	rows = palloc(room * sizeof(Row));
	fb_stats_acquire(LW_SHARED);
	hash_seq_init(&each, entries);
	while ((entry = hash_seq_search(&each)) != NULL)
	{
		if (copied == room)
		{
			hash_seq_term(&each);
			break;
		}
		rows[copied].key = entry->key;
		for (int i = 0; i < FB_STATS; i++)
			rows[copied].values[i] = pg_atomic_read_u64(&entry->values[i]);
		copied++;
	}
	fb_stats_release();
	for (int i = 0; i < copied; i++)
	{
		if (fb_stats_index_exists(rows[i].key))
			rows[kept++] = rows[i];
		else
		{
			fb_stats_acquire(LW_EXCLUSIVE);
			hash_search(entries, &rows[i].key, HASH_REMOVE, NULL);
			fb_stats_release();
		}
	}
	*count = kept;
	return rows;
}

PG_FUNCTION_INFO_V1(forebay_stat_indexes);

/* Whether the caller may see a row; every user may see the row without an index. */
static bool
fb_stats_may_see(Key key)
{
	return !OidIsValid(key.index) ||
		(key.database == MyDatabaseId &&
		 (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) || fb_may_read(key.index, GetUserId())));
}

/*
 * A row for each index of this database that was scanned, or whose inserts have waited, and one, with index NULL, for all
 * that had no room.
 */
Datum
forebay_stat_indexes(PG_FUNCTION_ARGS)
{
	FuncCallContext *call;
	Row		   *rows;

	if (SRF_IS_FIRSTCALL())
	{
		MemoryContext before;
		TupleDesc	columns;
		int			count;

		call = SRF_FIRSTCALL_INIT();
		before = MemoryContextSwitchTo(call->multi_call_memory_ctx);
		if (get_call_result_type(fcinfo, NULL, &columns) != TYPEFUNC_COMPOSITE || columns->natts != COLUMNS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the SQL of the extension forebay is not of this library's version"),
					 errhint("Run ALTER EXTENSION forebay UPDATE.")));
		call->tuple_desc = BlessTupleDesc(columns);
		call->user_fctx = fb_stats_copy_rows(&count);
		call->max_calls = count;
		MemoryContextSwitchTo(before);
	}
	call = SRF_PERCALL_SETUP();
	rows = call->user_fctx;
	while (call->call_cntr < call->max_calls)
	{
		Row		   *row = &rows[call->call_cntr];
		Datum		values[COLUMNS];
		bool		nulls[COLUMNS] = {false};

		if ((row->values[FB_SCANS] == 0 && row->values[FB_INSERT_WAITED_NS] == 0) || !fb_stats_may_see(row->key))
		{
			call->call_cntr++;
			continue;
		}
		values[0] = ObjectIdGetDatum(row->key.index);
		nulls[0] = !OidIsValid(row->key.index);
		for (int i = 0; i < FB_STATS; i++)
			values[i + 1] = i == FB_WAITED_NS || i == FB_INSERT_WAITED_NS
				? Float8GetDatum(row->values[i] / 1e6) : Int64GetDatum(row->values[i]);
		SRF_RETURN_NEXT(call, HeapTupleGetDatum(heap_form_tuple(call->tuple_desc, values, nulls)));
	}
	SRF_RETURN_DONE(call);
}

PG_FUNCTION_INFO_V1(forebay_stat_reset);

/* Resets the counters of all indexes of this database, and the entry for others. */
Datum
forebay_stat_reset(PG_FUNCTION_ARGS)
{
	HASH_SEQ_STATUS each;
	Entry	   *entry;

	if (entries == NULL)
		PG_RETURN_VOID();
	fb_stats_flush_all();
	fb_stats_acquire(LW_EXCLUSIVE);
	hash_seq_init(&each, entries);
	while ((entry = hash_seq_search(&each)) != NULL)
	{
		bool		is_others = !OidIsValid(entry->key.index);

		if (!is_others && entry->key.database != MyDatabaseId)
			continue;
		/* Scans that still run rely on the session's own entries. */
		if (lock != NULL && !is_others)
			hash_search(entries, &entry->key, HASH_REMOVE, NULL);
		else
			for (int i = 0; i < FB_STATS; i++)
				pg_atomic_write_u64(&entry->values[i], 0);
	}
	fb_stats_release();
	PG_RETURN_VOID();
}
