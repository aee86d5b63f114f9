package workload

import (
	"fmt"
	"strconv"
	"strings"

	"roced.io/roced/internal/sim/engine"
)

// Limits of GOAL files.
const (
	mostOps  = 4_000_000
	mostCalc = 1_000_000_000_000 // ns
	mostRank = 1 << 20
)

// ReadGOAL reads a schedule in GOAL, the text format of LogGOPSim and ATLAHS:
//
//	num_ranks 2
//	rank 0 {
//	l1: calc 1000 cpu 0
//	l2: send 4096b to 1 tag 7 cpu 0 nic 0
//	l2 requires l1
//	}
//
// A calculation is in nanoseconds. requires waits for the end of an operation, irequires for its start. The caller sets
// Hosts. Errors name the line.
func ReadGOAL(text string) (*Schedule, int, error) {
	g := goal{s: &Schedule{Kind: "goal"}, rank: -1, seen: map[int32]bool{}}
	for line := range strings.Lines(text) {
		g.line++
		if w := g.words(line); len(w) > 0 {
			if err := g.statement(w); err != nil {
				return nil, 0, fmt.Errorf("line %d: %w", g.line, err)
			}
		}
	}
	switch {
	case g.comment:
		return nil, 0, fmt.Errorf("line %d: a comment does not end; add */", g.line)
	case g.rank >= 0:
		return nil, 0, fmt.Errorf("line %d: rank %d does not end; add }", g.line, g.rank)
	case g.ranks == 0:
		return nil, 0, fmt.Errorf("num_ranks is missing; begin the file with num_ranks N")
	}
	return g.s, g.ranks, g.s.Check()
}

// goal is the state of the reader.
type goal struct {
	s       *Schedule
	ranks   int
	rank    int32 // -1: between ranks
	line    int32
	comment bool
	seen    map[int32]bool
	labels  map[string]int32
}

// words returns the words of a line without comments.
func (g *goal) words(line string) []string {
	var b strings.Builder
	for line != "" {
		mark := "/*"
		if g.comment {
			mark = "*/"
		}
		before, rest, found := strings.Cut(line, mark)
		if !g.comment {
			if code, _, ends := strings.Cut(before, "//"); ends {
				b.WriteString(code)
				break
			}
			b.WriteString(before + " ")
		}
		if line = rest; found {
			g.comment = !g.comment
		}
	}
	code := strings.Replace(b.String(), ":", " : ", 1)
	return strings.Fields(strings.ReplaceAll(code, "{", " { "))
}

// statement reads a line.
func (g *goal) statement(w []string) error {
	switch {
	case w[0] == "num_ranks" && len(w) == 2 && g.ranks == 0:
		n, err := number("num_ranks", w[1], mostRank)
		if g.ranks = int(n); err == nil && n == 0 {
			err = fmt.Errorf("num_ranks 0: must be at least 1")
		}
		return err
	case w[0] == "rank" && len(w) == 3 && w[2] == "{" && g.rank < 0:
		return g.begin(w[1])
	case g.rank < 0:
		return fmt.Errorf("%q: expected num_ranks N, once, or rank N {", strings.Join(w, " "))
	case w[0] == "}" && len(w) == 1:
		g.rank = -1
		return nil
	case len(w) == 3 && (w[1] == "requires" || w[1] == "irequires"):
		return g.require(w[0], w[2], w[1] == "irequires")
	}
	label := ""
	if len(w) > 2 && w[1] == ":" {
		label, w = w[0], w[2:]
	}
	o, err := g.operation(w)
	if err != nil {
		return err
	}
	if len(g.s.Ops) == mostOps {
		return fmt.Errorf("more than %d operations; split the file", mostOps)
	}
	if _, taken := g.labels[label]; taken {
		return fmt.Errorf("rank %d has label %q twice; rename one", g.rank, label)
	}
	i := g.s.Add(o)
	if label != "" {
		g.labels[label] = i
	}
	return nil
}

