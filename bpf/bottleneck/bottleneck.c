//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Marks the frames of a bottleneck: a virtual queue that a token bucket drains, and RED
 * on its length (Floyd and Jacobson 1993; with the instantaneous length, as in the
 * switches of DCQCN). RED marks ECN-capable frames and drops others (RFC 3168 section 5).
 * The real queue is a tbf after this program with the same rate and burst: a tc program
 * cannot delay frames, and tbf cannot mark them.
 *
 * The state of the queue is the time at which it will be empty, so that no timer is
 * necessary.
 */
#include <linux/pkt_cls.h>
#include "lose.h"
#include "roce.h"
#include "pcg.h"

#define PASS TC_ACT_UNSPEC /* continue with the next program; TCX_NEXT has the same value */
#define FRACTION 20	   /* fractional bits of cost */

/* Queue lengths are the drain time in nanoseconds. */
struct settings {
	__u64 cost;	 /* of a byte, nanoseconds << FRACTION */
	__u64 burst;
	__u64 kmin, kmax, limit;
	__u64 pmax;	 /* of 2^32 */
	__u32 roce_only; /* mark and drop RoCEv2 only; all frames count */
	__u32 test_clock; /* read the time from the frame */
};

struct state {
	struct bpf_spin_lock lock;
	__u32 fraction; /* fraction of a nanosecond to add to empty */
	__u64 empty;	/* time at which the queue will be empty */
	struct pcg pcg;
	__u64 frames, bytes, marked, dropped, overflowed;
	__u64 longest; /* longest queue */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} states SEC(".maps");

enum decision { QUEUE, MARK, OVERFLOW };

/* RED: returns whether to mark a frame that finds a queue of length q. */
static __always_inline int red(const struct settings *set, struct state *s, __u64 q)
{
	__u64 p;

	if (q < set->kmin)
		return 0;
	if (q >= set->kmax)
		return 1;
	/* kmax > kmin here; lengths are below 2^32, so nothing overflows */
	p = set->pmax * (q - set->kmin) / (set->kmax - set->kmin);
	return pcg_next(&s->pcg) >> 32 < p;
}

/*
 * Decides on a frame that arrives now. first is the cost of its first packet: a super-frame
 * enters the queue if its first packet fits, so that it passes a limit below its length.
 */
static __always_inline enum decision decide(const struct settings *set, struct state *s, __u64 now, __u64 first)
{
	enum decision d = QUEUE;
	__u64 q = 0;

	bpf_spin_lock(&s->lock);
	if (s->empty > now)
		q = s->empty - now;
	if (q > s->longest)
		s->longest = q;
	if (q + (first >> FRACTION) > set->limit)
		d = OVERFLOW;
	else if (red(set, s, q))
		d = MARK;
	bpf_spin_unlock(&s->lock);
	return d;
}

static __always_inline void enqueue(const struct settings *set, struct state *s, __u64 now, __u64 cost, __u32 len, int marked)
{
	bpf_spin_lock(&s->lock);
	if (s->empty + set->burst < now)
		s->empty = now - set->burst;
	cost += s->fraction;
	s->empty += cost >> FRACTION;
	s->fraction = cost & ((1 << FRACTION) - 1);
	s->frames++;
	s->bytes += len;
	s->marked += marked;
	bpf_spin_unlock(&s->lock);
}

/* Returns the length of the first packet of a super-frame, or of a single frame. */
static __always_inline __u32 first_packet(const struct __sk_buff *skb, __u32 len)
{
	__u32 n = skb->gso_size + ROCE_HEADERS;

	return skb->gso_size && n < len ? n : len;
}

static __always_inline int is_roce(struct __sk_buff *skb)
{
	struct roce r;

	if ((__u32)(skb->data_end - skb->data) < ROCE_HEADERS &&
	    bpf_skb_pull_data(skb, skb->len < ROCE_HEADERS ? skb->len : ROCE_HEADERS))
		return 0;
	return roce_parse((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len, &r);
}

SEC("tcx/egress")
int bottleneck(struct __sk_buff *skb)
{
	__u32 zero = 0, len = skb->wire_len; /* of super-frames with the headers of all */
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	struct state *s = bpf_map_lookup_elem(&states, &zero);
	__u64 now, cost;
	enum decision d;

	if (!set || !s)
		return PASS;
	now = set->test_clock ? skb->tstamp : bpf_ktime_get_ns();
	cost = set->cost * len;
	d = decide(set, s, now, set->cost * first_packet(skb, len));
	if (d != QUEUE && set->roce_only && !is_roce(skb))
		d = QUEUE;
	if (d == OVERFLOW) {
		__sync_fetch_and_add(&s->overflowed, 1);
		return lose();
	}
	if (d == MARK && !bpf_skb_ecn_set_ce(skb)) {
		__sync_fetch_and_add(&s->dropped, 1);
		return lose();
	}
	enqueue(set, s, now, cost, len, d == MARK);
	return PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL"; /* gives access to all helpers */
