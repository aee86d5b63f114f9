package nictest

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/fault"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2"
)

// paths16 makes queue pairs of MRC with 16 entropy values, each of which has a path of its own.
func paths16(params map[string]float64) func(*rocev2.Config) {
	all := map[string]float64{"ev_count": 16, "ev_active": 16, "ev_min_active": 4, "ev_probe_interval_us": 50, "batch": 1}
	for name, v := range params {
		all[name] = v
	}
	return func(c *rocev2.Config) {
		m := profile.NewMaker(profile.Link{})
		c.NewProfile = func(string) (qp.Profile, error) {
			return m.New("mrc", profile.Spec{Paths: profile.Part{Name: "mrc", Params: all}})
		}
	}
}

// lab16 is a pair whose link has 16 paths with fault rules. It counts the packets of A by path.
type lab16 struct {
	*Pair
	a, b     *QP
	src, dst *Buffer
	eng      fault.Engine
	delays   [16]time.Duration
	writes   [16]int // packets
	probes   [16]int
	probe    uint32 // number of the last one on the wire
	lost     int
	strayed  int // SACKs and NACKs on another path than their packets
}

func newLab16(t *testing.T, params map[string]float64, v6 bool) *lab16 {
	l := &lab16{}
	l.Pair = New(t, Options{Seed: 5, Delay: 5 * time.Microsecond, Rate: 10e9, Busy: true, Config: paths16(params)})
	l.SetHook(OnlyRoCE(l.hook))
	l.a, l.b = l.RC(func(q *QPOptions) {
		q.Profile, q.Timeout = "mrc", 10
		if v6 {
			q.GID = GIDIPv6
		}
	})
	l.src, l.dst = l.A.Buffer(1<<20), l.B.Buffer(1<<20)
	l.src.Fill(1)
	return l
}

func (l *lab16) hook(f *Flight) Fate {
	var p bth.Packet
	if !f.RoCE(&p) {
		return Fate{}
	}
	if f.From != l.A {
		if p.Opcode == bth.OpcodeMRCSACK && p.SETH.Entropy&0xffff != uint32(f.port()) {
			l.strayed++
		}
		return Fate{}
	}
	k := f.port() % 16
	switch {
	case p.Opcode.IsWrite():
		l.writes[k]++
	case p.Opcode == bth.OpcodeMRCEndpointRequest && p.ERTH.Op == bth.MRCEVProbe:
		l.probes[k]++
		l.probe = p.PSN.Uint32()
	}
	v := l.eng.Process(f.At, fault.Tx, f.Frame)
	f.Frame = v.Frame
	if v.Copies == 0 {
		l.lost++
	}
	return Fate{Drop: v.Copies == 0, Delay: l.delays[k]}
}

// port returns the UDP source port of a frame.
func (f *Flight) port() int {
	body := udpPayload(f.Frame)
	udp := f.Frame[len(f.Frame)-len(body)-8:]
	return int(udp[0])<<8 | int(udp[1])
}

// rules sets the fault rules.
func (l *lab16) rules(t *testing.T, rules ...string) {
	t.Helper()
	var all []fault.Rule
	for _, text := range rules {
		r, err := fault.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	if err := l.eng.SetRules(all); err != nil {
		t.Fatal(err)
	}
}

// write transfers n MiB, of 1024 packets each. It returns the packets sent and the time.
func (l *lab16) write(n int) (packets int, took time.Duration) {
	before, since := l.writes, l.Now()
	for i := range n {
		clear(l.dst.B)
		l.a.Post(Write(uint64(i), l.dst.At(0), l.src.SGE()))
		if l.a.WaitSend(uint64(i)); !bytes.Equal(l.src.B, l.dst.B) {
			l.Fatalf("data differ")
		}
	}
	for k := range l.writes {
		packets += l.writes[k] - before[k]
	}
	return packets, l.Now().Sub(since)
}

// TestMRCLossyPath: an entropy value that loses 20 % is excluded, and goodput recovers. When the path has healed, probes return
// it to use.
func TestMRCLossyPath(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		l := newLab16(t, map[string]float64{"ev_probe_answers": 16}, v6)
		sent, clean := l.write(4)
		if sent != 4<<10 {
			t.Fatalf("%d packets without a fault", sent)
		}
		for k, n := range l.writes {
			if n < 200 || n > 320 {
				t.Errorf("%d packets on path %d", n, k)
			}
		}
		l.rules(t, "tx drop path=3/16 p=0.2 seed=1")
		l.write(1) // finds the path
		used, lost := l.writes[3], l.lost
		_, took := l.write(16)
		used, lost = l.writes[3]-used, l.lost-lost
		t.Logf("IPv6 %v: %d packets on the lossy path of %d, %d losses, %d probes; %v, %v without loss", v6, used, 16<<10, lost, l.probes[3], took, 4*clean)
		if used > 100 {
			t.Errorf("the lossy path has carried %d packets", used)
		}
		if sent := l.A.Counter("retransmitted_packets"); sent > 200 {
			t.Errorf("%d retransmissions", sent)
		}
		if took > 4*clean*100/95 {
			t.Errorf("goodput is %d %% of that without loss", 400*clean/took)
		}
		l.rules(t)
		l.write(4)
		used = l.writes[3]
		l.write(4)
		if used = l.writes[3] - used; used < 200 || used > 320 {
			t.Errorf("the healed path has carried %d packets of %d", used, 4<<10)
		}
	}
}

