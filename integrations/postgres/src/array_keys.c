/*
 * Look-ahead of index scans with an array: `column = ANY (array)`.
 *
 * nbtree descends the index for one element after another, in index order, unless they are on the same leaf. The
 * scan's state has the sorted elements and the number of the current one; ahead.c searches the index for the elements
 * after it.
 *
 * Only scans with a single array are supported. The columns before the array's must be fixed by equality, otherwise the
 * array does not determine where the scan goes.
 *
 * Failure: none.
 */
#include "forebay.h"

typedef struct FbElements
{
	FbAhead		ahead;
	/* The column of the array, from 1. */
	AttrNumber	column;
	bool		backward;
} FbElements;

/* The scan's array; NULL if nbtree's preprocessing left no array, or more than one. */
static BTArrayKeyInfo *
fb_array_of(FbElements *elements)
{
	IndexScanDesc desc = *elements->ahead.scan->scan;
	BTScanOpaque so = (BTScanOpaque) desc->opaque;
	ScanKey		keys;

	if (so->numArrayKeys != 1 || so->arrayKeys[0].num_elems < 2)
		return NULL;
#if PG_VERSION_NUM >= 170000
	keys = so->keyData;
#else
	keys = so->arrayKeyData;
#endif
	return keys[so->arrayKeys[0].scan_key].sk_attno == elements->column ? &so->arrayKeys[0] : NULL;
}

static bool
fb_element_has(FbAhead *ahead, uint64 number)
{
	BTArrayKeyInfo *array = fb_array_of((FbElements *) ahead);

	return array != NULL && number < array->num_elems;
}

static bool
fb_element_set(FbAhead *ahead, uint64 number)
{
	FbElements *elements = (FbElements *) ahead;
	BTArrayKeyInfo *array = fb_array_of(elements);

	return array != NULL &&
		fb_probe_set(ahead->probe, NULL,
					 array->elem_values[elements->backward ? array->num_elems - 1 - number : number]);
}

static FbProbe *
fb_element_prepare(FbAhead *ahead)
{
	return (*ahead->scan->scan)->parallel_scan == NULL ? fb_probe_make(ahead->scan, NULL, NULL) : NULL;
}

/* The scan has returned a row: looks ahead from its current element. */
static void
fb_element_follow(FbAhead *ahead, ScanDirection direction)
{
	FbElements *elements = (FbElements *) ahead;
	BTArrayKeyInfo *array = ahead->probe != NULL ? fb_array_of(elements) : NULL;
	bool		backward = ScanDirectionIsBackward(direction);
	uint64		number;

	if (array == NULL || !fb_ahead_is_active(ahead))
		return;
	number = backward ? array->num_elems - 1 - array->cur_elem : array->cur_elem;
	if (number < ahead->head || backward != elements->backward)
		fb_ahead_restart(ahead);
	elements->backward = backward;
	if (number != ahead->head)
		ahead->taken++;
	ahead->head = number;
	fb_ahead_take(ahead, number);
	fb_ahead_look(ahead, number + 1);
}

static const FbSource array_elements = {fb_element_prepare, fb_element_has, fb_element_set, NULL, fb_element_follow};

/* Adds look-ahead for array elements to a scan that is being registered, if it has a single array. */
void
fb_elements_register(FbScan *scan, ScanKey keys, int key_count)
{
	FbElements *elements;
	ScanKey		array = NULL;

	for (int i = 0; i < key_count; i++)
	{
		if (!(keys[i].sk_flags & SK_SEARCHARRAY))
			continue;
		if (array != NULL)
			return;
		array = &keys[i];
	}
	if (array == NULL)
		return;
	elements = MemoryContextAllocZero(scan->query->estate->es_query_cxt, sizeof(FbElements));
	elements->column = array->sk_attno;
	fb_ahead_init(&elements->ahead, scan, &array_elements, scan->whole);
}
