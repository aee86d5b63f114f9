package model

import (
	"cmp"
	"fmt"
	"time"
)

// limit returns the PSN of the first READ or atomic without its response: the newest that a NAK may have.
func (w *world) limit() int {
	for _, k := range w.batch {
		if k.responds() && w.una < k.first+k.packets {
			return max(w.una, k.first)
		}
	}
	return w.goal() - 1
}

// answer answers the requests of a batch, with errors before.
func (w *world) answer() {
	d := &w.d
	again := w.timeout == 0 // NAKs may be sent
	for w.una < w.goal() {
		at := w.una + d.n(w.limit()-w.una+1)
		inside := w.inside()
		switch d.n(12) {
		case 1:
			w.respondTo(w.una + 1 + d.n(w.goal()-w.una))
		case 2, 3:
			w.ghost()
		case 4:
			if again && w.hasRetry() && !inside && at >= w.fresher {
				w.fresher, w.losses = at+1, w.losses+1
				w.negative("nak", at, "NAK_SEQ")
				w.resumes("nak", at, "")
			}
		case 5:
			if again && !inside && w.holdOff() {
				return
			}
		case 6:
			if inside {
				at = w.una
			}
			if !w.steady && d.one(4) {
				s := pick(d, [2]string{"NAK_ACCESS", "REM_ACCESS_ERR"}, [2]string{"NAK_INV", "REM_INV_REQ_ERR"}, [2]string{"NAK_OP", "REM_OP_ERR"})
				w.negative("fatal", at, s[0])
				w.fails("fatal", at, s[1])
				return
			}
		case 7:
			if again && w.hasRetry() && (d.one(2) && w.imply() || w.loseResponse()) {
				again = false
			}
		case 10:
			again = !(again && w.hasRetry() && w.loseResponse()) && again
		case 8:
			if !w.steady && d.one(3) && w.wrongResponse() {
				return
			}
		case 11:
			if again {
				w.interleave()
			}
		case 9:
			if again && !inside && !w.steady && w.open == nil && len(w.batch) < mostOutstanding {
				w.probe() // the device has taken all ghosts
				w.extend()
				w.requests(w.batch[len(w.batch)-1].first)
			}
		default:
			w.respondTo(w.goal())
		}
	}
	if d.one(3) {
		w.check(w.sink)
	}
}

// hasRetry reports whether the requester has a retry left for one more loss.
func (w *world) hasRetry() bool { return w.losses < w.retry }

// goal returns the PSN behind the requests of the batch.
func (w *world) goal() int {
	if n := len(w.batch); n > 0 {
		return w.batch[n-1].first + w.batch[n-1].packets
	}
	return w.una
}

// interleave lets the tester send requests while those of the device wait for responses.
func (w *world) interleave() {
	switch w.d.n(5) {
	case 4:
		w.neighbourMessage()
	case 1:
		w.again()
	case 2:
		w.dropped()
	case 3:
		w.ahead()
	default:
		w.burst()
	}
}

// holdOff answers with an RNR NAK, sometimes until the device gives up. It reports whether the device has.
func (w *world) holdOff() (over bool) {
	d, starts := &w.d, w.starts()
	if len(starts) == 0 {
		return false
	}
	at := pick(d, starts...)
	switch {
	case !w.countsFrom(at), w.steady && w.retriesAt(at) == 0:
	case !w.steady && (w.retriesAt(at) == 0 || w.rnrRetry < endless && d.one(3)):
		w.exhaust(at)
		return true
	case w.rnrRetry == endless && d.one(8):
		for range endless + 2 {
			w.retryLater(at)
		}
	default:
		w.retryLater(at)
	}
	return false
}

// mostOutstanding is the largest number of work requests of a batch.
const mostOutstanding = 6

// extend posts one more work request behind those of the batch.
func (w *world) extend() {
	used := 0
	for _, k := range w.batch {
		if k.responds() && w.una < k.first+k.packets {
			used++
		}
	}
	k := w.newWork(w.operations(used < w.readDepth)...)
	w.submit(k)
	w.batch = append(w.batch, k)
}

// inside reports whether the oldest PSN is inside a READ of which some responses have come.
func (w *world) inside() bool {
	for _, k := range w.batch {
		if k.op == "READ" && k.first < w.una && w.una < k.first+k.packets {
			return true
		}
	}
	return false
}

