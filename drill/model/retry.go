package model

import "fmt"

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
	i := w.una - k.first
	end := position(i+1-k.base, k.packets-k.base)
	text := fmt.Sprintf("READ_RESP%s psn=%s", end, w.p(w.una+1))
	if end != "_MIDDLE" {
		text += fmt.Sprintf(" syndrome=ACK msn=%d", w.finished)
	}
	w.say("read.rest", "< %s%s", text, w.fill(min(w.mtu, k.size-(i+1)*w.mtu)))
	data := append(k.list.gather()[:i*w.mtu], w.payload(k.size-i*w.mtu)...)
	branches := []int{i}
	if i > 0 {
		branches = []int{i, 0}
	}
	for n, base := range branches {
		if i > 0 {
			w.say("", "%s {", []string{"either", "} or"}[n])
		}
		w.say("read.rest", "> %s", w.request(k, base))
		w.later(k, "read.rest")
		w.respondAgain(k, base, data)
	}
	if i > 0 {
		w.say("", "}")
	}
	w.fresher = w.una + 1
	w.completesTo(k.first+k.packets, func() { k.list.scatter(0, data) })
	return true
}

// respondAgain sends the responses to a READ that begins at a packet.
func (w *world) respondAgain(k *work, base int, data []cell) {
	for j := base; j < k.packets; j++ {
		end := position(j-base, k.packets-base)
		text := fmt.Sprintf("READ_RESP%s psn=%s payload=%s", end, w.p(k.first+j), expression(w.part(data, j)))
		if end != "_MIDDLE" {
			text += fmt.Sprintf(" syndrome=ACK msn=%d", w.finished+1)
		}
		w.say("", "< %s", text)
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

// imply acknowledges a SEND or WRITE behind a READ or atomic without response, which the requester then sends again.
func (w *world) imply() bool {
	k, last := w.unfinished(), w.batch[len(w.batch)-1]
	if k == nil || !k.responds() || w.una != k.first || w.una < w.fresher || last.responds() {
		return false
	}
	w.say("implied", "< ACKNOWLEDGE psn=%s syndrome=ACK msn=%d", w.p(w.sent-1), w.finished+1)
	w.say("implied", "> %s", w.request(k, 0))
	w.later(k, "implied")
	k.base, w.fresher = 0, w.una+1
	return true
}

// wrongResponse sends a response that does not fit the READ or atomic, and then a NAK. The request must not complete with success.
func (w *world) wrongResponse() bool {
	k := w.unfinished()
	if k == nil || !k.responds() || w.una != k.first {
		return false
	}
	head := fmt.Sprintf("psn=%s syndrome=ACK msn=%d", w.p(w.una), w.finished)
	texts := []string{"READ_RESP_ONLY " + head + w.fill(8)}
	if k.op == "READ" {
		n := min(w.mtu, k.size)
		right := position(0, k.packets)
		texts = []string{"ATOMIC_ACK " + head + " orig=1", "READ_RESP" + right + " " + head + w.fill(n+1), "READ_RESP_MIDDLE psn=" + w.p(w.una) + w.fill(n),
			fmt.Sprintf("READ_RESP%s psn=%s syndrome=NAK_ACCESS msn=%d%s", right, w.p(w.una), w.finished, w.fill(n))}
		if n > 0 {
			texts = append(texts, "READ_RESP"+right+" "+head+w.fill(n-1), "READ_RESP"+right+" "+head)
		}
		if k.packets == 1 {
			texts = append(texts, "READ_RESP_FIRST "+head+w.fill(n), "READ_RESP_LAST "+head+w.fill(n))
		} else {
			texts = append(texts, "READ_RESP_ONLY "+head+w.fill(n), "READ_RESP_LAST "+head+w.fill(n))
		}
	}
	w.say("", "ignore ANY psn=%s..%s", w.p(w.una), w.p(w.sent-1))
	w.say("response.wrong", "< %s", pick(&w.d, texts...))
	w.say("", "wait 1ms")
	w.say("", "< ACKNOWLEDGE psn=%s syndrome=NAK_ACCESS msn=%d", w.p(w.una), w.finished)
	for _, p := range k.list { // the device may have written a part
		p.of.write(p.from, unknown(p.to-p.from))
	}
	w.fails("response.wrong", w.una, "ERROR")
	return true
}

// exhaust sends an RNR NAK more than the queue pair has retries.
func (w *world) exhaust(at int) {
	for range w.rnrRetry {
		w.retryLater(at)
	}
	w.negative("rnr.retry", at, "RNR+1")
	w.fails("rnr.retry", at, "RNR_RETRY_EXC_ERR")
}

// wait posts work requests that have to wait for earlier ones: READs beyond max_rd_atomic, or one with a fence behind a READ.
func (w *world) wait() {
	if w.timeout > 0 {
		return
	}
	w.batch = nil
	rule, first, n := "resources", w.readDepth, w.readDepth+1+w.d.n(2)
	fence := w.d.one(2)
	if fence {
		rule, first, n = "fence", 1, 2
	}
	for i := range n {
		op := "READ"
		if fence && i == 1 {
			op = pick(&w.d, "SEND", "WRITE", "READ")
		}
		k := w.newWork(op)
		k.fence = fence && i == 1
		w.submit(k)
		w.batch = append(w.batch, k)
	}
	whole := w.batch
	w.batch = whole[:first]
	w.requests(w.una, "")
	w.say(rule, "quiet 1ms")
	for i, k := range whole {
		w.batch = whole[:min(i+first, n)]
		w.respondTo(k.first + k.packets)
		if i+first < n {
			w.batch = whole[i+first : i+first+1]
			w.requests(w.batch[0].first, "")
		}
	}
}
