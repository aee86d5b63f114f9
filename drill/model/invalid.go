package model

import (
	"cmp"
	"fmt"
	"slices"
)

// fill returns the fields of a payload of n bytes.
func (w *world) fill(n int) string {
	if n == 0 {
		return ""
	}
	return " payload=" + expression(w.payload(n))
}

// candidate returns the next valid packet: that of the open message, or a new message of one packet.
func (w *world) candidate(at int) string {
	if m := w.open; m != nil && m.sent+at-w.next < m.packets {
		return w.packet(m, m.sent+at-w.next)
	}
	n := 1 + w.d.n(w.mtu)
	if w.service != "rc" {
		return fmt.Sprintf("%sSEND_ONLY psn=%s%s%s", w.prefix(), w.q(at), w.datagram(qkey), w.fill(5))
	}
	switch w.d.n(3) {
	case 1:
		return fmt.Sprintf("SEND_ONLY psn=%s%s", w.q(at), w.fill(n))
	case 2:
		return fmt.Sprintf("READ_REQUEST psn=%s va=mr.va rkey=mr.rkey len=%d", w.q(at), n)
	}
	return fmt.Sprintf("WRITE_ONLY psn=%s va=mr.va rkey=mr.rkey len=%d%s", w.q(at), n, w.fill(n))
}

// dropped sends a packet that the device drops silently.
func (w *world) dropped() {
	faults := []struct{ rule, fields string }{{"drop.icrc", "icrc=bad"}, {"drop.pkey", "pkey=0x8123"}, {"drop.pkey", "pkey=0x0001"}, {"drop.pkey", "pkey=0"},
		{"drop.header", "tver=1"}, {"drop.header", "tver=8"}, {"drop.header", "dst=(qp.num+0x5555)%0x1000000"},
		{"drop.header", "dst=(qp.num+0x10000)%0x1000000"}, {"drop.header", "dst=(qp.num+0x800000)%0x1000000"}, {"drop.header", "opcode=0x1f"},
		{"drop.header", "opcode=0x24"}, {"drop.header", "opcode=0xc4"}, {"drop.header", "udp.dport=4790"}}
	if !w.other.made { // the neighbour may have the next number
		faults = append(faults, struct{ rule, fields string }{"drop.header", "dst=qp.num+1"})
	}
	if !w.v6 {
		faults = append(faults, struct{ rule, fields string }{"drop.header", `ip.src=addr("198.18.0.77")`})
	}
	f := pick(&w.d, faults...)
	w.say(f.rule, "< %s ackreq=1 %s", w.candidate(w.next), f.fields)
	w.maybeQuiet(f.rule)
}

// ahead sends a packet behind a gap, which draws one NAK.
func (w *world) ahead() {
	skip := pick(&w.d, 1, 2, 1+w.d.n(100), 1<<22, 1<<23-1)
	w.say("gap", "< %s ackreq=1", w.candidate(w.next+skip))
	nak := fmt.Sprintf("ACKNOWLEDGE psn=%s syndrome=NAK_SEQ msn=%d", w.q(w.next), w.executed)
	switch {
	case w.notReady:
		w.say("gap", ">? %s", nak)
	case !w.gap:
		w.say("gap", "> %s", nak)
		w.gap = true
	}
}

// again sends a duplicate.
func (w *world) again() {
	if len(w.past) == 0 {
		return
	}
	if w.d.one(8) {
		w.old()
		return
	}
	m := w.past[len(w.past)-1-w.d.n(min(len(w.past), 6))]
	if m.key != "" && m.key != "mr.rkey" && m.key != w.bound.key {
		return
	}
	if m.answered() {
		w.answerAgain(m)
		return
	}
	i := w.d.n(m.sent)
	duplicate := *m
	duplicate.data = w.payload(m.size) // which a device must not take
	w.repeat(w.packet(&duplicate, i), m.first+i)
}

// old sends a packet whose PSN is far behind the expected one.
func (w *world) old() {
	const half = 1 << 23
	if at := w.next - 1 - pick(&w.d, w.d.n(100), w.d.n(half), half-1, half-2); w.executed > 0 {
		w.repeat(fmt.Sprintf("SEND_ONLY psn=%s%s", w.q(at), w.fill(1+w.d.n(w.mtu))), at)
	}
}

