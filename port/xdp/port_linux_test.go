package xdp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/xsk"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// modes are the modes that a veth supports.
var modes = []struct {
	name string
	cfg  Config
}{
	{"native", Config{Attach: AttachNative}},
	{"generic", Config{Attach: AttachGeneric, Copy: CopyAlways}},
}

// TestFrames sends frames of all sizes in both directions, in each mode.
func TestFrames(t *testing.T) {
	for _, m := range modes {
		for _, queues := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/%d queues", m.name, queues), func(t *testing.T) {
				b := veth(t, 9000, queues)
				ports := [2]*Port{open(t, b, 0, m.cfg), open(t, b, 1, m.cfg)}
				if want := fmt.Sprintf("%s, copy, queues: %d", m.name, queues); ports[0].Mode() != want {
					t.Errorf("mode %q, want %q", ports[0].Mode(), want)
				}
				for from := range 2 {
					for _, size := range []int{16, 1000, 3700, 3798, 3799, 3840, 4096, 4152, 8000, 8940} {
						for _, six := range []bool{false, true} {
							f := roce(from, six, uint16(size), size)
							send(t, ports[from], f)
							expect(t, ports[1-from], f)
						}
					}
				}
			})
		}
	}
}

// TestVLAN: a frame whose tag carries only a priority reaches the port, one in a VLAN does not.
func TestVLAN(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			b := veth(t, 9000, 1)
			tx, rx := open(t, b, 0, m.cfg), open(t, b, 1, m.cfg)
			for _, six := range []bool{false, true} {
				for _, tci := range [][2]byte{{0, 5}, {0xa0, 5}, {0, 0}, {0xa0, 0}} {
					f := roce(0, six, 7, 1000).AppendTo(nil)
					f = slices.Concat(f[:12], []byte{0x81, 0}, tci[:], f[12:])
					tagged := &link.Frame{Bufs: [][]byte{f}, Len: len(f)}
					send(t, tx, tagged)
					if tci[1] == 0 {
						expect(t, rx, tagged)
					}
				}
			}
		})
	}
}

// expect receives f.
func expect(t testing.TB, p *Port, f *link.Frame) {
	t.Helper()
	buf := make([]byte, 1<<17)
	if n, ok := recv(t, p, buf, porttest.Limit); !ok || !bytes.Equal(buf[:n], f.AppendTo(nil)) {
		t.Fatalf("frame of %d bytes: received %d, %v; stats %+v", f.Len, n, ok, p.Stats())
	}
}

// TestPathMTU checks the MTU of the port for different MTUs of the interface.
func TestPathMTU(t *testing.T) {
	p := open(t, veth(t, 4500, 1), 0, Config{})
	if s := p.State(); !s.Up || s.MTU != 4500 {
		t.Errorf("state %+v", s)
	}
	p.dev.sg = false // as with a kernel or driver that has no multi-buffer
	p.Poll(clock())
	limit := xsk.ChunkSize - xsk.RxHeadroom - ethLen
	if s := p.State(); !s.Up || s.MTU != limit {
		t.Errorf("state without multi-buffer %+v", s)
	}
	if want := fmt.Sprintf("no multi-buffer: MTU at most %d", limit); !strings.HasSuffix(p.Mode(), want) {
		t.Errorf("mode %q, want ... %q", p.Mode(), want)
	}
	if err := p.Send(clock(), roce(0, false, 0, 4096)); err == nil || errors.Is(err, port.ErrAgain) {
		t.Errorf("frame that does not fit: %v", err)
	}
}

// TestKernelKeepsTheRest checks that frames for other receivers reach the kernel.
func TestKernelKeepsTheRest(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			b := veth(t, 1500, 1)
			p := open(t, b, 1, m.cfg)
			host := netip.AddrFrom4([4]byte{198, 18, 1, 2}) // an address that only the kernel has
			for _, to := range []string{"198.18.0.2:4792", "[fd00::2]:53", netip.AddrPortFrom(host, 4791).String()} {
				udpArrives(t, b, to)
			}
			if n, ok := recv(t, p, make([]byte, 1<<16), 0); ok {
				t.Errorf("the port received %d bytes", n)
			}
			v, err := p.dev.steer.Verdicts()
			if err != nil || v.Other < 3 || v.Steered != 0 || v.Unsteered != 0 {
				t.Errorf("verdicts %+v, %v", v, err)
			}
		})
	}
}

