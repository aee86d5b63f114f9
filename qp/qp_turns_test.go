package qp_test

import (
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/qp/qptest"
)

// TestAckBeforeReply: an acknowledgement leaves after requests that were posted since. It leaves before them if its
// message has woken an application.
func TestAckBeforeReply(t *testing.T) {
	for _, woken := range []bool{false, true} {
		m := newMessages(t, qptest.Options{Type: qp.RC}, 1)
		a, b := m.p.Nodes[0].Q, m.p.Nodes[1].Q
		m.send(0, 8, qp.WRSend)
		var tx qp.Transmit
		if !a.PollTransmit(1, &tx) {
			t.Fatal("nothing is sent")
		}
		if drop := b.Receive(1, &tx.Packet, qp.RxMeta{}); drop != 0 {
			t.Fatalf("dropped: %v", drop)
		}
		if woken {
			b.Woken()
		}
		for range 2 {
			m.p.Nodes[1].Send(qp.SendWQE{Opcode: qp.WRWrite, RKey: rkey, SGEs: []qp.SGE{{Length: 8, LKey: lkey}}})
		}
		var acks []int
		for i := 0; b.PollTransmit(1, &tx); i++ {
			if tx.Packet.Opcode == bth.TransportRC|bth.OpAcknowledge {
				acks = append(acks, i)
			}
		}
		if want := map[bool]int{false: 2, true: 0}[woken]; len(acks) != 1 || acks[0] != want {
			t.Errorf("woken %v: acknowledgements at %d, want %d", woken, acks, want)
		}
	}
}
