package record

import (
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/drill/frame"
	"roced.io/roced/internal/observe/flow"
)

// plan is the analysis of a connection before its script is written. Packets have their index in the connection.
type plan struct {
	packets  []packet
	mtu      int
	lost     map[int]bool         // the receiver did not get them, although the capture has them
	optional map[int]bool         // packets of the device that another device need not send
	missing  map[int][]int        // retransmissions of requests that the capture lacks before a packet of the device
	refused  map[int]bth.Syndrome // the NAK that ended the connection, by the first packet of its message
	receives map[int][]int        // messages whose receive was posted only after an RNR NAK, by the NAK
	late     map[int]bool         // these messages
	minRNR   uint8                // timer of the device's RNR NAKs
	marked   bool                 // the tester sends packets that are marked for congestion
	ended    int                  // the packet of the NAK that ended the connection, 0 without one
	answered bth.PSN              // after the highest READ response of the device
	answers  bool                 // answered is valid
	copied   bool                 // the last READ request of the tester was a copy by the network
}

// requester is the state of one side's requests.
type requester struct {
	begun    bool
	next     bth.PSN         // of the next new request
	sent     map[bth.PSN]int // index of the last transmission
	asked    bth.PSN         // last request that demands an acknowledgement
	asks     bool            // asked is open
	acks     []int           // positive acknowledgements that it has got
	nak      bth.PSN         // of the last negative acknowledgement since the last new request
	hasNAK   bool
	refusals map[bth.PSN]int // index of the last RNR NAK
}

func newPlan(packets []packet, mtu int) *plan {
	a := &plan{packets: packets, mtu: mtu, lost: map[int]bool{}, optional: map[int]bool{}, missing: map[int][]int{},
		refused: map[int]bth.Syndrome{}, receives: map[int][]int{}, late: map[int]bool{}}
	var sides [2]requester
	for i := range sides {
		sides[i] = requester{sent: map[bth.PSN]int{}, refusals: map[bth.PSN]int{}}
	}
	for i := range packets {
		p := &packets[i]
		if p.field("ip.ecn") == bth.CE && !p.fromDUT {
			a.marked = true
		}
		switch s, ok := p.Get("syndrome"); {
		case p.Opcode.IsCNP() || p.Opcode.Transport() == bth.TransportUD:
		case p.Opcode.IsRequest():
			a.request(i, &sides[index(p.fromDUT)])
		case p.Opcode.IsReadResponse() && p.fromDUT:
			a.response(i)
		case ok && p.Opcode == bth.OpAcknowledge:
			a.acknowledgement(i, bth.Syndrome(s), &sides[index(!p.fromDUT)])
		}
	}
	return a
}

// request follows request i of a side.
func (a *plan) request(i int, r *requester) {
	p := &a.packets[i]
	psn := p.PSN()
	if !r.begun {
		r.begun, r.next = true, psn
	}
	if p.Opcode.IsReadRequest() && !p.fromDUT {
		a.copied = p.copied
	}
	if p.field("ackreq") == 1 || p.Opcode.IsReadRequest() || p.Opcode.IsAtomic() {
		r.asked, r.asks = psn, true
	}
	switch d := psn.Diff(r.next); {
	case d >= 0:
		for ; p.fromDUT && r.next != psn; r.next = r.next.Next() {
			if j := a.again(i, r.next); j > 0 {
				a.missing[i] = append(a.missing[i], j)
			}
		}
		r.next, r.hasNAK = psn.Next(), false
		if p.Opcode.IsReadRequest() {
			r.next = psn.Add(flow.Packets(uint32(p.field("len")), a.mtu))
		}
	case !p.fromDUT:
	case r.hasNAK && psn.Before(r.nak):
		a.optional[i] = true
	case !r.hasNAK: // a timeout: acknowledgements of the tester were lost
		for _, j := range r.acks {
			if !a.packets[j].PSN().Before(psn) && j > r.sent[psn] {
				a.lost[j] = true
			}
		}
	}
	r.sent[psn] = i
}

