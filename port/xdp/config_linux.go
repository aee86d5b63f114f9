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
	// Netns is the network namespace of the interface, a path or a name as
	// ip-netns(8) has them. Empty for the caller's own.
	Netns string
	// Addrs are the addresses for which RoCEv2 frames are received. See SetAddrs.
	Addrs []netip.Addr
	// Queues is the number of receive queues that are served, from the first one on; 0
	// for all that the interface has. It is for interfaces that spread RoCEv2 over
	// fewer queues than they have (ethtool -N).
	Queues int
	// Attach says where the XDP program runs, Copy how frames reach the sockets; empty
	// means automatic.
	Attach Attach
	Copy   Copy
}

func (c *Config) validate() error {
	switch {
	case c.Interface == "":
		return errors.New("no interface")
	case c.Queues < 0 || c.Queues > steer.MaxQueues:
		return fmt.Errorf("%d queues, at most %d", c.Queues, steer.MaxQueues)
	case !slices.Contains([]Attach{"", AttachAuto, AttachNative, AttachGeneric}, c.Attach):
		return fmt.Errorf("mode %q is not known", c.Attach)
	case !slices.Contains([]Copy{"", CopyAuto, CopyAlways, CopyNever}, c.Copy):
		return fmt.Errorf("copy %q is not known", c.Copy)
	}
	return nil
}

// Attach is where the XDP program runs.
type Attach string

// Places to run at.
const (
	AttachAuto    Attach = "auto"    // in the driver if it can, else generic
	AttachNative  Attach = "native"  // in the driver, before the kernel has made a socket buffer
	AttachGeneric Attach = "generic" // in the network stack: works with every driver, slower
)

// attempts lists what to try: native or not.
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

// Ways.
const (
	CopyAuto   Copy = "auto"     // by the driver if it can, else copied by the kernel
	CopyAlways Copy = "copy"     // copied by the kernel (XDP_COPY)
	CopyNever  Copy = "zerocopy" // by the driver, or not at all (XDP_ZEROCOPY)
)

// attempts lists the flags of bind to try. Frames that span chunks (multi-buffer)
// come first; without them the longest frame is a chunk, so zero-copy goes
// without them only where that is enough.
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
