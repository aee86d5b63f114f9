package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/drill/frame"
)

// sentAt is the place of a packet among the requests of a queue pair.
type sentAt struct {
	psn bth.PSN
	op  bth.Opcode
}

// flow is the engine's knowledge about a queue pair of the device. It comes from the script's verbs and from the frames of
// both sides, not from the device's word.
type flow struct {
	name    string
	qpn     uint64 // of the device
	peer    uint64 // of the tester
	service string // rc, uc or ud
	plain   bool   // not an extended transport
	mtu     int
	pkey    bool // has the default partition
	tclass  uint64
	vlan    uint64
	ttl     uint64
	ports   map[uint64]bool // UDP source ports of its packets

	// The responder of plain RC. next is the upper end of the PSNs that it can have executed: the tester sent all before it in
	// order; the device may have dropped some, which the tester replaced. ends has the PSNs of the last packets of their messages, owed
	// counts their requests for an acknowledgement.
	next, owed uint64
	ends       map[uint64]bool
	// newest is the newest PSN of a response, and msn the MSN of that response, once one has come.
	answered    bool
	newest, msn uint64

	sent map[sentAt]uint32 // sums of the requests of plain RC
}

// Defaults of keys that a script does not name.
const (
	defaultMTU = 1024
	defaultTTL = 64
)

// numberKey returns the number of a key of a command.
func (k *command) numberKey(key string, otherwise uint64) uint64 {
	if v, ok := k.keys[key]; ok {
		return v.num
	}
	return otherwise
}

// follow follows a verb that the device has executed.
func (e *Engine) follow(k *command) {
	switch k.call.Verb {
	case "qp":
		e.opened(k)
	case "modify":
		e.modified(k)
	case "destroy":
		e.flows = slices.DeleteFunc(e.flows, func(w *flow) bool { return w.name == k.object })
	}
	if peer, ok := k.keys["peer"]; ok {
		e.peers[peer.num] = true
	}
	on := cmp.Or(k.call.Name, k.object)
	if op := operations[k.call.Verb]; op != "" {
		e.posts(fmt.Sprintf("%s %d", on, k.keys["wr"].num), op)
	}
	e.asked[on+" "+k.keys["state"].text] = true
	if k.object != "" && (k.call.Verb == "modify" || k.call.Verb == "limit") { // its events may come again
		maps.DeleteFunc(e.told, func(key string, _ bool) bool { return strings.HasPrefix(key, k.object+" ") })
	}
	for _, key := range []string{"srq", "limit"} {
		if _, ok := k.keys[key]; ok {
			e.asked[on+" "+key] = true
		}
	}
}

// posts remembers the operation of a request.
func (e *Engine) posts(request, op string) {
	if old, again := e.posted[request]; again && old != op {
		op = ""
	}
	e.posted[request] = op
}

// opened begins the flow of a new queue pair.
func (e *Engine) opened(k *command) {
	profile := k.keys["profile"].text
	w := &flow{name: k.call.Name, qpn: e.env[k.call.Name+".num"].num, peer: k.numberKey("peer", testerQPN), service: k.word,
		plain: profile == "" || profile == "rc" || strings.HasPrefix(profile, "rc+"), mtu: int(k.numberKey("mtu", defaultMTU)),
		pkey: k.numberKey("pkey_index", 0) == 0, tclass: k.numberKey("tclass", 0), vlan: k.numberKey("vlan", uint64(e.o.VLAN)), ttl: k.numberKey("ttl", defaultTTL), ports: map[uint64]bool{}, sent: map[sentAt]uint32{}}
	w.begin(k.numberKey("rqpsn", 0))
	e.flows = append(e.flows, w)
}

// modified follows new attributes. A transition to RTR sets the expected PSN.
func (e *Engine) modified(k *command) {
	for _, w := range e.flows {
		if w.name != k.object {
			continue
		}
		w.peer, w.mtu, w.tclass = k.numberKey("peer", w.peer), int(k.numberKey("mtu", uint64(w.mtu))), k.numberKey("tclass", w.tclass)
		w.ttl, w.vlan = k.numberKey("ttl", w.ttl), k.numberKey("vlan", w.vlan)
		if _, named := k.keys["rqpsn"]; named || k.keys["state"].text == "RTR" {
			w.begin(k.numberKey("rqpsn", 0))
		}
	}
}

// begin begins a connection. psn is the one that the responder expects.
func (w *flow) begin(psn uint64) {
	clear(w.sent)
	w.next, w.ends, w.owed, w.answered = psn&sequenceMask, map[uint64]bool{}, 0, false
}

// service returns the service of a queue pair.
func (e *Engine) service(name string) string {
	for _, w := range e.flows {
		if w.name == name {
			return w.service
		}
	}
	return ""
}

// flowTo returns the flow whose packets go to a queue pair of the tester, nil if there is none or more than one.
func (e *Engine) flowTo(peer uint64) (found *flow) {
	for _, w := range e.flows {
		if w.peer == peer {
			if found != nil {
				return nil
			}
			found = w
		}
	}
	return found
}

// requested follows a packet of the tester. A packet with a wrong ICRC executes nothing.
func (e *Engine) requested(f *frame.Frame) {
	dst, _ := f.Get("dst")
	for _, w := range e.flows {
		if w.qpn == dst && w.service == "rc" && f.Opcode.Transport() == bth.TransportRC && f.Opcode.IsRequest() && f.CheckICRC() == nil {
			w.request(f)
		}
	}
}

func (w *flow) request(f *frame.Frame) {
	const most = 1 << 22
	if asks, _ := f.Get("ackreq"); asks == 1 {
		w.owed++
	}
	psn := uint64(f.PSN().Uint32())
	if !behind(psn, w.next) {
		return
	}
	packets := uint64(1)
	if n, _ := f.Get("len"); f.Opcode.IsReadRequest() && n > 0 {
		packets = min((n+uint64(w.mtu)-1)/uint64(w.mtu), most)
	}
	if end := (psn + packets) & sequenceMask; behind(w.next, end) {
		w.next = end
	}
	if f.Opcode.Ends() {
		w.ends[psn] = true
	}
}

// behind reports whether a sequence number is not beyond another one.
func behind(a, b uint64) bool { return (b-a)&sequenceMask < 1<<23 }
