package sim

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/internal/observe/trace"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp/profile"
)

// tally counts the packets that enter a link, and passes them on.
type tally struct {
	k    *nic.Cluster
	next fabric.Tap
	seen []bth.Packet
}

func (y *tally) Sent(now engine.Time, l *fabric.Link, d *fabric.Packet) {
	p, _, _ := y.k.Packet(d)
	y.seen = append(y.seen, *p)
	y.next.Sent(now, l, d)
}

// TestCapture: the simulator carries the packets of the wire. Each frame of a capture has a valid ICRC and decodes to
// the packet sent.
func TestCapture(t *testing.T) {
	for _, name := range profile.Complete() {
		s, err := New(Config{Graph: clos(t), Switch: losslessSwitch, Profile: name, Seed: 3, Apps: []workload.App{
			&workload.OpenLoop{Verb: workload.Send, Next: workload.List([]workload.Planned{{Src: 0, Dst: 3, Bytes: 20_001}})},
			&workload.OpenLoop{Verb: workload.Read, Next: workload.List([]workload.Planned{{Src: 3, Dst: 0, Bytes: 9_999}})},
		}})
		if err != nil {
			t.Fatal(err)
		}
		ls, err := s.Cluster().Network().Named("h0-leaf0")
		if err != nil {
			t.Fatal(err)
		}
		l := ls[0]
		l.Lose(0.05)
		var file bytes.Buffer
		failed, err := s.CaptureTo(&file, l)
		if err != nil {
			t.Fatal(err)
		}
		y := &tally{k: s.Cluster(), next: l.Tap}
		l.Tap = y
		if _, err := s.Run(); err != nil || failed() != nil {
			t.Fatal(err, failed())
		}
		r, err := pcapng.NewReader(&file)
		if err != nil {
			t.Fatal(err)
		}
		var f pcapng.Frame
		n := 0
		for ; ; n++ {
			if err := r.Next(&f); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			ip := f.Data[14:]
			if err := bth.CheckICRC(ip); err != nil {
				t.Fatalf("%s, frame %d: %v", name, n, err)
			}
			d, ok := bth.ReadDatagram(bth.EtherType(ip), ip)
			if !ok {
				t.Fatalf("%s, frame %d is no RoCEv2", name, n)
			}
			var p bth.Packet
			if err := p.Decode(ip[d.UDP+bth.UDPLen : d.End]); err != nil {
				t.Fatalf("%s, frame %d: %v", name, n, err)
			}
			if got, want := p.AppendTo(nil), y.seen[n].AppendTo(nil); !bytes.Equal(got, want) {
				t.Fatalf("%s, frame %d:\n%x\n%x", name, n, got, want)
			}
		}
		if n != len(y.seen) || n < 20 {
			t.Errorf("%s: %d frames of %d packets", name, n, len(y.seen))
		}
	}
}

// TestTrace: a queue pair's events have the daemon's format.
func TestTrace(t *testing.T) {
	var file bytes.Buffer
	var finish func() error
	var s *Simulation
	c := Config{Graph: clos(t), Switch: losslessSwitch, Profile: "irn", Apps: planned(workload.Planned{Src: 0, Dst: 3, Bytes: 20_000_000}),
		Opened: func(first, _ *nic.QP, _ *workload.Flow) { finish = s.TraceTo(&file, first) }}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(); err != nil {
		t.Fatal(err)
	}
	if err := finish(); err != nil {
		t.Fatal(err)
	}
	tr, err := trace.Read(&file)
	if err != nil || tr.Lost != 0 || len(tr.Records) < 40_000 || tr.Start.NIC != "h0" {
		t.Fatalf("%v, %d events, %d lost, %+v", err, len(tr.Records), tr.Lost, tr.Start)
	}
}
