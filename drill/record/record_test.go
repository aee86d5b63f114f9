package record

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/drill/dut"
	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
)

const captures = "../../bth/testdata/"

// recorded returns the script of each queue pair of a capture that can be recorded.
func recorded(t *testing.T, path string) map[Device]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := read(bytes.NewReader(b), false)
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[Device]string{}
	for _, s := range c.streams {
		if s.Transport != "RC" && s.Transport != "UC" {
			continue
		}
		d := Device{QPN: uint64(s.QPN), Addr: s.Dst}
		if scripts[d], err = Script(bytes.NewReader(b), filepath.Base(path), d); err != nil {
			t.Fatal(path, d, err)
		}
	}
	return scripts
}

// TestCaptures records both ends of every capture of rdma_rxe. Every script runs on our NIC, and those of undisturbed
// connections pass.
func TestCaptures(t *testing.T) {
	passes := map[string]int{"rc_send.pcap": 2, "rc_write.pcap": 2, "rc_writeimm.pcap": 2, "rc_read.pcap": 2, "rc_atomic.pcap": 2, "rc_mixed.pcap": 2,
		"rc_psnwrap_write.pcap": 2, "rc_srq.pcap": 2, "uc_write.pcap": 1, "pp_rc.pcap": 2}
	paths, err := filepath.Glob(captures + "*.pcap")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		passed := 0
		for d, text := range recorded(t, path) {
			s, err := script.Parse(name, text)
			if err != nil {
				t.Errorf("%s: queue pair %v: %v\n%s", name, d, err, text)
				continue
			}
			r, err := dut.Virtual{}.Run(t.Context(), s, 1)
			switch {
			case err != nil || r.Outcome == engine.BadScript || r.Outcome == engine.Broken:
				t.Errorf("%s: queue pair %v: %v %+v", name, d, err, r)
			case r.Outcome == engine.Passed:
				passed++
			case passes[name] > 0:
				t.Errorf("%s: queue pair %v: line %d: %s", name, d, r.Pos.Line, r.Text)
				if testing.Verbose() {
					t.Log(text)
				}
			}
		}
		if passed < passes[name] {
			t.Errorf("%s: %d scripts pass, want %d", name, passed, passes[name])
		}
	}
}

// TestErrors: a queue pair that the capture does not have, and transports that cannot be recorded.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		capture string
		qpn     uint64
		want    string
	}{
		{"rc_send.pcap", 0x777, "no packet goes to queue pair 0x777; the capture has 0x"},
		{"ud_send.pcap", 0x11, "only those of RC and UC can be recorded"},
	} {
		b, err := os.ReadFile(captures + c.capture)
		if err != nil {
			t.Fatal(err)
		}
		if c.qpn == 0x11 {
			all, err := read(bytes.NewReader(b), false)
			if err != nil {
				t.Fatal(err)
			}
			c.qpn = uint64(all.streams[0].QPN)
		}
		if _, err := Script(bytes.NewReader(b), c.capture, Device{QPN: c.qpn}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.capture, err, c.want)
		}
	}
	if _, err := Script(strings.NewReader("no capture"), "x", Device{}); err == nil {
		t.Error("a file that is no capture is accepted")
	}
}
