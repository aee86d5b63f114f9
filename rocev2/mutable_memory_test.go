package rocev2_test

import (
	"testing"

	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2/nictest"
)

// TestChangingMemory moves memory that its owner changes all the time. A packet may have another payload than its
// ICRC covers, but not always. The response to a READ of one packet always has the right ICRC.
func TestChangingMemory(t *testing.T) {
	const mtu = 4096
	for _, name := range profile.Complete() {
		for _, c := range []struct {
			what    string
			write   bool
			packets int
			lost    bool
		}{{"READ", false, 1, false}, {"READ", false, 5, true}, {"WRITE", true, 1, true}, {"WRITE", true, 5, true}} {
			var src *nictest.Buffer
			p := nictest.New(t, nictest.Options{Seed: 1, Offload: link.Offload{MaxSegments: 16, MaxBytes: 65535},
				Leaving: func(*nictest.Node) {
					if src != nil {
						for i := range src.B {
							src.B[i]++
						}
					}
				}})
			a, b := p.RC(func(o *nictest.QPOptions) { o.Profile, o.MTU, o.Timeout = name, qp.MTU(5), 10 })
			from, to := p.B, p.A
			if c.write {
				from, to = p.A, p.B
			}
			buf, dst := from.Buffer(c.packets*mtu), to.Buffer(c.packets*mtu)
			src = buf
			if c.write {
				a.Post(nictest.Write(1, dst.At(0), src.SGE()))
			} else {
				a.Post(nictest.Read(1, src.At(0), dst.SGE()))
			}
			a.WaitSend(1)
			p.RunIdle()
			for i := range c.packets { // each packet is from one instant
				for _, v := range dst.B[i*mtu : (i+1)*mtu] {
					if v != dst.B[i*mtu] {
						t.Fatalf("%s: %s of %d packets: packet %d is of two moments", name, c.what, c.packets, i)
					}
				}
			}
			if lost := from.Peer().Counter("rx_dropped_icrc") > 0; lost != c.lost {
				t.Errorf("%s: %s of %d packets: some have a bad ICRC: %t, want %t", name, c.what, c.packets, lost, c.lost)
			}
			b.Destroy()
		}
	}
}
