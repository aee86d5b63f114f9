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
	from := w.d.n(memorySize / 2)
	b := window{fmt.Sprintf("K%d", w.tags), from, from + memorySize/4 + w.d.n(memorySize/4), pick(&w.d, "", "", "w", "r")}
	w.say("", "%s = mw.rkey/256*256+(mw.rkey+%d)%%256", b.key, w.tags)
	bind := fmt.Sprintf("dut.bind qp mw=mw rkey=%s to=mr[%d:%d]", b.key, b.from, b.to)
	w.local("BIND_MW", with(bind, option{b.rights != "", " access=" + b.rights}))
	w.bound = b
}

// local posts a local operation behind some requests. Its completion comes behind theirs.
func (w *world) local(op, text string) {
	w.outstand(max(0, w.d.n(4)-1) * map[bool]int{true: 1}[w.timeout == 0])
	w.works++
	id := w.works
	w.say("", "%s wr=%d", text, id)
	w.steady = true
	w.answer()
	w.steady = false
	w.say("window", "dut.cqe qp SUCCESS wr=%d op=%s", id, op)
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
		w.local("LOCAL_INV", "dut.invalidate qp rkey="+key)
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
	if len(w.recvs) == 0 {
		w.receive(8)
	}
	w.say("invalidate", "< SEND_ONLY_INV psn=%s inv=(mr.rkey+0x100)%%0x100000000 ackreq=1%s", w.q(w.next), w.fill(min(4, w.recvs[0].size)))
	w.recvs[0].list.scatter(0, unknown(min(4, w.recvs[0].size)))
	return "invalidate", ""
}
