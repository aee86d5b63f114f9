package ns3

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/result"
)

// TestTopology: hosts are the nodes that are no switches, in the order of their IDs.
func TestTopology(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Topology
	}{
		"switches first, comment": {"4 2 3\r\n0 2\r\n0 1 100Gbps 0.001ms 0\r\n2 3 25Gb/s 1.5us 0.25\r\n0 2 400Gbps 1000ns 0.000000\r\n\r\nsrc dst\r\n",
			Topology{&fabric.Graph{Hosts: 2, Switches: []string{"s0", "s2"}, Cables: []fabric.Cable{
				{A: 2, B: 0, Rate: 100e9, Delay: engine.Microsecond},
				{A: 3, B: 1, Rate: 25e9, Delay: 1_500_000},
				{A: 2, B: 3, Rate: 400e9, Delay: engine.Microsecond}}}, []int{1, 3}, []float64{0, 0.25, 0}}},
		"switch last, one line": {"3 1 2 2 0 2 10000Kbps 7ps 1e-5 2 1 10Gbps 0s 0",
			Topology{&fabric.Graph{Hosts: 2, Switches: []string{"s2"}, Cables: []fabric.Cable{
				{A: 0, B: 2, Rate: 10e6, Delay: 7}, {A: 2, B: 1, Rate: 10e9}}}, []int{0, 1}, []float64{1e-5, 0}}},
		"several links, SimAI": {"6 2 1 1 4 H100\n5 2\n0 5 2880Gbps 1us 0\n0 2 400Gbps 1us 0\n1 2 1Gbps 0s 0\n4 3 1Gbps 0s 0\n",
			Topology{&fabric.Graph{Hosts: 4, Switches: []string{"nv5", "s2"}, Cables: []fabric.Cable{
				{A: 0, B: 4, Rate: 2880e9, Delay: engine.Microsecond}, {A: 0, B: 5, Rate: 400e9, Delay: engine.Microsecond},
				{A: 1, B: 5, Rate: 1e9}, {A: 3, B: 2, Rate: 1e9}}}, []int{0, 1, 3, 4}, make([]float64, 4)}},
		"no switch": {"2 0 1\n\n0 1 1Gbps 1us 1\n",
			Topology{&fabric.Graph{Hosts: 2, Cables: []fabric.Cable{{A: 0, B: 1, Rate: 1e9, Delay: engine.Microsecond}}}, []int{0, 1}, []float64{1}}},
	} {
		if got, err := ReadTopology(c.text); err != nil || !cmp.Equal(*got, c.want) {
			t.Errorf("%s: %v\n%s", name, err, cmp.Diff(*got, c.want))
		}
	}
}

