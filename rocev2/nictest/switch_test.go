package nictest

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// conversation exchanges messages of all kinds and sizes, one after the other, and returns the counters of both NICs.
func conversation(t *testing.T, p *Pair, opts ...Option) [2][]rocev2.Counter {
	t.Helper()
	a, b := p.RC(opts...)
	const size = 1 << 16
	src, dst := p.A.Buffer(size), p.B.Buffer(size)
	for i, n := range []int{1, 8, 1023, 1024, 4096, 5000, size} {
		id := uint64(4 * i)
		same := func(what string) {
			t.Helper()
			if !bytes.Equal(src.B[:n], dst.B[:n]) {
				t.Fatalf("%s of %d bytes: the data differ", what, n)
			}
		}
		src.Fill(id)
		a.Post(Write(id, dst.At(0), src.Part(0, n)))
		a.WaitSend(id)
		same("WRITE")
		dst.Fill(id + 1)
		a.Post(Read(id+1, dst.At(0), src.Part(0, n)))
		a.WaitSend(id + 1)
		same("READ")
		src.Fill(id + 2)
		b.PostRecv(id+2, dst.Part(0, n))
		a.Post(Send(id+2, src.Part(0, n)))
		a.WaitSend(id + 2)
		b.WaitRecv(id + 2)
		same("SEND")
	}
	p.RunIdle()
	return [2][]rocev2.Counter{p.A.NIC.CounterSnapshot(), p.B.NIC.CounterSnapshot()}
}

// TestSwitchCountsLikeALink runs the same conversation over the link and over the switch, with each kind of memory. All
// counters of packets, bytes and acknowledgements are equal, and the link carries nothing of the second run but the
// frames of address resolution.
func TestSwitchCountsLikeALink(t *testing.T) {
	for _, o := range []Options{{}, {Remote: true}, {Deferred: true}, {Offload: super, Whole: true}} {
		for _, gid := range []uint8{GIDIPv4, GIDIPv6} {
			t.Run(fmt.Sprintf("remote=%v,deferred=%v,super=%v,gid=%d", o.Remote, o.Deferred, o.Whole, gid), func(t *testing.T) {
				path := func(q *QPOptions) { q.GID, q.MTU = gid, 5 }
				o := o
				o.Seed = 3
				link := conversation(t, New(t, o), path)
				o.Switch = &rocev2.Switch{}
				p := New(t, o)
				sw := conversation(t, p, path)
				if n := p.Frames(); n > 40 {
					t.Errorf("%d frames took the link", n)
				}
				compare(t, link, sw)
			})
		}
	}
}

// compare requires equal counters.
func compare(t *testing.T, want, got [2][]rocev2.Counter) {
	t.Helper()
	for i := range want {
		for k, w := range want[i] {
			if g := got[i][k]; g != w {
				t.Errorf("NIC %d: %s is %d, %d on a link", i, w.Name, g.Value, w.Value)
			}
		}
	}
}

// TestSwitchCarriesDatagrams sends datagrams, whose receiver gets the header that a link would show.
func TestSwitchCarriesDatagrams(t *testing.T) {
	var got [2][]byte
	for i, sw := range []*rocev2.Switch{nil, {}} {
		p := New(t, Options{Seed: 5, Switch: sw})
		a, b, ah, _ := p.UD()
		src, dst := p.A.Buffer(512), p.B.Buffer(552)
		src.Fill(1)
		b.PostRecv(1, dst.SGE())
		w := Send(1, src.SGE())
		w.AH, w.RemoteQPN, w.RemoteQKey = ah.Handle(), uint32(b.Num()), 0x11111111
		a.Post(w)
		if c := b.WaitRecv(1); c.Status != qp.StatusSuccess || c.SrcQP != uint32(a.Num()) {
			t.Fatalf("%+v", c)
		}
		got[i] = dst.B
	}
	if !bytes.Equal(got[0], got[1]) {
		t.Errorf("link   %x\nswitch %x", got[0][:48], got[1][:48])
	}
}

// watcher checks the frames that it sees and counts those of RoCE.
type watcher struct {
	t      *testing.T
	frames [2]int
}

