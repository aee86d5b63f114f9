package engine

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
	"roced.io/roced/plugin/mono"
)

// Options describe the tester's side of a run.
type Options struct {
	Seed uint64
	// ID is the tester's communication ID, another one in each run on a device.
	ID uint32
	// Caps are the capabilities of the device. A script that needs another one is not applicable.
	Caps []string
	// Addresses of the tester and of the device. The IPv6 ones are for scripts that need ipv6.
	Tester, DUT       netip.Addr
	Tester6, DUT6     netip.Addr
	Second, Second6   netip.Addr // of the device beside DUT and DUT6, for the capability "second"
	TesterMAC, DUTMAC [6]byte
	// IP is the IP version of all scripts: 4 or 6. Zero: IPv4, and IPv6 for those that need it.
	IP int
	// VLAN is the VLAN of the run, 0 for none. All frames have its tag unless the script names another one.
	VLAN uint16
	// SL is the service level of paths that the script gives none.
	SL uint8
	// MTU is the greatest path MTU of the device and the link, which MTULimit describes. Zero: any.
	MTU      int
	MTULimit string
	// LinkMTU is the MTU of the tester's interface, zero if it has none.
	LinkMTU int
	// Slack is added to every upper bound: the time that tester and agent need.
	Slack time.Duration
	// Limit is the upper bound where a script names none.
	Limit time.Duration
	// Memory is the most bytes of values, regions and recorded packets; zero: DefaultMemory.
	Memory uint64
	// Interrupted is asked while statements run without waiting; an error ends the run. It may be nil.
	Interrupted func() error
}

// DefaultMemory is the default of Options.Memory.
const DefaultMemory = 1 << 30

// Output is the next action of the engine: a frame to send, or a command for the agent.
type Output struct {
	Frame   []byte
	Command string
}

// label is the time of a statement, with the packet that it sent or received.
type label struct {
	at    mono.Time
	frame *frame.Frame
}

// received is a frame of the device that no statement has taken yet.
type received struct {
	at       mono.Time
	frame    *frame.Frame
	repeated bool // a request that the device had sent before
}

// level is a position in a list of statements: the script, the body of a loop, or a branch.
type level struct {
	body    []script.Stmt
	index   int
	loop    *script.For
	i, last uint64
}

// Engine runs one script.
type Engine struct {
	script *script.Script
	o      Options
	rng    *rand.Rand

	env     map[string]value  // variables, and attributes as "qp.num"
	objects map[string]bool   // of the device
	regions map[string][]byte // initial content of memory regions
	labels  map[string]label
	levels  []level

	began    mono.Time // of the current statement
	previous mono.Time // time of the previous packet, verb or pause
	current  *running  // state of the current statement, nil before it begins
	command  *command  // waits for its answer
	out      []Output

	frames      []received
	completions map[string][2][]completion // by queue pair: of the send queue, of the receive queue
	events      []event
	permitted   []*script.Packet // optional packets that may still come
	ignored     []*script.Packet

	observed // of the device, by rules for all scripts

	used     uint64            // of Options.Memory
	sizes    map[string]uint64 // part of it, by object
	steps    int               // since Options.Interrupted was asked
	quiet    bool              // a quiet statement has passed: a slow device may not have taken the packets before it
	wanted   string            // packets of the statement that fails
	measured []Measure
	shortest time.Duration // acknowledgement timeout that the script sets, zero if none
	result   *Result
	log      []Entry
}

// New prepares a run. The error is a *script.Error.
func New(s *script.Script, o Options) (*Engine, error) {
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	e := &Engine{script: s, o: o, rng: newRNG(o.Seed), env: map[string]value{}, objects: map[string]bool{}, regions: map[string][]byte{},
		labels: map[string]label{}, sizes: map[string]uint64{}, completions: map[string][2][]completion{}, levels: []level{{body: s.Body}}, observed: observe(o)}
	for name, psn := range map[string]uint64{"P": e.firstPSN(0), "Q": e.firstPSN(1)} {
		e.env[name] = numberOf(psn)
	}
	e.env["tester.qpn"], e.env["tester.id"], e.env["tester.vlan"] = numberOf(testerQPN), numberOf(uint64(o.ID)), numberOf(uint64(o.VLAN))
	tester, device := e.addresses()
	other := tester.AsSlice() // an address that no station has
	other[len(other)-1] += 76
	e.env["tester.addr"], e.env["dut.addr"], e.env["other.addr"] = bytesOf(tester.AsSlice()), bytesOf(device.AsSlice()), bytesOf(other)
	second := map[bool]netip.Addr{false: o.Second, true: o.Second6}[e.v6()]
	e.env["second.addr"] = bytesOf(second.AsSlice())
	if errs := Lint(s); len(errs) > 0 {
		return nil, errs[0]
	}
	e.expects(s.Body)
	e.applicable()
	return e, nil
}

