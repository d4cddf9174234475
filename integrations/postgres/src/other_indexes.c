/*
 * The rows ahead of hash, GiST and SP-GiST scans.
 *
 * Such a scan keeps all matching rows of one index page. A GiST or SP-GiST scan also keeps a priority queue of the pages that
 * it has not visited, and, if it is ordered by distance, of the rows that it has not returned. So what is next is in the scan's
 * own state, which we only read: the heap blocks of the next rows, and the next pages of the index. Beyond the pages that
 * the scan has read, nothing is known.
 *
 * It relies on HashScanOpaqueData, GISTScanOpaqueData and SpGistScanOpaqueData, which do not change within a major version;
 * see index_scan.c for the checks that guard it.
 *
 * Left out: GIN and BRIN, which have bitmap scans only.
 *
 * Failure: none; a page that an insert has split costs a hint too few.
 */
#include "forebay.h"

#include "access/gist_private.h"
#include "access/gistscan.h"
#include "access/hash.h"
#include "access/spgist.h"
#include "access/spgist_private.h"
#include "catalog/pg_am.h"
#include "lib/pairingheap.h"
#include "utils/float.h"
#include "utils/rel.h"

/* Most items of a queue that are examined for the next ones. */
#define EXAMINED_MAX 4096

static bool
fb_hash_is_at_row(IndexScanDesc desc)
{
	HashScanPosData *pos = &((HashScanOpaque) desc->opaque)->currPos;

	return (unsigned) pos->itemIndex < MaxIndexTuplesPerPage &&
		ItemPointerEquals(&pos->items[pos->itemIndex].heapTid, &desc->xs_heaptid);
}

static int
fb_hash_next(IndexScanDesc desc, ScanDirection direction, FbNextBlock *to, int most)
{
	HashScanPosData *pos = &((HashScanOpaque) desc->opaque)->currPos;
	int			step = ScanDirectionIsForward(direction) ? 1 : -1;
	BlockNumber page = ScanDirectionIsForward(direction) ? pos->nextPage : pos->prevPage;
	int			count = 0;

	if (!HashScanPosIsValid(*pos))
		return 0;
	if (BlockNumberIsValid(page) && most > 0)
		to[count++] = (FbNextBlock) {page, true};
	for (int i = pos->itemIndex + step; i >= pos->firstItem && i <= pos->lastItem && count < most; i += step)
		to[count++] = (FbNextBlock) {ItemPointerGetBlockNumberNoCheck(&pos->items[i].heapTid), false};
	return count;
}

static BlockNumber
fb_hash_next_page(IndexScanDesc desc, ScanDirection direction)
{
	HashScanPosData *pos = &((HashScanOpaque) desc->opaque)->currPos;

	if (!HashScanPosIsValid(*pos) || (ScanDirectionIsForward(direction) ? pos->itemIndex < pos->lastItem
									  : pos->itemIndex > pos->firstItem))
		return InvalidBlockNumber;
	return ScanDirectionIsForward(direction) ? pos->nextPage : pos->prevPage;
}

/* Whether rows are returned from the queue. */
static bool
fb_gist_is_ordered(IndexScanDesc desc)
{
	return desc->numberOfOrderBys > 0;
}

static bool
fb_gist_is_at_row(IndexScanDesc desc)
{
	GISTScanOpaque so = (GISTScanOpaque) desc->opaque;

	/* A row from the queue is no longer there. */
	if (fb_gist_is_ordered(desc))
		return so->queue != NULL && so->nPageData == 0;
	return so->curPageData > 0 && so->curPageData <= so->nPageData && so->nPageData <= lengthof(so->pageData) &&
		ItemPointerEquals(&so->pageData[so->curPageData - 1].heapPtr, &desc->xs_heaptid);
}

/* An item of a scan's queue. */
typedef struct Queued
{
	double		distance;		/* 0 in a scan that is not ordered */
	FbNextBlock next;
} Queued;

typedef Queued (*QueuedOf) (IndexScanDesc desc, pairingheap_node *node);

static Queued
fb_gist_item(IndexScanDesc desc, pairingheap_node *node)
{
	GISTSearchItem *item = pairingheap_container(GISTSearchItem, phNode, node);
	Queued		queued = {0, {item->blkno, true}};

	if (GISTSearchItemIsHeap(*item))
		queued.next = (FbNextBlock) {ItemPointerGetBlockNumberNoCheck(&item->data.heap.heapPtr), false};
	if (fb_gist_is_ordered(desc))
		queued.distance = item->distances[0].isnull ? get_float8_infinity() : item->distances[0].value;
	return queued;
}

static Queued
fb_spgist_item(IndexScanDesc desc, pairingheap_node *node)
{
	SpGistSearchItem *item = pairingheap_container(SpGistSearchItem, phNode, node);
	Queued		queued = {0, {ItemPointerGetBlockNumberNoCheck(&item->heapPtr), !item->isLeaf}};

	/* Nulls come last, and have no distances. */
	if (item->isNull)
		queued.distance = get_float8_infinity();
	else if (((SpGistScanOpaque) desc->opaque)->numberOfNonNullOrderBys > 0)
		queued.distance = item->distances[0];
	return queued;
}

/*
 * The candidates for the next item of a queue: a heap whose first is the next one. Their distances are compared here, as
 * the queue's own comparison costs ten times as much, and which of two equal ones is first does not matter.
 */
typedef struct Candidate
{
	pairingheap_node *node;
	Queued		item;
} Candidate;

typedef struct Candidates
{
	int			count;
	Candidate	all[EXAMINED_MAX];
} Candidates;

