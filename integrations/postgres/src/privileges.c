/*
 * Who may see what is known about a relation's reads: users who may read all of its rows.
 *
 * A user's query reads what the owners of its functions and views may read, and which blocks are read reveals
 * information about rows. So our views show a relation only to users who may SELECT from it and are not restricted by a
 * row-level policy.
 *
 * Failure: a dropped relation is shown to no user. Catalog look-ups can fail as anywhere.
 */
#include "forebay.h"

#include "catalog/index.h"
#include "utils/acl.h"
#include "utils/rls.h"

/* For an index, the privileges of its table count. */
bool
fb_may_read(Oid relation, Oid user)
{
	Oid			table = IndexGetRelation(relation, true);
	bool		missing = false;

	if (!OidIsValid(table))
		table = relation;
	return pg_class_aclcheck_ext(table, user, ACL_SELECT, &missing) == ACLCHECK_OK &&
		check_enable_rls(table, user, true) != RLS_ENABLED;
}
