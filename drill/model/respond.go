package model

import (
	"fmt"
	"slices"
	"strings"
)

// message is a request of the tester.
type message struct {
	op         string // SEND, WRITE, READ, FETCH_ADD or CMP_SWAP
	first      int    // PSN
	packets    int
	size       int
	at         int // offset in the target, or the word
	key        string
	imm        int    // of the completion, 0 for none
	inv        string // key that it invalidates
	data       []cell
	sent       int // packets
	recv       receive
	label      string // of the last packet
	solicited  string // field of the last packet, which then has no harmless fields
	add, match uint64
	original   uint64 // of atomics
	msn        int    // messages executed, with this one
}

// answer is a packet with which the responder answers.
type answer struct {
	rule, text string
	counts     bool // the answer has an MSN: at least msn, at most that of the end of the burst
	msn        int
	optional   bool
	local      bool // a completion
}

// answered reports whether the message has a response of its own.
func (m *message) answered() bool { return m.op != "SEND" && m.op != "WRITE" }

// consumes reports whether the message needs a receive.
func (m *message) consumes() bool { return m.op == "SEND" || m.op == "WRITE" && m.imm > 0 }

// position returns the end of an opcode's name for packet i of n.
func position(i, n int) string {
	switch {
	case n == 1:
		return "_ONLY"
	case i == 0:
		return "_FIRST"
	case i == n-1:
		return "_LAST"
	}
	return "_MIDDLE"
}

// part returns packet i of data.
func (w *world) part(data []cell, i int) []cell {
	return data[min(i*w.mtu, len(data)):min((i+1)*w.mtu, len(data))]
}

// packet returns packet i of a message, without an acknowledgement request.
func (w *world) packet(m *message, i int) string {
	psn := w.q(m.first + i)
	switch m.op {
	case "READ":
		return fmt.Sprintf("READ_REQUEST psn=%s %s len=%d", psn, address(m, m.at+i*w.mtu), m.size-i*w.mtu)
	case "FETCH_ADD":
		return fmt.Sprintf("FETCH_ADD psn=%s va=at.va+%d rkey=at.rkey swap=%#x", psn, 8*m.at, m.add)
	case "CMP_SWAP":
		return fmt.Sprintf("CMP_SWAP psn=%s va=at.va+%d rkey=at.rkey compare=%#x swap=%#x", psn, 8*m.at, m.match, m.add)
	}
	text := w.prefix() + m.op + position(i, m.packets)
	last := i == m.packets-1
	if m.imm > 0 && last {
		text += fmt.Sprintf("_IMM imm=%#x", m.imm)
	}
	if m.inv != "" && last {
		text += "_INV inv=" + m.inv
	}
	text += " psn=" + psn
	if m.op == "WRITE" && i == 0 {
		text += fmt.Sprintf(" %s len=%d", address(m, m.at), m.size)
	}
	if data := w.part(m.data, i); len(data) > 0 {
		text += " payload=" + expression(data)
	}
	return text
}

// address returns the address and key of a remote operation. Without data, they do not matter.
func address(m *message, at int) string {
	if m.size == 0 {
		return "va=1 rkey=0x1234"
	}
	return fmt.Sprintf("va=mr.va+%d rkey=%s", at, m.key)
}

// harmless chooses header fields that do not matter to a receiver.
func (w *world) harmless() string {
	if !w.d.one(8) {
		return ""
	}
	if w.marks && w.d.one(2) {
		w.say("", ">? CNP dst=0x11")
		return " ip.ecn=3"
	}
	return pick(&w.d, " mig=0", " se=1", " bth.res6=0x2a", " bth.res7=0x55", " udp.sport=1", " ip.ttl=1", " ip.dscp=9", " ip.ecn=1", " ip.ecn=2", " fecn=1", " pkey=0x7fff")
}

