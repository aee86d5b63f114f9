package tap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/netlab"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

func TestTAPSingleFrames(t *testing.T) {
	_, tx, rx := tapPair(t, true, true)
	buf := make([]byte, 1<<17)
	for _, a := range [][2]netip.Addr{addr4, addr6} {
		for _, size := range []int{16, 300, 1080, 4152, 8900} {
			f := frame(a[0], a[1], 7, 0, size)
			mustSend(t, tx, f)
			n, seg, ok := recv(t, rx, buf, 2*time.Second)
			if !ok || seg != 0 || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
				t.Fatalf("%v, %d bytes: received %d bytes, segment size %d, %v", a[0], size, n, seg, ok)
			}
		}
	}
}

// TestTAPSuperFrames sends super-frames to a receiver with and without segmentation
// offload. Every segment must be what the sender computed its ICRC over: IP ID
// base plus i, lengths of its own.
func TestTAPSuperFrames(t *testing.T) {
	for _, whole := range []bool{true, false} {
		t.Run(fmt.Sprintf("offload=%v", whole), func(t *testing.T) {
			_, tx, rx := tapPair(t, true, whole)
			if tx.Offload().MaxSegments == 0 {
				t.Skip("the kernel offers no UDP segmentation offload")
			}
			if (rx.Offload().MaxSegments != 0) != whole {
				t.Fatalf("receiver's offload is %+v", rx.Offload())
			}
			for _, a := range [][2]netip.Addr{addr4, addr6} {
				for _, c := range [][2]int{{4152, 15 * 4152}, {1080, 56*1080 - 500}, {96, 60 * 96}, {1080, 1081}} {
					checkSuperFrame(t, tx, rx, frame(a[0], a[1], 0xfffe, c[0], c[1]), whole)
				}
			}
		})
	}
}

func checkSuperFrame(t *testing.T, tx, rx Port, f *rocev2.Frame, whole bool) {
	t.Helper()
	flat := f.AppendTo(nil)
	segs := rocev2.Segments(flat, f.SegSize)
	mustSend(t, tx, f)
	buf := make([]byte, 1<<17)
	var seg int
	for i := 0; i < segs; {
		n, s, ok := recv(t, rx, buf, 2*time.Second)
		if !ok {
			t.Fatalf("segment %d of %d did not come", i, segs)
		}
		if got := rocev2.Segments(buf[:n], s); whole != (got == segs) {
			t.Fatalf("received %d of %d segments at once", got, segs)
		}
		for k := range rocev2.Segments(buf[:n], s) {
			want := rocev2.Segment(nil, flat, f.SegSize, i)
			got := buf[:n]
			if whole {
				got = rocev2.Segment(nil, buf[:n], s, k)
			}
			if _, ok := rx.(*TAP); ok && !whole { // within a machine, as over a veth, checksums stay partial
				checkUDPSum(t, got, f.HdrLen)
			}
			binary.BigEndian.PutUint16(got[f.HdrLen-2:], 0)
			if !bytes.Equal(got, want) {
				t.Fatalf("segment %d:\ngot  %x\nwant %x", i, got[:f.HdrLen+8], want[:f.HdrLen+8])
			}
			i++
		}
		seg = s
	}
	if whole && seg != f.SegSize {
		t.Fatalf("segment size %d, want %d", seg, f.SegSize)
	}
}

// checkUDPSum checks the UDP checksum that the kernel has put into a segment it
// has cut off: other receivers than a NIC of ours look at it. The frames that
// Segment returns have none.
func checkUDPSum(t *testing.T, frame []byte, hdrLen int) {
	t.Helper()
	addrs := frame[26:34]
	if frame[12] == 0x86 {
		addrs = frame[22:54]
	}
	udp := frame[hdrLen-8:]
	if len(udp)%2 != 0 {
		udp = append(udp[:len(udp):len(udp)], 0)
	}
	if s := sum(udp, uint32(17+len(frame)-hdrLen+8)+uint32(sum(addrs, 0))); s != 0xffff {
		t.Fatalf("UDP checksum is wrong: %#x", s)
	}
}

