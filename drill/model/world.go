package model

import (
	"fmt"
	"strings"
)

// Sizes of the regions of a sequence.
const (
	memorySize  = 65536
	payloadSize = 3 * largest
	largest     = 8192 // message
	words       = 8    // of atomic operations
)

// config are the attributes of the queue pair of a sequence.
type config struct {
	service              string
	mtu                  int
	v6, atomic, window   bool
	resources, readDepth int // of the device as responder and requester
	timeout, rnrRetry    int
	retry                int // timeouts
	sigAll               bool
}

// world is the predicted state of the device and the tester, and the script so far.
type world struct {
	d draws
	config
	lines, rules []string // of the script: text, and the ID of the rule that a line checks
	generation   int      // of connections
	labels       int
	works        int // work requests posted

	target, source, sink, inbox *memory
	word                        [words]uint64
	stale                       bool // words have changed since the last comparison
	fresh                       int  // of the payload bytes

	responder
	requester
}

// responder is the state of the device as responder.
type responder struct {
	next     int // PSN that it expects, relative to the first
	executed int // messages
	open     *message
	past     []*message
	recvs    []receive
	gap      bool // a NAK for a sequence error is outstanding
	notReady bool // an RNR NAK is outstanding
	silent   bool // the packets of this burst request no acknowledgement
	answers  []answer
	bound    bool     // the window is bound
	keys     []string // keys of windows that give access to nothing
	loose    bool     // an acknowledgement may come later or not at all
	pending  bool     // the newest requests have no answer that has to come
}

// receive is a posted receive.
type receive struct {
	id   int
	list pieces
	size int
}

func newWorld(head draws) *world {
	w := &world{d: head, target: newMemory("mr", memorySize), source: newMemory("src", memorySize), sink: newMemory("dst", memorySize),
		inbox: newMemory("rx", memorySize)}
	d := &w.d
	w.mtu = pick(d, 256, 1024, 512, 2048, 4096)
	w.service = pick(d, "rc", "rc", "rc", "rc", "rc", "rc", "uc", "ud")
	if w.service == "ud" {
		w.mtu = 4096 // of the link
	}
	w.v6, w.atomic = d.one(4), w.service == "rc" && d.n(4) != 1
	w.window = w.service == "rc" && d.one(4)
	w.resources, w.readDepth = pick(d, 4, 1, 2, 4), pick(d, 4, 1, 2, 4)
	w.timeout, w.rnrRetry = pick(d, 0, 0, 0, 16, 17), pick(d, endless, endless, 1, 2, 0)
	w.retry, w.sigAll = 7, d.one(6)
	if w.timeout > 0 {
		w.retry = pick(d, 2, 1, 3)
	}
	need := w.service
	if w.v6 {
		need += ", ipv6"
	}
	if w.atomic {
		need += ", atomic"
	}
	if w.window {
		need += ", mw, inval"
	}
	w.say("", "need %s", need)
	w.say("", "B = rand(%d)", payloadSize)
	w.say("", "C = count(%d)", memorySize)
	for _, m := range []*memory{w.target, w.source, w.sink, w.inbox} {
		w.say("", "%s = dut.mr size=%d fill=count", m.name, len(m.cells))
	}
	w.say("", "at = dut.mr size=%d", 8*words)
	w.connect()
	return w
}

