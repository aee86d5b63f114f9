// Package flow analyses RoCEv2 traffic passively. An Analyzer takes the IP packets that pass an observation point, in
// order. For every queue pair it reports the requests and their results: operations, bytes, retransmissions, gaps,
// out-of-order degrees, negative acknowledgements, congestion notifications and round-trip times. The Analyzer does
// no I/O and its memory is bounded. Packets may be truncated after their headers, and may be forged.
//
// # Streams and flows
//
// A packet names only its destination queue pair. A stream is the traffic from one address to one queue pair of
// another address. The Analyzer joins the two streams of a connection in one of two ways:
//
//   - by connection manager messages: REQ and REP name both queue pairs.
//   - by acknowledgements: an acknowledgement from B to queue pair a answers a request from A. Its peer is the
//     stream from A to B that has a request with this PSN, if there is only one such stream.
//
// A Flow is one requester: the requests in one stream, and their responses in the other. A connection in which both
// ends send requests is two flows.
package flow

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/list"
	"roced.io/roced/plugin/mono"
)

// Options limits an Analyzer.
type Options struct {
	// Streams is the maximum number of streams. A new stream evicts the least recently used one. 0 means
	// DefaultStreams.
	Streams int
	// IgnoreICRC accepts packets with a wrong ICRC and without one, as simulators write them.
	IgnoreICRC bool
	// Unseen lists the requests in Seen.Unseen.
	Unseen bool
}

// DefaultStreams is enough for 2048 connections, in about 20 MB.
const DefaultStreams = 4096

// Others counts frames that are not RoCEv2, by reason.
type Others map[string]uint64