// repeat sends a duplicate of a SEND or WRITE, and expects its acknowledgement if it requests one.
func (w *world) repeat(text string, at int) {
	asks := w.d.n(3) != 1
	if asks {
		text += " ackreq=1"
	}
	w.say("dup.write", "< %s", text)
	answer := fmt.Sprintf("ACKNOWLEDGE psn=%s..%s syndrome=ACK", w.q(at), w.q(w.next-1))
	if asks && !w.gap && !w.notReady {
		w.say("dup.write", "> %s msn=%d", answer, w.executed)
		if !w.loose {
			return
		}
	}
	w.loose = true // it may come as the answer to a later duplicate
	w.say("dup.write", ">? %s", answer)
}

// answerAgain sends a duplicate READ, or its tail, or a duplicate atomic. The device keeps as many as it has resources.
func (w *world) answerAgain(m *message) {
	later := 0
	for _, x := range w.past {
		if x.answered() && x.first > m.first {
			later++
		}
	}
	if later >= w.resources || w.gap || w.notReady {
		return
	}
	if m.op != "READ" {
		w.say("dup.atomic", "< %s", w.packet(m, 0))
		w.say("dup.atomic", "> ATOMIC_ACK psn=%s syndrome=ACK orig=%#x msn=%d..%d", w.q(m.first), m.original, m.msn, w.executed)
		return
	}
	k := w.d.n(m.packets)
	part, rule := *m, "dup.read" // up to the end, or to a byte before
	if room := m.size - k*w.mtu; room > 1 && w.d.one(3) {
		n := m.size - 1 - w.d.n(room-1)
		part.size, part.packets, part.data, rule = n, w.packets(n), m.data[:n], pick(&w.d, "dup.subset", "dup.part")
	}
	w.say(rule, "< %s", w.packet(&part, k))
	w.answers = nil
	w.respond(rule, &part, k, slices.Equal(m.data, w.target.read(m.at, m.at+m.size)))
	for i := range w.answers {
		w.answers[i].optional = rule == "dup.subset"
	}
	if w.await(); rule == "dup.subset" {
		w.say(rule, "quiet 1ms") // later acknowledgements come alone
	}
}

// unready sends a message without a receive. A burst repeats it.
func (w *world) unready() {
	if w.open != nil || len(w.recvs) > 0 {
		return
	}
	n := w.size()
	m := &message{op: pick(&w.d, "SEND", "WRITE"), key: "mr.rkey", first: w.next, size: n, imm: 1, packets: 1}
	if m.op == "SEND" {
		m.packets = w.packets(n)
	} else {
		m.size = min(n, w.mtu)
	}
	m.data = w.payload(m.size)
	if w.d.one(4) {
		w.minRNR = w.d.n(32)
		w.say("", "dut.modify qp min_rnr=%d", w.minRNR)
	}
	for range 1 + w.d.n(2) {
		w.say("rnr", "< %s ackreq=1", w.packet(m, 0))
		w.say("rnr", "> ACKNOWLEDGE psn=%s syndrome=RNR+%d msn=%d", w.q(w.next), w.minRNR, w.executed)
		w.gap, w.notReady = false, true
		if w.d.one(3) {
			w.ahead()
		}
	}
}

// refuse sends a packet that breaks the connection, and connects again.
func (w *world) refuse() {
	faults := []func() (string, string){w.wrongOpcode}
	permit := func(possible bool, more ...func() (string, string)) {
		if possible {
			faults = append(faults, more...)
		}
	}
	begins := w.open == nil
	permit(begins, w.wrongKey, w.wrongRange, w.wrongRight, w.tooLong, w.huge)
	permit(begins && len(w.recvs) == 0, w.unwritable)
	permit(begins && w.atomic, w.misaligned)
	permit(!w.shared || !begins && w.open.op == "SEND", w.wrongLength) // a device may take a shared receive before it finds the fault
	permit(begins && w.window && !w.shared, w.unknownKey)
	permit(begins && w.resources == 0, w.unprovided)
	w.batch = nil
	if w.timeout == 0 && w.d.one(3) {
		w.outstand(1 + w.d.n(3))
	}
	rule, nak := pick(&w.d, faults...)()
	if nak == "" { // class J: the requester need not learn of it
		w.say(rule, ">? ACKNOWLEDGE psn=%s syndrome=NAK_INV..NAK_OP", w.q(w.next))
		w.say(rule, "quiet 2ms")
	} else {
		w.say(rule, "> ACKNOWLEDGE psn=%s syndrome=%s", w.q(w.next), nak)
	}
	w.status = cmp.Or(w.status, "ERROR") // the message may have taken a receive
	w.flushed()
	w.broken()
}

