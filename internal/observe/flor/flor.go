// Package flor reads what Flor (package flor/engine) says in packets: the header of a SEND, the
// immediate of a WRITE, acknowledgements in datagrams. Its format has no mark by which it could be
// told from other programs' data, so somebody has to say which queue pairs carry it.
package flor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/flor/engine"
)

// QueuePairs are the queue pairs that carry Flor, by the number to which packets go. The zero value is none.
type QueuePairs struct {
	all     bool
	numbers map[uint32]bool
}

// ParseQueuePairs reads "all", or numbers with commas between, decimal or with 0x. Nothing is none.
func ParseQueuePairs(text string) (q QueuePairs, err error) {
	if q.all = text == "all"; q.all || text == "" {
		return q, nil
	}
	q.numbers = map[uint32]bool{}
	for _, s := range strings.Split(text, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(s), 0, 24)
		if err != nil {
			return QueuePairs{}, fmt.Errorf("%q is neither \"all\" nor numbers of queue pairs with commas between", text)
		}
		q.numbers[uint32(n)] = true
	}
	return q, nil
}

// Has reports whether packets to a queue pair carry Flor.
func (q QueuePairs) Has(number uint32) bool { return q.all || q.numbers[number] }

// Info is what a packet says. Fields that its kind does not have are left out.
type Info struct {
	// Kind is write (the immediate of one), message, request, grant, rewrite (headers of SENDs), ack, or empty
	// if Error says why it is none.
	Kind    string  `json:"kind,omitempty"`
	Hint    bool    `json:"hint,omitempty"`
	RN      *uint32 `json:"rn,omitempty"` // reliable sequence number
	GN      *uint64 `json:"gn,omitempty"` // global sequence number
	Message *uint32 `json:"message,omitempty"`
	Chunk   *uint32 `json:"chunk,omitempty"` // where a chunk begins, in units
	Tag     *uint32 `json:"tag,omitempty"`
	Length  *uint32 `json:"length,omitempty"` // of the message
	Offset  *uint32 `json:"offset,omitempty"` // where a chunk begins, in bytes
	Key     *uint32 `json:"key,omitempty"`
	Addr    *uint64 `json:"addr,omitempty"`
	Ack     *Ack    `json:"ack,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// Ack is an acknowledgement. SENDs are named by their global numbers, WRITEs by their immediates.
type Ack struct {
	QPN     uint32  `json:"qpn"`
	DelayNS int64   `json:"delay_ns"` // T3'-T2
	Least   *uint64 `json:"least,omitempty"`
	WQEs    []WQE   `json:"wqes"`
}

// WQE is one that is acknowledged.
type WQE struct {
	GN      *uint64 `json:"gn,omitempty"`
	Message *uint32 `json:"message,omitempty"`
	Chunk   *uint32 `json:"chunk,omitempty"`
}

// HeadLen is how much of a SEND's payload Of needs, if it is not a datagram.
const HeadLen = engine.HeaderLen

// Of reads what a packet of this opcode says, whose payload begins so; nil if Flor has nothing in such
// packets. whole says that this is all of the payload.
func Of(o bth.Opcode, imm uint32, payload []byte, whole bool) *Info {
	switch {
	case o.IsWrite() && o.HasImm():
		return ofImm(imm)
	case o.IsSend() && o.HasDETH():
		if !whole {
			return nil
		}
		return ofAck(payload)
	case o.IsSend() && o.Starts():
		if !whole && len(payload) < HeadLen {
			return nil
		}
		return ofHeader(payload)
	}
	return nil
}

func ofImm(imm uint32) *Info {
	i := engine.Imm(imm)
	message, chunk := i.MessageID(), i.Offset()
	return &Info{Kind: "write", Hint: i.Hint(), Message: &message, Chunk: &chunk}
}

// fault says why something is not Flor's.
func fault(err error) *Info {
	if errors.Is(err, engine.ErrShort) {
		return &Info{Error: "too short"}
	}
	return &Info{Error: "not of the format"}
}

func ofHeader(b []byte) *Info {
	var h engine.Header
	if err := h.Parse(b); err != nil {
		return fault(err)
	}
	i := &Info{Hint: h.Hint, RN: &h.RN, GN: &h.GN, Message: &h.Message}
	switch h.Kind {
	case engine.KindMessage:
		i.Kind, i.Length, i.Offset, i.Tag = "message", &h.Length, &h.Offset, &h.Tag
	case engine.KindRequest:
		i.Kind, i.Length, i.Tag = "request", &h.Length, &h.Tag
	case engine.KindGrant:
		i.Kind, i.Key, i.Addr = "grant", &h.Key, &h.Addr
	case engine.KindRewrite:
		w := ofImm(h.Message)
		i.Kind, i.Message, i.Chunk = "rewrite", w.Message, w.Chunk
	}
	return i
}

func ofAck(b []byte) *Info {
	var a engine.Ack
	if err := a.Parse(b); err != nil {
		return fault(err)
	}
	out := &Ack{QPN: a.QPN, DelayNS: int64(a.Delay)}
	if least, ok := a.Least(); ok {
		out.Least = &least
	}
	for i := range a.Len() {
		n, send := a.At(i)
		if send {
			out.WQEs = append(out.WQEs, WQE{GN: &n})
			continue
		}
		w := ofImm(uint32(n))
		out.WQEs = append(out.WQEs, WQE{Message: w.Message, Chunk: w.Chunk})
	}
	return &Info{Kind: "ack", Ack: out}
}

// AppendText appends the line for people.
func (i *Info) AppendText(b []byte) []byte {
	if i.Error != "" {
		return fmt.Appendf(b, " flor: %s", i.Error)
	}
	b = fmt.Appendf(b, " flor %s", i.Kind)
	if i.Ack != nil {
		return i.Ack.appendTo(b)
	}
	if i.Hint {
		b = append(b, " hint"...)
	}
	if i.RN != nil {
		b = fmt.Appendf(b, " rn %d gn %d", *i.RN, *i.GN)
	}
	for _, f := range []struct {
		name string
		v    *uint32
	}{{"message", i.Message}, {"chunk", i.Chunk}, {"length", i.Length}, {"offset", i.Offset}, {"tag", i.Tag}} {
		if f.v != nil {
			b = fmt.Appendf(b, " %s %d", f.name, *f.v)
		}
	}
	if i.Key != nil {
		b = fmt.Appendf(b, " key 0x%08x addr 0x%x", *i.Key, *i.Addr)
	}
	return b
}

// appendTo appends WRITEs as message/chunk, and SENDs by their global numbers.
func (a *Ack) appendTo(b []byte) []byte {
	b = fmt.Appendf(b, " of qp %d delay %dns", a.QPN, a.DelayNS)
	for _, w := range a.WQEs {
		if w.GN != nil {
			b = fmt.Appendf(b, " gn %d", *w.GN)
		} else {
			b = fmt.Appendf(b, " %d/%d", *w.Message, *w.Chunk)
		}
	}
	return b
}
