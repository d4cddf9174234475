/*
 * The parts of the extension, and what each provides to the others.
 *
 *	ahead.c		two stages of look-ahead, for scans that descend the index repeatedly
 *	array_keys.c	the elements of a scan's array, as the next values it descends for
 *	forebay.c	settings, hooks, which nodes of a plan are registered
 *	index_scan.c	look-ahead of b-tree scans
 *	budget.c	how far the sessions of a server look ahead together
 *	bitmap.c	look-ahead of bitmap heap scans, until 17
 *	copied_keys.c	the checks of foreign keys for the rows of a COPY
 *	copy_rows.c	the rows that COPY has put into the table, as the next ones that are inserted into its indexes
 *	insert.c	look-ahead of inserts into b-tree indexes
 *	leaf.c		the rows ahead of a b-tree scan
 *	look.c		accesses to index pages that do not count as the query's
 *	modify.c	the rows of a ModifyTable's plan, as the next ones that are inserted into indexes
 *	nested_loop.c	the outer rows of a nested loop, as the next values its inner scan descends for
 *	nodes.c		replacing the function that executes a node of a plan
 *	other_indexes.c	the rows ahead of hash, GiST and SP-GiST scans
 *	outer_safe.c	whether rows of a plan may be computed before they are requested
 *	probe.c		what an index scan with other key values would read
 *	privileges.c	who may see what is known about a relation
 *	pruning.c	which children of an Append are executed for an outer row of a nested loop
 *	queue.c		rows of a plan node that are fetched before their turn
 *	registry.c	our data about the server's objects
 *	request.c	whether a block is in shared buffers, and prefetching it
 *	routed.c	the rows that an INSERT routes to a partition
 *	segments.c	the open files of a relation
 *	stats.c		counters of look-ahead for each index
 *	explain.c	counters of look-ahead for one scan
 *	foreign_keys.c	look-ahead of the checks and actions of foreign keys
 *	strategy.c	readahead strategies: access hints to the kernel
 *	toast.c		the values of the rows ahead that are stored out of line
 *	watch.c		scan nodes whose reads are timed
 *	table_rows.c	the rows that a command has put into a table, or has deleted
 *	trace.c		a session's reads, sequential or not
 */
#ifndef FB_FOREBAY_H
#define FB_FOREBAY_H

#include "postgres.h"

#include "access/amapi.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "executor/execdesc.h"
#include "lib/ilist.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "portability/instr_time.h"
#include "storage/fd.h"

/* What the files below share is called directly, not as a symbol that another library could define. */
#pragma GCC visibility push(hidden)

#include "forebay_lookahead.h"

typedef struct fbl_hints fbl_hints;
typedef struct FbAhead FbAhead;
typedef struct FbQuery FbQuery;
typedef struct FbProbe FbProbe;
typedef struct FbPruning FbPruning;

/* No scan looks ahead by more blocks, whatever the settings. */
#define FB_DISTANCE_MOST FBL_HINTS_MOST
/* Gaps of this many blocks are read through where index scans look ahead; see fb_hints_make. */
#define FB_GAP_BLOCKS 4

/* Settings. */
extern bool fb_enabled;
extern int	fb_distance_max;

/* The rows ahead of an index scan: a cursor that runs ahead of the scan's own. See leaf.c. */
#define FB_LEAVES_MAX 16

typedef struct FbCursor
{
	/* The next row of the scan's current leaf, or of the leaf read ahead. */
	int			at;
	/* Heap blocks of the rows of a leaf ahead of the scan; NULL until there is one. */
	BlockNumber *rows;
	int			row_count;
	bool		in_rows;
	/* The leaves ahead of the scan's, in its order; the cursor is in the last of them. */
	BlockNumber leaves[FB_LEAVES_MAX];
	int			leaf_count;
	/* The leaf after that; invalid if there is none, or it must not be read. */
	BlockNumber beyond;
} FbCursor;

/* A block that a scan will read. */
typedef struct FbNextBlock
{
	BlockNumber block;
	bool		of_index;		/* not of the heap */
} FbNextBlock;

