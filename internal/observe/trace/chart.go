package trace

import (
	"fmt"
	"html"
	"io"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
)

// The picture: its size, and where the diagram lies in it.
const (
	Width, Height            = 800, 400
	Left, Right, Top, Bottom = 80, 20, 40, 60
)

// Chart is a diagram: what it shows goes to W between Begin and End.
type Chart struct {
	W     io.Writer
	Title string
	Unit  string        // of the values, above their axis
	Until time.Duration // end of the time axis, which begins at zero
	Most  float64       // end of the axis of values, likewise; Begin rounds it up
	// Pauses take little of the time axis, however long they are. They are in order.
	Pauses []Pause

	keys int // x of the next entry of the key
}

// Begin draws the frame.
func (c *Chart) Begin() {
	step := niceStep(c.Most, 8)
	c.Most = math.Max(math.Ceil(c.Most/step), 1) * step
	c.keys = Left
	fmt.Fprintf(c.W, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", Width, Height)
	fmt.Fprintf(c.W, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", Width, Height)
	fmt.Fprintf(c.W, `<text x="%d" y="24" font-size="15">%s</text>`+"\n", Left, html.EscapeString(c.Title))
	fmt.Fprintf(c.W, `<text x="%d" y="24" text-anchor="end">%s</text>`+"\n", Left-8, c.Unit)
	c.drawPauses()
	for v := 0.0; v <= c.Most+step/2; v += step {
		y := c.Y(v)
		fmt.Fprintf(c.W, `<path d="M%d %.1fH%d" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			Left, y, Width-Right, Left-8, y+4, number(v, step))
	}
	c.timeAxis()
}

// timeAxis draws lines and labels of the time.
func (c *Chart) timeAxis() {
	step, free := time.Duration(niceStep(float64(c.place(c.Until)), 10)), 0.0
	for at := time.Duration(0); at <= c.Until; at += step {
		if p, in := c.pause(at); in { // which may be many steps long
			at = (p.Start + p.Took - 1) / step * step
			continue
		}
		x := c.X(at)
		fmt.Fprintf(c.W, `<path d="M%.1f %dV%d" stroke="#eeeeee"/>`, x, Top, Height-Bottom)
		if label := at.String(); x >= free {
			fmt.Fprintf(c.W, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x, Height-Bottom+18, label)
			free = x + float64(7*len(label)+7)
		}
		fmt.Fprintln(c.W)
	}
}

// Key adds an entry to the key below the diagram, of so many pixels, or more if the text needs them.
func (c *Chart) Key(colour, text string, width int) {
	fmt.Fprintf(c.W, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", c.keys, Height-10, colour, html.EscapeString(text))
	c.keys += max(width, 7*len(text)+14)
}

// End ends the picture.
func (c *Chart) End() { fmt.Fprint(c.W, "</svg>\n") }

// X is where an instant is in the picture.
func (c *Chart) X(at time.Duration) float64 {
	return Left + float64(c.place(at))/float64(c.place(c.Until))*(Width-Left-Right)
}

// Y is where a value is in the picture.
func (c *Chart) Y(v float64) float64 { return Top + (1-v/c.Most)*(Height-Top-Bottom) }

// number writes a multiple of step, without an exponent.
func number(v, step float64) string {
	return strconv.FormatFloat(v, 'f', max(0, int(math.Ceil(-math.Log10(step)-1e-9))), 64)
}

// niceStep is 1, 2 or 5 times a power of ten, such that there are no more than n
// steps.
func niceStep(most float64, n int) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most/float64(n))))
	for _, f := range []float64{1, 2, 5} {
		if most/(f*power) <= float64(n) {
			return f * power
		}
	}
	return 10 * power
}

// Points draws a dot at each place, larger ones if there are few. Those that would cover each other
// are drawn once, so that a picture of a million packets is not too long to be shown.
func (c *Chart) Points(colour string, at iter.Seq2[float64, float64]) {
	seen := map[[2]int]bool{}
	var path strings.Builder
	for x, y := range at {
		if p := [2]int{int(x * 2), int(y * 2)}; !seen[p] {
			seen[p] = true
			fmt.Fprintf(&path, "M%.1f %.1fh0", x, y)
		}
	}
	width := 2
	if len(seen) < 50 {
		width = 5
	}
	fmt.Fprintf(c.W, `<path stroke="%s" stroke-width="%d" stroke-linecap="round" d="%s"/>`+"\n", colour, width, path.String())
}

// Steps draws a line that keeps its value until the next place, and on to the end. Of
// several values at the same place the lowest and the highest are drawn, and the last.
func (c *Chart) Steps(colour string, at iter.Seq2[float64, float64]) {
	fmt.Fprintf(c.W, `<path fill="none" stroke="%s" d="`, colour)
	first, lastX, lastY, low, high := true, 0.0, 0.0, 0.0, 0.0
	flush := func() { fmt.Fprintf(c.W, "V%.1fV%.1fV%.1f", low, high, lastY) }
	for x, y := range at {
		x = math.Round(x*2) / 2
		switch {
		case first:
			fmt.Fprintf(c.W, "M%.1f %.1f", x, y)
			low, high, first = y, y, false
		case x != lastX:
			flush()
			fmt.Fprintf(c.W, "H%.1f", x)
			low, high = y, y
		}
		low, high = math.Min(low, y), math.Max(high, y)
		lastX, lastY = x, y
	}
	if !first {
		flush()
		fmt.Fprintf(c.W, "H%d", Width-Right)
	}
	fmt.Fprint(c.W, "\"/>\n")
}
