/*
 * Replacing the function that executes a node of a plan.
 *
 * Other extensions replace it too: some in ExecProcNodeReal, which the server calls when it instruments a node, some in
 * ExecProcNode, before the server's first call or after it. Here one function is replaced by another, in whichever of
 * the two fields contains it, and restored only if the replacement is still there. So functions that other extensions
 * have installed around either stay.
 *
 * Failure: none.
 */
#include "forebay.h"

#include <dlfcn.h>

#include "executor/executor.h"

/* Whether a function is in the server's own program. */
static bool
fb_is_in_server(ExecProcNodeMtd function)
{
	Dl_info		program;
	Dl_info		here;

	return dladdr((void *) standard_ExecutorStart, &program) != 0 && dladdr((void *) function, &here) != 0 &&
		program.dli_fbase == here.dli_fbase;
}

/* Whether the server's own function executes a node. There is one function for each kind of node. */
bool
fb_method_is_own(FbMethod *method, PlanState *node)
{
	ExecProcNodeMtd real = node->ExecProcNodeReal;

	if (method->own == NULL && real != method->other)
	{
		if (fb_is_in_server(real))
			method->own = real;
		else
			method->other = real;
	}
	return real == method->own;
}

/* Makes `to` execute a node instead of `from`; returns false, unchanged, if another extension has replaced `from`. */
bool
fb_replace_method(PlanState *node, ExecProcNodeMtd from, ExecProcNodeMtd to)
{
	if (node->ExecProcNodeReal != from)
		return false;
	node->ExecProcNodeReal = to;
	/* Else it is a function of the server that calls ExecProcNodeReal, or another extension's. */
	if (node->ExecProcNode == from)
		node->ExecProcNode = to;
	return true;
}