// addresses returns the addresses of the tester and of the device in this run.
func (e *Engine) addresses() (tester, device netip.Addr) {
	if e.v6() {
		return e.o.Tester6, e.o.DUT6
	}
	return e.o.Tester, e.o.DUT
}

// testerQPN is the usual number of the tester's queue pair. Scripts may use any.
const testerQPN = 0x11

// managementQPN is the queue pair of the connection manager.
const managementQPN = 1

// firstPSN returns the first PSN of a direction. Every second seed begins up to eight packets before the wrap.
func (e *Engine) firstPSN(direction uint64) uint64 {
	r := rand.New(rand.NewPCG(e.o.Seed, direction))
	if e.o.Seed%2 == 1 {
		return 1<<24 - 1 - r.Uint64N(8)
	}
	return r.Uint64N(1 << 24)
}

// Done reports whether the run has ended. Then Result returns the outcome.
func (e *Engine) Done() bool { return e.result != nil && len(e.out) == 0 }

// Result returns the outcome, nil before the end.
func (e *Engine) Result() *Result { return e.result }

// Poll returns the next action. Call it until ok is false after each input, and first of all.
func (e *Engine) Poll(now mono.Time) (o Output, ok bool) {
	e.run(now)
	if len(e.out) == 0 {
		return o, false
	}
	o = e.out[0]
	e.out = e.out[1:]
	return o, true
}

// Frame takes a frame of the device, which arrived at this time. Frames other than RoCEv2 are the driver's business; the engine
// ignores them.
func (e *Engine) Frame(at mono.Time, b []byte) {
	if e.result != nil {
		return
	}
	f, err := frame.Parse(slices.Clone(b))
	if err == frame.ErrOther {
		return
	}
	if !e.own(f, err == nil) {
		if e.others++; e.others <= mostShown {
			e.log = append(e.log, Entry{At: at, Dir: FromDUT, Text: "other traffic: " + f.String(), Pos: e.pos()})
		}
		return
	}
	if err == nil {
		err = f.Check()
	}
	e.record(at, FromDUT, f, "")
	if err != nil {
		e.finish(Failed, e.pos(), fmt.Sprintf("the device sent a broken frame: %v: %x", err, b[:min(len(b), 100)]))
		return
	}
	if why := e.inspect(f); why != "" {
		e.finish(Failed, e.pos(), fmt.Sprintf("the device sent %v: %s", f, why))
		return
	}
	e.frames = append(e.frames, received{at, f, e.repeated})
}

// Reply takes a line of the agent: the answer to the command, or a report of a completion or an event.
func (e *Engine) Reply(now mono.Time, line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case e.result != nil:
	case word == "cqe":
		e.completed(now, Fields(rest))
	case word == "event":
		a := Fields(rest)
		private, _ := hex.DecodeString(a["private"])
		v := event{on: a["on"], kind: a["type"], fields: a, private: private, at: now}
		v.follows = e.permitsEvent(v)
		e.events = append(e.events, v)
		e.record(now, FromDUT, nil, line)
	case e.command == nil:
		e.finish(Broken, e.pos(), "the agent answers without a command: "+line)
	case word == "ok":
		e.guard(func() { e.answered(now, Fields(rest)) })
	case word == "error":
		e.refused(now, rest)
	default:
		e.finish(Broken, e.command.call.Pos, fmt.Sprintf("the agent answers %.100q to dut.%s; it must begin with ok or error", line, e.command.call.Verb))
	}
}

// Fields splits "a=b c=d", the arguments of a command for the agent or of its answer.
func Fields(s string) map[string]string {
	m := map[string]string{}
	for _, f := range strings.Fields(s) {
		k, v, _ := strings.Cut(f, "=")
		m[k] = v
	}
	return m
}

// Lost ends the run: the agent is unreachable, or the device hangs.
func (e *Engine) Lost(now mono.Time, err error) {
	if e.result == nil {
		e.record(now, FromDUT, nil, err.Error())
		e.finish(Broken, e.pos(), err.Error())
	}
}

// Stop ends the run because the caller was interrupted. It drops outputs that Poll has not returned.
func (e *Engine) Stop() {
	e.finish(Stopped, e.pos(), "the run was interrupted")
	e.out = nil
}

