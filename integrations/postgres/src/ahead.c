/*
 * Two stages of look-ahead for scans that descend the index repeatedly.
 *
 * Such a scan restarts for one key value after another, so it has no own rows to look ahead in. But code that
 * knows the next values can search the index for them (probe.c). The far stage searches only the upper pages, and
 * prefetches the leaves of far values. The near stage reads the leaves of near values, and prefetches their heap blocks.
 * forebay-lookahead decides how many, from how long reads of heap blocks and of leaves wait; the near stage is the
 * reader of the leaves.
 *
 * The values are numbered from 0 and supplied by a source: outer rows (nested_loop.c), elements of an array
 * (array_keys.c), rows whose foreign keys are checked (foreign_keys.c), values in a TOAST table (toast.c).
 *
 * Failure: see probe.c and the source. If the query may stop early, upper pages are not read, and leaves only
 * for values that were themselves read from disk: fetching a row ahead may meet an unreadable block anyway.
 */
#include "forebay.h"

#include "storage/bufmgr.h"
#include "utils/memutils.h"

/* After this many values in a row without a block to prefetch, the near stage stops until the scan waits. */
#define UNPRODUCTIVE_MAX 256

/* Most values to examine for a number of those that the scan searches for. */
static uint32
fb_values_for(FbAhead *ahead, uint32 searched)
{
	return ahead->spread == 0 ? searched : Min(searched * ahead->spread, FB_VALUES_MOST);
}

/* Whether all values will be taken. */
bool
fb_ahead_takes_all(FbAhead *ahead)
{
	return ahead->whole && !ahead->scan->query->may_stop;
}

/* Initializes the part that all sources share. */
void
fb_ahead_init(FbAhead *ahead, FbScan *scan, const FbSource *source, bool whole)
{
	ahead->scan = scan;
	ahead->source = source;
	ahead->whole = whole;
	ahead->sampler = fbl_sampler_new();
	scan->ahead = ahead;
}

/*
 * Determines, once, when the scan has begun and waits, whether its values can be looked ahead for. If not, the scan is
 * treated like any other.
 */
bool
fb_ahead_prepare(FbAhead *ahead)
{
	MemoryContext context = ahead->scan->query->estate->es_query_cxt;
	MemoryContext old;

	if (ahead->prepared)
		return ahead->probe != NULL;
	ahead->prepared = true;
	ahead->all = fb_ahead_takes_all(ahead);
	old = MemoryContextSwitchTo(context);
	ahead->probe = ahead->source->prepare(ahead);
	if (ahead->probe != NULL)
	{
		ahead->places = palloc0(FB_VALUES_MOST * sizeof(FbPlace));
		ahead->scratch = AllocSetContextCreate(context, "forebay probe", ALLOCSET_SMALL_SIZES);
	}
	MemoryContextSwitchTo(old);
	return ahead->probe != NULL;
}

/* Starts again at the first value, of the same values or of new ones. */
void
fb_ahead_restart(FbAhead *ahead)
{
	ahead->taken = ahead->head = ahead->probed = ahead->found = ahead->barrier = 0;
	ahead->leads = false;
	if (ahead->scan->hints != NULL)
		fbl_hints_jump(ahead->scan->hints);
	if (ahead->leaves != NULL)
		fbl_hints_jump(ahead->leaves);
}

static FbPlace *
fb_place_of(FbAhead *ahead, uint64 number)
{
	return &ahead->places[number % FB_VALUES_MOST];
}

/* Whether a value may be looked ahead for; fetches it if necessary. */
static bool
fb_has_value(FbAhead *ahead, uint64 number)
{
	uint64		distance = number - ahead->head;

	/* The value at `head` is about to be used, and is not ahead. The one before still has its FbPlace. */
	if (distance >= FB_VALUES_MOST - 1 || ahead->all != fb_ahead_takes_all(ahead) ||
		(!ahead->all && distance > ahead->taken / FBL_TAKEN_FOR_EACH))
		return false;
	return ahead->source->has(ahead, number);
}

/* The scan or the near stage read a leaf; `spent_ns` is less than 0 if the leaf was in shared buffers. */
static void
fb_leaf_returned(FbAhead *ahead, BlockNumber leaf, int64 spent_ns)
{
	if (ahead->leaves == NULL)
	{
		FbScan	   *scan = ahead->scan;
		int			most = fb_distance_of((*scan->scan)->indexRelation);

		if (most == 0 || !fbl_read_waited(spent_ns) || !fb_ahead_prepare(ahead))
			return;
		ahead->leaves = fb_hints_make(scan->query->estate->es_query_cxt, most, ahead->all, FB_GAP_BLOCKS);
	}
	fbl_hints_on_read(ahead->leaves, leaf, spent_ns);
	ahead->leaves_active = !fbl_hints_is_idle(ahead->leaves);
}