func TestTAPFrameOfManyPieces(t *testing.T) {
	_, tx, rx := tapPair(t, true, true)
	f := frame(addr4[0], addr4[1], 9, 0, 4000)
	body := f.AppendTo(nil)[f.HdrLen:]
	f.Bufs = f.Bufs[:1]
	for i := range body {
		f.Bufs = append(f.Bufs, body[i:i+1])
	}
	mustSend(t, tx, f)
	buf := make([]byte, 1<<17)
	if n, _, ok := recv(t, rx, buf, 2*time.Second); !ok || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
		t.Fatalf("received %d bytes, %v", n, ok)
	}
}

func TestTAPDeleted(t *testing.T) {
	b, tx, rx := tapPair(t, true, true)
	now := clock()
	deleteLink(t, b.NS[0], "roce0")
	if ev := waitFD(tx, time.Second); ev == 0 {
		t.Error("poll does not tell that the device is gone")
	}
	buf := make([]byte, 1<<17)
	if _, _, err := tx.Recv(now, buf); !errors.Is(err, ErrDown) {
		t.Fatalf("Recv: %v, want ErrDown", err)
	}
	if err := tx.Send(now, frame(addr4[0], addr4[1], 1, 0, 16)); !errors.Is(err, ErrDown) {
		t.Fatalf("Send: %v, want ErrDown", err)
	}
	if s := tx.State(); s.Up || s.Err == nil || tx.FD() != -1 || tx.Offload() != (rocev2.Offload{}) {
		t.Fatalf("state %+v, FD %d, offload %+v", s, tx.FD(), tx.Offload())
	}
	if d := tx.NextTimeout().Sub(now); d < minBackoff || d > maxBackoff {
		t.Errorf("next attempt in %v", d)
	}
	until(t, tx, "the device to come back", func() bool { return tx.State().Up })
	if s := tx.Stats(); s.Lost != 1 || s.Reopened != 1 || tx.State().MTU != netlab.MTU || tx.Offload().MaxBytes == 0 {
		t.Errorf("stats %+v, state %+v, offload %+v", s, tx.State(), tx.Offload())
	}
	warmUp(t, tx, rx)
}

// TestTAPDeletedUnderSend loses the device between two sends.
func TestTAPDeletedUnderSend(t *testing.T) {
	b, tx, _ := tapPair(t, true, true)
	deleteLink(t, b.NS[0], "roce0")
	if err := tx.Send(clock(), frame(addr4[0], addr4[1], 1, 0, 16)); !errors.Is(err, ErrDown) {
		t.Fatalf("Send: %v, want ErrDown", err)
	}
}

func TestTAPSetDownAndUp(t *testing.T) {
	b, tx, rx := tapPair(t, true, true)
	changeLink(t, b.NS[0], "roce0", netlink.LinkSetDown)
	if err := tx.Send(clock(), frame(addr4[0], addr4[1], 1, 0, 16)); !errors.Is(err, ErrDown) {
		t.Fatalf("Send: %v, want ErrDown", err)
	}
	if s := tx.State(); s.Up || s.Err == nil || s.MTU != netlab.MTU || tx.FD() != -1 {
		t.Fatalf("state %+v, FD %d", s, tx.FD())
	}
	changeLink(t, b.NS[0], "roce0", netlink.LinkSetUp)
	tx.Poll(clock()) // as on a message of netlink
	if s := tx.State(); !s.Up || s.Err != nil || tx.FD() < 0 {
		t.Fatalf("state %+v, FD %d", s, tx.FD())
	}
	warmUp(t, tx, rx)
	if s := tx.Stats(); s.Lost != 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestTAPNoticesByItself relies on NextTimeout alone.
func TestTAPNoticesByItself(t *testing.T) {
	b, tx, _ := tapPair(t, true, true)
	changeLink(t, b.NS[0], "roce0", netlink.LinkSetDown)
	until(t, tx, "link down", func() bool { return !tx.State().Up })
	changeLink(t, b.NS[0], "roce0", netlink.LinkSetUp)
	until(t, tx, "link up", func() bool { return tx.State().Up })
	changeLink(t, b.NS[0], "roce0", func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1500) })
	until(t, tx, "MTU 1500", func() bool { return tx.State().MTU == 1500 })
}

