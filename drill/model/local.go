package model

import (
	"fmt"
	"strings"
)

// invalid posts a work request that the device cannot execute, behind valid ones that have completed. Later ones are flushed.
func (w *world) invalid() {
	if w.timeout > 0 || w.open != nil {
		return
	}
	if w.d.one(2) {
		w.post()
	}
	if w.open != nil {
		return
	}
	w.probe() // the device has taken all packets
	w.batch = nil
	w.works++
	id, name := w.works, fmt.Sprintf("mr%d", w.generation)
	switch w.d.n(4) {
	case 1:
		w.say("", "pd%d = dut.pd", w.generation)
		w.say("", "%s = dut.mr size=64 pd=pd%d", name, w.generation)
		w.say("local", "dut.send qp wr=%d %s[0:8]", id, name)
	case 2:
		w.untouched(name, " access=r")
		w.say("", "ignore READ_REQUEST psn=%s", w.p(w.sent))
		w.say("local", "dut.read qp wr=%d %s[0:8] remote=4096 rkey=1", id, name)
		w.say("", "wait 1ms")
		w.say("", "< READ_RESP_ONLY psn=%s syndrome=ACK msn=%d%s", w.p(w.sent), w.finished+1, w.fill(8))
	default:
		w.say("", "%s = dut.mr size=64", name)
		w.say("local", "dut.write qp wr=%d %s[%d:%d] remote=4096 rkey=1 signaled=0", id, name, 57+w.d.n(7), 65+w.d.n(100))
	}
	w.say("local", "dut.cqe qp LOC_PROT_ERR wr=%d", id)
	w.broken()
}

// retune changes an attribute that a drained queue pair may change. The requests behind follow it.
func (w *world) retune() {
	switch w.d.n(6) {
	case 1:
		w.rnrRetry = pick(&w.d, endless, 1, 2, 0)
		w.rnrLeft, w.partly = w.rnrRetry, false
		w.say("tune", "dut.modify qp rnr_retry=%d", w.rnrRetry)
	case 2:
		w.timeout, w.retry = pick(&w.d, 16, 17), pick(&w.d, 2, 1, 3)
		w.say("tune", "dut.modify qp timeout=%d retry=%d", w.timeout, w.retry)
	case 3:
		w.readDepth = pick(&w.d, 4, 1, 2)
		w.say("tune", "dut.modify qp rd_atomic=%d", w.readDepth)
	}
}

// stop posts a work request that a UC or UD queue pair cannot execute. It stops the send queue only, until RTS.
func (w *world) stop() {
	w.works++
	region := fmt.Sprintf("mr%d", w.works)
	w.say("", "%s = dut.mr size=64", region)
	datagram := ""
	if w.service == "ud" {
		datagram = fmt.Sprintf(" ah=ah qkey=%#x", qkey)
	}
	w.say("stop", "dut.send qp wr=%d %s[60:80]%s", w.works, region, datagram)
	w.say("stop", "dut.cqe qp LOC_PROT_ERR wr=%d", w.works)
	if w.d.one(2) {
		k := w.newWork("SEND")
		w.submit(k)
		w.sent -= k.packets
		w.say("flush", "dut.cqe qp WR_FLUSH_ERR wr=%d", k.id)
	}
	w.say("stop", "dut.query qp state=SQE")
	if w.d.one(2) {
		w.receives()
	}
	w.say("stop", "dut.modify qp state=RTS")
	k := w.newWork("SEND")
	k.size, k.packets, k.suffix, k.solicited, k.list, k.data = 0, 1, "", false, nil, nil
	w.submit(k)
	label := w.label()
	text := strings.Replace(w.request(k, 0), "psn="+w.p(k.first), fmt.Sprintf("psn=%s..%s", w.p(k.first), w.p(k.first+1)), 1)
	w.say("stop", "%s: > %s", label, text)
	w.say("", "P%d = (%s.psn-%d)%%0x1000000", w.generation, label, k.first)
	w.completed(k)
	w.una = w.sent
}

// drain drains the send queue: requests that are posted meanwhile wait until the queue pair is in RTS again.
func (w *world) drain() {
	if w.timeout > 0 {
		return
	}
	w.outstand(w.d.n(3))
	before := w.batch
	w.batch = nil
	if len(before) > 0 && before[0].responds() && w.d.one(2) { // it waits already
		k := w.newWork("SEND", "WRITE")
		k.fence = true
		w.submit(k)
		w.batch = append(w.batch, k)
	}
	notify := w.d.n(2)
	w.say("", "dut.modify qp state=SQD notify=%d", notify)
	for range 1 + w.d.n(2) {
		k := w.newWork("SEND", "WRITE")
		w.submit(k)
		w.batch = append(w.batch, k)
	}
	later := w.batch
	w.say("drain", "quiet 1ms")
	if w.open == nil && w.d.one(2) {
		w.burst()
	}
	if w.d.one(4) {
		w.unsolicited()
	}
	w.batch, w.steady = before, true
	busy := w.label()
	w.say("query", "%s: dut.query qp state=SQD", busy)
	w.answer()
	w.steady = false
	if notify == 1 {
		after := map[bool]string{true: " after 1ns of " + busy}[len(before) > 0]
		w.say("drain", "dut.event qp SQ_DRAINED%s", after)
	}
	w.say("drain", "quiet 1ms")
	w.refuses("state=INIT", "state=RTR", "mtu=256", "psn=5")
	w.retune()
	w.say("", "dut.modify qp state=RTS")
	w.batch = later
	if w.requests(later[0].first); w.timeout > 0 {
		w.respondTo(w.sent)
	} else {
		w.answer()
	}
}

// pause stops the send queue of UC or UD, which meanwhile takes no requests and receives messages.
func (w *world) pause() {
	w.say("", "dut.modify qp state=SQD")
	w.batch = nil
	for range 1 + w.d.n(2) {
		k := w.newWork(w.operations(false)...)
		w.submit(k)
		w.batch = append(w.batch, k)
	}
	w.say("drain", "quiet 1ms")
	if w.d.one(2) {
		w.receives()
	}
	w.say("", "dut.modify qp state=RTS")
	w.requests(w.una)
	w.complete()
}
