package model

import (
	"fmt"
	"strings"
)

// qkey is the Q_Key of the device's queue pair for datagrams, grh the room for addresses before a datagram, and source the tester's
// queue pair in datagrams.
const (
	qkey   = 0x77
	grh    = 40
	source = 0x22
)

// stream sends some messages of UC, some of them with a fault, and expects the completions of the others.
func (w *world) stream() {
	for range 1 + w.d.n(4) {
		if w.d.one(6) { // every PSN begins a message; none of these continues the one before
			w.next += pick(&w.d, 1, 1+w.d.n(1000), -1<<20-w.d.n(1000), 1<<23)
		}
		m := w.choose(false)
		w.begin(m)
		switch fate := w.d.n(9); {
		case fate == 1:
			w.loses(m, w.d.n(m.packets), m.packets)
		case fate == 2 && m.packets > 1:
			w.loses(m, -1, 1+w.d.n(m.packets-1))
		case fate == 3 && m.op == "WRITE" && m.size > 0:
			w.denied(m)
		case fate == 4:
			w.misshapes(m)
		default:
			w.deliver(m)
		}
		w.next += m.packets
	}
	w.await()
}

// deliver sends all packets of a message.
func (w *world) deliver(m *message) {
	if m.op == "WRITE" && m.imm > 0 {
		w.take(m, w.d.n(9))
	}
	for i := range m.packets {
		w.say("", "%s", w.line(m, i))
		w.arrive(m, i)
	}
}

// loses sends the packets of a message before one, without packet lost. The device drops the message; its receive serves the next.
func (w *world) loses(m *message, lost, before int) {
	for i := range before {
		if i != lost {
			w.say("uc.lost", "< %s", w.packet(m, i))
		}
	}
	w.abandon(m)
}

// misshapes sends a message with one packet of a wrong length or opcode, and sometimes the packets behind it.
func (w *world) misshapes(m *message) {
	bad := w.d.n(m.packets)
	for i := range m.packets {
		text := w.packet(m, i)
		if i == bad {
			text = w.misshapen(m, i)
		}
		if w.say("uc.length", "< %s", text); i == bad && w.d.one(2) {
			break
		}
	}
	w.maybeQuiet("uc.length")
	w.abandon(m)
}

// misshapen returns packet i of a message with a wrong length, or with the opcode of another message.
func (w *world) misshapen(m *message, i int) string {
	text := w.packet(m, i)
	head, _, _ := strings.Cut(text, " payload=")
	n, beyond := len(w.part(m.data, i)), w.mtu+1+w.d.n(4)
	texts := []string{head + w.fill(beyond)}
	switch {
	case i < m.packets-1:
		texts = append(texts, head, head+w.fill(w.mtu-1), head+w.fill(w.mtu/2))
	case m.op == "WRITE":
		texts = append(texts, head+w.fill(n+1), head+w.fill(max(n-1, beyond*(1-min(n, 1)))))
	case i > 0:
		texts = append(texts, head)
	}
	if other := map[string]string{"SEND": "WRITE", "WRITE": "SEND"}[m.op]; i > 0 {
		texts = append(texts, strings.Replace(text, m.op, other, 1))
	} else {
		texts = append(texts, fmt.Sprintf("UC_%s%s psn=%s%s", pick(&w.d, "SEND", "WRITE"), pick(&w.d, "_MIDDLE", "_LAST"), w.q(m.first), w.fill(w.mtu)))
	}
	return pick(&w.d, texts...)
}

