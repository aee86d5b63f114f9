package flow

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// Endpoint is a queue pair. QPN is nil until a packet names it.
type Endpoint struct {
	Addr netip.Addr `json:"addr"`
	QPN  *bth.QPN   `json:"qpn,omitempty"`
}

// Flow holds a requester, its requests to a responder, and the responses.
type Flow struct {
	// Serial identifies a flow in all reports. New flows get higher numbers.
	Serial    uint64   `json:"serial"`
	Transport string   `json:"transport"` // RC, UC, UD, mrc, irn, melo, mp-rdma, eunomia; empty: CNPs only
	Requester Endpoint `json:"requester"`
	Responder Endpoint `json:"responder"`
	Joined    Join     `json:"joined,omitempty"`
	Service   string   `json:"service,omitempty"` // "tcp:7471", from the connection manager
	// Start and End are the times of the first and the last packet of both streams, on the clock of the Analyzer's
	// input.
	Start mono.Time `json:"start_ns"`
	End   mono.Time `json:"end_ns"`
	MTU   int       `json:"path_mtu,omitempty"` // bytes of payload; known after a message of several packets

	FirstPSN uint32 `json:"first_psn"` // PSN of the first request
	LastPSN  uint32 `json:"last_psn"`
	// Messages counts complete requests, without retransmissions. Bytes is their goodput: payload of requests and
	// READ responses, each PSN once.
	Messages   uint64      `json:"messages"`
	Bytes      uint64      `json:"bytes"`
	Operations []Operation `json:"operations"`

	Requests  Requests  `json:"requests"`
	Responses Responses `json:"responses"`
	RTT       RTT       `json:"rtt"`
	// CNPs are congestion notifications to the requester. SentCNPs are those to the responder, for the packets that
	// it sends.
	CNPs     uint64 `json:"cnps"`
	SentCNPs uint64 `json:"sent_cnps"`
	// BadICRC counts packets of both streams that their receivers will drop.
	BadICRC uint64 `json:"bad_icrc"`
}

// Operation counts the messages of one verb.
type Operation struct {
	Verb     string `json:"verb"`
	Messages uint64 `json:"messages"`
}

// Opcode counts the packets of one opcode.
type Opcode struct {
	Name    string `json:"opcode"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"` // of payload
}

// Requests counts the packets of the requester.
type Requests struct {
	Stream  uint64 `json:"-"` // as in Seen
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"` // of payload, with retransmissions
	CE      uint64 `json:"ce"`    // marked "congestion experienced"
	// ReadAcks counts acknowledgements of READ responses; only extended transports have them.
	ReadAcks uint64 `json:"read_acks,omitempty"`
	SequenceCounts
	Opcodes []Opcode `json:"opcodes,omitempty"`
}

// Responses counts the packets of the responder.
type Responses struct {
	Stream     uint64   `json:"-"` // as in Seen; 0 if it is unknown
	Packets    uint64   `json:"packets"`
	Bytes      uint64   `json:"bytes"`
	CE         uint64   `json:"ce"`
	Acks       uint64   `json:"acks"`
	AtomicAcks uint64   `json:"atomic_acks"`
	ReadPkts   uint64   `json:"read_responses"`
	RNRNaks    uint64   `json:"rnr_naks"`
	NAKs       NAKs     `json:"naks"`
	Reasons    []Reason `json:"reasons,omitempty"` // of the NACKs of MRC, which count as other NAKs
	BECN       uint64   `json:"becn"`              // acknowledgements with a congestion mark
	// SequenceCounts counts READ responses.
	SequenceCounts
	Opcodes []Opcode `json:"opcodes,omitempty"`
}

// Reason counts the NACKs of MRC with the same reason.
type Reason struct {
	Name    string `json:"name"` // as in bth.MRCReason
	Packets uint64 `json:"packets"`
}

// NAKs counts negative acknowledgements by code (IBTA vol.1 table 46).
type NAKs struct {
	Total          uint64 `json:"total"`
	PSNSequence    uint64 `json:"psn_sequence"`
	InvalidRequest uint64 `json:"invalid_request"`
	RemoteAccess   uint64 `json:"remote_access"`
	RemoteOp       uint64 `json:"remote_operational"`
	InvalidRD      uint64 `json:"invalid_rd"`
	Other          uint64 `json:"other"`
}

// Flows returns the flows of all known streams, the oldest first.
func (a *Analyzer) Flows() []Flow {
	var out []Flow
	for _, s := range a.byAge() {
		t := s.peer
		if s.requests.total.packets > 0 {
			out = append(out, flowOf(s, t))
		}
		if t == nil && (s.responses.total.packets > 0 || s.cnps > 0 && s.requests.total.packets == 0) {
			out = append(out, flowOf(nil, s))
		}
	}
	return out
}