// burst sends some messages, which may go on in the next burst, and expects the answers.
func (w *world) burst() {
	w.silent, w.answers = w.d.one(8), nil
	if w.open != nil {
		w.finish(w.open)
	}
	n, used := 1+w.d.n(4), 0
	for i := range n {
		if w.open != nil {
			break
		}
		m := w.choose(used < w.resources)
		if m.answered() {
			used++
		}
		if i > 0 && w.d.one(6) {
			w.repeatWithin()
		}
		w.begin(m)
		if i == n-1 && m.packets > 1 && w.d.one(4) {
			w.transmit(m, 1+w.d.n(m.packets-1), true)
		} else {
			w.transmit(m, m.packets, i == n-1)
		}
	}
	w.await()
}

// repeatWithin sends a duplicate of a SEND or WRITE inside a burst. Its acknowledgement may come later, or not at all.
func (w *world) repeatWithin() {
	m := w.past[len(w.past)-1-w.d.n(min(len(w.past), 3))]
	if m.answered() || m.key != "" && m.key != "mr.rkey" {
		return
	}
	duplicate, i := *m, w.d.n(m.packets)
	duplicate.data = w.payload(m.size)
	w.say("dup.write", "< %s", w.packet(&duplicate, i))
	w.answers = append(w.answers, answer{rule: "dup.write", text: fmt.Sprintf("ACKNOWLEDGE psn=%s", w.q(m.first+i)), optional: true, counts: true, msn: w.executed})
}

// choose chooses a message.
func (w *world) choose(answered bool) *message {
	ops := []string{"SEND", "WRITE", "WRITE", "SEND"}
	if answered {
		ops = append(ops, "READ", "READ")
	}
	if answered && w.atomic {
		ops = append(ops, "FETCH_ADD", "CMP_SWAP")
	}
	m := &message{op: pick(&w.d, ops...)}
	switch m.op {
	case "FETCH_ADD", "CMP_SWAP":
		m.size, m.at = 0, w.d.n(words)
		m.add = pick(&w.d, 1, 1<<63, 1<<64-1, uint64(w.d.n(1<<20))<<20)
		m.match = pick(&w.d, w.word[m.at], 0, 5, w.word[m.at]^1<<32)
	default:
		m.size = w.size()
	}
	if m.op == "SEND" || m.op == "WRITE" {
		m.imm = max(0, w.d.n(4)-2) * (1 + 3*w.d.n(1<<30))
	}
	return m
}

// begin gives a message its PSN and its place. A SEND takes its receive.
func (w *world) begin(m *message) {
	if m.op == "SEND" {
		w.take(m, m.size+w.d.n(2)*w.d.n(100))
		m.size = min(m.size, m.recv.size)
	}
	w.place(m)
	if w.past = append(w.past, m); len(w.past) > 12 {
		w.past = w.past[1:]
	}
}

// take gives a message the oldest receive. It posts one of a size if none is there.
func (w *world) take(m *message, size int) {
	if len(w.recvs) == 0 {
		w.receive(size)
	}
	m.recv, w.recvs = w.recvs[0], w.recvs[1:]
}

// place gives a message its PSN, its address and its data.
func (w *world) place(m *message) {
	m.first, m.packets = w.next, w.packets(m.size)
	switch m.op {
	case "WRITE", "READ":
		m.at = w.region(m.op, m.size)
		m.key = w.keyOf(m.op, m.at, m.size)
	}
	if !m.answered() {
		m.data = w.payload(m.size)
	}
}

// region chooses a range of the target. A WRITE has one that no READ of the burst has: a responder may read when it executes a READ,
// or when it sends the packets. A READ often has one that was written lately.
func (w *world) region(op string, size int) int {
	const lately = memorySize / 4
	if last := w.target.free - size; op == "READ" && last >= 0 && w.d.one(2) {
		from := max(0, last-lately)
		return from + w.d.n(last-from+1)
	}
	return w.target.reserve(size)
}

// queue returns the name of the queue that has the receives.
func (w *world) queue() string {
	if w.shared {
		return "srq"
	}
	return "qp"
}

