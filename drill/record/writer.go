package record

import (
	"fmt"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/drill/frame"
	"roced.io/roced/internal/observe/flow"
)

// writer writes the statements of a script.
type writer struct {
	lines   []string
	packets []packet
	plan    *plan
	regions []region
	first   [2]base // of requests: of the tester (Q), of the device (P)
	size    uint64  // of the first region
	mtu     int
	kind    string
	work    int // work requests so far
	sent    []completion
	recvs   []completion
	posted  map[bth.PSN]bool // receives for the messages that take them with these packets
}

// completion is that of a work request for the message that begins with a packet.
type completion struct{ work, packet int }

// base is the first PSN of a direction, and the highest one of its requests so far.
type base struct {
	name  string
	known bool
	psn   bth.PSN
	high  bth.PSN
	begun bool
}

func index(fromDUT bool) int {
	if fromDUT {
		return 1
	}
	return 0
}

// newWriter finds the bases of PSNs and addresses. mtu is that of the connection, or 0 if no message of several packets tells it.
func newWriter(packets []packet, kind string, mtu int) *writer {
	w := &writer{packets: packets, kind: kind, mtu: mtu, posted: map[bth.PSN]bool{}}
	if mtu == 0 {
		w.mtu = 1024
		for _, p := range packets {
			for w.mtu < min(len(p.Payload), 4096) {
				w.mtu *= 2
			}
		}
	}
	w.plan = newPlan(packets, w.mtu)
	w.first = [2]base{{name: "Q"}, {name: "P"}}
	for i := range packets {
		p := &packets[i]
		if b := &w.first[index(p.fromDUT)]; p.Opcode.IsRequest() && !p.Opcode.IsCNP() && !b.known {
			b.known, b.psn = true, p.PSN()
		}
	}
	w.findRegions()
	w.size = w.regions[0].size()
	for i := range packets {
		w.grow(i)
	}
	w.size = (w.size + 4095) &^ 4095
	return w
}

// grhLen is the room for addresses before a datagram in its receive.
const grhLen = 40

// grow enlarges the first region to the longest message.
func (w *writer) grow(i int) {
	p := &w.packets[i]
	if !p.Opcode.IsRequest() || p.Opcode.IsCNP() {
		return
	}
	n, _, _ := w.plan.message(i)
	need := uint64(n) + 1
	if p.fromDUT {
		need = max(need, p.field("len"))
	}
	if w.kind == "ud" {
		need += grhLen
	}
	if need < mostMemory {
		w.size = max(w.size, need)
	}
}