// udpArrives sends a datagram from namespace 0 to the kernel of namespace 1.
func udpArrives(t *testing.T, b *netlab.Bed, to string) {
	t.Helper()
	var server net.PacketConn
	err := b.NS[1].Do(func() (err error) {
		server, err = net.ListenPacket("udp", to)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	udpSend(t, b, to, 1)
	buf := make([]byte, 100)
	server.SetReadDeadline(time.Now().Add(porttest.Limit))
	if n, _, err := server.ReadFrom(buf); err != nil || string(buf[:n]) != "hello" {
		t.Fatalf("to %s: %q, %v", to, buf[:n], err)
	}
}

// udpSend sends datagrams from namespace 0, each from a different port.
func udpSend(t *testing.T, b *netlab.Bed, to string, count int) {
	t.Helper()
	for range count {
		var c net.Conn
		err := b.NS[0].Do(func() (err error) {
			c, err = net.Dial("udp", to)
			return err
		})
		if err == nil {
			_, err = c.Write([]byte("hello"))
			c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestQueues spreads flows over several queues. All frames must arrive. (A veth in generic mode has only one queue.)
func TestQueues(t *testing.T) {
	const flows = 64
	b := veth(t, 1500, 2)
	p := open(t, b, 1, Config{Attach: AttachNative})
	udpSend(t, b, "198.18.0.2:4791", flows)
	if got := drain(t, p); got != flows {
		t.Errorf("received %d of %d", got, flows)
	}
	for i, q := range p.dev.queues {
		if q.Rx.Taken() == 0 {
			t.Errorf("queue %d had nothing", i)
		}
	}
	checkChunks(t, p)
}

// TestQueueWithoutSocket serves one of two queues. The program must drop frames of the other queue, because the kernel
// would reply with "port unreachable".
func TestQueueWithoutSocket(t *testing.T) {
	const flows = 64
	b := veth(t, 1500, 2)
	p := open(t, b, 1, Config{Attach: AttachNative, Queues: 1})
	udpSend(t, b, "198.18.0.2:4791", flows)
	got := uint64(drain(t, p))
	v, err := p.dev.steer.Verdicts()
	if err != nil || v.Steered != got || v.Unsteered != flows-got || got == 0 || got == flows {
		t.Errorf("received %d of %d, verdicts %+v, %v", got, flows, v, err)
	}
	if s := p.Stats(); s.RecvDropped != v.Unsteered || s.Overruns != 0 {
		t.Errorf("stats %+v", s)
	}
}

// drain receives all pending frames and returns their number.
func drain(t *testing.T, p *Port) (n int) {
	t.Helper()
	buf := make([]byte, 1<<16)
	for {
		if _, ok := recv(t, p, buf, 0); !ok {
			return n
		}
		n++
	}
}

// TestSetAddrs changes the addresses of the port.
func TestSetAddrs(t *testing.T) {
	b := veth(t, 1500, 1)
	p, peer := open(t, b, 1, Config{}), open(t, b, 0, Config{})
	v4, v6 := roce(0, false, 1, 100), roce(0, true, 2, 100)
	if err := p.SetAddrs(addrs(1)[1:]); err != nil {
		t.Fatal(err)
	}
	send(t, peer, v4)
	send(t, peer, v6)
	expect(t, p, v6)
	if err := p.SetAddrs(addrs(1)); err != nil {
		t.Fatal(err)
	}
	send(t, peer, v4)
	expect(t, p, v4)
}

// TestFillsUp sends more frames than the receiver has room for. No call may block, the port must count lost frames, and it
// must work afterwards.
func TestFillsUp(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			b := veth(t, 9000, 1)
			from, to := open(t, b, 0, m.cfg), open(t, b, 1, m.cfg)
			const frames = 2 * rxPerQueue
			sent := 0
			for deadline := clock().Add(porttest.Limit); sent < frames && clock() < deadline; {
				err := from.Send(clock(), roce(0, false, uint16(sent), 4120))
				if err == nil {
					sent++
				} else if !errors.Is(err, port.ErrAgain) {
					t.Fatal(err)
				}
			}
			from.flush(clock())
			if sent != frames {
				t.Fatalf("sent %d of %d", sent, frames)
			}
			got := uint64(drain(t, to))
			v, err := to.dev.steer.Verdicts()
			if err != nil || got != rxPerQueue/2 || to.Stats().Overruns != v.Steered-got {
				t.Errorf("received %d, verdicts %+v, %v, stats %+v", got, v, err, to.Stats())
			}
			f := roce(0, true, 7, 8000)
			send(t, from, f)
			expect(t, to, f)
			checkChunks(t, from)
			checkChunks(t, to)
		})
	}
}

// TestFrameStays receives a frame and then fills all other chunks. The frame must not change before the next Recv.
func TestFrameStays(t *testing.T) {
	b := veth(t, 9000, 1)
	from, to := open(t, b, 0, Config{}), open(t, b, 1, Config{})
	first := roce(0, false, 1, 1000)
	send(t, from, first)
	buf := make([]byte, 1<<14)
	frame, _, err := to.Recv(clock(), buf)
	for deadline := clock().Add(porttest.Limit); err == port.ErrAgain && clock() < deadline; frame, _, err = to.Recv(clock(), buf) {
		waitFD(to, 10*time.Millisecond)
	}
	if err != nil || !bytes.Equal(frame, first.AppendTo(nil)) || &frame[0] == &buf[0] {
		t.Fatalf("received %x, %v", frame, err)
	}
	to.dev.queues[0].Fill.Publish()
	for i := range 2 * rxPerQueue {
		if err := from.Send(clock(), roce(0, false, uint16(i), 900)); err != nil && !errors.Is(err, port.ErrAgain) {
			t.Fatal(err)
		}
	}
	from.flush(clock())
	if !bytes.Equal(frame, first.AppendTo(nil)) {
		t.Error("the frame has changed")
	}
	drain(t, to)
	checkChunks(t, to)
}

// checkChunks checks that each chunk of an idle port is in exactly one place.
func checkChunks(t *testing.T, p *Port) {
	t.Helper()
	p.release()
	p.reclaim()
	seen := map[uint64]bool{}
	for _, c := range p.free {
		seen[c] = true
	}
	if len(seen) != txChunks || len(p.free) != txChunks {
		t.Errorf("%d chunks to send from, %d of them different, want %d", len(p.free), len(seen), txChunks)
	}
	for i, q := range p.dev.queues {
		if n := q.Fill.Pending(); n != p.dev.perRx {
			t.Errorf("queue %d has %d chunks to receive into, want %d", i, n, p.dev.perRx)
		}
	}
}

// TestRefused checks that the port refuses invalid frames, and drops received frames that exceed the buffer.
func TestRefused(t *testing.T) {
	b := veth(t, 9000, 1)
	from, to := open(t, b, 0, Config{}), open(t, b, 1, Config{})
	super := roce(0, false, 0, 2000)
	super.SegSize = 1000
	long := &link.Frame{Bufs: [][]byte{make([]byte, maxFrame+1)}, Len: maxFrame + 1}
	short := &link.Frame{Bufs: [][]byte{make([]byte, 13)}, Len: 13}
	for _, f := range []*link.Frame{super, long, short} {
		if err := from.Send(clock(), f); err == nil || errors.Is(err, port.ErrAgain) {
			t.Errorf("frame of %d bytes: %v", f.Len, err)
		}
	}
	if s := from.Stats(); s.SendDropped != 3 {
		t.Errorf("stats %+v", s)
	}
	send(t, from, roce(0, false, 1, 8000))
	small := roce(0, false, 2, 900)
	send(t, from, small)
	buf := make([]byte, 1000)
	n, ok := recv(t, to, buf, porttest.Limit)
	if !ok || !bytes.Equal(buf[:n], small.AppendTo(nil)) || to.Stats().RecvDropped != 1 {
		t.Errorf("received %d, %v, stats %+v", n, ok, to.Stats())
	}
	if _, _, err := to.Recv(clock(), nil); err == nil || errors.Is(err, port.ErrAgain) {
		t.Errorf("empty buffer: %v", err)
	}
	checkChunks(t, from)
	checkChunks(t, to)
}

// TestCollectsSends sends a few frames. The next Recv must notify the kernel, and NextTimeout must be 0 until then.
func TestCollectsSends(t *testing.T) {
	b := veth(t, 1500, 1)
	from, to := open(t, b, 0, Config{}), open(t, b, 1, Config{})
	f := roce(0, false, 1, 100)
	idle := from.NextTimeout()
	for range 3 {
		if err := from.Send(clock(), f); err != nil {
			t.Fatal(err)
		}
	}
	if from.NextTimeout() != 0 {
		t.Error("a sender may sleep on what it has not sent")
	}
	if _, _, err := from.Recv(clock(), make([]byte, 1500)); !errors.Is(err, port.ErrAgain) {
		t.Fatal(err)
	}
	if from.NextTimeout() < idle {
		t.Error("a sender may not sleep though all is sent")
	}
	for range 3 {
		expect(t, to, f)
	}
}

// TestWakes polls the descriptor until a frame arrives.
func TestWakes(t *testing.T) {
	for _, queues := range []int{1, 2} {
		b := veth(t, 1500, queues)
		from, to := open(t, b, 0, Config{}), open(t, b, 1, Config{})
		if waitFD(to, 0) != 0 {
			t.Error("ready with nothing there")
		}
		send(t, from, roce(0, false, 1, 100))
		if waitFD(to, porttest.Limit)&unix.POLLIN == 0 {
			t.Fatal("not woken")
		}
		expect(t, to, roce(0, false, 1, 100))
		if n := drain(t, to); n != 0 || waitFD(to, 0) != 0 {
			t.Error("ready though all has been received")
		}
	}
}

// TestAllocations checks that frames of one and two chunks cause no allocation.
func TestAllocations(t *testing.T) {
	b := veth(t, 9000, 1)
	from, to := open(t, b, 0, Config{}), open(t, b, 1, Config{})
	frames := []*link.Frame{roce(0, false, 1, 1000), roce(0, false, 2, 4152)}
	buf := make([]byte, 1<<16)
	allocs := testing.AllocsPerRun(100, func() {
		now := from.Next - 1
		for _, f := range frames {
			if err := from.Send(now, f); err != nil {
				t.Error(err)
			}
		}
		from.Recv(now, buf)
		for range frames {
			for deadline := clock().Add(porttest.Limit); ; {
				if _, _, err := to.Recv(now, buf); err == nil {
					break
				}
				if clock() > deadline {
					t.Fatal("a frame is missing")
				}
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// TestQueueTaken opens a port whose queue is in use by another port.
func TestQueueTaken(t *testing.T) {
	b := veth(t, 1500, 1)
	first := open(t, b, 0, Config{})
	second, err := Open(first.cfg)
	if err == nil {
		second.Close()
		t.Fatal("two ports share a queue")
	}
	if !strings.Contains(err.Error(), "another AF_XDP socket uses the queue") || !attachedTo(t, b, 0) {
		t.Error(err)
	}
}

// TestConfig checks errors of configurations.
func TestConfig(t *testing.T) {
	b := veth(t, 1500, 1)
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "no interface"},
		{Config{Interface: iface, Queues: -1}, "queues -1"},
		{Config{Interface: iface, Attach: "fast"}, `mode "fast"`},
		{Config{Interface: iface, Copy: "never"}, `copy "never"`},
		{Config{Interface: iface, Netns: b.NS[0].Path(), Queues: 7}, "queue 1"},
		{Config{Interface: "none", Netns: b.NS[0].Path()}, "does not exist"},
		{Config{Interface: "lo", Netns: b.NS[0].Path()}, "not an Ethernet"},
		{Config{Interface: iface, Netns: "/nowhere"}, "/nowhere"},
		{Config{Interface: iface, Netns: b.NS[0].Path(), Copy: CopyNever}, "the driver does not support the mode"},
		{Config{Interface: iface, Netns: b.NS[0].Path(), Addrs: make([]netip.Addr, 257)}, "257 addresses"},
	} {
		p, err := Open(c.cfg)
		if err == nil {
			p.Close()
			t.Errorf("%+v: no error", c.cfg)
			continue
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want ... %s", c.cfg, err, c.want)
		}
	}
}
