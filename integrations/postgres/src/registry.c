/*
 * Our data about the server's objects, by kind and address.
 *
 * A call by the server finds its data here in constant time, however many queries are open. Data is detached before
 * the server's object is freed, so an address that is reused finds nothing old.
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

/* No address has its highest bits set. */
static uint64
fb_registry_key(FbKind kind, const void *object)
{
	return (uint64) (uintptr_t) object << 3 | kind;
}

void
fb_attach(FbKind kind, const void *object, void *ours)
{
	bool		found;

	if (entries == NULL)
		entries = entries_create(TopMemoryContext, 64, NULL);
	entries_insert(entries, fb_registry_key(kind, object), &found)->ours = ours;
}

/* The data attached to an object; NULL if there is none. */
void *
fb_attached(FbKind kind, const void *object)
{
	Entry	   *entry;

	if (entries == NULL || entries->members == 0)
		return NULL;
	entry = entries_lookup(entries, fb_registry_key(kind, object));
	return entry != NULL ? entry->ours : NULL;
}

/* Does nothing if nothing is attached. */
void
fb_detach(FbKind kind, const void *object)
{
	if (entries != NULL)
		entries_delete(entries, fb_registry_key(kind, object));
}
