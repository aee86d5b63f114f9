package cli

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"

	"roced.io/roced/drill/engine"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/observe/pcapng"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// Geometry of a ladder diagram in pixels: the two lifelines, and the height of a row.
const (
	ladderTester, ladderDUT, ladderWidth = 120, 620, 1180
	ladderRow                            = 34
)

// The most characters of labels, which are monospaced: of an arrow between the lifelines, and of a note beside the device's.
const arrowLabel, noteLabel = 60, 80

// ladder is the diagram of a run: a row for each packet, command and answer.
type ladder struct {
	Width, Height, Tester, DUT int
	Rows                       []rung
}

// rung is a row of a ladder diagram. An arrow goes from X1 to X2; a command or an answer stands beside the device's line.
type rung struct {
	Y, X1, X2   int
	Arrow       bool
	Class       string // sent, seen, missing or command
	Time, Label string
	Short       string // the label, cut to its place
}

// pageScript is a script on the page.
type pageScript struct {
	report
	Place   string
	Ladder  *ladder // of failed scripts only, as Source and Capture
	Source  []sourceLine
	Capture string
}

type sourceLine struct {
	Number int
	Text   string
	Failed bool
}

// writePage writes the page and, beside it, the captures of failed scripts. Without a file it writes nothing. The page does not
// name captures that cannot be written.
func (a *app) writePage(s *summary, f *os.File) error {
	if f == nil {
		return nil
	}
	base := strings.TrimSuffix(f.Name(), filepath.Ext(f.Name()))
	var scripts []pageScript
	for i, r := range s.Scripts {
		p := pageScript{report: r, Place: r.place()}
		if r.result != nil && r.result.Outcome != engine.Passed && r.result.Outcome != engine.NotApplicable {
			name := fmt.Sprintf("%s-%d.pcapng", base, i+1)
			if err := writeCapture(name, r.result); err != nil {
				fmt.Fprintf(a.diag, "rocedrill: the page lacks a capture: %v\n", err)
			} else {
				p.Capture = filepath.Base(name)
			}
			p.Ladder = drawLadder(&r)
			for n, text := range r.script.Lines {
				p.Source = append(p.Source, sourceLine{n + 1, text, n+1 == r.Line})
			}
		}
		scripts = append(scripts, p)
	}
	return s.write(f, func(s *summary, w io.Writer) error {
		return pageTemplate.Execute(w, struct {
			*summary
			Scripts []pageScript
			Sums    string
		}{s, scripts, s.sums()})
	})
}

// drawLadder draws the packets of a run. If a packet is missing, the last row has the expected one.
func drawLadder(r *report) *ladder {
	l := &ladder{Width: ladderWidth, Tester: ladderTester, DUT: ladderDUT}
	for i, e := range r.Log {
		g := rung{X1: ladderTester, X2: ladderDUT, Class: "sent", Arrow: e.Packet != "", Time: fmt.Sprintf("%.3f ms", e.Time*1e3), Label: e.Packet + e.Text}
		switch {
		case !g.Arrow:
			g.Class = "command"
		case e.From == "dut":
			g.X1, g.X2, g.Class = ladderDUT, ladderTester, "seen"
			if i == len(r.Log)-1 && r.Wanted != "" {
				g.Class = "wrong"
			}
		}
		l.add(g)
	}
	if r.Wanted != "" {
		l.add(rung{X1: ladderDUT, X2: ladderTester, Arrow: true, Class: "missing", Label: "expected: " + r.Wanted})
	}
	l.Height = (len(l.Rows) + 2) * ladderRow
	return l
}

func (l *ladder) add(g rung) {
	most := arrowLabel
	if !g.Arrow {
		most = noteLabel
	}
	if g.Short = g.Label; len(g.Label) > most {
		g.Short = g.Label[:most-3] + "..."
	}
	g.Y = (len(l.Rows) + 2) * ladderRow
	l.Rows = append(l.Rows, g)
}

// writeCapture writes the frames of a run. Comments have the lines of the script.
func writeCapture(path string, r *engine.Result) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	b := output.NewRecords(f, nil)
	return errors.Join(captureFrames(b, r), b.Flush(), f.Close())
}

func captureFrames(w io.Writer, r *engine.Result) error {
	out, err := pcapng.NewWriter(w, "rocedrill")
	if err != nil {
		return err
	}
	tester, err := out.AddInterface(pcapng.Interface{Name: "tester", Link: pcapng.LinkEthernet})
	for _, e := range r.Log {
		if e.Frame == nil || err != nil {
			continue
		}
		i := pcapng.PacketInfo{Interface: tester, Time: int64(e.At), Direction: pcapng.Outbound, Comment: fmt.Sprintf("line %d", e.Pos.Line)}
		if e.Dir == engine.FromDUT {
			i.Direction = pcapng.Inbound
		}
		err = out.WritePacket(i, e.Frame.Bytes)
	}
	return err
}
