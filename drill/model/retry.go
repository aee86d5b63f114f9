package model

import (
	"fmt"
	"time"
)

// unfinished returns the work request with the oldest PSN that has no response.
func (w *world) unfinished() *work {
	for _, k := range w.batch {
		if w.una < k.first+k.packets {
			return k
		}
	}
	return nil
}

// loseResponse sends a response behind a missing one of the same READ. The requester asks for the rest of the READ or for all of it.
func (w *world) loseResponse() bool {
	k := w.unfinished()
	if k == nil || k.op != "READ" || k.first+k.packets-w.una < 2 || w.una < w.fresher {
		return false
	}
	if rest := k.first + k.packets - w.una; rest > 2 && w.d.one(2) {
		w.respondTo(w.una + 1 + w.d.n(rest-2))
	}
	i := w.una - k.first
	j := i + 1 + w.d.n(k.packets-i-1)
	w.say("read.rest", "< %s", w.readResponse(k, j, position(j-k.base, k.packets-k.base), w.fill(min(w.mtu, k.size-j*w.mtu))))
	w.readAgain(k, "read.rest", "")
	return true
}

// readAgain expects that the requester asks for the rest of a READ or for all of it, and answers. time bounds the request.
func (w *world) readAgain(k *work, rule, time string) {
	i := w.una - k.first
	data := append(k.list.gather()[:i*w.mtu], w.payload(k.size-i*w.mtu)...)
	branches := []int{i}
	if i > 0 {
		branches = []int{i, 0}
	}
	for n, base := range branches {
		if i > 0 {
			w.say("", "%s {", []string{"either", "} or"}[n])
		}
		w.say(rule, "> %s%s", w.request(k, base), time)
		w.later(k, rule)
		w.respondAgain(k, base, data)
	}
	if i > 0 {
		w.say("", "}")
	}
	w.fresher = w.una + 1
	w.completesTo(k.first+k.packets, func() { k.list.scatter(0, data) })
}

// respondAgain sends the responses to a READ that begins at a packet.
func (w *world) respondAgain(k *work, base int, data []cell) {
	for j := base; j < k.packets; j++ {
		w.say("", "< %s", w.readResponse(k, j, position(j-base, k.packets-base), " payload="+expression(w.part(data, j))))
	}
}

// later permits that the requester sends the requests behind k again at once.
func (w *world) later(k *work, rule string) {
	for _, later := range w.batch {
		for j := 0; later.first > k.first && j < later.packets; j++ {
			w.say(rule, ">? %s", w.request(later, j))
			if later.op == "READ" {
				break
			}
		}
	}
}

// readResponse returns response i of a READ, whose name has an end. It counts the READ.
func (w *world) readResponse(k *work, i int, end, data string) string {
	text := fmt.Sprintf("READ_RESP%s psn=%s", end, w.p(k.first+i))
	if end != "_MIDDLE" {
		text += fmt.Sprintf(" syndrome=ACK msn=%d", w.finished+1)
	}
	return text + data
}

// imply answers a request behind a READ or atomic without response, which the requester then sends again.
func (w *world) imply() bool {
	k := w.unfinished()
	if k == nil || !k.responds() || w.una != k.first || w.una < w.fresher || k == w.batch[len(w.batch)-1] {
		return false
	}
	var behind []*work
	for _, later := range w.batch {
		if later.first > k.first {
			behind = append(behind, later)
		}
	}
	later := pick(&w.d, behind...)
	text := fmt.Sprintf("ACKNOWLEDGE psn=%s syndrome=ACK msn=%d", w.p(later.first+later.packets-1), w.finished+1)
	switch {
	case w.d.one(3):
		text = fmt.Sprintf("ACKNOWLEDGE psn=%s syndrome=NAK_SEQ msn=%d", w.p(later.first), w.finished+1)
	case later.op == "READ":
		text = w.readResponse(later, 0, position(0, later.packets), w.fill(min(w.mtu, later.size)))
	case later.responds():
		text = fmt.Sprintf("ATOMIC_ACK psn=%s syndrome=ACK msn=%d orig=77", w.p(later.first), w.finished+1)
	}
	w.say("implied", "< %s", text)
	w.say("implied", "> %s", w.request(k, 0))
	w.later(k, "implied")
	k.base, w.fresher, w.losses = 0, w.una+1, w.losses+1
	return true
}

