package model

// notify asks for a notification of the next completion of a receive, or of the next solicited one.
func (w *world) notify() {
	if w.sends && w.service == "rc" {
		w.notifyRequests()
	}
	if !w.armed || w.open != nil || w.service == "ud" {
		return
	}
	w.settle()
	solicited := w.d.n(2)
	w.say("", "dut.arm cq solicited=%d", solicited)
	for range solicited * w.d.n(3) {
		w.message(" se=0")
	}
	w.say("notify", "dut.event cq COMPLETION after 1ns of %s", w.message(" se=1"))
}

// notifyRequests asks for a notification of the next completion of a request. A successful one is not solicited.
func (w *world) notifyRequests() {
	if w.d.one(2) {
		w.say("", "dut.arm cs solicited=1")
		w.acknowledged()
	}
	w.say("", "dut.arm cs solicited=0")
	w.say("notify", "dut.event cs COMPLETION after 1ns of %s", w.acknowledged())
}

// acknowledged posts a SEND and acknowledges it. It returns the label of the acknowledgement.
func (w *world) acknowledged() string {
	k, label := w.newWork("SEND"), w.label()
	w.submit(k)
	w.batch = []*work{k}
	w.requests(k.first)
	w.completesTo(w.sent, func() {
		w.say("complete", "%s: < ACKNOWLEDGE psn=%s syndrome=ACK msn=%d", label, w.p(w.sent-1), w.finished)
	})
	return label
}

// message sends a message that completes a receive. It returns the label of its last packet, which has the field.
func (w *world) message(solicited string) string {
	w.silent, w.answers = false, nil
	m := &message{op: pick(&w.d, "SEND", "WRITE"), size: w.size(), label: w.label(), solicited: solicited}
	if m.op == "WRITE" || w.d.one(2) {
		m.imm = 1 + w.d.n(1<<30)
	}
	w.begin(m)
	if w.service == "uc" {
		w.deliver(m)
		w.next += m.packets
	} else {
		w.transmit(m, m.packets, true)
	}
	w.await()
	return m.label
}

// notified breaks the queue pair while the completion queue of its receives waits for a solicited completion: an error is one.
func (w *world) notified() {
	if !w.armed || w.shared || w.open != nil || w.timeout > 0 {
		return
	}
	if w.settle(); w.pending {
		return
	}
	if len(w.recvs) == 0 {
		w.receive(8)
	}
	w.batch = nil
	w.say("", "wait 5ms") // the device has taken all packets
	w.say("", "dut.arm cq solicited=1")
	w.say("", "dut.modify qp state=ERR")
	w.say("notify", "dut.event cq COMPLETION")
	w.broken()
}

// mark lets the network mark a request, of which the device notifies the sender.
func (w *world) mark() {
	if !w.notifies || w.ignores || w.open != nil { // a CNP has PSN 0
		return
	}
	w.settle()
	w.say("", "wait 1ms") // more than the interval of notifications
	w.executed++
	w.say("", "< WRITE_ONLY psn=%s va=1 rkey=1 len=0 ackreq=1 ip.ecn=3", w.q(w.next))
	w.say("cnp", "> any { CNP dst=0x11 becn=1 ; ACKNOWLEDGE psn=%s syndrome=ACK msn=%d }", w.q(w.next), w.executed)
	w.next++
	w.gap, w.notReady = false, false
}

// limited arms the limit of a shared receive queue, and takes as many receives as it needs to pass it.
func (w *world) limited() {
	if !w.shared || w.open != nil || w.service != "rc" {
		return
	}
	w.settle()
	for len(w.recvs) < 2 {
		w.receive(w.size())
	}
	n := len(w.recvs) - w.d.n(2)
	w.say("", "dut.limit srq limit=%d", n)
	label := ""
	for len(w.recvs) >= n {
		label = w.message(" se=0")
	}
	w.say("limit", "dut.event srq SRQ_LIMIT_REACHED after 1ns of %s", label)
}

// query compares the attributes of the queue pair, after a change that it refuses.
func (w *world) query() {
	w.refuses("state=INIT", "state=RTR", "mtu=256", "peer=0x33", "rqpsn=5", "psn=5", "timeout=14")
	switch w.service {
	case "rc":
		w.say("query", "dut.query qp state=RTS mtu=%d peer=0x11 min_rnr=%d rd_atomic=%d dest_rd_atomic=%d timeout=%d retry=%d rnr_retry=%d", w.mtu, w.minRNR,
			w.readDepth, w.resources, w.timeout, w.retry, w.rnrRetry)
	case "uc":
		w.say("query", "dut.query qp state=RTS mtu=%d peer=0x11", w.mtu)
	default:
		w.say("query", "dut.query qp state=RTS qkey=%#x pkey_index=0", qkey)
	}
}
