package udp

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// sized returns the packets of a super-frame: count packets of size bytes, except for the last one.
func sized(count, size, last int) (packets [][]byte) {
	for i := range count - 1 {
		packets = append(packets, packet(i, size))
	}
	return append(packets, packet(count-1, last))
}

// TestApart sends the datagrams of a super-frame as separate messages with IP ID 0. It covers a peer that may not know
// the IP IDs, and the configuration option. IPv6 has no IP ID.
func TestApart(t *testing.T) {
	_, tx, rx := openBoth(t)
	if err := unix.SetsockoptInt(rx.locals[0].rx, unix.IPPROTO_UDP, unix.UDP_GRO, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		offload Offload
		marked  bool
		joined  bool
	}{{OffloadKnown, false, true}, {OffloadKnown, true, false}, {OffloadAlways, true, true}, {OffloadNever, false, false}} {
		tx.cfg.Offload, tx.single = c.offload, c.offload == OffloadNever
		for _, packets := range [][][]byte{sized(2, 4096, 0), sized(15, 4096, 4096), sized(128, 256, 100), sized(128, 12, 4)} {
			f := frame(addr4[0], addr4[1], 0xc000, 0x6a, packets...)
			f.Apart = c.marked
			mustSend(t, tx, f)
			for i, s := range recvAll(t, rx, len(packets)) {
				if !c.joined { // the port's ID 0 is correct
					check(t, s, addr4[0], addr4[1], 0xc000, 0x6a, packets[i])
				} else if err := bth.CheckICRC(s[ethLen:]); (err == nil) != (i == 0) {
					t.Errorf("%+v: segment %d with ID 0: %v", c, i, err)
				}
			}
		}
	}
}

// TestApartFromPiecesOfAnySize splits ICRCs over several buffers, and uses more buffers than a message can have.
func TestApartFromPiecesOfAnySize(t *testing.T) {
	_, tx, rx := openBoth(t)
	tx.single = true
	packets := sized(40, 64, 20)
	for _, size := range []int{1, 3, 50, 77, 1000} {
		f := frame(addr4[0], addr4[1], 0xc000, 0, packets...)
		flat := appendAll(nil, f.Bufs)
		f.Bufs = append(f.Bufs[:0:0], flat[:f.HdrLen+5])
		for flat = flat[f.HdrLen+5:]; len(flat) > 0; flat = flat[min(size, len(flat)):] {
			f.Bufs = append(f.Bufs, flat[:min(size, len(flat))])
		}
		mustSend(t, tx, f)
		for i, s := range recvAll(t, rx, len(packets)) {
			check(t, s, addr4[0], addr4[1], 0xc000, 0, packets[i])
		}
	}
}

// TestNumberedAlone sends a segment of a super-frame as a single frame, as fault rules do. Its ICRC must be valid for the IP
// ID of the kernel.
func TestNumberedAlone(t *testing.T) {
	_, tx, rx := openBoth(t)
	whole := appendAll(nil, frame(addr4[0], addr4[1], 0xc000, 0, sized(3, 500, 500)...).Bufs)
	for i := range 3 {
		one := link.Segment(nil, whole, 500+bth.BTHLen+bth.ICRCLen, i)
		mustSend(t, tx, &link.Frame{Bufs: [][]byte{one}, Len: len(one), HdrLen: ethLen + ipv4Len + udpLen})
		check(t, recvAll(t, rx, 1)[0], addr4[0], addr4[1], 0xc000, 0, packet(i, 500))
	}
}

// TestApartWithoutRoom retries a frame after room for only a part of it. The port continues where it stopped.
func TestApartWithoutRoom(t *testing.T) {
	b, tx, rx := openBoth(t)
	tx.single = true
	onVeth(t, b.NS[0], func(l netlink.Link) error {
		return netlink.QdiscAdd(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       4 << 20, Buffer: 64 << 10, Limit: 1 << 20,
		})
	})
	mustSend(t, tx, frame(addr4[0], addr4[1], 0xc000, 0, packet(0, 4)))
	recvAll(t, rx, 1)
	if err := unix.SetsockoptInt(tx.locals[0].list[0].fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 20_000); err != nil {
		t.Fatal(err)
	}
	got, partly := 0, 0
	take := func() {
		for {
			segments := recv(t, rx, 0)
			if segments == nil {
				return
			}
			for _, s := range segments {
				if place := int(binary.BigEndian.Uint32(s[ethLen+ipv4Len+udpLen+8:])); place != got%40 {
					t.Fatalf("%d comes as number %d", place, got)
				}
				got++
			}
		}
	}
	const frames = 10
	f := frame(addr4[0], addr4[1], 0xc000, 0, sized(40, 1000, 1000)...)
	for range frames {
		for deadline := clock().Add(porttest.Limit); ; {
			err := tx.Send(clock(), f)
			if err == nil {
				break
			}
			if !errors.Is(err, port.ErrAgain) || clock() > deadline {
				t.Fatal(err)
			}
			if f.Begun > 0 {
				partly++
			}
			waitFD(tx, max(0, tx.NextTimeout().Sub(clock())))
			take()
		}
	}
	for deadline := clock().Add(porttest.Limit); got < frames*40 && clock() < deadline; time.Sleep(time.Millisecond) {
		take()
	}
	if got != frames*40 || partly == 0 {
		t.Errorf("%d of %d datagrams, partly sent %d times, %+v", got, frames*40, partly, tx.Stats())
	}
}