// TestMRCDeadPaths: paths that lose everything are used by probes only, and all data arrive.
func TestMRCDeadPaths(t *testing.T) {
	l := newLab16(t, nil, false)
	l.write(1)
	l.rules(t, "tx drop path=1/4")
	l.write(1)
	before := l.writes
	sent, _ := l.write(4)
	for k := 1; k < 16; k += 4 {
		if n := l.writes[k] - before[k]; n != 0 || l.probes[k] == 0 {
			t.Errorf("%d packets and %d probes on dead path %d", n, l.probes[k], k)
		}
	}
	if sent != 4<<10 {
		t.Errorf("%d packets for %d", sent, 4<<10)
	}
}

// TestMRCUnequalPaths: paths of different delay lose nothing, and stay in use.
func TestMRCUnequalPaths(t *testing.T) {
	l := newLab16(t, nil, false)
	for k := range l.delays {
		l.delays[k] = time.Duration(k%4) * 2 * time.Microsecond
	}
	sent, _ := l.write(4)
	if sent != 4<<10 {
		t.Errorf("%d packets for %d", sent, 4<<10)
	}
	for k, n := range l.writes {
		if n < 200 || l.probes[k] > 0 {
			t.Errorf("%d packets and %d probes on path %d", n, l.probes[k], k)
		}
	}
}

// TestMRCMarkedPath: a path whose packets are marked is skipped in each other rotation, without losses or probes.
func TestMRCMarkedPath(t *testing.T) {
	l := newLab16(t, nil, false)
	l.rules(t, "tx ecn path=5/16")
	sent, _ := l.write(4)
	if sent != 4<<10 || l.probes[5] != 0 {
		t.Errorf("%d packets, %d probes", sent, l.probes[5])
	}
	if n := l.writes[5]; n < 100 || n > 170 {
		t.Errorf("%d packets on the marked path of %d", n, sent)
	}
	if l.strayed > 0 {
		t.Errorf("%d SACKs are on another path than their packets", l.strayed)
	}
}

// TestMRCDeniedPaths: entropy values that are DENIED carry neither data nor probes.
func TestMRCDeniedPaths(t *testing.T) {
	l := newLab16(t, map[string]float64{"ev_denied": 0x8001}, false)
	l.rules(t, "tx drop p=0.02 seed=2")
	l.write(4)
	for _, k := range []int{0, 15} {
		if l.writes[k]+l.probes[k] > 0 {
			t.Errorf("%d packets and %d probes on path %d", l.writes[k], l.probes[k], k)
		}
	}
}

// forged returns a frame of p from the address 10.0.0.src to A.
func forged(src byte, p *bth.Packet) []byte {
	const eth, ip, udp = 14, 20, 8
	body := p.AppendTo(nil)
	b := make([]byte, eth+ip+udp, eth+ip+udp+len(body))
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, src, 8, 0, 0x45})
	l3, l4 := b[eth:eth+ip], b[eth+ip:]
	copy(l3[8:], []byte{64, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, 1})
	binary.BigEndian.PutUint16(l4, 0xc000)
	binary.BigEndian.PutUint16(l4[2:], bth.UDPPort)
	inet.SetLengths(l3, l4, 0, len(body))
	inet.SealIPv4(l3)
	end := len(body) - bth.ICRCLen
	crc := bth.ICRCStart(l3, l4, body[:bth.BTHLen])
	bth.PutICRC(body[end:], bth.ICRCUpdate(crc, body[bth.BTHLen:end]))
	return append(b, body...)
}

