// Package flow watches RoCEv2 traffic without taking part in it. An Analyzer is fed the
// IP packets that pass a place, in their order, and tells for every queue pair what it
// asked for and what became of it: operations, bytes, retransmissions, gaps,
// out-of-order degrees, negative acknowledgements, congestion notifications, round-trip
// times. It is sans-I/O and bounded in memory; packets may be cut short behind their
// headers, and need not be genuine.
//
// # Streams and flows
//
// Packets name only the queue pair that they go to. What goes from one address to a
// queue pair of another is a stream. The two streams of a connection are joined by what
// the connection manager said (REQ and REP name both queue pairs), or by
// acknowledgements: one that comes from B to queue pair a answers a request from A, and
// the stream from A to B that has a request of that PSN is the other half, if there is
// only one such.
//
// A Flow is one requester: its requests in one stream, and the responses to them in the
// other. A connection in which both ends have something to ask for is two flows.
package flow

import (
	"encoding/binary"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// Options bounds an Analyzer.
type Options struct {
	// Streams is how many streams are remembered; those used longest ago are forgotten
	// for new ones. 0 means DefaultStreams.
	Streams int
}

// DefaultStreams is enough for 2048 connections, in about 20 MB.
const DefaultStreams = 4096

// Totals counts what an Analyzer was given.
type Totals struct {
	Packets   uint64 `json:"packets"`   // RoCEv2, all of them
	Bytes     uint64 `json:"bytes"`     // from the IP headers on
	Other     uint64 `json:"other"`     // not RoCEv2
	Malformed uint64 `json:"malformed"` // RoCEv2, but not well-formed
	BadICRC   uint64 `json:"bad_icrc"`  // of those that are there as a whole
	Cut       uint64 `json:"cut"`       // not there as a whole: their ICRC was not checked
	Evicted   uint64 `json:"evicted"`   // streams forgotten for want of room
	CM        CM     `json:"cm"`
}

// key names a stream.
type key struct {
	src, dst netip.Addr
	qpn      bth.QPN // that it goes to
	from     bth.QPN // UD: that it comes from
	datagram bool
}

// Analyzer analyses packets. It is not safe for concurrent use.
type Analyzer struct {
	limit        int
	index        map[key]int32
	streams      []*stream
	newer, older int32 // ends of the list in order of use, none for an empty one
	serial       uint64
	totals       Totals
	cm           connections
	in           arrival
}

// none is no stream.
const none int32 = -1

// New returns an Analyzer.
func New(o Options) *Analyzer {
	if o.Streams <= 0 {
		o.Streams = DefaultStreams
	}
	return &Analyzer{limit: o.Streams, index: map[key]int32{}, newer: none, older: none, cm: newConnections()}
}

// Totals returns the counters.
func (a *Analyzer) Totals() Totals { return a.totals }

// arrival is one RoCEv2 packet.
type arrival struct {
	now     mono.Time
	ip      bth.Datagram
	pkt     bth.Packet
	payload int
	body    []byte // payload as far as it is there
}

// Packet analyses the IP packet ip, which passed at now and may be cut short. Packets
// are given in the order in which they passed.
func (a *Analyzer) Packet(now mono.Time, ip []byte) {
	d, ok := bth.ReadDatagram(bth.EtherType(ip), ip)
	if !ok {
		a.totals.Other++
		return
	}
	a.totals.Packets++
	a.totals.Bytes += uint64(d.End)
	size := d.UDPLen - bth.UDPLen - bth.ICRCLen
	if d.UDPLen != d.End-d.UDP || size < bth.BTHLen {
		a.totals.Malformed++
		return
	}
	whole := len(ip) >= d.End
	if !whole {
		a.totals.Cut++
	} else if bth.CheckICRC(ip[:d.End]) != nil {
		a.badICRC(&d, ip)
		return
	}
	body := ip[d.UDP+bth.UDPLen : min(len(ip), d.End-bth.ICRCLen)]
	n, err := a.in.pkt.DecodeHeaders(body)
	payload := size - n
	if err == nil {
		payload -= int(body[1] >> 4 & 3)
	}
	if err != nil || payload < 0 {
		a.totals.Malformed++
		return
	}
	a.in.now, a.in.ip, a.in.payload, a.in.body = now, d, payload, body[n:]
	a.accept(&a.in)
}

// badICRC counts a packet that its receiver will drop. What it says is not believed,
// but the stream that it claims to be of may get to know of it.
func (a *Analyzer) badICRC(d *bth.Datagram, ip []byte) {
	a.totals.BadICRC++
	qpn := bth.QPN(binary.BigEndian.Uint32(ip[d.UDP+bth.UDPLen+4:]) & uint32(bth.MaxQPN))
	if i, ok := a.index[key{src: d.Src, dst: d.Dst, qpn: qpn}]; ok {
		a.streams[i].badICRC++
	}
}

// accept gives a packet to its stream.
func (a *Analyzer) accept(p *arrival) {
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
		s.request(p, a.peer(s))
	}
}