// denied sends a WRITE with a key that gives access to nothing, to memory outside of the region, or without the right of the queue pair.
func (w *world) denied(m *message) {
	right, wrong, rights := "rkey=mr.rkey", "rkey=mr.rkey+0x100", w.d.one(3) && !w.fixed
	switch {
	case rights:
		w.say("", "wait 5ms") // the device has taken the packets
		w.say("", "dut.modify qp access=none")
		wrong = right
	case m.packets == 1 && w.d.one(2):
		right, wrong = fmt.Sprintf("mr.va+%d", m.at), fmt.Sprintf("mr.va%+d", pick(&w.d, memorySize-m.size+1, memorySize, -1))
	}
	for i := range m.packets {
		w.say("uc.access", "< %s", strings.Replace(w.packet(m, i), right, wrong, 1))
	}
	if w.maybeQuiet("uc.access"); rights {
		w.say("", "wait 5ms")
		w.say("", "dut.modify qp access=wra")
	}
}

// abandon drops a message. Its data may be in memory in part. The next message takes its receive.
func (w *world) abandon(m *message) {
	if m.op == "WRITE" {
		w.target.write(m.at, unknown(m.size))
		return
	}
	m.recv.list.scatter(0, unknown(m.recv.size))
	w.recvs = append([]receive{m.recv}, w.recvs...)
}

// foreign sends a packet that a UC or UD queue pair drops: of another service, with a fault, or without a receive.
func (w *world) foreign() {
	if len(w.recvs) == 0 && w.d.one(2) {
		w.say("uc.lost", "< %sSEND_ONLY psn=%s%s%s", w.prefix(), w.q(w.next), w.datagram(qkey), w.fill(1+w.d.n(64)))
		w.say("uc.lost", "quiet 20ms") // before a receive is posted
		w.next++
		return
	}
	others := []string{"SEND_ONLY psn=%s ackreq=1", "READ_REQUEST psn=%s va=mr.va rkey=mr.rkey len=8", "ACKNOWLEDGE psn=%s syndrome=NAK_ACCESS msn=0"}
	if w.service == "uc" {
		others = append(others, "UD_SEND_ONLY psn=%s qkey=0x77 src=0x22")
	} else {
		others = append(others, "UC_SEND_ONLY psn=%s", "UD_SEND_ONLY psn=%s qkey=0x78 src=0x22", "UD_SEND_ONLY psn=%s qkey=0x80000077 src=0x22",
			"UD_SEND_ONLY psn=%s qkey=0 src=0x22", "UD_SEND_ONLY psn=%s qkey=0x10077 src=0x22", "UD_SEND_ONLY psn=%s qkey=0x77 src=0x22"+w.toGroup(2))
	}
	if w.group && w.generation == 1 { // a group needs the multicast queue pair
		others = append(others, "UD_SEND_ONLY psn=%s qkey=0x77 src=0x22"+strings.TrimSuffix(w.toGroup(1), " dst=0xffffff"))
	}
	own := w.prefix() + "SEND_ONLY psn=%s" + w.datagram(qkey) + w.fill(5)
	faults := []string{" icrc=bad", " pkey=0x8123", " tver=1", " dst=(qp.num+0x5555)%%0x1000000", " dst=qp.num+1", " udp.dport=4790"}
	w.say("drop.service", "< "+pick(&w.d, append(others, own+pick(&w.d, faults...))...), w.q(w.next))
	w.maybeQuiet("drop.service")
}

// prefix returns the beginning of the names of packets.
func (w *world) prefix() string {
	return map[string]string{"uc": "UC_", "ud": "UD_"}[w.service]
}

// rule returns the ID of the rule for datagrams, or of the one for connections.
func (w *world) rule(id string) string {
	if w.service == "ud" {
		return "ud." + id
	}
	return id
}

// datagram returns the fields that only a datagram has.
func (w *world) datagram(key uint32) string {
	if w.service != "ud" {
		return ""
	}
	return fmt.Sprintf(" qkey=%#x src=%#x", key, source)
}

// datagrams sends some datagrams. Their PSNs do not matter.
func (w *world) datagrams() {
	for range 1 + w.d.n(3) {
		n := w.d.n(w.mtu + 1)
		if len(w.recvs) == 0 {
			w.receive(n + w.d.n(2)*w.d.n(50))
		}
		w.arriveDatagram(n)
	}
	w.await()
}