// wrongResponse sends a response that does not fit the READ or atomic, and then a NAK. The request must not complete with success.
func (w *world) wrongResponse() bool {
	k := w.unfinished()
	if k == nil || !k.responds() || w.una < k.first || w.una > k.first && (k.base > 0 || w.timeout > 0) {
		return false
	}
	rule, text := "response.wrong", pick(&w.d, w.wrongResponses(k, w.una-k.first)...)
	if w.d.one(4) {
		rule, text = "response.bare", fmt.Sprintf("ACKNOWLEDGE psn=%s syndrome=ACK msn=%d", w.p(k.first+k.packets-1), w.finished+1)
	}
	w.say("", "ignore ANY psn=%s..%s", w.p(w.una), w.p(w.sent-1))
	w.say(rule, "< %s", text)
	if k.op == "READ" && w.d.one(2) { // a device that has taken it completes the READ
		for j := w.una - k.first + 1; j < k.packets; j++ {
			w.say(rule, "< %s", w.readResponse(k, j, position(j-k.base, k.packets-k.base), w.fill(min(w.mtu, k.size-j*w.mtu))))
		}
	}
	w.say("", "wait 1ms")
	w.say("", "< ACKNOWLEDGE psn=%s syndrome=NAK_ACCESS msn=%d", w.p(w.una), w.finished)
	for _, p := range k.list { // the device may have written a part
		p.of.write(p.from, unknown(p.to-p.from))
	}
	w.fails(rule, w.una, "ERROR")
	return true
}

// wrongResponses returns packets that are not response i of a READ or an atomic.
func (w *world) wrongResponses(k *work, i int) []string {
	head := fmt.Sprintf("psn=%s syndrome=ACK msn=%d", w.p(w.una), w.finished)
	if k.op != "READ" {
		return []string{"READ_RESP_ONLY " + head + w.fill(8), "READ_RESP_FIRST " + head + w.fill(w.mtu), "READ_RESP_ONLY " + head}
	}
	n := min(w.mtu, k.size-i*w.mtu)
	right := position(i, k.packets)
	texts := []string{"ATOMIC_ACK " + head + " orig=1", w.readResponse(k, i, right, w.fill(n+1))}
	for _, end := range []string{"_FIRST", "_MIDDLE", "_LAST", "_ONLY"} {
		if end != right {
			texts = append(texts, w.readResponse(k, i, end, w.fill(n)))
		}
	}
	if right != "_MIDDLE" {
		texts = append(texts, fmt.Sprintf("READ_RESP%s psn=%s syndrome=NAK_ACCESS msn=%d%s", right, w.p(w.una), w.finished, w.fill(n)))
	}
	if n > 0 {
		texts = append(texts, w.readResponse(k, i, right, w.fill(n-1)), w.readResponse(k, i, right, ""))
	}
	return texts
}

// rnrTime returns the time of an RNR timer code.
func rnrTime(code int) string {
	switch code {
	case 0:
		return "655360us"
	case 1:
		return "10us"
	}
	return fmt.Sprintf("%dus", map[int]int{0: 10, 1: 15}[code%2]<<(code/2))
}

