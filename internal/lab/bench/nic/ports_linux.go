package nic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/port/packet"
	"roced.io/roced/port/udp"
	"roced.io/roced/port/xdp"
	"roced.io/roced/tap"
)

// kind is a kind of port.
type kind struct {
	name   string
	shared string // as in netlab.LabOptions; empty for a TAP
	single bool   // no offload
	open   func(netns string, addrs []netip.Addr) (port.Port, error)
}

var kinds = []kind{
	{"TAP", "", false, openTAP(true)},
	{"TAP, single frames", "", true, openTAP(false)},
	{"AF_PACKET", "packet", false, openPacket(true)},
	{"AF_PACKET, single frames", "packet, offload: false", true, openPacket(false)},
	{"UDP sockets", "udp", false, openUDP(udp.OffloadKnown)},
	{"UDP sockets, single datagrams", "udp, offload: false", true, openUDP(udp.OffloadNever)},
	{"AF_XDP native", "xdp, mode: native", false, openXDP(xdp.AttachNative)},
	{"AF_XDP generic", "xdp, mode: generic", false, openXDP(xdp.AttachGeneric)},
}

func openTAP(offload bool) func(string, []netip.Addr) (port.Port, error) {
	return func(netns string, _ []netip.Addr) (port.Port, error) {
		return tap.Open(tap.Config{Name: "raw", Netns: netns, Bridge: netlab.Bridge, MTU: namespace.MTU, Offload: offload})
	}
}

func openPacket(offload bool) func(string, []netip.Addr) (port.Port, error) {
	return func(netns string, addrs []netip.Addr) (port.Port, error) {
		return packet.Open(packet.Config{Interface: netlab.Veth, Netns: netns, Addrs: addrs, Offload: offload})
	}
}

func openUDP(offload udp.Offload) func(string, []netip.Addr) (port.Port, error) {
	return func(netns string, addrs []netip.Addr) (port.Port, error) {
		p, err := udp.Open(udp.Config{Netns: netns, MAC: rawMAC, Offload: offload}, 0, addrs)
		if err == nil {
			p.SetLink(0, link.State{Up: true, MTU: namespace.MTU})
		}
		return p, err
	}
}

func openXDP(mode xdp.Attach) func(string, []netip.Addr) (port.Port, error) {
	return func(netns string, addrs []netip.Addr) (port.Port, error) {
		return xdp.Open(xdp.Config{Interface: netlab.Veth, Netns: netns, Addrs: addrs, Attach: mode})
	}
}

// portRow has the results of a kind of port: the port alone, and roceperf over it.
type portRow struct {
	name               string
	large, small, cpu  float64 // Gb/s of 4 KiB packets, M/s of 64 B packets, us of CPU per 64 B packet
	write, rate, nicPU float64 // roceperf: Gb/s of 64 KiB, M/s of 64 B, us of CPU of both daemons per packet
	latency            float64 // roceperf: us of 8 B
}

// ports measures every kind of port.
func (b *bench) ports() error {
	for i := range kinds {
		r := portRow{name: kinds[i].name}
		if err := errors.Join(b.barePort(&kinds[i], &r), b.overPort(&kinds[i], &r)); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		b.portTable = append(b.portTable, r)
		b.add(portName(r.name, "64 KiB"), "Gb/s", r.write)
		b.add(portName(r.name, "64 B"), "M/s", r.rate)
		b.add(portName(r.name, "latency"), "us", r.latency)
	}
	return b.echoes()
}

// portName returns the name of a roceperf measurement over a port.
func portName(port, what string) string { return "WRITE over " + port + ", " + what }

// writePorts prints the table.
func (b *bench) writePorts(w io.Writer) {
	if len(b.portTable) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| port | 4 KiB packets, Gb/s | 64 B packets, M/s | CPU of one, us | write-bw 64 KiB, Gb/s | write-bw 64 B, M/s |"+
		" CPU of a packet, us |\n|---|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range b.portTable {
		fmt.Fprintf(w, "| %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", r.name, r.large, r.small, r.cpu, r.write, r.rate, r.nicPU)
	}
}

