package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/bpf/steer"
	"roced.io/roced/internal/base/xsk"
)

// Config describes an XDP port.
type Config struct {
	// Interface is the Ethernet interface that the port shares with the kernel.
	Interface string
	// Netns is the network namespace of the interface: a path, a name as in ip-netns(8), or empty for that of the
	// caller.
	Netns string
	// Addrs are the addresses whose RoCEv2 frames the port receives. See SetAddrs.
	Addrs []netip.Addr
	// Queues is the number of receive queues that the port serves, starting with the first one; 0 means all. Set it for
	// an interface that spreads RoCEv2 over some of its queues (ethtool -N).
	Queues int
	// Attach selects where the XDP program runs, and Copy how frames reach the sockets. Empty means auto.
	Attach Attach
	Copy   Copy
	// UDPPort is the UDP port of the frames; 0 means bth.UDPPort.
	UDPPort uint16
}

func (c *Config) validate() error {
	switch {
	case c.Interface == "":
		return errors.New("no interface")
	case c.Queues < 0 || c.Queues > steer.MaxQueues:
		return fmt.Errorf("queues %d: must be 0 to %d", c.Queues, steer.MaxQueues)
	case !slices.Contains([]Attach{"", AttachAuto, AttachNative, AttachGeneric}, c.Attach):
		return fmt.Errorf("mode %q: must be auto, native or generic", c.Attach)
	case !slices.Contains([]Copy{"", CopyAuto, CopyAlways, CopyNever}, c.Copy):
		return fmt.Errorf("copy %q: must be auto, copy or zerocopy", c.Copy)
	}
	return nil
}

// Attach is where the XDP program runs.
type Attach string

// Places where the XDP program runs.
const (
	AttachAuto    Attach = "auto"    // in the driver if it supports XDP, else generic
	AttachNative  Attach = "native"  // in the driver, before the kernel allocates a socket buffer
	AttachGeneric Attach = "generic" // in the network stack: slower, but with every driver
)

// attempts lists the modes to try: native or not.
func (a Attach) attempts() []bool {
	switch a {
	case AttachNative:
		return []bool{true}
	case AttachGeneric:
		return []bool{false}
	}
	return []bool{true, false}
}

func modeName(native bool) string {
	if native {
		return "native"
	}
	return "generic"
}

// Copy is how frames reach the sockets.
type Copy string

// Ways of copying frames.
const (
	CopyAuto   Copy = "auto"     // zero-copy if the driver supports it, else copy
	CopyAlways Copy = "copy"     // the kernel copies frames (XDP_COPY)
	CopyNever  Copy = "zerocopy" // the driver accesses the UMEM (XDP_ZEROCOPY)
)

// attempts lists the flags of bind to try. Multi-buffer, that is, frames that span chunks, comes first. Without it the
// longest frame is a chunk. Copying with multi-buffer has priority over zero-copy without it if the MTU needs it.
func (c Copy) attempts(mtu int) []uint16 {
	const sg, zc, cp = unix.XDP_USE_SG, unix.XDP_ZEROCOPY, unix.XDP_COPY
	switch {
	case c == CopyAlways:
		return []uint16{cp | sg, cp}
	case c == CopyNever:
		return []uint16{zc | sg, zc}
	case mtu+ethLen <= xsk.ChunkSize-xsk.RxHeadroom:
		return []uint16{zc | sg, zc, cp | sg, cp}
	}
	return []uint16{zc | sg, cp | sg, zc, cp}
}