/* An access method whose scans look ahead. */
typedef struct FbIndexKind
{
	const char *name;
	Oid			am;
	/* The server's functions. */
	amgettuple_function gettuple;
	amrescan_function rescan;
	amendscan_function endscan;
	/* The size of the scan's state, as far as we know; whether it is the server's too. It may change in a minor release. */
	Size		state_size;
	enum
	{
		FB_UNKNOWN, FB_SAME, FB_DIFFERS
	}			state;
	/* Whether the scan's state, read with our layout, has the row that it returned: then the layouts agree. */
	bool		(*is_at_row) (IndexScanDesc desc);
	/* What the scan will read after its current row, up to `most`; returns how many. NULL for b-trees, see leaf.c. */
	int			(*next) (IndexScanDesc desc, ScanDirection direction, FbNextBlock *to, int most);
	/* The page of the index that the next row is on, if it is another than that of the current row. */
	BlockNumber (*next_page) (IndexScanDesc desc, ScanDirection direction);
	/* The server's routine, and a copy with our functions; NULL until there is one. */
	const IndexAmRoutine *server;
	IndexAmRoutine ours;
} FbIndexKind;

/* What look-ahead costs a scan. See cost.c. */
typedef struct FbCost
{
	/* Blocks read since it was weighed last, and what they cost: time of reads, and of looking ahead. */
	uint32		blocks;
	int64		read_ns;
	int64		look_ns;
	/* All blocks of the heap that were read, and the lowest and the highest of them. */
	uint32		heap_blocks;
	BlockNumber lowest;
	BlockNumber highest;
	/* The block of the heap that was read last, and how many were a few blocks after the one before. */
	BlockNumber last;
	uint32		steps_near;
	/* Whether it costs less not to look ahead: NULL unless that is likely. */
	struct fbl_trial *trial;
	bool		paused;
	/* The trial is not decided yet: all reads are timed. */
	bool		undecided;
} FbCost;

/* One registered index scan node. */
typedef struct FbScan
{
	FbIndexKind *kind;
	dlist_node	link;			/* in its query */
	FbQuery    *query;
	PlanState  *node;
	/* The node's field for its scan, which begins and ends while the node lives. */
	IndexScanDesc *scan;
	/* Its keys, by which it is found when it begins, and the scan, by which it is found afterwards; NULL before. */
	ScanKey		keys;
	IndexScanDesc desc;
	bool		index_only;
	/* All its rows are read, as far as the plan shows. */
	bool		whole;
	/* The look-ahead for the values that it will restart for; NULL if there is none. */
	FbAhead    *ahead;

	/* NULL until a read waits for the first time. */
	fbl_hints  *hints;
	bool		active;
	FbCost		cost;
	/* Which rows are timed. */
	struct fbl_sampler sampler;
	/* Nothing was read for a while, or no read waited: rows are only counted until the counter of reads is `wakes_at`. */
	bool		idle;
	int64		wakes_at;
	/* How often the backend had blocked when it became idle. */
	int64		blocked;
	/* Its next start must be observed. */
	bool		wakes_at_start;
	/* The row returned last: its heap block, and the state at that time. */
	BlockNumber block;
	/* The heap block that it reached last, which it keeps pinned. */
	BlockNumber last;
	instr_time	since;
	bool		timed;
	/* The counter of reads at that time; once the row is fetched, the reads that this took. */
	int64		reads;
	/* How long they took, in nanoseconds; less than 0 if unknown. */
	int64		spent;

	/* The scan's position when it returned that row. */
	BlockNumber leaf;
	int			item;
	ScanDirection direction;
	bool		rescanned;
	/* It has been restarted, and has not returned a row since. */
	bool		begins;
	FbCursor	cursor;
	/* Lower bounds of the number of blocks of the heap and of the index. */
	BlockNumber heap_blocks;
	BlockNumber index_blocks;
	/* Rows ahead, in a row, that the visibility map is sufficient for. */
	uint32		visible_rows;
	/* Pages of the index, and of the heap and its visibility map, that were read ahead and are not counted yet. */
	int64		owed;
	int64		owed_heap;
	/* The counter of hits when the last row was returned. */
	int64		hits;

	/* For access methods other than b-tree: the pages of the index. NULL until the scan waits for one. */
	fbl_hints  *pages;
	bool		pages_active;
	/* Which searches of the index are timed. */
	struct fbl_sampler page_sampler;
	/* Memory for what is next; NULL until it is needed. */
	FbNextBlock *next;
	/* All rows that are known to be next were predicted; all pages that are. Both until the scan visits another page. */
	bool		exhausted;
	bool		pages_exhausted;

	/* The counter of reads when it was started last, and how often something had been read since the start before. */
	int64		reads_at_start;
	uint32		starts_with_reads;
	/* The index of its table's TOAST table has our functions. */
	bool		expects_toast;
	int			toast_trials;
	slist_head	toasts;			/* of FbToast */
	/* Rows that were found for the values ahead; NULL if there are none. */
	struct FbFound *found;

	/* Its counters, added to its index's at the end. */
	Oid			index;
	uint64		start_total;
	uint64		row_total;
	uint64		rows_before;	/* when it was started last */
} FbScan;