// receive posts a receive.
func (w *world) receive(size int) {
	w.works++
	if w.service == "ud" {
		size += grh
	}
	r := receive{w.works, w.parts(w.inbox, size), size}
	w.say("", "dut.recv %s wr=%d%s", w.queue(), r.id, r.list)
	w.recvs = append(w.recvs, r)
}

// transmit sends the packets of a message up to one, and notes their answers. The last packet of a burst requests an acknowledgement.
func (w *world) transmit(m *message, to int, last bool) {
	w.gap, w.notReady = false, false
	if m.answered() {
		w.say("", "< %s%s", w.packet(m, 0), w.harmless())
		w.execute(m)
		return
	}
	for ; m.sent < to; m.sent++ {
		if m.imm > 0 && m.op == "WRITE" && m.sent == m.packets-1 {
			w.ready(m)
		}
		asks := !w.silent && (last && m.sent == to-1 || w.d.one(4))
		w.say("", "%s%s", w.line(m, m.sent), map[bool]string{true: " ackreq=1"}[asks])
		w.arrive(m, m.sent)
		w.answers = append(w.answers, answer{"ack", w.acknowledges(w.next), true, w.executed, !asks, false})
		w.next++
	}
	w.open = m
	if m.sent == m.packets {
		w.open = nil
	}
}

// ready takes the receive of a WRITE with immediate data, which its last packet needs. Sometimes that one comes before the receive.
func (w *world) ready(m *message) {
	if len(w.recvs) == 0 && w.d.one(3) {
		w.say("rnr", "< %s ackreq=1", w.packet(m, m.sent))
		w.answers = append(w.answers, answer{"rnr", fmt.Sprintf("ACKNOWLEDGE psn=%s syndrome=RNR+%d", w.q(w.next), w.minRNR), true, w.executed, false, false})
		w.await()
	}
	w.take(m, w.d.n(9))
}

// line returns the statement that sends packet i of a message, with fields that do not matter.
func (w *world) line(m *message, i int) string {
	switch {
	case m.solicited == "":
		return "< " + w.packet(m, i) + w.harmless()
	case i == m.packets-1:
		return m.label + ": < " + w.packet(m, i) + m.solicited
	}
	return "< " + w.packet(m, i)
}

// finish sends the rest of a message.
func (w *world) finish(m *message) { w.transmit(m, m.packets, true) }

// acknowledges returns a positive acknowledgement.
func (w *world) acknowledges(psn int) string {
	return fmt.Sprintf("ACKNOWLEDGE psn=%s syndrome=ACK", w.q(psn))
}

// arrive places the data of packet i, and completes the message behind the last one.
func (w *world) arrive(m *message, i int) {
	data := w.part(m.data, i)
	if m.op == "WRITE" {
		w.target.write(m.at+i*w.mtu, data)
	} else {
		m.recv.list.scatter(i*w.mtu, data)
	}
	if i < m.packets-1 {
		return
	}
	w.executed++
	if !m.consumes() {
		return
	}
	op := map[string]string{"SEND": "RECV", "WRITE": "RECV_RDMA_WITH_IMM"}[m.op]
	text := fmt.Sprintf("dut.cqe qp SUCCESS wr=%d op=%s len=%d", m.recv.id, op, m.size)
	if m.imm > 0 {
		text += fmt.Sprintf(" imm=%#x", m.imm)
	}
	if m.inv != "" {
		text += " inv=" + m.inv
	}
	w.answers = append(w.answers, answer{rule: "receive", text: text, local: true})
}

// execute executes a READ or an atomic operation.
func (w *world) execute(m *message) {
	w.executed++
	w.next += m.packets
	m.sent, m.msn = m.packets, w.executed
	if m.op == "READ" {
		m.data = w.target.read(m.at, m.at+m.size)
		w.respond("read", m, 0, true)
		return
	}
	v := &w.word[m.at]
	w.stale = true
	m.original = *v
	switch {
	case m.op == "FETCH_ADD":
		*v += m.add
	case *v == m.match:
		*v = m.add
	}
	w.answers = append(w.answers, answer{"atomic", fmt.Sprintf("ATOMIC_ACK psn=%s syndrome=ACK orig=%#x", w.q(m.first), m.original), true, w.executed, false, false})
}

