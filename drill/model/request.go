package model

import (
	"fmt"
)

// requester is the state of the device as requester.
type requester struct {
	sent     int // PSN of its next request, relative to the first
	una      int // oldest PSN without a response
	finished int // messages that the tester has acknowledged
	batch    []*work
	steady   bool // no other requests follow those of the batch, and none fails
	losses   int  // NAKs and missing responses since the latest completion
	fresher  int  // a NAK of an older PSN may be taken for a copy
	rnrLeft  int  // RNR NAKs that the device takes before it gives up
	partly   bool // the oldest PSN has moved inside a message since the latest RNR NAK
}

// work is a send work request of the device.
type work struct {
	id             int
	op             string // SEND, WRITE, READ, FETCH_ADD or CMP_SWAP
	first, packets int
	size           int
	list           pieces
	data           []cell // of SEND and WRITE
	remote         int
	key            int
	suffix         string // of the last packet: _IMM or _INV
	imm            int
	unsignaled     bool
	fence          bool
	solicited      bool
	add, match     uint64
	qkey           uint32 // of a datagram
	grouped        bool   // it goes to the multicast group
	base           int    // packet at which the latest READ request begins
}

// responds reports whether the work needs a response of its own.
func (k *work) responds() bool { return k.op != "SEND" && k.op != "WRITE" }

// post posts some work requests, expects their packets and answers them.
func (w *world) post() {
	w.batch = nil
	n, used, quiet := 1+w.d.n(4), 0, w.d.one(4)
	if w.timeout > 0 {
		n = pick(&w.d, 1, 1, 2) // before others are posted, the device may send the first again
	}
	for i := range n {
		k := w.newWork(w.operations(used < w.readDepth)...)
		if k.responds() {
			used++
		}
		k.unsignaled = i < n-1 && (quiet || w.d.one(4))
		w.submit(k)
		w.batch = append(w.batch, k)
	}
	w.requests(w.una)
	switch {
	case w.timeout > 0:
		if w.silence() {
			return
		}
	case w.open == nil && w.d.one(4):
		w.burst()
	}
	w.answer()
}

// operations returns the operations of work requests that may be posted.
func (w *world) operations(responds bool) []string {
	switch {
	case w.service == "ud":
		return []string{"SEND"}
	case responds && w.atomic:
		return []string{"SEND", "WRITE", "READ", "FETCH_ADD", "CMP_SWAP"}
	case responds:
		return []string{"SEND", "WRITE", "READ"}
	}
	return []string{"SEND", "WRITE"}
}

// newWork chooses a work request of one of these operations.
func (w *world) newWork(ops ...string) *work {
	d := &w.d
	w.works++
	const border = 1 << 32
	k := &work{id: w.works, op: pick(d, ops...), first: w.sent, remote: pick(d, pick(d, 4096, 1<<47, 7<<60)+8*d.n(1<<20), border-8*(1+d.n(w.mtu/4))), key: 1 + 2*d.n(1<<31)}
	switch k.op {
	case "FETCH_ADD", "CMP_SWAP":
		k.add, k.match = uint64(d.n(1<<30))<<33|1, uint64(d.n(1<<30))<<17
		k.packets = 1
		k.list = pieces{{w.sink, w.sink.reserve(8), w.sink.free}}
		return k
	case "READ":
		k.size = w.size()
		k.list = w.parts(w.sink, k.size)
	default:
		k.size = w.size()
		if w.service == "ud" {
			k.size = min(k.size, w.mtu)
		}
		k.list = w.parts(w.source, k.size)
		k.data = k.list.gather()
		k.solicited = d.one(4)
		if k.imm = 3*d.n(1<<30) + 1; d.one(3) {
			k.suffix = "_IMM"
		} else if k.op == "SEND" && w.service == "rc" && d.one(4) {
			k.suffix = "_INV"
		}
	}
	k.packets = w.packets(k.size)
	if w.service == "ud" {
		k.packets, k.qkey, k.grouped = 1, pick(d, qkey, uint32(d.n(1<<31)), 1<<31), w.group && d.one(2)
	}
	return k
}

