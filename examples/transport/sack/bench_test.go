package sack_test

import (
	"fmt"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/qp/qptest"
)

const (
	mtu   = 1024
	burst = 12   // packets per microsecond: 100 Gb/s
	delay = 8000 // ns
	depth = 256  // requests
)

// host has left requests of a number of packets to send, and memory for one packet.
type host struct {
	*qptest.Host
	wqe         qp.SendWQE
	left, taken int
	memory      [mtu]byte
	failed      bool
}

func (h *host) HasSend() bool { return h.left > 0 && h.taken < depth }

func (h *host) NextSend(w *qp.SendWQE) bool {
	if !h.HasSend() {
		return false
	}
	h.left, h.taken = h.left-1, h.taken+1
	sges := append(w.SGEs[:0], h.wqe.SGEs...)
	*w = h.wqe
	w.SGEs = sges
	return true
}

func (h *host) SendRetired(n int)                                { h.taken -= n }
func (h *host) CompleteSend(c qp.CQE)                            { h.failed = h.failed || c.Status != qp.StatusSuccess }
func (h *host) Scratch(n int) []byte                             { return h.memory[:n] }
func (*host) WriteRemote(uint32, uint64, []byte, uint32) bool    { return true }
func (*host) CheckLocal(uint32, uint64, uint32, qp.Access) bool  { return true }
func (*host) CheckRemote(uint32, uint64, uint32, qp.Access) bool { return true }
func (h *host) ReadLocal(_ uint32, _ uint64, n int, _ uint32) ([]byte, bool) {
	return h.memory[:n], true
}

type flight struct {
	at  mono.Time
	pkt bth.Packet
}

// end is a queue pair and the packets that it has sent.
type end struct {
	q    *qp.QP
	h    *host
	out  []flight
	head int // of out, whose entries before it have arrived
}

func newEnd(b *testing.B, name string, qpn uint32, scratch *qp.Scratch) *end {
	p, err := profile.NewMaker(profile.Link{}).New(name, profile.Spec{})
	if err != nil {
		b.Fatal(err)
	}
	e := &end{h: &host{Host: qptest.NewHost()}, out: make([]flight, 0, 1<<13)}
	e.q = qp.New(qp.Config{Type: qp.RC, QPN: bth.QPN(qpn), MaxSendWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1,
		Host: e.h, Profile: p, Scratch: scratch, Tuning: qp.Software})
	a := qp.Attr{PathMTU: mtu, AccessFlags: qp.AccessRemoteWrite, Timeout: 14, RetryCnt: 7, DestQPN: qpn ^ 1}
	if err := qptest.Connect(1, e.q, qp.RC, a, qp.RTS); err != nil {
		b.Fatal(err)
	}
	return e
}

// BenchmarkPackets measures a packet of WRITEs, at both ends together, beside irn.
func BenchmarkPackets(b *testing.B) {
	for _, name := range []string{"irn", "sack"} {
		for _, packets := range []int{1, 64} {
			for _, loss := range []uint32{0, 100} {
				b.Run(fmt.Sprintf("%s/packets=%d/loss=1:%d", name, packets, loss), func(b *testing.B) { benchmark(b, name, packets, loss) })
			}
		}
	}
}

// benchmark sends b.N packets; one of loss is lost, unless loss is 0.
func benchmark(b *testing.B, name string, packets int, loss uint32) {
	var scratch qp.Scratch
	ends := [2]*end{newEnd(b, name, 20, &scratch), newEnd(b, name, 21, &scratch)}
	var t qp.Transmit
	rng, now := uint32(1), mono.Time(1)
	h := ends[0].h
	h.wqe = qp.SendWQE{Opcode: qp.WRWrite, Flags: qp.SendSignaled, Length: uint32(packets * mtu), RKey: 1, SGEs: []qp.SGE{{Length: uint32(packets * mtu)}}}
	run := func() {
		for ends[0].q.Doorbell(now); h.left+h.taken > 0 && !h.failed; now += 1000 {
			next := mono.Never // skip idle time
			for _, e := range ends {
				if next = next.Min(e.q.NextTimeout()); e.head < len(e.out) {
					next = next.Min(e.out[e.head].at)
				}
				if e.q.Runnable() {
					next = now
				}
			}
			now = max(now, next)
			for i, e := range ends {
				for n := 0; n < burst && e.q.PollTransmit(now, &t); n++ {
					if rng = rng*1664525 + 1013904223; loss == 0 || rng>>8%loss != 0 {
						e.out = append(e.out, flight{now + delay, t.Packet})
					}
				}
				e.q.Flushed(now)
				for to := ends[1-i].q; e.head < len(e.out) && e.out[e.head].at <= now; e.head++ {
					to.Receive(now, &e.out[e.head].pkt, qp.RxMeta{})
				}
				if e.head == len(e.out) || e.head > 2048 {
					e.out, e.head = append(e.out[:0], e.out[e.head:]...), 0
				}
				if e.q.NextTimeout() <= now {
					e.q.OnTimeout(now)
				}
			}
		}
	}
	h.left = 4 * depth
	run() // buffers grow to their final size
	h.left = max(b.N/packets, 1)
	b.ReportAllocs()
	b.ResetTimer()
	run()
	if h.failed {
		b.Fatal("a request has failed")
	}
}