/* Finds the leaf of the next value, reading only upper pages. Returns false if there is no such value now. */
static bool
fb_find_leaf(FbAhead *ahead)
{
	FbScan	   *scan = ahead->scan;
	Relation	index = (*scan->scan)->indexRelation;
	MemoryContext old;
	FbPlace    *place;

	if (!fb_has_value(ahead, ahead->found))
		return false;
	place = fb_place_of(ahead, ahead->found);
	place->leaf = InvalidBlockNumber;
	place->longer = false;
	old = MemoryContextSwitchTo(ahead->scratch);
	if (ahead->source->set(ahead, ahead->found))
	{
		FbLook		look = fb_look_begin(index);

		place->leaf = fb_probe_leaf(ahead->probe, ahead->all);
		scan->owed += fb_look_end(&look);
		/* The link to it may be damaged. */
		if (!fb_has_block(index, place->leaf, &scan->index_blocks))
			place->leaf = InvalidBlockNumber;
	}
	MemoryContextSwitchTo(old);
	ahead->found++;
	return true;
}

/*
 * The far stage: finds leaves and prefetches them. It examines at most as many values as there is room for leaves, so
 * that the next value is not delayed where few values have a new leaf.
 */
static void
fb_prefetch_leaves(FbAhead *ahead, uint32 room)
{
	Relation	index = (*ahead->scan->scan)->indexRelation;
	const struct fbl_run *runs;
	size_t		count;

	for (uint32 values = fb_values_for(ahead, room); values > 0 && room > 0 && fb_find_leaf(ahead); values--)
	{
		BlockNumber leaf = fb_place_of(ahead, ahead->found - 1)->leaf;

		if (leaf != InvalidBlockNumber || ahead->spread == 0)
			room--;
		if (leaf != InvalidBlockNumber && !fbl_hints_contains(ahead->leaves, leaf))
			fbl_hints_predict(ahead->leaves, leaf, fb_in_buffers(index, leaf));
	}
	count = fbl_hints_take_runs(ahead->leaves, &runs);
	for (size_t i = 0; i < count; i++)
		fb_prefetch(index, runs[i].first, runs[i].blocks);
}

/* Reads the leaf of a value whose leaf was found; returns how many rows the value has there. */
static int
fb_look_at_leaf(FbAhead *ahead, uint64 number, ItemPointerData *rows)
{
	FbPlace    *place = fb_place_of(ahead, number);
	MemoryContext old;
	int64		spent_ns;
	int			count = 0;

	if (place->leaf == InvalidBlockNumber)
		return 0;
	old = MemoryContextSwitchTo(ahead->scratch);
	if (ahead->source->set(ahead, number))
	{
		FbLook		look = fb_look_begin((*ahead->scan->scan)->indexRelation);

		count = fb_probe_look(ahead->probe, place->leaf, rows, ahead->most > 0 ? ahead->most : FB_VALUE_ROWS,
							  ahead->all || ahead->fetched,
							  &place->longer, &spent_ns);
		ahead->scan->owed += fb_look_end(&look);
		fb_leaf_returned(ahead, place->leaf, spent_ns);
		/* Its time is part of looking ahead. */
		ahead->scan->cost.blocks += spent_ns >= 0;
	}
	MemoryContextSwitchTo(old);
	return count;
}

/*
 * Looks at the rows of the next value, and predicts their heap blocks, while there is room. Returns false if the near stage
 * has to wait for room, for a value or for the scan.
 */
static bool
fb_look_at_next(FbAhead *ahead, uint32 *room, Buffer *map)
{
	FbScan	   *scan = ahead->scan;
	ItemPointerData rows[FB_VALUE_ROWS];
	BlockNumber before = InvalidBlockNumber;
	FbPlace    *place;
	bool		productive = false;
	int			count;
	int			at;

	if (ahead->barrier > ahead->head || ahead->probed - ahead->head >= ahead->reach ||
		(ahead->probed == ahead->found && !fb_find_leaf(ahead)))
		return false;
	place = fb_place_of(ahead, ahead->probed);
	count = fb_look_at_leaf(ahead, ahead->probed, rows);
	for (at = 0; at < count && *room > 0; at++)
	{
		BlockNumber block = ItemPointerGetBlockNumberNoCheck(&rows[at]);

		if (scan->active && block != before && fb_scan_predict(scan, *scan->scan, block, map))
		{
			(*room)--;
			productive = true;
		}
		if (ahead->source->found != NULL)
			ahead->source->found(ahead, ahead->probed, block);
		before = block;
	}
	if (productive)
		ahead->unproductive = 0;
	else if (ahead->spread == 0 || place->leaf != InvalidBlockNumber)
		ahead->unproductive++;
	/* Blocks for which there was no room are tried again later. */
	if (at < count)
		return false;
	ahead->probed++;
	if (scan->found != NULL)
		fb_toast_found(scan, rows, count);
	if (count > 0 && place->longer && ahead->most == 0)
		ahead->barrier = ahead->probed;
	return true;
}

/*
 * The near stage: reads leaves and prefetches heap blocks. Where few values have one, as where the visibility map is
 * sufficient, it still stays near, so that it does not catch up with the far stage and wait for leaves. It goes on while
 * more rows are wanted for their values in the TOAST table.
 */
