/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Loses a frame as a network does, without an error for the sender. TC_ACT_SHOT at
 * egress gives the sender ENOBUFS, and a sender that sees it sends the frame again.
 * TC_ACT_STOLEN loses the frame with clsact, but passes it with tcx (TCX_NEXT). A
 * redirect to an interface that does not exist loses it with both.
 */
#ifndef LOSE_H
#define LOSE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define NO_INTERFACE 0 /* never the index of an interface */

static __always_inline int lose(void)
{
	return bpf_redirect(NO_INTERFACE, 0);
}

#endif
