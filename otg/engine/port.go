package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/ethtool"
	"roced.io/roced/internal/base/netns"
	"roced.io/roced/internal/base/sched"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/port/packet"
	"roced.io/roced/tap"
)

// testPort is a port of the configuration: a link, the NICs on it, raw flows, counters and a capture. All its fields belong to
// the shard of its NICs.
type testPort struct {
	cfg      Port
	link     port.Monitored
	speed    uint64
	bucket   sched.Bucket
	faces    []*face
	down     bool
	raws     []*rawFlow
	catch    []*rawFlow // flows that this port receives
	echoes   []*echo
	cap      *recording
	tx, rx   portCount
	changed  time.Time
	wasUp    bool
	idle     int // descriptor of faces that do not read the link
	overruns uint64
	mapped   []string // warnings of values that the port replaces
}

// portCount counts the frames of a direction.
type portCount struct {
	frames, bytes       uint64
	frameRate, byteRate meter
}

// defaultSpeed is the speed of an interface that reports none, in bits per second.
const defaultSpeed = 10e9

// Burst of a port: the loop sleeps with the precision of the kernel's timers.
const (
	burstTime = 200 * time.Microsecond
	minBurst  = 16 << 10
)

// openPort opens the link of a port. addrs are the addresses of its interfaces.
func openPort(c *Port, addrs []netip.Addr) (p *testPort, err error) {
	p = &testPort{cfg: *c, speed: c.Speed, changed: time.Now()}
	var l port.Monitored
	switch c.Kind {
	case Packet:
		l, err = packet.Open(packet.Config{Interface: c.Device, Netns: c.Namespace, All: true})
	case XDP:
		l, err = openXDP(c.Device, c.Namespace, addrs)
	case TAP:
		l, err = tap.Open(tap.Config{Name: c.Device, Netns: c.Namespace, MTU: c.MTU})
	default:
		return nil, fmt.Errorf("port %s: location %s: must be an interface: the engine does not use NICs of a daemon", c.Name, c.Location)
	}
	if err != nil {
		return nil, fmt.Errorf("port %s: %w", c.Name, err)
	}
	if p.idle, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		l.Close()
		return nil, fmt.Errorf("port %s: eventfd: %w", c.Name, err)
	}
	p.link = port.NewBacklog(l)
	if p.speed == 0 {
		p.speed = speedOf(c.Namespace, c.Device)
	}
	p.paceable()
	p.bucket.SetRate(p.speed, max(int(float64(p.speed)*burstTime.Seconds()/8), minBurst))
	return p, nil
}

// paceable raises the lowest rates of DCQCN to a packet of 4 KiB in 10 ms. A queue pair keeps the pause after a packet even if its rate
// rises meanwhile: that of a low rate on a slow port is minutes.
func (p *testPort) paceable() {
	const bits, pause = 8 * 4200, 0.01 // seconds
	least := bits / pause / float64(p.speed)
	d := &p.cfg.RoCE.DCQCN
	raise := func(name string, rate *float64) {
		if d.Enable && *rate < least {
			p.mapped = append(p.mapped, fmt.Sprintf("port %s: DCQCN: %s of %.4g per cent: using %.4g, a packet in 10 ms", p.cfg.Name, name, 100**rate, 100*least))
			*rate = least
		}
	}
	raise("minimum rate", &d.MinRate)
	if d.FirstRate > 0 {
		raise("rate after the first CNP", &d.FirstRate)
	}
}

func (p *testPort) close() error {
	unix.Close(p.idle)
	return p.link.Close()
}

// speedOf returns the speed of an interface in bits per second, or defaultSpeed if it has none.
func speedOf(ns, device string) (speed uint64) {
	cmd := struct { // struct ethtool_cmd
		cmd, supported, advertising uint32
		speed                       uint16
		_                           [14]byte
		speedHigh                   uint16
		_                           [14]byte
	}{cmd: unix.ETHTOOL_GSET}
	speed = defaultSpeed
	_ = netns.Do(ns, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		mbps := func() uint32 { return uint32(cmd.speedHigh)<<16 | uint32(cmd.speed) }
		if ethtool.Request(fd, device, unsafe.Pointer(&cmd)) == nil && mbps() != 0 && mbps() != 1<<32-1 && mbps() != 1<<16-1 {
			speed = uint64(mbps()) * 1e6
		}
		return nil
	})
	return speed
}

// face is the link of a NIC: a part of a port, with an Ethernet address of its own. The first face of a port also sends its raw
// flows.
type face struct {
	port  *testPort
	mac   inet.MAC
	host  *host // nil: the port has no interfaces
	queue []queued
	free  [][]byte
}

// queued is a received frame for another face than the one that read it.
type queued struct {
	frame []byte
	seg   int
}

// maxQueued is the maximum number of frames that wait for a face.
const maxQueued = 1024

// readBudget limits the frames for others that one Recv reads.
const readBudget = 64

func (p *testPort) addFace(mac inet.MAC, h *host) *face {
	f := &face{port: p, mac: mac, host: h}
	p.faces = append(p.faces, f)
	return f
}

