package tap

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

func TestSingleFrames(t *testing.T) {
	_, tx, rx := pair(t, true, true)
	buf := make([]byte, 1<<17)
	for _, a := range [][2]netip.Addr{porttest.Addr4, porttest.Addr6} {
		for _, size := range []int{16, 300, 1080, 4152, 8900} {
			f := porttest.Frame(a[0], a[1], 7, 0, size)
			porttest.MustSend(t, tx, f)
			n, seg, ok := porttest.Recv(t, rx, buf, porttest.Limit)
			if !ok || seg != 0 || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
				t.Fatalf("%v, %d bytes: received %d bytes, segment size %d, %v", a[0], size, n, seg, ok)
			}
		}
	}
}

// TestSuperFrames sends super-frames to a receiver with and without segmentation offload. See porttest.CheckSuperFrame.
func TestSuperFrames(t *testing.T) {
	for _, whole := range []bool{true, false} {
		t.Run(fmt.Sprintf("offload=%v", whole), func(t *testing.T) {
			_, tx, rx := pair(t, true, whole)
			if tx.Offload().MaxSegments == 0 {
				t.Skip("the kernel offers no UDP segmentation offload")
			}
			if (rx.Offload().MaxSegments != 0) != whole {
				t.Fatalf("receiver's offload is %+v", rx.Offload())
			}
			for _, a := range [][2]netip.Addr{porttest.Addr4, porttest.Addr6} {
				for _, c := range [][2]int{{4152, 15 * 4152}, {1080, 56*1080 - 500}, {96, 60 * 96}, {1080, 1081}} {
					porttest.CheckSuperFrame(t, tx, rx, porttest.Frame(a[0], a[1], 0xfffe, c[0], c[1]), whole, !whole)
				}
			}
		})
	}
}

// TestVLAN: frames arrive with their tag, also one that carries only a priority.
func TestVLAN(t *testing.T) {
	_, tx, rx := pair(t, true, true)
	buf := make([]byte, 1<<17)
	for _, tci := range [][]byte{{0, 0}, {0xa0, 0}, {0xa0, 5}} {
		f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 0, 300).AppendTo(nil)
		f = slices.Concat(f[:12], []byte{0x81, 0}, tci, f[12:])
		porttest.MustSend(t, tx, &link.Frame{Bufs: [][]byte{f}, Len: len(f)})
		if n, _, ok := porttest.Recv(t, rx, buf, porttest.Limit); !ok || !bytes.Equal(buf[:n], f) {
			t.Errorf("tag %x: received %x, %v", tci, buf[:n], ok)
		}
	}
}

func TestFrameOfManyPieces(t *testing.T) {
	_, tx, rx := pair(t, true, true)
	f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 9, 0, 4000)
	body := f.AppendTo(nil)[f.HdrLen:]
	f.Bufs = f.Bufs[:1]
	for i := range body {
		f.Bufs = append(f.Bufs, body[i:i+1])
	}
	porttest.MustSend(t, tx, f)
	buf := make([]byte, 1<<17)
	if n, _, ok := porttest.Recv(t, rx, buf, porttest.Limit); !ok || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
		t.Fatalf("received %d bytes, %v", n, ok)
	}
}

func TestDeleted(t *testing.T) {
	b, tx, rx := pair(t, true, true)
	now := porttest.Clock()
	porttest.DeleteLink(t, b.NS[0], "roce0")
	if ev := porttest.WaitFD(tx, porttest.Limit); ev == 0 {
		t.Error("poll does not tell that the device is gone")
	}
	buf := make([]byte, 1<<17)
	if _, _, err := tx.Recv(now, buf); !errors.Is(err, port.ErrDown) {
		t.Fatalf("Recv: %v, want port.ErrDown", err)
	}
	if err := tx.Send(now, porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 1, 0, 16)); !errors.Is(err, port.ErrDown) {
		t.Fatalf("Send: %v, want port.ErrDown", err)
	}
	if s := tx.State(); s.Up || s.Err == nil || tx.FD() != -1 || tx.Offload() != (link.Offload{}) {
		t.Fatalf("state %+v, FD %d, offload %+v", s, tx.FD(), tx.Offload())
	}
	if d := tx.NextTimeout().Sub(now); d < port.MinBackoff || d > port.MaxBackoff {
		t.Errorf("next attempt in %v", d)
	}
	porttest.Until(t, tx, "the device to come back", func() bool { return tx.State().Up })
	if s := tx.Stats(); s.Lost != 1 || s.Reopened != 1 || tx.State().MTU != namespace.MTU || tx.Offload().MaxBytes == 0 {
		t.Errorf("stats %+v, state %+v, offload %+v", s, tx.State(), tx.Offload())
	}
	porttest.WarmUp(t, tx, rx)
}