// String lists the reasons in parentheses after a space, the most frequent first. It is empty without any.
func (o Others) String() string {
	var list []string
	for _, name := range slices.SortedFunc(maps.Keys(o), func(a, b string) int { return cmp.Or(cmp.Compare(o[b], o[a]), cmp.Compare(a, b)) }) {
		list = append(list, fmt.Sprintf("%d %s", o[name], name))
	}
	if len(list) == 0 {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

// KnownLinks names the link types whose frames package pcapng reads.
const KnownLinks = "1 (Ethernet), 0 and 108 (loopback), 113 and 276 (Linux cooked), 12, 14, 101, 228 and 229 (IP)"

// Instead describes the frames of a capture without RoCEv2, as String does. Of unknown link types it names the first one, and those
// that are known.
func (o Others) Instead() string {
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if strings.HasPrefix(name, "link type ") {
			return o.String() + "; " + name + " is not known, only " + KnownLinks
		}
	}
	return o.String()
}

// Totals counts all packets of an Analyzer.
type Totals struct {
	Packets   uint64 `json:"packets"`          // all RoCEv2 packets
	Bytes     uint64 `json:"bytes"`            // from the IP header on
	Other     uint64 `json:"other"`            // not RoCEv2
	Others    Others `json:"others,omitempty"` // the same, by reason
	Malformed uint64 `json:"malformed"`        // RoCEv2, but malformed
	BadICRC   uint64 `json:"bad_icrc"`         // complete packets with a wrong ICRC
	Cut       uint64 `json:"cut"`              // truncated packets; the ICRC is not checked
	Trimmed   uint64 `json:"trimmed"`          // WRITEs of MRC that a switch trimmed
	Endpoint  uint64 `json:"endpoint"`         // endpoint requests and responses of MRC
	Evicted   uint64 `json:"evicted"`          // streams evicted for lack of space
	CM        CM     `json:"cm"`
}

// Forgotten says how many streams a capture has beyond DefaultStreams, and what to do. It is empty if it has none.
func (t *Totals) Forgotten() string {
	if t.Evicted == 0 {
		return ""
	}
	return fmt.Sprintf("; %d streams are forgotten, because at most %d (two for each connection) are followed at once: filter the capture by host or queue pair",
		t.Evicted, DefaultStreams)
}

// key identifies a stream.
type key struct {
	src, dst netip.Addr
	qpn      bth.QPN // destination queue pair
	from     bth.QPN // UD: source queue pair
	datagram bool
}

// Analyzer analyses packets. It is not safe for concurrent use.
type Analyzer struct {
	options Options
	trailer int // bytes of the ICRC
	index   map[key]*stream
	order   list.List[*stream] // in order of use, the most recent last
	serial  uint64
	totals  Totals
	cm      connections
	in      arrival
	unseen  []bth.PSN
}

// New returns an Analyzer.
func New(o Options) *Analyzer {
	if o.Streams <= 0 {
		o.Streams = DefaultStreams
	}
	return &Analyzer{options: o, totals: Totals{Others: Others{}}, trailer: bth.ICRCLen, index: map[key]*stream{}, cm: newConnections()}
}

// Totals returns the counters.
func (a *Analyzer) Totals() Totals {
	t := a.totals
	t.Others = maps.Clone(t.Others)
	return t
}

// arrival is one RoCEv2 packet.
type arrival struct {
	now       mono.Time
	ip        bth.Datagram
	pkt       bth.Packet
	payload   int
	transport []byte // captured part of the UDP payload, without ICRC
	body      []byte // captured part of the payload
	icrc      uint32 // 0 if the packet is truncated
	vantage   uint32
	partial   bool // the headers are truncated
}

// Input is a RoCEv2 packet whose IP and UDP headers its capturer has parsed.
type Input struct {
	Time     mono.Time
	Datagram bth.Datagram
	IP       []byte // to the captured end
	Intact   bool   // the ICRC is right; ignored if the packet is truncated
	// Vantage identifies the place where the packet was seen, such as an interface. Copies of a packet have different ones.
	Vantage uint32
}

// Seen is the place of a packet in its connection.
type Seen struct {
	Packet  *bth.Packet // valid until the next packet
	Stream  uint64      // as in Flow and Stream
	ICRC    int         // bytes of the ICRC
	Copy    bool        // of a packet before, made by the network or by the capture
	Fresh   bool        // a request with a PSN ahead of all before
	Partial bool        // the capture lacks a part of the headers, whose fields are zero
	// Unseen are the requests that a response acknowledges although they did not pass. It is valid until the next packet.
	Unseen []bth.PSN
}

// Other counts n packets that are not RoCEv2 for this reason.
func (a *Analyzer) Other(reason string, n uint64) {
	a.totals.Other += n
	a.totals.Others[reason] += n
}

// Packet analyses the IP packet ip, which passed at now. The packet may be truncated. Call it in the order of the
// packets.
func (a *Analyzer) Packet(now mono.Time, ip []byte) {
	d, ok := bth.ReadDatagram(bth.EtherType(ip), ip)
	if !ok {
		a.Other("not RoCEv2", 1)
		return
	}
	a.Datagram(&Input{Time: now, Datagram: d, IP: ip, Intact: a.options.IgnoreICRC || len(ip) < d.End || bth.CheckICRC(ip[:d.End]) == nil})
}

// Datagram analyses a packet like Packet. It returns false if the packet belongs to no stream: it is malformed, has a wrong ICRC,
// or is truncated inside its headers.
func (a *Analyzer) Datagram(in *Input) (s Seen, ok bool) {
	d, ip := &in.Datagram, in.IP
	a.totals.Packets++
	a.totals.Bytes += uint64(d.End)
	start := d.UDP + bth.UDPLen
	if d.UDPLen != d.End-d.UDP || d.UDPLen < bth.UDPLen+bth.BTHLen+a.trailer {
		a.totals.Malformed++
		return s, false
	}
	whole := len(ip) >= d.End
	switch {
	case whole && a.trimmed(ip[start:d.End]):
		return s, false
	case !whole:
		a.totals.Cut++
	case !in.Intact && !a.options.IgnoreICRC:
		a.badICRC(d, ip)
		return s, false
	}
	a.in.now, a.in.ip, a.in.vantage = in.Time, *d, in.Vantage
	if !a.decode(ip[start:min(len(ip), d.End)], whole) {
		return s, false
	}
	return a.accept(&a.in)
}

// decode decodes a UDP payload. It returns false for a packet that it counts as malformed, and for one that is truncated inside
// its headers.
func (a *Analyzer) decode(b []byte, whole bool) bool {
	in := &a.in
	body := b[:min(len(b), in.ip.UDPLen-bth.UDPLen-a.trailer)]
	n, err := in.pkt.DecodePart(body)
	cut := n > len(body)
	in.payload = in.ip.UDPLen - bth.UDPLen - a.trailer - n
	if err == nil {
		in.payload -= int(body[1] >> 4 & 3)
	}
	if a.options.IgnoreICRC && a.trailer > 0 && err == nil && a.lacksICRC(n, len(b), whole) {
		a.trailer = 0
		return a.decode(b, whole)
	}
	if !whole && (err == bth.ErrShort || cut && in.pkt.Opcode.IsResponse()) {
		return false // without its fields it means nothing
	}
	if err != nil || cut && whole || in.payload < 0 {
		a.totals.Malformed++
		return false
	}
	in.partial = cut
	in.transport, in.body, in.icrc = body, body[min(n, len(body)):], 0
	if whole && a.trailer > 0 {
		in.icrc = bth.GetICRC(b[len(body):])
	}
	return true
}

// lacksICRC reports whether a packet can have no ICRC: its headers, of n bytes, reach to the end of its UDP payload, or the payload
// of a FIRST or MIDDLE packet is an MTU less the ICRC.
func (a *Analyzer) lacksICRC(n, size int, whole bool) bool {
	p := &a.in
	mtu := p.payload + bth.ICRCLen
	return whole && n > size-bth.ICRCLen && n <= size || (p.pkt.Opcode.IsFirst() || p.pkt.Opcode.IsMiddle()) && isMTU(mtu)
}

// trimmed counts b, a UDP payload, if it is a trimmed packet of MRC. These have no ICRC, so that the Analyzer ignores
// their content.
func (a *Analyzer) trimmed(b []byte) bool {
	if !bth.Opcode(b[0]).IsMRC() || a.in.pkt.Decode(b) != bth.ErrTrimmed {
		return false
	}
	a.totals.Trimmed++
	return true
}

// badICRC counts a packet that its receiver will drop. The Analyzer ignores its contents, except to count it for the
// stream that it names, if that exists.
func (a *Analyzer) badICRC(d *bth.Datagram, ip []byte) {
	a.totals.BadICRC++
	qpn := bth.QPN(binary.BigEndian.Uint32(ip[d.UDP+bth.UDPLen+4:]) & uint32(bth.MaxQPN))
	if s := a.index[key{src: d.Src, dst: d.Dst, qpn: qpn}]; s != nil {
		s.badICRC++
	}
}

// accept passes a packet to its stream.
func (a *Analyzer) accept(p *arrival) (out Seen, ok bool) {
	if p.pkt.Opcode.IsEndpoint() { // of no connection
		a.totals.Endpoint++
		return out, false
	}
	k := key{src: p.ip.Src, dst: p.ip.Dst, qpn: p.pkt.DestQP}
	if p.pkt.Opcode.HasDETH() {
		if k.from, k.datagram = p.pkt.DETH.SrcQP, true; k.qpn == gsiQPN {
			a.manage(p)
		}
	}
	s := a.stream(k, p.now)
	s.last = p.now
	copied := s.copies.has(p, a.totals.Packets, s.doubled())
	s.packets++
	out = Seen{Packet: &p.pkt, Stream: s.serial + 1, ICRC: a.trailer, Copy: copied, Partial: p.partial}
	switch op := p.pkt.Opcode; {
	case op.IsCNP():
		if !copied {
			s.cnps++
		}
	case op.IsResponse() || op.IsReadAck():
		out.Unseen = a.response(s, p, copied)
	default:
		out.Fresh = a.request(s, p, copied) == fresh
	}
	return out, true
}
