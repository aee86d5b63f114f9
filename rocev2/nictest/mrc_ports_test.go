package nictest

import (
	"bytes"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/rocev2"
)

// portLab is a pair of NICs with 4 ports and several connections. It counts packets by the sending node and by plane.
type portLab struct {
	*Pair
	qps      [2][]*QP
	bufs     [2]*Buffer
	writes   map[*Node]*[4]int
	statuses map[*Node]int
	dead     int // plane that loses all packets, -1: none
	ignored  int // port statuses to lose
}

func newPortLab(t *testing.T, connections int) *portLab {
	l := &portLab{dead: -1, writes: map[*Node]*[4]int{}, statuses: map[*Node]int{}}
	paths := paths16(map[string]float64{"planes": 4, "ev_probe_answers": 2})
	l.Pair = New(t, Options{Seed: 3, Delay: 5 * time.Microsecond, Rate: 10e9, Busy: true, Config: func(c *rocev2.Config) {
		paths(c)
		c.Ports = 4
	}})
	l.SetHook(OnlyRoCE(l.hook))
	for i, n := range l.nodes() {
		l.bufs[i], l.writes[n] = n.Buffer(256<<10), &[4]int{}
		l.bufs[i].Fill(uint64(i))
	}
	for range connections {
		l.connect()
	}
	return l
}

// connect adds a connection.
func (l *portLab) connect() {
	a, b := l.RC(func(q *QPOptions) { q.Profile, q.Timeout = "mrc", 10 })
	l.qps[0], l.qps[1] = append(l.qps[0], a), append(l.qps[1], b)
}

func (l *portLab) hook(f *Flight) Fate {
	var p bth.Packet
	if !f.RoCE(&p) {
		return Fate{}
	}
	plane := f.port() % 4
	lost := plane == l.dead
	switch {
	case p.Opcode.IsWrite():
		l.writes[f.From][plane]++
	case p.Opcode == bth.OpcodeMRCEndpointRequest && p.ERTH.Op == bth.MRCPortStatus:
		l.statuses[f.From]++
		if l.ignored > 0 {
			l.ignored--
			lost = true
		}
	}
	return Fate{Drop: lost}
}

// write transfers the buffer on connection c from node i, and returns the number of packets in each plane.
func (l *portLab) write(i, c int) [4]int {
	q, from, to := l.qps[i][c], l.bufs[i], l.bufs[1-i]
	before := *l.writes[q.Node]
	clear(to.B)
	from.Fill(9)
	q.Post(Write(1, to.At(0), from.SGE()))
	if q.WaitSend(1); !bytes.Equal(from.B, to.B) {
		l.Fatalf("data differ")
	}
	after := *l.writes[q.Node]
	for k := range after {
		after[k] -= before[k]
	}
	return after
}

// uses checks whether all connections, in both directions, use a plane.
func (l *portLab) uses(t *testing.T, plane int, want bool) {
	t.Helper()
	for i := range l.qps {
		for c := range l.qps[i] {
			if n := l.write(i, c); n[plane] > 0 != want || n[(plane+1)%4] == 0 {
				t.Errorf("node %d, connection %d: packets in planes: %v, plane %d in use: want %v", i, c, n, plane, want)
			}
		}
	}
}

// TestMRCPorts: a NIC that loses a port leaves its plane with all queue pairs at once, and tells the peer once. The peer leaves
// the plane, too, and so do later connections on both sides. Probes return it to use.
func TestMRCPorts(t *testing.T) {
	l := newPortLab(t, 3)
	l.uses(t, 2, true)
	l.dead = 2
	l.A.NIC.SetPorts(l.Now(), 0b1011)
	lost := l.A.Counter("retransmitted_packets") + l.B.Counter("retransmitted_packets")
	l.Run(50 * time.Microsecond) // the status arrives
	l.uses(t, 2, false)
	l.connect()
	l.uses(t, 2, false)
	if n := l.A.Counter("retransmitted_packets") + l.B.Counter("retransmitted_packets"); n != lost {
		t.Errorf("%d packets were lost", n-lost)
	}
	if l.statuses[l.A] != 2 || l.statuses[l.B] != 0 {
		t.Errorf("%d statuses of A, want one and that of the new connection; %d of B", l.statuses[l.A], l.statuses[l.B])
	}
	l.A.NIC.SetPorts(l.Now(), 0b1011)
	l.Run(time.Millisecond)
	if l.statuses[l.A] != 2 {
		t.Error("a status that has not changed was sent")
	}

	l.dead = -1
	l.A.NIC.SetPorts(l.Now(), 0b1111)
	for range 20 { // probes need packets that are outstanding
		for i := range l.qps {
			for c := range l.qps[i] {
				l.write(i, c)
			}
		}
	}
	l.uses(t, 2, true)
	if l.statuses[l.A] != 3 {
		t.Errorf("%d statuses of A", l.statuses[l.A])
	}
	l.connect()
	l.uses(t, 2, true)
	if l.statuses[l.A] != 3 {
		t.Errorf("%d statuses of A: a new connection needs none if all ports are up", l.statuses[l.A])
	}
}

// TestMRCPortsRepeat: a port status that is lost is repeated until the peer answers.
func TestMRCPortsRepeat(t *testing.T) {
	l := newPortLab(t, 1)
	l.write(1, 0)
	l.dead, l.ignored = 1, 3
	l.A.NIC.SetPorts(l.Now(), 0b1101)
	l.Run(10 * time.Millisecond)
	if l.statuses[l.A] != 4 {
		t.Errorf("%d statuses, of which 3 were lost", l.statuses[l.A])
	}
	l.uses(t, 1, false)
}

// TestMRCPortsOfOne: a NIC with one port, and unknown ports, have no status.
func TestMRCPortsOfOne(t *testing.T) {
	l := newPortLab(t, 1)
	l.A.NIC.SetPorts(l.Now(), 0xff)
	single := newLab16(t, nil, false)
	single.A.NIC.SetPorts(single.Now(), 0)
	single.write(1)
	l.Run(time.Millisecond)
	if l.statuses[l.A] != 0 {
		t.Errorf("%d statuses", l.statuses[l.A])
	}
	if n := single.A.Counter("sent_pkts"); n == 0 {
		t.Error("nothing was sent")
	}
}
