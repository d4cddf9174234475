/*
 * Who may see what is known of a relation's reads: who may read all of its rows.
 *
 * A user's query reads what its functions' and views' owners may read, and the planner's choice of blocks tells of rows. So a
 * view of ours shows a relation only to those who may SELECT from it, and whom no row-level policy restricts.
 *
 * Failure: a relation that is gone is shown to no user. Looking into the catalogs fails as anywhere.
 */
#include "forebay.h"

#include "catalog/index.h"
#include "utils/acl.h"
#include "utils/rls.h"

/* An index belongs to its table. */
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
