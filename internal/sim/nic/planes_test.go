package nic

import (
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// planeLab has NICs with 4 ports of 100 Gb/s, each in a plane of its own. Two NICs send to each other without end.
type planeLab struct {
	*lab
	x, y     *QP
	data     [4]int         // packets of WRITEs that have entered the links of hosts, by plane
	last     [4]engine.Time // of these
	probes   [4]int
	statuses int
	done     int
	failed   int
}

const planeMessage = 1 << 20

func newPlaneLab(t *testing.T, paths map[string]float64) *planeLab {
	g := fabric.Planes(fabric.Star(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 3), 4)
	l := &planeLab{lab: &lab{t: t}}
	var err error
	l.k, err = NewCluster(&l.eng, Config{MTU: 1000, Planes: 4, Network: func(o fabric.Owner) (*fabric.Network, error) {
		return fabric.New(&l.eng, fabric.Config{Graph: g, Owner: o, Switch: func(int, int) fabric.SwitchConfig { return labSwitch }})
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l.maker = append(l.maker, profile.NewMaker(profile.Link{Rate: 400e9, RTT: 10_000, RTO: 320_000}))
	}
	all := map[string]float64{"planes": 4, "ev_count": 32, "ev_active": 32, "ev_probe_interval_us": 50}
	for name, v := range paths {
		all[name] = v
	}
	spec := profile.Spec{Recovery: profile.Part{Name: "mrc", Params: map[string]float64{"loss_packets": 200}},
		Paths:      profile.Part{Name: "mrc", Params: all},
		Congestion: profile.Part{Name: "static", Params: map[string]float64{"window_bytes": 250_000}}}
	l.x, l.y, err = l.k.Connect(0, 1, QPConfig{Profile: l.profiles("mrc", spec), User: l, MaxUnacked: 2000})
	if err != nil {
		t.Fatal(err)
	}
	links := l.k.Network().Links()
	for i := range links {
		if strings.HasPrefix(links[i].Name, "h") {
			links[i].Tap = l
		}
	}
	for range 4 {
		l.post(l.x)
		l.post(l.y)
	}
	return l
}

func (l *planeLab) post(q *QP) { q.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: planeMessage}) }

// Completed implements User.
func (l *planeLab) Completed(_ engine.Time, q *QP, c qp.CQE, _ bool) {
	if c.Status != qp.StatusSuccess {
		l.failed++
		return
	}
	l.done++
	l.post(q)
}

// Sent implements fabric.Tap.
func (l *planeLab) Sent(now engine.Time, _ *fabric.Link, d *fabric.Packet) {
	plane := int(d.Src) / 3
	switch p, _, _ := l.k.Packet(d); {
	case p.Opcode.IsWrite():
		l.data[plane]++
		l.last[plane] = now
	case p.Opcode == bth.OpcodeMRCEndpointRequest && p.ERTH.Op == bth.MRCEVProbe:
		l.probes[plane]++
	case p.Opcode == bth.OpcodeMRCEndpointRequest:
		l.statuses++
	}
}

// run runs for a time. It returns the goodput of both directions in Gb/s and the packets by plane.
func (l *planeLab) run(d engine.Time) (gbps float64, planes [4]int) {
	done, data := l.k.Placed(), l.data
	l.eng.Run(l.eng.Now() + d)
	for i := range planes {
		planes[i] = l.data[i] - data[i]
	}
	return float64(l.k.Placed()-done) * 8e3 / float64(d), planes
}

// link returns the link between a NIC and the switch of a plane.
func (l *planeLab) link(host, plane int) *fabric.Link {
	return l.k.nics[host].ports[plane].link
}

// TestPlanes: a NIC spreads its packets over its ports. A port that fails removes its plane in both directions as soon as the peer
// can know, without a timeout. The plane comes back when the port does.
func TestPlanes(t *testing.T) {
	l := newPlaneLab(t, nil)
	l.run(100 * engine.Microsecond)
	whole, planes := l.run(engine.Millisecond)
	for i, n := range planes {
		if n < 20_000 || n > 27_000 {
			t.Errorf("%d packets on plane %d", n, i)
		}
	}
	const oneWay = 4 * engine.Microsecond // with queues at the NIC
	failed := l.eng.Now()
	l.link(0, 1).Fail(true)
	l.run(oneWay)
	gbps, planes := l.run(engine.Millisecond)
	t.Logf("%.0f Gb/s, %.0f without plane 1, which was last used %d ns after the failure; %d port status", whole, gbps,
		(l.last[1]-failed)/engine.Nanosecond, l.statuses)
	if planes[1] != 0 || l.last[1]-failed > oneWay || l.statuses != 1 {
		t.Errorf("%d packets on the plane, the last one %d ns after the failure; %d port status", planes[1], (l.last[1]-failed)/engine.Nanosecond, l.statuses)
	}
	if gbps < whole*0.7 || gbps > whole*0.8 {
		t.Errorf("%.0f Gb/s of %.0f", gbps, whole)
	}
	if l.probes[1] == 0 {
		t.Error("no probes on the plane that failed")
	}
	l.link(0, 1).Fail(false)
	l.run(engine.Millisecond)
	if gbps, planes = l.run(engine.Millisecond); planes[1] < 20_000 || gbps < whole*0.95 {
		t.Errorf("healed: %d packets on the plane, %.0f Gb/s of %.0f", planes[1], gbps, whole)
	}
	if c := l.k.Counters(); l.failed > 0 || c.LocalAckTimeoutErr > 0 || c.RetransmittedPackets > 2000 {
		t.Errorf("%d failures, %d timeouts, %d retransmissions", l.failed, c.LocalAckTimeoutErr, c.RetransmittedPackets)
	}
}

// TestPlanesLost: losses exclude a plane whose ports stay up. NICs that have one plane left go on.
func TestPlanesLost(t *testing.T) {
	l := newPlaneLab(t, nil)
	whole, _ := l.run(engine.Millisecond)
	for _, far := range []int{1, 2} {
		l.link(0, far).Lose(1)
		l.link(0, far).Reverse.Lose(1)
	}
	l.run(200 * engine.Microsecond)
	gbps, planes := l.run(engine.Millisecond)
	if planes[1]+planes[2] > 0 || gbps < whole*0.45 {
		t.Errorf("packets by plane %v, %.0f Gb/s of %.0f", planes, gbps, whole)
	}
	l.link(1, 3).Fail(true)
	l.run(200 * engine.Microsecond)
	if gbps, planes = l.run(engine.Millisecond); planes[3] > 0 || gbps < whole*0.2 {
		t.Errorf("one plane left: packets by plane %v, %.0f Gb/s of %.0f", planes, gbps, whole)
	}
	if l.failed > 0 {
		t.Errorf("%d failures", l.failed)
	}
}

// TestPortStatusRepeated: a port status is repeated until it is answered, but not for ever. Other hosts' answers do not count.
func TestPortStatusRepeated(t *testing.T) {
	for _, c := range []struct {
		silent engine.Time
		want   int
	}{{0, 1}, {2500 * engine.Microsecond, 4}, {50 * engine.Millisecond, 8}} {
		l := newPlaneLab(t, nil)
		l.run(100 * engine.Microsecond)
		all := func(p float64) {
			for i := range 4 {
				l.link(1, i).Lose(p)
			}
		}
		if c.silent > 0 {
			all(1)
		}
		l.link(0, 1).Fail(true)
		l.run(c.silent)
		all(0)
		l.run(20 * engine.Millisecond)
		if l.statuses != c.want {
			t.Errorf("silent for %d us: the status is sent %d times, want %d", c.silent/engine.Microsecond, l.statuses, c.want)
		}
		if l.failed > 0 {
			t.Errorf("%d failures", l.failed)
		}
	}
}

// TestPlaneDownBefore: a queue pair that connects while a port is down does not use its plane.
func TestPlaneDownBefore(t *testing.T) {
	l := newPlaneLab(t, nil)
	l.link(0, 2).Fail(true)
	l.x.Close()
	l.y.Close()
	l.run(100 * engine.Microsecond)
	before, statuses := l.data[2], l.statuses
	x, _, err := l.k.Connect(0, 2, QPConfig{Profile: l.profiles("mrc", profile.Spec{Paths: profile.Part{Name: "mrc", Params: map[string]float64{"planes": 4}}}), User: l})
	if err != nil {
		t.Fatal(err)
	}
	l.post(x)
	if _, planes := l.run(engine.Millisecond); planes[2] > 0 || planes[0] == 0 {
		t.Errorf("packets by plane %v, %d before", planes, before)
	}
	if l.statuses == statuses {
		t.Error("the peer has not been told")
	}
}
