package engine

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/drill/frame"
)

// Note is a choice of the device that no rule forbids. A run reports each once.
type Note struct{ Rule, Text string }

// note records a choice of the device, the first of each rule.
func (e *Engine) note(rule, format string, args ...any) {
	for _, n := range e.notes {
		if n.Rule == rule {
			return
		}
	}
	e.notes = append(e.notes, Note{rule, fmt.Sprintf(format, args...)})
}

// inspect checks a frame of the device by rules that hold in all scripts. It returns the violated one, empty for none.
func (e *Engine) inspect(f *frame.Frame) string {
	dst, _ := f.Get("dst")
	w := e.flowTo(dst)
	e.repeated = false
	if why := e.headerRules(f, w); why != "" {
		return why
	}
	e.choices(f, w)
	if syndrome, ok := f.Get("syndrome"); ok && bth.Syndrome(syndrome).IsNAK() && bth.Syndrome(syndrome) != bth.SyndromePSNSeqErr {
		e.breaks(dst)
	}
	if w == nil || !w.plain {
		return ""
	}
	if why := cmp.Or(e.flagRules(f), w.lengthRules(f)); why != "" {
		return why
	}
	switch connection := w.service == "rc" && f.Opcode.Transport() == bth.TransportRC; {
	case connection && f.Opcode.IsResponse():
		return e.answerRules(f, w)
	case connection && f.Opcode.IsRequest():
		return e.repeatRules(f, w)
	}
	return ""
}

// flagRules checks the bits that only some packets have (IBTA vol.1 9.2). The mark of a packet may come back in a CNP or an
// acknowledgement (IBTA annex A17.9.3).
func (e *Engine) flagRules(f *frame.Frame) string {
	set := func(name string) bool {
		v, _ := f.Get(name)
		return v == 1
	}
	_, imm := f.Get("imm")
	solicits := f.Opcode.Ends() && (f.Opcode.IsSend() || imm)
	switch {
	case set("se") && !solicits:
		return "a packet that completes no receive has the solicited event bit (IBTA 9.2)"
	case set("ackreq") && !f.Opcode.IsRequest():
		return "a packet that is no request asks for an acknowledgement (IBTA 9.2)"
	case set("fecn"), set("becn") && !e.marked:
		return "it reports congestion, but no packet to the device was marked (IBTA A17.9.3)"
	}
	return ""
}

// repeatRules checks that a retransmission is the same request (IBTA vol.1 9.7). Only its AckReq bit may differ. A device may begin
// anew with a FIRST packet where it had a MIDDLE one, so packets of other opcodes are not compared.
func (e *Engine) repeatRules(f *frame.Frame, w *flow) string {
	var text []byte
	for _, name := range []string{"se", "va", "rkey", "len", "imm", "inv", "swap", "compare"} {
		v, _ := f.Get(name)
		text = fmt.Append(text, v, " ")
	}
	sum := crc32.Update(crc32.ChecksumIEEE(text), crc32.IEEETable, f.Payload)
	at := sentAt{f.PSN(), f.Opcode}
	before, again := w.sent[at]
	if e.repeated = again; again && before != sum {
		return fmt.Sprintf("it has PSN %d of a request with other fields or data (IBTA 9.7)", f.PSN().Uint32())
	}
	w.sent[at] = sum
	return ""
}

// breaks remembers that queue pairs with this peer may report their error.
func (e *Engine) breaks(peer uint64) {
	for _, w := range e.flows {
		e.broken[w.name] = e.broken[w.name] || w.peer == peer
	}
}

// headerRules checks fields with one permitted value (IBTA vol.1 9.2).
func (e *Engine) headerRules(f *frame.Frame, w *flow) string {
	if v, _ := f.Get("tver"); v != 0 {
		return fmt.Sprintf("the transport header version is %d (IBTA 9.2)", v)
	}
	if header := f.Reserved(); header != "" {
		return fmt.Sprintf("reserved bits of the %s are not 0 (IBTA 9.2)", header)
	}
	if v, _ := f.Get("pkey"); v != bth.DefaultPKey && (w == nil || w.pkey) {
		return fmt.Sprintf("the P_Key is %#x, the queue pair has %#x (IBTA 9.2)", v, bth.DefaultPKey)
	}
	vlan := uint64(e.o.VLAN)
	if w != nil {
		vlan = w.vlan
	}
	if v, _ := f.Get("vlan.id"); v != vlan {
		return fmt.Sprintf("the VLAN is %d, the path has %d; 0 is none (IEEE 802.1Q)", v, vlan)
	}
	if v, _ := f.Get("ip.ttl"); v == 0 {
		return "the TTL is 0 (RFC 1122 3.2.1.7)"
	}
	if v, _ := f.Get("pad"); v != 0 && (f.Opcode.IsFirst() || f.Opcode.IsMiddle() || len(f.Payload) == 0) {
		return fmt.Sprintf("a packet that needs no padding has %d bytes of it (IBTA 9.2)", v)
	}
	return ""
}