func TestTAPCarrier(t *testing.T) {
	_, tx, _ := tapPair(t, true, true)
	set := func(v int) {
		if err := unix.IoctlSetPointerInt(tx.dev.fd, unix.TUNSETCARRIER, v); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	tx.Poll(clock())
	if s := tx.State(); s.Up || s.Err == nil {
		t.Errorf("without carrier: %+v", s)
	}
	set(1)
	tx.Poll(clock())
	if s := tx.State(); !s.Up || s.Err != nil {
		t.Errorf("with carrier: %+v", s)
	}
}

// TestTAPRenamed follows a device whose name changes.
func TestTAPRenamed(t *testing.T) {
	b, tx, rx := tapPair(t, true, true)
	changeLink(t, b.NS[0], "roce0", netlink.LinkSetDown)
	changeLink(t, b.NS[0], "roce0", func(l netlink.Link) error { return netlink.LinkSetName(l, "other") })
	changeLink(t, b.NS[0], "other", netlink.LinkSetUp)
	tx.Poll(clock())
	if !tx.State().Up || tx.Name() != "other" {
		t.Fatalf("state %+v, name %s", tx.State(), tx.Name())
	}
	warmUp(t, tx, rx)
}

// TestTAPNetnsDeleted deletes the namespace by name, which leaves the device
// alive, and makes it anew.
func TestTAPNetnsDeleted(t *testing.T) {
	name := fmt.Sprintf("roced-test-%d", os.Getpid())
	create := func() error {
		return inThread(func() error {
			h, err := netns.NewNamed(name)
			if err == nil {
				err = h.Close()
			}
			return err
		})
	}
	if err := create(); errors.Is(err, os.ErrPermission) {
		t.Skipf("needs root to name a namespace: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	exists := true
	t.Cleanup(func() {
		if exists {
			netns.DeleteNamed(name)
		}
	})
	p := openTAP(t, TAPConfig{Name: "roce%d", Netns: name, MTU: 1500})
	if p.Name() != "roce0" || !p.State().Up || p.State().MTU != 1500 || p.Offload() != (rocev2.Offload{}) {
		t.Fatalf("name %s, state %+v, offload %+v", p.Name(), p.State(), p.Offload())
	}
	if err := netns.DeleteNamed(name); err != nil {
		t.Fatal(err)
	}
	exists = false
	p.Poll(clock())
	if p.State().Up || p.FD() != -1 {
		t.Fatalf("state %+v, FD %d", p.State(), p.FD())
	}
	until(t, p, "a failed attempt", func() bool { return errors.Is(p.State().Err, os.ErrNotExist) })
	if err := create(); err != nil {
		t.Fatal(err)
	}
	exists = true
	until(t, p, "the namespace to come back", func() bool { return p.State().Up })
}

// TestTAPBackoff spaces attempts out and closes a port while one is on its way.
func TestTAPBackoff(t *testing.T) {
	b, tx, _ := tapPair(t, true, true)
	tx.cfg.Netns = "/nowhere/at all"
	deleteLink(t, b.NS[0], "roce0")
	now := clock()
	tx.Poll(now)
	var waits []time.Duration
	for len(waits) < 7 {
		waits = append(waits, tx.NextTimeout().Sub(now))
		now = tx.NextTimeout()
		tx.Poll(now)
		for tx.opening != nil {
			time.Sleep(time.Millisecond)
			tx.Poll(now)
		}
	}
	for i, w := range waits {
		if want := min(minBackoff<<i, maxBackoff); w != want {
			t.Errorf("wait %d is %v, want %v", i, w, want)
		}
	}
	tx.Poll(tx.NextTimeout())
	if err := tx.Close(); err != nil || tx.NextTimeout() != mono.Never {
		t.Fatal(err)
	}
}

func TestTAPFaultsOfConfig(t *testing.T) {
	b, tx, _ := tapPair(t, true, true)
	ns := b.NS[0].Path()
	for _, c := range []TAPConfig{
		{Name: ""},
		{Name: "much too long a name", Netns: ns},
		{Name: "roce1", Netns: "no such namespace"},
		{Name: "roce1", Netns: "/etc/passwd"},
		{Name: "roce1", Netns: ns, Bridge: "nobridge"},
		{Name: "roce1", Netns: ns, MTU: 1 << 20},
		{Name: tx.Name(), Netns: ns},
		{Name: netlab.Bridge, Netns: ns},
	} {
		p, err := OpenTAP(c)
		if err == nil {
			p.Close()
			t.Errorf("%+v: no error", c)
		}
		t.Log(err)
	}
}

func TestTAPAllocations(t *testing.T) {
	_, tx, rx := tapPair(t, true, true)
	super := frame(addr4[0], addr4[1], 0, 1080, 20*1080)
	single := frame(addr4[0], addr4[1], 0, 0, 1080)
	buf := make([]byte, 1<<17)
	allocs := testing.AllocsPerRun(200, func() {
		now := clock()
		if tx.Send(now, super) != nil || tx.Send(now, single) != nil {
			t.Error("not sent")
		}
		for {
			if _, _, err := rx.Recv(now, buf); err != nil {
				return
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// BenchmarkTAPRaw sends frames of 4152 bytes of UDP payload one by one and as
// super-frames of 15, and compares.
func BenchmarkTAPRaw(b *testing.B) {
	_, tx, rx := tapPair(b, true, true)
	gbps := map[int]float64{}
	for _, segs := range []int{1, 15} {
		b.Run(fmt.Sprintf("x%d", segs), func(b *testing.B) {
			seg := 0
			if segs > 1 {
				seg = 4152
			}
			f := frame(addr4[0], addr4[1], 0, seg, segs*4152)
			got := pump(b, tx, rx, f)
			gbps[segs] = float64(got) * 8 / b.Elapsed().Seconds() / 1e9
			b.ReportMetric(gbps[segs], "Gb/s")
			b.ReportMetric(100*float64(got)/float64(b.N*segs*4152), "%received")
			if segs > 1 {
				b.ReportMetric(gbps[segs]/gbps[1], "times-single")
			}
			b.SetBytes(int64(segs * 4152))
		})
	}
}

// pump sends b.N frames while another thread receives and returns the payload
// that has arrived.
func pump(b *testing.B, tx, rx Port, f *rocev2.Frame) (got int) {
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		buf := make([]byte, 1<<17)
		n := 0
		for {
			m, _, err := rx.Recv(clock(), buf)
			switch {
			case err == nil:
				n += m - f.HdrLen
				continue
			case waitFD(rx, 10*time.Millisecond) != 0:
				continue
			}
			select {
			case <-stop:
				done <- n
				return
			default:
			}
		}
	}()
	b.ResetTimer()
	for range b.N {
		mustSend(b, tx, f)
	}
	b.StopTimer()
	close(stop)
	return <-done
}

// deleteLink deletes a device of a namespace.
func deleteLink(t *testing.T, n *netlab.Namespace, name string) {
	t.Helper()
	changeLink(t, n, name, netlink.LinkDel)
}

func changeLink(t *testing.T, n *netlab.Namespace, name string, change func(netlink.Link) error) {
	t.Helper()
	err := n.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return change(l)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// inThread runs f on a thread of its own, which may change its namespace.
func inThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}
