//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Applies fault rules to the RoCEv2 frames of an interface. docs/guides/fault.md lists the
 * supported rules. Semantics and random numbers are those of the Go engine in
 * internal/base/fault; tests compare both. The program does not change frames that are
 * not RoCEv2.
 *
 * A super-frame (segmentation offload) holds many packets, but a rule applies to one. The
 * program redirects super-frames to a detour through a veth without segmentation offload,
 * from which single frames return. After the first super-frame, all RoCEv2 frames of that
 * direction take the detour; otherwise frames would be reordered.
 */
#include <linux/pkt_cls.h>
#include "lose.h"
#include "roce.h"
#include "pcg.h"

#define MAX_RULES 64
#define MAX_NTH 64
#define MAX_FLOWS 512	/* LRU maps are approximate: twice what the rules promise */
#define FLOW_PSNS 4096	/* a power of two */
#define MASKED_BYTE 4	/* of the BTH: the ICRC does not cover it */
#define CERTAIN (1ULL << 53)
#define PASS TC_ACT_UNSPEC /* continue with the next program; TCX_NEXT has the same value */

enum dir { RX, TX };

/* Values of tc_index, which is otherwise unused since the removal of dsmark. */
enum tag {
	TAG_SINGLE = 0x5253, /* returns from the detour */
	TAG_COPY = 0x5243,   /* a duplicate: the rules have been applied */
};

enum action { DROP = 1, DUPLICATE, CORRUPT, ECN };

/* A rule as compiled by Go. Numbers are in host byte order. */
struct rule {
	struct in6_addr peer, src, dst;
	__u64 ops[4];	 /* opcodes of the class */
	__u64 nth;	 /* bit n-1 for the n-th transmission, 0 for all */
	__u64 threshold; /* probability in 2^-53 */
	__u64 count;	 /* maximum number of hits, 0 for no limit */
	__u32 qpn;
	__u32 psn_first, psn_last;
	__s32 offset; /* of corrupt */
	__u32 copies; /* number of additional copies */
	__u16 path, paths; /* UDP source port modulo paths is path; no paths: any */
	__u8 dirs;    /* bits 1 << RX, 1 << TX */
	__u8 action;
	__u8 has_peer, has_src, has_dst, has_qpn, has_psn, has_offset;
	__u8 relative;
	__u8 nak; /* no ACK syndrome */
	__u8 pad[6];
};

/* Variable state of a rule. */
struct state {
	struct bpf_spin_lock lock;
	__u32 pad;
	struct pcg pcg;
	__u64 matched, hit;
};

struct settings {
	__u32 ifindex;
	__u32 track;	 /* a rule needs flows */
	__u32 detour[2]; /* ifindex of the detour, by direction of the super-frames */
	__u32 split[2];	 /* a super-frame has been seen */
	__u32 dirs;	 /* bits 1 << RX, 1 << TX of all rules */
	__u64 qpns[2];	 /* bit q % 64 if a rule of a direction may match queue pair q */
};

struct counters {
	__u64 frames; /* RoCEv2 frames; super-frames, in a direction without rules */
	__u64 supers; /* super-frames redirected to the detour */
	__u64 unsplit; /* super-frames that returned; no rule was applied */
};

struct flow_key {
	struct in6_addr src, dst;
	__u32 qpn;
	__u16 dir, kind;
};

#define BASE_KNOWN (1U << 31)

struct flow {
	__u32 base;		/* first PSN, with BASE_KNOWN */
	__u32 seen[FLOW_PSNS]; /* by PSN modulo FLOW_PSNS: PSN << 8 | count */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_RULES);
	__type(key, __u32);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_RULES);
	__type(key, __u32);
	__type(value, struct state);
} states SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* By direction. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FLOWS);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* An empty flow; too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} blank SEC(".maps");

/* Sequence of PSNs of each opcode, as in internal/base/fault. */
const volatile __u8 kinds[256];

/* A frame during the application of the rules. */
struct frame {
	struct __sk_buff *skb;
	struct roce r;
	__u32 dir;
	__u64 nth; /* bit n-1 for the n-th transmission of the PSN */
	__u32 base;
	__u32 copies;
	__u32 ifindex;
};

/* Records the frame in its flow. Two CPUs that see the same PSN of a flow at the same
 * time may count it only once; their order is not defined either. */
