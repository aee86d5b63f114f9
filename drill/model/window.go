package model

import "fmt"

// window is a memory window of the target.
type window struct {
	key      string // name of its key, empty if the window is not bound
	from, to int
	rights   string // of peers, empty for all
}

// bind binds the memory window to a part of the target, with a new key.
func (w *world) bind() {
	if w.tags++; w.tags == 1 {
		w.say("", "mw = dut.mw type=2")
		w.keys = []string{"mw.rkey"}
	}
	w.works++
	from := w.d.n(memorySize / 2)
	w.bound = window{fmt.Sprintf("K%d", w.tags), from, from + memorySize/4 + w.d.n(memorySize/4), pick(&w.d, "", "", "w", "r")}
	access := ""
	if w.bound.rights != "" {
		access = " access=" + w.bound.rights
	}
	w.say("", "%s = mw.rkey/256*256+(mw.rkey+%d)%%256", w.bound.key, w.tags)
	w.say("", "dut.bind qp wr=%d mw=mw rkey=%s to=mr[%d:%d]%s", w.works, w.bound.key, w.bound.from, w.bound.to, access)
	w.say("window", "dut.cqe qp SUCCESS wr=%d op=BIND_MW", w.works)
}

// keyOf chooses a key for an operation on a range of the target.
func (w *world) keyOf(op string, at, size int) string {
	b := w.bound
	forbids := op == "READ" && b.rights == "w" || op == "WRITE" && b.rights == "r"
	if b.key != "" && b.from <= at && at+size <= b.to && !forbids && w.d.one(2) {
		return b.key
	}
	return "mr.rkey"
}

// rebind invalidates the window, by a request of the device or of the tester, or binds it again.
func (w *world) rebind() {
	switch {
	case !w.window || w.open != nil || w.generation > 1: // an error has closed it
	case w.bound.key == "":
		w.bind()
	default:
		w.settle() // no request with its key is on its way
		w.unbind()
	}
}

func (w *world) unbind() {
	key := w.bound.key
	w.bound, w.keys = window{}, append(w.keys, key)
	if w.d.one(2) {
		w.works++
		w.say("", "dut.invalidate qp wr=%d rkey=%s", w.works, key)
		w.say("window", "dut.cqe qp SUCCESS wr=%d op=LOCAL_INV", w.works)
		return
	}
	w.silent, w.answers = false, nil
	m := &message{op: "SEND", size: w.size(), inv: key}
	w.begin(m)
	w.transmit(m, m.packets, true)
	w.await()
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
