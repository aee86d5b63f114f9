package decode

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// Extended holds the extension header of the extended transports (docs/reference/wire.md).
type Extended struct {
	Profile string  `json:"profile"`
	ReTx    bool    `json:"retx,omitempty"`
	Sync    bool    `json:"sync,omitempty"`
	Tail    bool    `json:"tail,omitempty"`
	ECE     bool    `json:"ece,omitempty"`
	Refused bool    `json:"refused,omitempty"`
	MSN     *uint32 `json:"msn,omitempty"`
	Offset  *uint32 `json:"offset,omitempty"`
	RecvSN  *uint32 `json:"recv_wqe_sn,omitempty"`
	ReadSN  *uint32 `json:"read_wqe_sn,omitempty"`
	Head    *uint32 `json:"head,omitempty"`
	SACK    *uint32 `json:"sack,omitempty"`
	Path    *uint16 `json:"path,omitempty"`
	Holes   []Hole  `json:"holes,omitempty"`
	// Fields are the profile's own fields, if this program has it; else Own has their bytes in hexadecimal digits.
	Fields map[string]uint64 `json:"fields,omitempty"`
	Own    string            `json:"own,omitempty"`
}

// Hole is a run of missing PSNs.
type Hole struct {
	Start uint32 `json:"start"`
	Len   uint32 `json:"len"`
}

// extended records the extension header of p.
func extended(p *bth.Packet) *Extended {
	h := &p.Ext
	has := func(f bth.XFlags) bool { return h.Flags&f != 0 }
	e := &Extended{Profile: profile.NameOf(h.Profile), ReTx: has(bth.XReTx), Sync: has(bth.XSync), Tail: has(bth.XTail),
		ECE: has(bth.XECE), Refused: has(bth.XRefused)}
	for _, f := range []struct {
		flag bth.XFlags
		to   **uint32
		v    uint32
	}{
		{bth.XHasMsg, &e.MSN, h.MSN}, {bth.XHasMsg, &e.Offset, h.Offset}, {bth.XHasRecvSN, &e.RecvSN, h.RecvSN},
		{bth.XHasReadSN, &e.ReadSN, h.ReadSN}, {bth.XHasHead, &e.Head, h.Head.Uint32()}, {bth.XHasSACK, &e.SACK, h.SACK.Uint32()},
	} {
		if has(f.flag) {
			*f.to = &f.v
		}
	}
	if has(bth.XHasPath) {
		path := h.Path
		e.Path = &path
	}
	for _, g := range h.Holes[:h.HoleCount()] {
		e.Holes = append(e.Holes, Hole{g.Start.Uint32(), g.Len})
	}
	var b [bth.MaxOwn]byte
	if own := h.Own(&b); own != nil {
		e.Fields = qp.ReadFields(profile.FieldsOf(h.Profile).Of(p.Opcode), own)
		if e.Fields == nil {
			e.Own = hex.EncodeToString(own)
		}
	}
	return e
}

// appendTo appends the header as text.
func (e *Extended) appendTo(b []byte) []byte {
	b = fmt.Appendf(b, " ext %s", e.Profile)
	for _, f := range []struct {
		set  bool
		name string
	}{{e.ReTx, "retx"}, {e.Sync, "sync"}, {e.Tail, "tail"}, {e.ECE, "ece"}, {e.Refused, "refused"}} {
		if f.set {
			b = fmt.Appendf(b, " %s", f.name)
		}
	}
	for _, f := range []struct {
		v    *uint32
		name string
	}{
		{e.MSN, "message"}, {e.Offset, "offset"}, {e.RecvSN, "recv_wqe_sn"}, {e.ReadSN, "read_wqe_sn"}, {e.Head, "head"}, {e.SACK, "sack"},
	} {
		if f.v != nil {
			b = fmt.Appendf(b, " %s %d", f.name, *f.v)
		}
	}
	if e.Path != nil {
		b = fmt.Appendf(b, " path %d", *e.Path)
	}
	for _, g := range e.Holes {
		b = fmt.Appendf(b, " hole %d+%d", g.Start, g.Len)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Fields)) {
		b = fmt.Appendf(b, " %s 0x%x", name, e.Fields[name])
	}
	if e.Own != "" {
		b = fmt.Appendf(b, " own %s", e.Own)
	}
	return b
}
