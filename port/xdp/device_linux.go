package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/cilium/ebpf"
	xdplink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"roced.io/roced/bpf/steer"
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/base/netns"
	"roced.io/roced/internal/base/xsk"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// Sizes in chunks, powers of two.
const (
	txChunks    = 2048  // in flight to the kernel
	rxChunks    = 16384 // maximum of all queues together
	rxPerQueue  = 4096  // maximum
	rxPerQueue1 = 256   // minimum
	txBudget    = 256   // frames per system call, if the kernel can set it
	sendBuffer  = 16 << 20
)

// device is an interface with the attached program and the sockets that the program steers to.
type device struct {
	index  int // of the interface
	ctl    int // socket in its namespace for ioctls
	epoll  int // waits for all sockets; -1 if there is only one socket
	steer  *steer.Steer
	umem   *xsk.UMEM
	queues []*xsk.Socket // the first one also sends
	perRx  uint32        // chunks of each queue
	sg     bool          // frames may span chunks
	zc     bool
	link   xdplink.Link
	native bool

	held   *xsk.Socket // whose first chunks hold the frame of the last Recv; nil: none
	chunks uint32      // number of these chunks
}

// openDevice loads the program, opens the sockets and attaches the program in the interface's namespace.
func openDevice(c *Config) (*device, error) {
	needed := host.CapNetRaw | host.CapNetAdmin | host.CapBPF
	if c.Netns != "" {
		needed |= host.CapSysAdmin
	}
	if err := host.RequireCaps(needed); err != nil {
		return nil, fmt.Errorf("interface %s: %w", c.Interface, err)
	}
	d := &device{ctl: -1, epoll: -1}
	err := netns.Do(c.Netns, func() error { return d.open(c) })
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *device) open(c *Config) (err error) {
	if d.ctl, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	var state link.State
	if d.index, state = port.QueryInterface(d.ctl, c.Interface); d.index == 0 {
		return state.Err
	}
	if d.steer, err = steer.Load(cmp.Or(c.UDPPort, bth.UDPPort)); err != nil {
		return err
	}
	if err := d.steer.SetAddrs(c.Addrs); err != nil {
		return err
	}
	n := c.Queues
	if n == 0 {
		n = min(rxQueues(d.ctl, c.Interface), steer.MaxQueues)
	}
	if err := d.openQueues(c, n, state.MTU); err != nil {
		return err
	}
	if err := d.join(); err != nil {
		return err
	}
	return d.attach(c)
}

// join adds several sockets to an epoll descriptor. A single socket is polled directly, because each level costs a wakeup
// per frame.
func (d *device) join() (err error) {
	if len(d.queues) == 1 {
		return nil
	}
	if d.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	for _, q := range d.queues {
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(q.FD)}
		if err := unix.EpollCtl(d.epoll, unix.EPOLL_CTL_ADD, q.FD, &ev); err != nil {
			return err
		}
	}
	return nil
}

// fd returns the descriptor to poll.
func (d *device) fd() int {
	if d.epoll >= 0 {
		return d.epoll
	}
	return d.queues[0].FD
}

// openQueues opens a socket for each of the first n queues. The first one determines the capabilities of driver and
// kernel; the others use the same flags.
func (d *device) openQueues(c *Config, n, mtu int) error {
	d.perRx = uint32(min(max(powerOfTwo(rxChunks/n), rxPerQueue1), rxPerQueue))
	var err error
	if d.umem, err = xsk.NewUMEM(txChunks + n*int(d.perRx)); err != nil {
		return err
	}
	var refused []error
	for _, flags := range c.Copy.attempts(mtu) {
		if err = d.openQueue(0, flags); err == nil {
			d.sg = flags&unix.XDP_USE_SG != 0
			break
		}
		if refused = append(refused, err); errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		return errors.Join(refused...)
	}
	d.zc = d.queues[0].ZeroCopy()
	for q := 1; q < n; q++ {
		if err := d.openQueue(q, 0); err != nil {
			return err
		}
	}
	return nil
}

