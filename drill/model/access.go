package model

import "fmt"

// remote returns a request of one packet to a range of memory that a key of the script names.
func (w *world) remote(op, va, key string, n int) string {
	switch op {
	case "READ_REQUEST":
		return fmt.Sprintf("READ_REQUEST psn=%s va=%s rkey=%s len=%d", w.q(w.next), va, key, n)
	case "FETCH_ADD":
		return fmt.Sprintf("FETCH_ADD psn=%s va=%s rkey=%s swap=1", w.q(w.next), va, key)
	case "CMP_SWAP":
		return fmt.Sprintf("CMP_SWAP psn=%s va=%s rkey=%s compare=0 swap=1", w.q(w.next), va, key)
	case "WRITE_FIRST":
		return fmt.Sprintf("WRITE_FIRST psn=%s va=%s rkey=%s len=%d%s", w.q(w.next), va, key, w.mtu+n, w.fill(w.mtu))
	}
	return fmt.Sprintf("WRITE_ONLY psn=%s va=%s rkey=%s len=%d%s", w.q(w.next), va, key, n, w.fill(n))
}

// operation chooses a remote operation.
func (w *world) operation() string {
	ops := []string{"WRITE_ONLY", "WRITE_FIRST"}
	if w.resources > 0 {
		ops = append(ops, "READ_REQUEST")
	}
	if w.atomic && w.resources > 0 {
		ops = append(ops, "FETCH_ADD", "CMP_SWAP")
	}
	return pick(&w.d, ops...)
}

// wrongKey sends a request with a key that gives access to nothing.
func (w *world) wrongKey() (rule, nak string) {
	if len(w.keys) > 0 && w.d.one(2) {
		w.say("window", "< %s", w.remote(w.operation(), "mr.va", pick(&w.d, w.keys...), 1+w.d.n(w.mtu)))
		return "window", "NAK_ACCESS"
	}
	if w.d.one(4) {
		w.say("", "gone%d = dut.mr size=4096", w.generation)
		w.say("", "dut.destroy gone%d", w.generation)
		w.say("access", "< %s", w.remote(w.operation(), fmt.Sprintf("gone%d.va", w.generation), fmt.Sprintf("gone%d.rkey", w.generation), 8))
		return "access", "NAK_ACCESS"
	}
	key := pick(&w.d, "mr.rkey+0x100", "mr.rkey/256*256+(mr.rkey+1)%256", "mr.rkey/256*256+(mr.rkey+0x80)%256", "(mr.rkey+0x40000000)%0x100000000")
	w.say("access", "< %s", w.remote(w.operation(), "mr.va", key, 1+w.d.n(w.mtu)))
	return "access", "NAK_ACCESS"
}

// wrongRange sends a request for memory that is not all in its region.
func (w *world) wrongRange() (rule, nak string) {
	op, n := w.operation(), 1+w.d.n(w.mtu)
	size := n
	switch op {
	case "FETCH_ADD", "CMP_SWAP":
		va := pick(&w.d, fmt.Sprintf("at.va+%d", 8*words), "at.va-8", "0xfffffffffffffff8", "0")
		w.say("access", "< %s", w.remote(op, va, "at.rkey", 8))
		return "access", "NAK_ACCESS"
	case "WRITE_FIRST":
		size = w.mtu
	case "READ_REQUEST":
		n = pick(&w.d, 1+w.d.n(3*w.mtu), 1<<31)
		size = min(n, 3*w.mtu)
	}
	if b := w.bound; b.key != "" && w.d.one(2) {
		at := pick(&w.d, b.to-size+1+w.d.n(size), b.to, b.from-1)
		w.say("window", "< %s", w.remote(op, fmt.Sprintf("mr.va%+d", at), b.key, n))
		return "window", "NAK_ACCESS"
	}
	va := pick(&w.d, fmt.Sprintf("mr.va+%d", memorySize-size+1), fmt.Sprintf("mr.va+%d", memorySize), "mr.va-1", fmt.Sprintf("mr.va-%d", size),
		fmt.Sprintf("%#x", ^uint64(0)-uint64(size)/2), "0", fmt.Sprintf("mr.va+%d", memorySize-size+1+w.d.n(size)))
	w.say("access", "< %s", w.remote(op, va, "mr.rkey", n))
	return "access", "NAK_ACCESS"
}

