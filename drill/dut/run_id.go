package dut

import (
	"math/rand/v2"
	"net/netip"
	"sync/atomic"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/drill/frame"
)

// runIDs gives each run of a session its own communication ID, so that messages about connections of earlier runs can be told
// from those of the current run. They begin at a random number: the device may remember earlier sessions.
type runIDs struct {
	first   uint32
	current atomic.Uint32
}

func (r *runIDs) start() {
	r.first = rand.Uint32()
	r.current.Store(r.first)
}

// next returns the ID of a new run.
func (r *runIDs) next() uint32 { return r.current.Add(1) }

// earlier reports whether an ID belongs to an earlier run.
func (r *runIDs) earlier(id uint32) bool { return id-r.first < r.current.Load()-r.first }

// earlier reports whether a frame is a message of the connection manager about a connection of an earlier run. The device ends
// connections that a script leaves open by a DREQ, and repeats it until the DREP. reply is that DREP, nil for other messages.
func (s *Session) earlier(b []byte) (reply []byte, yes bool) {
	f, err := frame.Parse(b)
	if err != nil {
		return nil, false
	}
	id, ok := f.Get("cm.remote")
	if !ok || id == 0 || !s.ids.earlier(uint32(id)) {
		return nil, false
	}
	if attr, _ := f.Get("mad.attr"); attr != uint64(mad.AttrDREQ) {
		return nil, true
	}
	theirs, _ := f.Get("cm.local")
	tid, _ := f.Get("mad.tid")
	o := &s.options
	dst, _ := f.Address("ip.src")
	src, _ := f.Address("ip.dst")
	from, _ := netip.AddrFromSlice(src)
	to, _ := netip.AddrFromSlice(dst)
	answer, err := (&frame.Spec{SrcMAC: o.TesterMAC, DstMAC: [6]byte(b[6:12]), Src: from, Dst: to, Opcode: bth.TransportUD | bth.OpSendOnly,
		Payload: frame.Message(mad.AttrDREP, from, to, uint32(id)), Fields: []frame.Set{{Name: "dst", Value: 1}, {Name: "src", Value: 1},
			{Name: "qkey", Value: mad.QKey}, {Name: "mad.tid", Value: tid}, {Name: "cm.local", Value: id}, {Name: "cm.remote", Value: theirs}}}).Build()
	if err != nil {
		return nil, true
	}
	return retag(answer.Bytes, tagOf(o.VLAN)), true
}