// connect makes the queue pair, or connects it again after an error.
func (w *world) connect() {
	w.responder, w.requester = responder{}, requester{rnrLeft: w.rnrRetry}
	w.generation++
	p := w.d.n(1 << 24)
	if w.generation == 1 {
		p = pick(&w.d, 1000, 1<<24-3, 1<<23-2, p)
	}
	q := (p + 1<<22 + w.d.n(1<<23)) & (1<<24 - 1) // far from p: the packets of both directions differ
	w.say("", "P%d = %d", w.generation, p)
	w.say("", "Q%d = %d", w.generation, q)
	receiver := fmt.Sprintf("mtu=%d rqpsn=%s dest_rd_atomic=%d", w.mtu, w.q(0), w.resources)
	sender := fmt.Sprintf("psn=%s timeout=%d retry=%d rnr_retry=%d rd_atomic=%d", w.p(0), w.timeout, w.retry, w.rnrRetry, w.readDepth)
	signals := map[bool]string{true: " sigall=1"}[w.sigAll]
	switch {
	case w.service == "ud":
		w.say("", "ah = dut.ah")
		w.say("", "qp = dut.qp ud psn=%s qkey=%#x%s", w.p(0), qkey, signals)
		return
	case w.service == "uc":
		w.say("", "qp = dut.qp uc mtu=%d rqpsn=%s psn=%s%s", w.mtu, w.q(0), w.p(0), signals)
		return
	case w.generation == 1:
		w.say("", "qp = dut.qp rc %s %s%s", receiver, sender, signals)
		if w.window {
			w.bind()
		}
		return
	}
	w.say("", "dut.modify qp state=RESET")
	w.say("", "dut.modify qp state=INIT")
	w.say("reset", "dut.modify qp state=RTR %s", receiver)
	w.say("reset", "dut.modify qp state=RTS %s", sender)
}

// p and q return PSNs of requests of the device and of the tester.
func (w *world) p(n int) string { return fmt.Sprintf("P%d%+d", w.generation, n) }
func (w *world) q(n int) string { return fmt.Sprintf("Q%d%+d", w.generation, n) }

// say appends a statement, with the rule that it checks.
func (w *world) say(rule, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if rule != "" {
		text += " # " + rule
	}
	w.lines, w.rules = append(w.lines, text), append(w.rules, rule)
}

// expect appends the packets that the device has to send next, in this order.
func (w *world) expect(rule string, packets []string, time string) {
	if len(packets) == 0 {
		return
	}
	if len(packets) == 1 && time == "" {
		w.say(rule, "> %s", packets[0])
		return
	}
	w.say(rule, "> { %s }%s", strings.Join(packets, " ; "), time)
}

// label returns a new label.
func (w *world) label() string {
	w.labels++
	return fmt.Sprintf("t%d", w.labels)
}

// size chooses the length of a message.
func (w *world) size() int {
	d := &w.d
	n := pick(d, 4, 0, 1+d.n(64), w.mtu-1, w.mtu, w.mtu+1, 2*w.mtu, 2*w.mtu+1+d.n(w.mtu), d.n(3*w.mtu))
	return min(n, largest)
}

// packets returns how many packets a message of n bytes has.
func (w *world) packets(n int) int { return max(1, (n+w.mtu-1)/w.mtu) }

// payload returns n bytes that no recent message had.
func (w *world) payload(n int) []cell {
	if w.fresh+n > payloadSize {
		w.fresh = 0
	}
	w.fresh += n
	return origin(payloadBytes, w.fresh-n, n)
}

// parts splits n bytes of a region into the elements of a list.
func (w *world) parts(m *memory, n int) (list pieces) {
	at := m.reserve(n)
	for n > 0 {
		k := n
		if len(list) < 3 && w.d.one(3) {
			k = 1 + w.d.n(n)
		}
		list = append(list, piece{m, at, at + k})
		at, n = at+k, n-k
	}
	return list
}

// check compares the memory that messages have changed, and the bytes around it, with the model.
func (w *world) check(regions ...*memory) {
	const most = 2048
	for _, m := range regions {
		for _, t := range m.changed() {
			for from, to := t[0], t[1]; from < to; {
				end := from
				for end < to && end < from+most && m.cells[end] != unknownCell {
					end++
				}
				if end > from {
					w.say("memory", "dut.check %s[%d:%d] data=%s", m.name, from, end, expression(m.read(from, end)))
				}
				for from = end; from < to && m.cells[from] == unknownCell; from++ {
				}
			}
		}
		m.touched = nil
	}
}

// checkWords compares the memory of atomic operations.
func (w *world) checkWords() {
	if !w.stale {
		return
	}
	w.stale = false
	list := make([]string, words)
	for i, v := range w.word {
		list[i] = fmt.Sprintf("host64(%#x)", v)
	}
	w.say("memory", "dut.check at[0:%d] data=%s", 8*words, strings.Join(list, "+"))
}
