package fault

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

var opNames = map[string]bth.Opcode{
	"first": bth.OpSendFirst, "middle": bth.OpSendMiddle, "send": bth.OpSendOnly, "write": bth.OpWriteOnly,
	"read": bth.OpReadRequest, "readresp": bth.OpReadRespMiddle, "ack": bth.OpAcknowledge, "atomic": bth.OpFetchAdd,
	"atomicack": bth.OpAtomicAck, "cnp": bth.OpcodeCNP,
	"mrc-first": bth.TransportMRC | bth.OpWriteFirst, "mrc-last": bth.TransportMRC | bth.OpWriteLast, "mrc-imm": bth.TransportMRC | bth.OpWriteOnlyImm,
	"mrc-ack": bth.TransportMRC | bth.OpAcknowledge, "mrc-sack": bth.OpcodeMRCSACK, "mrc-probe": bth.OpcodeMRCProbe,
}

// TestGolden runs the scripts in testdata. Commands:
//
//	rules            the lines are rules; an error is printed
//	frames [now=1ms] [hex] the lines are "dir op [qpn=] [psn=] [syndrome=] [port=] [v6] [arp] [stamped] [vlan] [options] [checksum] [payload=]";
//	                 hex: frames that a rule acted on are printed
//	release now=2ms  prints the due frames
//	stats            counters of the rules
func TestGolden(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.HasArg("now") {
				var v string
				d.ScanArgs(t, "now", &v)
				dur, err := time.ParseDuration(v)
				if err != nil {
					t.Fatal(err)
				}
				s.now = mono.Time(dur)
			}
			return s.run(t, d)
		})
	})
}

type script struct {
	e   Engine
	hex bool
	now mono.Time
	out strings.Builder
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	switch d.Cmd {
	case "rules":
		var rules []Rule
		for _, l := range lines(d.Input) {
			r, err := Parse(l)
			if err != nil {
				return err.Error() + "\n"
			}
			rules = append(rules, r)
		}
		if err := s.e.SetRules(rules); err != nil {
			return err.Error() + "\n"
		}
	case "frames":
		s.hex = d.HasArg("hex")
		for _, l := range lines(d.Input) {
			s.frame(t, l)
		}
	case "release":
		s.release()
	case "stats":
		for _, r := range s.e.RuleStats() {
			fmt.Fprintf(&s.out, "%v: matched %d, hit %d\n", r.Rule, r.Matched, r.Hit)
		}
		fmt.Fprintf(&s.out, "held %d\n", s.e.Stats().Held)
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	if s.out.Len() == 0 {
		return "ok\n"
	}
	return s.out.String()
}

func lines(s string) (out []string) {
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// frame processes the frame of line l.
func (s *script) frame(t *testing.T, l string) {
	w := strings.Fields(l)
	p := packet{dir: Dir(w[0]), op: opNames[w[1]], syndrome: byte(bth.SyndromeACK), payload: 8}
	for _, w := range w[2:] {
		key, v, _ := strings.Cut(w, "=")
		n, err := uint64(0), error(nil)
		if v != "" {
			n, err = number(v, 32)
		}
		switch key {
		case "qpn":
			p.qpn = uint32(n)
		case "psn":
			p.psn = uint32(n)
		case "syndrome":
			p.syndrome = byte(n)
		case "port":
			p.port = uint16(n)
		case "payload":
			p.payload = int(n)
		case "v6":
			p.v6 = true
		case "stamped":
			p.stamped = true
		case "vlan":
			p.vlan = true
		case "options":
			p.options = true
		case "checksum":
			p.checksum = true
		default:
			err = fmt.Errorf("unknown word")
		}
		if err != nil {
			t.Fatalf("%q: %v", w, err)
		}
	}
	f := p.build()
	if w[1] == "arp" {
		f = append(make([]byte, 12), 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	}
	v := s.e.Process(s.now, p.dir, f)
	fmt.Fprintf(&s.out, "%s: x%d", l, v.Copies)
	if v.Comment != "" {
		fmt.Fprintf(&s.out, " %s", v.Comment)
	}
	s.out.WriteByte('\n')
	if s.hex && v.Comment != "" {
		s.headers(v.Frame)
	}
	s.release()
}

// headers prints a frame: Ethernet, IP, UDP, and the rest.
func (s *script) headers(f []byte) {
	var v view
	v.parse(rx, f)
	for _, part := range [][]byte{f[:v.l3], f[v.l3 : v.bth-udpLen], f[v.bth-udpLen : v.bth], f[v.bth:]} {
		fmt.Fprintf(&s.out, "    %x\n", part)
	}
}

// release prints the due frames.
func (s *script) release() {
	for _, d := range []Dir{Rx, Tx} {
		for {
			f, ok := s.e.Release(s.now, d)
			if !ok {
				break
			}
			var v view
			v.parse(rx, f)
			fmt.Fprintf(&s.out, "  released %s %v psn %v at %v\n", d, v.op, v.psn, time.Duration(s.now))
		}
	}
}
