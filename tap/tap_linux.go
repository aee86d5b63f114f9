package tap

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// What Linux takes as one UDP super-frame, as TestSuperFrameLimits measures it on
// TAP - bridge - veth - bridge - TAP (Linux 6.18).
const (
	// usoMaxBytes is the longest super-frame that passes unsplit, Ethernet header
	// included: a device that forwards one wants it shorter than its
	// gso_max_size, 65536. Up to the longest IP packet the kernel takes more, and
	// cuts it apart in software at the first such device.
	usoMaxBytes = 65535
	// The kernel's UDP_MAX_SEGMENTS is 128 in newer versions and 64 in older
	// ones. A write of more segments fails with EINVAL, nothing of it is sent.
	usoMaxSegments    = 128
	usoMaxSegmentsOld = 64
)

const (
	ethLen            = 14
	udpLen            = 8
	udpCsumOffset     = 6
	maxIov            = 1024 // UIO_MAXIOV
	defaultTxQueueLen = 4096
)

// Fields of struct virtio_net_hdr.
const (
	vnetNeedsCsum = 1 // flags
	vnetGSOUDPL4  = 5 // gso_type
	vnetGSOECN    = 0x80
)

// TAPConfig describes a TAP port.
type TAPConfig struct {
	// Name of the device; it is created unless it exists. Letting the kernel
	// number it ("roce%d") works too.
	Name string
	// Netns is the network namespace of the device, a path or a name as
	// ip-netns(8) has them. Empty for the caller's own.
	Netns string
	// Bridge is the bridge of that namespace that the device joins, if any.
	Bridge string
	// MTU is the largest IP packet; 0 leaves the device's.
	MTU int
	// Offload asks for super-frames. Fault tests switch it off: tc netem drops
	// and delays whole super-frames.
	Offload bool
	// TxQueueLen is the number of frames or super-frames that wait for this end
	// to receive them; 0 for 4096.
	TxQueueLen int
}

func (c *TAPConfig) txQueueLen() int {
	if c.TxQueueLen > 0 {
		return c.TxQueueLen
	}
	return defaultTxQueueLen
}

// TAP is a port on a TAP device. When the device is deleted, when its namespace
// is, or when it is set down, Send and Recv return ErrDown and FD is -1. The
// port waits for a device that is down and makes one that is gone anew.
type TAP struct {
	cfg     TAPConfig
	dev     *device // nil while gone
	fd      int     // of dev while the link is up, else -1
	offload rocev2.Offload
	state   LinkState
	stats   Stats

	next    mono.Time // when to look after the link
	backoff backoff
	opening chan opened // of an attempt that is on its way

	txHdr, rxHdr [vnetHdrLen]byte
	iov          [maxIov]unix.Iovec
	flat         []byte // a frame of too many pieces, put together
}

type opened struct {
	dev *device
	err error
}

// OpenTAP attaches to a TAP device, creates it if need be, and sets it up. It
// needs CAP_NET_ADMIN in the namespace, and CAP_SYS_ADMIN to enter one; a user
// namespace gives both. The device lives as long as the port unless it was made
// persistent by somebody else.
func OpenTAP(c TAPConfig) (*TAP, error) {
	if c.Name == "" {
		return nil, errors.New("tap: no device name")
	}
	d, err := openDevice(c)
	if err != nil {
		return nil, fmt.Errorf("tap: %w", err)
	}
	t := &TAP{cfg: c}
	t.adopt(d)
	return t, nil
}

// adopt takes a device that has just been opened.
func (t *TAP) adopt(d *device) {
	t.dev = d
	t.offload = rocev2.Offload{}
	if d.segments > 0 {
		t.offload = rocev2.Offload{MaxSegments: d.segments, MaxBytes: usoMaxBytes}
	}
	t.backoff.reset()
	s, _ := d.query()
	t.setState(s)
}

// setState makes s the state of a link whose device exists.
func (t *TAP) setState(s LinkState) {
	t.state, t.fd = s, -1
	if s.Up {
		t.fd = t.dev.fd
		t.backoff.reset()
	}
}

// Send implements Port.
func (t *TAP) Send(now mono.Time, f *rocev2.Frame) error {
	if t.fd < 0 {
		return ErrDown
	}
	var n int
	n, t.flat = gather(&t.iov, &t.txHdr, f, t.flat)
	_, e := rawRW(unix.SYS_WRITEV, t.fd, &t.iov[0], n)
	if e == 0 {
		return nil
	}
	return t.sendFailed(now, e)
}

// gather makes iov the virtio header hdr and the pieces of f, and returns how many entries
// that takes. flat has room for a frame of too many pieces.
func gather(iov *[maxIov]unix.Iovec, hdr *[vnetHdrLen]byte, f *rocev2.Frame, flat []byte) (int, []byte) {
	bufs := f.Bufs
	if len(bufs) >= maxIov {
		flat = f.AppendTo(flat[:0])
		bufs = [][]byte{flat}
	}
	*hdr = [vnetHdrLen]byte{}
	if f.SegSize != 0 {
		putVnetHdr(hdr, f.HdrLen, f.SegSize)
	}
	iov[0].Base = &hdr[0]
	iov[0].SetLen(vnetHdrLen)
	n := 1
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		iov[n].Base = &b[0]
		iov[n].SetLen(len(b))
		n++
	}
	return n, flat
}

// scatter makes iov the virtio header hdr and buf.
func scatter(iov *[maxIov]unix.Iovec, hdr *[vnetHdrLen]byte, buf []byte) {
	iov[0].Base = &hdr[0]
	iov[0].SetLen(vnetHdrLen)
	iov[1].Base = &buf[0]
	iov[1].SetLen(len(buf))
}

