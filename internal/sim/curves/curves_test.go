package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/ccalgo"
)

var update = flag.Bool("update", false, "write the golden curves anew")

// Every script still has its committed curve, and the picture in docs matches the curve.
func TestCurves(t *testing.T) {
	drawn := map[string]bool{}
	for _, name := range scripts() {
		t.Run(name, func(t *testing.T) {
			c, err := load(name)
			if err != nil {
				t.Fatal(err)
			}
			drawn[c.algorithm] = true
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(c.text()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), c.text()); d != "" {
				t.Errorf("the curve has changed (-want +got):\n%s", d)
			}
			svg := c.svg()
			picture, err := os.ReadFile(filepath.Join("../../../docs/curves", name+".svg"))
			if err != nil || !bytes.Equal(picture, svg) {
				t.Errorf("docs/curves/%s.svg is not that of the script: run make curves (%v)", name, err)
			}
			checkXML(t, string(svg))
		})
	}
	for _, name := range ccalgo.Names() {
		if name != "none" && name != "static" && !drawn[name] {
			t.Errorf("%s has no curve", name)
		}
	}
}

func checkXML(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the picture is not well-formed: %v", err)
		}
	}
}

func TestBadScenarios(t *testing.T) {
	const head = "algorithm dcqcn\nuntil 1ms every 1us\n"
	for _, c := range []struct{ text, want string }{
		{"algorithm dcqcn", "missing line: until"},
		{head + "jump", `line 3: cannot read "jump"`},
		{head + "at soon cnp", "line 3: "},
		{head + "at 1us fly", `no event "fly"`},
		{head + "at 1us ack", "ack requires bytes"},
		{head + "at 1us ack many", "line 3: "},
		{head + "at 1us nack", "nack requires bytes or a reason"},
		{head + "at 1us ack 1 penalty=128", "line 3: "},
		{head + "at 1us ack 1 load=2", "line 3: load 2 is not from 0 to 1"},
		{head + "at 1us send 1 report", `send has no option "report"`},
		{head + "at 1us cnp ecn", `cnp has no option "ecn"`},
		{head + "from 0s to 1ms every 0s cnp", "must take time"},
		{"algorithm dcqcn g=much\n", "line 1: "},
		{"algorithm dcqcn h=1\nuntil 1ms every 1us", `no parameter "h"`},
		{"algorithm cubic\nuntil 1ms every 1us", `no congestion control "cubic"`},
	} {
		s, err := parse(c.text)
		if err == nil {
			_, err = s.run()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

// The documentation lists each parameter with its default, in the order of the configuration reader, under a heading
// that names the algorithm.
func TestParametersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/congestion.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range ccalgo.Names() {
		_, section, found := strings.Cut(string(text), "\n### "+name+"\n")
		if !found {
			t.Errorf("no heading for %s", name)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		section, _, _ = strings.Cut(section, "\n### ")
		want := ccalgo.Parameters(name)
		for _, p := range want {
			row := fmt.Sprintf("\n| `%s` | %.10g |", p.Name, p.Default)
			_, rest, found := strings.Cut(section, row)
			if !found {
				t.Fatalf("%s: no row %s", name, row)
			}
			section = rest
		}
		if n := strings.Count(section, "\n| `"); n != 0 {
			t.Errorf("%s: %d parameters are documented that it does not have", name, n)
		}
	}
}

// text formats the curve as a table: a column for the window in bytes and one for the rate in Mb/s, if the
// algorithm limits them.
func (c *curve) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n%10s", c.title, "time")
	window, rate := c.limits()
	if window {
		fmt.Fprintf(&b, " %12s", "window")
	}
	if rate {
		fmt.Fprintf(&b, " %12s", "Mb/s")
	}
	b.WriteByte('\n')
	for _, p := range c.points {
		fmt.Fprintf(&b, "%10v", p.at)
		if window {
			fmt.Fprintf(&b, " %12s", number(p.window, 1, 0))
		}
		if rate {
			fmt.Fprintf(&b, " %12s", number(p.rate, 1e6, 1))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func number(v uint64, unit float64, digits int) string {
	if v == ccalgo.Unlimited {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, float64(v)/unit)
}