// submit posts a work request.
func (w *world) submit(k *work) {
	verb := map[string]string{"SEND": "send", "WRITE": "write", "READ": "read", "FETCH_ADD": "fadd", "CMP_SWAP": "cas"}[k.op]
	text := fmt.Sprintf("dut.%s qp wr=%d%s", verb, k.id, k.list)
	if w.service == "ud" {
		text += fmt.Sprintf("%s qkey=%#x", map[bool]string{false: " ah=ah", true: " ah=gah peer=0xffffff"}[k.grouped], k.qkey)
	}
	if k.op != "SEND" {
		text += fmt.Sprintf(" remote=%#x rkey=%#x", k.remote, k.key)
	}
	switch {
	case k.op == "FETCH_ADD":
		text += fmt.Sprintf(" add=%#x", k.add)
	case k.op == "CMP_SWAP":
		text += fmt.Sprintf(" compare=%#x swap=%#x", k.match, k.add)
	case k.suffix == "_IMM":
		text += fmt.Sprintf(" imm=%#x", k.imm)
	case k.suffix == "_INV":
		text += fmt.Sprintf(" inv=%#x", k.imm)
	}
	if k.unsignaled {
		text += " signaled=0"
	}
	if k.fence {
		text += " fence=1"
	}
	if k.solicited {
		text += " solicited=1"
	}
	if !k.responds() && len(k.list) == 1 && k.size <= 64 && w.d.one(4) {
		text += " inline=1"
	}
	w.say("", "%s", text)
	w.sent += k.packets
}

// request returns packet i of a work request.
func (w *world) request(k *work, i int) string {
	psn := w.p(k.first + i)
	address := fmt.Sprintf("va=%#x rkey=%#x", k.remote+i*w.mtu, k.key)
	if k.size == 0 {
		address = "va=*"
	}
	switch k.op {
	case "READ":
		return fmt.Sprintf("READ_REQUEST psn=%s %s len=%d", psn, address, k.size-i*w.mtu)
	case "FETCH_ADD":
		return fmt.Sprintf("FETCH_ADD psn=%s va=%#x rkey=%#x swap=%#x", psn, k.remote, k.key, k.add)
	case "CMP_SWAP":
		return fmt.Sprintf("CMP_SWAP psn=%s va=%#x rkey=%#x compare=%#x swap=%#x", psn, k.remote, k.key, k.match, k.add)
	}
	text, solicited := w.prefix()+k.op+position(i, k.packets), 0
	if i == k.packets-1 {
		text += k.suffix
		if k.suffix != "" {
			text += fmt.Sprintf(" %s=%#x", map[string]string{"_IMM": "imm", "_INV": "inv"}[k.suffix], k.imm)
		}
		if k.solicited {
			solicited = 1
		}
	}
	text += " psn=" + psn
	if w.service == "ud" {
		key := k.qkey
		if key>>31 == 1 {
			key = qkey // of the queue pair
		}
		text += fmt.Sprintf(" src=qp.num qkey=%#x", key)
		if k.grouped {
			text += w.toGroup(3)
		}
	}
	if k.op == "SEND" || k.suffix == "_IMM" { // a solicited WRITE without immediate data has no meaning
		text += fmt.Sprintf(" se=%d", solicited)
	}
	if k.op == "WRITE" && i == 0 {
		text += fmt.Sprintf(" %s len=%d", address, k.size)
	}
	return text + " payload=" + expression(w.part(k.data, i))
}

// requests expects the packets from a PSN on.
func (w *world) requests(from int) { w.resumes(w.rule("request"), from, "") }

// resumes expects the packets from a PSN on, as a rule demands. time bounds them.
func (w *world) resumes(rule string, from int, time string) {
	var list []string
	for _, k := range w.batch {
		i := max(0, from-k.first)
		for ; i < k.packets; i++ {
			list = append(list, w.request(k, i))
			if k.op == "READ" {
				k.base = i
				break
			}
		}
	}
	w.expect(rule, list, time)
}