// TestDeletedUnderSend deletes the device between two sends.
func TestDeletedUnderSend(t *testing.T) {
	b, tx, _ := pair(t, true, true)
	porttest.DeleteLink(t, b.NS[0], "roce0")
	if err := tx.Send(porttest.Clock(), porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 1, 0, 16)); !errors.Is(err, port.ErrDown) {
		t.Fatalf("Send: %v, want port.ErrDown", err)
	}
}

func TestSetDownAndUp(t *testing.T) {
	b, tx, rx := pair(t, true, true)
	porttest.ChangeLink(t, b.NS[0], "roce0", netlink.LinkSetDown)
	if err := tx.Send(porttest.Clock(), porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 1, 0, 16)); !errors.Is(err, port.ErrDown) {
		t.Fatalf("Send: %v, want port.ErrDown", err)
	}
	if s := tx.State(); s.Up || s.Err == nil || s.MTU != namespace.MTU || tx.FD() != -1 {
		t.Fatalf("state %+v, FD %d", s, tx.FD())
	}
	porttest.ChangeLink(t, b.NS[0], "roce0", netlink.LinkSetUp)
	tx.Poll(porttest.Clock()) // as after a netlink message
	if s := tx.State(); !s.Up || s.Err != nil || tx.FD() < 0 {
		t.Fatalf("state %+v, FD %d", s, tx.FD())
	}
	porttest.WarmUp(t, tx, rx)
	if s := tx.Stats(); s.Lost != 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestNoticesByItself checks that the port detects changes with NextTimeout alone.
func TestNoticesByItself(t *testing.T) {
	b, tx, _ := pair(t, true, true)
	porttest.ChangeLink(t, b.NS[0], "roce0", netlink.LinkSetDown)
	porttest.Until(t, tx, "link down", func() bool { return !tx.State().Up })
	porttest.ChangeLink(t, b.NS[0], "roce0", netlink.LinkSetUp)
	porttest.Until(t, tx, "link up", func() bool { return tx.State().Up })
	porttest.ChangeLink(t, b.NS[0], "roce0", func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1500) })
	porttest.Until(t, tx, "MTU 1500", func() bool { return tx.State().MTU == 1500 })
}

func TestCarrier(t *testing.T) {
	_, tx, _ := pair(t, true, true)
	set := func(v int) {
		if err := unix.IoctlSetPointerInt(tx.dev.fd, unix.TUNSETCARRIER, v); err != nil {
			t.Fatal(err)
		}
	}
	set(0)
	tx.Poll(porttest.Clock())
	if s := tx.State(); s.Up || s.Err == nil {
		t.Errorf("without carrier: %+v", s)
	}
	set(1)
	tx.Poll(porttest.Clock())
	if s := tx.State(); !s.Up || s.Err != nil {
		t.Errorf("with carrier: %+v", s)
	}
}

// TestRenamed follows a device whose name changes.
func TestRenamed(t *testing.T) {
	b, tx, rx := pair(t, true, true)
	porttest.ChangeLink(t, b.NS[0], "roce0", netlink.LinkSetDown)
	porttest.ChangeLink(t, b.NS[0], "roce0", func(l netlink.Link) error { return netlink.LinkSetName(l, "other") })
	porttest.ChangeLink(t, b.NS[0], "other", netlink.LinkSetUp)
	tx.Poll(porttest.Clock())
	if !tx.State().Up || tx.Name() != "other" {
		t.Fatalf("state %+v, name %s", tx.State(), tx.Name())
	}
	porttest.WarmUp(t, tx, rx)
}

// TestNetnsDeleted deletes the namespace by name, which does not delete the device, and creates a new one with the same
// name.
func TestNetnsDeleted(t *testing.T) {
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
	p := open(t, Config{Name: "roce%d", Netns: name, MTU: 1500})
	if p.Name() != "roce0" || !p.State().Up || p.State().MTU != 1500 || p.Offload() != (link.Offload{}) {
		t.Fatalf("name %s, state %+v, offload %+v", p.Name(), p.State(), p.Offload())
	}
	if err := netns.DeleteNamed(name); err != nil {
		t.Fatal(err)
	}
	exists = false
	p.Poll(porttest.Clock())
	if p.State().Up || p.FD() != -1 {
		t.Fatalf("state %+v, FD %d", p.State(), p.FD())
	}
	porttest.Until(t, p, "a failed attempt", func() bool { return errors.Is(p.State().Err, os.ErrNotExist) })
	if err := create(); err != nil {
		t.Fatal(err)
	}
	exists = true
	porttest.Until(t, p, "the namespace to come back", func() bool { return p.State().Up })
}

