package sim_test

import (
	"os"
	"testing"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/scenario"
)

// BenchmarkConWeave runs configs/sim/ns3-conweave.yaml: millions of link transmissions a second.
func BenchmarkConWeave(b *testing.B) {
	const file = "../../configs/sim/ns3-conweave.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	for name, set := range map[string][]string{
		"rc+dcqcn+pfc": {"workload.0.until=1ms"},
	} {
		b.Run(name, func(b *testing.B) {
			var sent uint64
			for b.Loop() {
				f, err := scenario.Read(file, text, set)
				if err != nil {
					b.Fatal(err)
				}
				c, err := f.Config(nil)
				if err != nil {
					b.Fatal(err)
				}
				s, err := sim.New(c)
				if err != nil {
					b.Fatal(err)
				}
				r, err := s.Run()
				if err != nil {
					b.Fatal(err)
				}
				sent += r.Transmissions
			}
			b.ReportMetric(float64(sent)/1e6/b.Elapsed().Seconds(), "Mlinks/s")
		})
	}
}
