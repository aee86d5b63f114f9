package nictest

import (
	"bytes"
	"fmt"
	"testing"

	"roced.io/roced/internal/base/mapped"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// spy is memory that NICs must copy. It keeps the slices of all accesses.
type spy struct {
	*RemoteMemory
	read, written [][]byte
}

func (s *spy) Read(off uint64, p []byte) bool {
	s.read = append(s.read, p)
	return s.RemoteMemory.Read(off, p)
}

func (s *spy) Write(off uint64, p []byte) bool {
	s.written = append(s.written, p)
	return s.RemoteMemory.Write(off, p)
}

// spied returns a buffer of a node, whose memory is a spy if far is set.
func (n *Node) spied(size int, far bool) (*Buffer, *spy) {
	b := n.Buffer(size)
	if !far {
		return b, nil
	}
	s := &spy{RemoteMemory: &RemoteMemory{Bytes: rocev2.NewBytes(b.B)}}
	var err error
	b.MR, err = n.NIC.RegMR(n.PD, rocev2.MRAttr{VA: b.VA, Length: uint64(size), Access: AllAccess, Mem: s})
	n.pair.check(err)
	return b, s
}

// TestSwitchCopies counts the copies of 64 KiB: one if one of the memories can be mapped, two otherwise.
func TestSwitchCopies(t *testing.T) {
	const size = 1 << 16
	lies := func(what string, in, p []byte) {
		t.Helper()
		if _, ok := mapped.Within(in, p); !ok || len(p) != size {
			t.Errorf("%s: %d bytes at another place", what, len(p))
		}
	}
	for _, far := range [][2]bool{{true, false}, {false, true}, {true, true}} {
		for _, op := range []string{"WRITE", "SEND", "READ"} {
			name := fmt.Sprintf("%s, remote %v", op, far)
			p := New(t, Options{Seed: 1, Switch: &rocev2.Switch{}})
			a, b := p.RC(func(q *QPOptions) { q.MTU = 5 })
			from, to := p.A, p.B
			if op == "READ" {
				from, to = p.B, p.A
			}
			src, in := from.spied(size, far[0])
			dst, out := to.spied(size, far[1])
			src.Fill(1)
			switch op {
			case "WRITE":
				a.Post(Write(1, dst.At(0), src.SGE()))
			case "SEND":
				b.PostRecv(1, dst.SGE())
				a.Post(Send(1, src.SGE()))
			case "READ":
				a.Post(Read(1, src.At(0), dst.SGE()))
			}
			a.WaitSend(1)
			if !bytes.Equal(src.B, dst.B) {
				t.Fatalf("%s: the data differ", name)
			}
			if in != nil && (len(in.read) != 2 || len(in.read[0]) != 1) { // a byte to find memory that has gone
				t.Fatalf("%s: %d reads", name, len(in.read))
			}
			if out != nil && len(out.written) != 1 {
				t.Fatalf("%s: %d writes", name, len(out.written))
			}
			switch far {
			case [2]bool{true, false}:
				lies(name, dst.B, in.read[1])
			case [2]bool{false, true}:
				lies(name, src.B, out.written[0])
			default:
				lies(name, in.read[1], out.written[0])
			}
		}
	}
}

// TestSwitchReadsOnce sends long messages of several queue pairs from remote memory: the receiver reads no byte twice, and
// 64 KiB at a time.
func TestSwitchReadsOnce(t *testing.T) {
	const size, qps = 1 << 20, 4
	p := New(t, Options{Seed: 1, Switch: &rocev2.Switch{}})
	src, in := p.A.spied(size, true)
	dst := p.B.Buffer(size)
	src.Fill(1)
	var senders []*QP
	for range qps {
		a, _ := p.RC(func(q *QPOptions) { q.MTU = 5 })
		senders = append(senders, a)
	}
	for _, a := range senders {
		a.Post(Write(1, dst.At(0), src.SGE()))
	}
	for _, a := range senders {
		a.WaitSend(1)
	}
	total, probes := 0, 0
	for _, r := range in.read {
		if len(r) == 1 {
			probes++
		} else {
			total += len(r)
		}
	}
	if total != size*qps || probes != size*qps/maxBurst {
		t.Errorf("%d bytes read in %d trains", total, probes)
	}
}

// TestSwitchLeavesNothingInFlight looks between two polls of a long message: all packets sent are in the receiver's memory,
// so either memory may go.
func TestSwitchLeavesNothingInFlight(t *testing.T) {
	const size, mtu = 1 << 20, 4096
	for _, far := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		p := New(t, Options{Seed: 1, Switch: &rocev2.Switch{}})
		a, _ := p.RC(func(q *QPOptions) { q.MTU = 5 })
		src, _ := p.A.spied(size, far[0])
		dst, _ := p.B.spied(size, far[1])
		src.Fill(1)
		p.RunIdle()
		before := p.A.Counter("sent_pkts")
		a.Post(Write(1, dst.At(0), src.SGE()))
		polls := 0
		for n := 0; n < size && polls < size; polls++ {
			p.A.NIC.PollTransmit(p.Now())
			n = int(p.A.Counter("sent_pkts")-before) * mtu
			if !bytes.Equal(src.B[:n], dst.B[:n]) {
				t.Fatalf("remote %v: after %d packets, the data differ", far, n/mtu)
			}
			p.B.NIC.PollTransmit(p.Now())
		}
		if polls < size/maxBurst {
			t.Errorf("remote %v: %d polls only", far, polls)
		}
	}
}