// TestMRCForgedEndpoints: endpoint operations that no connection expects are counted and change nothing.
func TestMRCForgedEndpoints(t *testing.T) {
	l := newLab16(t, map[string]float64{"ev_probe_answers": 1}, false)
	other, _ := l.RC(func(q *QPOptions) { q.Profile = "mrc" })
	l.rules(t, "tx drop path=3/16")
	l.write(1)
	l.lost = 0
	forge := func(src byte, p bth.Packet) {
		l.A.NIC.Receive(l.Now(), forged(src, &p), 0)
	}
	dropped := func() uint64 { return l.A.Counter("rx_dropped_endpoint") }
	before, sent := dropped(), l.A.Counter("sent_pkts")
	request := bth.Packet{Opcode: bth.OpcodeMRCEndpointRequest, PKey: bth.DefaultPKey, DestQP: bth.MRCEndpointQPN}
	response := bth.Packet{Opcode: bth.OpcodeMRCEndpointResponse, PKey: bth.DefaultPKey, DestQP: bth.MRCEndpointQPN}
	forge(9, request)  // not a peer
	forge(9, response) // likewise
	n := uint64(2)
	for id := range uint32(1 << 16) { // of any number
		response.PSN = bth.MakePSN(id)
		forge(9, response)
		n++
	}
	for _, q := range []*QP{l.a, other} {
		request.DestQP, response.DestQP = q.Num(), q.Num() // past the NIC
		forge(2, request)
		for id := range uint32(1 << 10) {
			response.PSN = bth.MakePSN(id)
			forge(2, response)
			n++
		}
		n++
	}
	request.DestQP, response.DestQP = bth.MRCEndpointQPN, bth.MRCEndpointQPN
	response.PSN = bth.MakePSN(l.probe ^ 1<<15) // a number like that of a lost probe
	forge(2, response)
	request.ERTH.Op = 3
	forge(2, request)
	forge(2, bth.Packet{Opcode: bth.OpcodeMRCProbe, PKey: bth.DefaultPKey, DestQP: bth.MRCEndpointQPN})
	n += 3
	if got := dropped() - before; got != n {
		t.Errorf("%d forged packets are counted, want %d", got, n)
	}
	if got := l.A.Counter("sent_pkts"); got != sent {
		t.Errorf("%d answers to forged packets", got-sent)
	}
	at := l.writes[3]
	if l.write(2); l.writes[3] != at {
		t.Errorf("%d packets on the dead path", l.writes[3]-at)
	}
}

// status forges a port status to A.
func (l *lab16) status(src byte, mask uint32) {
	p := bth.Packet{Opcode: bth.OpcodeMRCEndpointRequest, PKey: bth.DefaultPKey, DestQP: bth.MRCEndpointQPN, ERTH: bth.ERTH{PortMask: mask}}
	l.A.NIC.Receive(l.Now(), forged(src, &p), 0)
}

// leaves writes, and checks that A leaves this one of 4 planes and no other, -1: none.
func (l *lab16) leaves(t *testing.T, plane int) {
	t.Helper()
	before, planes := l.writes, [4]int{}
	l.write(1)
	for k := range l.writes {
		planes[k%4] += l.writes[k] - before[k]
	}
	for i, n := range planes {
		if n > 0 == (i == plane) {
			t.Errorf("packets in planes: %v, want none in plane %d only", planes, plane)
		}
	}
}

// planes4 are parameters of paths16 for 4 planes, whose lost entropy values return late.
var planes4 = map[string]float64{"planes": 4, "ev_probe_interval_us": 1e6}

// TestMRCPortStatus: the peer's port status ends the use of its plane if probes in the plane stay without an answer. Forged ones
// have no effect: in planes that work, of another address, or without any plane.
func TestMRCPortStatus(t *testing.T) {
	l := newLab16(t, planes4, false)
	l.write(1)
	l.status(9, 0b0001)
	l.status(2, 0)
	l.leaves(t, -1)
	for mask := range uint32(16) { // the first is verified, and the last when the interval is over
		l.status(2, mask)
		l.Run(time.Millisecond)
		l.leaves(t, -1)
	}
	l.Run(time.Second)
	if n := l.probes; n[0]+n[1]+n[2]+n[3] > 8 {
		t.Errorf("%d probes", n)
	}
	l.leaves(t, -1)
	l.rules(t, "tx drop path=2/4")
	l.status(2, 0b0011) // plane 3 works
	l.Run(time.Millisecond)
	l.leaves(t, 2)
	if l.lost > 2 {
		t.Errorf("%d packets are lost, want probes only", l.lost)
	}
}

// TestMRCPortStatusLatest: of the statuses during a challenge and its interval, the last one counts.
func TestMRCPortStatusLatest(t *testing.T) {
	l := newLab16(t, planes4, false)
	l.write(1)
	l.rules(t, "tx drop path=0/4")
	for _, mask := range []uint32{0b1011, 0b0111, 0b1101, 0b1110} {
		l.status(2, mask)
	}
	l.Run(300 * time.Millisecond)
	l.leaves(t, 0)
}
