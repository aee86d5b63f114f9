package shard

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/rocev2"
)

// badPort delivers one frame and returns err from Send.
type badPort struct {
	frame []byte
	err   error
	asked atomic.Bool // Offload was called after a send
	used  atomic.Bool
}

func (p *badPort) Recv(mono.Time, []byte) ([]byte, int, error) {
	if p.frame == nil {
		return nil, 0, port.ErrAgain
	}
	frame := p.frame
	p.frame = nil
	return frame, 0, nil
}

func (p *badPort) Send(mono.Time, *link.Frame) error {
	p.used.Store(true)
	return p.err
}

func (p *badPort) Offload() link.Offload {
	p.asked.Store(p.asked.Load() || p.used.Load())
	return link.Offload{}
}

func (p *badPort) NextTimeout() mono.Time { return mono.Never }
func (p *badPort) FD() int                { return -1 }
func (p *badPort) Close() error           { return nil }

func nicOn(t *testing.T, port port.Port, shared bool, ask func(rocev2.Query)) *NIC {
	t.Helper()
	addrs := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
	nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500, Addrs: addrs,
		Shared: shared, Routes: addrs})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{NIC: nic, Port: port, Ask: ask})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestOffloadIsFollowed checks that the shard reads the port's offloads again after the port has refused or accepted
// a frame.
func TestOffloadIsFollowed(t *testing.T) {
	const request = "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x02\x08\x06" + // an ARP request for us
		"\x00\x01\x08\x00\x06\x04\x00\x01\x02\x00\x00\x00\x00\x02\x0a\x00\x00\x02\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x01"
	for _, answer := range []error{nil, errors.New("too much for this port")} {
		p := &badPort{frame: []byte(request), err: answer}
		s := nicOn(t, p, false, nil)
		for deadline := time.Now().Add(10 * time.Second); !p.asked.Load(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not asked; a frame was sent: %v", p.used.Load())
			}
		}
		if st, err := s.Stats(context.Background()); err != nil || (st.PortErrs == 0) != (answer == nil) {
			t.Errorf("%+v, %v", st, err)
		}
	}
}

// TestQuestions checks that the shard forwards the queries of a shared NIC repeatedly.
func TestQuestions(t *testing.T) {
	asked := make(chan rocev2.Query, 100)
	s := nicOn(t, &badPort{}, true, func(q rocev2.Query) {
		select {
		case asked <- q:
		default:
		}
	})
	dst := inet.GIDOf(netip.MustParseAddr("10.0.0.2"))
	err := s.Do(context.Background(), func(now mono.Time, n *rocev2.NIC) {
		pd, err := n.AllocPD(nil)
		if err == nil {
			_, err = n.CreateAH(now, pd, rocev2.AddressVector{DGID: dst}, nil)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		select {
		case q := <-asked:
			if q.Dst != dst {
				t.Errorf("asks for %v", q.Dst.Addr())
			}
		case <-time.After(10 * time.Second):
			t.Fatal("not asked")
		}
	}
}
