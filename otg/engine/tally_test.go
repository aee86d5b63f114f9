package engine

import (
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/plugin/mono"
)

// TestRestart: packets that were in flight at a restart do not count at the receiver, and those behind them do, out of order too.
func TestRestart(t *testing.T) {
	sender, receiver := &tally{}, &tally{}
	packet := func(psn uint32) roceInfo {
		return roceInfo{op: bth.OpSendOnly, psn: bth.MakePSN(psn), size: 100}
	}
	first := uint32(1<<24 - 5)
	sender.next, receiver.next = bth.MakePSN(first), bth.MakePSN(first)
	for n := range uint32(10) {
		sender.add(1, packet((first+n)&0xffffff), true)
	}
	sender.restart(nil)
	receiver.restart(sender)
	for n := range uint32(10) {
		if n != 8 {
			receiver.add(2, packet((first+n)&0xffffff), false)
		}
	}
	if receiver.frames != 0 || receiver.messages != 0 || receiver.ahead != 0 {
		t.Errorf("packets in flight count: %+v", receiver)
	}
	for _, n := range []uint32{8, 9, 11, 10} {
		receiver.add(3, packet((first+n)&0xffffff), false)
	}
	if receiver.frames != 2 || receiver.messages != 1 || receiver.ahead != 1 {
		t.Errorf("packets of the new start: %+v", receiver)
	}
}

// TestRestartWhileConnecting: a start between the end of the peer's connection and the own one does not hold back counters.
func TestRestartWhileConnecting(t *testing.T) {
	c := twoPorts(porttest.DirectBed(t, [2]bool{true, true}), 1)
	c.AutoStart = true
	e := start(t, c)
	await(t, e, "queue pairs are up", func() bool { m := e.PeerMetrics(); return m[0].Up+m[1].Up == 2 })
	must(t, e.do(func(now mono.Time) error {
		own := e.run.pairs["q0.0"]
		own.reqTx.restart(nil)
		own.remote.reqRx.restart(&own.reqTx)
		a := own.conn.QPAttr()
		err := own.ready(now, &a)
		if own.remote.reqRx.waits {
			t.Error("the receiver waits for packets of an earlier connection")
		}
		return err
	}))
}