// wrongRight sends a request that its region, window or queue pair does not permit, or to a region of another protection domain.
func (w *world) wrongRight() (rule, nak string) {
	op := w.operation()
	access := map[string]string{"WRITE_ONLY": "lra", "WRITE_FIRST": "lra", "READ_REQUEST": "lwa", "FETCH_ADD": "lwr", "CMP_SWAP": "lwr"}[op]
	name := fmt.Sprintf("mr%d", w.generation)
	switch w.d.n(5) {
	case 1:
		w.say("", "pd%d = dut.pd", w.generation)
		w.untouched(name, fmt.Sprintf(" pd=pd%d", w.generation))
	case 2:
		return w.forbidden(op, access[1:])
	case 3:
		if b := w.bound; b.rights == "r" || b.rights == "w" && w.resources > 0 {
			op = map[string]string{"r": "WRITE_ONLY", "w": "READ_REQUEST"}[b.rights]
			w.say("window", "< %s", w.remote(op, fmt.Sprintf("mr.va+%d", b.from), b.key, 1+w.d.n(w.mtu)))
			return "window", "NAK_ACCESS"
		}
		fallthrough
	default:
		w.untouched(name, " access="+access)
	}
	w.say("access", "< %s", w.remote(op, name+".va", name+".rkey", 8))
	return "access", "NAK_ACCESS"
}

// forbidden sends a request to a queue pair that has only other rights.
func (w *world) forbidden(op, rights string) (rule, nak string) {
	w.settle()
	w.say("", "dut.modify qp access=%s", pick(&w.d, rights, rights[:1], "none"))
	region := "mr"
	if op == "FETCH_ADD" || op == "CMP_SWAP" {
		region = "at"
	}
	w.say("right", "< %s", w.remote(op, region+".va", region+".rkey", 8))
	return "right", "NAK_INV..NAK_ACCESS"
}

// huge sends a READ of more than 2 GiB.
func (w *world) huge() (rule, nak string) {
	w.say("length", "< %s", w.remote("READ_REQUEST", "mr.va", "mr.rkey", 1<<31+1+w.d.n(1<<20)))
	return "length", "NAK_INV..NAK_ACCESS"
}

// misaligned sends an atomic operation on an address that is no multiple of eight.
func (w *world) misaligned() (rule, nak string) {
	w.say("access", "< %s", w.remote(pick(&w.d, "FETCH_ADD", "CMP_SWAP"), fmt.Sprintf("at.va+%d", 1+w.d.n(7)), "at.rkey", 8))
	return "access", "NAK_INV"
}

// tooLong sends a SEND that is longer than its receive.
func (w *world) tooLong() (rule, nak string) {
	if len(w.recvs) == 0 {
		w.receive(w.size())
	}
	r := w.recvs[0]
	m := &message{op: "SEND", size: r.size + 1 + w.d.n(w.mtu), recv: r}
	w.place(m)
	last := r.size / w.mtu // the packet that does not fit
	for i := range last + 1 {
		w.say("length", "< %s", w.packet(m, i))
		if i < last {
			w.say("ack", ">? %s", w.acknowledges(w.next))
			m.recv.list.scatter(i*w.mtu, w.part(m.data, i))
			w.next++
		}
	}
	r.list.scatter(last*w.mtu, unknown(r.size-last*w.mtu))
	w.recvs, w.taken, w.status = w.recvs[1:], []receive{r}, "LOC_LEN_ERR"
	return "length", "NAK_INV"
}

// unwritable sends a SEND whose receive has memory that cannot be written, sometimes behind memory for its first packet.
func (w *world) unwritable() (rule, nak string) {
	w.works++
	id, name, good, kind := w.works, fmt.Sprintf("mr%d", w.generation), "", "ONLY"
	w.untouched(name, " access=r")
	if w.d.one(2) {
		list := w.parts(w.inbox, w.mtu)
		good, kind = list.String(), "LAST"
		list.scatter(0, unknown(w.mtu))
	}
	w.say("", "dut.recv %s wr=%d%s %s[0:64]", w.queue(), id, good, name)
	w.taken, w.status = []receive{{id: id}}, "LOC_PROT_ERR"
	if good != "" {
		w.say("operation", "< SEND_FIRST psn=%s%s", w.q(w.next), w.fill(w.mtu))
		w.say("ack", ">? %s", w.acknowledges(w.next))
		w.next++
	}
	w.say("operation", "< SEND_%s psn=%s%s", kind, w.q(w.next), w.fill(1+w.d.n(64)))
	return "operation", "NAK_OP"
}
