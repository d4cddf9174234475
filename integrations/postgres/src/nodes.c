/*
 * In the place of what carries out a node of a plan.
 *
 * Other extensions put themselves there too: some in ExecProcNodeReal, which the server goes through where it measures
 * a node, some in ExecProcNode, before the server's first call or after it. A function of ours takes the place of one
 * function only, wherever that stands, and gives it back only where ours still stands. So one that another extension has
 * put around either stays.
 *
 * Failure: none.
 */
#include "forebay.h"

#include <dlfcn.h>

#include "executor/executor.h"

/* Whether a function is in the server's own program. */
static bool
is_in_server(ExecProcNodeMtd function)
{
	Dl_info		program;
	Dl_info		here;

	return dladdr((void *) standard_ExecutorStart, &program) != 0 && dladdr((void *) function, &here) != 0 &&
		program.dli_fbase == here.dli_fbase;
}

/* Whether what carries out a node is the server's own, of which there is one for a kind of node. */
bool
fb_method_is_own(FbMethod *method, PlanState *node)
{
	ExecProcNodeMtd real = node->ExecProcNodeReal;

	if (method->own == NULL && real != method->other)
	{
		if (is_in_server(real))
			method->own = real;
		else
			method->other = real;
	}
	return real == method->own;
}

/* Has a node carried out by `to` where it was by `from`; false if it was not, as another extension has come after it. */
bool
fb_replace_method(PlanState *node, ExecProcNodeMtd from, ExecProcNodeMtd to)
{
	if (node->ExecProcNodeReal != from)
		return false;
	node->ExecProcNodeReal = to;
	/* Else it is a function of the server's that goes through the other, or another extension's. */
	if (node->ExecProcNode == from)
		node->ExecProcNode = to;
	return true;
}
