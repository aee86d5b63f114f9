// Package flor decodes the packets of Flor (package flor/engine): the header of a SEND, the immediate of a WRITE, and
// acknowledgements in datagrams. The format has no magic number that distinguishes it from other data. The user must
// therefore name the queue pairs that carry Flor.
package flor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/flor/engine"
)

// QueuePairs is a set of destination queue pairs that carry Flor. The zero value is the empty set.
type QueuePairs struct {
	all     bool
	numbers map[uint32]bool
}

// ParseQueuePairs parses "all" or a list of numbers with commas, decimal or with 0x. An empty text is the empty set.
func ParseQueuePairs(text string) (q QueuePairs, err error) {
	if q.all = text == "all"; q.all || text == "" {
		return q, nil
	}
	q.numbers = map[uint32]bool{}
	for _, s := range strings.Split(text, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(s), 0, 24)
		if err != nil {
			return QueuePairs{}, fmt.Errorf("%q: must be \"all\" or queue pair numbers separated by commas", text)
		}
		q.numbers[uint32(n)] = true
	}
	return q, nil
}

// Has reports whether packets to a queue pair carry Flor.
func (q QueuePairs) Has(number uint32) bool { return q.all || q.numbers[number] }

// Info holds the Flor fields of a packet. Fields that its kind does not have are omitted.
type Info struct {
	// Kind is write (the immediate of a WRITE), ack, or the header of a SEND: message, request, grant or rewrite. It
	// is empty if Error is set.
	Kind    string  `json:"kind,omitempty"`
	Hint    bool    `json:"hint,omitempty"`
	RN      *uint32 `json:"rn,omitempty"` // reliable sequence number
	GN      *uint64 `json:"gn,omitempty"` // global sequence number
	Message *uint32 `json:"message,omitempty"`
	Chunk   *uint32 `json:"chunk,omitempty"` // start of a chunk, in units
	Tag     *uint32 `json:"tag,omitempty"`
	Length  *uint32 `json:"length,omitempty"` // length of the message
	Offset  *uint32 `json:"offset,omitempty"` // start of a chunk, in bytes
	Key     *uint32 `json:"key,omitempty"`
	Addr    *uint64 `json:"addr,omitempty"`
	Ack     *Ack    `json:"ack,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// Ack is an acknowledgement. It names SENDs by global sequence number and WRITEs by immediate.
type Ack struct {
	QPN     uint32  `json:"qpn"`
	DelayNS int64   `json:"delay_ns"` // T3'-T2
	Least   *uint64 `json:"least,omitempty"`
	WQEs    []WQE   `json:"wqes"`
}

// WQE is an acknowledged work request.
type WQE struct {
	GN      *uint64 `json:"gn,omitempty"`
	Message *uint32 `json:"message,omitempty"`
	Chunk   *uint32 `json:"chunk,omitempty"`
}

// HeadLen is the number of payload bytes that Of needs for a SEND. For a datagram Of needs the whole payload.
const HeadLen = engine.HeaderLen

// Of decodes a packet from its opcode, immediate and first payload bytes. whole means that payload is complete. Of
// returns nil if Flor does not use this kind of packet, or if a truncated payload is too short.
func Of(o bth.Opcode, imm uint32, payload []byte, whole bool) *Info {
	switch {
	case o.IsMRC():
		return nil
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

// fault returns an Info with the reason for which a packet is not valid Flor.
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

// AppendText appends the line of text.
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

// appendTo appends WRITEs as message/chunk, and SENDs by global sequence number.
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