// response follows READ response i of the device. A device may ignore copies of a request that the network has made.
func (a *plan) response(i int) {
	psn := a.packets[i].PSN()
	if a.answers && psn.Before(a.answered) {
		a.optional[i] = a.copied
		return
	}
	a.answered, a.answers = psn.Next(), true
}

// again returns the index of the request psn of the device after packet i, 0 if there is none.
func (a *plan) again(i int, psn bth.PSN) int {
	for j := i + 1; j < len(a.packets); j++ {
		if p := &a.packets[j]; p.fromDUT && p.Opcode.IsRequest() && p.PSN() == psn {
			return j
		}
	}
	return 0
}

// acknowledgement follows acknowledgement i of the requests of r.
func (a *plan) acknowledgement(i int, s bth.Syndrome, r *requester) {
	p := &a.packets[i]
	psn := p.PSN()
	j, known := r.sent[psn]
	switch {
	case s.IsACK():
		r.acks = append(r.acks, i)
		a.optional[i] = p.fromDUT && (!r.asks || psn.Before(r.asked))
		r.asks = r.asks && psn.Before(r.asked)
		return
	case s.IsRNR():
		r.refusals[psn] = i
		if known && p.fromDUT {
			a.postpone(j, i)
			a.minRNR = uint8(s) & 0x1f
		}
	case s == bth.SyndromePSNSeqErr && known && p.fromDUT:
		if k, refused := r.refusals[psn]; refused && k > j {
			a.optional[i] = true // the request after a refused one; a device may drop it silently
		} else if a.repeated(i, psn) {
			a.lost[j] = true
		}
	case s != bth.SyndromePSNSeqErr && known:
		a.refused[a.start(j)], a.ended = s, j
	}
	r.nak, r.hasNAK = psn, true
}

// repeated reports whether the tester repeats the request psn after packet i.
func (a *plan) repeated(i int, psn bth.PSN) bool {
	for _, p := range a.packets[i+1:] {
		if !p.fromDUT && p.Opcode.IsRequest() && p.PSN() == psn {
			return true
		}
	}
	return false
}

// postpone moves the receive of the message with packet j of the tester behind RNR NAK i.
func (a *plan) postpone(j, i int) {
	first := a.first(a.packets[j].PSN())
	for nak, list := range a.receives {
		for k := range list {
			if list[k] == first {
				a.receives[nak] = append(list[:k:k], list[k+1:]...)
				break
			}
		}
	}
	a.receives[i], a.late[first] = append(a.receives[i], first), true
}

// first returns the index of the first transmission of a request of the tester.
func (a *plan) first(psn bth.PSN) int {
	for i, p := range a.packets {
		if !p.fromDUT && p.Opcode.IsRequest() && p.PSN() == psn {
			return i
		}
	}
	return 0
}

// start returns the index of the first packet of the message with request i.
func (a *plan) start(i int) int {
	for psn := a.packets[i].PSN(); i > 0 && !begins(frame.OpcodeName(a.packets[i].Opcode)); {
		j := i - 1
		psn = psn.Add(-1)
		for j > 0 && !(a.packets[j].fromDUT == a.packets[i].fromDUT && a.packets[j].Opcode.IsRequest() && a.packets[j].PSN() == psn) {
			j--
		}
		i = j
	}
	return i
}

// begins reports whether a request is the first packet of a message.
func begins(name string) bool {
	return !strings.Contains(name, "_MIDDLE") && !strings.Contains(name, "_LAST")
}

// ends reports whether a request is the last packet of a message.
func ends(name string) bool {
	return !strings.Contains(name, "_MIDDLE") && !strings.Contains(name, "_FIRST")
}

// message returns the payload of the message that begins with packet i, the index of its last packet, and whether that ends it.
func (a *plan) message(i int) (n, last int, whole bool) {
	from := a.packets[i].fromDUT
	next := a.packets[i].PSN()
	last = i
	for j := i; j < len(a.packets); j++ {
		p := &a.packets[j]
		if p.fromDUT != from || !p.Opcode.IsRequest() || p.PSN() != next {
			continue
		}
		n += len(p.Payload)
		next, last = next.Next(), j
		if ends(frame.OpcodeName(p.Opcode)) {
			return n, last, true
		}
	}
	return n, last, false
}