// outstand posts n requests and expects their packets. They wait for responses.
func (w *world) outstand(n int) {
	w.batch = nil
	for range n {
		k := w.newWork(w.operations(w.service == "rc" && len(w.batch) < w.readDepth)...)
		k.unsignaled = len(w.batch) < n-1 && w.d.one(2)
		w.submit(k)
		w.batch = append(w.batch, k)
	}
	w.requests(w.una)
}

// flushed expects the completions of the requests without a response. The queue pair has broken.
func (w *world) flushed() {
	for _, k := range w.batch {
		if w.una < k.first+k.packets {
			w.say("flush", "dut.cqe qp WR_FLUSH_ERR wr=%d", k.id)
		}
	}
	w.batch = nil
}

// breaks expects the completions of a broken queue pair. Those of a shared receive queue stay, unless a message has taken them.
func (w *world) breaks() {
	lost := w.taken
	if w.open != nil && w.open.op == "SEND" {
		lost, w.status = append(lost, w.open.recv), cmp.Or(w.status, "ERROR")
	}
	if !w.shared {
		lost, w.recvs = append(lost, w.recvs...), nil
	}
	for i, r := range lost {
		status := "WR_FLUSH_ERR"
		if i == 0 {
			status = cmp.Or(w.status, status)
		}
		w.say("broken", "dut.cqe qp %s wr=%d", status, r.id)
	}
	if w.shared {
		w.say("last", "dut.event qp QP_LAST_WQE_REACHED")
	}
	w.say("broken", "dut.query qp state=ERR")
}

// broken expects that the queue pair executes nothing any more, and connects it again.
func (w *world) broken() {
	w.breaks()
	if w.d.one(3) {
		w.say("broken", "< %s", w.candidate(w.next))
		w.say("broken", "quiet 2ms")
	}
	for range max(0, w.d.n(4)-1) {
		k := w.newWork(w.operations(false)...)
		k.unsignaled = w.d.one(2)
		w.submit(k)
		w.say("flush", "dut.cqe qp WR_FLUSH_ERR wr=%d", k.id)
	}
	if !w.shared && w.d.one(3) {
		w.receive(8)
		w.say("flush.receive", "dut.cqe qp WR_FLUSH_ERR wr=%d", w.works)
	}
	w.check(append(w.aside, w.target, w.inbox, w.sink)...)
	w.aside = nil
	w.connect()
}

// restart resets the queue pair with receives, requests and a message that have not ended. None of them completes.
func (w *world) restart() {
	if w.timeout > 0 {
		return
	}
	if w.settle(); w.pending {
		return
	}
	w.outstand(w.d.n(3) * map[bool]int{true: 1}[w.service == "rc"])
	w.behind()
	w.batch = nil
	w.say("", "wait 5ms") // the device has taken all packets
	w.connect()
}

// behind posts requests with a fence, if a READ or an atomic is outstanding. They wait for it.
func (w *world) behind() {
	if n := len(w.batch); n == 0 || !w.batch[n-1].responds() || w.una >= w.goal() {
		return
	}
	for range w.d.n(3) {
		k := w.newWork("SEND", "WRITE")
		k.fence = true
		w.submit(k)
		w.batch = append(w.batch, k)
	}
}

// abort takes the queue pair to the state of errors, with requests in flight.
func (w *world) abort() {
	if w.timeout > 0 {
		return
	}
	if w.settle(); w.pending {
		return
	}
	w.outstand(w.d.n(4))
	switch {
	case w.service != "rc":
		w.complete()
	default:
		w.respondTo(w.una + w.d.n(w.sent-w.una+1))
		w.behind()
	}
	w.say("", "wait 5ms") // the device has taken all packets
	w.say("", "dut.modify qp state=ERR")
	w.flushed()
	w.broken()
}

// unprovided sends a READ or an atomic to a queue pair without responder resources.
func (w *world) unprovided() (rule, nak string) {
	op, region := "READ_REQUEST", "mr"
	if w.atomic && w.d.one(2) {
		op, region = pick(&w.d, "FETCH_ADD", "CMP_SWAP"), "at"
	}
	w.say("resources.none", "< %s", w.remote(op, region+".va", region+".rkey", 8))
	return "resources.none", "NAK_INV"
}

