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
	"encoding/binary"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/list"
	"roced.io/roced/plugin/mono"
)

// Options limits an Analyzer.
type Options struct {
	// Streams is the maximum number of streams. A new stream evicts the least recently used one. 0 means
	// DefaultStreams.
	Streams int
}

// DefaultStreams is enough for 2048 connections, in about 20 MB.
const DefaultStreams = 4096

// Totals counts all packets of an Analyzer.
type Totals struct {
	Packets   uint64 `json:"packets"`   // all RoCEv2 packets
	Bytes     uint64 `json:"bytes"`     // from the IP header on
	Other     uint64 `json:"other"`     // not RoCEv2
	Malformed uint64 `json:"malformed"` // RoCEv2, but malformed
	BadICRC   uint64 `json:"bad_icrc"`  // complete packets with a wrong ICRC
	Cut       uint64 `json:"cut"`       // truncated packets; the ICRC is not checked
	Trimmed   uint64 `json:"trimmed"`   // WRITEs of MRC that a switch trimmed
	Endpoint  uint64 `json:"endpoint"`  // endpoint requests and responses of MRC
	Evicted   uint64 `json:"evicted"`   // streams evicted for lack of space
	CM        CM     `json:"cm"`
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
	limit  int
	index  map[key]*stream
	order  list.List[*stream] // in order of use, the most recent last
	serial uint64
	totals Totals
	cm     connections
	in     arrival
}

// New returns an Analyzer.
func New(o Options) *Analyzer {
	if o.Streams <= 0 {
		o.Streams = DefaultStreams
	}
	return &Analyzer{limit: o.Streams, index: map[key]*stream{}, cm: newConnections()}
}

// Totals returns the counters.
func (a *Analyzer) Totals() Totals { return a.totals }

// arrival is one RoCEv2 packet.
type arrival struct {
	now     mono.Time
	ip      bth.Datagram
	pkt     bth.Packet
	payload int
	body    []byte // captured part of the payload
}

// Packet analyses the IP packet ip, which passed at now. The packet may be truncated. Call it in the order of the
// packets.
func (a *Analyzer) Packet(now mono.Time, ip []byte) {
	d, ok := bth.ReadDatagram(bth.EtherType(ip), ip)
	if !ok {
		a.totals.Other++
		return
	}
	a.Datagram(now, &d, ip, len(ip) < d.End || bth.CheckICRC(ip[:d.End]) == nil)
}

// Datagram analyses a packet like Packet, for a caller that has parsed its IP and UDP headers and verified its ICRC, for example
// because the packet has IPv6 extension headers. intact is ignored if the packet is truncated.
func (a *Analyzer) Datagram(now mono.Time, d *bth.Datagram, ip []byte, intact bool) {
	a.totals.Packets++
	a.totals.Bytes += uint64(d.End)
	size := d.UDPLen - bth.UDPLen - bth.ICRCLen
	if d.UDPLen != d.End-d.UDP || size < bth.BTHLen {
		a.totals.Malformed++
		return
	}
	whole := len(ip) >= d.End
	if whole && a.trimmed(ip[d.UDP+bth.UDPLen:d.End]) {
		return
	}
	if !whole {
		a.totals.Cut++
	} else if !intact {
		a.badICRC(d, ip)
		return
	}
	a.decode(now, d, ip[d.UDP+bth.UDPLen:min(len(ip), d.End-bth.ICRCLen)], whole)
}

// decode analyses a UDP payload without ICRC.
func (a *Analyzer) decode(now mono.Time, d *bth.Datagram, body []byte, whole bool) {
	n, err := a.in.pkt.DecodePart(body)
	cut := n > len(body)
	payload := d.UDPLen - bth.UDPLen - bth.ICRCLen - n
	if err == nil {
		payload -= int(body[1] >> 4 & 3)
	}
	if !whole && (err == bth.ErrShort || cut && a.in.pkt.Opcode.IsResponse()) {
		return // without its fields it means nothing
	}
	if err != nil || cut && whole || payload < 0 {
		a.totals.Malformed++
		return
	}
	a.in.now, a.in.ip, a.in.payload, a.in.body = now, *d, payload, body[min(n, len(body)):]
	a.accept(&a.in)
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
func (a *Analyzer) accept(p *arrival) {
	if p.pkt.Opcode.IsEndpoint() { // of no connection
		a.totals.Endpoint++
		return
	}
	k := key{src: p.ip.Src, dst: p.ip.Dst, qpn: p.pkt.DestQP}
	if p.pkt.Opcode.HasDETH() {
		if k.from, k.datagram = p.pkt.DETH.SrcQP, true; k.qpn == gsiQPN {
			a.manage(p)
		}
	}
	s := a.stream(k, p.now)
	s.last = p.now
	s.packets++
	s.bytes += uint64(p.ip.End)
	switch op := p.pkt.Opcode; {
	case op.IsCNP():
		s.cnps++
	case op.IsResponse() || op.IsReadAck():
		a.response(s, p)
	default:
		s.request(p, s.peer)
	}
}