/*
 * One executing query with nodes that look ahead. It lives in the query's memory context, and is removed from the list
 * of all queries when that context is freed, however that happens.
 */
struct FbQuery
{
	dlist_node	link;			/* in fb_queries */
	EState	   *estate;
	/* It is run for a number of rows, for example by a cursor, and may stop after any. */
	bool		may_stop;
	dlist_head	scans;			/* of FbScan */
	slist_head	bitmaps;		/* of FbBitmap */
	slist_head	queues;			/* of FbQueue, those whose node was replaced */
	slist_head	foreign_keys;	/* of FbForeignKey */
	MemoryContextCallback on_free;
	/* Memory for its first scan, as many queries have only one. */
	FbScan		scan;
	bool		scan_is_used;
};

/* The function that executes a kind of node. */
typedef struct FbMethod
{
	ExecProcNodeMtd own;		/* the server's; NULL until it is seen */
	ExecProcNodeMtd other;		/* another extension's that was seen last */
} FbMethod;

/* The block counters when a look began. */
typedef struct FbLook
{
	Relation	rel;
	int64		hits;
	int64		reads;
	int64		stat_fetched;
	int64		stat_hits;
} FbLook;

/* The counters of each index, in the order of the view's columns. */
typedef enum FbStat
{
	FB_SCANS,
	FB_ROWS,
	FB_PREFETCHED,
	FB_USEFUL,
	FB_WASTED,
	FB_RESIDENT,
	FB_WAITED_NS,
	FB_INSERT_PREFETCHED,
	FB_INSERT_USEFUL,
	FB_INSERT_WAITED_NS,
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

/* A reader of relations: a query or a VACUUM. See strategy.c. */
typedef struct FbReader FbReader;
/* A file that is read. See strategy.c. */
typedef struct FbFile FbFile;

/* Of a partitioned table, writes to at most this many partitions look ahead. */
#define FB_PARTITIONS_MAX 256

/* How many of the next values of a restarting scan are known at most; a power of two. */
#define FB_VALUES_MOST (2 * FB_DISTANCE_MOST)
/*
 * Most rows looked at for one value; beyond them, the scan itself looks ahead, and the values after it wait. With 64,
 * TPC-H's Q11, which finds 80 rows for each value, was slower than the server (results/2026-11-29-vm).
 */
#define FB_VALUE_ROWS 256

/* The source of these values. */
typedef struct FbSource
{
	/* Creates the probe for them in the query's memory; returns NULL if that is not possible. Called once. */
	FbProbe    *(*prepare) (FbAhead *ahead);
	/* Whether there is a value of that number; called in ascending order, without gaps. */
	bool		(*has) (FbAhead *ahead, uint64 number);
	/* Passes a value to the probe; returns false if the scan finds nothing for it. */
	bool		(*set) (FbAhead *ahead, uint64 number);
	/* Starts supplying values. NULL if that needs no action. */
	void		(*wake) (FbAhead *ahead);
	/* The scan has returned a row. NULL if that is not needed. */
	void		(*follow) (FbAhead *ahead, ScanDirection direction);
	/* A heap block of a value was found. NULL if that is not needed. */
	void		(*found) (FbAhead *ahead, uint64 number, BlockNumber block);
} FbSource;

/* Where the scan begins for a value. */
typedef struct FbPlace
{
	/* Invalid if unknown. */
	BlockNumber leaf;
	/* There may be more heap blocks than the near stage found. */
	bool		longer;
} FbPlace;

/* Look-ahead of a scan that descends its index repeatedly. See ahead.c. */
struct FbAhead
{
	FbScan	   *scan;
	const FbSource *source;
	/* All values are used, as far as the plan shows. */
	bool		whole;
	/* The scan stops after this many rows for a value, FB_VALUE_ROWS at most; 0 if it does not stop. */
	int			most;
	/* Values are fetched from the outer plan, and leaves may be read for them even if the query may stop. */
	bool		fetched;
	/* The scan searches for one in this many values, on average; 0 if for all. */
	uint32		spread;

	bool		prepared;
	/* Whether all values were expected to be used, when this was prepared. */
	bool		all;
	FbProbe    *probe;			/* NULL if look-ahead is not possible */
	MemoryContext scratch;

	fbl_hints  *leaves;			/* NULL until the scan waits for a leaf */
	bool		leaves_active;
	/* Which scans are timed as they begin. */
	struct fbl_sampler sampler;

	/* By the value's number modulo FB_VALUES_MOST. */
	FbPlace    *places;
	/* Values used; the number of the next or current one; and the numbers after those that the stages have done. */
	uint64		taken;
	uint64		head;
	uint64		probed;
	uint64		found;
	/* The near stage pauses until the value before this one is used. */
	uint64		barrier;
	/* How far the near stage goes, in values; and how many in a row had no block to prefetch. */
	uint64		reach;
	int			unproductive;
	/* The scan's current value was fully looked ahead for. */
	bool		leads;
};

/* A row in a queue. */
typedef struct FbRow
{
	TupleTableSlot *slot;
	Size		size;
} FbRow;

typedef struct FbQueue FbQueue;

/* What a queue is used for. */
typedef struct FbQueueUse
{
	/* Whether to fetch rows ahead. Called when the queue is empty. */
	bool		(*wanted) (FbQueue *queue);
	/* The row `head` is about to be returned: looks ahead from it. */
	void		(*look) (FbQueue *queue);
	/* The node is restarted, and the rows are numbered from 0 again. */
	void		(*restarted) (FbQueue *queue);
} FbQueueUse;

/* The rows of a plan node, some of them fetched ahead. See queue.c. */
struct FbQueue
{
	slist_node	link;			/* in its query, once our function was installed */
	FbQuery    *query;
	PlanState  *node;
	const FbQueueUse *use;
	/* The function that executes the node when ours does not; NULL until ours is installed first. */
	ExecProcNodeMtd real;
	/* Our function is installed. */
	bool		active;
	const TupleTableSlotOps *ops;
	TupleDesc	desc;
	/* By number modulo FB_VALUES_MOST: the next row, and the number after the last. work_mem bounds their size. */
	FbRow	   *rows;
	uint64		head;
	uint64		tail;
	Size		size;
	bool		ended;
	/* The row before `head` was returned, and is in use. */
	bool		held;

	bool		in_call;
	bool		registered;
	bool		rescanned;
};

/* A cursor over the rows that a command has put into a table, or has deleted. See table_rows.c. */
typedef struct FbTableRows
{
	Relation	heap;
	/* The rows are those deleted. */
	bool		deleted;
	/* Pages from this one on are read if they are not in shared buffers. */
	BlockNumber readable;
	/* Pages that were read, and are not counted yet. */
	int64		owed;
	/* A copy of a page; invalid before the first. */
	PGAlignedBlock *page;
	BlockNumber block;
	/* A row of that page. */
	HeapTupleData tuple;
	TupleTableSlot *slot;
	/* Where the row after the last is in the page. */
	OffsetNumber at;
	/* The command, within its transaction. */
	CommandId	command;
	/* There is no row after the last, so far. */
	bool		ended;
} FbTableRows;

typedef struct FbForeignKey FbForeignKey;
typedef struct FbCopy FbCopy;

/* No row. */
#define FB_NO_NUMBER PG_UINT64_MAX

/* The check of one row, or the action for it. */
typedef struct FbCheck
{
	FbForeignKey *key;
	/* The row's number; FB_NO_NUMBER if it was not expected. */
	uint64		number;
	bool		looks;
	/* What is measured: the counters and times at its beginning. */
	bool		timed;
	int64		reads;
	int64		hits;
	int64		cpu_ns;
	instr_time	since;
} FbCheck;

/* A row that will be inserted. */
typedef struct FbNextRow
{
	/* Where it is in the table, or will probably be. */
	ItemPointerData tid;
	/* Where it will be inserted into the index; invalid if unknown. */
	BlockNumber leaf;
} FbNextRow;

typedef struct FbInserts FbInserts;
typedef struct FbRouted FbRouted;

/* The source of the next rows. */
typedef struct FbRowSource
{
	/* Finds the row of number `tail`; returns false if there is none. `values` is NULL if they are not known. */
	bool		(*next) (FbInserts *inserts, ItemPointer tid, TupleTableSlot **values);
	/* A row's leaf is read: makes `head` the number of the row after it. Returns the leaf, invalid if unknown. */
	BlockNumber (*take) (FbInserts *inserts, ItemPointer tid);
} FbRowSource;

/* The inserts of one command into one index. See insert.c. */
struct FbInserts
{
	MemoryContextCallback on_free;
	slist_node	link;			/* in its FbModify, if that is the source */
	Relation	index;
	Relation	heap;
	IndexInfo  *info;
	Oid			index_oid;
	/* Which inserts are timed. */
	struct fbl_sampler sampler;
	/* NULL until an insert waits for a read. */
	fbl_hints  *hints;
	bool		active;
	/* The index, or the table, is not one that can be looked ahead for. */
	bool		unsuitable;
	/* Pages of the index that were read ahead and are not counted yet. */
	int64		owed;
	/* A lower bound of the number of blocks of the index. */
	BlockNumber index_blocks;
	/* The next row to insert was looked for, in case of a conflict. */
	bool		checked;

	/* All that follows is valid if there are hints. */
	BTScanInsert search;
	/* To evaluate the index's expressions and predicate; NULL if it has none. */
	EState	   *estate;
	const FbRowSource *source;
	/* The next rows, by number modulo FB_VALUES_MOST: the first, and the number after the last. */
	FbNextRow  *rows;
	uint64		head;
	uint64		tail;
	/* Consecutive next rows without a leaf to prefetch. */
	uint32		unproductive;
	/* Rows of the table: those that COPY has put there, or those that an UPDATE replaces. */
	FbTableRows table_rows;
	/* Consecutive rows without a next one. */
	uint32		lone;

	/* For rows of a plan: the ModifyTable, and its target. */
	struct FbModify *modify;
	ResultRelInfo *result;
	/* An UPDATE leaves a column unchanged that the index contains. */
	bool		needs_old;
	/* Rows are routed to this table as a partition; NULL if it is the command's target. */
	FbRouted   *routed;
	/* The row found last is routed to another partition. */
	bool		elsewhere;
};

/* Adds the counts of other hints. */
static inline void
fb_counts_add(struct fbl_counts *counts, struct fbl_counts others)
{
	counts->asked += others.asked;
	counts->useful += others.useful;
	counts->resident += others.resident;
	counts->waited_ns += others.waited_ns;
	counts->ahead_most = Max(counts->ahead_most, others.ahead_most);
}

/* Nanoseconds since then. */
static inline int64
fb_elapsed_ns(instr_time since)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, since);
	return (int64) (INSTR_TIME_GET_DOUBLE(now) * 1e9);
}

