package model

// windowSize is the part of the target that the memory window of a sequence covers. Its key is K.
const windowSize = memorySize / 2

// bind binds a memory window to the first part of the target.
func (w *world) bind() {
	w.works++
	w.say("", "mw = dut.mw type=2")
	w.say("", "K = mw.rkey/256*256+(mw.rkey+1)%%256")
	w.say("", "dut.bind qp wr=%d mw=mw rkey=K to=mr[0:%d]", w.works, windowSize)
	w.say("window", "dut.cqe qp SUCCESS wr=%d op=BIND_MW", w.works)
	w.bound, w.keys = true, []string{"mw.rkey"}
}

// keyOf chooses a key for a range of the target.
func (w *world) keyOf(at, size int) string {
	if w.bound && at+size <= windowSize && w.d.one(2) {
		return "K"
	}
	return "mr.rkey"
}

// unbind invalidates the window, by a request of the device or of the tester.
func (w *world) unbind() {
	if !w.bound || w.open != nil {
		return
	}
	w.settle() // no request with its key is on its way
	w.bound, w.keys = false, append(w.keys, "K")
	if w.d.one(2) {
		w.works++
		w.say("", "dut.invalidate qp wr=%d rkey=K", w.works)
		w.say("window", "dut.cqe qp SUCCESS wr=%d op=LOCAL_INV", w.works)
		return
	}
	if len(w.recvs) == 0 {
		w.receive(8)
	}
	r := w.recvs[0]
	w.recvs = w.recvs[1:]
	data := w.payload(min(8, r.size))
	r.list.scatter(0, data)
	w.say("window", "< SEND_ONLY_INV psn=%s inv=K ackreq=1 payload=%s", w.q(w.next), expression(data))
	w.executed++
	w.say("window", "> %s msn=%d", w.acknowledges(w.next), w.executed)
	w.say("window", "dut.cqe qp SUCCESS wr=%d op=RECV len=%d inv=K", r.id, len(data))
	w.next++
	w.gap, w.notReady, w.pending = false, false, false
}

// unknownKey sends a SEND that invalidates a key which does not exist.
func (w *world) unknownKey() (rule, nak string) {
	if w.open != nil {
		return "", ""
	}
	if len(w.recvs) == 0 {
		w.receive(8)
	}
	w.say("invalidate", "< SEND_ONLY_INV psn=%s inv=(mr.rkey+0x100)%%0x100000000 ackreq=1%s", w.q(w.next), w.fill(min(4, w.recvs[0].size)))
	w.recvs[0].list.scatter(0, unknown(min(4, w.recvs[0].size)))
	return "invalidate", ""
}