// Send implements port.Port.
func (f *face) Send(now mono.Time, fr *link.Frame) error {
	p := f.port
	if p.down {
		return port.ErrDown
	}
	if err := p.link.Send(now, fr); err != nil {
		return err
	}
	p.sent(now, fr)
	if f.host != nil {
		eachSent(fr, func(l layout, head []byte, k roceInfo) { f.host.sent(now, l, head, k) })
	}
	return nil
}

// sent counts a frame that the link has taken, and captures it.
func (p *testPort) sent(now mono.Time, fr *link.Frame) {
	segs := 1
	if fr.SegSize > 0 {
		segs = (fr.Len - fr.HdrLen + fr.SegSize - 1) / fr.SegSize
	}
	p.tx.frames += uint64(segs)
	p.tx.bytes += uint64(fr.Len + (segs-1)*fr.HdrLen + segs*fcsLen)
	if p.cap != nil && p.cap.on {
		p.cap.whole = fr.AppendTo(p.cap.whole[:0])
		p.cap.frame(now, p.cap.whole, fr.SegSize)
	}
}

// Recv implements port.Port. It returns the next frame for the face and passes frames for others to them.
func (f *face) Recv(now mono.Time, buf []byte) ([]byte, int, error) {
	p := f.port
	if f == p.faces[0] {
		p.sendRaws(now)
	}
	if len(f.queue) > 0 {
		q := f.queue[0]
		f.queue = slices.Delete(f.queue, 0, 1)
		n := copy(buf, q.frame)
		f.free = append(f.free, q.frame[:0])
		return buf[:n], q.seg, nil
	}
	for range readBudget {
		frame, seg, err := p.link.Recv(now, buf)
		if err != nil {
			return nil, 0, err
		}
		if p.down || !p.takes(frame) {
			continue
		}
		p.received(now, frame, seg)
		if p.pass(now, f, frame, seg) {
			return frame, seg, nil
		}
	}
	return nil, 0, port.ErrAgain
}

// takes reports whether the port accepts the destination of a frame.
func (p *testPort) takes(frame []byte) bool {
	return p.cfg.Promiscuous || frame[0]&1 != 0 || slices.ContainsFunc(p.faces, func(f *face) bool { return f.mac == inet.MAC(frame) })
}

// received counts a frame from the link, captures it, and finds its raw flow.
func (p *testPort) received(now mono.Time, frame []byte, seg int) {
	segs := link.Segments(frame, seg)
	header := 0
	if segs > 1 {
		_, header, _, _ = inet.UDPBody(frame)
	}
	p.rx.frames += uint64(segs)
	p.rx.bytes += uint64(len(frame) + (segs-1)*header + segs*fcsLen)
	if p.cap != nil {
		p.cap.frame(now, frame, seg)
	}
	if len(p.catch) > 0 {
		p.catchRaw(now, frame)
	}
	if len(p.echoes) > 0 {
		p.catchEcho(frame)
	}
}

// pass gives a frame to the faces with its address, and counts its packets. It reports whether f is one of them.
func (p *testPort) pass(now mono.Time, f *face, frame []byte, seg int) (own bool) {
	for _, o := range p.faces {
		if o.host == nil || frame[0]&1 == 0 && o.mac != inet.MAC(frame) {
			continue
		}
		eachReceived(frame, seg, func(l layout, head []byte, k roceInfo) { o.host.received(now, l, head, k) })
		if o == f {
			own = true
		} else {
			o.enqueue(frame, seg)
		}
	}
	return own
}

// enqueue copies a frame for the NIC of f.
func (f *face) enqueue(frame []byte, seg int) {
	if len(f.queue) >= maxQueued {
		f.port.overruns++
		return
	}
	var b []byte
	if n := len(f.free); n > 0 {
		b, f.free = f.free[n-1], f.free[:n-1]
	}
	f.queue = append(f.queue, queued{append(b, frame...), seg})
}

// NextTimeout implements port.Port.
func (f *face) NextTimeout() mono.Time {
	if len(f.queue) > 0 {
		return 0
	}
	t := f.port.link.NextTimeout()
	if f == f.port.faces[0] {
		t = t.Min(f.port.nextRaw())
	}
	return t
}

// FD implements port.Port. Only the first face waits for the link.
func (f *face) FD() int {
	if fd := f.port.link.FD(); f == f.port.faces[0] || fd < 0 {
		return fd
	}
	return f.port.idle
}

// Offload implements port.Port. Frames leave one by one, so that switches see them as those of hardware.
func (f *face) Offload() link.Offload { return link.Offload{} }

// Close implements port.Port; the port closes its link.
func (f *face) Close() error { return nil }

// State implements port.Monitored.
func (f *face) State() link.State {
	s := f.port.link.State()
	if f.host != nil && f.host.cfg.MTU > 0 {
		s.MTU = min(s.MTU, f.host.cfg.MTU)
	}
	if f.port.down {
		s.Up, s.Err = false, fmt.Errorf("port %s is set down", f.port.cfg.Name)
	}
	return s
}

// Poll implements port.Monitored.
func (f *face) Poll(now mono.Time) { f.port.link.Poll(now) }

// Stats implements port.Monitored.
func (f *face) Stats() port.Stats {
	s := f.port.link.Stats()
	s.Overruns += f.port.overruns
	return s
}

var _ port.Monitored = (*face)(nil)
