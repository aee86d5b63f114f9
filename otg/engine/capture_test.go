package engine

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// lossy is a link that marks each 20th data packet and loses each 50th.
type lossy struct {
	port.Monitored
	n int
}

func (l *lossy) Send(now mono.Time, f *link.Frame) error {
	var p roceInfo
	data := false
	eachSent(f, func(_ layout, _ []byte, k roceInfo) { p, data = k, k.op.IsWrite() || k.op.IsReadResponse() })
	if !data || p.dest == 1 {
		return l.Monitored.Send(now, f)
	}
	if l.n++; l.n%20 == 0 {
		ip := f.Bufs[0][inet.EthernetLen : inet.EthernetLen+inet.IPv4Len]
		ip[1] |= inet.CE
		inet.SealIPv4(ip)
	}
	if l.n%50 == 0 {
		return nil
	}
	return l.Monitored.Send(now, f)
}

// seen are the figures of a capture for one direction of a flow.
type seen struct {
	frames, bytes, again, ahead, marked, messages uint64
	acks, naks, cnps                              uint64
	first, last                                   time.Time
}

// look computes the figures of the frames to a queue pair, which begin with a PSN. sent: the capture is that of the sender.
func look(t *testing.T, file []byte, to inet.MAC, next bth.PSN, sent bool) (s seen) {
	t.Helper()
	r, err := pcapgo.NewReader(bytes.NewReader(file))
	must(t, err)
	for {
		b, info, err := r.ReadPacketData()
		if err == io.EOF {
			return s
		}
		must(t, err)
		_, body, end, ok := inet.UDPBody(b)
		var p bth.Packet
		if !ok || inet.MAC(b) != to || p.Decode(b[body:end]) != nil || p.DestQP == 1 {
			continue
		}
		switch {
		case p.Opcode.IsCNP():
			s.cnps++
			continue
		case p.Opcode.IsAck() && p.AETH.Syndrome.IsACK():
			s.acks++
			continue
		case p.Opcode.IsAck():
			s.naks++
			continue
		case p.Opcode.IsReadRequest():
			continue
		}
		if s.frames++; s.frames == 1 {
			s.first = info.Timestamp
		}
		s.last = info.Timestamp
		s.bytes += uint64(len(b) + 4)
		if b[15]&3 == inet.CE {
			s.marked++
		}
		switch d := p.PSN.Diff(next); {
		case d < 0 && sent:
			s.again++
		case d > 0 && !sent:
			s.ahead++
		case d >= 0:
			next = p.PSN.Next()
			if p.Opcode.Ends() {
				s.messages++
			}
		}
	}
}

// whole returns the frames of a capture, their bytes with FCS, and the numbers of connection messages to an address by attribute.
func whole(t *testing.T, file []byte, to inet.MAC) (count portCount, messages map[mad.Attr]uint64) {
	t.Helper()
	r, err := pcapgo.NewReader(bytes.NewReader(file))
	must(t, err)
	messages = map[mad.Attr]uint64{}
	for {
		b, _, err := r.ReadPacketData()
		if err == io.EOF {
			return count, messages
		}
		must(t, err)
		count.frames++
		count.bytes += uint64(len(b) + 4)
		_, body, end, ok := inet.UDPBody(b)
		var p bth.Packet
		if ok && inet.MAC(b) == to && p.Decode(b[body:end]) == nil && p.DestQP == 1 {
			messages[mad.Attr(binary.BigEndian.Uint16(p.Payload[16:]))]++
		}
	}
}

