package nic

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	xdplink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/bpf/steer"
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/xsk"
	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/port/xdp"
)

// echoWindow is the number of frames in flight. An echo bounces frames between two namespaces.
const echoWindow = 64

// echoSizes are the payload sizes in bytes.
var echoSizes = []int{64, 1024, 4096}

// bouncer is one end of an echo. It returns received frames to their sender, and counts them.
type bouncer interface {
	inject() error        // sends the initial frames
	bounce() (int, error) // returns the number of received frames, 0 if none waited
	close()
}

func echoName(payload int, what string) string {
	return fmt.Sprintf("AF_XDP echo of %d B packets: %s", payload, what)
}

// echoes compares a port with an echo on bare AF_XDP sockets over the same veth.
func (b *bench) echoes() error {
	bed, err := netlab.NewDirect([2]bool{true, true})
	if err != nil {
		return err
	}
	defer bed.Close()
	for _, payload := range echoSizes {
		bare := func(copies bool) func(p *pair, i int) (bouncer, error) {
			return func(p *pair, i int) (bouncer, error) {
				return openBare(bed.NS[i], p.frame(i, payload, 1), rawAddr(i), copies)
			}
		}
		port := func(p *pair, i int) (bouncer, error) {
			return openBouncer(bed.NS[i], p.frame(i, payload, 1), rawAddr(i))
		}
		opens := []func(p *pair, i int) (bouncer, error){bare(false), bare(true), port}
		rates, err := measure.Alternate(b.Rounds, len(opens), func(i int) (float64, error) { return echo(bed, opens[i], b.duration()) })
		if err != nil {
			return err
		}
		b.add(echoName(payload, "bare sockets"), "M/s", rates[0]...)
		b.add(echoName(payload, "bare sockets that copy"), "M/s", rates[1]...)
		b.add(echoName(payload, "port"), "M/s", rates[2]...)
	}
	return nil
}

// echo opens both ends and bounces frames between them. It returns a million round trips per second of CPU time.
func echo(bed *netlab.Bed, open func(p *pair, i int) (bouncer, error), d time.Duration) (float64, error) {
	p := &pair{}
	var ends [2]bouncer
	for i, n := range bed.NS {
		if err := n.Do(func() error {
			l, err := netlink.LinkByName(netlab.Veth)
			if err == nil {
				p.macs[i] = [6]byte(l.Attrs().HardwareAddr)
			}
			return err
		}); err != nil {
			return 0, err
		}
	}
	for i := range ends {
		var err error
		if ends[i], err = open(p, i); err != nil {
			return 0, err
		}
		defer ends[i].close()
	}
	if err := ends[0].inject(); err != nil {
		return 0, err
	}
	return bounceBetween(ends[0], ends[1], d)
}

// bounceBetween runs both ends on one core. With a core for each end, the result would mostly show how cores wake each
// other. It returns a million round trips per second of that core's time. Other load on the machine does not count.
func bounceBetween(a, b bouncer, d time.Duration) (float64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	total := 0
	end, start := time.Now().Add(d), threadCPU()
	for time.Now().Before(end) {
		n, err := a.bounce()
		if err != nil {
			return 0, err
		}
		m, err := b.bounce()
		if err != nil {
			return 0, err
		}
		if total += n; n+m == 0 {
			time.Sleep(50 * time.Microsecond) // the kernel has deferred work
		}
	}
	return float64(total) / (threadCPU() - start).Seconds() / 1e6, nil
}

// threadCPU returns the CPU time of the calling thread.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// portBouncer bounces frames by a port.
type portBouncer struct {
	port  port.Port
	first *link.Frame
	frame link.Frame
	buf   []byte
}

func openBouncer(n *namespace.Namespace, first *link.Frame, addr netip.Addr) (bouncer, error) {
	p, err := xdp.Open(xdp.Config{Interface: netlab.Veth, Netns: n.Path(), Addrs: []netip.Addr{addr}, Attach: xdp.AttachNative})
	return &portBouncer{port: p, first: first, frame: link.Frame{Bufs: make([][]byte, 1)}, buf: make([]byte, 1<<16)}, err
}

func (e *portBouncer) inject() error {
	for range echoWindow {
		if err := e.port.Send(monotonic(), e.first); err != nil {
			return err
		}
	}
	return nil
}

func (e *portBouncer) bounce() (int, error) {
	now := monotonic()
	for count := 0; ; count++ {
		frame, _, err := e.port.Recv(now, e.buf)
		if errors.Is(err, port.ErrAgain) {
			return count, nil
		}
		if err != nil {
			return count, err
		}
		turnBack(frame)
		e.frame.Bufs[0], e.frame.Len = frame, len(frame)
		if err := e.port.Send(now, &e.frame); err != nil && !errors.Is(err, port.ErrAgain) {
			return count, err
		}
	}
}

func (e *portBouncer) close() { e.port.Close() }