// TestTopologyErrors: errors name the line, the value and the limits.
func TestTopologyErrors(t *testing.T) {
	const links = "0 2 100Gbps 1us 0\n1 2 100Gbps 1us 0\n"
	for text, want := range map[string]string{
		"":                                         "line 1: the file ends before the number of nodes",
		"many":                                     `line 1: number of nodes "many": must be from 2 to 65536`,
		"65537 1 1":                                `line 1: number of nodes "65537"`,
		"-3 1 1":                                   `number of nodes "-3"`,
		"3 2 2\n":                                  `line 1: number of switches "2": must be from 0 to 1`,
		"3 1 0\n":                                  `line 1: number of links "0": must be from 1 to 1048576`,
		"3 1 1048577\n":                            `number of links "1048577"`,
		"3 1 2\n3\n" + links:                       `line 2: ID of a switch "3": must be from 0 to 2`,
		"4 2 2\n2 2\n" + links:                     "line 2: switch 2 is listed twice",
		"3 1 3\n2\n" + links:                       "line 5: the file ends before the source of a link",
		"3 1 2\n2\n0 3 1Gbps 1us 0\n":              `line 3: destination of a link "3": must be from 0 to 2`,
		"3 1 2\n2\n2 2 1Gbps 1us 0\n":              "line 3: a link joins node 2 to itself",
		"3 1 2\n2\n" + links[:18] + links[:18]:     "line 4: host 1 has no link",
		"4 0 1 1 2 H100\n2 3\n" + links:            `line 1: number of GPUs per server "0": must be from 1 to 4`,
		"4 2 3 1 2 H100\n2 3\n" + links:            `line 1: number of NVSwitches "3": must be from 0 to 2`,
		"4 2 1 1 2 H100 x\n2 3\n" + links:          `line 1: number of GPUs per node "x"`,
		"4 1 2\n2\n" + links:                       "host 3 has no link",
		"3 1 2\n2\n0 2 100Gbp 1us 0\n":             `line 3: rate "100Gbp": must be a number such as 100Gbps, at most 100 Tb/s`,
		"3 1 2\n2\n0 2 101Tbps 1us 0\n":            `rate "101Tbps"`,
		"3 1 2\n2\n0 2 0Gbps 1us 0\n":              `rate "0Gbps"`,
		"3 1 2\n2\n0 2 1Gbps 2s 0\n":               `line 3: delay "2s": must be a number such as 1000ns or 0.001ms, at most 1s`,
		"3 1 2\n2\n0 2 1Gbps -1us 0\n":             `delay "-1us"`,
		"3 1 2\n2\n0 2 1Gbps 1us 1.5\n":            `line 3: error rate "1.5": must be a number such as 0.001, from 0 to 1`,
		"3 1 2\n2\n0 2 1Gbps 1us NaN\n":            `error rate "NaN"`,
		"3 1 2\n2\n0 2 " + strings.Repeat("9", 99): `rate "` + strings.Repeat("9", 40) + `"`,
	} {
		if _, err := ReadTopology(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

// some is a result with hosts of other IDs than their numbers.
var some = &result.Result{HostIDs: []int{1, 300, 7}, Flows: []result.Flow{
	{ID: 2, Src: 0, Dst: 1, Bytes: 4000, Start: 2_000_000_100_999, FCT: 5_000_999, Ideal: 4_000_000},
	{ID: 0, Src: 0, Dst: 1, Bytes: 90000, Start: 1_000_000, FCT: 3_000_000_000_000, Ideal: 9_000_000, Port: 200},
	{ID: 1, Src: 2, Dst: 1, Bytes: 50, Start: 1_000_000, FCT: 20, Ideal: 10},
}}

// TestWriteFCT: the files have the simulators' fields, in the order of completion. Addresses have the ID in the middle.
func TestWriteFCT(t *testing.T) {
	for name, c := range map[string]struct {
		conweave bool
		want     string
	}{
		"hpcc": {false, `0b000701 0b012c01 10000 100 50 1000 1 1
0b000101 0b012c01 10001 100 4000 2000000100 5000 4000
0b000101 0b012c01 10000 200 90000 1000 3000000000 9000
`},
		"conweave": {true, `7 300 10000 101 50 1000 1 1
1 300 10001 102 4000 2000000100 5000 4000
1 300 10000 200 90000 1000 3000000000 9000
`},
	} {
		var b bytes.Buffer
		if err := WriteFCT(&b, some, c.conweave); err != nil || b.String() != c.want {
			t.Errorf("%s: %v\n%s", name, err, cmp.Diff(b.String(), c.want))
		}
	}
}

// TestFCT: reading returns the written flows, in both formats.
func TestFCT(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const hosts = 1 << 16
		r := &result.Result{}
		for i := range rapid.IntRange(0, 20).Draw(t, "flows") {
			host, span := rapid.IntRange(0, hosts-1), rapid.Int64Range(1, maxTime)
			r.Flows = append(r.Flows, result.Flow{ID: i, Src: host.Draw(t, "src"), Dst: host.Draw(t, "dst"), Bytes: rapid.Uint32().Draw(t, "bytes"),
				Start: engine.Time(span.Draw(t, "start")), FCT: engine.Time(span.Draw(t, "fct")), Ideal: engine.Time(span.Draw(t, "ideal")),
				Port: rapid.Uint16().Draw(t, "port")})
		}
		for _, conweave := range []bool{false, true} {
			var b bytes.Buffer
			if err := WriteFCT(&b, r, conweave); err != nil {
				t.Fatal(err)
			}
			got, err := ReadFCT(&b)
			if want := Completed(r, conweave); err != nil || len(got) != len(want) || len(got) > 0 && !cmp.Equal(got, want) {
				t.Fatal(err, cmp.Diff(got, want))
			}
		}
	})
}

// TestFCTErrors: errors name the line, the value and the limits.
func TestFCTErrors(t *testing.T) {
	const good = "0 1 10000 100 5 1 2 3\n\n"
	for text, want := range map[string]string{
		"0 1 10000 100 5 1 2\n":                      "line 1: 7 fields instead of src",
		good + "65536 1 1 1 5 1 2 3\n":               `line 3: src "65536": must be from 0 to 65535`,
		good + "0b000100 1 1 1 5 1 2 3\n":            `line 3: src "0b000100": must be an address such as 0b000101`,
		good + "0 0a000101 1 1 5 1 2 3\n":            `dst "0a000101"`,
		good + "0 1 70000 1 5 1 2 3\n":               `sport "70000": must be from 0 to 65535`,
		good + "0 1 1 -1 5 1 2 3\n":                  `dport "-1"`,
		good + "0 1 1 1 4294967296 1 2 3\n":          `bytes "4294967296": must be from 0 to 4294967295`,
		good + "0 1 1 1 5 x 2 3\n":                   `start "x"`,
		good + "0 1 1 1 5 1 0 3\n":                   `fct "0": must be from 1`,
		good + "0 1 1 1 5 1 2 9223372036854775807\n": `standalone_fct "9223372036854775807": must be from 1`,
		good + strings.Repeat("1", 1<<17):            "line 3: longer than 65536 bytes instead of src dst",
	} {
		if _, err := ReadFCT(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v\nwant %s", text, err, want)
		}
	}
}

// FuzzTopology: a topology without error fits the simulator.
func FuzzTopology(f *testing.F) {
	f.Add("3 1 2\n2\n0 2 100Gbps 1000ns 0\n1 2 25Gb/s 0.001ms 0.5\n")
	f.Add("4 2 3\n0 2\n0 1 100Gbps 0.001ms 0\n2 3 25Gbps 1.5us 0.25\n0 2 400Gbps 1s 1e-5\ncomment")
	f.Add("2 0 1\n0 1 1bps 0s 1")
	f.Add("5 2 1 1 2 A100\n3 4\n0 3 1bps 0s 1\n1 4 1bps 0s 1 2 4 1bps 1s 0")
	f.Fuzz(func(t *testing.T, text string) {
		top, err := ReadTopology(text)
		if err != nil {
			return
		}
		g := top.Graph
		if g.Hosts < 2 || len(top.Hosts) != g.Hosts || len(top.Loss) != len(g.Cables) {
			t.Fatalf("%d hosts, %d IDs, %d cables, %d losses", g.Hosts, len(top.Hosts), len(g.Cables), len(top.Loss))
		}
		cables := make([]int, g.Hosts+len(g.Switches))
		for i, c := range g.Cables {
			if c.Rate < 1 || c.Rate > fabric.MaxRate || c.Delay < 0 || c.Delay > maxDelay || c.A == c.B || !(top.Loss[i] >= 0 && top.Loss[i] <= 1) {
				t.Fatalf("%+v, loss %g", c, top.Loss[i])
			}
			cables[c.A]++
			cables[c.B]++
		}
		for h, n := range cables[:g.Hosts] {
			if n == 0 {
				t.Fatalf("host %d has no cable", h)
			}
		}
	})
}

// FuzzFCT: flows without error have positive durations that fit.
func FuzzFCT(f *testing.F) {
	f.Add("0b000101 0b012c01 10000 100 4000 2000000100 5000 4000\n")
	f.Add("1 300 10001 102 4000 2000000100 5000 4000\n\n7 300 10000 101 50 1000 1 1")
	f.Fuzz(func(t *testing.T, text string) {
		lines, err := ReadFCT(strings.NewReader(text))
		if err != nil {
			return
		}
		for i := range lines {
			x := lines[i].Flow()
			if x.Src < 0 || x.Src >= maxNodes || x.Dst < 0 || x.Dst >= maxNodes || x.Start < 0 || x.FCT <= 0 || x.Ideal <= 0 || x.Slowdown < 1 {
				t.Fatalf("%+v", x)
			}
		}
	})
}
