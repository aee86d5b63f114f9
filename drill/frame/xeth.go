package frame

import "roced.io/roced/bth"

// extField is a field of the extension header. Setting it sets its flag.
type extField struct {
	name string
	flag bth.XFlags
	get  func(*bth.XETH) uint32
	set  func(*bth.XETH, uint32)
}

// number returns a field that is a plain number.
func number(name string, flag bth.XFlags, at func(*bth.XETH) *uint32) extField {
	return extField{name, flag, func(h *bth.XETH) uint32 { return *at(h) }, func(h *bth.XETH, v uint32) { *at(h) = v }}
}

// sequence returns a field that is a PSN.
func sequence(name string, flag bth.XFlags, at func(*bth.XETH) *bth.PSN) extField {
	return extField{name, flag, func(h *bth.XETH) uint32 { return at(h).Uint32() }, func(h *bth.XETH, v uint32) { *at(h) = bth.MakePSN(v) }}
}

// flag returns a field that is one bit.
func flag(name string, f bth.XFlags) extField {
	return extField{name, 0, func(h *bth.XETH) uint32 {
		if h.Flags&f != 0 {
			return 1
		}
		return 0
	}, func(h *bth.XETH, v uint32) {
		h.Flags &^= f
		if v != 0 {
			h.Flags |= f
		}
	}}
}

// extFields are the fields of the extension header (docs/reference/wire.md), in the order on the wire.
var extFields = []extField{
	{"x.profile", 0, func(h *bth.XETH) uint32 { return uint32(h.Profile) }, func(h *bth.XETH, v uint32) { h.Profile = bth.Profile(v) }},
	flag("x.retx", bth.XReTx),
	flag("x.sync", bth.XSync),
	flag("x.tail", bth.XTail),
	flag("x.ece", bth.XECE),
	flag("x.refused", bth.XRefused),
	number("x.msn", bth.XHasMsg, func(h *bth.XETH) *uint32 { return &h.MSN }),
	number("x.offset", bth.XHasMsg, func(h *bth.XETH) *uint32 { return &h.Offset }),
	number("x.recvsn", bth.XHasRecvSN, func(h *bth.XETH) *uint32 { return &h.RecvSN }),
	number("x.readsn", bth.XHasReadSN, func(h *bth.XETH) *uint32 { return &h.ReadSN }),
	sequence("x.head", bth.XHasHead, func(h *bth.XETH) *bth.PSN { return &h.Head }),
	sequence("x.sack", bth.XHasSACK, func(h *bth.XETH) *bth.PSN { return &h.SACK }),
	{"x.path", bth.XHasPath, func(h *bth.XETH) uint32 { return uint32(h.Path) },
		func(h *bth.XETH, v uint32) { h.Path = uint16(v) }},
	sequence("x.hole1", bth.XHasHole1, func(h *bth.XETH) *bth.PSN { return &h.Holes[0].Start }),
	number("x.len1", bth.XHasHole1, func(h *bth.XETH) *uint32 { return &h.Holes[0].Len }),
	sequence("x.hole2", bth.XHasHole2, func(h *bth.XETH) *bth.PSN { return &h.Holes[1].Start }),
	number("x.len2", bth.XHasHole2, func(h *bth.XETH) *uint32 { return &h.Holes[1].Len }),
	sequence("x.hole3", bth.XHasHole3, func(h *bth.XETH) *bth.PSN { return &h.Holes[2].Start }),
	number("x.len3", bth.XHasHole3, func(h *bth.XETH) *uint32 { return &h.Holes[2].Len }),
}

// extByName maps the names of extFields.
var extByName = func() map[string]*extField {
	m := map[string]*extField{}
	for i := range extFields {
		m[extFields[i].name] = &extFields[i]
	}
	return m
}()

// ExtFields returns the names of the fields of the extension header, for the reference.
func ExtFields() (names []string) {
	for i := range extFields {
		names = append(names, extFields[i].name)
	}
	return names
}
