package qp_test

import (
	"testing"

	"roced/bth"
	"roced/qp"
	"roced/qp/qptest"
)

// TestAckBeforeReply: the acknowledgement of a message that has completed a receive
// leaves before requests that have been posted since, that of a WRITE behind them.
func TestAckBeforeReply(t *testing.T) {
	for _, c := range []struct {
		op       qp.WROpcode
		ackFirst bool
	}{{qp.WRSend, true}, {qp.WRWriteImm, true}, {qp.WRWrite, false}} {
		m := newMessages(t, qptest.Options{Type: qp.RC}, 1)
		a, b := m.p.Nodes[0].Q, m.p.Nodes[1].Q
		m.send(0, 8, c.op)
		var tx qp.Transmit
		if !a.PollTransmit(1, &tx) {
			t.Fatalf("%v: nothing is sent", c.op)
		}
		if drop := b.Receive(1, &tx.Packet, qp.RxMeta{}); drop != 0 {
			t.Fatalf("%v: dropped, %v", c.op, drop)
		}
		m.p.Nodes[1].Send(qp.SendWQE{Opcode: qp.WRWrite, RKey: rkey, SGEs: []qp.SGE{{Length: 8, LKey: lkey}}})
		var got [2]bool
		for i := range got {
			if !b.PollTransmit(1, &tx) {
				t.Fatalf("%v: packet %d is missing", c.op, i)
			}
			got[i] = tx.Packet.Opcode == bth.TransportRC|bth.OpAcknowledge
		}
		if got[0] != c.ackFirst || got[0] == got[1] {
			t.Errorf("%v: acknowledgements %v", c.op, got)
		}
	}
}