// TestSwitchSenderChangesMemory changes the memory of a long message while it is sent. The receiver gets the old bytes of
// what was sent before, and the new ones of the rest. The message succeeds.
func TestSwitchSenderChangesMemory(t *testing.T) {
	const size, mtu = 1 << 20, 4096
	for _, far := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
		p := New(t, Options{Seed: 1, Switch: &rocev2.Switch{}})
		a, b := p.RC(func(q *QPOptions) { q.MTU = 5 })
		src, _ := p.A.spied(size, far[0])
		dst, _ := p.B.spied(size, far[1])
		b.PostRecv(1, dst.SGE())
		src.Fill(1)
		old := bytes.Clone(src.B)
		p.RunIdle()
		before := p.A.Counter("sent_pkts")
		a.Post(Send(1, src.SGE()))
		p.A.NIC.PollTransmit(p.Now())
		sent := int(p.A.Counter("sent_pkts")-before) * mtu
		src.Fill(2)
		a.WaitSend(1)
		b.WaitRecv(1)
		if sent == 0 || sent >= size || !bytes.Equal(dst.B[:sent], old[:sent]) || !bytes.Equal(dst.B[sent:], src.B[sent:]) {
			t.Errorf("remote %v: after %d bytes, the data differ", far, sent)
		}
	}
}

// maxBurst is the most that a poll sends, as in package rocev2.
const maxBurst = 1 << 16

// TestSwitchMemories exchanges messages of random lengths between random pieces of memories of all kinds.
func TestSwitchMemories(t *testing.T) {
	for _, profile := range []string{"rc", "irn", "mp-rdma"} {
		p := New(t, Options{Seed: 4, Switch: &rocev2.Switch{}})
		a, b := p.RC(func(q *QPOptions) { q.MTU, q.Profile = 5, profile })
		const size = 1 << 17
		var bufs [2][3]*Buffer
		for i, n := range p.nodes() {
			for k := range bufs[i] {
				p.o.Remote, p.o.Deferred = k == 1, k == 2
				bufs[i][k] = n.Buffer(size)
			}
		}
		// pieces returns a list of n bytes of the memories of node i, without overlaps.
		pieces := func(i, n int) (list []qp.SGE, views [][]byte) {
			for k, left := p.RNG.Perm(3), n; left > 0; k = k[1:] {
				m := left
				if len(k) > 1 {
					m = min(left, 1+p.RNG.IntN(left))
				}
				off := p.RNG.IntN(size - m + 1)
				buf := bufs[i][k[0]]
				list, views = append(list, buf.Part(off, m)), append(views, buf.B[off:off+m])
				left -= m
			}
			return list, views
		}
		for id := range uint64(60) {
			n := 1 + p.RNG.IntN([]int{100, 5000, 20000, 1 << 16}[p.RNG.IntN(4)])
			list, src := pieces(0, n)
			for k := range bufs[0] {
				bufs[0][k].Fill(6*id + uint64(k))
				bufs[1][k].Fill(6*id + uint64(k) + 3)
			}
			into, dst := pieces(1, n)
			var want [3][]byte
			for k := range want {
				want[k] = bytes.Clone(bufs[1][k].B)
			}
			far := bufs[1][p.RNG.IntN(3)]
			off := p.RNG.IntN(size - n + 1)
			data := bytes.Join(src, nil)
			switch id % 3 {
			case 0:
				b.PostRecv(id, into...)
				a.Post(Send(id, list...))
				b.WaitRecv(id)
			case 1:
				dst = [][]byte{far.B[off : off+n]}
				a.Post(Write(id, far.At(off), list...))
			case 2:
				data, dst = bytes.Clone(far.B[off:off+n]), src
				a.Post(Read(id, far.At(off), list...))
			}
			a.WaitSend(id)
			if !bytes.Equal(bytes.Join(dst, nil), data) {
				t.Fatalf("%s, message %d of %d bytes: the data differ", profile, id, n)
			}
			changed := 0
			for k := range want {
				for i, v := range bufs[1][k].B {
					if v != want[k][i] {
						changed++
					}
				}
			}
			if changed > n || id%3 == 2 && changed > 0 {
				t.Fatalf("%s, message %d of %d bytes: %d bytes changed", profile, id, n, changed)
			}
		}
	}
}