// openQueue opens the socket of a queue, fills its fill ring, and steers to it.
func (d *device) openQueue(q int, flags uint16) error {
	cfg := xsk.Config{
		Ifindex: d.index, Queue: q, Flags: flags | unix.XDP_USE_NEED_WAKEUP,
		Fill: d.perRx, Completion: d.perRx, Rx: d.perRx,
	}
	if q == 0 {
		cfg.Tx, cfg.Completion = txChunks, txChunks
	}
	s, err := retryBusy(func() (*xsk.Socket, error) { return xsk.Open(d.umem, cfg) })
	if err != nil {
		return err
	}
	d.queues = append(d.queues, s)
	if q == 0 {
		// Older kernels have a fixed budget. The system may limit the buffer.
		_ = s.SetTxBudget(txBudget)
		_ = unix.SetsockoptInt(s.FD, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer)
	}
	from := uint64(txChunks + q*int(d.perRx))
	for i := range uint64(d.perRx) {
		s.Fill.Put((from + i) * xsk.ChunkSize)
	}
	s.Fill.Publish()
	return d.steer.SetSocket(q, s.FD)
}

// retryBusy retries open while the queue is in use. The kernel frees a queue some time after its socket has been closed
// or its process killed.
func retryBusy(open func() (*xsk.Socket, error)) (s *xsk.Socket, err error) {
	for range 100 {
		if s, err = open(); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return s, err
}

// attach attaches the program to the interface in the configured mode. The calling thread must be in the interface's
// namespace.
func (d *device) attach(c *Config) error {
	var refused []error
	for _, native := range c.Attach.attempts() {
		flags := xdplink.XDPGenericMode
		if native {
			flags = xdplink.XDPDriverMode
		}
		l, err := xdplink.AttachXDP(xdplink.XDPOptions{Program: d.steer.Program(), Interface: d.index, Flags: flags})
		if err == nil {
			d.link, d.native = l, native
			return nil
		}
		refused = append(refused, fmt.Errorf("interface %s: XDP in %s mode: %w", c.Interface, modeName(native), attachError(err)))
	}
	return errors.Join(refused...)
}

// attachError explains errors of BPF_LINK_CREATE.
func attachError(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("another XDP program is attached: %w", err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("the driver does not support it: %w", err)
	case errors.Is(err, unix.ERANGE), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("the driver refuses the program, possibly because of the MTU: %w", err)
	}
	return err
}

// attached reports whether the interface still runs the program.
func (d *device) attached() bool {
	if d.link == nil {
		return false
	}
	info, err := d.link.Info()
	if err != nil || info.XDP() == nil {
		return false
	}
	id, ok := programID(d.steer.Program())
	return info.XDP().Ifindex == uint32(d.index) && (!ok || info.Program == id)
}

func programID(p *ebpf.Program) (ebpf.ProgramID, bool) {
	info, err := p.Info()
	if err != nil {
		return 0, false
	}
	return info.ID()
}

// detach closes the link, which may have been detached already.
func (d *device) detach() {
	if d.link != nil {
		d.link.Close()
		d.link = nil
	}
}

// maxMTU returns the largest IP packet that the sockets accept.
func (d *device) maxMTU() int {
	if d.sg {
		return maxFrame - ethLen
	}
	return xsk.ChunkSize - xsk.RxHeadroom - ethLen
}

// count adds the frames that the kernel has dropped: for lack of chunks or ring entries, and because they arrived on a
// queue without a socket.
func (d *device) count(s *port.Stats) {
	for _, q := range d.queues {
		if st, err := q.Statistics(); err == nil {
			s.Overruns += st.Rx_dropped + st.Rx_ring_full
		}
	}
	if v, err := d.steer.Verdicts(); err == nil {
		s.RecvDropped += v.Unsteered
	}
}

// close detaches the program first, so that it does not steer frames to closed sockets.
func (d *device) close() {
	d.detach()
	for _, q := range d.queues {
		q.Close()
	}
	if d.steer != nil {
		d.steer.Close()
	}
	if d.umem != nil {
		d.umem.Close()
	}
	for _, fd := range []int{d.epoll, d.ctl} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// powerOfTwo returns the largest power of two up to n.
func powerOfTwo(n int) int { return 1 << (bits.Len(uint(n)) - 1) }
