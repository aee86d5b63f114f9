package rocev2_test

import (
	"encoding/binary"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/nictest"
)

const (
	ect0 = 2
	ce   = 3
)

// tos returns the traffic class of an IPv4 or IPv6 frame.
func tos(frame []byte) byte {
	if frame[14]>>4 == 4 {
		return frame[15]
	}
	return frame[14]<<4 | frame[15]>>4
}

// markCE marks an ECN-capable frame like a congested switch (RFC 3168).
func markCE(frame []byte) {
	if frame[14]>>4 == 6 {
		frame[15] |= ce << 4
		return
	}
	frame[15] |= ce
	h := frame[14:34]
	h[10], h[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum+sum>>16))
}

// with sets the congestion control of new queue pairs.
func with(algorithm string, p ccalgo.Params) func(*rocev2.Config) {
	return func(c *rocev2.Config) {
		c.CNPClass = rocev2.ClassOf(48, 0)
		c.NewProfile = func(name string) (qp.Profile, error) {
			prof, err := rocev2.NewProfile(name)
			if err != nil {
				return prof, err
			}
			prof.Controller, err = ccalgo.New(algorithm, p)
			return prof, err
		}
	}
}

// seen holds observations of congestion control on the wire.
type seen struct {
	data, ect   int // requests and READ responses; those that are ECN-capable
	echoes      int // acknowledgements with BECN
	cnps        []mono.Time
	cnpTOS      byte
	mark        bool          // mark all frames with CE from now on
	from        *nictest.Node // whose data is observed, nil: all
	badCNPFrame bool
}

func (s *seen) hook(f *nictest.Flight) nictest.Fate {
	var p bth.Packet
	if !f.RoCE(&p) {
		return nictest.Fate{}
	}
	switch {
	case p.Opcode.IsCNP():
		s.cnps, s.cnpTOS = append(s.cnps, f.At), tos(f.Frame)
		s.badCNPFrame = s.badCNPFrame || !p.BECN || p.PSN.Uint32() != 0 || len(p.Payload) != 16
	case s.from != nil && f.From != s.from:
	case p.Opcode.IsRequest(), p.Opcode.IsReadResponse():
		s.data++
		if tos(f.Frame)&3 == ect0 {
			s.ect++
			if s.mark {
				markCE(f.Frame)
			}
		}
	case p.BECN:
		s.echoes++
	}
	return nictest.Fate{}
}

// TestMarksBecomeCNPs: the receiver of marked requests or READ responses sends at most one CNP per 50 us. The sender
// receives it and lowers its rate.
func TestMarksBecomeCNPs(t *testing.T) {
	for _, c := range []struct {
		name string
		gid  uint8
		read bool
	}{{"write", nictest.GIDIPv4, false}, {"read", nictest.GIDIPv4, true}, {"IPv6", nictest.GIDIPv6, false}} {
		t.Run(c.name, func(t *testing.T) {
			s := &seen{mark: true}
			p := nictest.New(t, nictest.Options{Seed: 1, Hook: s.hook, Rate: 10e9, Config: with("dcqcn", ccalgo.Params{"line_rate_bps": 10e9}),
				Offload: link.Offload{MaxSegments: 16, MaxBytes: 65535}})
			a, b := p.RC(func(o *nictest.QPOptions) { o.GID = c.gid })
			src, dst := p.A.Buffer(256<<10), p.B.Buffer(256<<10)
			dst.Fill(3)
			sender, notifier, w := a, p.B, nictest.Write(1, dst.At(0), src.SGE())
			if c.read {
				sender, notifier, w = b, p.A, nictest.Read(1, dst.At(0), src.SGE())
			}
			s.from = sender.Node
			a.Post(w)
			a.WaitSend(1)
			p.Run(time.Millisecond) // the last CNP arrives
			if string(src.B) != string(dst.B) {
				t.Fatal("the data has changed")
			}
			sent, got := notifier.Counter("np_cnp_sent"), sender.Node.Counter("rp_cnp_handled")
			if sent < 2 || got != sent || int(sent) != len(s.cnps) || s.badCNPFrame {
				t.Errorf("%d CNPs sent, %d handled, %d on the wire; malformed: %v", sent, got, len(s.cnps), s.badCNPFrame)
			}
			if n := notifier.Counter("np_ecn_marked_roce_packets"); n != uint64(s.data) {
				t.Errorf("%d marked packets of %d", n, s.data)
			}
			for i := 1; i < len(s.cnps); i++ {
				if d := s.cnps[i].Sub(s.cnps[i-1]); d < 50*time.Microsecond {
					t.Errorf("two CNPs within %v", d)
				}
			}
			if s.ect != s.data || s.cnpTOS != 48<<2 {
				t.Errorf("%d of %d packets ECN-capable; traffic class of CNPs %#x", s.ect, s.data, s.cnpTOS)
			}
			if i, _ := sender.Node.NIC.QueryQP(sender.QueuePair); i.Rate > 5e9 {
				t.Errorf("the rate is %d", i.Rate)
			}
		})
	}
}

