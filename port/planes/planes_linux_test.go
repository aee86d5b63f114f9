package planes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// fake is a port that is connected to the test.
type fake struct {
	state   link.State
	sent    int
	sendErr error
	frames  int // to receive
	recvErr error
	due     mono.Time
	fd      int
	offload link.Offload
	stats   port.Stats
	polls   int
	closed  bool
}

func (f *fake) Send(mono.Time, *link.Frame) error {
	switch {
	case !f.state.Up:
		return port.ErrDown
	case f.sendErr != nil:
		return f.sendErr
	}
	f.sent++
	return nil
}

func (f *fake) Recv(_ mono.Time, buf []byte) ([]byte, int, error) {
	switch {
	case !f.state.Up:
		return nil, 0, port.ErrDown
	case f.recvErr != nil:
		return nil, 0, f.recvErr
	case f.frames == 0:
		return nil, 0, port.ErrAgain
	}
	f.frames--
	return buf[:100], 40, nil
}

func (f *fake) NextTimeout() mono.Time { return f.due }
func (f *fake) Offload() link.Offload  { return f.offload }
func (f *fake) State() link.State      { return f.state }
func (f *fake) Poll(mono.Time)         { f.polls++ }
func (f *fake) Stats() port.Stats      { return f.stats }
func (f *fake) Close() error           { f.closed = true; return nil }

func (f *fake) FD() int {
	if !f.state.Up {
		return -1
	}
	return f.fd
}

