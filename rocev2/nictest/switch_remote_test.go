package nictest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/port/link"
	"roced.io/roced/rocev2"
)

// separate puts the NICs of p on one switch, as NICs of two owners. Frames between them take the link of p.
func separate(p *Pair) (a, b *rocev2.Switch) {
	p.tb.Helper()
	a, b = &rocev2.Switch{}, &rocev2.Switch{}
	p.check(a.Join(p.A.NIC, "port of a"))
	p.check(b.Join(p.B.NIC, "port of b"))
	a.SetRemote([]rocev2.Member{p.B.NIC.Member()})
	b.SetRemote([]rocev2.Member{p.A.NIC.Member()})
	return a, b
}

// TestSwitchOfTwoOwnersCountsLikeALink runs the same conversation over a link, and over a switch with an owner for each
// NIC. All counters of packets, bytes and acknowledgements are equal, so they also equal those of one owner
// (TestSwitchCountsLikeALink).
func TestSwitchOfTwoOwnersCountsLikeALink(t *testing.T) {
	for _, o := range []Options{{}, {Remote: true}, {Deferred: true}, {Offload: super, Whole: true}} {
		for _, gid := range []uint8{GIDIPv4, GIDIPv6} {
			t.Run(fmt.Sprintf("remote=%v,deferred=%v,super=%v,gid=%d", o.Remote, o.Deferred, o.Whole, gid), func(t *testing.T) {
				path := func(q *QPOptions) { q.GID, q.MTU = gid, 5 }
				o := o
				o.Seed = 3
				link := conversation(t, New(t, o), path)
				p := New(t, o)
				separate(p)
				compare(t, link, conversation(t, p, path))
			})
		}
	}
}

// unresolved drops all frames but those of RoCE, so that no address is resolved.
func unresolved(f *Flight) Fate { return Fate{Drop: udpPayload(f.Frame) == nil} }

// TestSwitchReachesOtherOwners checks that packets to a NIC of another owner need no address resolution and that super-frames
// go to its port, until the NIC has left or has another address.
func TestSwitchReachesOtherOwners(t *testing.T) {
	p := New(t, Options{Seed: 1, Offload: super, Whole: true, Hook: unresolved})
	sw, _ := separate(p)
	a, _ := p.RC()
	src, dst := p.A.Buffer(1<<16), p.B.Buffer(1<<16)
	ports := func() (out []any) {
		a.Post(Write(1, dst.At(0), src.SGE()))
		for f := p.A.NIC.PollTransmit(p.Now()); f != nil; f = p.A.NIC.PollTransmit(p.Now()) {
			if f.HdrLen != 0 {
				out = append(out, f.Across)
			}
			p.send(p.A, f)
		}
		a.WaitSend(1)
		return out
	}
	if got := ports(); len(got) != 2 || got[0] != "port of b" || got[1] != "port of b" {
		t.Errorf("super-frames of 64 KiB go to %v", got)
	}
	other := p.B.NIC.Member()
	other.GIDs = []rocev2.GIDEntry{{GID: inet.GID{15: 9}}, {}}
	for _, remote := range [][]rocev2.Member{nil, {other}, {p.B.NIC.Member(), p.B.NIC.Member()}} {
		sw.SetRemote(remote)
		p.SetHook(nil)
		ports() // resolves the address
		if got := ports(); len(got) == 0 || got[0] != nil {
			t.Errorf("%d members: frames go to %v", len(remote), got)
		}
	}
}

// TestSwitchFarAddresses refuses a NIC with an address of another owner's NIC.
func TestSwitchFarAddresses(t *testing.T) {
	p := New(t, Options{Seed: 1})
	sw := &rocev2.Switch{}
	m := p.A.NIC.Member()
	sw.SetRemote([]rocev2.Member{p.B.NIC.Member(), m})
	if err := sw.Join(p.A.NIC, nil); !errors.Is(err, rocev2.ErrSwitchAddr) {
		t.Errorf("joined: %v", err)
	}
	sw.SetRemote([]rocev2.Member{p.B.NIC.Member()})
	if err := sw.Join(p.A.NIC, nil); err != nil {
		t.Error(err)
	}
}

// TestSwitchRemoteWindow bounds the packets in flight towards a NIC of another owner, whose queue is bounded.
func TestSwitchRemoteWindow(t *testing.T) {
	for _, remote := range []bool{false, true} {
		p := New(t, Options{Seed: 1, Delay: time.Millisecond, Config: func(c *rocev2.Config) { c.MaxUnacked = 1 << 16 }})
		if remote {
			separate(p)
		}
		a, _ := p.RC(func(q *QPOptions) { q.MTU = 1 })
		p.RunIdle()
		const size = 2 * link.RemoteWindow * 256
		src, dst := p.A.Buffer(size), p.B.Buffer(size)
		before := p.A.Counter("sent_pkts")
		a.Post(Write(1, dst.At(0), src.SGE()))
		p.Run(time.Millisecond)
		if n := p.A.Counter("sent_pkts") - before; remote != (n <= link.RemoteWindow) {
			t.Errorf("another owner: %v; %d packets in flight", remote, n)
		}
		a.WaitSend(1)
	}
}