// TestMetricsAreThoseOfTheCapture: each figure of a flow, of a port and of a peer on a lossy, marking link is that of captures of the
// same run.
func TestMetricsAreThoseOfTheCapture(t *testing.T) {
	for _, v := range []Verb{Write, Read} {
		b := porttest.DirectBed(t, [2]bool{true, true})
		c := twoPorts(b, 1)
		c.Flows = []Flow{{Name: "f", Port: "p0", QueuePair: "q0.0", Verb: v, Size: 50_000, LineRate: 0.02}}
		c.Captures = []Capture{{Ports: []string{"p0", "p1"}}}
		e := start(t, c)
		must(t, e.do(func(mono.Time) error {
			for _, p := range e.run.ports {
				p.link = &lossy{Monitored: p.link}
				p.tx, p.rx, p.cap.on = portCount{}, portCount{}, true // at the same time
			}
			return nil
		}))
		must(t, e.Traffic(nil, Start))
		await(t, e, "ten messages", func() bool { return e.FlowMetrics()[0].MessagesComplete >= 10 })
		must(t, e.Traffic(nil, Stop))
		var m FlowMetric
		await(t, e, "the messages in progress end", func() bool {
			old := m
			m = e.FlowMetrics()[0]
			m.RateTx, m.RateRx = 0, 0
			idle := false
			_ = e.do(func(mono.Time) error { p := &e.run.flows[0].pair.progress; idle = p.head == p.tail; return nil })
			return idle && m == old
		})
		ports := [2]portCount{}
		must(t, e.do(func(mono.Time) error {
			for i, p := range e.run.order() {
				p.cap.on = false
				ports[i] = portCount{frames: p.tx.frames + p.rx.frames, bytes: p.tx.bytes + p.rx.bytes}
			}
			return nil
		}))
		mac := [2]inet.MAC{e.run.hosts[0].cfg.MAC, e.run.hosts[1].cfg.MAC}
		files := [2][]byte{}
		for i, name := range []string{"p0", "p1"} {
			var err error
			files[i], err = e.Captured(name)
			must(t, err)
		}
		for i, p := range e.PeerMetrics() {
			count, in := whole(t, files[i], mac[i])
			_, out := whole(t, files[i], mac[1-i])
			if count != ports[i] {
				t.Errorf("verb %d: port %d counts %+v, captured %+v", v, i, ports[i], count)
			}
			got := []uint64{p.RequestTx, p.RequestRx, p.ReplyTx, p.ReplyRx, p.ReadyTx, p.ReadyRx}
			want := []uint64{out[mad.AttrREQ], in[mad.AttrREQ], out[mad.AttrREP], in[mad.AttrREP], out[mad.AttrRTU], in[mad.AttrRTU]}
			if !slices.Equal(got, want) || p.RequestTx+p.RequestRx == 0 {
				t.Errorf("verb %d: peer %d counts %d messages, captured %d", v, i, got, want)
			}
		}
		src, dst := 0, 1 // of the data
		if v == Read {
			src, dst = 1, 0
		}
		psn := bth.MakePSN(0xfffff0)
		tx, rx := look(t, files[src], mac[dst], psn, true), look(t, files[dst], mac[dst], psn, false)
		backTx, backRx := look(t, files[dst], mac[src], psn, true), look(t, files[src], mac[src], psn, false)
		// Acknowledgements go to queue pair q0.0, also those of a flow that reads.
		ackTx, ackRx := look(t, files[1], mac[0], psn, true), look(t, files[0], mac[0], psn, false)
		want := m
		want.FramesTx, want.FramesRx, want.Retransmitted, want.SequenceErrors = tx.frames, rx.frames, tx.again, rx.ahead
		want.BytesTx, want.BytesRx, want.MessagesTx, want.MessagesComplete = tx.bytes, rx.bytes, tx.messages, rx.messages
		want.MarkedRx, want.CNPTx, want.CNPRx = rx.marked, backTx.cnps, backRx.cnps
		want.ACKTx, want.ACKRx, want.NAKTx, want.NAKRx = ackTx.acks, ackRx.acks, ackTx.naks, ackRx.naks
		if m != want {
			t.Errorf("verb %d: metrics\n%+v, capture\n%+v", v, m, want)
		}
		if d := m.First.Sub(tx.first).Abs() + m.Last.Sub(tx.last).Abs(); d > time.Microsecond {
			t.Errorf("verb %d: first and last packet differ by %v", v, d)
		}
		if m.Retransmitted == 0 || m.SequenceErrors == 0 || m.MarkedRx == 0 || m.CNPTx == 0 || m.Completion == 0 || v == Write && m.NAKTx == 0 {
			t.Errorf("verb %d: nothing happened: %+v", v, m)
		}
	}
}