// barePort measures a port without a protocol: it sends packets as fast as possible and counts the packets that arrive.
func (b *bench) barePort(k *kind, r *portRow) error {
	bed, err := netlab.NewDirect([2]bool{k.shared != "", k.shared != ""})
	if err != nil {
		return err
	}
	defer bed.Close()
	p, err := openPair(bed, k)
	if err != nil {
		return err
	}
	defer p.close()
	large, err := measure.Repeat(b.Rounds, func() (flow, error) { return p.flow(rawPayload, b.duration(), rawSegments) })
	if err != nil {
		return err
	}
	small, err := measure.Repeat(b.Rounds, func() (flow, error) { return p.flow(64, b.duration(), 64) })
	if err != nil {
		return err
	}
	rate := func(f flow) float64 { return f.rate }
	r.large, r.small = measure.Middle(large, rate).gbps(rawPayload), measure.Middle(small, rate).rate/1e6
	r.cpu = measure.Middle(small, func(f flow) float64 { return f.cpu }).cpu * 1e6
	fmt.Fprintf(os.Stderr, "  %-52s %10.2f Gb/s %10.2f M/s %10.2f us\n", r.name, r.large, r.small, r.cpu)
	return nil
}

func (b *bench) duration() time.Duration { return time.Duration(b.Seconds) * time.Second / 2 }

// overPort measures roceperf over ports of a kind.
func (b *bench) overPort(k *kind, r *portRow) error {
	o := netlab.LabOptions{NoOffload: k.shared == "" && k.single, Shared: [2]string{k.shared, k.shared}}
	return b.Lab(o, func(l *netlab.Lab) error {
		c := *b
		c.lab = l
		if _, err := c.perf("write-bw"); err != nil { // a TAP loses the frames of the first second
			return err
		}
		writes, err := measure.Repeat(b.Rounds, c.written)
		if err != nil {
			return err
		}
		r.write = measure.Middle(writes, func(w written) float64 { return w.gbps }).gbps
		r.nicPU = measure.Middle(writes, func(w written) float64 { return w.cpu }).cpu
		rates, err := measure.Repeat(b.Rounds, func() (float64, error) { return millions(c.perf("write-bw", "-s", "64")) })
		if err != nil {
			return err
		}
		latencies, err := measure.Repeat(b.Rounds, func() (float64, error) { return mean(c.perf("write-lat", "-s", "8")) })
		if err != nil {
			return err
		}
		r.rate, r.latency = measure.Median(rates), measure.Median(latencies)
		fmt.Fprintf(os.Stderr, "  %-52s %10.2f Gb/s %10.2f M/s %10.2f us\n", r.name+": roceperf", r.write, r.rate, r.nicPU)
		return nil
	})
}

// written is a measurement of WRITEs: their rate, and the CPU time of both daemons for a packet, in us.
type written struct{ gbps, cpu float64 }

func (b *bench) written() (w written, err error) {
	cpu, packets, err := b.spent()
	if err != nil {
		return w, err
	}
	if w.gbps, err = gbps(b.perf("write-bw", "-s", "64k")); err != nil {
		return w, err
	}
	cpuAfter, packetsAfter, err := b.spent()
	w.cpu = (cpuAfter - cpu).Seconds() * 1e6 / float64(packetsAfter-packets)
	return w, err
}

// spent returns the CPU time of both daemons and the packets that they have received.
func (b *bench) spent() (cpu time.Duration, packets uint64, err error) {
	for i := range b.lab.Host {
		counters, err := b.Counters(b.lab, i)
		if err != nil {
			return 0, 0, err
		}
		packets += counters["rcvd_pkts"]
	}
	cpu, err = b.daemonsTime()
	return cpu, packets, err
}

// cpuOf returns the CPU time of a process, including system calls (proc(5)).
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	var user, system int64
	if _, err := fmt.Sscan(f[11]+" "+f[12], &user, &system); err != nil {
		return 0, err
	}
	const tick = time.Second / 100 // USER_HZ
	return time.Duration(user+system) * tick, nil
}

// pair is two connected ports and their addresses.
type pair struct {
	ports [2]port.Port
	macs  [2][6]byte
}