// words changes the memory of atomic operations also by WRITEs, and reads it.
func (w *world) words() {
	if !w.atomic || w.open != nil {
		return
	}
	w.silent, w.answers, w.stale = false, nil, true
	w.gap, w.notReady = false, false
	for used := range w.d.n(4) {
		if m := (&message{op: pick(&w.d, "FETCH_ADD", "CMP_SWAP"), at: w.d.n(words)}); used < w.resources-1 && w.d.one(2) {
			m.add, m.match = uint64(w.d.n(1<<30)), w.word[m.at]
			w.begin(m)
			w.transmit(m, 1, false)
			continue
		}
		i, v := w.d.n(words), uint64(w.d.n(1<<30))<<20
		w.word[i] = v
		w.say("", "< WRITE_ONLY psn=%s va=at.va+%d rkey=at.rkey len=8 payload=host64(%#x)", w.q(w.next), 8*i, v)
		w.executed++
		w.answers = append(w.answers, answer{"ack", w.acknowledges(w.next), true, w.executed, true, false})
		w.next++
	}
	if w.resources == 0 {
		w.ask()
		return
	}
	m := &message{op: "READ", first: w.next, packets: 1, sent: 1, key: "at.rkey"}
	w.past = append(w.past, m)
	w.executed++
	w.next++
	w.say("atomic", "< READ_REQUEST psn=%s va=at.va rkey=at.rkey len=%d", w.q(m.first), 8*words)
	w.answers = append(w.answers, answer{"atomic", fmt.Sprintf("READ_RESP_ONLY psn=%s syndrome=ACK payload=%s", w.q(m.first), w.wordBytes()), true, w.executed, false, false})
	w.await()
}

// respond notes the responses to a READ from packet k on. If data are unknown, only their length counts.
func (w *world) respond(rule string, m *message, k int, known bool) {
	for i := k; i < m.packets; i++ {
		part := w.part(m.data, i)
		end := position(i-k, m.packets-k)
		text := fmt.Sprintf("READ_RESP%s psn=%s", end, w.q(m.first+i))
		if end != "_MIDDLE" {
			text += " syndrome=ACK"
		}
		if known && !slices.Contains(part, unknownCell) {
			text += " payload=" + expression(part)
		} else {
			text += fmt.Sprintf(" payload=%d", len(part))
		}
		a := answer{rule: rule, text: text, counts: end != "_MIDDLE", msn: m.msn}
		if end == "_FIRST" {
			a.msn-- // the READ may count when it has ended
		}
		w.answers = append(w.answers, a)
	}
}

// await expects the answers to a burst. Acknowledgements before another answer may be left out.
func (w *world) await() {
	last := -1
	for i, a := range w.answers {
		if !a.local && !a.optional {
			last = i
		}
		w.pending = !a.local && a.optional
	}
	var group []string
	rule := "ack"
	for i, a := range w.answers {
		within := a.rule == "dup.write" // it may acknowledge all of the burst
		if within {
			a.text += fmt.Sprintf("..%s syndrome=ACK", w.q(w.next-1))
		}
		if a.counts {
			a.text += fmt.Sprintf(" msn=%d..%d", a.msn, w.executed)
		}
		switch {
		case a.local:
		case within || i > last: // it may come later
			w.loose = true
			w.say(a.rule, ">? %s", a.text)
		case i < last && strings.HasPrefix(a.text, "ACKNOWLEDGE"):
			group = append(group, "? "+a.text)
		default:
			if group = append(group, a.text); a.rule != "ack" {
				rule = a.rule
			}
		}
	}
	w.expect(rule, group, "")
	for _, a := range w.answers {
		if a.local {
			w.say(a.rule, "%s", a.text)
		}
	}
	w.answers = nil
}
