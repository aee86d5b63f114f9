package nictest

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
)

// trim cuts the WRITE of MRC in an IPv4 frame behind its TSETH, as a switch does.
func trim(f *Flight) {
	const eth, ip, udp, left = 14, 20, 8, bth.BTHLen + bth.METHLen + bth.TSETHLen
	f.Frame = f.Frame[:eth+ip+udp+left]
	binary.BigEndian.PutUint16(f.Frame[eth+2:], ip+udp+left)
	binary.BigEndian.PutUint16(f.Frame[eth+ip+4:], udp+left)
	inet.SealIPv4(f.Frame[eth : eth+ip])
}

// TestMRCTrimmed: a NACK answers each packet that a switch has trimmed. The packet is retransmitted without a timeout.
func TestMRCTrimmed(t *testing.T) {
	p := New(t, Options{Seed: 1})
	trimmed, nacks := 0, 0
	p.SetHook(func(f *Flight) Fate {
		var k bth.Packet
		switch {
		case !f.RoCE(&k):
		case k.Opcode.IsNACK() && k.NETH.Reason == bth.MRCTrimmed:
			nacks++
		case k.Opcode.IsWrite() && !k.ReTx && f.Seq%3 == 0:
			trim(f)
			trimmed++
		}
		return Fate{}
	})
	a, _ := p.RC(func(q *QPOptions) { q.Profile, q.Timeout = "mrc", 14 })
	src, dst := p.A.Buffer(1<<16), p.B.Buffer(1<<16)
	src.Fill(1)
	a.Post(Write(1, dst.At(0), src.SGE()))
	a.WaitSend(1)
	if n := p.A.Counter("local_ack_timeout_err"); !bytes.Equal(src.B, dst.B) || trimmed == 0 || nacks != trimmed || n != 0 {
		t.Errorf("%d trimmed, %d NACKs, %d timeouts", trimmed, nacks, n)
	}
	if n := p.B.Counter("rx_dropped_icrc"); n != 0 {
		t.Errorf("%d trimmed packets count as corrupt", n)
	}
}

// TestMRCDeferred: WRITEs to and from memory whose accesses end later complete once and in order, with faults of the link.
func TestMRCDeferred(t *testing.T) {
	const requests, slot = 40, 4096
	for seed := range uint64(12) {
		o := Options{Seed: seed, Deferred: true, Offload: super}
		if seed%3 > 0 {
			o.Hook = OnlyRoCE(Hooks(Drop(0.02), Reorder(0.05, 10*time.Microsecond), Duplicate(0.02, time.Microsecond)))
		}
		p := New(t, o)
		a, b := p.RC(func(q *QPOptions) { q.Profile, q.Timeout = "mrc", 10 })
		src, dst := p.A.Buffer(requests*slot), p.B.Buffer(requests*slot)
		src.Fill(seed)
		for i := range requests {
			id, size := uint64(i), 1+p.RNG.IntN(slot)
			clear(src.B[i*slot+size : (i+1)*slot])
			clear(dst.B[i*slot : (i+1)*slot])
			if i%2 == 0 {
				a.Post(Write(id, dst.At(i*slot), src.Part(i*slot, size)))
				continue
			}
			b.PostRecv(id)
			a.Post(WriteImm(id, dst.At(i*slot), uint32(i), src.Part(i*slot, size)))
		}
		for i := range requests {
			if a.WaitSend(uint64(i)); i%2 > 0 {
				b.WaitRecv(uint64(i))
			}
		}
		if !bytes.Equal(src.B, dst.B) {
			t.Errorf("seed %d: data differ", seed)
		}
		if src.Deferred.Started == 0 || dst.Deferred.Started == 0 {
			t.Errorf("seed %d: %d and %d accesses", seed, src.Deferred.Started, dst.Deferred.Started)
		}
	}
}
