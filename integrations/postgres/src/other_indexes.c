/*
 * The rows ahead of hash and GiST scans.
 *
 * Such a scan keeps all matching rows of one index page. A GiST scan also keeps a priority queue of the pages that it has
 * not visited, and, if it is ordered by distance, of the rows that it has not returned. So what is next is in the scan's
 * own state, which we only read: the heap blocks of the next rows, and the next pages of the index. Beyond the pages that
 * the scan has read, nothing is known.
 *
 * It relies on HashScanOpaqueData and GISTScanOpaqueData, which do not change within a major version; see index_scan.c
 * for the checks that guard it.
 *
 * Left out: SP-GiST, GIN and BRIN; GIN and BRIN have bitmap scans only.
 *
 * Failure: none; a page that an insert has split costs a hint too few.
 */
#include "forebay.h"

#include "access/gist_private.h"
#include "access/gistscan.h"
#include "access/hash.h"
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

/*
 * The candidates for the next item of a queue: a heap whose first is the next one. Their distances are compared here, as
 * the queue's own comparison costs ten times as much, and which of two equal ones is first does not matter.
 */
typedef struct Candidate
{
	double		distance;		/* 0 in a scan that is not ordered */
	pairingheap_node *node;
} Candidate;

typedef struct Candidates
{
	bool		ordered;
	int			count;
	Candidate	all[EXAMINED_MAX];
} Candidates;

static double
fb_distance_to(Candidates *candidates, pairingheap_node *node)
{
	GISTSearchItem *item = pairingheap_container(GISTSearchItem, phNode, node);

	if (!candidates->ordered)
		return 0;
	return item->distances[0].isnull ? get_float8_infinity() : item->distances[0].value;
}

/* Adds a node and its siblings, while there is room. */
static void
fb_add_candidates(Candidates *candidates, pairingheap_node *node)
{
	Candidate  *all = candidates->all;

	for (; node != NULL && candidates->count < EXAMINED_MAX; node = node->next_sibling)
	{
		Candidate	one = {fb_distance_to(candidates, node), node};
		int			at = candidates->count++;

		for (; at > 0 && one.distance < all[(at - 1) / 2].distance; at = (at - 1) / 2)
			all[at] = all[(at - 1) / 2];
		all[at] = one;
	}
}

/* Removes the first candidate. */
static pairingheap_node *
fb_remove_candidate(Candidates *candidates)
{
	Candidate  *all = candidates->all;
	pairingheap_node *first = all[0].node;
	int			count = --candidates->count;
	Candidate	last = all[count];
	int			at = 0;

	for (int child = 1; child < count; child = 2 * at + 1)
	{
		if (child + 1 < count && all[child + 1].distance < all[child].distance)
			child++;
		if (last.distance <= all[child].distance)
			break;
		all[at] = all[child];
		at = child;
	}
	all[at] = last;
	return first;
}

/* The next items of the queue, which stays as it is. Every node of a pairing heap comes before its children. */
static int
fb_gist_queued(IndexScanDesc desc, FbNextBlock *to, int most)
{
	Candidates *candidates = palloc(sizeof(Candidates));
	int			count = 0;

	candidates->ordered = fb_gist_is_ordered(desc);
	candidates->count = 0;
	fb_add_candidates(candidates, ((GISTScanOpaque) desc->opaque)->queue->ph_root);
	while (count < most && candidates->count > 0)
	{
		pairingheap_node *node = fb_remove_candidate(candidates);
		GISTSearchItem *item = pairingheap_container(GISTSearchItem, phNode, node);

		if (GISTSearchItemIsHeap(*item))
			to[count++] = (FbNextBlock) {ItemPointerGetBlockNumberNoCheck(&item->data.heap.heapPtr), false};
		else
			to[count++] = (FbNextBlock) {item->blkno, true};
		fb_add_candidates(candidates, node->first_child);
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
	return so->queue != NULL ? count + fb_gist_queued(desc, to + count, most - count) : count;
}

static BlockNumber
fb_gist_next_page(IndexScanDesc desc, ScanDirection direction)
{
	GISTScanOpaque so = (GISTScanOpaque) desc->opaque;

	if (so->queue == NULL || pairingheap_is_empty(so->queue) || so->curPageData < so->nPageData)
		return InvalidBlockNumber;
	return pairingheap_container(GISTSearchItem, phNode, so->queue->ph_root)->blkno;
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
