/*
 * Page accesses of look-ahead, which must not count as the query's.
 *
 * Look-ahead accesses pages of an index, in shared buffers, before the scan reaches them. The query alone would not, so
 * the counters of EXPLAIN (BUFFERS) and pg_statio are restored. A page that had to be read is a hit for the scan later,
 * but the scan alone would have read it: the scan owes a read, and its next hit is counted as that read. So a scan that
 * reads all its rows shows the hits and reads that it has without the extension.
 *
 * Times are not adjusted. pg_stat_io, which is about processes and not queries, shows all accesses.
 *
 * Failure: accesses counted before an error in a look stay counted.
 */
#include "forebay.h"

#include "executor/instrument.h"
#include "pgstat.h"
#include "utils/rel.h"

#if PG_VERSION_NUM >= 150000
#define COUNTED(rel) pgstat_should_count_relation(rel)
#else
#define COUNTED(rel) ((rel)->pgstat_info != NULL)
#endif
#if PG_VERSION_NUM >= 160000
#define FETCHED(rel) ((rel)->pgstat_info->counts.blocks_fetched)
#define HITS(rel) ((rel)->pgstat_info->counts.blocks_hit)
#else
#define FETCHED(rel) ((rel)->pgstat_info->t_counts.t_blocks_fetched)
#define HITS(rel) ((rel)->pgstat_info->t_counts.t_blocks_hit)
#endif

/* Begins a look: until fb_look_end, the process must access blocks only for it. */
FbLook
fb_look_begin(Relation rel)
{
	FbLook		look = {.rel = rel, .hits = pgBufferUsage.shared_blks_hit, .reads = pgBufferUsage.shared_blks_read};

	if (COUNTED(rel))
	{
		look.stat_fetched = FETCHED(rel);
		look.stat_hits = HITS(rel);
	}
	return look;
}

/* Ends a look and restores the counters. Returns how many blocks it has read. */
int64
fb_look_end(const FbLook *look)
{
	int64		reads = pgBufferUsage.shared_blks_read - look->reads;

	pgBufferUsage.shared_blks_hit = look->hits;
	pgBufferUsage.shared_blks_read = look->reads;
	if (COUNTED(look->rel))
	{
		FETCHED(look->rel) = look->stat_fetched;
		HITS(look->rel) = look->stat_hits;
	}
	return reads;
}

/* A scan that owes reads of its index has had `hits` hits since: counts them as the owed reads. */
void
fb_look_settle(Relation index, int64 *owed, int64 hits)
{
	int64		reads = Min(*owed, hits);

	*owed -= reads;
	pgBufferUsage.shared_blks_hit -= reads;
	pgBufferUsage.shared_blks_read += reads;
	if (COUNTED(index))
		HITS(index) -= reads;
}

/* The links of a b-tree page; NULL if the page is not one, for example new or damaged. */
BTPageOpaque
fb_page_links(Page page)
{
	if (PageIsNew(page) || PageGetSpecialSize(page) != MAXALIGN(sizeof(BTPageOpaqueData)))
		return NULL;
	return (BTPageOpaque) PageGetSpecialPointer(page);
}