func (w *watcher) Frame(_ mono.Time, d link.Direction, frame []byte, comment string) {
	if f := (&Flight{Frame: frame}); udpPayload(f.Frame) == nil {
		return
	}
	w.frames[d]++
	if comment != "" || !bytes.Equal(frame[:5], []byte{2, 0, 0, 0, 0}) || frame[5] == frame[11] {
		w.t.Errorf("%q: from %x to %x", comment, frame[6:12], frame[:6])
	}
	l3, udp, body := frame[14:34], frame[34:42], frame[42:]
	end := len(body) - bth.ICRCLen
	if bth.ICRCUpdate(bth.ICRCStart(l3, udp, body[:bth.BTHLen]), body[bth.BTHLen:end]) != bth.GetICRC(body[end:]) {
		w.t.Error("a frame with a wrong ICRC")
	}
}

// TestSwitchShowsFrames turns observers of either NIC on and off between the packets of a stream. They see each packet of
// that time once in each direction, and no packet is lost.
func TestSwitchShowsFrames(t *testing.T) {
	p := New(t, Options{Seed: 1, Switch: &rocev2.Switch{}, Offload: super})
	a, b := p.RC()
	src, dst := p.A.Buffer(1<<16), p.B.Buffer(1<<16)
	counts := func(n *Node) (c [2]int) { return [2]int{int(n.Counter("rcvd_pkts")), int(n.Counter("sent_pkts"))} }
	for i := range uint64(60) {
		node := []*Node{p.A, p.B}[i/2%2]
		w, before := &watcher{t: t}, counts(node)
		if i%2 == 1 {
			node.NIC.SetObserver(w)
		}
		src.Fill(i)
		b.PostRecv(i, dst.SGE())
		a.Post(Send(i, src.SGE()))
		a.WaitSend(i)
		b.WaitRecv(i)
		if !bytes.Equal(src.B, dst.B) {
			t.Fatalf("message %d: the data differ", i)
		}
		if after := counts(node); i%2 == 1 && (w.frames[0] != after[0]-before[0] || w.frames[1] != after[1]-before[1]) {
			t.Errorf("message %d: frames %v, packets before %v, after %v", i, w.frames, before, after)
		}
		node.NIC.SetObserver(nil)
	}
	if n := p.Frames(); n > 40 {
		t.Errorf("%d frames took the link", n)
	}
	if n := p.A.Counter("retransmitted_packets") + p.A.Counter("rcvd_seq_err"); n != 0 {
		t.Errorf("%d packets retransmitted", n)
	}
}

// TestSwitchShowsPartsOfAStream turns an observer on and off between two polls of a transmission. It sees each packet of
// its time, in both directions.
func TestSwitchShowsPartsOfAStream(t *testing.T) {
	shown := [2]int{}
	for _, o := range []Options{{}, {Remote: true}, {Offload: link.Offload{MaxSegments: 2, MaxBytes: 1 << 15}}} {
		o.Seed, o.Switch = 2, &rocev2.Switch{}
		p := New(t, o)
		a, _ := p.RC()
		src, dst := p.A.Buffer(1<<20), p.B.Buffer(1<<20)
		src.Fill(7)
		p.RunIdle()
		a.Post(Write(1, dst.At(0), src.SGE()))
		for i := range 600 {
			node, sender := []*Node{p.A, p.B}[i/4%2], []*Node{p.A, p.B}[i%2]
			w := &watcher{t: t}
			if i%3 > 0 {
				node.NIC.SetObserver(w)
			}
			rcvd, sent := node.Counter("rcvd_pkts"), node.Counter("sent_pkts")
			if f := sender.NIC.PollTransmit(p.Now()); f != nil && !f.Forwarded {
				p.send(sender, f)
			}
			rcvd, sent = node.Counter("rcvd_pkts")-rcvd, node.Counter("sent_pkts")-sent
			if i%3 > 0 && (w.frames[link.Rx] != int(rcvd) || w.frames[link.Tx] != int(sent)) {
				t.Errorf("poll %d: frames %v, %d packets received, %d sent", i, w.frames, rcvd, sent)
			}
			shown[0] += w.frames[0]
			shown[1] += w.frames[1]
			node.NIC.SetObserver(nil)
		}
		a.WaitSend(1)
		if !bytes.Equal(src.B, dst.B) || p.A.Counter("retransmitted_packets")+p.B.Counter("rx_dropped_out_of_order") != 0 {
			t.Error("a packet was lost, or the data differ")
		}
	}
	if shown[0] < 100 || shown[1] < 100 {
		t.Errorf("the observers saw %v frames only", shown)
	}
}