// segmentSize is that of a received frame if it is a UDP super-frame, else 0.
func segmentSize(h *[vnetHdrLen]byte) int {
	if h[1]&^vnetGSOECN != vnetGSOUDPL4 {
		return 0
	}
	return int(binary.NativeEndian.Uint16(h[4:]))
}

// putVnetHdr describes a super-frame to the kernel (virtio 1.2, 5.1.6). The UDP
// checksum is left to the kernel, which has nobody to compute it for unless the
// segments leave the machine or are cut apart; a single frame has none.
func putVnetHdr(h *[vnetHdrLen]byte, hdrLen, segSize int) {
	h[0], h[1] = vnetNeedsCsum, vnetGSOUDPL4
	binary.NativeEndian.PutUint16(h[2:], uint16(hdrLen))
	binary.NativeEndian.PutUint16(h[4:], uint16(segSize))
	binary.NativeEndian.PutUint16(h[6:], uint16(hdrLen-udpLen))
	binary.NativeEndian.PutUint16(h[8:], udpCsumOffset)
}

func (t *TAP) sendFailed(now mono.Time, e unix.Errno) error {
	switch e {
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		t.stats.Again++
		return ErrAgain
	case unix.EIO, unix.EBADFD, unix.EBADF, unix.ENODEV, unix.ENETDOWN:
		t.Poll(now)
		if t.fd < 0 {
			return ErrDown
		}
	}
	t.stats.SendDropped++
	return fmt.Errorf("tap: write: %w", e)
}

// Recv implements Port. A TCP super-frame, which is not for the NIC but may be
// flooded to it, has segSize 0.
func (t *TAP) Recv(now mono.Time, buf []byte) (n, segSize int, err error) {
	if now >= t.next {
		t.Poll(now)
	}
	if t.fd < 0 {
		return 0, 0, ErrDown
	}
	if len(buf) == 0 {
		return 0, 0, errors.New("tap: empty buffer")
	}
	scatter(&t.iov, &t.rxHdr, buf)
	for {
		n, e := rawRW(unix.SYS_READV, t.fd, &t.iov[0], 2)
		if e != 0 {
			return 0, 0, t.recvFailed(now, e)
		}
		n -= vnetHdrLen
		if n < ethLen {
			t.stats.RecvDropped++
			continue
		}
		return n, segmentSize(&t.rxHdr), nil
	}
}

func (t *TAP) recvFailed(now mono.Time, e unix.Errno) error {
	if e == unix.EAGAIN {
		return ErrAgain
	}
	t.Poll(now)
	if t.fd < 0 {
		return ErrDown
	}
	return fmt.Errorf("tap: read: %w", e)
}

// Poll implements Monitored.
func (t *TAP) Poll(now mono.Time) {
	switch {
	case t.opening != nil:
		t.finishOpening(now)
	case t.dev != nil:
		t.check(now)
	case now >= t.next:
		t.startOpening(now)
	}
}

// check looks at a device that is there.
func (t *TAP) check(now mono.Time) {
	s, gone := t.dev.query()
	if !gone && !t.dev.sameNetns(t.cfg.Netns) {
		s, gone = LinkState{Err: fmt.Errorf("network namespace %s is gone", t.cfg.Netns)}, true
	}
	if gone {
		t.dev.close()
		t.dev, t.fd, t.state, t.offload = nil, -1, s, rocev2.Offload{}
		t.stats.Lost++
		t.next = t.backoff.after(now)
		return
	}
	t.setState(s)
	if t.state.Up {
		t.next = now.Add(pollInterval)
		return
	}
	t.next = t.backoff.after(now)
}

// startOpening begins an attempt to bring the device back. It may take a while,
// so a goroutine makes it and leaves the result in a channel.
func (t *TAP) startOpening(now mono.Time) {
	done := make(chan opened, 1)
	go func(c TAPConfig) {
		d, err := openDevice(c)
		done <- opened{d, err}
	}(t.cfg)
	t.opening, t.next = done, now.Add(openInterval)
}

// finishOpening takes the result of an attempt if there is one.
func (t *TAP) finishOpening(now mono.Time) {
	select {
	case r := <-t.opening:
		t.opening = nil
		if r.err != nil {
			t.state.Err = r.err
			t.next = t.backoff.after(now)
			return
		}
		t.stats.Reopened++
		t.adopt(r.dev)
		t.next = now.Add(pollInterval)
	default:
		t.next = now.Add(openInterval)
	}
}

// NextTimeout implements Port.
func (t *TAP) NextTimeout() mono.Time { return t.next }

// FD implements Port.
func (t *TAP) FD() int { return t.fd }

// Offload implements Port. It can change when the device comes back.
func (t *TAP) Offload() rocev2.Offload { return t.offload }

// State implements Monitored.
func (t *TAP) State() LinkState { return t.state }

// Stats implements Monitored.
func (t *TAP) Stats() Stats { return t.stats }

// Name is the name of the device, as it is now if somebody has renamed it.
func (t *TAP) Name() string {
	if t.dev == nil {
		return t.cfg.Name
	}
	return t.dev.name
}

// OffloadNote says why the kernel refused some offload that was asked for; empty
// when it did not.
func (t *TAP) OffloadNote() string {
	if t.dev == nil {
		return ""
	}
	return t.dev.note
}

// Close implements Port.
func (t *TAP) Close() error {
	if t.opening != nil {
		if r := <-t.opening; r.err == nil {
			r.dev.close()
		}
		t.opening = nil
	}
	if t.dev != nil {
		t.dev.close()
		t.dev = nil
	}
	t.fd, t.next, t.state = -1, mono.Never, LinkState{Err: errClosed}
	return nil
}

var errClosed = errors.New("link: closed")

var _ Monitored = (*TAP)(nil)