func (w *writer) printf(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

// text returns the script.
func (w *writer) text() string { return strings.Join(fold(w.lines), "\n") + "\n" }

// head writes the statements before the first packet.
func (w *writer) head(name string, d Device) {
	w.printf("about \"Recorded from %s: queue pair %v is the device's. State the rule here.\"", strings.ReplaceAll(name, `"`, "'"), d)
	w.printf("spec \"recorded\" policy")
	w.printf("need %s", w.kind)
	w.printf("mr = dut.mr size=%d fill=count", w.size)
	for _, r := range w.regions[1:] {
		w.printf("%s = dut.mr size=%d fill=count", r.name, r.size())
	}
	options := fmt.Sprintf("mtu=%d psn=P", w.mtu)
	switch {
	case w.kind == "ud":
		options = fmt.Sprintf("psn=P qkey=%#x", w.qkey())
	case w.plan.minRNR > 0:
		options += fmt.Sprintf(" rqpsn=Q min_rnr=%d", w.plan.minRNR)
	default:
		options += " rqpsn=Q"
	}
	for _, s := range w.plan.refused {
		if s == bth.SyndromeRemoteOpErr && !w.packets[0].fromDUT {
			w.printf("forbidden = dut.mr size=%d access=r", w.size)
			break
		}
	}
	if w.kind == "ud" {
		w.printf("ah = dut.ah")
	}
	w.printf("qp = dut.qp %s %s", w.kind, options)
	if w.plan.marked {
		w.printf("ignore CNP")
	}
}

// qkey returns the Q_Key of the device: that of most datagrams to it. It drops those with another one.
func (w *writer) qkey() (key uint64) {
	count := map[uint64]int{}
	for i := range w.packets {
		if v, ok := w.packets[i].Get("qkey"); ok && !w.packets[i].fromDUT {
			if count[v]++; count[v] > count[key] {
				key = v
			}
		}
	}
	return key
}

// packet writes the statement of packet i, with verbs before it that it needs. It returns how many packets the statement covers.
func (w *writer) packet(i int) int {
	p := &w.packets[i]
	if w.plan.lost[i] || p.fromDUT && p.Opcode.IsCNP() && w.plan.marked {
		return 1
	}
	for _, j := range w.plan.missing[i] {
		w.request(j)
		w.printf("> %s", w.notation(j))
	}
	w.request(i)
	if !p.fromDUT {
		w.rest(i)
		w.ahead(i)
		w.printf("< %s", w.notation(i))
		return 1
	}
	if w.plan.optional[i] {
		w.printf(">? %s", w.notation(i))
		return 1
	}
	n := 1
	for next := i + n; isACK(p) && next < len(w.packets); next = i + n {
		if q := &w.packets[next]; !q.fromDUT || !isACK(q) || w.plan.optional[next] || !q.PSN().After(w.packets[next-1].PSN()) {
			break
		}
		n++
	}
	if last := &w.packets[i+n-1]; n > 1 {
		w.printf(">+ ACKNOWLEDGE psn=%s..%s syndrome=ACK until psn=%s", w.psn(p), w.psn(last), w.psn(last))
		return n
	}
	w.printf("> %s", w.notation(i))
	for _, j := range w.plan.receives[i] {
		w.receive(j)
	}
	return n
}

// request writes the verb of request i, if it is new.
func (w *writer) request(i int) {
	p := &w.packets[i]
	if !p.fromDUT { // a retransmission may be the first to arrive
		if w.consumes(i) && !w.plan.late[w.plan.first(p.PSN())] && (w.kind == "ud" || !w.posted[p.PSN()]) {
			w.receive(i)
		}
		return
	}
	b := &w.first[1]
	if !p.Opcode.IsRequest() || p.Opcode.IsCNP() || b.begun && !p.PSN().After(b.high) {
		return
	}
	b.begun, b.high = true, p.PSN()
	if p.Opcode.IsReadRequest() {
		b.high = b.high.Add(flow.Packets(uint32(p.field("len")), w.mtu) - 1)
	}
	w.verb(i)
}

// isACK reports whether a packet is a positive acknowledgement, of which a device may send fewer.
func isACK(p *packet) bool {
	s, _ := p.Get("syndrome")
	return p.Opcode == bth.OpAcknowledge && bth.Syndrome(s).IsACK()
}

// isFatal reports whether a packet is a NAK that ends the connection.
func isFatal(p *packet) bool {
	s, ok := p.Get("syndrome")
	return ok && p.Opcode == bth.OpAcknowledge && bth.Syndrome(s).IsNAK() && bth.Syndrome(s) != bth.SyndromePSNSeqErr
}

// consumes reports whether request i of the tester takes a receive.
func (w *writer) consumes(i int) bool {
	p := &w.packets[i]
	if !p.Opcode.IsRequest() || w.kind == "ud" && p.field("qkey") != w.qkey() {
		return false
	}
	return p.Opcode.IsSend() && begins(frame.OpcodeName(p.Opcode)) || p.Opcode.IsWrite() && p.Opcode.HasImm()
}

// receive posts the receive of the message with request i.
func (w *writer) receive(i int) {
	w.work++
	w.posted[w.packets[i].PSN()] = true
	w.recvs = append(w.recvs, completion{w.work, i})
	if w.plan.refused[i] != bth.SyndromeRemoteOpErr {
		w.printf("dut.recv qp wr=%d mr[0:%d]", w.work, w.size)
		return
	}
	allowed := "" // the packets before the refused one fit
	if n := w.packets[w.plan.ended].PSN().Diff(w.packets[i].PSN()) * w.mtu; n > 0 {
		allowed = fmt.Sprintf(" mr[0:%d]", n)
	}
	w.printf("dut.recv qp wr=%d%s forbidden[0:%d]", w.work, allowed, w.size)
}

// rest permits the packets of a message of the device that a NAK, packet i of the tester, has cut off.
func (w *writer) rest(i int) {
	p := &w.packets[i]
	for j, s := range w.plan.refused {
		if !isFatal(p) || !w.packets[j].fromDUT || s == 0 {
			continue
		}
		n, last, whole := w.plan.message(j)
		name, left := strings.TrimSuffix(frame.OpcodeName(w.packets[j].Opcode), "_FIRST"), 1
		if total, ok := w.packets[j].Get("len"); ok {
			left = int(total) - n
		}
		if whole || left <= 0 || left > mostMemory {
			continue
		}
		for psn := w.packets[last].PSN().Next(); left > 0; psn = psn.Next() {
			part := min(left, w.mtu)
			left -= part
			end := "_MIDDLE"
			if left == 0 {
				end = "_LAST"
			}
			w.printf(">? %s%s psn=%s payload=%d", name, end, w.offset(&w.first[1], psn), part)
		}
	}
}

// ahead permits the packets of the device that it may send before it gets the NAK in packet i of the tester, and which the capture has
// only after it.
func (w *writer) ahead(i int) {
	s, ok := w.packets[i].Get("syndrome")
	if y := bth.Syndrome(s); !ok || w.packets[i].Opcode != bth.OpAcknowledge || !y.IsRNR() && y != bth.SyndromePSNSeqErr {
		return
	}
	last := i
	for last >= 0 && (!w.packets[last].fromDUT || !w.packets[last].Opcode.IsRequest()) {
		last--
	}
	for psn := w.first[1].high; last >= 0 && !ends(frame.OpcodeName(w.packets[last].Opcode)); {
		psn = psn.Next()
		if last = w.plan.again(i, psn); last == 0 {
			return
		}
		w.printf(">? %s", w.notation(last))
	}
}

// verb posts the verb of the device whose first packet is i.
func (w *writer) verb(i int) {
	p := &w.packets[i]
	name := strings.TrimPrefix(strings.TrimPrefix(frame.OpcodeName(p.Opcode), "UC_"), "UD_")
	verb := map[string]string{"SEND": "send", "WRITE": "write", "READ": "read", "CMP": "cas", "FETCH": "fadd"}[strings.SplitN(name, "_", 2)[0]]
	if verb == "" || !begins(name) {
		return
	}
	part, last, whole := w.plan.message(i)
	w.work++
	w.sent = append(w.sent, completion{w.work, i})
	text := fmt.Sprintf("dut.%s qp wr=%d", verb, w.work)
	switch verb {
	case "send":
		if !whole {
			part++
		}
		if w.kind == "ud" {
			text += fmt.Sprintf(" ah=ah qkey=%#x", p.field("qkey"))
		}
	case "write", "read":
		part = int(min(p.field("len"), mostMemory))
	case "cas":
		part = 8
		text += fmt.Sprintf(" compare=%#x swap=%#x", p.field("compare"), p.field("swap"))
	case "fadd":
		part = 8
		text += fmt.Sprintf(" add=%#x", p.field("swap"))
	}
	if verb != "send" {
		text += fmt.Sprintf(" remote=%#x rkey=%#x", p.field("va"), p.field("rkey"))
	}
	if imm, ok := w.packets[last].Get("imm"); ok {
		text += fmt.Sprintf(" imm=%#x", imm)
	}
	if part > 0 {
		text += fmt.Sprintf(" mr[0:%d]", part)
	}
	w.printf("%s", text)
}

// psn returns the PSN of a packet relative to the base of its direction: responses have the PSNs of the requests.
func (w *writer) psn(p *packet) string {
	side := p.fromDUT
	if !p.Opcode.IsRequest() {
		side = !side
	}
	return w.offset(&w.first[index(side)], p.PSN())
}

// offset returns a PSN relative to a base.
func (w *writer) offset(b *base, psn bth.PSN) string {
	if !b.known {
		return fmt.Sprint(psn.Uint32())
	}
	switch d := psn.Diff(b.psn); {
	case d > 0:
		return fmt.Sprintf("%s+%d", b.name, d)
	case d < 0:
		return fmt.Sprintf("%s-%d", b.name, -d)
	}
	return b.name
}

// notation writes packet i with the fields that matter.
func (w *writer) notation(i int) string {
	p := &w.packets[i]
	text := frame.OpcodeName(p.Opcode)
	add := func(format string, args ...any) { text += fmt.Sprintf(" "+format, args...) }
	if p.Opcode.IsCNP() {
		return text
	}
	add("psn=%s", w.psn(p))
	if p.field("ackreq") == 1 && !p.fromDUT {
		add("ackreq=1")
	}
	if va, ok := p.Get("va"); ok {
		add("%s", w.address(i, va))
	}
	for _, name := range []string{"len", "swap", "compare", "orig", "imm", "inv", "qkey"} {
		if v, ok := p.Get(name); ok && (name != "orig" || !p.fromDUT) {
			add("%s=%#x", name, v)
		}
	}
	if v, ok := p.Get("src"); ok && !p.fromDUT {
		add("src=%#x", v)
	}
	if s, ok := p.Get("syndrome"); ok {
		add("syndrome=%s", syndrome(bth.Syndrome(s), p.fromDUT))
		if !p.fromDUT {
			add("msn=%d", p.field("msn"))
		}
	}
	switch n := len(p.Payload); {
	case n > 0 && p.fromDUT:
		add("payload=%d", n)
	case n > 0:
		add("payload=count(%d)", n)
	}
	if p.field("ip.ecn") == bth.CE && !p.fromDUT {
		add("ip.ecn=3")
	}
	return text
}

// syndrome returns a syndrome as scripts write it: any credits are the same acknowledgement, and a device may choose the timer of an
// RNR NAK.
func syndrome(s bth.Syndrome, fromDUT bool) string {
	switch {
	case s.IsACK():
		return "ACK"
	case s.IsRNR() && fromDUT:
		return "RNR"
	}
	return frame.SyndromeName(s)
}

// completions writes the completions of all work requests, those of each queue in order. A NAK ends the connection: its message and those
// after it fail.
func (w *writer) completions() {
	for _, list := range [][]completion{w.sent, w.recvs} {
		failed := false
		for _, c := range list {
			failed = failed || w.plan.refused[c.packet] != 0
			status := "SUCCESS"
			if failed {
				status = "ERROR"
			}
			w.printf("dut.cqe qp %s wr=%d", status, c.work)
		}
	}
}
