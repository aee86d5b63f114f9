package rocev2

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// eachCaptured calls f with the frames of the captures of rxe.
func eachCaptured(t testing.TB, f func(file string, frame []byte)) {
	t.Helper()
	files, err := filepath.Glob("../bth/testdata/*.pcap")
	if err != nil || len(files) < 19 {
		t.Fatalf("captures: %d files, %v", len(files), err)
	}
	for _, file := range files {
		fd, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pcapng.NewReader(fd)
		if err != nil {
			t.Fatal(err)
		}
		var frame pcapng.Frame
		for {
			err := r.Next(&frame)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			f(filepath.Base(file), bytes.Clone(frame.Data))
		}
		fd.Close()
	}
}

type gsi struct{ got int }

func (g *gsi) ReceiveMAD(mono.Time, MADRoute, []byte) { g.got++ }
func (g *gsi) Advance(mono.Time)                      {}
func (g *gsi) NextTimeout() mono.Time                 { return mono.Never }
func (g *gsi) AppendCounters(s []Counter) []Counter   { return s }

// TestCapturesAreAccepted: every RoCE frame of the captures reaches the queue pair that it names. Sending the same
// packet reproduces the frame byte by byte.
func TestCapturesAreAccepted(t *testing.T) {
	count, ce := 0, 0
	eachCaptured(t, func(file string, frame []byte) {
		l4, body, _, ok := inet.UDPBody(frame)
		if !ok || binary.BigEndian.Uint16(frame[l4+2:]) != bth.UDPPort {
			return
		}
		count++
		var h stack.IPHeader
		bits := "/0"
		if r := h.ParseIPv4(frame[inet.EthernetLen:]); r != stack.Accepted {
			if r := h.ParseIPv6(frame[inet.EthernetLen:]); r != stack.Accepted {
				t.Fatalf("%s: %v", file, r)
			}
		}
		dst, src := inet.MAC(frame[:6]), inet.MAC(frame[6:12])
		n := newNIC(t, testConfig(dst, h.Dst.Addr().String()+bits))
		sp, s := &gsi{}, newScript()
		n.SetGSI(sp)
		num := bth.QPN(binary.BigEndian.Uint32(frame[body+4:]) & 0xffffff)
		if num > 1 {
			q := plug(t, n, num, serviceOf(bth.Opcode(frame[body])), s)
			connectAV(t, n, q, AddressVector{DGID: h.Src, SGIDIndex: sourceIndex(t, n, h.Dst)}, src)
		}
		n.Receive(0, frame, 0)
		if len(s.got)+sp.got != 1 || n.ctr.RxDropped() != 0 {
			t.Errorf("%s: frame %x\nreached nobody: %v", file, frame, n.ctr.drops)
		}
		ce += s.ce
		if len(s.grh) == 1 && s.grh[0] != nil && !bytes.Equal(s.grh[0][20:], frame[inet.EthernetLen:inet.EthernetLen+inet.IPv4Len]) {
			t.Errorf("%s: GRH %x", file, s.grh[0])
		}
	})
	if count < 500 || ce == 0 {
		t.Errorf("%d packets, %d with congestion experienced", count, ce)
	}
}

func serviceOf(o bth.Opcode) qp.Type {
	switch o.Transport() {
	case bth.TransportUC:
		return qp.UC
	case bth.TransportUD:
		return qp.UD
	}
	return qp.RC
}

// TestCapturesAreReproduced sends the frames of an rxe connection from the decoded packets.
func TestCapturesAreReproduced(t *testing.T) {
	count := 0
	eachCaptured(t, func(file string, frame []byte) {
		l4, body, end, ok := inet.UDPBody(frame)
		if !ok || binary.BigEndian.Uint16(frame[l4+2:]) != bth.UDPPort || file == "ecn_write.pcap" {
			return
		}
		var p bth.Packet
		if err := p.Decode(frame[body:end]); err != nil || p.Opcode.Transport() != bth.TransportRC {
			return
		}
		var h stack.IPHeader
		if h.ParseIPv4(frame[inet.EthernetLen:]) != stack.Accepted {
			h.ParseIPv6(frame[inet.EthernetLen:])
		}
		cfg, tos := testConfig(inet.MAC(frame[6:12]), h.Src.Addr().String()+"/0"), frame[inet.EthernetLen+1]
		if h.V6 {
			tos = frame[inet.EthernetLen]<<4 | frame[inet.EthernetLen+1]>>4
		} else {
			copy(cfg.Seed[:], frame[inet.EthernetLen+4:inet.EthernetLen+6]) // IP ID
		}
		n := newNIC(t, cfg)
		q := plug(t, n, 0x11, qp.RC, newScript(p))
		connectAV(t, n, q, AddressVector{DGID: h.Dst, SGIDIndex: sourceIndex(t, n, h.Src), TrafficClass: tos, HopLimit: h.TTL}, inet.MAC(frame[:6]))
		q.path.SetSourcePort(binary.BigEndian.Uint16(frame[l4:])) // it needs the peer's QPN
		n.sch.activate(q)
		out := transmit(n, 0)
		count++
		if len(out) != 1 || !bytes.Equal(out[0].b, frame) {
			t.Errorf("%s: sent\n%x, captured\n%x", file, out[0].b, frame)
		}
	})
	if count < 400 {
		t.Errorf("%d frames", count)
	}
}

