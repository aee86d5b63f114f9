package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

// TestLog checks that logarithmic axes begin and end at round numbers and contain all values.
func TestLog(t *testing.T) {
	for _, c := range []struct {
		lo, hi   float64
		from, to float64
		ticks    int
	}{{1, 1, 1, 2, 2}, {1, 22, 1, 50, 6}, {3, 3, 2, 5, 2}, {0.03, 9, 0.02, 10, 9}, {1, 1e6, 1, 1e6, 7}} {
		a := Log(c.lo, c.hi, nil)
		if from := a.ticks[0].at; math.Abs(from/c.from-1) > 1e-9 || math.Abs(a.End/c.to-1) > 1e-9 || len(a.ticks) != c.ticks || a.Place(a.End) != 1 {
			t.Errorf("%g to %g: from %g to %g with ticks %v", c.lo, c.hi, from, a.End, a.ticks)
		}
	}
}

// TestSVG checks that a picture with all elements is well-formed, escapes text and contains no NaN.
func TestSVG(t *testing.T) {
	x := Time(time.Second, []Pause{{Start: time.Millisecond, Took: 900 * time.Millisecond}})
	c := New("a <b>", "KB", x, Linear(12, 8))
	points := func(yield func(x, y float64) bool) { _ = yield(0, 1) && yield(5e6, 12) && yield(1e9, 3) }
	c.XTitle, c.YTitle = "time", "bytes & packets"
	c.Line(Blue, points, true)
	c.Points(Red, points)
	c.Steps(Green, points)
	c.Interval(c.X(1e6), 2, 3)
	c.Ring(c.X(1e6), 2.5, Grey)
	c.Bar(1e6, 0, 2, 40, math.NaN(), Blue)
	c.Events(Violet, func(yield func(float64) bool) { yield(1e6) })
	for range 8 {
		c.Legend(Blue, "a name that needs room")
	}
	svg := c.SVG()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"a &lt;b&gt;", "bytes &amp; packets", "900ms idle", `viewBox="0 0 800 440"`, ">12<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %q in %s", want, svg)
		}
	}
	if strings.Contains(string(svg), "NaN") {
		t.Errorf("%s", svg)
	}
}