// retryLater sends an RNR NAK and expects the request again after its time. A request that is posted meanwhile waits, too.
func (w *world) retryLater(at int) {
	const long = 24 // 41 ms
	code := pick(&w.d, 2+w.d.n(18), 1, 2+w.d.n(18), 20+w.d.n(12), 0)
	more := !w.steady && w.open == nil && len(w.batch) < mostOutstanding && w.d.one(6)
	if more {
		code = long
	}
	label := w.label()
	w.completesTo(at, func() {
		w.say("rnr.wait", "%s: < ACKNOWLEDGE psn=%s syndrome=RNR+%d msn=%d", label, w.p(at), code, w.finished)
	})
	w.rnrLeft, w.partly = w.rnrLeft-1, false
	if more {
		w.probe() // the device has taken the NAK
		w.extend()
	}
	if w.d.one(6) {
		w.ghost()
	}
	w.resumes("rnr.wait", at, fmt.Sprintf(" after %s of %s", rnrTime(code), label))
}

// endless is the value of rnr_retry that permits any number of RNR NAKs.
const endless = 7

// countsFrom reports whether the retries left at a PSN are known: progress inside a message may restore the counter or not.
func (w *world) countsFrom(at int) bool {
	return w.rnrRetry == endless || w.rnrLeft == w.rnrRetry || w.completesBefore(at) || !w.partly && at == w.una
}

// retriesAt returns how many RNR NAKs of a PSN the device takes.
func (w *world) retriesAt(at int) int {
	if w.rnrRetry == endless || w.completesBefore(at) {
		return w.rnrRetry
	}
	return w.rnrLeft
}

// completesBefore reports whether a NAK of a PSN completes a request.
func (w *world) completesBefore(at int) bool {
	k := w.unfinished()
	return k != nil && k.first+k.packets <= at
}

// exhaust sends an RNR NAK more than the queue pair has retries.
func (w *world) exhaust(at int) {
	for range w.retriesAt(at) {
		w.retryLater(at)
	}
	w.negative("rnr.retry", at, "RNR+1")
	w.fails("rnr.retry", at, "RNR_RETRY_EXC_ERR")
}

// giveUp expects the end of a request that has no answer.
func (w *world) giveUp(timeout time.Duration) {
	const slowest = 5 * time.Second // a device may wait for a peer that it takes for slow
	w.say("timeout.retry", "dut.cqe qp RETRY_EXC_ERR wr=%d within %dms", w.batch[0].id, (slowest + timeout).Milliseconds())
	w.batch = w.batch[1:]
	w.flushed()
	w.broken()
}

// responders returns the operations that have a response of their own.
func (w *world) responders() []string {
	if w.atomic {
		return []string{"READ", "READ", "FETCH_ADD", "CMP_SWAP"}
	}
	return []string{"READ"}
}

// wait posts READs and atomics beyond max_rd_atomic, which have to wait for earlier ones.
func (w *world) wait() {
	if w.timeout > 0 {
		return
	}
	if w.d.one(2) {
		w.fenced()
		return
	}
	first, n := w.readDepth, w.readDepth+1+w.d.n(2)
	var whole []*work
	for range n {
		k := w.newWork(w.responders()...)
		w.submit(k)
		whole = append(whole, k)
	}
	w.batch = whole[:first]
	w.requests(w.una)
	w.say("resources", "quiet 1ms")
	for i, k := range whole {
		w.batch = whole[:min(i+first, n)]
		w.respondTo(k.first + k.packets)
		if i+first < n {
			w.batch = whole[i+first : i+first+1]
			w.requests(w.batch[0].first)
		}
	}
}

// fenced posts READs and atomics, and a request with a fence behind them.
func (w *world) fenced() {
	w.batch = nil
	for range 1 + w.d.n(w.readDepth) {
		k := w.newWork(w.responders()...)
		w.submit(k)
		w.batch = append(w.batch, k)
	}
	before := w.batch
	k := w.newWork("SEND", "WRITE", "READ")
	k.fence = true
	w.submit(k)
	w.requests(w.una)
	for _, earlier := range before {
		w.say("fence", "quiet 1ms")
		w.respondTo(earlier.first + earlier.packets)
	}
	w.batch = []*work{k}
	w.requests(k.first)
	w.respondTo(w.sent)
}
