package soak

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// addPrograms seeds a fuzzer with random programs. They also run without -fuzz.
func addPrograms(f *testing.F, n int) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range n {
		b := make([]byte, 100+rng.IntN(8000))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
}

// FuzzNIC attacks a NIC with arbitrary frames and with forged frames of its peers. The NIC must not panic, and must
// become idle. It must not leak or change memory that is closed to peers.
func FuzzNIC(f *testing.F) {
	addPrograms(f, 300)
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &program{b}
		o := link.Offload{}
		if d.byte()&1 != 0 {
			o = link.Offload{MaxSegments: 64, MaxBytes: 65549}
		}
		r := newRig(t, o)
		for n := 0; d.more() && n < 400; n++ {
			r.attack(d)
		}
		r.p.Run(5 * time.Millisecond)
		r.check()
	})
}

// attack executes one step of a program.
func (r *rig) attack(d *program) {
	if d.below(4) == 0 {
		r.heal()
	}
	switch d.below(16) {
	case 0:
		r.inject(d.bytes(d.below(1600)), d.u16())
	case 1:
		frame := frameTo(d, d.bytes(d.below(400)))
		r.inject(frame, d.u16())
	case 2, 3, 4, 5, 6:
		r.inject(frameTo(d, r.forge(d)), 0)
	case 7:
		r.super(d)
	case 8, 9:
		r.replay(d)
	case 10:
		r.p.Run(time.Duration(d.u16()) * 10 * time.Nanosecond)
	case 11:
		r.receive(d)
	case 12, 13:
		r.genuine(d)
	case 14:
		r.request(d)
	case 15:
		r.control(d)
	}
}

func (r *rig) inject(frame []byte, segSize int) {
	r.p.B.NIC.Receive(r.p.Now(), frame, segSize)
}

// forge returns a transport packet for one of the queue pairs of B.
func (r *rig) forge(d *program) []byte {
	i := d.below(3)
	q := r.own[i]
	ops := [3][2]int{{0x00, 0x18}, {0x20, 12}, {0x64, 2}}
	p := bth.Packet{Opcode: bth.Opcode(ops[i][0] + d.below(ops[i][1])), PKey: bth.DefaultPKey, DestQP: q.Num()}
	switch d.below(32) {
	case 0:
		p.Opcode = bth.Opcode(d.byte())
	case 1:
		p.Opcode = bth.OpcodeCNP
	}
	flags := d.byte()
	p.Solicited, p.AckReq, p.FECN, p.BECN = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0
	base := r.last[q.Num()]
	if p.Opcode.IsResponse() {
		base = r.last[r.peer[i].Num()] // of its requests
	} else {
		base = base.Next()
	}
	p.PSN = base.Add([]int{0, 0, 0, 0, 1, -1, 2, int(int8(d.byte())), int(d.u32())}[d.below(9)])
	key, va, length := r.target(d)
	p.RETH = bth.RETH{VA: va, RKey: key, Length: length}
	n := d.size(512)
	if length < 512 && d.byte()&1 != 0 {
		n = int(length)
	}
	if p.Opcode.IsWrite() && d.below(3) > 0 {
		p.RETH.Length = uint32(n)
		if p.Opcode.IsFirst() {
			n = 512
			p.RETH.Length = uint32(n + d.below(2000))
		}
	}
	p.AtomicETH = bth.AtomicETH{VA: p.RETH.VA, RKey: p.RETH.RKey, SwapAdd: d.u64(), Compare: uint64(d.byte())}
	p.AETH = bth.AETH{Syndrome: []bth.Syndrome{bth.SyndromeACK, 0x20, 0x61, 0x60, bth.Syndrome(d.byte())}[d.below(5)], MSN: d.u32()}
	p.Imm, p.IETH, p.AtomicAck = d.u32(), r.key(d), d.u64()
	p.DETH = bth.DETH{QKey: 0x11111111, SrcQP: r.peer[2].Num()}
	if p.Opcode.IsCNP() {
		n = 16
	}
	if p.Opcode.HasPayload() || d.below(8) == 0 {
		p.Payload = make([]byte, n)
		plain(p.Payload, d.byte())
	}
	if !p.Opcode.Valid() {
		return append([]byte{byte(p.Opcode), 0}, d.bytes(40)...)
	}
	r.last[p.DestQP] = p.PSN
	b := p.AppendTo(nil)
	for range d.below(3) { // usually none
		b[d.below(min(len(b), 60))] ^= d.byte()
	}
	return b
}

// frameTo wraps a transport packet in headers from A to B and seals it.
func frameTo(d *program, body []byte) []byte {
	v6 := d.below(8) == 0
	f := make([]byte, 14, 14+48+len(body))
	copy(f, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00})
	if v6 {
		f[12], f[13] = 0x86, 0xdd
		ip := make([]byte, 40)
		ip[0], ip[6], ip[7] = 0x60, 17, 64
		be16(ip[4:], 8+len(body))
		ip[8], ip[23], ip[24], ip[39] = 0xfd, 1, 0xfd, 2
		f = append(f, ip...)
	} else {
		ip := []byte{0x45, 2, 0, 0, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
		ip[1] = byte(d.below(4))
		be16(ip[2:], 28+len(body))
		be16(ip[10:], int(checksum(ip)))
		f = append(f, ip...)
	}
	udp := make([]byte, 8)
	be16(udp, 0xc000)
	be16(udp[2:], bth.UDPPort)
	be16(udp[4:], 8+len(body))
	f = append(append(f, udp...), body...)
	if len(body) >= bth.BTHLen+bth.ICRCLen {
		_ = bth.SealICRC(f[14:])
	}
	return f
}