/* Adds a node and its siblings, while there is room. */
static void
fb_add_candidates(Candidates *candidates, IndexScanDesc desc, QueuedOf item_of, pairingheap_node *node)
{
	Candidate  *all = candidates->all;

	for (; node != NULL && candidates->count < EXAMINED_MAX; node = node->next_sibling)
	{
		Candidate	one = {node, item_of(desc, node)};
		int			at = candidates->count++;

		for (; at > 0 && one.item.distance < all[(at - 1) / 2].item.distance; at = (at - 1) / 2)
			all[at] = all[(at - 1) / 2];
		all[at] = one;
	}
}

/* Removes the first candidate. */
static Candidate
fb_remove_candidate(Candidates *candidates)
{
	Candidate  *all = candidates->all;
	Candidate	first = all[0];
	int			count = --candidates->count;
	Candidate	last = all[count];
	int			at = 0;

	for (int child = 1; child < count; child = 2 * at + 1)
	{
		if (child + 1 < count && all[child + 1].item.distance < all[child].item.distance)
			child++;
		if (last.item.distance <= all[child].item.distance)
			break;
		all[at] = all[child];
		at = child;
	}
	all[at] = last;
	return first;
}

/* The next items of a queue, which stays as it is. Every node of a pairing heap comes before its children. */
static int
fb_next_queued(IndexScanDesc desc, QueuedOf item_of, pairingheap *queue, FbNextBlock *to, int most)
{
	Candidates *candidates;
	int			count = 0;

	if (queue == NULL)
		return 0;
	candidates = palloc(sizeof(Candidates));
	candidates->count = 0;
	fb_add_candidates(candidates, desc, item_of, queue->ph_root);
	while (count < most && candidates->count > 0)
	{
		Candidate	one = fb_remove_candidate(candidates);

		to[count++] = one.item.next;
		fb_add_candidates(candidates, desc, item_of, one.node->first_child);
	}
	pfree(candidates);
	return count;
}

static int
fb_gist_next(IndexScanDesc desc, ScanDirection direction, FbNextBlock *to, int most)
{
	GISTScanOpaque so = (GISTScanOpaque) desc->opaque;
	int			count = 0;

	if (!fb_gist_is_ordered(desc))
		for (int i = so->curPageData; i < so->nPageData && count < most; i++)
			to[count++] = (FbNextBlock) {ItemPointerGetBlockNumberNoCheck(&so->pageData[i].heapPtr), false};
	return count + fb_next_queued(desc, fb_gist_item, so->queue, to + count, most - count);
}

static BlockNumber
fb_gist_next_page(IndexScanDesc desc, ScanDirection direction)
{
	GISTScanOpaque so = (GISTScanOpaque) desc->opaque;

	if (so->queue == NULL || pairingheap_is_empty(so->queue) || so->curPageData < so->nPageData)
		return InvalidBlockNumber;
	return pairingheap_container(GISTSearchItem, phNode, so->queue->ph_root)->blkno;
}

static bool
fb_spgist_is_at_row(IndexScanDesc desc)
{
	SpGistScanOpaque so = (SpGistScanOpaque) desc->opaque;

	return so->iPtr > 0 && so->iPtr <= so->nPtrs && so->nPtrs <= lengthof(so->heapPtrs) &&
		ItemPointerEquals(&so->heapPtrs[so->iPtr - 1], &desc->xs_heaptid);
}

static int
fb_spgist_next(IndexScanDesc desc, ScanDirection direction, FbNextBlock *to, int most)
{
	SpGistScanOpaque so = (SpGistScanOpaque) desc->opaque;
	int			count = 0;

	for (int i = so->iPtr; i < so->nPtrs && count < most; i++)
		to[count++] = (FbNextBlock) {ItemPointerGetBlockNumberNoCheck(&so->heapPtrs[i]), false};
	return count + fb_next_queued(desc, fb_spgist_item, so->scanQueue, to + count, most - count);
}

static BlockNumber
fb_spgist_next_page(IndexScanDesc desc, ScanDirection direction)
{
	SpGistScanOpaque so = (SpGistScanOpaque) desc->opaque;
	Queued		first;

	if (so->scanQueue == NULL || pairingheap_is_empty(so->scanQueue) || so->iPtr < so->nPtrs)
		return InvalidBlockNumber;
	first = fb_spgist_item(desc, so->scanQueue->ph_root);
	return first.next.of_index ? first.next.block : InvalidBlockNumber;
}

/* The access methods other than b-tree whose scans look ahead. */
static FbIndexKind kinds[] = {
	{
		.name = "hash",
		.am = HASH_AM_OID,
		.gettuple = hashgettuple,
		.rescan = hashrescan,
		.endscan = hashendscan,
		.state_size = sizeof(HashScanOpaqueData),
		.is_at_row = fb_hash_is_at_row,
		.next = fb_hash_next,
		.next_page = fb_hash_next_page,
	},
	{
		.name = "GiST",
		.am = GIST_AM_OID,
		.gettuple = gistgettuple,
		.rescan = gistrescan,
		.endscan = gistendscan,
		.state_size = sizeof(GISTScanOpaqueData),
		.is_at_row = fb_gist_is_at_row,
		.next = fb_gist_next,
		.next_page = fb_gist_next_page,
	},
	{
		.name = "SP-GiST",
		.am = SPGIST_AM_OID,
		.gettuple = spggettuple,
		.rescan = spgrescan,
		.endscan = spgendscan,
		.state_size = sizeof(SpGistScanOpaqueData),
		.is_at_row = fb_spgist_is_at_row,
		.next = fb_spgist_next,
		.next_page = fb_spgist_next_page,
	},
};

/* The kind of an index that is not a b-tree; NULL if it has no look-ahead. */
FbIndexKind *
fb_other_index_kind(Relation index)
{
	for (int i = 0; i < lengthof(kinds); i++)
		if (kinds[i].am == index->rd_rel->relam)
			return &kinds[i];
	return NULL;
}