// Stream is the traffic from one address to one queue pair of another.
type Stream struct {
	ID        uint64 // as in Seen
	Peer      uint64 // ID of the other direction of the connection; 0 if it is unknown
	Src, Dst  netip.Addr
	QPN       bth.QPN // at Dst
	From      bth.QPN // UD: at Src
	Transport string  // as in Flow
	MTU       int     // as in Flow
}

// Streams returns all known streams, the oldest first.
func (a *Analyzer) Streams() (out []Stream) {
	for _, s := range a.byAge() {
		x := Stream{ID: s.serial + 1, Src: s.src, Dst: s.dst, QPN: s.qpn, From: s.from, Transport: s.transport, MTU: s.mtu}
		if s.peer != nil {
			x.Peer = s.peer.serial + 1
		}
		out = append(out, x)
	}
	return out
}

// byAge returns the streams, the oldest first.
func (a *Analyzer) byAge() []*stream {
	return slices.SortedFunc(maps.Values(a.index), func(s, t *stream) int { return cmp.Compare(s.serial, t.serial) })
}

// flowOf describes the requests of s and the responses in t. Either may be nil.
func flowOf(s, t *stream) Flow {
	f := Flow{}
	if s != nil {
		f.addRequests(s)
	}
	if t != nil {
		f.addResponses(t, s == nil)
	}
	for v, n := range messagesOf(s) {
		if n > 0 {
			f.Messages += n
			f.Operations = append(f.Operations, Operation{verbNames[v], n})
		}
	}
	return f
}

func messagesOf(s *stream) (m [verbs]uint64) {
	if s != nil {
		m = s.requests.messages
	}
	return m
}

func (f *Flow) addRequests(s *stream) {
	r, to := &s.requests, s.qpn
	f.Serial, f.Transport = 2*s.serial, s.transport
	f.Requester.Addr, f.Responder = s.src, Endpoint{s.dst, &to}
	if s.datagram {
		from := s.from
		f.Requester.QPN = &from
	}
	f.Joined, f.Service, f.MTU = s.join, s.service, s.mtu
	f.Start, f.End = s.start, s.last
	f.FirstPSN, f.LastPSN = r.seq.first.Uint32(), r.seq.high.Uint32()
	f.Bytes += r.goodput
	f.SentCNPs, f.BadICRC = s.cnps, s.badICRC
	f.RTT = r.rtt.summary()
	f.Requests = Requests{
		Stream: s.serial + 1, Packets: r.total.packets, Bytes: r.total.bytes, CE: r.ce, ReadAcks: r.readAcks,
		SequenceCounts: r.seq.counts(), Opcodes: opcodesOf(r.opcodes),
	}
}

// addResponses adds the responses in t. alone means that their requests are unknown.
func (f *Flow) addResponses(t *stream, alone bool) {
	r, to := &t.responses, t.qpn
	f.Requester.Addr, f.Requester.QPN = t.dst, &to
	if alone {
		f.Serial, f.Transport = 2*t.serial+1, t.transport
		f.Responder.Addr = t.src
		f.Start, f.MTU = t.start, t.mtu
	}
	f.Start, f.End = f.Start.Min(t.start), max(f.End, t.last)
	f.Bytes += r.goodput
	f.CNPs = t.cnps
	f.BadICRC += t.badICRC
	f.Responses = Responses{
		Stream: t.serial + 1, Packets: r.total.packets, Bytes: r.total.bytes, CE: r.ce, Acks: r.acks, AtomicAcks: r.atomics,
		ReadPkts: r.reads.packets, RNRNaks: r.rnrs, NAKs: naksOf(&r.naks), BECN: r.becn, Reasons: reasonsOf(r.reasons),
		SequenceCounts: r.seq.counts(), Opcodes: opcodesOf(r.opcodes),
	}
}

func naksOf(n *[nakKinds]uint64) NAKs {
	k := NAKs{PSNSequence: n[0], InvalidRequest: n[1], RemoteAccess: n[2], RemoteOp: n[3], InvalidRD: n[4], Other: n[5]}
	for _, c := range n {
		k.Total += c
	}
	return k
}

// reasonsOf returns the reasons in the order of their numbers.
func reasonsOf(n map[bth.MRCReason]uint64) (out []Reason) {
	for _, why := range slices.Sorted(maps.Keys(n)) {
		out = append(out, Reason{why.String(), n[why]})
	}
	return out
}

func opcodesOf(v opcodes) []Opcode {
	var out []Opcode
	for _, c := range v {
		out = append(out, Opcode{c.opcode.String(), c.packets, c.bytes})
	}
	return out
}
