package e2e

import (
	"testing"

	"roced.io/roced/internal/lab/netlab"
)

// TestXDP moves data between a NIC on an XDP port, in each mode, and NICs on other ports with and without offload.
func TestXDP(t *testing.T) {
	for _, mode := range []string{"native", "generic"} {
		for _, peer := range []string{"xdp, mode: native", "packet", "packet, offload: false", ""} {
			name := peer
			if peer == "" {
				name = "tap"
			}
			t.Run(mode+" with "+name, func(t *testing.T) {
				l := newLab(t, netlab.LabOptions{Shared: [2]string{"xdp, mode: " + mode, peer}})
				l.serves()
				l.verify("read-bw -s 64k -n 8")
				l.verify("write-bw -s 1m -n 4")
				l.verify("send-bw -c ud -s 4k -n 8")
				for i := range 2 {
					if n := l.counters(i)["rcvd_pkts"]; n == 0 {
						t.Errorf("%s has received nothing", l.Host[i].Device)
					}
				}
				t.Log(l.Link(0).Mode)
			})
		}
	}
}
