package engine

import (
	"testing"
	"time"

	"roced.io/roced/internal/lab/porttest"
)

// TestFar: two engines have the ends of two flows. Queue pairs find each other by their names, each end has its counters, and the sender
// of a READ keeps the rate.
func TestFar(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	c := twoPorts(b, 2)
	var ends [2]*engine
	for i := range 2 {
		own := c
		own.Ports, own.Interfaces, own.Peers = c.Ports[i:i+1], c.Interfaces[i:i+1], c.Peers[i:i+1]
		own.Ports[0].Speed = 100e6
		for k := range own.Peers[0].QueuePairs {
			q := &own.Peers[0].QueuePairs[k]
			q.Elsewhere, q.Remote = true, c.Peers[1-i].QueuePairs[1-k].Name // not in the order of the configuration
		}
		verbs := []Verb{Write, Read}
		for k, name := range []string{"w", "r"} {
			f := Flow{Name: name, Port: "p0", QueuePair: c.Peers[0].QueuePairs[k].Name, Verb: verbs[k], Size: 100_000, LineRate: 0.5, Group: k}
			if i == 1 {
				f.Port, f.QueuePair, f.Far = "", c.Peers[1].QueuePairs[1-k].Name, true
			}
			own.Flows = append(own.Flows, f)
		}
		ends[i] = start(t, own)
	}
	for _, e := range []*engine{ends[1], ends[0]} {
		must(t, e.Protocols(nil, Accept))
	}
	must(t, ends[0].Protocols(nil, Connect))
	await(t, ends[0], "queue pairs are up", func() bool { return ends[0].PeerMetrics()[0].Up == 2 && ends[1].PeerMetrics()[0].Up == 2 })
	began := time.Now()
	must(t, ends[1].Traffic(nil, Start))
	must(t, ends[0].Traffic(nil, Start))
	const messages = 12
	await(t, ends[0], "messages of READ", func() bool { return ends[0].FlowMetrics()[1].MessagesComplete >= messages })
	if d, least := time.Since(began), messages*100_000*8*time.Second/50_000_000*3/4; d < least {
		t.Errorf("%d messages took %s, at least %s", messages, d, least)
	}
	await(t, ends[0], "messages of WRITE", func() bool { return ends[0].FlowMetrics()[0].MessagesComplete >= messages })
	for _, e := range ends {
		must(t, e.Traffic(nil, Stop))
	}
	var own, far []FlowMetric
	await(t, ends[0], "counters of both ends agree", func() bool {
		own, far = ends[0].FlowMetrics(), ends[1].FlowMetrics()
		return own[0].FramesTx == far[0].FramesRx && own[1].FramesRx == far[1].FramesTx
	})
	for k, want := range []uint32{3, 2} {
		if m := own[k]; m.DestQP != want || !m.Own || m.Remote || m.MessagesFailed != 0 || far[k].DestQP != want || far[k].Own || !far[k].Remote {
			t.Errorf("%+v, %+v", m, far[k])
		}
	}
	if own[0].ACKRx == 0 || far[0].ACKTx != own[0].ACKRx || own[0].FramesRx != 0 || far[1].FramesTx < 12*97 {
		t.Errorf("%+v, %+v", own, far)
	}
}
