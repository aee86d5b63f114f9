package rocev2

import (
	"encoding/binary"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// TestSharedModel applies answers, changes of the interface and traffic to a shared NIC in random order. Every frame
// goes to the latest station, from the MAC of the interface. The count of held frames is right.
func TestSharedModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newSharedModel(t)
		r.Repeat(map[string]func(*rapid.T){
			"send": m.send, "datagram": m.datagram, "answer": m.answer, "unreachable": m.unreachable,
			"interface": m.changeInterface, "link": m.link, "time": m.pass, "": m.check,
		})
	})
}

// sharedModel is a NIC with a queue pair for each of a few destinations, and their latest answers.
type sharedModel struct {
	n       *NIC
	now     mono.Time
	mac     inet.MAC
	up      bool
	scripts []*script
	qps     []*QueuePair
	way     map[inet.GID]inet.MAC // latest answers
}

// modelPeers is small, so that answers for each destination change often.
const modelPeers = 3

func modelPeer(t *rapid.T) int { return rapid.IntRange(0, modelPeers-1).Draw(t, "peer") }

func modelMAC(t *rapid.T) inet.MAC { return inet.MAC{2, 0, 0, 0, 1, rapid.Byte().Draw(t, "mac")} }

func modelDst(i int) inet.GID { return gid(fmt.Sprintf("10.0.0.%d", i+2)) }

func newSharedModel(t *testing.T) *sharedModel {
	m := &sharedModel{n: newNIC(t, sharedConfig()), now: 1, mac: macA, up: true, way: map[inet.GID]inet.MAC{}}
	for i := range modelPeers {
		s := newScript()
		q := plug(t, m.n, bth.QPN(0x11+i), qp.RC, s)
		connect(t, m.n, q, 0, modelDst(i).Addr().String(), nil)
		m.scripts, m.qps = append(m.scripts, s), append(m.qps, q)
	}
	return m
}

// send makes a connection send a packet.
func (m *sharedModel) send(t *rapid.T) {
	i := modelPeer(t)
	s := m.scripts[i]
	s.out = append(s.out, sends(7, uint32(len(s.out)), 10)...)
	m.n.sch.activate(m.qps[i])
}

// datagram sends a datagram that waits for its neighbour in the NIC.
func (m *sharedModel) datagram(t *rapid.T) {
	nb := m.n.net.Neighbour(stack.Address{Addr: modelDst(modelPeer(t))})
	if nb.State == stack.Incomplete {
		b := append([]byte(nil), m.qps[0].path.Headers()...)
		a := nb.Addr
		copy(b[inet.EthernetLen+16:], a[12:])
		m.n.net.Hold(nb, &link.Frame{Bufs: [][]byte{b}, Len: len(b)})
	}
}

func (m *sharedModel) answer(t *rapid.T) {
	dst, mac := modelDst(modelPeer(t)), modelMAC(t)
	m.way[dst] = mac
	m.n.Resolved(m.now, dst, mac)
}

func (m *sharedModel) unreachable(t *rapid.T) {
	dst := modelDst(modelPeer(t))
	delete(m.way, dst)
	m.n.Unreachable(m.now, dst)
}

func (m *sharedModel) changeInterface(t *rapid.T) {
	m.mac = modelMAC(t)
	m.mac[4] = 2
	i := Interface{MAC: m.mac, Routes: m.n.cfg.Routes}
	if rapid.Bool().Draw(t, "addresses") {
		i.Addrs = prefixes("10.0.0.1/24", "fd00::1/64")
	}
	if err := m.n.SetInterface(&i); err != nil {
		t.Fatal(err)
	}
}

func (m *sharedModel) link(t *rapid.T) {
	m.up = rapid.Bool().Draw(t, "up")
	if err := m.n.SetLink(m.now, m.up, 0); err != nil {
		t.Fatal(err)
	}
}

func (m *sharedModel) pass(t *rapid.T) {
	m.now = m.now.Add(mono.Time(rapid.Int64Range(0, 3e9).Draw(t, "ns")).Sub(0))
	m.n.Advance(m.now)
	for q, ok := m.n.PollQuery(); ok; q, ok = m.n.PollQuery() {
		if m.n.net.Neighbour(stack.Address{Addr: q.Dst}) == nil {
			t.Fatalf("asks for %v, where nobody sends to", q.Dst.Addr())
		}
	}
}

// check verifies all frames that the NIC sends now.
func (m *sharedModel) check(t *rapid.T) {
	for _, w := range transmit(m.n, m.now) {
		dst, src := inet.MAC(w.b), inet.MAC(w.b[6:])
		to := gid4(w.b[inet.EthernetLen+16:])
		if want, ok := m.way[to]; !ok || dst != want {
			t.Fatalf("a frame to %v goes to %v, want %v (%v)", to.Addr(), dst, want, ok)
		}
		if src != m.mac {
			t.Fatalf("a frame comes from %v, want %v", src, m.mac)
		}
		if binary.BigEndian.Uint16(w.b[12:]) != inet.TypeIPv4 {
			t.Fatalf("not IPv4: %x", w.b)
		}
		if !m.up {
			t.Fatal("a frame while the link is down")
		}
	}
	held := 0
	for _, nb := range m.n.net.Neighbours() {
		held += nb.Held()
		if nb.Usable() && nb.Held() > 0 {
			t.Fatalf("%v is known and frames wait for it", nb.Addr.Addr())
		}
	}
	if held != m.n.net.Held() {
		t.Fatalf("%d frames held, counted as %d", held, m.n.net.Held())
	}
}