/* cost.c */
extern void fb_cost_read(FbScan *scan, int64 spent_ns);
extern void fb_cost_read_heap(FbScan *scan, BlockNumber block, int64 spent_ns);

/* index_scan.c */
extern void fb_scan_register(FbQuery *query, PlanState *node, bool whole);
extern void fb_scan_fetched(void);
extern void fb_scans_release(FbQuery *query);
extern FbScan *fb_scan_of(PlanState *node);
extern bool fb_scan_predict(FbScan *scan, IndexScanDesc desc, BlockNumber block, Buffer *map);
extern void fb_scan_prefetch(FbScan *scan, IndexScanDesc desc);
extern bool fb_scan_make_hints(FbScan *scan);
extern void fb_scan_has_read(FbScan *scan, BlockNumber block, int64 spent);
extern bool fb_scan_has_hints(FbScan *scan);
extern struct fbl_counts fb_scan_counts(FbScan *scan);
extern void fb_scan_add_counts(FbScan *scan);
extern bool fb_install_am(Relation index);
extern bool fb_is_of_server(Relation heap);

/* insert.c */
extern bool fb_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation heap,
					  IndexUniqueCheck check, bool unchanged, struct IndexInfo *info);
extern bool fb_check_conflict(IndexScanDesc desc, ScanDirection direction);
extern bool fb_calls_others(Node *node, void *context);
extern void fb_inserts_prefetch(FbInserts *inserts);
extern void fb_expect_inserts(Relation heap);
extern Relation fb_try_open(Oid relation);
extern bool fb_writes;
extern void fb_insert_init(void);