// Advance lets the time pass.
func (e *Engine) Advance(now mono.Time) { e.run(now) }

// pos returns the place of the current statement.
func (e *Engine) pos() script.Pos {
	if s := e.stmt(); s != nil {
		return s.At()
	}
	return script.Pos{Line: len(e.script.Lines), Col: 1}
}

// stmt returns the current statement, nil at the end.
func (e *Engine) stmt() script.Stmt {
	if n := len(e.levels); n > 0 && e.levels[n-1].index < len(e.levels[n-1].body) {
		return e.levels[n-1].body[e.levels[n-1].index]
	}
	return nil
}

// guard runs f. An error of the script ends the run.
func (e *Engine) guard(f func()) {
	defer func() {
		if r := recover(); r != nil {
			err, ok := r.(*script.Error)
			if !ok {
				panic(r)
			}
			e.finish(BadScript, err.Pos, err.Text)
		}
	}()
	f()
}

// run executes statements until one has to wait.
func (e *Engine) run(now mono.Time) {
	e.guard(func() {
		for e.result == nil && len(e.out) < ahead && e.execute(now) {
			if e.steps++; e.steps < asks || e.o.Interrupted == nil {
				continue
			}
			if e.steps = 0; e.o.Interrupted() != nil {
				e.Stop()
			}
		}
	})
}

// ahead is the number of outputs that wait for Poll at most.
const ahead = 64

// asks is the number of steps between two calls of Options.Interrupted. A step is a statement, or a KiB of a new value.
const asks = 1000

// execute runs the current statement. It returns false if the statement has to wait.
func (e *Engine) execute(now mono.Time) bool {
	s := e.stmt()
	if s == nil {
		return e.leave(now)
	}
	if e.current == nil {
		e.began = now
		e.current = &running{}
		e.begin(now, s)
	}
	if e.result != nil || !e.progress(now, s) {
		return false
	}
	e.current = nil
	if l := &e.levels[len(e.levels)-1]; l.index < len(l.body) && l.body[l.index] == s {
		l.index++
	}
	return true
}

// leave ends a block or the script.
func (e *Engine) leave(now mono.Time) bool {
	l := &e.levels[len(e.levels)-1]
	if len(e.levels) == 1 {
		e.end()
		return false
	}
	if l.i++; l.loop != nil && l.i <= l.last {
		l.index = 0
		e.env[l.loop.Var] = numberOf(l.i)
		return true
	}
	e.levels = e.levels[:len(e.levels)-1]
	e.levels[len(e.levels)-1].index++
	return true
}

// end checks that nothing is left over.
func (e *Engine) end() {
	pos := e.pos()
	if e.permitAll(); len(e.frames) > 0 {
		e.finish(Failed, pos, "the device sent a packet that the script does not expect: "+e.frames[0].frame.String())
		return
	}
	for _, qp := range sortedKeys(e.completions) {
		for _, queue := range e.completions[qp] {
			if len(queue) > 0 {
				e.finish(Failed, pos, fmt.Sprintf("%s has a completion that the script does not expect: %v", qp, queue[0]))
				return
			}
		}
	}
	for _, v := range e.events {
		if !v.follows && !e.permitsEvent(v) {
			e.finish(Failed, pos, fmt.Sprintf("the device reports the event %s of %s, which the script does not expect", v.kind, v.on))
			return
		}
	}
	e.finish(Passed, pos, "")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// setLabel remembers when a labelled statement happened.
func (e *Engine) setLabel(name string, at mono.Time, f *frame.Frame) {
	e.previous = at
	if name != "" {
		e.labels[name] = label{at, f}
	}
}

// bound starts the time of the current statement. It counts from a label, or from the previous packet, verb or pause.
func (e *Engine) bound(t script.Time) {
	e.current.base = e.previous
	if t.Of != "" {
		l, ok := e.labels[t.Of]
		if !ok {
			e.fail(t.Pos, "there is no label %s before this line", t.Of)
		}
		e.current.base = l.at
	}
	c := e.current
	c.within, c.after = e.duration(t.Within), e.duration(t.After)
	if c.within > 0 {
		c.until = c.base.Add(c.within + e.o.Slack)
	} else {
		c.until = e.began.Add(e.o.Limit + c.after + e.o.Slack)
	}
}

// NextTimeout returns when Advance is due.
func (e *Engine) NextTimeout() mono.Time {
	if e.result != nil || e.current == nil {
		return mono.Never
	}
	return e.current.until
}
