package dut

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
)

// TestTags: a frame that arrives on an interface has its VLAN tag, which the kernel removes. Frames without one have none.
func TestTags(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	var ends [2]*wire
	for i := range ends {
		if err := b.NS[i].Do(func() (err error) {
			ends[i], err = openInterface(netlab.Veth)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer ends[i].close()
	}
	plain := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 300).AppendTo(nil)
	for _, want := range [][]byte{plain, retag(plain, tagOf(7)), retag(plain, []byte{0x81, 0, 0xa0, 0}), retag(plain, []byte{0x88, 0xa8, 0, 9})} {
		if err := ends[0].send(want); err != nil {
			t.Fatal(err)
		}
		if got := next(t, ends[1]); !slices.ContainsFunc(got, func(f []byte) bool { return bytes.Equal(f, want) }) {
			t.Errorf("%x arrives as %x", want[:20], got)
		}
	}
	if ends[1].mtu < 1500 {
		t.Errorf("MTU %d", ends[1].mtu)
	}
}

// next returns the frames of the next datagram of RoCEv2.
func next(t *testing.T, l *wire) [][]byte {
	t.Helper()
	buf := make([]byte, 65600)
	for {
		if ready, err := l.wait(5 * time.Second); !ready || err != nil {
			t.Fatal("nothing arrives", err)
		}
		r, err := l.recv(buf)
		if err != nil {
			t.Fatal(err)
		}
		if frames := l.split(bytes.Clone(buf[:r.n]), r.tag); !r.own && len(frames) > 0 && len(frames[0]) > 300 {
			return frames
		}
	}
}

// TestResolve: the tester answers in its VLAN only.
func TestResolve(t *testing.T) {
	request := arp(1, dutMAC, [6]byte{255, 255, 255, 255, 255, 255}, dutIP, testerIP, [6]byte{})
	for _, c := range []struct {
		vlan    uint16
		tag     []byte
		answers bool
	}{{0, nil, true}, {0, tagOf(7), false}, {7, tagOf(7), true}, {7, []byte{0x81, 0, 0xe0, 7}, true}, {7, nil, false}, {7, tagOf(8), false}, {0, []byte{0x81, 0, 0xa0, 0}, true}} {
		reply := answer(retag(request, c.tag), c.vlan, testerMAC, testerIP, testerIP6)
		if (reply != nil) != c.answers {
			t.Errorf("VLAN %d, tag %x: %x", c.vlan, c.tag, reply)
		}
		if _, tag := untag(reply); c.answers && !bytes.Equal(tag, tagOf(c.vlan)) {
			t.Errorf("VLAN %d: the answer has the tag %x", c.vlan, tag)
		}
	}
}
