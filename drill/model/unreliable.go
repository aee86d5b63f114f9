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
		m := w.choose(false)
		w.begin(m)
		switch fate := w.d.n(8); {
		case fate == 1:
			w.loses(m, w.d.n(m.packets), m.packets)
		case fate == 2 && m.packets > 1:
			w.loses(m, -1, 1+w.d.n(m.packets-1))
		case fate == 3 && m.op == "WRITE" && m.size > 0:
			w.denied(m)
		default:
			w.deliver(m)
		}
		w.next += m.packets
	}
	w.await()
}

// deliver sends all packets of a message.
func (w *world) deliver(m *message) {
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

// denied sends a WRITE with a key that gives access to nothing.
func (w *world) denied(m *message) {
	for i := range m.packets {
		text := w.packet(m, i)
		w.say("uc.access", "< %s", strings.Replace(text, "rkey=mr.rkey", "rkey=mr.rkey+0x100", 1))
	}
	w.reuse(m)
}

// abandon drops a message. Its data may be in memory in part.
func (w *world) abandon(m *message) {
	if m.op == "WRITE" {
		w.target.write(m.at, unknown(m.size))
	} else {
		m.recv.list.scatter(0, unknown(m.size))
	}
	w.reuse(m)
}

// reuse gives the receive of a dropped message to the next one.
func (w *world) reuse(m *message) {
	if m.consumes() {
		w.recvs = append([]receive{m.recv}, w.recvs...)
	}
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
		others = append(others, "UC_SEND_ONLY psn=%s", "UD_SEND_ONLY psn=%s qkey=0x78 src=0x22", "UD_SEND_ONLY psn=%s qkey=0x80000077 src=0x22")
	}
	own := w.prefix() + "SEND_ONLY psn=%s" + w.datagram(qkey) + w.fill(5)
	faults := []string{" icrc=bad", " pkey=0x8123", " tver=1", " dst=(qp.num+0x5555)%%0x1000000", " udp.dport=4790"}
	w.say("drop.service", "< "+pick(&w.d, append(others, own+pick(&w.d, faults...))...), w.q(w.next))
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

// arriveDatagram sends a datagram of at most n bytes to the oldest receive.
func (w *world) arriveDatagram(n int) {
	r := w.recvs[0]
	w.recvs = w.recvs[1:]
	data := w.payload(min(n, r.size-grh))
	name, imm := "UD_SEND_ONLY", ""
	if w.d.one(3) {
		name, imm = "UD_SEND_ONLY_IMM", fmt.Sprintf(" imm=%#x", w.d.n(1<<30))
	}
	w.say("", "< %s psn=%s%s%s payload=%s", name, w.q(w.d.n(1<<24)), w.datagram(qkey), imm, expression(data))
	r.list.scatter(0, append(unknown(grh), data...))
	text := fmt.Sprintf("dut.cqe qp SUCCESS wr=%d op=RECV len=%d peer=%#x%s", r.id, grh+len(data), source, imm)
	w.answers = append(w.answers, answer{rule: w.rule("receive"), text: text, local: true})
}

// settle sends a message whose completion shows that the device has executed all before it.
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
	w.batch = nil
	for range 1 + w.d.n(3) {
		k := w.newWork(w.operations(false)...)
		w.submit(k)
		w.batch = append(w.batch, k)
	}
	w.requests(w.una, "")
	w.complete()
}

// complete expects the completions of a batch that needs no answers.
func (w *world) complete() {
	for _, k := range w.batch {
		w.completed(k)
	}
	w.una = w.sent
}
