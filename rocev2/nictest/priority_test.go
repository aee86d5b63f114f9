package nictest

import (
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/port/link"
	"roced.io/roced/rocev2"
)

// left is a RoCE packet that has left a NIC, in wire order.
type left struct {
	to   bth.QPN
	dscp byte
}

// busyPair returns a pair whose link takes 8 us per packet, and a record of the packets of node A.
func busyPair(t *testing.T, o link.Offload, quantum int) (*Pair, *[]left) {
	var out []left
	p := New(t, Options{Seed: 1, Rate: 1e9, Busy: true, Config: func(c *rocev2.Config) { c.Quantum = quantum }, Offload: o})
	p.SetHook(OnlyRoCE(func(f *Flight) Fate {
		var pkt bth.Packet
		if f.From == p.A && f.RoCE(&pkt) {
			tos := f.Frame[15]
			if f.Frame[14]>>4 == 6 {
				tos = f.Frame[14]<<4 | f.Frame[15]>>4
			}
			out = append(out, left{pkt.DestQP, tos >> 2})
		}
		return Fate{}
	}))
	return p, &out
}

// TestDatagramsGoFirst: datagrams of a higher priority leave in the middle of a large message, after the frame in
// transmission. Their service level sets the priority; without one, the DSCP does. The DSCP always comes from the
// traffic class.
func TestDatagramsGoFirst(t *testing.T) {
	for _, c := range []struct {
		name   string
		av     rocev2.AddressVector
		gid    uint8
		first  bool
		dscp   byte
		others rocev2.AddressVector
	}{
		{name: "no priority"},
		{name: "service level", av: rocev2.AddressVector{SL: 1}, first: true},
		{name: "traffic class", av: rocev2.AddressVector{TrafficClass: 46<<2 | 1}, first: true, dscp: 46},
		{name: "IPv6", av: rocev2.AddressVector{TrafficClass: 46 << 2}, gid: GIDIPv6, first: true, dscp: 46},
		{name: "the same", av: rocev2.AddressVector{TrafficClass: 46 << 2}, dscp: 46, others: rocev2.AddressVector{SL: 5}},
		{name: "service level before traffic class", av: rocev2.AddressVector{SL: 1, TrafficClass: 63 << 2}, dscp: 63,
			others: rocev2.AddressVector{SL: 2}},
		{name: "highest", av: rocev2.AddressVector{SL: 15}, first: true, others: rocev2.AddressVector{SL: 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, out := busyPair(t, link.Offload{MaxSegments: 2, MaxBytes: 4000}, 0)
			with := func(av rocev2.AddressVector) Option {
				return func(o *QPOptions) {
					o.GID = c.gid
					o.AV = func(to *rocev2.AddressVector) { to.SL, to.TrafficClass = av.SL, av.TrafficClass }
				}
			}
			a, b := p.RC(with(c.others))
			ua, ub, toB, _ := p.UD(with(c.av))
			src, dst := p.A.Buffer(200_000), p.B.Buffer(200_000)
			ub.PostRecv(7, p.B.Buffer(200).SGE())
			a.Post(Write(1, dst.At(0), src.SGE()))
			p.Run(200 * time.Microsecond)
			before := len(*out)
			ua.Post(SendTo(1, toB.Handle(), ub, p.A.Buffer(100).SGE()))
			ub.WaitRecv(7)
			a.WaitSend(1)
			at := 0
			for i, f := range *out {
				if f.to == ub.Num() {
					if at = i - before; f.dscp != c.dscp {
						t.Errorf("DSCP %d, want %d", f.dscp, c.dscp)
					}
				} else if want := c.others.TrafficClass >> 2; f.to == b.Num() && f.dscp != want {
					t.Errorf("the message has DSCP %d, want %d", f.dscp, want)
				}
			}
			if before == 0 || c.first != (at <= 2) { // packets already on the link go first
				t.Errorf("%d packets of the message were sent before it, %d behind its request", before, at)
			}
		})
	}
}

// TestPriorityFollowsAddress: datagrams of one queue pair have the priorities of their addresses. The first leaves in
// the order of its queue with others, the next two before all others.
func TestPriorityFollowsAddress(t *testing.T) {
	p, out := busyPair(t, link.Offload{}, 1000)
	ua, ub, low, _ := p.UD()
	va, vb, _, _ := p.UD()
	av := ua.AV()
	av.SL = 3
	high, err := p.A.NIC.CreateAH(p.Now(), p.A.PD, av, nil)
	if err != nil {
		t.Fatal(err)
	}
	data := p.A.Buffer(900).SGE()
	p.Run(time.Millisecond)
	for range 4 {
		va.Post(SendTo(1, low.Handle(), vb, data))
	}
	for _, to := range []*rocev2.AH{low, high, high, low} {
		ua.Post(SendTo(1, to.Handle(), ub, data))
	}
	p.Run(time.Millisecond)
	var order string
	for _, f := range *out {
		order += map[bth.QPN]string{ub.Num(): "u", vb.Num(): "v"}[f.to]
	}
	if want := "vvuuuvuv"; order != want {
		t.Errorf("left as %q, want %q", order, want)
	}
}
