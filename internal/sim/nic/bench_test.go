package nic

import (
	"fmt"
	"testing"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// BenchmarkPermutation: each of 128 hosts sends 1 MB to another one over a fat-tree, at 100 Gb/s with flow control. It
// measures the time of a link transmission. A packet and its acknowledgement make twelve of them on the longest paths.
func BenchmarkPermutation(b *testing.B) {
	g, err := fabric.FatTree(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 8)
	if err != nil {
		b.Fatal(err)
	}
	var sent, events uint64
	for b.Loop() {
		l := newLab(b, g, fabric.SwitchConfig{
			Buffer: fabric.BufferConfig{Bytes: 9 << 20}, PFC: fabric.PFCConfig{Lossless: 1, Headroom: 30_000, Reserve: 2000}, Port: fabric.PortConfig{Strict: 1 << 7}}, 1)
		u := &counter{}
		for h := range g.Hosts {
			x, _, err := l.k.Connect(h, (h*37+11)%g.Hosts, QPConfig{Profile: l.profiles("rc", profile.Spec{}), User: u, MaxUnacked: 256})
			if err != nil {
				b.Fatal(err)
			}
			x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: 1_000_000})
		}
		l.eng.Drain()
		if u.sends != g.Hosts {
			b.Fatalf("%d of %d done", u.sends, g.Hosts)
		}
		links := l.k.Network().Links()
		for i := range links {
			sent += links[i].Stats.Packets
		}
		events += l.eng.Fired()
	}
	b.ReportMetric(float64(sent)/1e6/b.Elapsed().Seconds(), "Mlinks/s")
	b.ReportMetric(float64(events)/float64(sent), "events/link")
}

// BenchmarkPaused requests a packet from a NIC, as each pending acknowledgement does. Meanwhile messages of many queue
// pairs wait for a paused class. The time does not depend on their number.
func BenchmarkPaused(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l, _ := waiting(b, n)
			for b.Loop() {
				l.k.nics[0].Next(0, 1)
			}
		})
	}
}
