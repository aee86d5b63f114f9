package fault

import (
	"testing"

	"github.com/cilium/ebpf"

	"roced.io/roced/internal/base/fault"
)

// BenchmarkProgram is the bare program, by what the rule makes it do.
func BenchmarkProgram(b *testing.B) {
	p := load(b)
	frame := make([]byte, 1082)
	frame[12], frame[14], frame[23] = 8, 0x45, 17
	frame[36], frame[37] = 4791>>8, 4791&0xff
	frame[38], frame[39] = (1082-34)>>8, (1082-34)&0xff
	for name, text := range map[string]string{
		"no rule": "", "another direction": "rx drop", "another queue pair": "tx drop qpn=1", "another PSN": "tx drop psn=7",
		"counts transmissions": "tx drop qpn=0 psn=+5 n=9",
	} {
		b.Run(name, func(b *testing.B) {
			var rules []fault.Rule
			if text != "" {
				r, err := fault.Parse(text)
				if err != nil {
					b.Fatal(err)
				}
				rules = append(rules, r)
			}
			if err := p.SetRules(rules); err != nil {
				b.Fatal(err)
			}
			if _, err := p.objs.FaultTx.Run(&ebpf.RunOptions{Data: frame, Repeat: uint32(b.N)}); err != nil {
				b.Fatal(err)
			}
		})
	}
}
