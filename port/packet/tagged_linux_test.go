package packet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// TestAll: a port that receives all frames gets those to other Ethernet addresses and other UDP ports, with their tags.
func TestAll(t *testing.T) {
	b := porttest.DirectBed(t, [2]bool{true, true})
	var ports [2]*Port
	for i := range ports {
		var err error
		if ports[i], err = Open(Config{Interface: netlab.Veth, Netns: b.NS[i].Path(), All: true}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ports[i].Close() })
	}
	plain := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 64).AppendTo(nil)
	copy(plain, []byte{2, 99, 99, 99, 99, 99})
	tag := func(tpid, tci uint16) []byte {
		return slices.Insert(slices.Clone(plain), 12, byte(tpid>>8), byte(tpid), byte(tci>>8), byte(tci))
	}
	other := slices.Clone(plain)
	binary.BigEndian.PutUint16(other[36:], 9)
	buf := make([]byte, 1<<17)
	for _, want := range [][]byte{plain, tag(0x8100, 3<<13|100), tag(0x88a8, 5), tag(0x8100, 6<<13), other} {
		porttest.MustSend(t, ports[0], &link.Frame{Bufs: [][]byte{want}, Len: len(want)})
		for { // the kernel sends frames of its own
			frame, _, err := ports[1].Recv(porttest.Clock(), buf)
			if errors.Is(err, port.ErrAgain) {
				if porttest.WaitFD(ports[1], porttest.Limit) == 0 {
					t.Fatalf("no frame %x", want[:20])
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(frame, want) {
				break
			}
		}
	}
}
