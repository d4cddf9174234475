/*
 * How far the sessions of a server look ahead together.
 *
 * Prefetched blocks wait in the kernel's page cache, and requests in the disk's queue. Both belong to the server, so the
 * sessions that prefetch in a tablespace share a budget: a scan is ahead by at most the budget divided by their number. A
 * session counts while it prefetches and for a tenth of a second afterwards, so nothing has to be undone when a query ends
 * or a process is killed.
 *
 * If the library is not in shared_preload_libraries, there is no shared memory, and no budget.
 *
 * Failure: none.
 */
#include "forebay.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/rel.h"

/* Sessions whose process numbers are equal modulo this count as one. */
#define SLOTS 1024
/* How long a session counts after it prefetched, and how often it counts the others. */
#define COUNTS_MS 100
#define COUNT_EVERY_MS 20

static int	server_distance_max = 1024;

/* Where each session prefetched last, and when: the tablespace, and milliseconds modulo 2^32. NULL if it is not shared. */
static pg_atomic_uint64 *slots = NULL;

void
fb_budget_init(void)
{
	DefineCustomIntVariable("forebay.server_distance_max",
							"How many blocks all sessions together look ahead in a tablespace; 0 if there is no limit.",
							"It holds if the library is in shared_preload_libraries.",
							&server_distance_max, 1024, 0, 1000000, PGC_SIGHUP, 0, NULL, NULL, NULL);
}

Size
fb_budget_size(void)
{
	return SLOTS * sizeof(pg_atomic_uint64);
}

/* Creates the slots in shared memory, or attaches to them. */
void
fb_budget_attach(void)
{
	bool		found;

	slots = ShmemInitStruct("forebay budget", fb_budget_size(), &found);
	for (int i = 0; i < SLOTS && !found; i++)
		pg_atomic_init_u64(&slots[i], 0);
}

/* Records that this session prefetches in a tablespace; returns how many sessions do. */
static int
fb_count_sessions(Oid tablespace, uint32 now_ms)
{
	int			sessions = 0;

	pg_atomic_write_u64(&slots[MyProcPid % SLOTS], (uint64) tablespace << 32 | now_ms);
	for (int i = 0; i < SLOTS; i++)
	{
		uint64		slot = pg_atomic_read_u64(&slots[i]);

		sessions += slot >> 32 == tablespace && now_ms - (uint32) slot < COUNTS_MS;
	}
	return sessions;
}

/* How many blocks a scan of this session may be ahead in a tablespace. */
static uint32
fb_share_of(Oid tablespace)
{
	static Oid	last_tablespace = InvalidOid;
	static uint32 last_ms = 0;
	static int	sessions = 1;
	instr_time	now;
	uint32		now_ms;

	if (server_distance_max == 0)
		return FB_DISTANCE_MOST;
	INSTR_TIME_SET_CURRENT(now);
	now_ms = (uint32) (uint64) INSTR_TIME_GET_MILLISEC(now);
	if (tablespace != last_tablespace || now_ms - last_ms >= COUNT_EVERY_MS)
	{
		sessions = Max(1, fb_count_sessions(tablespace, now_ms));
		last_tablespace = tablespace;
		last_ms = now_ms;
	}
	return Max(1, server_distance_max / sessions);
}

/* How many more blocks of a relation to predict now. */
uint32
fb_room(fbl_hints *hints, Relation rel)
{
	/* Most calls end here, without reading the clock. */
	if (fbl_hints_available(hints) == 0)
		return 0;
	if (slots != NULL)
	{
		Oid			tablespace = rel->rd_rel->reltablespace;

		if (!OidIsValid(tablespace))
			tablespace = MyDatabaseTableSpace;
		fbl_hints_set_most(hints, Min((uint32) fb_distance_of(rel), fb_share_of(tablespace)));
	}
	return fbl_hints_available(hints);
}
