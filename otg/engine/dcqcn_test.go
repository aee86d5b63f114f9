package engine

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/plugin/mono"
)

// TestDCQCN: marks lower the rate of a flow by the parameters of its port, over IPv6 too; with the least rate of the line.
func TestDCQCN(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	c := twoPorts(b, 1)
	for i := range c.Peers {
		c.Interfaces[i].Addresses[0].Prefix = netip.MustParsePrefix(fmt.Sprintf("fd00:7::%d/64", i+1))
		c.Peers[i].Destination = netip.MustParseAddr(fmt.Sprintf("fd00:7::%d", 2-i))
	}
	c.Ports[0].Speed, c.Ports[1].Speed = 1e9, 1e9
	c.Ports[0].RoCE.DCQCN = DCQCN{Enable: true, Gain: 5. / 1024, InitialAlpha: 1023. / 1024, AlphaPeriod: 21 * time.Microsecond,
		DecreasePeriod: 21 * time.Microsecond, FirstRate: 0.005, MinRate: 0.005, MaxDecrease: 0.1, IncreaseTime: time.Second,
		IncreaseBytes: 32767 << 10, IncreaseSteps: 25, AdditiveRate: 1e-5, HyperRate: 1e-5}
	c.Peers[0].QueuePairs[0].Data.ECN = 3 // CE: the receiver notifies of each packet
	c.Flows = []Flow{{Name: "f", Port: "p0", QueuePair: "q0.0", Verb: Write, Size: 10_000, LineRate: 0.5}}
	e := start(t, c)
	rate := func() (r uint64) {
		q := e.run.pairs["q0.0"]
		must(t, e.do(func(mono.Time) error {
			i, err := q.host.core.QueryQP(q.q)
			r = i.Rate
			return err
		}))
		return r
	}
	must(t, e.Traffic(nil, Start))
	await(t, e, "notifications", func() bool { return e.FlowMetrics()[0].CNPRx > 3 })
	if r := rate(); r != 5e6 {
		t.Errorf("rate %d after notifications, want 5 Mb/s, the least", r)
	}
	if m := e.FlowMetrics()[0]; m.MarkedRx != m.FramesRx || m.Source != netip.MustParseAddr("fd00:7::1") || m.Dest != netip.MustParseAddr("fd00:7::2") {
		t.Errorf("%+v", m)
	}
}
