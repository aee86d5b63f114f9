package rocev2

import (
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// tardy answers the first transmission of every third packet with Later.
type tardy struct {
	script
	waits bool // answer all packets with Later
	seen  map[bth.PSN]bool
}

func (s *tardy) Receive(now mono.Time, p *bth.Packet, m qp.RxMeta) qp.Drop {
	if s.waits || p.PSN.Uint32()%3 == 0 && !s.seen[p.PSN] {
		s.seen[p.PSN] = true
		return qp.Later
	}
	return s.script.Receive(now, p, m)
}

// tardyPair returns a queue pair of B with a tardy machine, and the frames of packets to it.
func tardyPair(t *testing.T, packets int) (*NIC, *QueuePair, *tardy, [][]byte) {
	t.Helper()
	a, b := nicA(t), newNIC(t, testConfig(macB, "10.0.0.2/24"))
	out := newScript(write(0x22, 100, packets*256, 256)...)
	qa := plug(t, a, 0x11, qp.RC, out)
	connect(t, a, qa, 0, "10.0.0.2", &macB)
	a.sch.activate(qa)
	s := &tardy{seen: map[bth.PSN]bool{}}
	s.keep, s.deadline = true, mono.Never
	qb := plug(t, b, 0x22, qp.RC, s)
	connect(t, b, qb, 0, "10.0.0.1", &macA)
	return b, qb, s, split(transmit(a, 0))
}

// TestPacketsWaitForMemory: the NIC keeps packets for memory that is not yet available, unchanged and in order. It
// delivers each again until the queue pair accepts it.
func TestPacketsWaitForMemory(t *testing.T) {
	const packets = 40
	n, q, s, frames := tardyPair(t, packets)
	for _, f := range frames {
		n.Receive(0, f, 0)
		clear(f)
	}
	for i := 0; q.pending != nil; i++ {
		if s.resumed != i || i > packets {
			t.Fatalf("resumed %d times, not %d", s.resumed, i)
		}
		n.resume(0, q)
	}
	if len(s.got) != packets || n.rx.pending != 0 || n.ctr.RxDropped() != 0 {
		t.Fatalf("%d of %d packets, %d still pending, %d dropped", len(s.got), packets, n.rx.pending, n.ctr.RxDropped())
	}
	want := payload(packets*256, 100)
	for i, p := range s.got {
		if p.PSN != bth.MakePSN(uint32(100+i)) || string(p.Payload) != string(want[i*256:(i+1)*256]) {
			t.Fatalf("packet %d has PSN %v or other data", i, p.PSN)
		}
	}
}

// TestWaitingPacketsAreBounded: the number of waiting packets is bounded, and they are freed with their queue pair.
func TestWaitingPacketsAreBounded(t *testing.T) {
	n, q, s, frames := tardyPair(t, 2*maxPendingQP)
	s.waits = true
	for _, f := range frames {
		n.Receive(0, f, 0)
	}
	if len(q.pending) != maxPendingQP || counter(t, n, "rx_dropped_no_room") != maxPendingQP {
		t.Errorf("%d pending, %d dropped", len(q.pending), counter(t, n, "rx_dropped_no_room"))
	}
	n.unschedule(q)
	if q.pending != nil || n.rx.pending != 0 {
		t.Errorf("%d are left behind", n.rx.pending)
	}
}
