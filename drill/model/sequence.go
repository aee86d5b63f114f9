package model

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Sequence is the choices of a random sequence: those of the queue pair, then those of each step.
type Sequence [][]uint32

// kind is a kind of steps with its weight.
type kind struct {
	weight int
	run    func(*world)
}

// kinds are the kinds of steps by service.
var kinds = map[string][]kind{
	"rc": {{8, (*world).burst}, {8, (*world).post}, {2, (*world).more}, {2, (*world).dropped}, {2, (*world).ahead}, {4, (*world).again},
		{2, (*world).unready}, {3, (*world).refuse}, {2, (*world).verify}, {2, (*world).wait}, {1, (*world).rebind}, {1, (*world).words}, {1, (*world).invalid},
		{1, (*world).drain}, {1, (*world).abort}, {1, (*world).restart}, {1, (*world).notify}, {1, (*world).limited}, {1, (*world).query},
		{1, (*world).unsolicited}, {1, (*world).notified}, {2, (*world).neighbourMessage}, {1, (*world).mark}},
	"uc": {{8, (*world).stream}, {6, (*world).send}, {2, (*world).more}, {2, (*world).foreign}, {1, (*world).verify},
		{1, (*world).abort}, {1, (*world).restart}, {1, (*world).notify}, {1, (*world).query}, {1, (*world).stop}, {1, (*world).pause}, {1, (*world).notified}},
	"ud": {{8, (*world).datagrams}, {6, (*world).send}, {2, (*world).more}, {2, (*world).foreign}, {1, (*world).verify},
		{1, (*world).abort}, {1, (*world).restart}, {1, (*world).overlong}, {1, (*world).query},
		{1, (*world).stop}, {1, (*world).pause}},
}

// more posts receives.
func (w *world) more() {
	for range 1 + w.d.n(2) {
		if len(w.recvs) < 4 {
			w.receive(w.size())
		}
	}
}

// verify compares the memory of the device.
func (w *world) verify() {
	if w.settle(); w.pending {
		return
	}
	w.check(w.target, w.inbox, w.sink, w.nearby)
	w.checkWords()
}

// settle obtains an acknowledgement of all requests, unless a message is open.
func (w *world) settle() {
	switch {
	case w.service != "rc":
		w.settleUnreliable()
	case w.pending && w.open == nil:
		w.probe()
	}
}

// probe sends a message without data whose acknowledgement shows that the device has taken all packets before it.
func (w *world) probe() {
	w.silent, w.answers = false, nil
	w.ask()
}

// ask ends a burst with a message without data that requests an acknowledgement.
func (w *world) ask() {
	m := &message{op: "WRITE"}
	w.begin(m)
	w.transmit(m, 1, true)
	w.await()
}

// step runs a step with these choices and returns all that it made.
func (w *world) step(d draws) []uint32 {
	w.d = d
	sum := 0
	for _, k := range kinds[w.service] {
		sum += k.weight
	}
	n := w.d.n(sum)
	for _, k := range kinds[w.service] {
		if n -= k.weight; n < 0 {
			k.run(w)
			break
		}
	}
	return w.d.list
}

// Generate returns the sequence of a seed with a number of steps, and its script.
func Generate(seed uint64, steps int) (Sequence, *Text) {
	rng := rand.New(rand.NewPCG(seed, 0x6d6f64656c))
	w := newWorld(draws{rng: rng})
	s := Sequence{w.d.list}
	for range steps {
		s = append(s, w.step(draws{rng: rng}))
	}
	return s, w.end()
}

// Script returns the script of a sequence.
func (s Sequence) Script() *Text {
	w := newWorld(draws{list: s[0]})
	for _, list := range s[1:] {
		w.step(draws{list: list})
	}
	return w.end()
}

// end ends the script by comparing the memory and by a pause, after which nothing may be left over.
func (w *world) end() *Text {
	w.d = draws{}
	if w.open != nil {
		w.silent, w.answers = false, nil
		w.finish(w.open)
		w.await()
	}
	if w.verify(); w.whole && !w.pending {
		for _, m := range []*memory{w.target, w.source, w.sink, w.inbox} {
			m.touched = [][2]int{{0, memorySize}}
			w.check(m)
		}
	}
	w.say("", "quiet 5ms")
	return w.used()
}

// used returns the script without the regions that it does not use.
func (w *world) used() *Text {
	t := &Text{}
	all := strings.Join(w.lines, "\n")
	for i, line := range w.lines {
		name, value, made := strings.Cut(line, " = ")
		made = made && (strings.HasPrefix(value, "dut.mr ") || name == "A")
		if made && !strings.Contains(all, name+"[") && !strings.Contains(all, name+".") {
			continue
		}
		t.lines, t.rules = append(t.lines, line), append(t.rules, w.rules[i])
	}
	return t
}

// Text is the script of a sequence, without its head: the statements, and the ID of the rule that each checks.
type Text struct{ lines, rules []string }

// demands reports whether a statement can fail. Others send, permit or ignore a packet.
func demands(line string) bool {
	return !strings.HasPrefix(line, "ignore ") && !strings.HasPrefix(line, ">? ") && !strings.HasPrefix(line, "< ") && !strings.Contains(line, ": < ")
}

// headLines is the number of lines of the head.
const headLines = 2

// Rule returns the ID of the rule that a line of the script checks, "other" for rules of the engine.
func (t *Text) Rule(line int) string {
	if i := line - 1 - headLines; i >= 0 && i < len(t.rules) && t.rules[i] != "" {
		return t.rules[i]
	}
	return "other"
}

// Source returns the script with a head. Without a rule it cites that of the engine.
func (t *Text) Source(about string, r *Rule) string {
	if r == nil {
		r = &Rule{Spec: "IBTA 9.7"}
	}
	kind := map[bool]string{false: "must", true: "policy"}[r.Policy]
	return fmt.Sprintf("about %q\nspec %q %s\n%s\n", about, r.Spec, kind, strings.Join(t.lines, "\n"))
}