/* table_rows.c */
extern void fb_table_rows_init(FbTableRows *rows, Relation heap);
extern bool fb_table_rows_copy_page(FbTableRows *rows, BlockNumber block);
extern TupleTableSlot *fb_table_rows_stored(FbTableRows *rows, OffsetNumber at);
extern void fb_table_rows_begin(FbTableRows *rows, ItemPointer tid);
extern bool fb_table_rows_begin_at(FbTableRows *rows, BlockNumber block, CommandId command);
extern bool fb_table_rows_next(FbTableRows *rows, ItemPointer tid);

/* foreign_keys.c */
extern FbForeignKey *fb_foreign_key_make(FbQuery *query, Trigger *trigger, Relation table);
extern FbForeignKey *fb_foreign_key_to(FbQuery *query, Oid table, ParamListInfo values);
extern bool fb_check_needs_table(FbForeignKey *key);
extern bool fb_check_was_quiet(FbCheck *check);
extern void fb_check_begins(FbCheck *check, FbForeignKey *key, Relation table, ItemPointer tid, ParamListInfo values);
extern void fb_check_ends(FbCheck *check, Relation table);
extern void fb_foreign_keys_register(FbQuery *query, ModifyTableState *node);
extern bool fb_foreign_key_counts(PlanState *node, struct fbl_counts *counts);

