package result

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/engine"
)

func TestDescribe(t *testing.T) {
	var v []float64
	for i := range 1000 {
		v = append(v, float64(1000-i))
	}
	want := Distribution{1000, 500.5, 500, 950, 990, 999, 1000}
	if got := Describe(v); got != want || v[0] != 1000 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := Describe([]float64{7}); got.P999 != 7 || got.P50 != 7 {
		t.Errorf("%+v", got)
	}
}

func example() *Result {
	r := &Result{Name: "a <b>", Profile: "rc", Drops: map[string]uint64{"link loss": 3}, Pauses: 2}
	for i := range 300 {
		r.Flows = append(r.Flows, Flow{ID: i, Bytes: uint32(10 << (i % 20)), FCT: 2 * engine.Microsecond, Ideal: engine.Microsecond, Slowdown: 1 + float64(i%30)})
	}
	for i := range 50 {
		r.Samples = append(r.Samples, Sample{At: engine.Time(i+1) * engine.Microsecond, Queued: int64(i * 1000), LongestQueue: int64(i * 100), Goodput: 1e9})
	}
	r.Ports = append(r.Ports, Port{Link: "h0-s0", Packets: 5})
	return r
}

// TestWrite: every message is in one bucket, and all written files are readable.
func TestWrite(t *testing.T) {
	r, dir := example(), t.TempDir()
	n := 0
	for _, b := range r.Buckets() {
		n += b.Slowdown.Count
	}
	if n != len(r.Flows) {
		t.Errorf("%d of %d messages are in buckets", n, len(r.Flows))
	}
	var text, js bytes.Buffer
	r.WriteText(&text)
	if s := text.String(); !strings.Contains(s, "3 lost: link loss") || !strings.Contains(s, "300 messages done") {
		t.Error(s)
	}
	if err := r.WriteJSON(&js); err != nil || !json.Valid(js.Bytes()) || !strings.Contains(js.String(), `"p99.9"`) {
		t.Errorf("%v: %s", err, js.String())
	}
	if err := r.WriteCSV(dir); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "flows.csv"))
	if lines := strings.Count(string(b), "\n"); err != nil || lines != 301 {
		t.Errorf("%d lines, %v", lines, err)
	}
	files, err := r.WriteSVG(dir)
	if err != nil || len(files) != 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		b, _ := os.ReadFile(name)
		d := xml.NewDecoder(bytes.NewReader(b))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

// TestPictures: a picture contains its texts with units, and no bar, line or mark is outside of it.
func TestPictures(t *testing.T) {
	r := example()
	r.Queues = []Queue{{At: engine.Microsecond, Link: "s0-h1", Bytes: 10}, {At: 2 * engine.Microsecond, Link: "s0-h1", Bytes: 30e3}}
	r.Flows[7].Slowdown, r.Flows[7].FCT = 1234, 3*engine.Millisecond
	for i := range r.Samples {
		r.Samples[i].Paused = engine.Microsecond / 2
	}
	dir := t.TempDir()
	if _, err := r.WriteSVG(dir); err != nil {
		t.Fatal(err)
	}
	for name, words := range map[string][]string{
		"slowdown.svg": {"FCT slowdown", "a &lt;b&gt;, rc, seed 0", ">times<", ">mean<", ">50 %<", ">95 %<", ">99 %<", ">99.9 %<", "up to 1 KB", "n = 105", ">1000<"},
		"fct.svg":      {"Flow completion times", ">%<", ">2µs<", ">2ms<", "300 messages", "empty network"},
		"queues.svg":   {">KB<", "all switches together", "longest queue of a port", "before s0-h1"},
		"goodput.svg":  {">Gb/s<", "all hosts together"},
		"pauses.svg":   {">links<", "2 pauses in all"},
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range words {
			if !strings.Contains(string(b), w) {
				t.Errorf("%s does not say %q", name, w)
			}
		}
		view := regexp.MustCompile(`viewBox="0 0 800 (\d+)"`).FindSubmatch(b)
		if view == nil {
			t.Fatalf("%s has no viewBox", name)
		}
		height, _ := strconv.ParseFloat(string(view[1]), 64)
		for _, m := range regexp.MustCompile(` y="(-?[0-9.]+)"|V(-?[0-9.]+)`).FindAllStringSubmatch(string(b), -1) {
			if y, err := strconv.ParseFloat(m[1]+m[2], 64); err != nil || y < 0 || y > height {
				t.Errorf("%s: %s is outside", name, m[0])
			}
		}
	}
}

// TestReadFlows: reading returns the written flows. Errors name the line and the value.
func TestReadFlows(t *testing.T) {
	r, dir := example(), t.TempDir()
	for i := range r.Flows {
		r.Flows[i].ID, r.Flows[i].Slowdown = 0, 2
	}
	if err := r.WriteCSV(dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "flows.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFlows(bytes.NewReader(text)); err != nil || !slices.Equal(got, r.Flows) {
		t.Errorf("%d flows, %v", len(got), err)
	}
	const head = "id,src,dst,bytes,start_ps,fct_ps,ideal_ps,slowdown,class\n0,0,1,5,6,7,8,9,0\n"
	if !strings.HasPrefix(string(text), head[:strings.Index(head, "\n")+1]) {
		t.Errorf("columns %.80s", text)
	}
	for text, want := range map[string]string{
		"":                            "line 1: EOF",
		"id,src\n":                    "line 1: no column dst",
		head + "1,0,1\n":              "record on line 3: wrong number of fields",
		head + "1,-1,1,5,6,7,8,9,0\n": `line 3: src "-1": must be from 0 to 2147483647`,
		head + "1,0,1,5,6,0,8,9,0\n":  `line 3: fct_ps "0": must be from 1 to`,
		head + "1,0,1,5,6,7,x,9,0\n":  `line 3: ideal_ps "x": must be from 1 to`,
	} {
		if _, err := ReadFlows(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// FuzzReadFlows: flows without error have positive durations.
func FuzzReadFlows(f *testing.F) {
	f.Add("id,src,dst,bytes,start_ps,fct_ps,ideal_ps,slowdown,class\n0,0,1,5,6,7,8,9,0\n")
	f.Fuzz(func(t *testing.T, text string) {
		flows, err := ReadFlows(strings.NewReader(text))
		for i := range flows {
			if x := &flows[i]; err == nil && (x.Src < 0 || x.Dst < 0 || x.Start < 0 || x.FCT < 1 || x.Ideal < 1 || x.Slowdown < 1) {
				t.Fatalf("%+v", x)
			}
		}
	})
}

func TestJain(t *testing.T) {
	r := &Result{Flows: []Flow{{Bytes: 100, FCT: engine.Second}, {Bytes: 100, FCT: engine.Second}}}
	if got := r.Jain(); got != 1 {
		t.Errorf("equal shares: %g", got)
	}
	r.Flows[1].Bytes = 0
	if got := r.Jain(); got != 0.5 {
		t.Errorf("one of two: %g", got)
	}
}