static void
fb_prefetch_heap(FbAhead *ahead, uint32 room)
{
	uint32		values = fb_values_for(ahead, room);
	uint32		unlimited = PG_UINT32_MAX;
	Buffer		map = InvalidBuffer;

	ahead->reach = Max(ahead->reach, fb_toasts_want_rows(ahead->scan) ? FB_VALUES_MOST / 2 : fb_values_for(ahead, 2 * room));
	while (values > 0 && room > 0 && fb_look_at_next(ahead, &room, &map))
		values--;
	while (!ahead->scan->active && fb_toasts_want_rows(ahead->scan) && fb_look_at_next(ahead, &unlimited, &map))
		continue;
	if (map != InvalidBuffer)
		ReleaseBuffer(map);
	if (ahead->scan->active)
		fb_scan_prefetch(ahead->scan, *ahead->scan->scan);
}

/* Whether the near stage has anything to do. */
static bool
fb_heap_waits(FbAhead *ahead)
{
	return ahead->scan->active && !ahead->scan->cost.paused && ahead->unproductive < UNPRODUCTIVE_MAX;
}

/* Whether the far stage has. */
static bool
fb_leaves_wait(FbAhead *ahead)
{
	return ahead->leaves_active && !ahead->scan->cost.paused;
}

/* Looks ahead as far as there is room, starting at value `from`, for which the scan has not begun yet. */
void
fb_ahead_look(FbAhead *ahead, uint64 from)
{
	IndexScanDesc *scan = ahead->scan->scan;
	uint32		leaf_room = fb_leaves_wait(ahead) ? fb_room(ahead->leaves, (*scan)->indexRelation) : 0;
	uint32		heap_room = fb_heap_waits(ahead) ? fb_room(ahead->scan->hints, (*scan)->heapRelation) : 0;
	instr_time	since;

	ahead->found = Max(ahead->found, from);
	ahead->probed = Max(ahead->probed, from);
	if (leaf_room == 0 && heap_room == 0 && !fb_toasts_want_rows(ahead->scan))
		return;
	INSTR_TIME_SET_CURRENT(since);
	if (leaf_room > 0)
		fb_prefetch_leaves(ahead, leaf_room);
	if (heap_room > 0 || fb_toasts_want_rows(ahead->scan))
		fb_prefetch_heap(ahead, heap_room);
	MemoryContextReset(ahead->scratch);
	ahead->scan->cost.look_ns += fb_elapsed_ns(since);
}

/* The scan begins a value: records whether it was fully looked ahead for, so that the scan has nothing to add. */
void
fb_ahead_take(FbAhead *ahead, uint64 number)
{
	ahead->leads = number < ahead->probed && !fb_place_of(ahead, number)->longer;
}

/* The leaf of a value ahead; invalid if it is unknown. */
BlockNumber
fb_ahead_leaf(FbAhead *ahead, uint64 number)
{
	return number < ahead->found ? fb_place_of(ahead, number)->leaf : InvalidBlockNumber;
}

/* Whether either stage is active. */
bool
fb_ahead_is_active(FbAhead *ahead)
{
	return fb_heap_waits(ahead) || fb_leaves_wait(ahead) || fb_toasts_are_active(ahead->scan);
}

/* Whether the current value of the scan was fully looked ahead for, so that the scan has nothing to add. */
bool
fb_ahead_leads(FbAhead *ahead)
{
	return ahead->most > 0 || ahead->leads;
}

/* Whether the rows of the scan matter to its look-ahead; if not, only its starts do. */
bool
fb_ahead_is_observed(FbAhead *ahead)
{
	return ahead->source->follow != NULL || ahead->leads || fb_ahead_is_active(ahead);
}

/* Whether to measure the time to begin a scan, which is passed to fb_ahead_began. */
bool
fb_ahead_watches(FbAhead *ahead)
{
	return !ahead->leads && (fbl_sampler_begin(&ahead->sampler) || fb_leaves_wait(ahead));
}

/*
 * The scan has begun, at `leaf` if it found something; it read `reads` pages of the index, which took `spent_ns`, less
 * than 0 if it read none or the time is not known.
 */
void
fb_ahead_began(FbAhead *ahead, BlockNumber leaf, int64 reads, int64 spent_ns)
{
	if (reads > 0)
		fbl_sampler_read(&ahead->sampler, spent_ns);
	fb_cost_read(ahead->scan, spent_ns);
	/* The near stage has read this leaf before. */
	if (ahead->leads || (spent_ns < 0 && !ahead->leaves_active))
		return;
	fb_leaf_returned(ahead, leaf, spent_ns);
	if (ahead->leaves_active && fbl_read_waited(spent_ns))
		fb_ahead_activate(ahead);
}

/* The scan waited: starts look-ahead for its values. */
void
fb_ahead_activate(FbAhead *ahead)
{
	if (!ahead->scan->cost.paused && fb_ahead_prepare(ahead) && ahead->source->wake != NULL)
		ahead->source->wake(ahead);
}
