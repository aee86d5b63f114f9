package record

import (
	"fmt"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/drill/frame"
)

// writer writes the statements of a script.
type writer struct {
	b       strings.Builder
	packets []packet
	first   [2]base // of requests: of the tester (Q), of the device (P)
	va      uint64  // lowest address of the device's memory in requests of the tester
	rkey    uint64  // most frequent key in them
	size    uint64  // of the device's region
	mtu     int
	work    int // work requests so far
	sent    []int
	recvs   []int
	failed  bool // a NAK has ended the connection
}

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

// isRequest reports whether the sender of a packet is the requester.
func isRequest(o bth.Opcode) bool { return o.IsRequest() }

// newWriter finds the bases of PSNs and addresses. mtu is that of the connection, or 0 if no message of several packets tells it.
func newWriter(packets []packet, mtu int) *writer {
	w := &writer{packets: packets, va: ^uint64(0), size: 4096, mtu: mtu}
	if mtu == 0 {
		w.mtu = 1024
		for _, p := range packets {
			for w.mtu < min(len(p.Payload), 4096) {
				w.mtu *= 2
			}
		}
	}
	w.first = [2]base{{name: "Q"}, {name: "P"}}
	keys := map[uint64]int{}
	for _, p := range packets {
		if key, ok := p.Get("rkey"); ok && !p.fromDUT {
			if keys[key]++; keys[key] > keys[w.rkey] {
				w.rkey = key
			}
		}
		if b := &w.first[index(p.fromDUT)]; isRequest(p.Opcode) && !b.known {
			b.known, b.psn = true, p.PSN()
		}
		if va, ok := p.Get("va"); ok && !p.fromDUT && !w.empty(&p) {
			w.va = min(w.va, va)
		}
	}
	for i := range packets {
		w.grow(i)
	}
	w.size = (w.size + 4095) &^ 4095
	return w
}

// empty reports whether a request accesses no memory: its address may be anything.
func (w *writer) empty(p *packet) bool {
	n, ok := p.Get("len")
	return ok && n == 0
}

// grow enlarges the region to what packet i accesses.
func (w *writer) grow(i int) {
	const most = 64 << 20
	p := &w.packets[i]
	need := uint64(0)
	if va, ok := p.Get("va"); ok && !p.fromDUT && !w.empty(p) {
		need = va - w.va + max(p.field("len"), 8)
	} else if p.fromDUT {
		need = max(p.field("len"), uint64(w.message(i)))
	} else {
		need = uint64(w.message(i))
	}
	if need < most {
		w.size = max(w.size, need)
	}
}

// message returns the payload of the message that begins with packet i.
func (w *writer) message(i int) (n int) {
	from := w.packets[i].fromDUT
	next := w.packets[i].PSN()
	for _, p := range w.packets[i:] {
		if p.fromDUT != from || !isRequest(p.Opcode) || p.PSN() != next {
			continue
		}
		n += len(p.Payload)
		next = next.Next()
		if name := frame.OpcodeName(p.Opcode); !strings.HasSuffix(name, "_FIRST") && !strings.HasSuffix(name, "_MIDDLE") {
			break
		}
	}
	return n
}

func (w *writer) printf(format string, args ...any) { fmt.Fprintf(&w.b, format, args...) }

// head writes the statements before the first packet.
func (w *writer) head(name string, d Device) {
	kind := "rc"
	if w.packets[0].Opcode&transportBits == unreliable {
		kind = "uc"
	}
	w.printf("about \"Recorded from %s: queue pair %v is the device's. State the rule here.\"\n", strings.ReplaceAll(name, `"`, "'"), d)
	w.printf("spec \"recorded\" policy\nneed %s\nmr = dut.mr size=%d fill=count\nqp = dut.qp %s mtu=%d psn=P rqpsn=Q\n", kind, w.size, kind, w.mtu)
}

