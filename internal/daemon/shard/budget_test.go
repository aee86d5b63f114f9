package shard

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// wholesale is a link with endless super-frames and room. It counts the bytes received and sent.
type wholesale struct {
	nullPort
	bytes [2]int
	dry   bool // no more frames arrive
}

func (p *wholesale) Recv(_ mono.Time, buf []byte) ([]byte, int, error) {
	if p.dry {
		return nil, 0, port.ErrAgain
	}
	const size = 60_000
	p.bytes[0] += size
	return buf[:size], 0, nil
}

func (p *wholesale) Send(_ mono.Time, f *link.Frame) error {
	p.bytes[1] += f.Len
	return nil
}

func (p *wholesale) Offload() link.Offload {
	return link.Offload{MaxSegments: 128, MaxBytes: 1 << 16}
}

// writes is a send queue with endless WRITEs of one region.
type writes struct {
	region *rocev2.MR
	size   int
}

func (w writes) Next(e *qp.SendWQE) bool {
	*e = qp.SendWQE{Opcode: qp.WRWrite, SGEs: append(e.SGEs[:0], qp.SGE{LKey: w.region.LKey, Length: uint32(w.size)}), Length: uint32(w.size)}
	return true
}
func (writes) Pending() bool { return true }
func (writes) Retire(int)    {}
func (writes) Reset()        {}

type noRecvs struct{}

func (noRecvs) Next(*qp.RecvWQE) bool { return false }
func (noRecvs) Len() int              { return 0 }
func (noRecvs) Retire(int)            {}
func (noRecvs) Reset()                {}

// sinkRing drops completions.
type sinkRing struct{ rocev2.CompletionRing }

func (sinkRing) Push(*qp.CQE) bool { return true }

// TestByteBudget: a turn moves 256 KiB and a frame at most in each direction, so that a new doorbell waits no longer.
func TestByteBudget(t *testing.T) {
	const longest = 1 << 16
	p := &wholesale{}
	s := alone(&NIC{nic: senders(t, 4, longest), port: p, up: true})
	s.receive()
	p.dry = true
	s.transmit()
	for i, direction := range []string{"received", "sent"} {
		if n := p.bytes[i]; n < byteBudget || n >= byteBudget+longest {
			t.Errorf("%d bytes %s in a turn", n, direction)
		}
	}
}

// senders returns a NIC with UC queue pairs that never run out of WRITEs of size bytes.
func senders(t *testing.T, n, size int) *rocev2.NIC {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	net := netip.MustParsePrefix("10.0.0.1/24")
	offload := link.Offload{MaxSegments: 128, MaxBytes: 1 << 16}
	nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 4300, Offload: offload,
		Addrs: []netip.Prefix{net}, Routes: []netip.Prefix{net}, Shared: true})
	check(err)
	pd, err := nic.AllocPD(nil)
	check(err)
	cq, err := nic.CreateCQ(rocev2.CQAttr{Entries: 64, Ring: sinkRing{}, Notify: func() {}})
	check(err)
	mr, err := nic.RegMR(pd, rocev2.MRAttr{Length: uint64(size), Access: qp.AccessLocalWrite, Mem: rocev2.NewBytes(make([]byte, size))})
	check(err)
	peer := inet.GIDOf(netip.MustParseAddr("10.0.0.2"))
	for range n {
		q, err := nic.CreateQP(rocev2.QPAttr{Type: qp.UC, PD: pd, SendCQ: cq, RecvCQ: cq, SQ: writes{mr, size}, RQ: noRecvs{},
			Caps: rocev2.QPCaps{MaxSendWR: 16, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		check(err)
		check(nic.ModifyQP(1, q, qp.Attr{State: qp.Init, Port: 1}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccessFlags, nil))
		check(nic.ModifyQP(1, q, qp.Attr{State: qp.RTR, PathMTU: 5, DestQPN: 5}, qp.AttrState|qp.AttrAV|qp.AttrPathMTU|qp.AttrDestQPN|qp.AttrRQPSN,
			&rocev2.AddressVector{DGID: peer}))
		check(nic.ModifyQP(1, q, qp.Attr{State: qp.RTS}, qp.AttrState|qp.AttrSQPSN, nil))
		nic.Doorbell(1, q)
	}
	nic.Resolved(1, peer, inet.MAC{2, 0, 0, 0, 0, 2})
	return nic
}

// shower is a link with endless super-frames of short packets to no queue pair.
type shower struct {
	nullPort
	frame  []byte
	frames int
}

func (p *shower) Recv(mono.Time, []byte) ([]byte, int, error) {
	p.frames++
	return p.frame, shortest, nil
}

const shortest = bth.BTHLen + bth.ICRCLen

// TestPacketBudget: a turn examines a limited number of packets, not of super-frames. Eight of each are examined here.
func TestPacketBudget(t *testing.T) {
	const packets, examined = 128, 8
	l3, udp := make([]byte, inet.IPv4Len), make([]byte, inet.UDPLen)
	l3[0], l3[8], l3[9] = 0x45, 64, inet.ProtoUDP
	copy(l3[12:], []byte{10, 0, 0, 2, 10, 0, 0, 1})
	udp[2], udp[3] = bth.UDPPort>>8, bth.UDPPort&0xff
	inet.SetLengths(l3, udp, 0, packets*shortest)
	inet.SealIPv4(l3)
	b := slices.Concat([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0}, l3, udp, bytes.Repeat([]byte{4, 0, 0xff, 0xff, 0, 0xab, 0xcd, 0xef, 0, 0, 0, 0, 0, 0, 0, 0}, packets))
	p := &shower{frame: b}
	s := alone(&NIC{nic: senders(t, 1, 64), port: p, up: true})
	s.receive()
	if p.frames != packetBudget/examined {
		t.Errorf("%d super-frames in a turn, want %d", p.frames, packetBudget/examined)
	}
}