/* copied_keys.c */
extern FbCopy *fb_copy;
extern bool fb_copied_keys_begin(Relation table);
extern void fb_copied_keys_end(void);
extern bool fb_copied_key_runs(QueryDesc *query);
extern void fb_copied_key_ran(void);

/* copy_rows.c */
extern const FbRowSource fb_copied_rows;
extern bool fb_copy_begin(CopyStmt *copy);

/* modify.c */
extern void fb_modify_register(FbQuery *query, ModifyTableState *node);
extern bool fb_modify_find(FbInserts *inserts);
extern struct IndexInfo *fb_modify_index_of(Relation index);
extern bool fb_modify_counts(PlanState *node, struct fbl_counts *counts);
extern bool fb_modify_prepare(FbInserts *inserts);
extern void fb_modify_wake(FbInserts *inserts);

/* routed.c */
extern bool fb_prepare_routed(FbInserts *inserts, Relation root);
extern TupleTableSlot *fb_routed_row(FbInserts *inserts, TupleTableSlot *row);

/* other_indexes.c */
extern FbIndexKind *fb_other_index_kind(Relation index);

/* budget.c */
extern void fb_budget_init(void);
extern Size fb_budget_size(void);
extern void fb_budget_attach(void);
extern uint32 fb_room(fbl_hints *hints, Relation rel);

