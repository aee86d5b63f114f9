package rocev2

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// members returns a NIC with UD queue pairs that run scripts, and an address handle of a group.
func members(t *testing.T, mac inet.MAC, addr string, group inet.GID, num bth.QPN, scripts ...*script) (*NIC, []*QueuePair) {
	t.Helper()
	n := newNIC(t, testConfig(mac, addr))
	var qps []*QueuePair
	for i, s := range scripts {
		q := plug(t, n, num+bth.QPN(i), qp.UD, s)
		qps = append(qps, q)
		if err := n.AttachGroup(0, q, group); err != nil {
			t.Fatal(err)
		}
	}
	return n, qps
}

// datagram returns a packet to a group, as scripts record it.
func datagram(text string) bth.Packet {
	return bth.Packet{Opcode: bth.TransportUD | bth.OpSendOnly, PKey: bth.DefaultPKey, DestQP: multicastQPN, DETH: bth.DETH{QKey: 7, SrcQP: 5},
		Payload: []byte(text)}
}

// TestMulticast: a datagram to a group reaches every queue pair of the group once, at the group's Ethernet address. The
// members are on other NICs and on the sender's own, and the sender unless it blocks its own copies.
func TestMulticast(t *testing.T) {
	for _, c := range []struct {
		a, b, group, mac string
		block            bool
		own              int
	}{
		{"10.0.0.1/24", "10.0.0.2/24", "239.200.1.2", "01005e480102", false, 1},
		{"fd00::1/64", "fd00::2/64", "ff15::abcd:1234", "3333abcd1234", false, 1},
		{"10.0.0.1/24", "10.0.0.2/24", "239.200.1.2", "01005e480102", true, 0},
	} {
		to := gid(c.group)
		sender, beside := newScript(datagram("hello")), newScript()
		a, qa := members(t, macA, c.a, to, 0x11, sender, beside)
		far := []*script{newScript(), newScript()}
		b, _ := members(t, macB, c.b, to, 0x31, far...)
		transmit(a, 0)
		p, err := a.datagramPath(0, AddressVector{DGID: to}, Unlimited)
		if err != nil {
			t.Fatal(err)
		}
		ah := &AH{nic: a, pd: qa[0].pd, path: p}
		sender.ah = []uint32{0}
		if ah.id, _ = a.obj.ahs.Add(ah); true {
			sender.ah[0] = ah.id
		}
		qa[0].blockOwn, qa[1].blockOwn = c.block, true // of the others' datagrams, a queue pair blocks none
		a.sch.activate(qa[0])
		frames := transmit(a, 0)
		if len(frames) != 1 || fmt.Sprintf("%x", frames[0].b[:6]) != c.mac {
			t.Fatalf("%s: %d frames", c.group, len(frames))
		}
		b.Receive(0, frames[0].b, 0)
		if len(sender.got) != c.own || len(beside.got) != 1 || len(far[0].got) != 1 || len(far[1].got) != 1 {
			t.Errorf("%s: the sender has got %d, its neighbour %d, the others %d and %d", c.group, len(sender.got), len(beside.got),
				len(far[0].got), len(far[1].got))
		}
		other, _ := members(t, macB, c.b, gid("239.1.1.1"), 0x31, newScript())
		other.Receive(0, frames[0].b, 0)
		if other.ctr.RxDropped() != 1 {
			t.Errorf("%s: taken by who is in another group", c.group)
		}
	}
}