// arriveDatagram sends a datagram of at most n bytes to the oldest receive. Its IP addresses are in the last part of the room for them.
func (w *world) arriveDatagram(n int) {
	r := w.recvs[0]
	w.recvs = w.recvs[1:]
	data := w.payload(min(n, r.size-grh))
	name, imm, from := "UD_SEND_ONLY", "", pick(&w.d, source, 1, w.d.n(1<<24))
	if w.d.one(3) {
		name, imm = "UD_SEND_ONLY_IMM", fmt.Sprintf(" imm=%#x", w.d.n(1<<30))
	}
	to, addresses := "", addressBytes
	if w.group && w.generation == 1 && w.d.one(2) {
		to, addresses = w.toGroup(1), groupBytes
	}
	w.say("", "< %s%s psn=%s qkey=%#x src=%#x%s payload=%s", name, to, w.q(w.d.n(1<<24)), qkey, from, imm, expression(data))
	known := map[bool]int{false: 8, true: 32}[w.v6]
	r.list.scatter(0, append(append(unknown(grh-known), origin(addresses, 0, known)...), data...))
	text := fmt.Sprintf("dut.cqe qp SUCCESS wr=%d op=RECV len=%d peer=%#x%s", r.id, grh+len(data), from, imm)
	w.answers = append(w.answers, answer{rule: w.rule("receive"), text: text, local: true})
}

// groupOf returns a multicast group. That of the queue pair is 1. Its Ethernet address has 23 bits of it by IPv4, 32 by IPv6.
func (w *world) groupOf(number int) string {
	if w.v6 {
		return fmt.Sprintf("addr(\"ff0e::1:8102:%d\")", number)
	}
	return fmt.Sprintf("addr(\"239.129.2.%d\")", number)
}

// toGroup returns the fields of a packet to a multicast group.
func (w *world) toGroup(number int) string {
	mac := map[bool]int{false: 0x01005e010200, true: 0x333381020000}[w.v6] + number
	return fmt.Sprintf(" eth.dst=%#x ip.dst=%s dst=0xffffff", mac, w.groupOf(number))
}

// attach attaches the queue pair to a multicast group.
func (w *world) attach() {
	w.say("", "G = tester.addr+%s", w.groupOf(1))
	w.say("", "gah = dut.ah group=%s", w.groupOf(3)) // the device may hear what it sends to its own group
	w.say("", "dut.attach qp group=%s", w.groupOf(1))
	w.say("", "wait 20ms") // the device joins the group
}

// overlong sends a datagram that is longer than its receive. It may end the receive or not, so the queue pair begins again.
func (w *world) overlong() {
	if w.shared {
		return
	}
	w.settle()
	if len(w.recvs) == 0 {
		w.receive(w.d.n(w.mtu))
	}
	r := w.recvs[0]
	if room := r.size - grh; room < w.mtu {
		r.list.scatter(0, unknown(r.size))
		w.say("ud.long", "< UD_SEND_ONLY psn=%s%s%s", w.q(0), w.datagram(qkey), w.fill(room+1+w.d.n(w.mtu-room)))
		w.say("ud.long", "quiet 5ms")
		w.connect()
	}
}

// settleUnreliable sends a message whose completion shows that the device has executed all before it.
func (w *world) settleUnreliable() {
	if len(w.recvs) == 0 {
		w.receive(0)
	}
	if w.service == "ud" {
		w.arriveDatagram(0)
	} else {
		m := &message{op: "SEND"}
		w.begin(m)
		w.deliver(m)
		w.next++
	}
	w.await()
}

// send posts work requests to a UC or UD queue pair, which complete without an answer.
func (w *world) send() {
	w.outstand(1 + w.d.n(3))
	w.complete()
}

// complete expects the completions of a batch that needs no answers.
func (w *world) complete() {
	for _, k := range w.batch {
		w.completed(k)
	}
	w.una = w.sent
}
