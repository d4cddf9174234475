/*
 * The parts of the extension, and what each offers the others.
 *
 *	forebay.c	settings, hooks, which nodes of a plan are looked at
 *	index_scan.c	look-ahead of b-tree scans
 *	bitmap.c	look-ahead of bitmap heap scans, until 17
 *	leaf.c		the rows of a b-tree scan that are to come
 *	request.c	whether a block is in shared buffers, and asking the kernel for it
 *	segments.c	the open files that a relation lies in
 *	stats.c		what look-ahead did for each index
 *	explain.c	what it did for a scan, where that is asked for
 *	strategy.c	readahead strategies: telling the kernel how relations are read
 *	watch.c		scan nodes whose reads are timed
 *	trace.c		a session's reads, sequential or not
 */
#ifndef FB_FOREBAY_H
#define FB_FOREBAY_H

#include "postgres.h"

#include "access/nbtree.h"
#include "access/relscan.h"
#include "executor/execdesc.h"
#include "lib/ilist.h"
#include "nodes/execnodes.h"
#include "portability/instr_time.h"
#include "storage/fd.h"

#include "forebay_lookahead.h"

typedef struct fbl_hints fbl_hints;

/* No scan looks ahead by more blocks, whatever is set: what the library remembers. */
#define FB_DISTANCE_MOST 1024

/* Settings. */
extern bool fb_enabled;
extern int	fb_distance_max;

/*
 * One executing query that has something to look ahead for. It lives in the query's memory context, and leaves
 * the list of all when that goes, however it goes.
 */
typedef struct FbQuery
{
	dlist_node	link;
	EState	   *estate;
	/* It is run for a number of rows, by a cursor say: it may stop after any. */
	bool		may_stop;
	dlist_head	scans;			/* of FbScan */
	MemoryContextCallback gone;
} FbQuery;

/* The rows of an index scan that are to come: a cursor that runs ahead of the scan's own. See leaf.c. */
#define FB_LEAVES_MAX 16

typedef struct FbCursor
{
	/* The next row of the scan's current leaf, or of the one looked at ahead. */
	int			at;
	/* Rows of a leaf ahead of the scan: their heap blocks; NULL until there is one. */
	BlockNumber *rows;
	int			row_count;
	bool		in_rows;
	/* The leaves ahead of the scan's, in its order; the cursor is in the last of them. */
	BlockNumber leaves[FB_LEAVES_MAX];
	int			leaf_count;
	/* The leaf after that; invalid if there is none, or it is not to be looked at. */
	BlockNumber beyond;
} FbCursor;

/* One index scan node that is looked at. */
typedef struct FbScan
{
	dlist_node	link;			/* in its query */
	FbQuery    *query;
	PlanState  *node;
	/* Where the node keeps its scan, which begins and ends while the node lives. */
	IndexScanDesc *scan;
	bool		index_only;
	/* All its rows are taken, as far as the plan tells. */
	bool		whole;

	/* NULL until a read waits for the first time. */
	fbl_hints  *hints;
	bool		awake;
	/* So many rows are still timed though none is read. */
	int			watch;
	/* Timed reads in a row that did not wait. */
	uint32		calm;
	/* The row returned last: its heap block, and what stood then. */
	BlockNumber block;
	int64		reads;
	instr_time	since;
	bool		timed;

	/* Where the scan was when it returned that row. */
	BlockNumber leaf;
	int			item;
	ScanDirection direction;
	bool		rescanned;
	FbCursor	cursor;
	/* Blocks of the heap, as many as there surely are. */
	BlockNumber heap_blocks;

	/* What it comes to, for its index's numbers; told once. */
	Oid			index;
	uint64		start_total;
	uint64		row_total;
	bool		ended;
} FbScan;

/* What is counted for each index, in the order of the view's columns. */
typedef enum FbStat
{
	FB_SCANS,
	FB_ROWS,
	FB_PREFETCHED,
	FB_USEFUL,
	FB_WASTED,
	FB_RESIDENT,
	FB_WAITED_NS,
	FB_STATS,					/* how many there are */
} FbStat;

/* How a relation is read. */
typedef enum FbAccess
{
	FB_SEQUENTIAL,
	FB_INDEX,
	FB_BITMAP,
	FB_VACUUM
} FbAccess;

#define FB_ACCESSES (FB_VACUUM + 1)

/* Who reads relations: a query. See strategy.c. */
typedef struct FbReader FbReader;
/* A file that is read. See strategy.c. */
typedef struct FbFile FbFile;

/* index_scan.c */
extern void fb_scan_register(FbQuery *query, PlanState *node, bool whole);
extern void fb_scans_gone(FbQuery *query);
extern FbScan *fb_scan_of(PlanState *node);

/* bitmap.c */
#if PG_VERSION_NUM < 180000
extern void fb_bitmap_register(FbQuery *query, PlanState *node, bool whole);
extern void fb_bitmaps_gone(FbQuery *query);
#endif

/* leaf.c */
extern void fb_cursor_reset(FbScan *scan, IndexScanDesc desc);
extern bool fb_cursor_follow(FbScan *scan, IndexScanDesc desc);
extern BlockNumber fb_cursor_next(FbScan *scan, IndexScanDesc desc);

/* request.c */
extern bool fb_in_buffers(Relation rel, BlockNumber block);
extern void fb_ask(Relation rel, BlockNumber first, BlockNumber blocks);
extern int	fb_distance_of(Relation rel);

/* segments.c */
extern bool fb_segment(Relation rel, BlockNumber block, File *file, off_t *offset);
/* stats.c */
extern void fb_stats_init(void);
extern void fb_stats_expect(Oid index);
extern void fb_stats_add(Oid index, const uint64 *values);

/* explain.c */
extern void fb_explain_init(void);
extern void fb_explain_log(FbScan *scan);
extern bool fb_segment_of(SMgrRelation smgr, BlockNumber block, File *file, off_t *offset);

/* strategy.c */
extern FbReader *fb_reader_begin(MemoryContext context);
extern void fb_reader_note(FbReader *reader, PlanState *node);
extern void fb_file_read(FbFile *file, FbAccess access, uint32 blocks, int64 spent_ns);
extern void fb_strategy_init(void);

/* watch.c */
extern void fb_watch(MemoryContext context, slist_head *watches, PlanState *node, Relation rel, FbAccess access,
					 FbFile *file);
extern void fb_watches_gone(slist_head *watches);

/* trace.c */
extern bool fb_trace;
extern void fb_trace_read(Oid relation, FbAccess access, BlockNumber block, uint32 blocks, bool sequential,
						  int64 spent_ns);
extern void fb_trace_init(void);

/* forebay.c */
extern dlist_head fb_queries;

#endif