// packet writes the statement of the first packet, with verbs before it that it needs. It returns how many packets the
// statement covers.
func (w *writer) packet(rest []packet) int {
	p := &rest[0]
	b := &w.first[index(p.fromDUT)]
	if fresh := isRequest(p.Opcode) && (!b.begun || p.PSN().After(b.high)); fresh {
		b.begun, b.high = true, p.PSN()
		if p.Opcode.IsReadRequest() {
			b.high = b.high.Add(max(0, (int(p.field("len"))+w.mtu-1)/w.mtu-1))
		}
		w.verb(p, len(w.packets)-len(rest))
	}
	if !p.fromDUT {
		w.printf("< %s\n", w.notation(p))
		w.failed = w.failed || isFatal(p)
		return 1
	}
	n := 1
	for isACK(p) && n < len(rest) && rest[n].fromDUT && isACK(&rest[n]) && rest[n].PSN().After(rest[n-1].PSN()) {
		n++
	}
	if last := &rest[n-1]; n > 1 {
		w.printf(">+ ACKNOWLEDGE psn=%s..%s syndrome=ACK until psn=%s\n", w.psn(p), w.psn(last), w.psn(last))
		return n
	}
	w.failed = w.failed || isFatal(p)
	w.printf("> %s\n", w.notation(p))
	return 1
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

// begins reports whether a request is the first packet of a message.
func begins(name string) bool {
	return !strings.Contains(name, "_MIDDLE") && !strings.Contains(name, "_LAST")
}

// verb writes the verb that the packet, number i, needs on the device: that of its own requests, and the receive for a message
// of the tester.
func (w *writer) verb(p *packet, i int) {
	name := strings.TrimPrefix(frame.OpcodeName(p.Opcode), "UC_")
	imm, hasImm := w.immediate(i)
	if !p.fromDUT {
		if ends := strings.HasSuffix(name, "_IMM"); strings.HasPrefix(name, "SEND") && begins(name) || strings.HasPrefix(name, "WRITE") && ends {
			w.work++
			w.recvs = append(w.recvs, w.work)
			w.printf("dut.recv qp wr=%d mr[0:%d]\n", w.work, w.size)
		}
		return
	}
	if !begins(name) {
		return
	}
	verb, part := map[string]string{"SEND": "send", "WRITE": "write", "READ": "read", "CMP": "cas", "FETCH": "fadd"}[strings.SplitN(name, "_", 2)[0]], w.message(i)
	if verb == "" {
		return
	}
	w.work++
	w.sent = append(w.sent, w.work)
	w.printf("dut.%s qp wr=%d", verb, w.work)
	switch verb {
	case "read":
		part = int(p.field("len"))
	case "cas":
		part = 8
		w.printf(" compare=%#x swap=%#x", p.field("compare"), p.field("swap"))
	case "fadd":
		part = 8
		w.printf(" add=%#x", p.field("swap"))
	}
	if verb != "send" {
		w.printf(" remote=%#x rkey=%#x", p.field("va"), p.field("rkey"))
	}
	if hasImm {
		w.printf(" imm=%#x", imm)
	}
	if part > 0 {
		w.printf(" mr[0:%d]", part)
	}
	w.printf("\n")
}

// immediate returns the immediate data at the end of the message that begins with packet i.
func (w *writer) immediate(i int) (imm uint64, ok bool) {
	from := w.packets[i].fromDUT
	for _, p := range w.packets[i:] {
		if p.fromDUT != from || !isRequest(p.Opcode) {
			continue
		}
		if name := frame.OpcodeName(p.Opcode); !strings.HasSuffix(name, "_FIRST") && !strings.HasSuffix(name, "_MIDDLE") {
			return p.Get("imm")
		}
	}
	return 0, false
}

// psn returns the PSN of a packet relative to the base of its direction: responses have the PSNs of the requests.
func (w *writer) psn(p *packet) string {
	side := p.fromDUT
	if !isRequest(p.Opcode) {
		side = !side
	}
	b := &w.first[index(side)]
	if !b.known {
		return fmt.Sprint(p.PSN().Uint32())
	}
	switch d := p.PSN().Diff(b.psn); {
	case d > 0:
		return fmt.Sprintf("%s+%d", b.name, d)
	case d < 0:
		return fmt.Sprintf("%s-%d", b.name, -d)
	}
	return b.name
}

// notation writes a packet with the fields that matter.
func (w *writer) notation(p *packet) string {
	text := frame.OpcodeName(p.Opcode) + " psn=" + w.psn(p)
	add := func(format string, args ...any) { text += fmt.Sprintf(" "+format, args...) }
	if p.field("ackreq") == 1 && !p.fromDUT {
		add("ackreq=1")
	}
	if va, ok := p.Get("va"); ok {
		w.address(add, p, va)
	}
	for _, name := range []string{"len", "swap", "compare", "orig", "imm", "inv"} {
		if v, ok := p.Get(name); ok && (name != "orig" || !p.fromDUT) {
			add("%s=%#x", name, v)
		}
	}
	if s, ok := p.Get("syndrome"); ok {
		add("syndrome=%s", syndrome(bth.Syndrome(s)))
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
	if ce := p.field("ip.ecn"); ce == 3 && !p.fromDUT {
		add("ip.ecn=3")
	}
	return text
}

// address writes the address and the key of a request. Those of the device's region are relative to it.
func (w *writer) address(add func(string, ...any), p *packet, va uint64) {
	off, key := va-w.va, "mr.rkey"
	if v := p.field("rkey"); p.fromDUT || v != w.rkey {
		key = fmt.Sprintf("%#x", v)
	}
	switch {
	case p.fromDUT || w.empty(p) || off >= w.size:
		add("va=%#x rkey=%s", va, key)
	case off == 0:
		add("va=mr.va rkey=%s", key)
	default:
		add("va=mr.va+%d rkey=%s", off, key)
	}
}

// syndrome returns a syndrome as scripts write it: any credits are the same acknowledgement.
func syndrome(s bth.Syndrome) string {
	if s.IsACK() {
		return "ACK"
	}
	return frame.SyndromeName(s)
}

// completions writes the completions of all work requests, those of each queue in order. After a NAK that ends the connection
// the reader has to say which fail.
func (w *writer) completions() {
	if w.failed {
		w.printf("# The connection ends with an error: expect the completions that you need, such as\n# dut.cqe qp ERROR wr=1\n")
		return
	}
	for _, list := range [][]int{w.sent, w.recvs} {
		for _, n := range list {
			w.printf("dut.cqe qp SUCCESS wr=%d\n", n)
		}
	}
}
