package ctl

import (
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/fault"
)

func TestUnmatched(t *testing.T) {
	for _, c := range []struct {
		dir    fault.Dir
		rx, tx uint64
		want   string
	}{
		{fault.Tx, 0, 0, "neither sent nor received"},
		{fault.Tx, 7, 0, "v0 sent no RoCEv2 frames, its peer did (7 received)"},
		{fault.Rx, 0, 7, "v0 received no RoCEv2 frames, it sent 7"},
		{fault.Tx, 7, 5, "v0 sent 5 RoCEv2 frames and received 7"},
		{fault.Both, 7, 0, "no frame has all conditions"},
	} {
		got := unmatched("v0", c.dir, c.rx, c.tx)
		if !strings.HasPrefix(got, "0 packets matched: ") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestPacketSockets counts the sockets that receive all frames of an interface.
func TestPacketSockets(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	ns, err := netns.New()
	if err != nil {
		t.Skip(err)
	}
	defer ns.Close()
	all := uint16(unix.ETH_P_ALL)
	for _, protocol := range []uint16{0, all<<8 | all>>8} {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Skip(err)
		}
		defer unix.Close(fd)
		if protocol != 0 {
			if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if a, b := packetSockets(1), packetSockets(2); a != 1 || b != 0 {
		t.Errorf("%d and %d sockets", a, b)
	}
}
