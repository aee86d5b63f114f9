package sim

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp/profile"
)

// TestServices: each verb takes its transmission and propagation times with each service that supports it, under each
// transport and with both kinds of connections. Unsupported combinations are refused.
func TestServices(t *testing.T) {
	const apart = 50 * engine.Microsecond
	for _, c := range []struct {
		service workload.Service
		verb    workload.Verb
		bytes   uint32
		want    string // text of the error
	}{
		{workload.RC, workload.WriteImm, 30_000, ""},
		{workload.RC, workload.FetchAdd, 8, ""},
		{workload.RC, workload.CmpSwap, 8, ""},
		{workload.RC, workload.CmpSwap, 9, "an atomic operation has 8 bytes, not 9"},
		{workload.UC, workload.Send, 30_000, ""},
		{workload.UC, workload.WriteImm, 30_000, ""},
		{workload.UC, workload.Read, 1, "UC supports only send and write_imm"},
		{workload.UD, workload.Send, 1000, ""},
		{workload.UD, workload.Send, 1001, "message of 1001 bytes: UD carries at most the MTU, 1000"},
		{workload.UD, workload.WriteImm, 1, "UD supports only send"},
	} {
		for _, name := range profile.Complete() {
			t.Run(fmt.Sprint(c.service, c.verb, c.bytes, name), func(t *testing.T) {
				for _, persistent := range []bool{false, true} {
					ps := []workload.Planned{{At: 0, Src: 0, Dst: 3, Bytes: c.bytes}, {At: apart, Src: 0, Dst: 3, Bytes: c.bytes}}
					s, err := New(Config{Graph: clos(t), Profile: name, Spec: wide[name], Persistent: persistent, Check: true, Switch: losslessSwitch,
						Apps: []workload.App{&workload.OpenLoop{Verb: c.verb, Service: c.service, Next: workload.List(ps)}}})
					if err != nil {
						t.Fatal(err)
					}
					r, err := s.Run()
					if err != nil || c.want != "" {
						if err == nil || c.want == "" || !strings.Contains(err.Error(), c.want) {
							t.Fatalf("got %v, want %q", err, c.want)
						}
						return
					}
					if len(r.Flows) != 2 {
						t.Fatalf("%d messages", len(r.Flows))
					}
					for _, f := range r.Flows {
						if f.Slowdown > 1.05 && !(name == "mp-rdma" && f.ID > 0) { // its window shrinks while a connection idles (MP-RDMA 3.2)
							t.Errorf("message %d took %v, %v in an empty network", f.ID, f.FCT, f.Ideal)
						}
						if c.service != workload.RC && f.FCT > f.Ideal+engine.Microsecond {
							t.Errorf("message %d took %v: there is no acknowledgement to wait for", f.ID, f.FCT)
						}
					}
				}
			})
		}
	}
}

// TestWritesOnly: mrc carries writes, and refuses other verbs with an error.
func TestWritesOnly(t *testing.T) {
	for verb, ok := range map[workload.Verb]bool{workload.Write: true, workload.WriteImm: true, workload.Send: false, workload.Read: false} {
		s, err := New(Config{Graph: clos(t), Profile: "mrc", Check: true, Switch: losslessSwitch, Apps: []workload.App{
			&workload.OpenLoop{Verb: verb, Next: workload.List([]workload.Planned{{Src: 0, Dst: 3, Bytes: 30_000}})}}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Run()
		if ok && (err != nil || len(r.Flows) != 1) || !ok && (err == nil || !strings.Contains(err.Error(), "only write and write_imm")) {
			t.Errorf("%v: %v", verb, err)
		}
	}
}

// TestSilentLoss: UC and UD lose exactly the messages with a lost packet, without an error.
func TestSilentLoss(t *testing.T) {
	for _, service := range []workload.Service{workload.UC, workload.UD} {
		for _, persistent := range []bool{false, true} {
			const messages = 100
			var ps []workload.Planned
			for i := range messages {
				ps = append(ps, workload.Planned{At: engine.Time(i) * engine.Microsecond, Src: 0, Dst: 1, Bytes: 900})
			}
			s, err := New(Config{Graph: fabric.Pair(w100, false), Profile: "rc", Persistent: persistent, Check: true,
				Apps:   []workload.App{&workload.OpenLoop{Verb: workload.Send, Service: service, Next: workload.List(ps)}},
				Faults: map[string][]string{"h0-h1": {"tx drop p=0.2 seed=5"}}})
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Run()
			lost := 0
			for _, n := range r.Drops {
				lost += int(n)
			}
			if !errors.Is(err, ErrUnfinished) || lost < 5 || r.Unfinished != lost || len(r.Flows) != messages-lost || r.Failed != 0 {
				t.Errorf("service %d, persistent %v: %d messages came, %d are unfinished, %d failed, %d packets lost: %v",
					service, persistent, len(r.Flows), r.Unfinished, r.Failed, lost, err)
			}
			for i, f := range r.Flows {
				if f.Start != ps[f.ID].At || i > 0 && f.ID <= r.Flows[i-1].ID {
					t.Errorf("message %d began at %v and came after %d", f.ID, f.Start, r.Flows[max(i-1, 0)].ID)
				}
			}
		}
	}
}