// TestGroups: the NIC leaves a group with the group's last user. Only multicast addresses and UD queue pairs are
// valid.
func TestGroups(t *testing.T) {
	g := gid("239.0.0.1")
	n, qps := members(t, macA, "10.0.0.1/24", g, 0x11, newScript(), newScript())
	rc := plug(t, n, 0x51, qp.RC, newScript())
	for _, c := range []struct {
		name string
		err  error
	}{
		{"RC", n.AttachGroup(0, rc, g)}, {"unicast", n.AttachGroup(0, qps[0], gid("10.0.0.9"))},
		{"not attached", n.DetachGroup(qps[0], gid("239.0.0.2"))}, {"RC detached", n.DetachGroup(rc, g)},
	} {
		if !errors.Is(c.err, ErrInvalid) {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
	if err := n.JoinGroup(0, g); err != nil {
		t.Fatal(err)
	}
	n.detachAll(qps[0])
	if err := n.DetachGroup(qps[1], g); err != nil || len(n.mcast.list) != 1 {
		t.Errorf("%v, %d groups", err, len(n.mcast.list))
	}
	n.LeaveGroup(g)
	n.LeaveGroup(g)
	if m := &n.mcast; len(m.list)+len(m.groups) != 0 {
		t.Errorf("left over: %v", m)
	}
	for i := range MaxGroups {
		if err := n.JoinGroup(0, gid4([]byte{239, 1, byte(i >> 8), byte(i)})); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.JoinGroup(0, g); !errors.Is(err, ErrLimit) {
		t.Errorf("one group more than there can be: %v", err)
	}
	shared := newNIC(t, Config{MAC: macA, MTU: 1500, Shared: true})
	if err := shared.JoinGroup(0, g); !errors.Is(err, ErrNoGroups) {
		t.Errorf("shared: %v", err)
	}
}

// reports returns the type and group of the IGMP and MLD messages that a NIC sends at now.
func reports(n *NIC, now mono.Time) (out []string) {
	n.Advance(now)
	for _, w := range transmit(n, now) {
		switch h := (&stack.IPHeader{}); {
		case h.ParseIPv4(w.b[inet.EthernetLen:]) == stack.Accepted && h.Proto == inet.ProtoIGMP && inet.Checksum(0, h.Payload) == 0 && h.TTL == 1:
			out = append(out, fmt.Sprintf("%#x %v", h.Payload[0], gid4(h.Payload[4:]).Addr()))
		case h.ParseIPv6(w.b[inet.EthernetLen:]) == stack.Accepted && h.Proto == inet.ProtoHopByHop && h.TTL == 1:
			m := h.Payload[8:]
			if inet.Checksum(inet.PseudoSum(&h.Src, &h.Dst, inet.ProtoICMPv6, len(m)), m) == 0 {
				out = append(out, fmt.Sprintf("%d %v", m[0], inet.GID(m[8:24]).Addr()))
			}
		}
	}
	return out
}

// TestMembershipReports: the NIC reports a membership twice at its start, on a query, and at its end.
func TestMembershipReports(t *testing.T) {
	for _, c := range []struct {
		group, report, leave string
		query                func(n *NIC)
	}{
		{"239.0.0.7", "0x16 239.0.0.7", "0x17 239.0.0.7", func(n *NIC) {
			n.Receive(mono.Time(time.Minute), igmpQueryFrame(), 0)
		}},
		{"ff15::7", "131 ff15::7", "132 ff15::7", func(n *NIC) {
			n.Receive(mono.Time(time.Minute), mldQueryFrame(), 0)
		}},
	} {
		n := newNIC(t, testConfig(macA, "10.0.0.1/24", "fd00::1/64"))
		g := gid(c.group)
		if err := n.JoinGroup(0, g); err != nil {
			t.Fatal(err)
		}
		expect := func(at mono.Time, want ...string) {
			t.Helper()
			if got := reports(n, at); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s at %v: %v, want %v", c.group, time.Duration(at), got, want)
			}
		}
		expect(0, c.report)
		expect(mono.Time(9 * time.Second))
		expect(mono.Time(10*time.Second), c.report)
		if n.NextTimeout() != mono.Never {
			t.Errorf("%s: next timeout %v", c.group, n.NextTimeout())
		}
		c.query(n)
		expect(mono.Time(time.Minute+time.Second), c.report)
		n.LeaveGroup(g)
		expect(mono.Time(2*time.Minute), c.leave)
	}
}

// TestGroupsOfTheKernel: a NIC on sockets makes the kernel join its groups and report them.
func TestGroupsOfTheKernel(t *testing.T) {
	var calls []string
	refused := errors.New("refused")
	n, _, _ := onSockets(t, func(c *Config) {
		c.Group = func(g inet.GID, in bool) error {
			calls = append(calls, fmt.Sprint(g.Addr(), in))
			if g == gid("239.0.0.9") {
				return refused
			}
			return nil
		}
	})
	g := gid("239.0.0.1")
	q := plug(t, n, 0x31, qp.UD, newScript())
	if err := n.JoinGroup(0, gid("239.0.0.9")); !errors.Is(err, refused) || len(n.mcast.list) != 0 {
		t.Errorf("%v, %d groups", err, len(n.mcast.list))
	}
	for range 2 {
		if err := errors.Join(n.JoinGroup(0, g), n.AttachGroup(0, q, g)); err != nil {
			t.Fatal(err)
		}
	}
	if r := reports(n, 0); len(r) != 0 {
		t.Errorf("reports: %v", r)
	}
	if _, err := n.datagramPath(0, AddressVector{DGID: g}, Unlimited); err != nil {
		t.Error(err)
	}
	n.LeaveGroup(g)
	n.LeaveGroup(g)
	n.detachAll(q)
	if want := "[239.0.0.9 true 239.0.0.1 true 239.0.0.1 false]"; fmt.Sprint(calls) != want || len(reports(n, 0)) != 0 {
		t.Errorf("%v, want %s", calls, want)
	}
}