// wrongOpcode sends a packet that does not continue the message.
func (w *world) wrongOpcode() (rule, nak string) {
	whole, part := w.fill(w.mtu), w.fill(1+w.d.n(w.mtu))
	packets := []string{"SEND_MIDDLE psn=%s" + whole, "SEND_LAST psn=%s" + part, "SEND_LAST_IMM psn=%s imm=7" + part, "WRITE_MIDDLE psn=%s" + whole,
		"WRITE_LAST psn=%s" + part, "WRITE_LAST_IMM psn=%s imm=7" + part}
	if w.open != nil {
		packets = []string{"SEND_FIRST psn=%s" + whole, "SEND_ONLY psn=%s" + part, "WRITE_ONLY psn=%s va=mr.va rkey=mr.rkey len=1" + w.fill(1),
			fmt.Sprintf("WRITE_FIRST psn=%%s va=mr.va rkey=mr.rkey len=%d%s", 2*w.mtu, whole), "READ_REQUEST psn=%s va=mr.va rkey=mr.rkey len=8"}
		other := map[string]string{"SEND": "WRITE", "WRITE": "SEND"}[w.open.op]
		packets = append(packets, other+"_MIDDLE psn=%s"+whole, other+"_LAST psn=%s"+part)
		if w.atomic {
			packets = append(packets, "FETCH_ADD psn=%s va=at.va rkey=at.rkey swap=1")
		}
	} else if len(w.recvs) == 0 {
		w.receive(w.mtu)
	}
	w.say("opcode", "< "+pick(&w.d, packets...), w.q(w.next))
	return "opcode", "NAK_INV"
}

// wrongLength sends a packet with too much or too little data. The device may have written it before it found the fault.
func (w *world) wrongLength() (rule, nak string) {
	d := &w.d
	psn := w.q(w.next)
	part := pick(d, w.mtu-1, w.mtu-4, w.mtu+4, w.mtu/2, w.mtu+1)
	beyond := w.mtu + 1 + d.n(4)
	write := "va=mr.va rkey=mr.rkey len="
	if len(w.recvs) == 0 { // else an RNR NAK may come first
		w.receive(2 * w.mtu)
	}
	switch m := w.open; {
	case m != nil && m.op == "SEND":
		m.recv.list.scatter(m.sent*w.mtu, unknown(m.recv.size-m.sent*w.mtu))
		w.say("length", "< %s", pick(d, "SEND_LAST psn="+psn, "SEND_LAST_IMM imm=7 psn="+psn, "SEND_LAST_INV inv=mr.rkey+0x100 psn="+psn, "SEND_MIDDLE psn="+psn+w.fill(part), "SEND_LAST psn="+psn+w.fill(beyond)))
	case m != nil:
		rest := m.size - m.sent*w.mtu
		w.target.write(m.at+m.sent*w.mtu, unknown(rest))
		texts := []string{"WRITE_LAST psn=" + psn, "WRITE_LAST_IMM imm=7 psn=" + psn, "WRITE_MIDDLE psn=" + psn + w.fill(part), "WRITE_LAST psn=" + psn + w.fill(beyond)}
		for _, n := range []int{rest - 1, rest + 1} {
			if n > 0 && n <= w.mtu {
				texts = append(texts, "WRITE_LAST psn="+psn+w.fill(n), "WRITE_LAST_IMM imm=7 psn="+psn+w.fill(n))
			}
		}
		w.say("length", "< %s", pick(d, texts...))
	default:
		w.target.write(0, unknown(2*w.mtu))
		w.recvs[0].list.scatter(0, unknown(w.recvs[0].size))
		n := 1 + d.n(w.mtu-1)
		texts := []string{fmt.Sprintf("WRITE_FIRST psn=%s %s%d%s", psn, write, 2*w.mtu, w.fill(part)),
			fmt.Sprintf("WRITE_ONLY psn=%s %s%d%s", psn, write, beyond, w.fill(beyond)), fmt.Sprintf("WRITE_ONLY psn=%s %s%d%s", psn, write, n+1, w.fill(n)),
			fmt.Sprintf("WRITE_ONLY psn=%s %s%d", psn, write, n), fmt.Sprintf("WRITE_ONLY psn=%s %s%d%s", psn, write, n, w.fill(n+1))}
		if w.recvs[0].size >= 2*w.mtu {
			texts = append(texts, "SEND_FIRST psn="+psn+w.fill(part), "SEND_ONLY psn="+psn+w.fill(beyond))
		}
		w.say("length", "< %s", pick(d, texts...))
	}
	return "length", "NAK_INV"
}
