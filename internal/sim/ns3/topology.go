// Package ns3 reads the topologies of the ns-3 simulators of HPCC, ConWeave, ASTRA-sim and SimAI. It reads and writes files of
// flow completion times. Input is untrusted: errors name the line and the value.
package ns3

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
)

// Limits of a topology.
const (
	maxNodes = 1 << 16
	maxLinks = 1 << 20
	maxDelay = engine.Second
)

// Topology is a topology file.
type Topology struct {
	Graph *fabric.Graph // switches have the names s and their ID; NVSwitches of SimAI, nv and their ID
	Hosts []int         // IDs of the hosts, ascending
	Loss  []float64     // by cable: probability of losing a packet, in each direction
}

// ReadTopology reads the numbers of nodes, switches and links, the IDs of the switches, and links "src dst rate delay
// error_rate". All other nodes are hosts, which may have several links. As in ns-3, white space separates the values, and text
// after the last link is ignored. SimAI's first line has the numbers of nodes, GPUs per server, NVSwitches, other switches and
// links, and the type of the GPU.
func ReadTopology(text string) (*Topology, error) {
	r := &words{text: text, line: 1}
	nodes, nv, switches, links := r.head()
	t := &Topology{Graph: &fabric.Graph{}}
	of := t.nodes(r, nodes, nv, switches)
	cabled := make([]bool, t.Graph.Hosts)
	for range links {
		if r.err != nil {
			break
		}
		t.link(r, of, cabled)
	}
	if i := slices.Index(cabled, false); r.err == nil && i >= 0 {
		r.fail("host %d has no link", t.Hosts[i])
	}
	return t, r.err
}

// head reads the numbers before the IDs of switches.
func (w *words) head() (nodes, nv, switches, links int) {
	first, _, _ := strings.Cut(strings.TrimLeft(w.text, space), "\n")
	f := strings.Fields(first)
	simAI := len(f) >= 6 && len(f) <= 7 && strings.Trim(f[5], "0123456789") != ""
	nodes = w.number("number of nodes", 2, maxNodes)
	if simAI {
		w.number("number of GPUs per server", 1, nodes)
		nv = w.number("number of NVSwitches", 0, nodes-2)
	}
	switches = w.number("number of switches", 0, nodes-2-nv)
	links = w.number("number of links", 1, maxLinks)
	if simAI {
		w.next("type of the GPU")
		for range f[6:] {
			w.number("number of GPUs per node", 0, nodes)
		}
	}
	return nodes, nv, switches, links
}

// nodes reads the IDs of switches, of which the first nv are NVSwitches. It returns the nodes of the graph by ID.
func (t *Topology) nodes(r *words, nodes, nv, switches int) []fabric.Node {
	if r.err != nil {
		return nil
	}
	of := make([]fabric.Node, nodes)
	t.Graph.Hosts = nodes - nv - switches
	for i := range nv + switches {
		id := r.number("ID of a switch", 0, nodes-1)
		if r.err != nil {
			return nil
		}
		if of[id] != 0 {
			r.fail("switch %d is listed twice", id)
			return nil
		}
		of[id] = t.Graph.Switch(i)
		kind := "s"
		if i < nv {
			kind = "nv"
		}
		t.Graph.Switches = append(t.Graph.Switches, kind+strconv.Itoa(id))
	}
	for id := range of {
		if of[id] == 0 {
			of[id] = fabric.Node(len(t.Hosts))
			t.Hosts = append(t.Hosts, id)
		}
	}
	return of
}

// link reads a link between two of the nodes.
func (t *Topology) link(r *words, of []fabric.Node, cabled []bool) {
	src, dst := r.number("source of a link", 0, len(of)-1), r.number("destination of a link", 0, len(of)-1)
	if r.err == nil && src == dst {
		r.fail("a link joins node %d to itself", src)
	}
	if r.err != nil {
		return
	}
	for _, id := range [...]int{src, dst} {
		if n := int(of[id]); n < len(cabled) {
			cabled[n] = true
		}
	}
	c := fabric.Cable{A: of[src], B: of[dst], Rate: quantity.Rate(r.quantity("rate", "100Gbps, at most 100 Tb/s", quantity.ParseRate, 1, fabric.MaxRate)),
		Delay: engine.Time(r.quantity("delay", "1000ns or 0.001ms, at most 1s", quantity.ParseTime, 0, int64(maxDelay)))}
	t.Loss = append(t.Loss, r.probability("error rate"))
	t.Graph.Cables = append(t.Graph.Cables, c)
}

// words are the words of a text. After an error all methods return zero.
type words struct {
	text string
	line int // of the last word
	err  error
}

// space separates words.
const space = " \t\r\n\v\f"

func (w *words) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("line %d: %w", w.line, fmt.Errorf(format, args...))
	}
}

// next returns the next word.
func (w *words) next(what string) string {
	start := len(w.text) - len(strings.TrimLeft(w.text, space))
	w.line += strings.Count(w.text[:start], "\n")
	w.text = w.text[start:]
	end := strings.IndexAny(w.text, space)
	if end < 0 {
		end = len(w.text)
	}
	word := w.text[:end]
	w.text = w.text[end:]
	if word == "" {
		w.fail("the file ends before the %s", what)
	}
	return word
}

// number reads a number from least to most.
func (w *words) number(what string, least, most int) int {
	if w.err != nil {
		return 0
	}
	word := w.next(what)
	n, err := strconv.ParseUint(word, 10, 32)
	if err != nil || n < uint64(least) || n > uint64(most) {
		w.fail("%s %.40q: must be from %d to %d", what, word, least, most)
		return 0
	}
	return int(n)
}

// quantity reads a quantity from least to most.
func (w *words) quantity(what, example string, parse func(string) (int64, error), least, most int64) int64 {
	if w.err != nil {
		return 0
	}
	word := w.next(what)
	n, err := parse(word)
	if err != nil || n < least || n > most {
		w.fail("%s %.40q: must be a number such as %s", what, word, example)
		return 0
	}
	return n
}

// probability reads a number from 0 to 1.
func (w *words) probability(what string) float64 {
	if w.err != nil {
		return 0
	}
	word := w.next(what)
	p, err := strconv.ParseFloat(word, 64)
	if err != nil || !(p >= 0 && p <= 1) {
		w.fail("%s %.40q: must be a number such as 0.001, from 0 to 1", what, word)
		return 0
	}
	return p
}
