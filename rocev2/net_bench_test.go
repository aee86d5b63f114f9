package rocev2

import (
	"testing"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
)

// benchPair returns a sender and a receiver, with the frames between them.
func benchPair(b *testing.B, size int, o link.Offload) (a *NIC, q *QueuePair, n *NIC) {
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = o
	a = newNIC(b, cfg)
	s := newScript(sends(0x22, 0, size)...)
	q = plug(b, a, 0x11, qp.RC, s)
	connect(b, a, q, 0, "10.0.0.2", &macB)
	s.endless = true
	a.sch.activate(q)
	n = newNIC(b, testConfig(macB, "10.0.0.2/24"))
	connect(b, n, plug(b, n, 0x22, qp.RC, &script{deadline: mono.Never}), 0, "10.0.0.1", &macA)
	discardAll(n)
	return a, q, n
}

func benchSizes(b *testing.B, f func(b *testing.B, size int, o link.Offload)) {
	for _, c := range []struct {
		name string
		size int
		o    link.Offload
	}{
		{"64", 64, link.Offload{}}, {"4096", 4096, link.Offload{}},
		{"64super", 64, superOffload()}, {"4096super", 4096, superOffload()},
	} {
		b.Run(c.name, func(b *testing.B) { b.ReportAllocs(); f(b, c.size, c.o) })
	}
}

func BenchmarkTransmit(b *testing.B) {
	benchSizes(b, func(b *testing.B, size int, o link.Offload) {
		a, q, _ := benchPair(b, size, o)
		s := q.node.replaced.(*script)
		s.sent = 0
		for s.sent < b.N {
			a.PollTransmit(0)
		}
		b.SetBytes(int64(size))
	})
}

func BenchmarkReceive(b *testing.B) {
	benchSizes(b, func(b *testing.B, size int, o link.Offload) {
		a, _, n := benchPair(b, size, o)
		f := a.PollTransmit(0)
		frame, seg := f.AppendTo(nil), f.SegSize
		segs := link.Segments(frame, seg)
		b.SetBytes(int64(size))
		for i := 0; i < b.N; i += segs {
			n.Receive(0, frame, seg)
			n.PollTransmit(0)
		}
	})
}
