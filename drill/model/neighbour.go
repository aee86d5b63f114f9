package model

import "fmt"

// neighbour is a second queue pair of RC with the shared queues of the first. Nothing that happens to the first matters to it.
type neighbour struct {
	made     bool
	next     int // PSN that it expects
	executed int // messages
	sent     int // PSN of its next request; each has one packet
	rest, at int // bytes of a WRITE that are still to come behind its first packet, and its place
	first    []cell
}

// neighbourMTU is the path MTU of the neighbour.
const neighbourMTU = 256

// neighbourMessage lets the neighbour execute a message, or send one.
func (w *world) neighbourMessage() {
	o := &w.other
	switch {
	case w.service != "rc":
		return
	case !o.made:
		o.made = true
		const half = 1 << 23 // the PSNs are those of no other connection
		w.say("", "R = %d", half-half/4)
		w.say("", "S = %d", 2*half-half/4)
		w.say("", "%s", with(fmt.Sprintf("other = dut.qp rc peer=0x12 mtu=%d timeout=0 psn=R rqpsn=S", neighbourMTU), option{w.shared, " srq=srq"},
			option{w.armed, " rcq=cq"}, option{w.sends, " scq=cs"}))
	}
	if o.rest > 0 {
		w.nearby.write(o.at, o.first)
		w.besideWrite("WRITE_LAST", "", o.at+neighbourMTU, o.rest)
		o.rest = 0
		return
	}
	n := 1 + w.d.n(neighbourMTU)
	at := w.nearby.reserve(2 * neighbourMTU)
	switch w.d.n(5) {
	case 1:
		o.rest, o.at, o.first = n, at, w.payload(neighbourMTU)
		w.nearby.write(at, unknown(neighbourMTU))
		w.say("", "< WRITE_FIRST dst=other.num psn=S+%d va=nb.va+%d rkey=nb.rkey len=%d payload=%s", o.next, at, neighbourMTU+n, expression(o.first))
		w.say("", ">? ACKNOWLEDGE dst=0x12 psn=S+%d syndrome=ACK", o.next)
		o.next++
	case 2:
		o.executed++
		w.say("", "< READ_REQUEST dst=other.num psn=S+%d va=nb.va+%d rkey=nb.rkey len=%d", o.next, at, n)
		w.say("beside", "> READ_RESP_ONLY dst=0x12 psn=S+%d syndrome=ACK msn=%d payload=%s", o.next, o.executed, expression(w.nearby.read(at, at+n)))
		o.next++
	case 3:
		w.besideSend(n)
	case 4:
		w.besideRequest(n)
	default:
		w.besideWrite("WRITE_ONLY", fmt.Sprintf(" va=nb.va+%d rkey=nb.rkey len=%d", at, n), at, n)
	}
}

// besideWrite sends the last packet of a WRITE, whose n bytes go to a place.
func (w *world) besideWrite(op, address string, at, n int) {
	o, data := &w.other, w.payload(n)
	w.nearby.write(at, data)
	w.besideMessage(fmt.Sprintf("%s dst=other.num psn=S+%d%s payload=%s", op, o.next, address, expression(data)))
}

// besideMessage sends the last packet of a message and expects its acknowledgement.
func (w *world) besideMessage(packet string) {
	o := &w.other
	o.executed++
	w.say("", "< %s ackreq=1", packet)
	w.say("beside", "> ACKNOWLEDGE dst=0x12 psn=S+%d syndrome=ACK msn=%d", o.next, o.executed)
	o.next++
}

// besideSend sends a SEND of at most n bytes, which takes the oldest shared receive, or one of its own.
func (w *world) besideSend(n int) {
	m := &message{}
	if w.shared {
		w.take(m, n)
	} else {
		w.works++
		m.recv = receive{w.works, w.parts(w.inbox, n), n}
		w.say("", "dut.recv other wr=%d%s", m.recv.id, m.recv.list)
	}
	n = min(n, m.recv.size)
	data := w.payload(n)
	m.recv.list.scatter(0, data)
	w.besideMessage(fmt.Sprintf("SEND_ONLY dst=other.num psn=S+%d payload=%s", w.other.next, expression(data)))
	w.say("beside", "dut.cqe other SUCCESS wr=%d op=RECV len=%d", m.recv.id, n)
}

// besideRequest posts a SEND or a READ of n bytes and answers it.
func (w *world) besideRequest(n int) {
	o := &w.other
	w.works++
	id, psn := w.works, o.sent
	o.sent++
	if w.d.one(2) {
		list, data := w.parts(w.sink, n), w.payload(n)
		w.say("", "dut.read other wr=%d%s remote=64 rkey=5", id, list)
		w.say("beside", "> READ_REQUEST dst=0x12 psn=R+%d va=64 rkey=5 len=%d", psn, n)
		w.say("", "< READ_RESP_ONLY dst=other.num psn=R+%d syndrome=ACK msn=%d payload=%s", psn, o.sent, expression(data))
		list.scatter(0, data)
		w.say("beside", "dut.cqe other SUCCESS wr=%d op=RDMA_READ len=%d", id, n)
		return
	}
	list := w.parts(w.source, n)
	w.say("", "dut.send other wr=%d%s", id, list)
	w.say("beside", "> SEND_ONLY dst=0x12 psn=R+%d payload=%s", psn, expression(list.gather()))
	w.say("", "< ACKNOWLEDGE dst=other.num psn=R+%d syndrome=ACK msn=%d", psn, o.sent)
	w.say("beside", "dut.cqe other SUCCESS wr=%d op=SEND", id)
}