// TestBackoff checks the intervals between attempts, and closes a port during an attempt.
func TestBackoff(t *testing.T) {
	b, tx, _ := pair(t, true, true)
	tx.cfg.Netns = "/nowhere/at all"
	porttest.DeleteLink(t, b.NS[0], "roce0")
	now := porttest.Clock()
	tx.Poll(now)
	var waits []time.Duration
	for len(waits) < 7 {
		waits = append(waits, tx.NextTimeout().Sub(now))
		now = tx.NextTimeout()
		tx.Poll(now)
		for tx.reopening.Active() {
			time.Sleep(time.Millisecond)
			tx.Poll(now)
		}
	}
	for i, w := range waits {
		if want := min(port.MinBackoff<<i, port.MaxBackoff); w != want {
			t.Errorf("wait %d is %v, want %v", i, w, want)
		}
	}
	tx.Poll(tx.NextTimeout())
	if err := tx.Close(); err != nil || tx.NextTimeout() != mono.Never {
		t.Fatal(err)
	}
}

func TestFaultsOfConfig(t *testing.T) {
	b, tx, _ := pair(t, true, true)
	ns := b.NS[0].Path()
	for _, c := range []Config{
		{Name: ""},
		{Name: "much too long a name", Netns: ns},
		{Name: "roce1", Netns: "no such namespace"},
		{Name: "roce1", Netns: "/etc/passwd"},
		{Name: "roce1", Netns: ns, Bridge: "nobridge"},
		{Name: "roce1", Netns: ns, MTU: 1 << 20},
		{Name: tx.Name(), Netns: ns},
		{Name: netlab.Bridge, Netns: ns},
	} {
		p, err := Open(c)
		if err == nil {
			p.Close()
			t.Errorf("%+v: no error", c)
		}
		t.Log(err)
	}
}

func TestAllocations(t *testing.T) {
	_, tx, rx := pair(t, true, true)
	super := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 0, 1080, 20*1080)
	single := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 0, 0, 1080)
	buf := make([]byte, 1<<17)
	allocs := testing.AllocsPerRun(200, func() {
		now := porttest.Clock()
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

// BenchmarkTAPRaw compares single frames of 4152 bytes of UDP payload with super-frames of 15 such frames.
func BenchmarkTAPRaw(b *testing.B) {
	_, tx, rx := pair(b, true, true)
	gbps := map[int]float64{}
	for _, segs := range []int{1, 15} {
		b.Run(fmt.Sprintf("x%d", segs), func(b *testing.B) {
			seg := 0
			if segs > 1 {
				seg = 4152
			}
			f := porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 0, seg, segs*4152)
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

// pump sends b.N frames while another thread receives, and returns the received bytes of payload.
func pump(b *testing.B, tx, rx port.Port, f *link.Frame) (got int) {
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		buf := make([]byte, 1<<17)
		n := 0
		for {
			frame, _, err := rx.Recv(porttest.Clock(), buf)
			switch {
			case err == nil:
				n += len(frame) - f.HdrLen
				continue
			case porttest.WaitFD(rx, 10*time.Millisecond) != 0:
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
		porttest.MustSend(b, tx, f)
	}
	b.StopTimer()
	close(stop)
	return <-done
}

// inThread runs f on a new thread, which may change its namespace.
func inThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// pair opens a TAP in each namespace of a new bed.
func pair(t testing.TB, offload0, offload1 bool) (b *netlab.Bed, tx, rx *Port) {
	t.Helper()
	b = porttest.Bed(t)
	tx = open(t, Config{Name: "roce0", Netns: b.NS[0].Path(), Bridge: netlab.Bridge, MTU: namespace.MTU, Offload: offload0})
	rx = open(t, Config{Name: "roce0", Netns: b.NS[1].Path(), Bridge: netlab.Bridge, MTU: namespace.MTU, Offload: offload1})
	porttest.WarmUp(t, tx, rx)
	porttest.WarmUp(t, rx, tx)
	return b, tx, rx
}

func open(t testing.TB, c Config) *Port {
	t.Helper()
	p, err := Open(c)
	if err != nil {
		if unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK) != nil {
			t.Skipf("needs access to /dev/net/tun: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if p.OffloadNote() != "" {
		t.Logf("offload: %s", p.OffloadNote())
	}
	return p
}