/* bitmap.c */
#if PG_VERSION_NUM < 180000
extern void fb_bitmap_register(FbQuery *query, PlanState *node, bool whole);
extern void fb_bitmaps_release(FbQuery *query);
#endif

/* leaf.c */
extern void fb_cursor_reset(FbScan *scan, IndexScanDesc desc);
extern bool fb_cursor_is_behind(FbScan *scan, IndexScanDesc desc);
extern bool fb_cursor_follow(FbScan *scan, IndexScanDesc desc);
extern BlockNumber fb_cursor_next(FbScan *scan, IndexScanDesc desc);
extern ItemPointer fb_rows_of_entry(IndexTuple entry, int *count);

/* ahead.c */
extern void fb_ahead_init(FbAhead *ahead, FbScan *scan, const FbSource *source, bool whole);
extern bool fb_ahead_prepare(FbAhead *ahead);
extern bool fb_ahead_takes_all(FbAhead *ahead);
extern void fb_ahead_restart(FbAhead *ahead);
extern void fb_ahead_activate(FbAhead *ahead);
extern BlockNumber fb_ahead_leaf(FbAhead *ahead, uint64 number);
extern bool fb_ahead_is_active(FbAhead *ahead);
extern void fb_ahead_look(FbAhead *ahead, uint64 from);
extern void fb_ahead_take(FbAhead *ahead, uint64 number);
extern bool fb_ahead_leads(FbAhead *ahead);
extern bool fb_ahead_is_observed(FbAhead *ahead);
extern bool fb_ahead_watches(FbAhead *ahead);
extern void fb_ahead_began(FbAhead *ahead, BlockNumber leaf, int64 reads, int64 spent_ns);

/* array_keys.c */
extern void fb_elements_register(FbScan *scan, ScanKey keys, int key_count);

/* nested_loop.c */
extern void fb_join_register(FbQuery *query, NestLoopState *node, bool whole, bool sure);

/* pruning.c */
extern bool fb_is_pruned(AppendState *append);
extern FbPruning *fb_pruning_make(NestLoopState *join, AppendState *append);
extern void fb_pruning_restart(FbPruning *pruning);
extern bool fb_pruning_keeps(FbPruning *pruning, int child, uint64 number, TupleTableSlot *row);

/* queue.c */
extern bool fb_queue_prepare(FbQueue *queue);
extern bool fb_queue_has(FbQueue *queue, uint64 number);
extern TupleTableSlot *fb_queue_row(FbQueue *queue, uint64 number);
extern void fb_queue_wake(FbQueue *queue);
extern TupleTableSlot *fb_exec_queued(PlanState *node);
extern void fb_queues_release(FbQuery *query);

/* outer_safe.c */
extern bool fb_outer_is_safe(Plan *plan, PlannedStmt *statement, bool whole, bool sure);
extern bool fb_modify_is_safe(Plan *plan, PlannedStmt *statement, bool alone);
extern bool fb_merge_is_safe(Plan *plan, PlannedStmt *statement, bool *updates);
extern bool fb_surely_takes_all(PlanState *node, PlanState *child);

/* look.c */
extern FbLook fb_look_begin(Relation rel);
extern int64 fb_look_end(const FbLook *look);
extern void fb_look_settle(Relation index, int64 *owed, int64 hits);
extern BTPageOpaque fb_page_links(Page page);

/* nodes.c */
extern bool fb_method_is_own(FbMethod *method, PlanState *node);
extern bool fb_replace_method(PlanState *node, ExecProcNodeMtd from, ExecProcNodeMtd to);

