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
	largest              int  // path MTU
	minRNR               int  // timer of RNR NAKs
	shared               bool // the receives are those of a shared receive queue
	wraps                bool // the PSNs of the device begin close to 0, not those of the tester
	armed                bool // the script can arm the completion queue of receives
	sends                bool // the script can arm the completion queue of requests
	marks                bool // the network marks some packets of the tester
	notifies             bool // the device sends CNPs
	ignores              bool // the script ignores some PSNs
	group                bool // the queue pair is attached to a multicast group
	whole                bool // the whole memory is compared at the end
}

// world is the predicted state of the device and the tester, and the script so far.
type world struct {
	d draws
	config
	lines, rules []string // of the script: text, and the ID of the rule that a line checks
	generation   int      // of connections
	labels       int
	works        int // work requests posted
	tags         int // keys of the window

	target, source, sink, inbox *memory
	nearby                      *memory   // of the neighbour
	aside                       []*memory // regions that no message may change
	word                        [words]uint64
	stale                       bool // words have changed since the last comparison
	fresh                       int  // of the payload bytes

	responder
	requester
	other neighbour
}

// responder is the state of the device as responder.
type responder struct {
	next     int // PSN that it expects, relative to the first
	executed int // messages
	open     *message
	past     []*message
	recvs    []receive
	taken    []receive // by a message that breaks the queue pair
	status   string    // of the receive of that message
	gap      bool      // a NAK for a sequence error is outstanding
	notReady bool      // an RNR NAK is outstanding
	fixed    bool      // the rights of the queue pair cannot change
	silent   bool      // the packets of this burst request no acknowledgement
	answers  []answer
	bound    window
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
		inbox: newMemory("rx", memorySize), nearby: newMemory("nb", memorySize)}
	d := &w.d
	w.largest = pick(d, 256, 1024, 512, 2048, 4096)
	w.service = pick(d, "rc", "rc", "rc", "rc", "rc", "rc", "uc", "ud")
	w.v6, w.atomic = d.one(4), w.service == "rc" && d.n(4) != 1
	w.window = w.service == "rc" && d.one(4)
	w.sigAll, w.wraps = d.one(6), d.n(2) == 0
	w.shared, w.armed, w.whole = w.service != "uc" && d.one(5), d.one(3), d.one(4)
	w.sends, w.marks = d.one(4), d.one(4)
	w.group, w.notifies = w.service == "ud" && d.one(3), w.service == "rc" && d.one(4)
	w.say("", "%s", with("need "+w.service, option{w.v6, ", ipv6"}, option{w.atomic, ", atomic"}, option{w.window, ", mw, inval"}, option{w.shared, ", srq"},
		option{w.group, ", multicast"}, option{w.notifies, ", ecn"}))
	w.say("", "B = rand(%d)", payloadSize)
	w.say("", "C = count(%d)", memorySize)
	w.say("", "A = tester.addr+dut.addr")
	for _, m := range []*memory{w.target, w.source, w.sink, w.inbox, w.nearby} {
		w.say("", "%s = dut.mr size=%d fill=count", m.name, len(m.cells))
	}
	w.say("", "at = dut.mr size=%d", 8*words)
	if w.shared {
		w.say("", "srq = dut.srq size=16")
	}
	if w.armed {
		w.say("", "cq = dut.cq size=256")
	}
	if w.sends {
		w.say("", "cs = dut.cq size=256")
	}
	w.connect()
	return w
}

// option is a word of a statement that some sequences have.
type option struct {
	set  bool
	word string
}

// with returns a statement with the words of the options that are set.
func with(text string, options ...option) string {
	for _, o := range options {
		if o.set {
			text += o.word
		}
	}
	return text
}

// attributes chooses the attributes of a reliable connection.
func (w *world) attributes() {
	if w.service != "rc" {
		return
	}
	d := &w.d
	w.resources, w.readDepth = pick(d, 4, 1, 2, 4, 0), pick(d, 4, 1, 2, 4)
	w.timeout, w.rnrRetry = pick(d, 0, 0, 0, 16, 17), pick(d, endless, endless, 1, 2, 0)
	w.retry = pick(d, 7, 1, 2, 3)
	if w.timeout > 0 {
		w.retry = pick(d, 2, 1, 3)
	}
	w.minRNR = pick(d, 12, d.n(32))
}

// firstPSNs chooses the first PSNs of both directions, often close to a wrap. All PSNs of a sequence differ, because "ignore" goes on
// in later connections. Those of one direction lie around 0, of the other around 2^23. A packet of an earlier connection is a duplicate.
func (w *world) firstPSNs() (p, q int) {
	const half, distance = 1 << 23, 1 << 14
	d := &w.d
	if w.generation > 1 {
		p, q = half/4+w.generation*distance, half+half/4+w.generation*distance
	} else {
		p, q = pick(d, 1000, 2*half-3, 2*half-1-d.n(30), half/8+d.n(half/8)), pick(d, half+1000, half-2, half+half/8+d.n(half/8))
	}
	if w.wraps {
		return p, q
	}
	return q, p
}

