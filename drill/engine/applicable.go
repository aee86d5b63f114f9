package engine

import (
	"fmt"
	"slices"

	"roced.io/roced/drill/script"
)

// capabilities are the words of "need" with their meanings.
var capabilities = map[string]string{
	"rc": "reliable connections", "uc": "unreliable connections", "ud": "unreliable datagrams", "srq": "shared receive queues",
	"mw": "memory windows of type 2", "atomic": "atomic operations", "inval": "SEND with invalidate and local invalidate", "flush": "FLUSH",
	"awrite": "ATOMIC WRITE", "cm": "a connection manager", "ipv4": "an IPv4 address", "ipv6": "an IPv6 address; the script runs over IPv6",
	"vlan":   "it takes frames of its VLANs only, which rocedrill cannot find out: --cap vlan",
	"tagged": "a run in a VLAN (--vlan)", "untagged": "a run without a VLAN", "ecn": "CNPs for marked packets: --cap ecn",
	"virtual": "the virtual clock, or the choices of its agent that libibverbs and rdma_cm lack", "irn": "profile=irn", "melo": "profile=melo",
	"mp_rdma": "profile=mp-rdma", "eunomia": "profile=eunomia", "dcqcn": "profile=rc+dcqcn", "mrc": "MRC",
	"multicast": "multicast groups of UD", "zero_based": "regions and windows whose addresses count from 0",
	"second":  "a second address, which rocedrill knows of the devices that it starts itself",
	"retries": "retry= is the number of retransmissions, as without adaptive retransmission: --cap retries",
}

// Capabilities returns the names of all capabilities.
func Capabilities() []string { return sortedKeys(capabilities) }

// implied are the capabilities that verbs need, also if the script does not say so.
var implied = map[string]string{"srq": "srq", "mw": "mw", "bind": "mw", "cas": "atomic", "fadd": "atomic", "flush": "flush", "awrite": "awrite",
	"listen": "cm", "connect": "cm", "attach": "multicast"}

// needs calls f for each capability that the script needs, and where. It ends when f returns false.
func (e *Engine) needs(f func(need string, at script.Pos) bool) {
	top := script.Pos{Line: 1, Col: 1}
	for _, need := range e.script.Need {
		if !f(need, top) {
			return
		}
	}
	more := f(map[bool]string{false: "ipv4", true: "ipv6"}[e.v6()], top)
	walk(e.script.Body, func(s script.Stmt) {
		c, ok := s.(*script.Call)
		if !ok || !more {
			return
		}
		need := implied[c.Verb]
		if n, ok := first(c.Args).(*script.Name); ok && c.Verb == "qp" {
			need = n.Name
		}
		more = need == "" || f(need, c.Pos)
	})
}

func first(list []script.Expr) script.Expr {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// walk calls f for each statement, also in blocks.
func walk(body []script.Stmt, f func(script.Stmt)) {
	for _, s := range body {
		f(s)
		for _, block := range script.Blocks(s) {
			walk(block, f)
		}
	}
}

// applicable finds out whether the device, the link and the run have all that the script needs.
func (e *Engine) applicable() {
	e.needs(func(need string, at script.Pos) bool {
		if why := e.lacks(need); why != "" {
			e.finish(NotApplicable, at, why)
		}
		return e.result == nil
	})
	if e.result != nil {
		return
	}
	walk(e.script.Body, func(s script.Stmt) {
		if c, ok := s.(*script.Call); ok && c.Verb == "qp" {
			mtu := uint64(defaultMTU)
			for _, k := range c.Keys {
				if n, ok := k.Value.(*script.Number); ok && k.Name == "mtu" {
					mtu = n.Value
				}
			}
			e.checkMTU(c.Pos, mtu)
		}
	})
}

// lacks returns why a capability is missing, empty if it is not.
func (e *Engine) lacks(need string) string {
	switch {
	case need == "tagged" && e.o.VLAN == 0:
		return "it needs a run in a VLAN (--vlan)"
	case need == "untagged" && e.o.VLAN != 0:
		return fmt.Sprintf("it needs a link without a VLAN, the run is in VLAN %d", e.o.VLAN)
	case need == "ipv4" && e.o.IP == 6:
		return "it needs IPv4, the run is by IPv6 (--ip 6)"
	case need == "ipv6" && e.o.IP == 4:
		return "it needs IPv6, the run is by IPv4 (--ip 4)"
	case need == "tagged" || need == "untagged" || slices.Contains(e.o.Caps, need):
		return ""
	case need == "ipv4":
		return fmt.Sprintf("the device has no IPv4 address %v; run by IPv6 (--ip 6)", e.o.DUT)
	}
	return "the device has no " + need
}

// checkMTU ends a run that needs a longer path MTU than device and link have.
func (e *Engine) checkMTU(at script.Pos, mtu uint64) {
	if e.o.MTU > 0 && mtu > uint64(e.o.MTU) && mtu <= 4096 {
		e.finish(NotApplicable, at, fmt.Sprintf("it needs the path MTU %d, but %s", mtu, e.o.MTULimit))
	}
}

// checkFrame ends a run that sends a longer frame than the tester's interface takes.
func (e *Engine) checkFrame(at script.Pos, frame []byte) {
	const ethernet, tag = 14, 4
	n := len(frame) - ethernet
	if e.o.VLAN != 0 {
		n -= tag
	}
	if e.o.LinkMTU > 0 && n > e.o.LinkMTU {
		e.finish(NotApplicable, at, fmt.Sprintf("it sends a packet of %d bytes, but the tester's interface has the MTU %d", n, e.o.LinkMTU))
	}
}
