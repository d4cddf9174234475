/*
 * Our data about the server's objects, by kind and address.
 *
 * A call by the server finds its data here in constant time, however many queries are open. Data is detached before
 * the server's object is freed, so an address that is reused finds nothing old.
 *
 * The object of each kind that was attached last is kept outside the table, as most queries have one: a look-up of a
 * single row would otherwise spend most of our time here.
 *
 * Failure: out of memory, only in fb_attach.
 */
#include "forebay.h"

#include "common/hashfn.h"
#include "utils/memutils.h"

typedef struct Entry
{
	uint64		key;
	void	   *ours;
	char		status;
} Entry;

/* Probes are short in a table that is half empty. */
#define SH_FILLFACTOR (0.5)
#define SH_PREFIX entries
#define SH_ELEMENT_TYPE Entry
#define SH_KEY_TYPE uint64
#define SH_KEY key
/* All bits are used: objects of one size have addresses with equal low bits. */
#define SH_HASH_KEY(table, key) murmurhash32((uint32) (key) ^ (uint32) ((key) >> 32))
#define SH_EQUAL(table, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static entries_hash *entries = NULL;

/* The objects attached last; the others are in the table. */
static struct
{
	const void *object;			/* NULL if there is none */
	void	   *ours;
}			latest[FB_KINDS];

/* No address has its highest bits set. */
static uint64
fb_registry_key(FbKind kind, const void *object)
{
	return (uint64) (uintptr_t) object << 3 | kind;
}

/* Moves the object attached last to the table, and attaches another. */
static pg_noinline void
fb_attach_another(FbKind kind, const void *object, void *ours)
{
	bool		found;

	if (entries == NULL)
		entries = entries_create(TopMemoryContext, 64, NULL);
	entries_insert(entries, fb_registry_key(kind, latest[kind].object), &found)->ours = latest[kind].ours;
	latest[kind].object = object;
	latest[kind].ours = ours;
}

static pg_noinline void *
fb_registry_lookup(FbKind kind, const void *object)
{
	Entry	   *entry;

	if (entries == NULL || entries->members == 0)
		return NULL;
	entry = entries_lookup(entries, fb_registry_key(kind, object));
	return entry != NULL ? entry->ours : NULL;
}

static pg_noinline void
fb_registry_delete(FbKind kind, const void *object)
{
	if (entries != NULL)
		entries_delete(entries, fb_registry_key(kind, object));
}

void
fb_attach(FbKind kind, const void *object, void *ours)
{
	if (latest[kind].object != NULL)
	{
		fb_attach_another(kind, object, ours);
		return;
	}
	latest[kind].object = object;
	latest[kind].ours = ours;
}

/* The data attached to an object; NULL if there is none. */
void *
fb_attached(FbKind kind, const void *object)
{
	return latest[kind].object == object ? latest[kind].ours : fb_registry_lookup(kind, object);
}

/* Does nothing if nothing is attached. */
void
fb_detach(FbKind kind, const void *object)
{
	if (latest[kind].object != object)
	{
		fb_registry_delete(kind, object);
		return;
	}
	latest[kind].object = latest[kind].ours = NULL;
}