static __always_inline void observe(struct frame *f)
{
	struct flow_key key = {
		.src = f->r.src, .dst = f->r.dst, .qpn = f->r.qpn, .dir = f->dir, .kind = kinds[f->r.opcode],
	};
	struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	__u32 zero = 0, psn = f->r.psn, n;
	__u32 *seen;

	if (!flow) {
		flow = bpf_map_lookup_elem(&blank, &zero);
		if (!flow)
			return;
		bpf_map_update_elem(&flows, &key, flow, BPF_NOEXIST);
		flow = bpf_map_lookup_elem(&flows, &key);
		if (!flow)
			return;
	}
	if (!flow->base)
		__sync_val_compare_and_swap(&flow->base, 0, psn | BASE_KNOWN);
	f->base = flow->base & ROCE_24BITS;
	seen = &flow->seen[psn & (FLOW_PSNS - 1)];
	n = *seen >> 8 == psn ? *seen & 0xff : 0;
	if (n <= MAX_NTH)
		n++;
	*seen = psn << 8 | n;
	f->nth = n <= MAX_NTH ? 1ULL << (n - 1) : 0;
}

static __always_inline int same(const struct in6_addr *a, const struct in6_addr *b)
{
	const __u32 *x = a->in6_u.u6_addr32, *y = b->in6_u.u6_addr32;

	return x[3] == y[3] && x[2] == y[2] && x[1] == y[1] && x[0] == y[0];
}

/* Returns whether the PSN is in the range of the rule; distances are modulo 2^24. */
static __always_inline int psn_matches(const struct rule *r, const struct frame *f)
{
	__s32 d;

	if (!r->relative)
		return ((f->r.psn - r->psn_first) & ROCE_24BITS) <= ((r->psn_last - r->psn_first) & ROCE_24BITS);
	d = (__s32)((f->r.psn - f->base) << 8) >> 8;
	return d >= (__s32)r->psn_first && d <= (__s32)r->psn_last;
}

static __always_inline int matches(const struct rule *r, const struct frame *f)
{
	if (!(r->dirs >> (f->dir & 1) & 1))
		return 0;
	if (r->has_qpn && r->qpn != f->r.qpn)
		return 0;
	if (!(r->ops[f->r.opcode >> 6] >> (f->r.opcode & 63) & 1))
		return 0;
	if (r->nak && !(f->r.syndrome >> 5))
		return 0;
	if (r->has_peer && !same(&r->peer, f->dir == TX ? &f->r.dst : &f->r.src))
		return 0;
	if (r->has_src && !same(&r->src, &f->r.src))
		return 0;
	if (r->has_dst && !same(&r->dst, &f->r.dst))
		return 0;
	if (r->paths && bpf_ntohs(f->r.sport) % r->paths != r->path)
		return 0;
	if (r->has_psn && !psn_matches(r, f))
		return 0;
	return !r->nth || r->nth & f->nth;
}

/* Returns the byte to corrupt, of len bytes that start with the BTH; len if there is none. */
static __always_inline __u32 corrupt_at(const struct rule *r, struct pcg *pcg, __u32 len)
{
	__s64 at;

	if (!r->has_offset) {
		at = pcg_next(pcg) % (len - 1);
		return at >= MASKED_BYTE ? at + 1 : at;
	}
	at = r->offset < 0 ? (__s64)len + r->offset : r->offset;
	return at < 0 || at >= len || at == MASKED_BYTE ? len : at;
}

/* Counts a matching frame, and returns whether the rule acts on it. */
static __always_inline int draw(const struct rule *r, struct state *s, __u32 len, __u32 *at)
{
	int act = 0;

	bpf_spin_lock(&s->lock);
	s->matched++;
	if (r->count && s->hit >= r->count)
		goto out;
	if (r->threshold != CERTAIN && pcg_next(&s->pcg) >> 11 >= r->threshold)
		goto out;
	if (r->action == CORRUPT) {
		*at = corrupt_at(r, &s->pcg, len);
		if (*at == len)
			goto out;
	}
	s->hit++;
	act = 1;
out:
	bpf_spin_unlock(&s->lock);
	return act;
}

/* Adds one to a byte, so that two corruptions do not cancel each other. */
static __always_inline void corrupt(struct frame *f, __u32 at)
{
	__u8 b;

	if (bpf_skb_load_bytes(f->skb, f->r.bth + at, &b, 1))
		return;
	b++;
	bpf_skb_store_bytes(f->skb, f->r.bth + at, &b, 1, BPF_F_RECOMPUTE_CSUM);
}

/* Marks Congestion Experienced (RFC 3168 section 5). */
static __always_inline void mark_ce(struct frame *f)
{
	__u8 old[2];
	__be16 before, after;

	if (bpf_skb_load_bytes(f->skb, f->r.l3, old, 2))
		return;
	before = bpf_htons(old[0] << 8 | old[1]);
	old[1] |= f->r.v6 ? 0x30 : 0x03;
	after = bpf_htons(old[0] << 8 | old[1]);
	if (!f->r.v6)
		bpf_l3_csum_replace(f->skb, f->r.l3 + 10, before, after, 2);
	bpf_skb_store_bytes(f->skb, f->r.l3 + 1, &old[1], 1, f->r.v6 ? BPF_F_RECOMPUTE_CSUM : 0);
}

