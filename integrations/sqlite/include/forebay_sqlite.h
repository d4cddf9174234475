/*
 * Read-ahead for SQLite: the VFS `forebay` prefetches the pages that a query will read next.
 *
 * A program that links SQLite and this library calls forebay_sqlite_use() once, before it opens a database with the
 * URI file:data.db?vfs=forebay. A program that only loads extensions needs no header: it loads the library by the
 * entry points below.
 *
 * All functions may be called from any thread.
 */
#ifndef FOREBAY_SQLITE_H
#define FOREBAY_SQLITE_H

#include <sqlite3.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Registers the VFS in the SQLite that these functions belong to, for the life of the process. If as_default is not 0,
 * it becomes the VFS of every database that is opened without naming one. May be called again.
 *
 * That SQLite must be 3.35 or later. Returns SQLITE_OK; SQLITE_NOMEM; SQLITE_ERROR if its default VFS cannot be wrapped;
 * or what sqlite3_vfs_register returned. The reason is reported to sqlite3_log.
 */
int forebay_sqlite_register(sqlite3_vfs *(*find)(const char *),
                            int (*register_vfs)(sqlite3_vfs *, int),
                            char *(*print)(const char *, ...),
                            const char *(*uri_parameter)(const char *, const char *),
                            void (*log)(int, const char *, ...),
                            int as_default);

/* The same for the SQLite that the caller is linked with. Returns SQLITE_ERROR if it is older than 3.35. */
static inline int forebay_sqlite_use(int as_default)
{
    if (sqlite3_libversion_number() < 3035000)
        return SQLITE_ERROR;
    return forebay_sqlite_register(sqlite3_vfs_find, sqlite3_vfs_register, sqlite3_mprintf, sqlite3_uri_parameter,
                                   sqlite3_log, as_default);
}

/*
 * Gives each connection that is opened later the table forebay_stats:
 * sqlite3_auto_extension((void (*)(void))forebay_sqlite_stats).
 */
int forebay_sqlite_stats(sqlite3 *, char **, const struct sqlite3_api_routines *);

/* Entry points of the loaded extension: the VFS by its name, and as the default of the process. */
int sqlite3_forebaysqlite_init(sqlite3 *, char **, const struct sqlite3_api_routines *);
int sqlite3_forebay_default_init(sqlite3 *, char **, const struct sqlite3_api_routines *);

#ifdef __cplusplus
}
#endif

#endif
