package flow_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/plugin/mono"
)

var hostA, hostB = netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")

// feed passes packets to an Analyzer, one microsecond apart.
type feed struct {
	*flow.Analyzer
	now mono.Time
	id  uint16
	tos byte
	// old, if not 0, is the IP ID of the next packet, which was sent earlier.
	old uint16
}

func newFeed(streams int) *feed {
	return &feed{Analyzer: flow.New(flow.Options{Streams: streams}), now: 1e9, id: 100}
}

// packet returns the IPv4 packet of p.
func (f *feed) packet(from, to netip.Addr, p bth.Packet) []byte {
	p.PKey = bth.DefaultPKey
	transport := p.AppendTo(nil)
	n := len(transport) + 28
	f.id++
	id := f.id
	if f.old != 0 {
		id, f.old = f.old, 0
	}
	b := []byte{0x45, f.tos, byte(n >> 8), byte(n), byte(id >> 8), byte(id), 0x40, 0, 64, 17, 0, 0}
	b = append(append(b, from.AsSlice()...), to.AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, 0xc000)
	b = binary.BigEndian.AppendUint16(b, bth.UDPPort)
	b = binary.BigEndian.AppendUint16(b, uint16(n-20))
	b = append(append(b, 0, 0), transport...)
	if err := bth.SealICRC(b); err != nil {
		panic(err)
	}
	return b
}

func (f *feed) send(from, to netip.Addr, p bth.Packet) {
	f.now += 1000
	f.Packet(f.now, f.packet(from, to, p))
}

// request sends a SEND ONLY of A to queue pair qpn of B.
func (f *feed) request(qpn bth.QPN, psn uint32) {
	f.send(hostA, hostB, bth.Packet{Opcode: bth.OpSendOnly, DestQP: qpn, PSN: bth.MakePSN(psn), AckReq: true, Payload: make([]byte, 8)})
}

// answer sends an acknowledgement of B to queue pair qpn of A.
func (f *feed) answer(qpn bth.QPN, psn uint32, s bth.Syndrome) {
	f.send(hostB, hostA, bth.Packet{Opcode: bth.OpAcknowledge, DestQP: qpn, PSN: bth.MakePSN(psn), AETH: bth.AETH{Syndrome: s}})
}

// only returns the flow and fails if there is not exactly one.
func (f *feed) only(t *testing.T) flow.Flow {
	t.Helper()
	flows := f.Flows()
	if len(flows) != 1 {
		t.Fatalf("%d flows: %+v", len(flows), flows)
	}
	return flows[0]
}

