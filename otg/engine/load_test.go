package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/lab/namespace"
)

// links returns two namespaces with so many links between them, w0 and so on.
func links(t *testing.T, n int) (ns [2]*namespace.Namespace) {
	t.Helper()
	for i := range ns {
		var err error
		if ns[i], err = namespace.New(); err != nil {
			t.Skipf("needs CAP_NET_ADMIN: %v", err)
		}
		t.Cleanup(func() { ns[i].Close() })
	}
	for k := range n {
		name := fmt.Sprint("w", k)
		must(t, ns[0].Join(name, ns[1], name))
		for i := range ns {
			must(t, ns[i].Do(func() error { return errors.Join(namespace.SetUp("lo"), namespace.SetUp(name)) }))
		}
	}
	return ns
}

// TestLoad: eight ports with 64 flows and 1,024 queue pairs. All connect, each flow moves data of messages of 2 GiB or of 2 KB, and
// memory stays small. No goroutine and no descriptor of it outlives the configuration.
func TestLoad(t *testing.T) {
	const wires, pairs = 4, 128
	ns := links(t, wires)
	c := Config{}
	for k := range wires {
		for i := range ns {
			n, own, far := fmt.Sprintf("%d.%d", k, i), netip.AddrFrom4([4]byte{198, 18, byte(k), byte(1 + i)}), netip.AddrFrom4([4]byte{198, 18, byte(k), byte(2 - i)})
			c.Ports = append(c.Ports, Port{Name: "p" + n, Namespace: ns[i].Path(), Device: fmt.Sprint("w", k), RoCE: settings})
			c.Interfaces = append(c.Interfaces, Interface{Name: "e" + n, Port: "p" + n, MAC: inet.MAC{2, 0, 0, 0, byte(k), byte(i)}, MTU: 1500,
				Addresses: []Address{{Name: "a" + n, Prefix: netip.PrefixFrom(own, 24)}}})
			p := Peer{Name: "peer" + n, Address: "a" + n, Destination: far, PathMTU: 1024}
			for q := range pairs {
				name := fmt.Sprintf("q%s.%d", n, q)
				p.QueuePairs = append(p.QueuePairs, QueuePair{Name: name, Remote: fmt.Sprintf("q%d.%d.%d", k, 1-i, q), Active: i == 0, Number: uint32(2 + q)})
				if q < 8 {
					size := uint32(2000)
					if q == 7 {
						size = maxMessage
					}
					c.Flows = append(c.Flows, Flow{Name: "f" + name, Port: "p" + n, QueuePair: name, Verb: Write, Size: size, LineRate: 0.1, Group: 1})
				}
			}
			c.Peers = append(c.Peers, p)
		}
	}
	before := runtime.NumGoroutine()
	e := start(t, c)
	must(t, e.Protocols(nil, Connect))
	await(t, e, "1,024 queue pairs are up", func() bool {
		up := 0
		for _, m := range e.PeerMetrics() {
			up += m.Up
		}
		return up == 2*wires*pairs
	})
	must(t, e.Traffic(nil, Start))
	await(t, e, "each flow moves data", func() bool {
		for _, m := range e.FlowMetrics() {
			if m.FramesRx < 20 {
				return false
			}
		}
		return true
	})
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	if most := uint64(128 << 20); mem.HeapAlloc > most {
		t.Errorf("%d bytes of memory, at most %d", mem.HeapAlloc, most)
	}
	for _, m := range e.FlowMetrics() {
		if m.MessagesFailed != 0 {
			t.Errorf("%+v", m)
		}
	}
	must(t, e.Close())
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}