// starts returns the PSNs that an RNR NAK may have: those of packets that need a receive.
func (w *world) starts() (list []int) {
	for _, k := range w.batch {
		at := k.first
		if k.op == "WRITE" {
			at += k.packets - 1
		}
		if (k.op == "SEND" || k.op == "WRITE" && k.suffix != "") && w.una <= at && at <= w.limit() {
			list = append(list, at)
		}
	}
	return list
}

// negative sends a NAK or an RNR NAK, which acknowledges the requests before its PSN.
func (w *world) negative(rule string, psn int, syndrome string) {
	w.completesTo(psn, func() {
		w.say(rule, "< ACKNOWLEDGE psn=%s syndrome=%s msn=%d%s", w.p(psn), syndrome, w.finished, w.harmless())
	})
}

// completesTo advances the oldest PSN. send sends the acknowledgement, then the completions are due.
func (w *world) completesTo(psn int, send func()) {
	var done []*work
	for _, k := range w.batch {
		if end := k.first + k.packets; w.una < end && end <= psn {
			done = append(done, k)
			w.finished++
		}
	}
	if w.una < psn {
		w.partly = len(done) == 0
	}
	if len(done) > 0 {
		w.rnrLeft, w.losses = w.rnrRetry, 0
	}
	w.una = psn
	send()
	for _, k := range done {
		w.completed(k)
	}
}

// completed expects the completion of a work request, if it is signaled.
func (w *world) completed(k *work) {
	if !k.unsignaled || w.sigAll {
		op := map[string]string{"SEND": "SEND", "WRITE": "RDMA_WRITE", "READ": "RDMA_READ", "FETCH_ADD": "FETCH_ADD", "CMP_SWAP": "COMP_SWAP"}[k.op]
		rule, length := "complete", ""
		switch {
		case k.op == "READ":
			rule, length = "response", fmt.Sprintf(" len=%d", k.size)
		case k.responds():
			rule, length = "response", " len=8"
		}
		w.say(rule, "dut.cqe qp SUCCESS wr=%d op=%s%s", k.id, op, length)
	}
}

// respondTo sends the responses to all PSNs before one.
func (w *world) respondTo(to int) {
	for _, k := range w.batch {
		end := k.first + k.packets
		if end <= w.una || k.first >= to {
			continue
		}
		if !k.responds() {
			w.acknowledge(k, min(end, to), to)
			continue
		}
		for psn := max(w.una, k.first); psn < min(end, to); psn++ {
			w.response(k, psn-k.first)
		}
	}
}

// acknowledge acknowledges the packets of a SEND or WRITE before a PSN. The next response or acknowledgement may do so instead.
func (w *world) acknowledge(k *work, to, next int) {
	if to == k.first+k.packets && to < next && w.d.n(3) > 0 {
		return
	}
	w.completesTo(to, func() {
		w.say("complete", "< ACKNOWLEDGE psn=%s syndrome=ACK msn=%d%s", w.p(to-1), w.finished, w.harmless())
	})
}

// response sends response i of a READ or an atomic.
func (w *world) response(k *work, i int) {
	w.completesTo(k.first+i+1, func() {
		psn := w.p(k.first + i)
		if k.op != "READ" {
			v := uint64(w.d.n(1<<30))<<31 | 1
			w.say("", "%s = host64(%#x)", nameOf(resultBytes+k.id), v)
			k.list.scatter(0, origin(resultBytes+k.id, 0, 8))
			w.say("response", "< ATOMIC_ACK psn=%s syndrome=ACK msn=%d orig=%#x%s", psn, w.finished, v, w.harmless())
			return
		}
		data := w.payload(min(w.mtu, k.size-i*w.mtu))
		k.list.scatter(i*w.mtu, data)
		end := position(i-k.base, k.packets-k.base)
		text := fmt.Sprintf("READ_RESP%s psn=%s", end, psn)
		if end != "_MIDDLE" {
			text += fmt.Sprintf(" syndrome=ACK msn=%d", w.finished)
		}
		if len(data) > 0 {
			text += " payload=" + expression(data)
		}
		w.say("response", "< %s%s", text, w.harmless())
	})
}

