package soak

import (
	"math/rand/v2"
	"testing"
	"time"

	"roced.io/roced/port/link"
)

// TestHostileMemory attacks one NIC for a long time: its memory use stays bounded.
func TestHostileMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	r := newRig(t, link.Offload{MaxSegments: 64, MaxBytes: 65549})
	steps := func(n int) {
		for range n {
			b := make([]byte, 256)
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			// The attack removes neither objects nor the link, or it would end soon.
			if b[1]%16 != 15 {
				r.attack(&program{b})
			}
			r.heal()
		}
		r.p.Run(10 * time.Millisecond)
	}
	steps(5000)
	before := heap()
	steps(15000)
	after := heap()
	t.Logf("%d KiB, then %d KiB", before>>10, after>>10)
	if after > before+256<<10 {
		t.Errorf("%d bytes have been added", after-before)
	}
	for _, name := range []string{"rcvd_pkts", "rdma_recvs", "rx_write_requests", "rx_read_requests", "rx_atomic_requests",
		"duplicate_request", "rx_dropped_access", "rx_icrc_encapsulated", "rx_dropped_transport", "rx_dropped_peer"} {
		if n := r.p.B.Counter(name); n < 20 {
			t.Errorf("%s is %d: the attack has no effect", name, n)
		}
	}
	r.check()
}