// reseal recomputes the IPv4 checksum and the ICRC of a frame.
func reseal(b []byte) {
	inet.SealIPv4(b[inet.EthernetLen : inet.EthernetLen+inet.IPv4Len])
	bth.SealICRC(b[inet.EthernetLen:])
}

type comments struct{ got []string }

func (c *comments) Frame(_ mono.Time, d link.Direction, _ []byte, s string) {
	if d == link.Rx {
		c.got = append(c.got, s)
	}
}

// receiveDrops are manipulations of a good frame.
var receiveDrops = []struct {
	name string
	do   func(b []byte) []byte
	want rxReason
}{
	{"nothing", func(b []byte) []byte { return b }, rxOK},
	{"padding", func(b []byte) []byte { return append(b, 0, 0, 0, 0, 0, 0) }, rxOK},
	{"traffic class and TTL", func(b []byte) []byte { b[15], b[22] = 0x03, 3; inet.SealIPv4(b[14:34]); return b }, rxOK},
	{"empty", func(b []byte) []byte { return nil }, rxShort},
	{"cut in the IP header", func(b []byte) []byte { return b[:33] }, rxShort},
	{"cut in the payload", func(b []byte) []byte { return b[:len(b)-1] }, rxShort},
	{"other station", func(b []byte) []byte { b[5] ^= 1; return b }, rxReason(stack.DropMAC)},
	{"EtherType", func(b []byte) []byte { b[13] = 1; return b }, rxReason(stack.DropEtherType)},
	{"version", func(b []byte) []byte { b[14] = 0x65; return b }, rxReason(stack.DropIPHeader)},
	{"header length", func(b []byte) []byte { b[14] = 0x44; return b }, rxReason(stack.DropIPHeader)},
	{"header checksum", func(b []byte) []byte { b[25] ^= 1; return b }, rxReason(stack.DropIPChecksum)},
	{"fragment", func(b []byte) []byte { b[21] = 1; reseal(b); return b }, rxReason(stack.DropFragment)},
	{"more fragments", func(b []byte) []byte { b[20] |= 0x20; reseal(b); return b }, rxReason(stack.DropFragment)},
	{"IP destination", func(b []byte) []byte { b[33] = 99; reseal(b); return b }, rxReason(stack.DropAddr)},
	{"TCP", func(b []byte) []byte { b[23] = 6; reseal(b); return b }, rxReason(stack.DropProto)},
	{"UDP port", func(b []byte) []byte { b[37]++; reseal(b); return b }, rxReason(stack.DropPort)},
	{"UDP length", func(b []byte) []byte { b[38] = 2; return b }, rxShort},
	{"short UDP length", func(b []byte) []byte { b[39] = 23; return b }, rxShort},
	{"ICRC", func(b []byte) []byte { b[len(b)-1]++; return b }, rxICRC},
	{"payload", func(b []byte) []byte { b[60]++; return b }, rxICRC},
	{"opcode", func(b []byte) []byte { b[42] = 0xff; reseal(b); return b }, rxTransport},
	{"header version", func(b []byte) []byte { b[43] |= 1; reseal(b); return b }, rxTransport},
	{"P_Key", func(b []byte) []byte { b[44] = 0x12; reseal(b); return b }, rxPKey},
	{"limited member", func(b []byte) []byte { b[44] = 0x7f; reseal(b); return b }, rxOK},
	{"QPN", func(b []byte) []byte { b[49] = 0x99; reseal(b); return b }, rxQPN},
	{"QP 1", func(b []byte) []byte { b[49] = 1; reseal(b); return b }, rxMAD},
	{"unconnected QP", func(b []byte) []byte { b[49] = 0x23; reseal(b); return b }, rxUnconnected},
	{"IP source", func(b []byte) []byte { b[29] = 9; reseal(b); return b }, rxPeer},
	{"duplicate", func(b []byte) []byte { b[49] = 0x24; reseal(b); return b }, rxCore + rxReason(qp.DropDuplicate)},
}

