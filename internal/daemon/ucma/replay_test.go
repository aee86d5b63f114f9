package ucma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/rocev2"
)

// Offsets in a frame with a management datagram over IPv4.
const (
	ipAt  = 14
	udpAt = ipAt + 20
	bthAt = udpAt + 8
	madAt = bthAt + 12 + 8
)

// isMAD reports whether a frame is a datagram to queue pair 1.
func isMAD(f []byte) bool {
	return len(f) >= madAt+mad.Len && f[12] == 8 && f[13] == 0 && f[ipAt+9] == 17 &&
		binary.BigEndian.Uint16(f[udpAt+2:]) == 4791 && binary.BigEndian.Uint32(f[bthAt+4:]) == 1
}

// comparable returns a frame from IP to the end of the MAD without its random parts: IP identification, both
// checksums, transaction and communication IDs, and the PSNs that the sides have chosen.
func comparable(f []byte) []byte {
	f = bytes.Clone(f[:madAt+mad.Len])
	clear(f[ipAt+4 : ipAt+6])
	clear(f[ipAt+10 : ipAt+12])
	clear(f[udpAt+6 : udpAt+8])
	m := f[madAt:]
	clear(m[8:16])
	body := m[mad.HeaderLen:]
	switch mad.Attr(binary.BigEndian.Uint16(m[16:])) {
	case mad.AttrREQ:
		clear(body[:4])
		clear(body[44:47])
	case mad.AttrREP:
		clear(body[:8])
		clear(body[20:23])
	default:
		clear(body[:8])
	}
	return f[ipAt:]
}

// recorded returns the management datagrams that Linux exchanged for rping.
func recorded(t *testing.T) (out [][]byte) {
	t.Helper()
	fd, err := os.Open("../../../bth/testdata/cm_rping.pcap")
	must(t, err)
	defer fd.Close()
	r, err := pcapng.NewReader(fd)
	must(t, err)
	for {
		var f pcapng.Frame
		err := r.Next(&f)
		if errors.Is(err, io.EOF) {
			return out
		}
		must(t, err)
		if isMAD(f.Data) {
			out = append(out, comparable(f.Data))
		}
	}
}

// recorder stores the management datagrams that a NIC shows.
type recorder struct {
	mu   sync.Mutex
	mads [][]byte
}

func (r *recorder) Frame(_ mono.Time, _ link.Direction, f []byte, _ string) {
	if isMAD(f) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mads = append(r.mads, comparable(f))
	}
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mads)
}

// TestFramesOfRping repeats the commands of rping with the ports and queue pair numbers of the capture. The frames
// equal those of Linux, byte by byte.
func TestFramesOfRping(t *testing.T) {
	want := recorded(t)
	if len(want) != 5 {
		t.Fatalf("%d management datagrams in the capture, not 5", len(want))
	}
	dir := t.TempDir()
	a, b := newHost(t, dir, 0), newHost(t, dir, 1)
	var rec recorder
	must(t, a.nics[0].do(func(_ mono.Time, core *rocev2.NIC) error { core.SetObserver(&rec); return nil }))
	c, s := open(t, a.cfg.Path), open(t, b.cfg.Path)

	param := rdmacm.ConnParam{QPNum: 0x11, ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7, Valid: 1}
	s.listenOn(1, rdmacm.PSTCP, "198.18.0.2:7471", 3)
	id := c.create(2, rdmacm.PSTCP)
	c.bindTo(id, "198.18.0.1:59271")
	dst, n := storage("198.18.0.2:7471")
	c.do(rdmacm.CmdResolveAddr, rdmacm.ResolveAddr{ID: id, TimeoutMS: 15000, DstSize: n, DstAddr: dst})
	c.next(rdmacm.EventAddrResolved)
	c.do(rdmacm.CmdResolveRoute, rdmacm.ResolveRoute{ID: id, TimeoutMS: 2000})
	c.next(rdmacm.EventRouteResolved)
	c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param})
	req := s.next(rdmacm.EventConnectRequest).ID
	s.do(rdmacm.CmdAccept, rdmacm.Accept{UID: 3, ID: req, ConnParam: param})
	c.next(rdmacm.EventConnectResponse)
	c.do(rdmacm.CmdAccept, rdmacm.Accept{ID: id})
	s.next(rdmacm.EventEstablished)
	c.do(rdmacm.CmdDisconnect, rdmacm.Disconnect{ID: id})
	s.next(rdmacm.EventDisconnected)
	s.do(rdmacm.CmdDisconnect, rdmacm.Disconnect{ID: req})
	c.next(rdmacm.EventDisconnected)

	// The program gets the last event before the observer gets the frame.
	for deadline := time.Now().Add(10 * time.Second); rec.count() < len(want) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if len(rec.mads) != len(want) {
		t.Fatalf("%d management datagrams, want %d", len(rec.mads), len(want))
	}
	for i := range want {
		for k := range want[i] {
			if got := rec.mads[i][k]; got != want[i][k] {
				t.Errorf("datagram %d: byte %d of the packet (%d of the MAD) is %#x, Linux has %#x", i, k, k-(madAt-ipAt), got, want[i][k])
			}
		}
	}
}