// TestSwitchFaults checks that the port gets the frames while one of the NICs has fault rules.
func TestSwitchFaults(t *testing.T) {
	for _, rules := range []string{"sender", "receiver"} {
		p := New(t, Options{Seed: 1, Switch: &rocev2.Switch{}})
		a, _ := p.RC()
		src, dst := p.A.Buffer(1<<16), p.B.Buffer(1<<16)
		node := map[string]*Node{"sender": p.A, "receiver": p.B}[rules]
		node.NIC.SetOffload(link.Offload{Faults: true})
		p.SetHook(OnlyRoCE(Drop(0.1)))
		a.Post(Write(1, dst.At(0), src.SGE()))
		a.WaitSend(1)
		if p.Frames() < 64 || p.A.Counter("retransmitted_packets") == 0 {
			t.Errorf("rules of the %s: %d frames, nothing lost", rules, p.Frames())
		}
		before := p.Frames()
		node.NIC.SetOffload(link.Offload{})
		a.Post(Write(2, dst.At(0), src.SGE()))
		a.WaitSend(2)
		if p.Frames() != before {
			t.Error("frames take the link without rules")
		}
	}
}

// TestSwitchMembers checks that addresses are unique, and that NICs that leave or move use their link.
func TestSwitchMembers(t *testing.T) {
	sw := &rocev2.Switch{}
	p := New(t, Options{Seed: 1, Switch: sw})
	if err := sw.Join(p.A.NIC, nil); !errors.Is(err, rocev2.ErrSwitchAddr) {
		t.Errorf("joined twice: %v", err)
	}
	a, _ := p.RC()
	src, dst := p.A.Buffer(4096), p.B.Buffer(4096)
	write := func() int {
		before := p.Frames()
		a.Post(Write(1, dst.At(0), src.SGE()))
		a.WaitSend(1)
		return p.Frames() - before
	}
	p.Run(1e6)
	if n := write(); n != 0 {
		t.Errorf("%d frames took the link", n)
	}
	addrs := []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("10.0.0.3/24")}
	if err := p.B.NIC.SetAddrs(p.Now(), slices.Clone(addrs), nil); err != nil {
		t.Fatal(err)
	}
	if n := write(); n > 4 { // announcements only
		t.Errorf("%d frames took the link after another address was added", n)
	}
	p.B.NIC.LeaveSwitch()
	if n := write(); n < 5 {
		t.Errorf("%d frames took the link after the peer had left", n)
	}
	if err := sw.Join(p.B.NIC, nil); err != nil {
		t.Fatal(err)
	}
	if n := write(); n != 0 {
		t.Errorf("%d frames took the link after the peer had joined again", n)
	}
}

// TestSwitchAllocatesNothing exchanges messages in both directions.
func TestSwitchAllocatesNothing(t *testing.T) {
	p := New(t, Options{Seed: 1, Switch: &rocev2.Switch{}})
	a, _ := p.RC()
	src, dst := p.A.Buffer(1<<16), p.B.Buffer(1<<16)
	w := Write(1, dst.At(0), src.SGE())
	w.Flags = 0
	send := func() {
		a.Post(w)
		for range 100 {
			for _, n := range []*Node{p.A, p.B} {
				for f := n.NIC.PollTransmit(p.Now()); f != nil; f = n.NIC.PollTransmit(p.Now()) {
					if !f.Forwarded {
						p.send(n, f)
					}
				}
			}
		}
	}
	p.RunIdle()
	if n := testing.AllocsPerRun(100, send); n > 1 { // the copy of the request in the queue
		t.Errorf("%v allocations per message of 64 packets", n)
	}
}