// TestSequence feeds PSNs: n is a request, -n a NAK.
func TestSequence(t *testing.T) {
	type c = flow.SequenceCounts
	for _, v := range []struct {
		name string
		psns []int
		old  int // index of a packet with an old IP ID, from 1
		want flow.SequenceCounts
	}{
		{"in order", []int{5, 6, 7}, 0, c{}},
		{"again", []int{5, 6, 5, 6}, 0, c{Retransmitted: 2}},
		{"back behind the start", []int{5, 6, 4}, 0, c{Retransmitted: 1, Recovered: 1, Lost: 1}},
		{"lost before, gone back", []int{5, 7, 8, 6, 7, 8}, 0, c{Retransmitted: 3, Recovered: 1, Gaps: 1, Lost: 1}},
		{"two lost before", []int{5, 8, 6, 7, 8}, 0, c{Retransmitted: 3, Recovered: 2, Gaps: 1, Lost: 2}},
		{"lost before, asked for, sent alone", []int{5, 7, -6, 6, 8}, 0, c{Retransmitted: 1, Recovered: 1, Gaps: 1, Lost: 1}},
		{"never comes", []int{5, 7, 8}, 0, c{Gaps: 1, Lost: 1, Missing: 1}},
		{"overtaken", []int{5, 7, 8, 6, 9}, 4, c{Reordered: 1, Gaps: 1, Lost: 1}},
		{"overtaken and sent again for it", []int{5, 7, 8, -6, 6, 6, 7, 8}, 5, c{Retransmitted: 3, Reordered: 1, Gaps: 1, Lost: 1}},
		{"sent again twice", []int{5, 7, -6, 6, 6, 7}, 0, c{Retransmitted: 3, Recovered: 1, Gaps: 1, Lost: 1}},
		{"still undecided", []int{5, 7, 6}, 3, c{Reordered: 1, Gaps: 1, Lost: 1}},
		{"far ahead", []int{5, 10000, 10001}, 0, c{Restarts: 1}},
		{"far behind", []int{10000, 10001, 5, 6}, 0, c{Restarts: 1}},
		{"around the end", []int{1<<24 - 1, 0, 1, 1<<24 - 1}, 0, c{Retransmitted: 1}},
	} {
		t.Run(v.name, func(t *testing.T) {
			f := newFeed(0)
			f.request(7, uint32(v.psns[0]))
			f.answer(3, uint32(v.psns[0]), bth.SyndromeACK) // joins the streams
			for i, psn := range v.psns[1:] {
				switch {
				case psn < 0:
					f.answer(3, uint32(-psn), bth.SyndromePSNSeqErr)
				case i+2 == v.old:
					f.old = 1
					f.request(7, uint32(psn))
				default:
					f.request(7, uint32(psn))
				}
			}
			got := f.only(t).Requests.SequenceCounts
			got.OutOfOrder = flow.Degree{}
			if d := cmp.Diff(v.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestDuplicate feeds a packet twice with one IP ID, and once more with another.
func TestDuplicate(t *testing.T) {
	f := newFeed(0)
	p := f.packet(hostA, hostB, bth.Packet{Opcode: bth.OpSendOnly, DestQP: 7, PSN: bth.MakePSN(1), Payload: make([]byte, 8)})
	f.Packet(1, p)
	f.Packet(2, p)
	f.request(7, 1)
	g := f.only(t)
	if q := g.Requests; q.Duplicated != 1 || q.Retransmitted != 1 || g.Messages != 1 || g.Bytes != 8 || q.Bytes != 24 {
		t.Errorf("%+v", g)
	}
}

// TestDegree lets other packets overtake a packet.
func TestDegree(t *testing.T) {
	f := newFeed(0)
	for _, psn := range []uint32{0, 2, 3, 4, 5, 6, 1, 8, 7} {
		f.request(7, psn)
	}
	d := f.only(t).Requests.OutOfOrder
	if d.Max != 5 || d.Counts[0] != 1 || d.Counts[2] != 1 {
		t.Errorf("degrees %+v", d)
	}
}

// TestResponses counts every kind of response.
func TestResponses(t *testing.T) {
	f := newFeed(0)
	f.request(7, 1)
	for _, s := range []bth.Syndrome{bth.SyndromeACK, 0x05, bth.SyndromeRNR + 9, bth.SyndromePSNSeqErr, bth.SyndromeInvalidRequest,
		bth.SyndromeRemoteAccessErr, bth.SyndromeRemoteOpErr, bth.SyndromeRemoteOpErr, bth.SyndromeInvalidRDReq, 0x7f} {
		f.answer(3, 1, s)
	}
	var cnp bth.Packet
	cnp.SetCNP(3)
	f.send(hostB, hostA, cnp)
	cnp.SetCNP(7)
	f.send(hostA, hostB, cnp)
	f.send(hostA, hostB, cnp)
	f.tos = 3
	f.request(7, 2)
	f.send(hostB, hostA, bth.Packet{Opcode: bth.OpAcknowledge, DestQP: 3, PSN: bth.MakePSN(2), BECN: true, AETH: bth.AETH{Syndrome: 0x1f}})
	f.request(7, 3)
	f.now -= 1e9
	f.answer(3, 3, bth.SyndromeACK) // the time goes back: no sample
	g := f.only(t)
	s := g.Responses
	if want := (flow.NAKs{Total: 7, PSNSequence: 1, InvalidRequest: 1, RemoteAccess: 1, RemoteOp: 2, InvalidRD: 1, Other: 1}); s.NAKs != want {
		t.Errorf("NAKs %+v", s.NAKs)
	}
	if s.Acks != 4 || s.RNRNaks != 1 || s.BECN != 1 || g.CNPs != 1 || g.SentCNPs != 2 || g.Requests.CE != 2 || g.RTT.Samples != 2 || g.RTT.Min != 1000 || s.CE != 2 {
		t.Errorf("%+v", g)
	}
}

// TestExtended feeds packets of an extended transport. Their headers mark the retransmissions among the late packets.
func TestExtended(t *testing.T) {
	f := newFeed(0)
	send := func(psn uint32, flags bth.XFlags) {
		f.send(hostA, hostB, bth.Packet{Opcode: bth.TransportExt | bth.OpSendOnly, DestQP: 7, PSN: bth.MakePSN(psn), AckReq: true,
			Ext: bth.XETH{Profile: bth.ProfileIRN, Flags: flags}, Payload: make([]byte, 8)})
	}
	answer := func(op bth.Opcode, psn uint32, s bth.Syndrome) {
		f.send(hostB, hostA, bth.Packet{Opcode: op, DestQP: 3, PSN: bth.MakePSN(psn), AETH: bth.AETH{Syndrome: s}, Ext: bth.XETH{Profile: bth.ProfileIRN}})
	}
	for _, psn := range []uint32{0, 3, 4} {
		send(psn, 0)
	}
	answer(bth.OpcodeExtAck, 0, bth.SyndromeACK)
	f.old = 1
	send(1, 0)
	send(2, bth.XReTx)
	send(5, 0)
	answer(bth.OpcodeExtAck, 6, bth.SyndromePSNSeqErr)
	f.send(hostA, hostB, bth.Packet{Opcode: bth.OpcodeExtReadAck, DestQP: 7, PSN: bth.MakePSN(9)})
	g := f.only(t)
	q, s := g.Requests, g.Responses
	if g.Transport != "irn" || g.Joined != flow.ByPSN || q.Retransmitted != 1 || q.Recovered != 1 || q.Reordered != 1 || q.ReadAcks != 1 ||
		s.Acks != 1 || s.NAKs.PSNSequence != 1 || g.RTT.Samples != 1 {
		t.Errorf("%+v", g)
	}
}

// TestBadICRC corrupts packets. The Analyzer must count them and ignore their contents.
func TestBadICRC(t *testing.T) {
	f := newFeed(0)
	f.request(7, 1)
	for _, at := range []int{28 + 7, 28 + 9, 28 + 13} { // queue pair, PSN, payload
		p := f.packet(hostA, hostB, bth.Packet{Opcode: bth.OpSendOnly, DestQP: 7, PSN: bth.MakePSN(2), Payload: make([]byte, 8)})
		p[at] ^= 0x40
		f.Packet(f.now, p)
	}
	f.request(7, 2)
	g := f.only(t)
	if f.Totals().BadICRC != 3 || g.BadICRC != 2 || g.Messages != 2 || g.Requests.Lost+g.Requests.Retransmitted != 0 {
		t.Errorf("%+v %+v", f.Totals(), g)
	}
}

// TestJoin joins the halves of connections by the PSNs of acknowledgements.
func TestJoin(t *testing.T) {
	joined := func(f *feed) string {
		out := ""
		for _, g := range f.Flows() {
			if g.Requester.QPN != nil && g.Responder.QPN != nil {
				out += fmt.Sprintf("%d>%d ", *g.Requester.QPN, *g.Responder.QPN)
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		play func(f *feed)
		want string
	}{
		"one": {func(f *feed) {
			f.request(7, 1)
			f.answer(3, 1, bth.SyndromeACK)
		}, "3>7 "},
		"two, by their PSNs": {func(f *feed) {
			f.request(7, 1)
			f.request(8, 1000)
			f.answer(3, 1000, bth.SyndromeACK)
			f.answer(4, 1, bth.SyndromeACK)
		}, "4>7 3>8 "},
		"two in step, one has asked last": {func(f *feed) {
			f.request(7, 1)
			f.request(7, 2)
			f.request(8, 1)
			f.answer(3, 1, bth.SyndromeACK)
			f.answer(4, 2, bth.SyndromeACK)
		}, "4>7 3>8 "},
		"two in step, nothing to be known": {func(f *feed) {
			f.request(7, 1)
			f.request(8, 1)
			f.answer(3, 1, bth.SyndromeACK)
		}, ""},
		"a NAK of a packet that was lost before": {func(f *feed) {
			f.request(7, 1)
			f.request(7, 3)
			f.answer(3, 2, bth.SyndromePSNSeqErr)
		}, "3>7 "},
		"an answer to nothing": {func(f *feed) {
			f.request(7, 1)
			f.answer(3, 2, bth.SyndromeACK)
		}, ""},
		"a number used anew": {func(f *feed) {
			f.request(7, 1)
			f.answer(3, 1, bth.SyndromeACK)
			for i := range uint32(9) {
				f.request(8, 5000+i)
				f.answer(3, 5000+i, bth.SyndromeACK)
			}
		}, "3>8 "},
	} {
		f := newFeed(0)
		c.play(f)
		if got := joined(f); got != c.want {
			t.Errorf("%s: %q, want %q\n%+v", name, got, c.want, f.Flows())
		}
	}
}

// TestCM checks that the queue pairs of a connection are known before their first packet.
func TestCM(t *testing.T) {
	f := newFeed(0)
	message := func(from, to netip.Addr, attr mad.Attr, put func(m []byte)) {
		m := make([]byte, mad.Len)
		h := mad.CMHeader(attr, 1)
		h.Put(m)
		put(m)
		f.send(from, to, bth.Packet{Opcode: bth.TransportUD | bth.OpSendOnly, DestQP: 1, DETH: bth.DETH{QKey: mad.QKey, SrcQP: 1}, Payload: m})
	}
	req := mad.REQ{LocalCommID: 11, LocalQPN: 3, ServiceID: 0x01061d2f, StartingPSN: 50}
	rep := mad.REP{LocalCommID: 22, RemoteCommID: 11, LocalQPN: 7}
	message(hostA, hostB, mad.AttrREQ, req.Put)
	message(hostB, hostA, mad.AttrREP, rep.Put)
	message(hostB, hostA, mad.AttrREP, rep.Put) // duplicate REP
	f.request(7, 50)
	f.request(7, 51)
	message(hostA, hostB, mad.AttrRTU, func([]byte) {})
	f.answer(3, 51, bth.SyndromeACK)
	f.send(hostA, hostB, bth.Packet{Opcode: bth.TransportUD | bth.OpSendOnly, DestQP: 1, Payload: []byte("no MAD")})
	if cm := f.Totals().CM; cm != (flow.CM{REQ: 1, REP: 2, RTU: 1, Other: 1}) {
		t.Errorf("messages %+v", cm)
	}
	for _, g := range f.Flows() {
		if g.Transport == "RC" {
			if *g.Requester.QPN != 3 || *g.Responder.QPN != 7 || g.Joined != flow.ByCM || g.Service != "tcp:7471" || g.FirstPSN != 50 || g.Responses.Acks != 1 {
				t.Errorf("%+v", g)
			}
			return
		}
	}
	t.Errorf("no connection: %+v", f.Flows())
}

// TestEviction opens more streams than the limit. The most recently used ones must remain.
func TestEviction(t *testing.T) {
	f := newFeed(4)
	f.request(7, 1)
	f.answer(3, 1, bth.SyndromeACK)
	for i := range bth.QPN(100) {
		f.request(100+i, 1)
		f.request(7, 2+uint32(i))
	}
	flows := f.Flows()
	if got := f.Totals().Evicted; got != 98 || len(flows) != 4 {
		t.Errorf("%d streams forgotten, %d flows left", got, len(flows))
	}
	if g := flows[0]; *g.Responder.QPN != 7 || g.Messages != 101 || g.Joined != flow.Unjoined || g.Requester.QPN != nil {
		t.Errorf("the flow in use is %+v", g)
	}
}

// TestCutCaptures analyses captures that are truncated after the headers. The results must not change, except for
// payloads of management datagrams and bad ICRCs, which are then unknown.
func TestCutCaptures(t *testing.T) {
	paths, _ := filepath.Glob(captureDir + "*.pcap")
	for _, path := range paths {
		if filepath.Base(path) == "cm_rping.pcap" {
			continue
		}
		whole, cut := analyse(t, path, 0), analyse(t, path, 100)
		if d := cmp.Diff(describe(whole), describe(cut)); d != "" {
			t.Errorf("%s: (-whole +cut)\n%s", path, d)
		}
	}
}

// TestCounts feeds random requests in random order and checks the sums of the counters.
func TestCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFeed(0)
		psns := rapid.SliceOfN(rapid.Uint32Range(1<<24-30, 1<<24+30), 1, 200).Draw(rt, "psns")
		distinct := map[uint32]bool{}
		for _, p := range psns {
			p &= 1<<24 - 1
			f.request(7, p)
			distinct[p] = true
		}
		g := f.only(t)
		q := g.Requests
		if q.Packets != uint64(len(psns)) || g.Messages != uint64(len(distinct)) || g.Bytes != 8*g.Messages {
			rt.Fatalf("%d packets with %d PSNs: %+v", len(psns), len(distinct), g)
		}
		seenAgain := uint64(len(psns) - len(distinct))
		if q.Retransmitted != seenAgain+q.Recovered || q.Missing > q.Lost || q.Recovered+q.Reordered != q.Lost-q.Missing {
			rt.Fatalf("%d seen again: %+v", seenAgain, q)
		}
		degrees := uint64(0)
		for _, n := range q.OutOfOrder.Counts {
			degrees += uint64(n)
		}
		if degrees != q.Recovered+q.Reordered || (q.OutOfOrder.Max > 0) != (degrees > 0) {
			rt.Fatalf("%d degrees: %+v", degrees, q)
		}
	})
}

// TestNothingIsAllocated checks that packets of a known stream cause no heap allocations.
func TestNothingIsAllocated(t *testing.T) {
	f := newFeed(0)
	f.request(7, 1)
	f.answer(3, 1, bth.SyndromeACK)
	request := f.packet(hostA, hostB, bth.Packet{Opcode: bth.OpSendOnly, DestQP: 7, PSN: bth.MakePSN(1), AckReq: true})
	ack := f.packet(hostB, hostA, bth.Packet{Opcode: bth.OpAcknowledge, DestQP: 3, PSN: bth.MakePSN(1), AETH: bth.AETH{Syndrome: 0x1f}})
	if n := testing.AllocsPerRun(100, func() {
		f.Packet(1, request)
		f.Packet(2, ack)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzPacket feeds packets with arbitrary contents. The Analyzer must not panic, and its results must be consistent.
func FuzzPacket(f *testing.F) {
	g := newFeed(0)
	for _, p := range []bth.Packet{
		{Opcode: bth.OpReadRequest, DestQP: 7, RETH: bth.RETH{Length: 1<<32 - 1}},
		{Opcode: bth.OpReadRespFirst, DestQP: 7, Payload: make([]byte, 256)},
		{Opcode: bth.OpWriteMiddle, DestQP: 7, Payload: make([]byte, 256)},
		{Opcode: bth.OpAcknowledge, DestQP: 7},
		{Opcode: bth.TransportUD | bth.OpSendOnly, DestQP: 1, Payload: make([]byte, 256)},
	} {
		f.Add(g.packet(hostA, hostA, p), uint32(5))
	}
	f.Fuzz(func(t *testing.T, ip []byte, psn uint32) {
		a := flow.New(flow.Options{Streams: 3})
		for i := range 20 {
			a.Packet(mono.Time(i), ip)
			if len(ip) > 40 {
				binary.BigEndian.PutUint32(ip[36:], psn*uint32(i))
				ip[35] = byte(i / 5)
			}
			a.Packet(mono.Time(i), ip[:min(len(ip), 28+60)])
		}
		flows := a.Flows()
		if len(flows) > 6 {
			t.Errorf("%d flows of 3 streams", len(flows))
		}
		for _, g := range flows {
			if q := g.Requests; q.Missing > q.Lost || q.Retransmitted > q.Packets || g.RTT.Min > g.RTT.Max {
				t.Errorf("%+v", g)
			}
		}
	})
}

func BenchmarkPacket(b *testing.B) {
	f := newFeed(0)
	data := f.packet(hostA, hostB, bth.Packet{Opcode: bth.OpWriteMiddle, DestQP: 7, Payload: make([]byte, 1024)})[:100]
	ack := f.packet(hostB, hostA, bth.Packet{Opcode: bth.OpAcknowledge, DestQP: 3, AETH: bth.AETH{Syndrome: 0x1f}})
	start := time.Now()
	psn := uint32(0)
	for b.Loop() {
		binary.BigEndian.PutUint32(data[36:], psn)
		f.Packet(mono.Time(time.Since(start)), data)
		if psn++; psn%16 == 0 {
			f.Packet(mono.Time(time.Since(start)), ack)
		}
	}
}