// ghost sends a response that has no effect.
func (w *world) ghost() {
	d := &w.d
	beyond, old := w.sent+pick(d, 0, 1, d.n(1000), 1<<22), w.una-1-pick(d, 0, 1, d.n(1000), 1<<22)
	syndrome := pick(d, "ACK", "NAK_SEQ", "NAK_INV", "NAK_ACCESS", "NAK_OP", "RNR+1")
	text := fmt.Sprintf("ACKNOWLEDGE psn=%s syndrome=%s msn=%d", w.p(pick(d, beyond, old)), syndrome, w.finished)
	switch d.n(6) {
	case 1:
		text = fmt.Sprintf("READ_RESP_ONLY psn=%s syndrome=ACK msn=%d%s", w.p(pick(d, beyond, old)), w.finished, w.fill(8))
	case 5:
		text = "CNP psn=0 becn=1 payload=fill(16, 0)"
	case 4:
		text = fmt.Sprintf("READ_RESP_MIDDLE psn=%s%s", w.p(pick(d, beyond, old)), w.fill(w.mtu))
	case 2:
		text = fmt.Sprintf("ATOMIC_ACK psn=%s syndrome=ACK msn=%d orig=77", w.p(pick(d, beyond, old)), w.finished)
	case 3:
		fault := pick(d, "icrc=bad", "pkey=0x8123", "tver=1", "dst=(qp.num+0x5555)%0x1000000")
		text = fmt.Sprintf("ACKNOWLEDGE psn=%s syndrome=%s msn=%d %s", w.p(w.sent-1), pick(d, "ACK", "NAK_ACCESS"), w.finished, fault)
	}
	w.say("ghost", "< %s", text)
}

// unsolicited sends a response to a queue pair that has no request outstanding, or waits.
func (w *world) unsolicited() {
	w.ghost()
	w.say("ghost", "quiet 1ms") // the device takes it before it goes on
}

// silence may let the acknowledgement timeout pass, once or until the device gives up, which it reports. From then on the device may
// send all packets again at any time.
func (w *world) silence() (over bool) {
	times, k := pick(&w.d, 0, 1, 0, w.retry), w.batch[0]
	limit := 4 * 4096 * time.Nanosecond << w.timeout
	if times == 1 && k.op == "READ" && k.packets > 1 && w.d.one(2) {
		w.respondTo(w.una + 1 + w.d.n(k.packets-1))
		if end := k.first + k.packets; end < w.sent { // it may probe by a later request
			w.say("", "ignore ANY psn=%s..%s", w.p(end), w.p(w.sent-1))
		}
		w.readAgain(k, "timeout", fmt.Sprintf(" within %dus", limit.Microseconds()))
		return false
	}
	if times > 0 && !k.responds() && k.packets > 1 && w.d.one(2) {
		w.respondTo(w.una + 1 + w.d.n(k.packets-1))
	}
	if times > 0 && w.sent > w.una+1 {
		w.say("timeout", "ignore ANY psn=%s..%s", w.p(w.una+1), w.p(w.sent-1))
	}
	rule := map[bool]string{true: "timeout.retry"}[times > 1]
	early := ""
	if w.una == 0 && len(w.batch) == 1 { // a device that knows no round trip cannot probe before; the agent may be slow with a second request
		early = fmt.Sprintf(" after %dus", limit.Microseconds()*9/40) // the message has begun before its last packet
	}
	for range times {
		w.say(cmp.Or(rule, "timeout"), "> %s%s within %dus", w.request(k, w.una-k.first), early, limit.Microseconds())
	}
	w.say("timeout", "ignore ANY psn=%s..%s", w.p(w.una), w.p(w.sent-1))
	if over = times == w.retry; over {
		w.giveUp(limit)
	}
	return over
}

// fails expects the completions after a fatal NAK for a PSN.
func (w *world) fails(rule string, psn int, status string) {
	for _, k := range w.batch {
		switch {
		case psn >= k.first+k.packets:
		case psn >= k.first:
			w.say(rule, "dut.cqe qp %s wr=%d", status, k.id)
		default:
			w.say(rule, "dut.cqe qp WR_FLUSH_ERR wr=%d", k.id)
		}
	}
	w.broken()
}
