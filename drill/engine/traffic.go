package engine

import (
	"bytes"
	"fmt"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
)

// ce is the ECN codepoint of a packet that the network has marked (RFC 3168).
const ce = 3

// mostShown bounds the frames of other traffic in a log.
const mostShown = 20

// observed is the engine's knowledge about the traffic of a run, from the script's verbs and the frames of both sides.
type observed struct {
	flows          []*flow             // queue pairs of the device
	tester, device map[netip.Addr]bool // addresses
	peers          map[uint64]bool     // queue pairs of the tester
	anyPeer        bool                // the script names queue pairs of the tester
	anyAddress     bool                // the script names addresses of packets of the device
	others         int                 // frames of other traffic
	notes          []Note
	immediate      bool              // a packet to the device had immediate data
	marked         bool              // a packet to the device was marked
	repeated       bool              // the newest packet of the device is a request that it had sent before
	posted         map[string]string // operation of each request, by queue pair and number; empty if several share the number
	broken         map[string]bool   // queue pairs whose errors the device has reported
	told           map[string]bool   // objects with events that have come
	asked          map[string]bool   // objects with states and features that the script uses, which have events
}

func observe(o Options) observed {
	return observed{tester: map[netip.Addr]bool{o.Tester: true, o.Tester6: true}, device: map[netip.Addr]bool{o.DUT: true, o.DUT6: true},
		peers: map[uint64]bool{testerQPN: true, managementQPN: true, uint64(bth.MRCEndpointQPN): true}, broken: map[string]bool{}, told: map[string]bool{}, asked: map[string]bool{}, posted: map[string]string{}}
}

// expects finds out which packets the script judges by itself: those of any queue pair if it names dst=, and of any address.
func (e *Engine) expects(body []script.Stmt) {
	for _, s := range body {
		switch s := s.(type) {
		case *script.Expect:
			for i := range s.Packets {
				e.namesDestination(&s.Packets[i])
			}
		case *script.Ignore:
			e.namesDestination(&s.Packet)
		}
		for _, block := range script.Blocks(s) {
			e.expects(block)
		}
	}
}

func (e *Engine) namesDestination(k *script.Packet) {
	for i := range k.Fields {
		e.anyPeer = e.anyPeer || k.Fields[i].Name == "dst"
		e.anyAddress = e.anyAddress || k.Fields[i].Name == "ip.src" || k.Fields[i].Name == "ip.dst"
	}
	e.anyPeer = e.anyPeer || k.Name == anyPacket
}

// sends remembers the addresses of a packet that the tester sends. Its answers come from there.
func (e *Engine) sends(f *frame.Frame) {
	if a, ok := address(f, "ip.src"); ok {
		e.tester[a] = true
	}
	if a, ok := address(f, "ip.dst"); ok {
		e.device[a] = true
	}
	_, has := f.Get("imm")
	e.immediate = e.immediate || has
	ecn, _ := f.Get("ip.ecn")
	fecn, _ := f.Get("fecn") // an adapter of InfiniBand echoes it
	e.marked = e.marked || ecn == ce || fecn == 1
}

func address(f *frame.Frame, name string) (netip.Addr, bool) {
	b, ok := f.Address(name)
	if !ok {
		return netip.Addr{}, false
	}
	return netip.AddrFromSlice(b)
}

// own reports whether a frame is the device's and of this script, by its addresses and its queue pair. Others share the link:
// traffic of other stations, and traffic of the device with them.
func (e *Engine) own(f *frame.Frame, whole bool) bool {
	group := e.anyAddress && f.Bytes[0]&1 != 0
	if !group && !bytes.Equal(f.Bytes[:6], e.o.TesterMAC[:]) || !bytes.Equal(f.Bytes[6:12], e.o.DUTMAC[:]) {
		return false
	}
	src, ok := address(f, "ip.src")
	dst, _ := address(f, "ip.dst")
	if !ok || !e.anyAddress && (!e.device[src] || !e.tester[dst]) {
		return false
	}
	qpn, _ := f.Get("dst")
	return !whole || e.anyPeer || e.peers[qpn]
}

// besides returns a note on other traffic, which may explain a failure.
func (e *Engine) besides() string {
	if e.others == 0 {
		return ""
	}
	return fmt.Sprintf("; %d frames of other traffic did not count", e.others)
}