// lengthRules checks the payload of a packet: all but the last one of a message have the path MTU (IBTA vol.1 9.7.4.1).
func (w *flow) lengthRules(f *frame.Frame) string {
	n := len(f.Payload)
	switch o := f.Opcode; {
	case w.service == "ud" || f.Opcode.IsCNP():
	case (o.IsFirst() || o.IsMiddle()) && n != w.mtu:
		return fmt.Sprintf("a packet that is not the last one has %d bytes, the path MTU is %d (IBTA 9.7.4.1)", n, w.mtu)
	case n > w.mtu:
		return fmt.Sprintf("a packet has %d bytes, the path MTU is %d (IBTA 9.7.4.1)", n, w.mtu)
	case o.IsLast() && n == 0:
		return "the last packet of several has no payload (IBTA 9.7.4.1)"
	case o.IsWrite() && o.IsOnly():
		if v, _ := f.Get("len"); v != uint64(n) {
			return fmt.Sprintf("a WRITE of one packet has %d bytes and the DMA length %d (IBTA 9.7.4.1)", n, v)
		}
	}
	return ""
}

// answerRules checks PSN and MSN of a response of plain RC (IBTA vol.1 9.7.5.1).
func (e *Engine) answerRules(f *frame.Frame, w *flow) string {
	psn := uint64(f.PSN().Uint32())
	syndrome, full := f.Get("syndrome")
	s := bth.Syndrome(syndrome)
	if newest := (w.next - 1) & sequenceMask; (!full || s.IsACK()) && !behind(psn, newest) {
		return fmt.Sprintf("it acknowledges PSN %d, but the newest request that it can have executed has PSN %d (IBTA 9.7.5.1)", psn, newest)
	}
	if !behind(psn, w.next) {
		return fmt.Sprintf("a NAK has PSN %d, but the device expects PSN %d at most (IBTA 9.7.5.1)", psn, w.next)
	}
	if !full {
		return ""
	}
	if s.IsNAK() && s != bth.SyndromePSNSeqErr {
		w.next = psn // the queue pair is broken
	}
	msn, _ := f.Get("msn")
	if !behind(msn, uint64(len(w.ends))) {
		return fmt.Sprintf("the MSN is %d, but the tester has sent %d messages (IBTA 9.7.5)", msn, len(w.ends))
	}
	if w.answered && psn != w.newest && behind(w.newest, psn) && !behind(w.msn, msn) {
		return fmt.Sprintf("the MSN goes back from %d to %d in a new response (IBTA 9.7.5)", w.msn, msn)
	}
	if !w.answered || behind(w.newest, psn) {
		w.answered, w.newest, w.msn = true, psn, msn
	}
	return ""
}

// operations are the operations of completions by the verb that posts the request.
var operations = map[string]string{"send": "SEND", "write": "RDMA_WRITE", "read": "RDMA_READ", "cas": "COMP_SWAP", "fadd": "FETCH_ADD",
	"awrite": "ATOMIC_WRITE", "bind": "BIND_MW", "invalidate": "LOCAL_INV"}

// completionRules checks the fields of a successful completion that statements need not name (IBTA vol.1 10.7.3.1).
func (e *Engine) completionRules(c completion, receive bool) string {
	switch want := e.posted[c.fields["on"]+" "+c.fields["wr"]]; {
	case !c.has("SUCCESS"), c.fields["op"] == "":
	case receive && c.fields["imm"] != "" && !e.immediate:
		return "it has immediate data, but no packet to the device had some (IBTA 10.7.3.1)"
	case receive && !strings.HasPrefix(c.fields["op"], "RECV"), !receive && want != "" && c.fields["op"] != want:
		return "its operation is another one than that of the request (IBTA 10.7.3.1)"
	}
	return ""
}

// choices notes fields that are the device's choice.
func (e *Engine) choices(f *frame.Frame, w *flow) {
	get := func(name string) uint64 {
		v, _ := f.Get(name)
		return v
	}
	connection := f.Opcode.Transport() == bth.TransportRC || f.Opcode.Transport() == bth.TransportUC
	if mig := get("mig"); connection && mig == 0 {
		e.note("MigReq", "connections send MigReq 0, not that they are migrated (IBTA 17.2.8)")
	} else if !connection && !f.Opcode.IsExt() && mig == 1 {
		e.note("MigReq of others", "%s has MigReq 1", frame.OpcodeName(f.Opcode))
	}
	port := get("udp.sport")
	if port < 0xc000 {
		e.note("UDP source port", "the UDP source port %d is outside 49152 to 65535", port)
	}
	if w == nil || w.service == "ud" { // an address handle has the traffic class of a datagram
		return
	}
	if dscp := get("ip.dscp"); dscp != w.tclass>>2 {
		e.note("DSCP of "+kindOf(f), "%s has the DSCP %d, the queue pair has %d", frame.OpcodeName(f.Opcode), dscp, w.tclass>>2)
	}
	if ttl := get("ip.ttl"); ttl != w.ttl {
		e.note("TTL", "%s has the TTL %d, the queue pair has %d", frame.OpcodeName(f.Opcode), ttl, w.ttl)
	}
	if w.ports[port] = true; connection && w.plain && !f.Opcode.IsCNP() && len(w.ports) > 1 {
		e.note("constant UDP source port", "the packets of a queue pair have several UDP source ports")
	}
	if !f.Opcode.IsAck() || f.Opcode.Transport() != bth.TransportRC || !bth.Syndrome(get("syndrome")).IsACK() {
		return
	}
	if s := bth.Syndrome(get("syndrome")); s != bth.SyndromeACK {
		e.note("credits", "acknowledgements have message credits, such as %#x", uint8(s))
	}
	if w.owed == 0 {
		e.note("unrequested ACK", "the device acknowledges requests that do not ask for it")
	} else {
		w.owed--
	}
}

// kindOf returns the kind of a packet in notes. CNPs often have a DSCP of their own.
func kindOf(f *frame.Frame) string {
	if f.Opcode.IsCNP() {
		return "CNPs"
	}
	return "packets"
}