/* probe.c */
extern FbProbe *fb_probe_make(FbScan *scan, NestLoop *join, TupleDesc outer);
extern FbProbe *fb_probe_make_equal(IndexScanDesc *scan, TupleDesc rows);
extern bool fb_probe_set(FbProbe *probe, TupleTableSlot *row, Datum element);
extern BlockNumber fb_descend(Relation index, Relation heap, BTScanInsert search, bool may_read);
extern BlockNumber fb_probe_leaf(FbProbe *probe, bool may_read);
extern int	fb_probe_look(FbProbe *probe, BlockNumber leaf, ItemPointerData *rows, int most, bool may_read,
						  bool *longer, int64 *spent_ns);

/* registry.c */
typedef enum FbKind
{
	FB_OF_ESTATE,				/* FbQuery */
	FB_OF_KEYS,					/* FbScan, by the keys of its node */
	FB_OF_SCAN,					/* FbScan, by its descriptor */
	FB_OF_BITMAP,				/* FbBitmap, by its node */
	FB_OF_QUEUED,				/* FbQueue, by its node */
	FB_OF_WATCHED,				/* a scan node's watch */
	FB_KINDS,					/* how many there are */
} FbKind;

extern void fb_attach(FbKind kind, const void *object, void *ours);
extern void *fb_attached(FbKind kind, const void *object);
extern void fb_detach(FbKind kind, const void *object);

/* request.c */
extern bool fb_in_buffers(Relation rel, BlockNumber block);
extern void fb_prefetch(Relation rel, BlockNumber first, BlockNumber blocks);
extern fbl_hints *fb_hints_make(MemoryContext context, int most, bool takes_all, int gap_blocks);
extern int	fb_distance_of(Relation rel);
extern bool fb_has_block(Relation rel, BlockNumber block, BlockNumber *known);

/* segments.c */
extern bool fb_segment(Relation rel, BlockNumber block, File *file, off_t *offset);
extern bool fb_segment_of(SMgrRelation smgr, BlockNumber block, File *file, off_t *offset);

/* stats.c */
extern void fb_stats_init(void);
extern void fb_stats_expect(Oid index);
extern void fb_stats_add(Oid index, uint64 scans, uint64 rows, const struct fbl_counts *counts);
extern void fb_stats_add_inserts(Oid index, const struct fbl_counts *counts);

/* explain.c */
extern void fb_explain_init(void);
extern void fb_explain_log(FbScan *scan);

/* strategy.c */
extern FbReader *fb_reader_begin(MemoryContext context);
extern void fb_reader_note(FbReader *reader, PlanState *node);
extern void fb_file_read(FbFile *file, FbAccess access, uint32 blocks, int64 spent_ns);
extern MemoryContext fb_vacuum_begin(VacuumStmt *command);
extern void fb_strategy_init(void);

/* toast.c */
extern FbScan *fb_toast_begins(IndexScanDesc fetch, ScanKey keys, int key_count);
extern void fb_toast_expect(FbScan *scan);
extern void fb_toast_found(FbScan *owner, const ItemPointerData *rows, int count);
extern bool fb_toasts_want_rows(FbScan *owner);
extern bool fb_toasts_are_active(FbScan *owner);
extern void fb_toast_counts(FbScan *owner, struct fbl_counts *counts);
extern void fb_toasts_release(FbScan *owner);

/* watch.c */
extern void fb_watch(MemoryContext context, slist_head *watches, PlanState *node, Relation rel, FbAccess access,
					 FbFile *file);
extern void fb_watches_release(slist_head *watches);

/* trace.c */
extern bool fb_trace;
extern void fb_trace_read(Oid relation, FbAccess access, BlockNumber block, uint32 blocks, bool sequential,
						  int64 spent_ns);
extern void fb_trace_clear(void);
extern void fb_trace_init(void);

/* privileges.c */
extern bool fb_may_read(Oid relation, Oid user);

/* forebay.c */
extern dlist_head fb_queries;

#pragma GCC visibility pop

#endif