// connect makes the queue pair, or connects it again after an error.
func (w *world) connect() {
	left, trace := w.recvs, w.trace()
	w.attributes()
	w.responder, w.requester = responder{}, requester{rnrLeft: w.rnrRetry}
	if w.shared {
		w.recvs = left
	}
	w.generation++
	p, q := w.firstPSNs()
	w.say("", "P%d = %d", w.generation, p)
	w.say("", "Q%d = %d", w.generation, q)
	if w.mtu = w.largest; w.generation > 1 {
		w.mtu = min(w.mtu, pick(&w.d, w.mtu, 256, 1024))
	}
	init, rtr, rts := "", "", fmt.Sprintf(" psn=%s", w.p(0))
	switch w.service {
	case "rc":
		rtr = fmt.Sprintf(" mtu=%d rqpsn=%s dest_rd_atomic=%d min_rnr=%d", w.mtu, w.q(0), w.resources, w.minRNR)
		rts += fmt.Sprintf(" timeout=%d retry=%d rnr_retry=%d rd_atomic=%d", w.timeout, w.retry, w.rnrRetry, w.readDepth)
	case "uc":
		rtr = fmt.Sprintf(" mtu=%d rqpsn=%s", w.mtu, w.q(0))
	default:
		init = fmt.Sprintf(" qkey=%#x", qkey)
	}
	if w.generation > 1 {
		if w.group || !w.d.one(4) {
			w.reconnect(init, rtr, rts)
		} else {
			w.replace(init + rtr + rts)
		}
		w.forgotten(trace)
		return
	}
	if w.service == "ud" {
		w.say("", "ah = dut.ah")
	}
	w.create(init + rtr + rts)
	if w.window {
		w.bind()
	}
	if w.group {
		w.attach()
	}
}

// create makes the queue pair with these attributes. Its path MTU bounds datagrams.
func (w *world) create(attributes string) {
	w.say("", "%s", with("qp = dut.qp "+w.service+attributes, option{w.sigAll, " sigall=1"}, option{w.shared, " srq=srq"}, option{w.armed, " rcq=cq"},
		option{w.sends, " scq=cs"}, option{w.service == "ud", fmt.Sprintf(" mtu=%d", w.mtu)}))
}

// replace destroys the queue pair and makes another one.
func (w *world) replace(attributes string) {
	w.say("", "dut.destroy qp")
	w.outside()
	w.create(attributes)
}

// trace returns an atomic request of this connection, empty for none.
func (w *world) trace() string {
	for _, m := range w.past {
		if m.op == "FETCH_ADD" || m.op == "CMP_SWAP" {
			return w.packet(m, 0)
		}
	}
	return ""
}

// forgotten sends an atomic request of the previous connection. The device must not return its saved result.
func (w *world) forgotten(request string) {
	if request != "" && w.d.one(2) {
		w.say("reset", "< %s", request)
		w.say("reset", "quiet 1ms")
	}
}

// reconnect takes the queue pair through all states, with the attributes that they need.
func (w *world) reconnect(init, rtr, rts string) {
	if w.d.one(3) {
		w.neighbourMessage()
	}
	w.say("", "dut.modify qp state=RESET")
	w.outside()
	w.refuses("state=RTR", "state=RTS", "state=SQD")
	w.say("", "dut.modify qp state=INIT%s", init)
	w.refuses("state=RTS", "state=SQD")
	if w.d.one(4) {
		w.more()
	}
	w.outside()
	w.say("reset", "dut.modify qp state=RTR%s", rtr)
	w.refuses("state=INIT", "state=SQD")
	if w.service == "rc" && w.d.one(4) {
		w.unsolicited()
	}
	if w.d.one(3) {
		w.receives()
	}
	w.say("reset", "dut.modify qp state=RTS%s", rts)
}

// refuses may ask for a change that the state of the queue pair does not permit.
func (w *world) refuses(changes ...string) {
	if w.d.one(4) {
		w.say("refused", "dut.modify qp %s fails=1", pick(&w.d, changes...))
	}
}

// outside may send a packet to a queue pair that is destroyed or not in a state to receive.
func (w *world) outside() {
	if w.d.one(4) {
		w.say("state", "< %s dst=qp.num", w.candidate(w.next))
		w.say("state", "quiet 1ms")
	}
}

// maybeQuiet may demand that the device answers nothing.
func (w *world) maybeQuiet(rule string) {
	if w.d.one(2) {
		w.say(rule, "quiet 1ms")
	}
}

// receives sends some messages of the service to a queue pair that is not in RTS.
func (w *world) receives() {
	w.fixed = true
	defer func() { w.fixed = false }()
	switch w.service {
	case "rc":
		w.burst()
	case "uc":
		w.stream()
	default:
		w.datagrams()
	}
}

// p and q return PSNs of requests of the device and of the tester.
func (w *world) p(n int) string { return fmt.Sprintf("P%d%+d", w.generation, n) }
func (w *world) q(n int) string { return fmt.Sprintf("Q%d%+d", w.generation, n) }

// say appends a statement, with the rule that it checks. Beside a neighbour, a packet to the queue pair names it.
func (w *world) say(rule, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if sends := strings.HasPrefix(text, "< ") || strings.Contains(text, ": < "); sends && w.other.made && !strings.Contains(text, " dst=") {
		text += " dst=qp.num"
	}
	w.ignores = w.ignores || strings.HasPrefix(text, "ignore ")
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

// untouched makes a region of the device whose memory no message may change.
func (w *world) untouched(name, keys string) {
	m := newMemory(name, memorySize)
	m.touched = [][2]int{{0, w.mtu}}
	w.say("", "%s = dut.mr size=%d fill=count%s", name, memorySize, keys)
	w.aside = append(w.aside, m)
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
	w.say("memory", "dut.check at[0:%d] data=%s", 8*words, w.wordBytes())
}

// wordBytes returns the memory of atomic operations in the notation of scripts.
func (w *world) wordBytes() string {
	list := make([]string, words)
	for i, v := range w.word {
		list[i] = fmt.Sprintf("host64(%#x)", v)
	}
	return strings.Join(list, "+")
}