// TestMarksAreEchoed: acknowledgements report marks to a sender that learns from windows.
func TestMarksAreEchoed(t *testing.T) {
	s := &seen{}
	p := nictest.New(t, nictest.Options{Seed: 1, Hook: s.hook, Rate: 10e9, Config: with("dctcp", nil)})
	a, _ := p.RC()
	src, dst := p.A.Buffer(1<<20), p.B.Buffer(1<<20)
	window := func() uint64 {
		i, err := p.A.NIC.QueryQP(a.QueuePair)
		if err != nil {
			t.Fatal(err)
		}
		return i.Window
	}
	a.Post(nictest.Write(1, dst.At(0), src.SGE()))
	a.WaitSend(1)
	before := window()
	if s.echoes != 0 || before <= 10*1024 {
		t.Fatalf("%d echoes without marks, window %d", s.echoes, before)
	}
	s.mark = true
	for range 16 {
		a.Post(nictest.Write(2, dst.At(0), src.SGE()))
		a.WaitSend(2)
	}
	if s.echoes == 0 || window() > 10*1024 {
		t.Errorf("%d echoes, window %d, before the marks %d", s.echoes, window(), before)
	}
}

// TestNothingIsMarkedUnasked: without congestion control, and for datagrams, no packet is ECN-capable. The user's
// choice of ECN bits is kept.
func TestNothingIsMarkedUnasked(t *testing.T) {
	s := &seen{mark: true}
	p := nictest.New(t, nictest.Options{Seed: 1, Hook: s.hook})
	a, _ := p.RC()
	src, dst := p.A.Buffer(4096), p.B.Buffer(4096)
	a.Post(nictest.Write(1, dst.At(0), src.SGE()))
	a.WaitSend(1)
	if s.data == 0 || s.ect != 0 || len(s.cnps) != 0 {
		t.Errorf("%+v", s)
	}
	a, _ = p.RC(func(o *nictest.QPOptions) {
		o.AV = func(av *rocev2.AddressVector) { av.TrafficClass = 26<<2 | ect0 }
	})
	a.Post(nictest.Write(2, dst.At(0), src.SGE()))
	a.WaitSend(2)
	if s.ect == 0 || len(s.cnps) != 1 || p.A.Counter("rp_cnp_handled") != 1 {
		t.Errorf("with a traffic class of the user: %+v", s)
	}
}

// TestPacingIsExact: paced packets, requests and READ responses alike, leave within a nanosecond of their schedule,
// for schedules of any length.
func TestPacingIsExact(t *testing.T) {
	for _, read := range []bool{false, true} {
		for _, rate := range []uint64{7_777_777, 1e9, 33_333_333_333} {
			bits, began, first := uint64(0), false, mono.Time(0)
			hook := func(f *nictest.Flight) nictest.Fate {
				var p bth.Packet
				if !f.RoCE(&p) || read != p.Opcode.IsReadResponse() || !read && !p.Opcode.IsRequest() {
					return nictest.Fate{}
				}
				if !began {
					began, first = true, f.At
				}
				due := first.Add(time.Duration(bits / rate * 1e9)).Add(time.Duration(bits % rate * 1e9 / rate))
				if d := f.At.Sub(due); d < -1 || d > 1 {
					t.Errorf("read %v at %d bit/s: bit %d leaves %v after its schedule", read, rate, bits, d)
				}
				bits += uint64(len(f.Frame)) * 8
				return nictest.Fate{}
			}
			p := nictest.New(t, nictest.Options{Seed: 1, Hook: hook, Config: with("static", ccalgo.Params{"rate_bps": float64(rate)})})
			a, _ := p.RC(func(o *nictest.QPOptions) { o.Timeout = 18 })
			src, dst := p.A.Buffer(1<<20), p.B.Buffer(1<<20)
			if read {
				a.Post(nictest.Read(1, dst.At(0), src.SGE()))
			} else {
				a.Post(nictest.Write(1, dst.At(0), src.SGE()))
			}
			a.WaitSend(1)
			if bits < 8<<20 {
				t.Errorf("%d bits have been sent", bits)
			}
		}
	}
}