/* Applies one rule; returns 1 if no further rule applies. */
static long ask(void *map, const __u32 *key, struct rule *r, struct frame *f)
{
	struct state *s;
	__u32 at = 0;

	(void)map;
	if (!r->action)
		return 1;
	if (!matches(r, f))
		return 0;
	s = bpf_map_lookup_elem(&states, key);
	if (!s || !draw(r, s, f->r.end - f->r.bth, &at))
		return 0;
	switch (r->action) {
	case DROP:
		f->copies = 0;
		return 1;
	case DUPLICATE:
		f->copies += r->copies;
		break;
	case CORRUPT:
		corrupt(f, at);
		break;
	case ECN:
		mark_ce(f);
		break;
	}
	return 0;
}

/* Sends one copy in the direction of the frame. */
static long copy(__u64 i, struct frame *f)
{
	(void)i;
	bpf_clone_redirect(f->skb, f->ifindex, f->dir == RX ? BPF_F_INGRESS : 0);
	return 0;
}

/* Redirects a frame to the detour. */
static __always_inline int take_detour(struct __sk_buff *skb, __u32 dir, struct settings *set, struct counters *c)
{
	if (skb->gso_size) { /* gso_segs may be 0 for frames of a TAP */
		c->supers++;
		set->split[dir] = 1;
	}
	skb->tc_index = TAG_SINGLE;
	return bpf_redirect(set->detour[dir], 0);
}

static __always_inline int parse(struct __sk_buff *skb, struct roce *r)
{
	if ((__u32)(skb->data_end - skb->data) < ROCE_HEADERS &&
	    bpf_skb_pull_data(skb, skb->len < ROCE_HEADERS ? skb->len : ROCE_HEADERS))
		return 0;
	return roce_parse((void *)(long)skb->data, (void *)(long)skb->data_end, skb->len, r);
}

/* Applies the rules to a frame. */
static __always_inline int judge(struct __sk_buff *skb, __u32 dir, const struct roce *r, const struct settings *set)
{
	struct frame f = {.skb = skb, .r = *r, .dir = dir, .copies = 1, .ifindex = set->ifindex};

	if (set->track)
		observe(&f);
	bpf_for_each_map_elem(&rules, ask, &f, 0);
	if (!f.copies)
		return lose();
	if (f.copies == 1)
		return PASS;
	skb->tc_index = TAG_COPY;
	bpf_loop(f.copies - 1, copy, &f, 0);
	skb->tc_index = 0;
	return PASS;
}

static __always_inline int handle(struct __sk_buff *skb, __u32 dir)
{
	struct roce r;
	/* The verifier of Linux 6.1 does not track the bounds of key, which is in memory. */
	__u32 zero = 0, key = dir, tag = skb->tc_index;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);
	struct counters *c = bpf_map_lookup_elem(&counters, &key);

	if (tag == TAG_SINGLE || tag == TAG_COPY)
		skb->tc_index = 0;
	if (!set || !c || !set->dirs || tag == TAG_COPY || !parse(skb, &r))
		return PASS;
	if (!(set->dirs >> dir & 1)) {
		c->frames++;
		return PASS;
	}
	if (tag != TAG_SINGLE && (skb->gso_size || set->split[dir]))
		return take_detour(skb, dir, set, c);
	c->frames++;
	if (skb->gso_size) {
		c->unsplit++;
		return PASS;
	}
	if (!(set->qpns[dir] >> (r.qpn & 63) & 1))
		return PASS; /* most frames, while rules are about single queue pairs */
	return judge(skb, dir, &r, set);
}

SEC("tcx/ingress")
int fault_rx(struct __sk_buff *skb)
{
	return handle(skb, RX);
}

SEC("tcx/egress")
int fault_tx(struct __sk_buff *skb)
{
	return handle(skb, TX);
}

/* At the ends of the detour: returns frames to the interface, in their direction. */
static __always_inline int back(struct __sk_buff *skb, __u64 flags)
{
	__u32 zero = 0;
	struct settings *set = bpf_map_lookup_elem(&settings, &zero);

	if (!set || skb->tc_index != TAG_SINGLE)
		return TC_ACT_SHOT;
	return bpf_redirect(set->ifindex, flags);
}

SEC("tcx/ingress")
int detour_rx(struct __sk_buff *skb)
{
	return back(skb, BPF_F_INGRESS);
}

SEC("tcx/ingress")
int detour_tx(struct __sk_buff *skb)
{
	return back(skb, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL"; /* gives access to all helpers */
