//go:build ignore

/*
 * Watches RoCEv2 without touching it: a filter of a packet socket that copies the
 * headers of RoCEv2 packets into a ring buffer and lets the socket itself have
 * nothing. It sees what tcpdump sees. Of a super-frame, which the kernel cuts into
 * datagrams of gso_size bytes only when it must, the headers of each datagram to be
 * are copied.
 *
 * The socket is one of type SOCK_DGRAM: packets begin with the IP header.
 */
#include "roce.h"

#define GSI_QPN 1 /* the connection manager's queue pair */
#define MAX_SEGMENTS 128 /* UDP_MAX_SEGMENTS of the kernel */

#define HEADERS 68    /* the longest IPv4 header and UDP */
#define TRANSPORT 96  /* the longest BTH with extension headers */
#define MANAGEMENT 276 /* BTH, DETH and a management datagram of 256 bytes */

/* Keeps the compiler from merging the bounds of v into what the verifier does not see. */
#define KEEP(v) asm volatile("" : "+r"(v))

/* What the ring buffer holds of a packet. The size of a record tells which. */
struct event {
	__u64 time;	   /* ns, CLOCK_MONOTONIC */
	__u16 segment;	   /* place in its super-frame */
	__u16 payload;	   /* bytes of the UDP payload of a segment; 0: see the headers */
	__u16 headers_len; /* IP and UDP */
	__u16 kept;	   /* bytes of the UDP payload that are here */
	__u8 headers[HEADERS];
	__u8 transport[TRANSPORT];
};

struct management {
	struct event start;
	__u8 rest[MANAGEMENT - TRANSPORT];
};

/* Its size is set when it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

__u64 lost;		/* packets for which the ring buffer had no room */
volatile const __u64 wakeup; /* bytes in the ring buffer for which its reader is woken */

/* One packet, single or to be: where its UDP payload begins, and how much there is. */
struct piece {
	__u32 headers;
	__u32 from;
	__u32 len;
	__u32 segment;
	__u32 payload;
};

static __always_inline void submit(void *e)
{
	__u64 waiting = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA);

	bpf_ringbuf_submit(e, waiting >= wakeup ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* Fills e with the packet of p; transport bytes go to to, room of them. */
static __always_inline int fill(struct __sk_buff *skb, const struct piece *p, struct event *e,
				void *to, __u32 room)
{
	__u64 headers = p->headers, kept = p->len;

	if (kept < sizeof(struct roce_bth))
		return -1;
	KEEP(kept);
	if (kept > room)
		kept = room;
	KEEP(kept);
	if (headers < 1)
		return -1;
	KEEP(headers);
	if (headers > HEADERS)
		return -1;
	e->time = bpf_ktime_get_ns();
	e->segment = p->segment;
	e->payload = p->payload;
	e->headers_len = headers;
	e->kept = kept;
	if (bpf_skb_load_bytes(skb, 0, e->headers, headers))
		return -1;
	return bpf_skb_load_bytes(skb, p->from, to, kept);
}

static __noinline int packet(struct __sk_buff *skb, const struct piece *p)
{
	struct roce_bth bth;
	struct event *e;
	int management, bad;

	if (!p || bpf_skb_load_bytes(skb, p->from, &bth, sizeof(bth)))
		return 0;
	management = (bpf_ntohl(bth.qpn) & ROCE_24BITS) == GSI_QPN;
	if (management)
		e = bpf_ringbuf_reserve(&events, sizeof(struct management), 0);
	else
		e = bpf_ringbuf_reserve(&events, sizeof(struct event), 0);
	if (!e) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	if (management)
		bad = fill(skb, p, e, e->transport, MANAGEMENT);
	else
		bad = fill(skb, p, e, e->transport, TRANSPORT);
	if (bad)
		bpf_ringbuf_discard(e, BPF_RB_NO_WAKEUP);
	else
		submit(e);
	return 0;
}

/* Returns the length of the IP header, 0 if no whole UDP datagram follows it. */
static __always_inline __u32 ip_len(struct __sk_buff *skb)
{
	struct ipv6hdr ip6;
	struct iphdr ip;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
			return 0;
		if (ip.protocol != IPPROTO_UDP || ip.frag_off & bpf_htons(ROCE_IP_FRAGMENT))
			return 0;
		return ip.ihl * 4;
	}
	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return 0;
	if (bpf_skb_load_bytes(skb, 0, &ip6, sizeof(ip6)) || ip6.version != 6)
		return 0;
	return ip6.nexthdr == IPPROTO_UDP ? sizeof(ip6) : 0;
}

SEC("socket")
int watch(struct __sk_buff *skb)
{
	__u32 l3 = ip_len(skb), size = skb->gso_size, len = skb->len;
	struct piece p = {};
	struct udphdr udp;

	if (!l3 || bpf_skb_load_bytes(skb, l3, &udp, sizeof(udp)) || udp.dest != bpf_htons(ROCE_PORT))
		return 0;
	p.headers = l3 + sizeof(udp);
	p.from = p.headers;
	for (__u32 i = 0; i < MAX_SEGMENTS && p.from < len; i++) {
		p.len = len - p.from;
		if (size) {
			if (p.len > size)
				p.len = size;
			p.payload = p.len;
		}
		p.segment = i;
		packet(skb, &p);
		if (!size)
			break;
		p.from += size;
	}
	return 0; /* nothing for the socket */
}