func openPair(bed *netlab.Bed, k *kind) (p *pair, err error) {
	p = &pair{macs: [2][6]byte{{2, 0, 0, 0, 0, 1}, rawMAC}}
	for i, n := range bed.NS {
		if p.ports[i], err = k.open(n.Path(), []netip.Addr{rawAddr(i)}); err != nil {
			p.close()
			return nil, err
		}
		if k.shared == "" {
			continue
		}
		err = n.Do(func() error {
			l, err := netlink.LinkByName(netlab.Veth)
			if err == nil {
				p.macs[i] = [6]byte(l.Attrs().HardwareAddr)
			}
			return err
		})
		if err != nil {
			p.close()
			return nil, err
		}
	}
	return p, p.warmUp()
}

func (p *pair) close() {
	for _, q := range p.ports {
		if q != nil {
			q.Close()
		}
	}
}

// frame builds a frame with the given number of segments from port i to the other port.
func (p *pair) frame(i, payload, segments int) *link.Frame {
	b := rawFrame(p.macs[1-i], p.macs[i], i, payload, segments)
	f := &link.Frame{Bufs: [][]byte{b}, Len: len(b), HdrLen: 42}
	if segments > 1 {
		f.SegSize = rawOverhead + payload
	}
	return f
}

// warmUp waits until frames pass both ways.
func (p *pair) warmUp() error {
	buf := make([]byte, 1<<17)
	passed := [2]bool{}
	for range 500 {
		for i, q := range p.ports {
			if err := q.Send(monotonic(), p.frame(i, 64, 1)); err != nil {
				return err
			}
		}
		time.Sleep(10 * time.Millisecond)
		for i, q := range p.ports {
			for {
				frame, _, err := q.Recv(monotonic(), buf)
				if err != nil {
					break
				}
				passed[i] = passed[i] || isRaw(frame)
			}
		}
		if passed[0] && passed[1] {
			return nil
		}
	}
	return errors.New("no frames pass")
}

// flow has the results of a stream of packets.
type flow struct {
	rate float64 // packets per second
	cpu  float64 // seconds of both threads for each packet, including system calls
}

// gbps returns the rate of the payload.
func (f flow) gbps(payload float64) float64 { return f.rate * payload * 8 / 1e9 }

// flow sends packets from port 0 to port 1: frames of the given numbers of segments in turn, if the port accepts them.
func (p *pair) flow(payload int, d time.Duration, segments ...int) (flow, error) {
	var frames []*link.Frame
	for _, n := range segments {
		frames = append(frames, p.frame(0, payload, max(1, min(n, p.ports[0].Offload().MaxSegments))))
	}
	var spent time.Duration
	n, seconds, err := counted(
		func(got *atomic.Uint64, stop *atomic.Bool) { count(p.ports[1], payload+rawOverhead, got, stop) },
		func() (err error) {
			cpu, start := ownCPU(), time.Now()
			for err == nil && time.Since(start) < d {
				err = sendSome(p.ports[0], frames)
			}
			spent = ownCPU() - cpu
			return err
		})
	packets := float64(n)
	return flow{rate: packets / seconds, cpu: spent.Seconds() / max(packets, 1)}, err
}

// sendSome sends frames in turn, repeatedly.
func sendSome(p port.Port, frames []*link.Frame) error {
	now := monotonic()
	for i := range 64 {
		if err := p.Send(now, frames[i%len(frames)]); err != nil && !errors.Is(err, port.ErrAgain) {
			return err
		}
	}
	return nil
}

// countSpins is the number of attempts to receive before the receiver sleeps. A wake-up for each frame would take longer
// than the frame.
const countSpins = 1000

// count counts the packets that arrive.
func count(p port.Port, size int, got *atomic.Uint64, stop *atomic.Bool) {
	buf := make([]byte, 1<<17)
	wait := [1]unix.PollFd{{Events: unix.POLLIN}}
	for idle := 0; !stop.Load(); idle++ {
		frame, _, err := p.Recv(monotonic(), buf)
		switch {
		case err == nil:
			idle = 0
			if isRaw(frame) {
				got.Add(uint64((len(frame) - 42) / size))
			}
		case idle > countSpins:
			wait[0].Fd = int32(p.FD())
			// The loop checks stop and the port after any result of Poll.
			_, _ = unix.Poll(wait[:], 10)
		}
	}
}

func isRaw(b []byte) bool { return len(b) > 42 && binary.BigEndian.Uint16(b[36:]) == 4791 }

// ownCPU returns the CPU time of this process.
func ownCPU() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var began = time.Now()

func monotonic() mono.Time { return mono.Time(time.Since(began)) + 1 }