func TestReceiveDrops(t *testing.T) {
	for _, c := range receiveDrops {
		cfg := testConfig(macA, "10.0.0.1/24")
		a := newNIC(t, cfg)
		qa := plug(t, a, 0x11, qp.RC, newScript(sends(0x22, 1, 21)...))
		connect(t, a, qa, 0, "10.0.0.2", &macB)
		a.sch.activate(qa)
		frame := c.do(transmit(a, 0)[0].b)

		n := newNIC(t, testConfig(macB, "10.0.0.2/24"))
		obs := &comments{}
		n.SetObserver(obs)
		connect(t, n, plug(t, n, 0x22, qp.RC, newScript()), 0, "10.0.0.1", &macA)
		plug(t, n, 0x23, qp.RC, newScript())
		connect(t, n, plug(t, n, 0x24, qp.RC, &script{deadline: mono.Never, verdict: qp.DropDuplicate}), 0, "10.0.0.1", &macA)
		n.Receive(0, frame, 0)
		if got := n.ctr.RxDropped(); (got == 1) != (c.want != rxOK) || c.want != rxOK && n.ctr.drops[c.want] != 1 {
			t.Errorf("%s: drops %v", c.name, n.ctr.drops)
		}
		if len(obs.got) != 1 || obs.got[0] != c.want.String() && c.want != rxOK || c.want == rxOK && obs.got[0] != "" {
			t.Errorf("%s: comments %q", c.name, obs.got)
		}
	}
}

// TestReasonsAreNamed: every reason has a comment and a unique name.
func TestReasonsAreNamed(t *testing.T) {
	seen := map[string]bool{}
	for r := rxShort; r < rxCore+rxReason(qp.DropProfile)+1; r++ {
		if r == rxCore || r == rxSegmented {
			continue
		}
		if r.describe().Counter == "" || r.String() == "" || seen[r.describe().Counter] {
			t.Errorf("reason %d: %q, %q", r, r.describe().Counter, r)
		}
		seen[r.describe().Counter] = true
	}
	names := map[string]bool{}
	for _, c := range nicA(t).CounterSnapshot() {
		if names[c.Name] {
			t.Errorf("two counters %s", c.Name)
		}
		names[c.Name] = true
	}
}

// TestSuperFrameWithOneBadSegment: the NIC checks and traces each datagram of a super-frame separately.
func TestSuperFrameWithOneBadSegment(t *testing.T) {
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = superOffload()
	a := newNIC(t, cfg)
	qa := plug(t, a, 0x11, qp.RC, newScript(sends(0x22, 1, 20, 20, 20, 20, 10)...))
	connect(t, a, qa, 0, "10.0.0.2", &macB)
	a.sch.activate(qa)
	out := transmit(a, 0)
	frame, size := out[0].b, out[0].segSize
	if len(out) != 1 || link.Segments(frame, size) != 5 {
		t.Fatalf("%d frames", len(out))
	}
	frame[42+2*size+13]++
	n := newNIC(t, testConfig(macB, "10.0.0.2/24"))
	obs := &comments{}
	n.SetObserver(obs)
	s := newScript()
	connect(t, n, plug(t, n, 0x22, qp.RC, s), 0, "10.0.0.1", &macA)
	discardAll(n)
	n.Receive(0, frame, size)
	want := []string{"", "", rxICRC.String(), "", ""}
	if !slices.Equal(obs.got, want) || len(s.got) != 4 || n.ctr.drops[rxICRC] != 1 {
		t.Errorf("comments %q, %d received", obs.got, len(s.got))
	}
}

func TestCongestionNotification(t *testing.T) {
	a := newNIC(t, testConfig(macA, "10.0.0.1/24"))
	var cnp, lost bth.Packet
	cnp.SetCNP(0x22)
	lost.SetCNP(0x33)
	qa := plug(t, a, 0x11, qp.RC, newScript(cnp, lost))
	connect(t, a, qa, 0, "10.0.0.2", &macB)
	a.sch.activate(qa)
	n := newNIC(t, testConfig(macB, "10.0.0.2/24"))
	s, u := newScript(), newScript()
	connect(t, n, plug(t, n, 0x22, qp.RC, s), 0, "10.0.0.1", &macA)
	plug(t, n, 0x33, qp.UD, u)
	for _, w := range transmit(a, 0) {
		n.Receive(0, w.b, w.segSize)
	}
	if s.cnps != 1 || u.cnps != 0 || counter(t, n, "rp_cnp_handled") != 1 || counter(t, n, "rp_cnp_ignored") != 1 || counter(t, a, "np_cnp_sent") != 2 {
		t.Errorf("CNPs: %d handled, %v", s.cnps, n.CounterSnapshot())
	}
}

func TestReceiveAllocatesNothing(t *testing.T) {
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = superOffload()
	a := newNIC(t, cfg)
	qa := plug(t, a, 0x11, qp.RC, newScript(slices.Concat(write(0x22, 0, 65536, 4096), sends(0x22, 1, 9, 9))...))
	connect(t, a, qa, 0, "10.0.0.2", &macB)
	a.sch.activate(qa)
	frames := transmit(a, 0)
	n := newNIC(t, testConfig(macB, "10.0.0.2/24"))
	s := &script{deadline: mono.Never}
	connect(t, n, plug(t, n, 0x22, qp.RC, s), 0, "10.0.0.1", &macA)
	discardAll(n)
	got := testing.AllocsPerRun(100, func() {
		for _, w := range frames {
			n.Receive(0, w.b, w.segSize)
		}
		n.PollTransmit(0)
	})
	if got != 0 || n.ctr.RxDropped() != 0 {
		t.Errorf("%v allocations, %d drops", got, n.ctr.RxDropped())
	}
}
