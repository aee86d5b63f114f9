package rocev2_test

import (
	"encoding/binary"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/nictest"
)

// TestClasses: data, acknowledgements, NAKs and notifications have the traffic classes of the configuration, although congestion
// control asks for other ECN bits. A packet with a class of its own is no part of a super-frame.
func TestClasses(t *testing.T) {
	for gid, algorithm := range map[uint8]string{nictest.GIDIPv4: "dcqcn", nictest.GIDIPv6: "none"} {
		kinds, lose := map[string]map[byte]int{}, true
		hook := func(f *nictest.Flight) nictest.Fate {
			var p bth.Packet
			if !f.RoCE(&p) {
				return nictest.Fate{}
			}
			kind := "data"
			switch {
			case p.Opcode.IsCNP():
				kind = "CNP"
			case p.Opcode.IsAck() && p.AETH.Syndrome.IsACK():
				kind = "ACK"
			case p.Opcode.IsAck():
				kind = "NAK"
			}
			if kinds[kind] == nil {
				kinds[kind] = map[byte]int{}
			}
			kinds[kind][tos(f.Frame)]++
			if kind == "data" {
				markCE(f.Frame)
				if lose && p.PSN.Uint32() == 9 {
					lose = false
					return nictest.Fate{Drop: true}
				}
			}
			return nictest.Fate{}
		}
		p := nictest.New(t, nictest.Options{Seed: 1, Hook: hook, Rate: 10e9, Busy: true, Offload: link.Offload{MaxSegments: 64, MaxBytes: 65535},
			Config: func(c *rocev2.Config) {
				with(algorithm, nil)(c)
				c.CNPClass, c.ACKClass, c.NAKClass = rocev2.ClassOf(48, 1), rocev2.ClassOf(10, 2), rocev2.ClassOf(12, 0)
				c.OwnECN = true
			}})
		a, b := p.RC(func(o *nictest.QPOptions) {
			o.GID, o.AV = gid, func(av *rocev2.AddressVector) { av.TrafficClass = 24<<2 | 1 }
		})
		src, dst := p.A.Buffer(256<<10), p.B.Buffer(256<<10)
		for i := range 4 {
			a.Post(nictest.Write(1, dst.At(i<<16), src.Part(i<<16, 1<<16)))
			b.Post(nictest.Write(2, src.At(i<<16), dst.Part(i<<16, 1<<16)))
		}
		for range 4 {
			a.WaitSend(1)
			b.WaitSend(2)
		}
		for kind, want := range map[string]byte{"data": 24<<2 | 1, "ACK": 10<<2 | 2, "NAK": 12 << 2, "CNP": 48<<2 | 1} {
			if len(kinds[kind]) != 1 || kinds[kind][want] == 0 {
				t.Errorf("traffic classes of %s with GID %d: %v, want only %#x", kind, gid, kinds[kind], want)
			}
		}
	}
}

// TestBucket: the bytes on the wire within any time never exceed rate and burst by more than a frame, and the rate is reached.
func TestBucket(t *testing.T) {
	const rate, burst = 1e9, 32 << 10
	var begin, end mono.Time
	bytes := 0
	hook := func(f *nictest.Flight) nictest.Fate {
		if f.From.Name != "a" {
			return nictest.Fate{}
		}
		if bytes == 0 {
			begin = f.At
		}
		end = f.At
		bytes += len(f.Frame) + link.Overhead
		if most := burst + 4200 + float64(f.At.Sub(begin))*rate/8e9; float64(bytes) > most {
			t.Errorf("%d bytes after %v, at most %.0f", bytes, f.At.Sub(begin), most)
		}
		return nictest.Fate{}
	}
	p := nictest.New(t, nictest.Options{Seed: 1, Hook: hook, Config: func(c *rocev2.Config) {
		if c.Name == "rxe_a" {
			c.Bucket = new(sched.Bucket)
			c.Bucket.SetRate(rate, burst)
		}
	}})
	// Two queue pairs share the bucket, which also delays acknowledgements.
	a, _ := p.RC(nictest.Option(func(o *nictest.QPOptions) { o.MTU = 5 }))
	c, d := p.RC()
	src, dst := p.A.Buffer(1<<20), p.B.Buffer(1<<20)
	a.Post(nictest.Write(1, dst.At(0), src.SGE()))
	c.Post(nictest.Write(2, dst.At(0), src.SGE()))
	d.Post(nictest.Write(3, src.At(0), dst.SGE()))
	a.WaitSend(1)
	c.WaitSend(2)
	d.WaitSend(3)
	if got := float64(bytes-burst) * 8e9 / float64(end.Sub(begin)); got < 0.99*rate || got > 1.01*rate {
		t.Errorf("rate %.0f bit/s, want %.0f", got, rate)
	}
	if p.A.NIC.NextTimeout() < end {
		t.Error("an idle NIC waits for its bucket")
	}
}

// TestChosenNumbers: a queue pair has the number, UDP source port and key that its owner has chosen. Numbers are unique;
// keys are so only in a protection domain.
func TestChosenNumbers(t *testing.T) {
	ports := map[uint16]int{}
	hook := func(f *nictest.Flight) nictest.Fate {
		var p bth.Packet
		if f.RoCE(&p) {
			ports[binary.BigEndian.Uint16(f.Frame[34:])]++
		}
		return nictest.Fate{}
	}
	p := nictest.New(t, nictest.Options{Seed: 1, Hook: hook})
	a, b := p.RC(func(o *nictest.QPOptions) {
		o.Num, o.AV = 2, func(av *rocev2.AddressVector) { av.SourcePort = 777 }
	})
	if a.Num() != 2 || b.Num() != 2 {
		t.Fatalf("numbers %d and %d, want 2", a.Num(), b.Num())
	}
	attr := rocev2.QPAttr{Type: qp.RC, PD: p.A.PD, SendCQ: a.SendCQ.CQ, RecvCQ: a.RecvCQ.CQ, SQ: a.SQ, RQ: a.RQ}
	for _, attr.Num = range []bth.QPN{1, 2, bth.MaxQPN, bth.MaxQPN + 1} {
		if _, err := p.A.NIC.CreateQP(attr); err == nil {
			t.Errorf("a second queue pair %d", attr.Num)
		}
	}
	src, dst := p.A.Buffer(4096), p.B.Buffer(4096)
	dst.Fill(1)
	src.Fill(2)
	p.B.PD.Name(0, dst.MR)
	to := dst.At(0)
	to.RKey = 0
	a.Post(nictest.Write(1, to, src.SGE()))
	a.WaitSend(1)
	if string(src.B) != string(dst.B) || ports[777] < 2 || len(ports) != 1 {
		t.Errorf("the data has not arrived, or source ports %v", ports)
	}
	if err := p.A.NIC.DestroyQP(a.QueuePair); err != nil {
		t.Fatal(err)
	}
	if attr.Num = 2; attr.Num != bth.MRCEndpointQPN {
		t.Error("2 is not the number of MRC's endpoint operations")
	}
	if _, err := p.A.NIC.CreateQP(attr); err != nil {
		t.Errorf("number 2 is not free again: %v", err)
	}
}
