package dut

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
)

// suite calls f in a subtest for each script of the suite. The name of a subtest is the path of its script without extension.
func suite(t *testing.T, f func(t *testing.T, s *script.Script)) {
	const root, ext = "../suite", ".drill"
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ext {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		name := strings.TrimSuffix(strings.TrimPrefix(path, root+"/"), ext)
		t.Run(name, func(t *testing.T) {
			s, err := script.Parse(path, string(text))
			if err != nil {
				t.Fatal(err)
			}
			f(t, s)
		})
		return nil
	})
	if err != nil || n == 0 {
		t.Fatalf("%d scripts: %v", n, err)
	}
}

// TestSuite runs every script on the virtual clock, with PSNs that do not wrap and with PSNs that do.
func TestSuite(t *testing.T) {
	suite(t, func(t *testing.T, s *script.Script) {
		for seed := range uint64(4) {
			r, err := Virtual{}.Run(t.Context(), s, seed)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome != engine.Passed {
				for _, x := range r.Log {
					t.Log(x.At, x.Dir, x.Frame, x.Text)
				}
				t.Fatalf("seed %d: %v: %s:%d: %s", seed, r.Outcome, s.Path, r.Pos.Line, r.Text)
			}
		}
	})
}

// TestPaths runs every script by IPv6 and in a VLAN, except those about IPv4, the IP header, or frames without a tag.
func TestPaths(t *testing.T) {
	for name, c := range map[string]struct {
		traffic Traffic
		except  []string
	}{
		"IPv4": {Traffic{IP: 4}, []string{"checks/udp/wrong_checksum6", "congestion/cnp/ipv6", "requester/header/ipv6", "responder/accept/ipv6",
			"responder/drop/second_address6", "responder/drop/source6", "ud/requester/group6_addresses", "ud/requester/ipv6", "ud/responder/grh6", "ud/responder/group6"}},
		"IPv6": {Traffic{IP: 6, SL: 3}, []string{"checks/ip/options", "checks/padding/ethernet", "cm/active/fields", "requester/header/dont_fragment", "responder/accept/ip", "responder/drop/foreign_destination",
			"responder/drop/fragment", "responder/drop/ip_checksum", "ud/requester/group", "ud/requester/group_addresses", "ud/responder/grh4", "ud/responder/grh_whole", "ud/responder/group",
			"ud/responder/group_attach", "ud/responder/group_detached", "ud/responder/group_fault", "ud/responder/group_member", "ud/responder/group_others", "ud/responder/groups", "ud/responder/sources"}},
		"VLAN": {Traffic{VLAN: 100}, []string{"checks/vlan/priority_tag"}},
	} {
		t.Run(name, func(t *testing.T) {
			var none []string
			suite(t, func(t *testing.T, s *script.Script) {
				r, err := Virtual{Traffic: c.traffic}.Run(t.Context(), s, 1)
				if err != nil {
					t.Fatal(err)
				}
				switch name, _ := strings.CutSuffix(strings.TrimPrefix(s.Path, "../suite/"), ".drill"); r.Outcome {
				case engine.NotApplicable:
					none = append(none, name)
				case engine.Passed:
				default:
					t.Errorf("%v: %s:%d: %s", r.Outcome, s.Path, r.Pos.Line, r.Text)
				}
			})
			if !slices.Equal(none, c.except) {
				t.Errorf("not applicable: %q", none)
			}
		})
	}
}

// TestDeadDevice: every script fails against a device whose agent answers, but which neither receives nor sends. A script
// that expects silence has to show that the device lives.
func TestDeadDevice(t *testing.T) {
	suite(t, func(t *testing.T, s *script.Script) {
		r, err := Virtual{dead: true}.Run(t.Context(), s, 0)
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome != engine.Failed {
			t.Errorf("%s: %v", s.Path, r.Outcome)
		}
	})
}

// TestMemory: values, regions, queues and packets of a script share its memory.
func TestMemory(t *testing.T) {
	const head = "spec \"x\" policy\nneed rc\nqp = dut.qp rc rqpsn=Q\n"
	run := func(body string, memory uint64) (*engine.Result, error) {
		s, err := script.Parse("x", head+body+"\n")
		if err != nil {
			t.Fatal(err)
		}
		return Virtual{Memory: memory}.Run(t.Context(), s, 0)
	}
	for body, want := range map[string]string{
		"m = dut.mr size=1000000000000":                 "dut.mr needs 1000016777216 bytes",
		"m = dut.mr size=18446744073709551615":          "more than 1073741824 bytes need --force",
		"c = dut.cq size=1000000000":                    "dut.cq needs",
		"s = dut.srq size=100000000000":                 "dut.srq needs",
		"q = dut.qp rc rsize=1000000000":                "dut.qp needs",
		"d = count(1024)\nfor i in 0..99 { d = d + d }": "together exceed 16777216",
	} {
		if r, err := run(body, 0); err != nil || r.Outcome != engine.BadScript || !strings.Contains(r.Text, want) {
			t.Errorf("%s: %v, %+v", body, err, r)
		}
	}
	for body, want := range map[string]string{
		"for i in 0..9999 { m = dut.mr size=1000 }":                      "dut.mr needs 2000 bytes",
		"a = count(200000)\nb = count(200000)\nc = a + b\nd = c + c":     "d needs 800000 bytes",
		"for i in 0..9999999 { < SEND_ONLY psn=Q payload=fill(1024,1) }": "exceed 1000000 bytes; --force records more",
		"for i in 0..9999999999 { ignore ANY }":                          "the list of ignored packets needs",
		"for i in 0..9999999999 { > ? ACKNOWLEDGE }":                     "the list of optional packets needs",
	} {
		if r, err := run(body, 1_000_000); err != nil || r.Outcome != engine.BadScript || !strings.Contains(r.Text, want) {
			t.Errorf("%s: %v, %+v", body, err, r)
		}
	}
	for _, body := range []string{"for i in 0..99 {\n  m = dut.mr size=200000\n  dut.destroy m\n}", "for i in 0..99 { d = count(900000) }"} {
		if r, err := run(body, 1_000_000); err != nil || r.Outcome != engine.Passed {
			t.Errorf("%s: %v, %+v", body, err, r)
		}
	}
}

// FuzzScript: no script makes the engine or our NIC fail, and each ends.
func FuzzScript(f *testing.F) {
	for _, body := range []string{"mr = dut.mr size=64\ndut.recv qp wr=1 mr[0:64]\n< SEND_ONLY psn=Q payload=fill(64,1)\n> ACKNOWLEDGE psn=Q\ndut.cqe qp SUCCESS wr=1",
		"for i in 0..3 { x = rand(i) + hex(\"00\")\n ignore ANY }", "c = dut.cq size=0\ns = dut.srq size=0\nq = dut.qp uc size=0 rsize=0 sges=0", "wait 1h\nquiet 9h"} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		s, err := script.Parse("x", "spec \"x\" policy\nqp = dut.qp rc rqpsn=Q\n"+body)
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := (Virtual{Memory: 1 << 20}).Run(ctx, s, 0); err != nil && !errors.As(err, new(*script.Error)) && ctx.Err() == nil {
			t.Error(err)
		}
	})
}