// checksum returns the checksum of an IPv4 header whose checksum field is zero.
func checksum(h []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(h); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	sum = sum>>16 + sum&0xffff
	return ^uint16(sum>>16 + sum)
}

// super sends several forged packets as one frame, with an arbitrary or a correct segment size. With equal lengths
// the segments have correct ICRCs.
func (r *rig) super(d *program) {
	first := r.forge(d)
	var all []byte
	for range 1 + d.below(8) {
		b := r.forge(d)
		if len(b) > len(first) {
			b = b[:len(first)]
		}
		for len(b) < len(first) {
			b = append(b, 0)
		}
		one := frameTo(&program{}, b)
		all = append(all, one[14+28:]...)
	}
	size := len(first)
	if d.below(4) == 0 {
		size = d.below(len(all) + 2)
	}
	f := frameTo(&program{}, all[:max(0, len(all)-d.below(3))])
	r.inject(f, size)
}

// replay repeats a frame of genuine traffic with changes.
func (r *rig) replay(d *program) {
	if len(r.seen) == 0 {
		return
	}
	f := append([]byte(nil), r.seen[d.below(len(r.seen))]...)
	for range d.below(4) {
		f[d.below(min(len(f), 128))] = d.byte()
	}
	if d.below(4) == 0 {
		f = f[:d.below(len(f)+1)]
	}
	if len(f) > 42 && d.below(4) > 0 {
		if f[14] == 0x45 {
			f[24], f[25] = 0, 0
			be16(f[24:], int(checksum(f[14:34])))
		}
		_ = bth.SealICRC(f[14:])
	}
	r.inject(f, d.below(3)*d.u16())
}

// receive posts a receive request of B.
func (r *rig) receive(d *program) {
	g := r.regions[[]int{openRegion, localRegion, topRegion}[d.below(3)]]
	off := d.below(regionLen - 2048)
	_ = r.own[d.below(3)].RQ.Post(qp.RecvWQE{WRID: 7, SGEs: []qp.SGE{
		{Addr: g.va + uint64(off), Length: uint32(d.below(1024)), LKey: g.mr.LKey},
		{Addr: g.va + uint64(off) + 1024, Length: uint32(d.below(1024)), LKey: g.mr.LKey}}})
}

// genuine makes the peer send a valid request.
func (r *rig) genuine(d *program) {
	i := d.below(3)
	q, n := r.peer[i], d.size(512)
	g := r.regions[openRegion]
	at := nictest.Remote{VA: g.va + uint64(d.below(512))*8, RKey: g.mr.RKey}
	src := r.buf.Part(d.below(1024), n)
	var w qp.SendWQE
	switch k := d.below(6); {
	case i == 2:
		w = nictest.SendTo(1, 0, r.own[2], src)
	case k == 0:
		w = nictest.Send(1, src)
	case k == 1:
		w = nictest.WriteImm(1, at, 5, src)
	case k == 2 && i == 0:
		w = nictest.Read(1, at, src)
	case k == 3 && i == 0:
		w = nictest.FetchAdd(1, at, 1, r.buf.Part(0, 8))
	case k == 4 && i == 0:
		w = nictest.SendInv(1, r.windows[1].RKey, src)
	default:
		w = nictest.Write(1, at, src)
	}
	if q.SQ.Post(w) == nil {
		q.Doorbell()
	}
	q.SendCQ.PollAll()
	q.RecvCQ.PollAll()
}

// request makes B's client send a valid request, so that the attack can forge responses.
func (r *rig) request(d *program) {
	i, n := d.below(2), d.size(512)
	g := r.regions[openRegion]
	at := r.buf.At(d.below(1024) * 8)
	local := qp.SGE{Addr: g.va + uint64(d.below(8192)), Length: uint32(n), LKey: g.mr.LKey}
	w := nictest.Write(1, at, local)
	switch k := d.below(4); {
	case k == 0:
		w = nictest.Send(1, local)
	case k == 1 && i == 0:
		w = nictest.Read(1, at, local)
	case k == 2 && i == 0:
		local.Length = 8
		w = nictest.FetchAdd(1, at, 1, local)
	}
	if r.own[i].SQ.Post(w) == nil {
		r.own[i].Doorbell()
	}
	r.own[i].SendCQ.PollAll()
	r.own[i].RecvCQ.PollAll()
}

// control changes objects that frames refer to.
func (r *rig) control(d *program) {
	n, now := r.p.B.NIC, r.p.Now()
	switch d.below(16) {
	case 0:
		_ = n.SetLink(now, d.byte()&1 != 0, 0)
	case 1:
		n.SetOffload(link.Offload{MaxSegments: d.below(130), MaxBytes: d.u16()})
	case 2:
		_ = n.ModifyQP(now, r.own[d.below(3)].QueuePair, qp.Attr{State: qp.State(d.below(8))}, qp.AttrState, nil)
	case 3: // freed memory may hold secrets immediately
		g := r.regions[[]int{openRegion, topRegion, zeroRegion}[d.below(3)]]
		if n.DeregMR(g.mr) == nil {
			fillCanary(g.b)
			g.frozen = append([]byte(nil), g.b...)
		}
	case 4:
		i := d.below(3)
		r.gone[i] = n.DestroyQP(r.own[i].QueuePair) == nil || r.gone[i]
	case 5:
		_ = n.DeallocMW(r.windows[d.below(2)])
	}
}