// open returns a link of n fake ports, which are up.
func open(t *testing.T, n int) (p *Port, ports []*fake) {
	t.Helper()
	var all []port.Monitored
	for i := range n {
		f := &fake{state: link.State{Up: true, MTU: 4200}, due: mono.Never, fd: -1, offload: link.Offload{MaxSegments: 64, MaxBytes: 60000}}
		f.stats.Overruns = uint64(1 + i)
		ports, all = append(ports, f), append(all, f)
	}
	p, err := New(all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, ports
}

// sent returns the number of frames that each port has sent, and clears it.
func sent(ports []*fake) (out []int) {
	for _, f := range ports {
		out = append(out, f.sent)
		f.sent = 0
	}
	return out
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

const (
	headers   = 14 + 20 + 8
	writeOnly = bth.TransportMRC | bth.OpWriteOnly
)

// packet returns a RoCEv2 packet with that UDP source port, in one piece.
func packet(source uint16, o bth.Opcode) *link.Frame {
	b := make([]byte, headers+bth.BTHLen+100)
	b[12], b[13] = 8, 0
	b[14], b[14+9] = 0x45, 17
	udp := b[14+20:]
	binary.BigEndian.PutUint16(udp, source)
	binary.BigEndian.PutUint16(udp[2:], bth.UDPPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	udp[8] = byte(o)
	return &link.Frame{Bufs: [][]byte{b}, Len: len(b)}
}

// request returns an endpoint request.
func request(source uint16, op bth.MRCEndpointOp) *link.Frame {
	f := packet(source, bth.OpcodeMRCEndpointRequest)
	h := bth.ERTH{Op: op}
	h.Put(f.Bufs[0][headers+bth.BTHLen:])
	return f
}

// split returns f as the NIC builds it: headers first, then the payload.
func split(f *link.Frame) *link.Frame {
	b := f.Bufs[0]
	return &link.Frame{Bufs: [][]byte{b[:headers+bth.BTHLen], b[headers+bth.BTHLen:]}, Len: f.Len, HdrLen: headers}
}

func arp() *link.Frame {
	b := make([]byte, 60)
	b[12], b[13] = 8, 6
	return &link.Frame{Bufs: [][]byte{b}, Len: len(b)}
}

// evs returns the entropy values of a path selection with n planes, by plane.
func evs(t *testing.T, n int) map[int][]uint16 {
	t.Helper()
	s, err := path.New("mrc", path.Params{"planes": float64(n), "ev_count": float64(4 * n), "ev_active": float64(4 * n)})
	if err != nil {
		t.Fatal(err)
	}
	s.Reset(path.Start{Seed: 1})
	seen := map[uint16]bool{}
	out := map[int][]uint16{}
	for range 8 * n {
		v, _ := s.Next(0, path.Window{})
		s.OnSent(0, path.Window{})
		source, _ := bth.SplitEntropy(v)
		if !seen[source] {
			seen[source] = true
			plane := path.EVPlane(v, n)
			out[plane] = append(out[plane], source)
		}
	}
	return out
}

// TestPlane: a packet takes the plane of its entropy value, in each form of a frame.
func TestPlane(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, path.MaxPlanes} {
		p, ports := open(t, n)
		all := evs(t, n)
		expect(t, "planes with entropy values", len(all), n)
		for plane, sources := range all {
			for _, source := range sources {
				whole := packet(source, writeOnly)
				for _, f := range []*link.Frame{whole, split(whole)} {
					if err := p.Send(0, f); err != nil {
						t.Fatal(err)
					}
				}
			}
			want := make([]int, n)
			want[plane] = 2 * len(sources)
			expect(t, "frames", sent(ports), want)
			_, traffic := p.Plane(plane)
			expect(t, "bytes", traffic.Sent, 2*len(sources)*(headers+bth.BTHLen+100))
		}
	}
}

// TestPlaneDown: packets leave by the next port that is up, port status included. EV probes test their plane.
func TestPlaneDown(t *testing.T) {
	p, ports := open(t, 4)
	source := evs(t, 4)[3][0]
	data, probe, status := split(packet(source, writeOnly)), request(source, bth.MRCEVProbe), request(source, bth.MRCPortStatus)
	for _, c := range []struct {
		down        []int
		data, probe error
		by          []int
	}{
		{nil, nil, nil, []int{0, 0, 0, 3}},
		{[]int{3}, nil, port.ErrDown, []int{2, 0, 0, 0}},
		{[]int{3, 0}, nil, port.ErrDown, []int{0, 2, 0, 0}},
		{[]int{0, 1}, nil, nil, []int{0, 0, 0, 3}},
		{[]int{0, 1, 2, 3}, port.ErrDown, port.ErrDown, []int{0, 0, 0, 0}},
	} {
		for i, f := range ports {
			f.state.Up = !slices.Contains(c.down, i)
		}
		expect(t, fmt.Sprintf("%v down: data", c.down), p.Send(0, data), c.data)
		expect(t, fmt.Sprintf("%v down: status", c.down), p.Send(0, status), c.data)
		expect(t, fmt.Sprintf("%v down: probe", c.down), p.Send(0, probe), c.probe)
		expect(t, fmt.Sprintf("%v down: frames", c.down), sent(ports), c.by)
	}
}

// TestPlaneFull: a full port delays a packet. It does not send it in another plane.
func TestPlaneFull(t *testing.T) {
	p, ports := open(t, 2)
	f := packet(evs(t, 2)[1][0], writeOnly)
	for _, err := range []error{port.ErrAgain, errors.New("refused")} {
		ports[1].sendErr = err
		expect(t, "error", p.Send(0, f), err)
		expect(t, "frames", sent(ports), []int{0, 0})
	}
}

// TestControl: other frames leave in all planes. They fail only if no port takes them.
func TestControl(t *testing.T) {
	refused := errors.New("refused")
	for _, c := range []struct {
		name   string
		errs   [3]error
		result error
		by     []int
	}{
		{"all up", [3]error{}, nil, []int{1, 1, 1}},
		{"one down", [3]error{port.ErrDown}, nil, []int{0, 1, 1}},
		{"one full", [3]error{nil, nil, port.ErrAgain}, nil, []int{1, 1, 0}},
		{"one takes it", [3]error{port.ErrAgain, refused, nil}, nil, []int{0, 0, 1}},
		{"full or down", [3]error{port.ErrDown, port.ErrAgain, port.ErrDown}, port.ErrAgain, []int{0, 0, 0}},
		{"all down", [3]error{port.ErrDown, port.ErrDown, port.ErrDown}, port.ErrDown, []int{0, 0, 0}},
	} {
		p, ports := open(t, 3)
		for i, err := range c.errs {
			ports[i].sendErr, ports[i].state.Up = err, err != port.ErrDown
		}
		expect(t, c.name, p.Send(0, arp()), c.result)
		expect(t, c.name, sent(ports), c.by)
	}
}

// TestTurns: planes with frames take turns, and those without are passed.
func TestTurns(t *testing.T) {
	p, ports := open(t, 3)
	ports[0].frames, ports[2].frames = 40, 20
	var order []int
	buf := make([]byte, 200)
	for range 60 {
		before := [3]int{ports[0].frames, ports[1].frames, ports[2].frames}
		frame, seg, err := p.Recv(0, buf)
		if err != nil || len(frame) != 100 || seg != 40 {
			t.Fatal(frame, seg, err)
		}
		for i, f := range ports {
			if f.frames != before[i] {
				order = append(order, i)
			}
		}
	}
	want := slices.Concat(slices.Repeat([]int{0, 2}, 20), slices.Repeat([]int{0}, 20))
	expect(t, "order", order, want)
	_, traffic := p.Plane(2)
	expect(t, "bytes", traffic.Received, 2000)
}

// TestNothing: the result of Recv without frames.
func TestNothing(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		errs [2]error
		want error
	}{
		{"none has frames", [2]error{}, port.ErrAgain},
		{"one is down", [2]error{port.ErrDown, nil}, port.ErrAgain},
		{"the other one is down", [2]error{nil, port.ErrDown}, port.ErrAgain},
		{"all are down", [2]error{port.ErrDown, port.ErrDown}, port.ErrDown},
		{"one is broken", [2]error{broken, port.ErrDown}, broken},
	} {
		p, ports := open(t, 2)
		for i, err := range c.errs {
			ports[i].state.Up, ports[i].recvErr = err != port.ErrDown, err
		}
		_, _, err := p.Recv(0, make([]byte, 200))
		expect(t, c.name, err, c.want)
	}
}

// TestBrokenPlane: a port with errors does not keep frames of others back.
func TestBrokenPlane(t *testing.T) {
	p, ports := open(t, 2)
	ports[0].recvErr, ports[1].frames = errors.New("broken"), 1
	buf := make([]byte, 200)
	if _, _, err := p.Recv(0, buf); err != ports[0].recvErr {
		t.Fatal(err)
	}
	if _, _, err := p.Recv(0, buf); err != nil {
		t.Fatal(err)
	}
}

// TestState: the link is up while a port is, with the MTU that fits all planes and the offloads that all ports have.
func TestState(t *testing.T) {
	p, ports := open(t, 3)
	ports[1].state.MTU, ports[2].state.MTU = 1500, 0
	ports[2].offload = link.Offload{MaxSegments: 8, MaxBytes: 9000}
	why := errors.New("no carrier")
	for _, c := range []struct {
		up      [3]bool
		ports   uint32
		offload link.Offload
		err     error
	}{
		{[3]bool{true, true, true}, 7, link.Offload{MaxSegments: 8, MaxBytes: 9000}, nil},
		{[3]bool{true, true, false}, 3, link.Offload{MaxSegments: 64, MaxBytes: 60000}, nil},
		{[3]bool{false, false, true}, 4, link.Offload{MaxSegments: 8, MaxBytes: 9000}, nil},
		{[3]bool{}, 0, link.Offload{}, why},
	} {
		for i, up := range c.up {
			if ports[i].state.Up, ports[i].state.Err = up, nil; !up {
				ports[i].state.Err = why
			}
		}
		expect(t, "state", p.State(), link.State{Up: c.ports != 0, MTU: 1500, Err: c.err, Ports: c.ports})
		expect(t, "offload", p.Offload(), c.offload)
		st, _ := p.Plane(2)
		expect(t, "plane 2", st, ports[2].state)
	}
}

// ready reports whether a descriptor is readable.
func ready(t *testing.T, fd int) bool {
	t.Helper()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func eventfd(t *testing.T) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// signal makes an eventfd readable, or with clear not readable.
func signal(t *testing.T, fd int, clear bool) {
	t.Helper()
	b := [8]byte{1}
	f := unix.Write
	if clear {
		f = unix.Read
	}
	if _, err := f(fd, b[:]); err != nil {
		t.Fatal(err)
	}
}

// TestDescriptor: the descriptor is readable when that of a port is, and when a full port has room.
func TestDescriptor(t *testing.T) {
	p, ports := open(t, 2)
	for _, f := range ports {
		f.fd = eventfd(t)
	}
	wakes := func(what string, want bool) {
		t.Helper()
		expect(t, what, ready(t, p.FD()), want)
	}
	wakes("nothing", false)
	for i, f := range ports {
		signal(t, f.fd, false)
		wakes(fmt.Sprintf("frames of port %d", i), true)
		signal(t, f.fd, true)
	}
	wakes("no frame", false)

	data := packet(evs(t, 2)[1][0], writeOnly)
	ports[1].sendErr = port.ErrAgain
	p.Send(0, data)
	wakes("room", true) // an eventfd has room
	ports[1].sendErr = nil
	p.Send(0, data)
	wakes("sent", false)

	old := ports[1].fd
	ports[1].fd = eventfd(t)
	wakes("another descriptor", false)
	signal(t, old, false)
	wakes("the old descriptor", false)
	signal(t, ports[1].fd, false)
	wakes("the new descriptor", true)

	ports[1].state.Up = false
	wakes("a port that is down", false)
	ports[0].state.Up = false
	expect(t, "all are down", p.FD(), -1)
	ports[1].state.Up = true
	wakes("up again", true)
}

// TestAll: timeout, counters, Poll and Close are those of all ports.
func TestAll(t *testing.T) {
	p, ports := open(t, 3)
	ports[1].due, ports[2].due = 50, 70
	p.Poll(1)
	expect(t, "timeout", p.NextTimeout(), mono.Time(50))
	expect(t, "overruns", p.Stats().Overruns, 6)
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Fatal(err)
	}
	for i, f := range ports {
		if f.polls != 1 || !f.closed {
			t.Errorf("port %d: %+v", i, f)
		}
	}
}

// TestNumber: there are as many planes as a port status has bits.
func TestNumber(t *testing.T) {
	for n, ok := range map[int]bool{0: false, 1: true, path.MaxPlanes: true, path.MaxPlanes + 1: false} {
		p, err := New(make([]port.Monitored, n))
		if (err == nil) != ok {
			t.Errorf("%d ports: %v", n, err)
		}
		if p != nil {
			unix.Close(p.ep)
		}
	}
}