// turnBack swaps the addresses of an IPv4 frame.
func turnBack(b []byte) {
	dst, ip := [6]byte(b), [4]byte(b[26:])
	copy(b, b[6:12])
	copy(b[6:], dst[:])
	copy(b[26:30], b[30:34])
	copy(b[30:], ip[:])
}

// bareChunks is the number of chunks of a bare socket, bareSpare that of chunks to copy into.
const (
	bareChunks = 4096
	bareSpare  = 8 * echoWindow
)

// bare bounces frames on an AF_XDP socket with minimal work: in the chunks where they arrived or, as a port has to,
// in chunks of its own.
type bare struct {
	steer  *steer.Steer
	link   xdplink.Link
	umem   *xsk.UMEM
	sock   *xsk.Socket
	first  []byte
	copies bool
	spare  []uint64 // free chunks of its own
}

func openBare(n *namespace.Namespace, first *link.Frame, addr netip.Addr, copies bool) (bouncer, error) {
	e := &bare{first: first.AppendTo(nil), copies: copies}
	if err := n.Do(func() error { return e.open(addr) }); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *bare) open(addr netip.Addr) error {
	l, err := netlink.LinkByName(netlab.Veth)
	if err != nil {
		return err
	}
	if e.steer, err = steer.Load(bth.UDPPort); err != nil {
		return err
	}
	if e.umem, err = xsk.NewUMEM(bareChunks); err != nil {
		return err
	}
	index := l.Attrs().Index
	for range 100 { // the previous socket may still own the queue
		e.sock, err = xsk.Open(e.umem, xsk.Config{Ifindex: index, Fill: bareChunks, Completion: bareChunks, Rx: bareChunks,
			Tx: bareChunks, Flags: unix.XDP_COPY | unix.XDP_USE_SG | unix.XDP_USE_NEED_WAKEUP})
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	for i := 2 * echoWindow; i < bareChunks; i++ {
		if a := uint64(i) * xsk.ChunkSize; e.copies && len(e.spare) < bareSpare {
			e.spare = append(e.spare, a)
		} else {
			e.sock.Fill.Put(a)
		}
	}
	e.sock.Fill.Publish()
	if err := errors.Join(e.steer.SetAddrs([]netip.Addr{addr}), e.steer.SetSocket(0, e.sock.FD)); err != nil {
		return err
	}
	e.link, err = xdplink.AttachXDP(xdplink.XDPOptions{Program: e.steer.Program(), Interface: index, Flags: xdplink.XDPDriverMode})
	return err
}

// inject sends the frames in chunks that the kernel does not own.
func (e *bare) inject() error {
	chunk := uint64(0)
	for range echoWindow {
		for b := e.first; len(b) > 0; chunk++ {
			d := xsk.Desc{Addr: chunk * xsk.ChunkSize}
			d.Len = uint32(copy(e.umem.Chunk(d.Addr), b))
			if b = b[d.Len:]; len(b) > 0 {
				d.Options = xsk.Continued
			}
			e.sock.Tx.Put(d)
		}
	}
	e.send()
	return nil
}

// reply returns the descriptor to transmit for a received one with content b. Frames in flight never use all spare chunks.
func (e *bare) reply(d xsk.Desc, b []byte) xsk.Desc {
	if !e.copies {
		return d
	}
	last := len(e.spare) - 1
	own := xsk.Desc{Addr: e.spare[last], Len: d.Len, Options: d.Options}
	e.spare = e.spare[:last]
	copy(e.umem.Chunk(own.Addr), b)
	e.sock.Fill.Put(d.Addr &^ (xsk.ChunkSize - 1))
	return own
}

// bounce moves descriptors from the RX ring to the TX ring, and reuses transmitted chunks.
func (e *bare) bounce() (frames int, err error) {
	s := e.sock
	n := s.Rx.Refresh() // whole frames: the kernel copies them
	starts := true
	for i := range n {
		d := s.Rx.At(i)
		b, ok := e.umem.Bytes(d)
		if !ok {
			return frames, errors.New("a descriptor points outside of the UMEM")
		}
		if starts {
			turnBack(b)
		}
		if starts = d.Options&xsk.Continued == 0; starts {
			frames++
		}
		s.Tx.Put(e.reply(d, b))
	}
	s.Rx.Take(n)
	s.Rx.Publish()
	sent := s.Completion.Refresh()
	for i := range sent {
		a := s.Completion.At(i) &^ (xsk.ChunkSize - 1)
		if e.copies {
			e.spare = append(e.spare, a)
		} else {
			s.Fill.Put(a)
		}
	}
	s.Completion.Take(sent)
	s.Completion.Publish()
	s.Fill.Publish()
	if n > 0 {
		e.send()
	}
	return frames, nil
}

func (e *bare) send() {
	e.sock.Tx.Publish()
	for e.sock.Tx.Pending() > 0 {
		e.sock.KickTx()
	}
}

func (e *bare) close() {
	if e.link != nil {
		e.link.Close()
	}
	if e.sock != nil {
		e.sock.Close()
	}
	if e.umem != nil {
		e.umem.Close()
	}
	if e.steer != nil {
		e.steer.Close()
	}
}