func (g *goal) begin(word string) error {
	n, err := number("rank", word, mostRank)
	switch r := int32(n); {
	case err != nil:
		return err
	case g.ranks == 0:
		return fmt.Errorf("rank %d comes before num_ranks; begin the file with num_ranks N", r)
	case int(r) >= g.ranks:
		return fmt.Errorf("rank %d: num_ranks is %d, so ranks are 0 to %d", r, g.ranks, g.ranks-1)
	case g.seen[r]:
		return fmt.Errorf("rank %d appears twice; merge its operations", r)
	default:
		g.seen[r], g.rank, g.labels = true, r, map[string]int32{}
		return nil
	}
}

func (g *goal) require(op, on string, start bool) error {
	a, known := g.labels[op]
	b, also := g.labels[on]
	for name, ok := range map[string]bool{op: known, on: also} {
		if !ok {
			return fmt.Errorf("rank %d has no label %q before this line; define it above", g.rank, name)
		}
	}
	g.s.Require(a, b, start)
	return nil
}

// operation reads "calc NS", "send Nb to R" or "recv Nb from R", and what follows.
func (g *goal) operation(w []string) (o Op, err error) {
	o = Op{Rank: g.rank, Line: g.line}
	var n uint64
	switch {
	case w[0] == "calc" && len(w) >= 2:
		n, err = number("calc", w[1], mostCalc)
		o.Length = engine.Time(n) * engine.Nanosecond
		w = w[2:]
	case (w[0] == "send" || w[0] == "recv") && len(w) >= 4:
		if o.Kind = SendOp; w[0] == "recv" {
			o.Kind = RecvOp
		}
		o, err = g.peer(o, w)
		w = w[4:]
	default:
		return o, fmt.Errorf("%q: expected calc NS, send Nb to R, recv Nb from R, L requires L, L irequires L or }", strings.Join(w, " "))
	}
	for ; err == nil && len(w) > 0; w = w[min(2, len(w)):] {
		err = o.option(w)
	}
	return o, err
}

// peer reads the size and the rank of a message.
func (g *goal) peer(o Op, w []string) (Op, error) {
	preposition := map[string]string{"send": "to", "recv": "from"}[w[0]]
	size, isBytes := strings.CutSuffix(w[1], "b")
	switch {
	case !isBytes || w[2] != preposition:
		return o, fmt.Errorf("%q: expected %s Nb %s R, such as %[2]s 4096b %[3]s 1", strings.Join(w, " "), w[0], preposition)
	case w[3] == "-1":
		return o, fmt.Errorf("%s from -1: a recv from any rank is not supported; name the rank that the trace has recorded", w[0])
	}
	bytes, err := number("size", size, MaxMessage)
	if err != nil {
		return o, err
	}
	peer, err := number(preposition, w[3], mostRank)
	switch {
	case err != nil:
		return o, err
	case int(peer) >= g.ranks:
		return o, fmt.Errorf("%s %d: num_ranks is %d, so ranks are 0 to %d", preposition, peer, g.ranks, g.ranks-1)
	case int32(peer) == g.rank:
		return o, fmt.Errorf("%s %d: a rank does not send to itself; replace the message by a calc", preposition, peer)
	}
	o.Bytes, o.Peer = uint32(bytes), int32(peer)
	return o, nil
}

// option reads "tag T", "cpu C" or "nic N". NICs follow from the topology.
func (o *Op) option(w []string) error {
	if len(w) == 1 {
		return fmt.Errorf("%q: expected tag T, cpu C or nic N", w[0])
	}
	var n uint64
	var err error
	switch w[0] {
	case "tag":
		if w[1] == "-1" {
			return fmt.Errorf("tag -1: a recv of any tag is not supported; use the tag of its send")
		}
		n, err = number("tag", w[1], 1<<32-1)
		o.Tag = uint32(n)
	case "cpu":
		n, err = number("cpu", w[1], 1<<16-1)
		o.CPU = uint16(n)
	case "nic":
		_, err = number("nic", w[1], 1<<16-1)
	default:
		err = fmt.Errorf("%q: expected tag, cpu or nic", w[0])
	}
	return err
}

// number reads a whole number.
func number(what, word string, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%s %q: must be a whole number from 0 to %d", what, word, most)
	}
	return n, nil
}
