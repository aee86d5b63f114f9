package dut

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/drill/client"
	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
	"roced.io/roced/plugin/mono"
)

// Session runs scripts against a device on a real link, one after the other.
type Session struct {
	options engine.Options // addresses, capabilities and slack of every run
	link    *wire
	agent   *client.Conn
	frames  chan arrival
	errs    chan error
	stop    chan struct{}
	reading sync.WaitGroup // of frames
	ids     runIDs
	probe   []byte // a request for the device's MAC address that it answers
	began   time.Time
	late    lateness
	local   []int        // processes of the device on this machine
	cleanup func() error // ends the device
}

// arrival is a received frame.
type arrival struct {
	at    mono.Time
	frame []byte
}

// ErrLost says that the agent or the device no longer answers.
var ErrLost = errors.New("the device under test does not respond")

// newSession starts to read the link and the agent's answers. The session owns all arguments.
func newSession(o engine.Options, l *wire, channel io.ReadWriteCloser, cleanup func() error) *Session {
	s := &Session{options: o, link: l, agent: client.New(channel), frames: make(chan arrival, 1024), errs: make(chan error, 1),
		stop: make(chan struct{}), began: time.Now(), cleanup: cleanup}
	s.ids.start()
	s.reading.Go(s.readFrames)
	return s
}

// now returns the tester's time, which steps of the system's clock do not change. Times of a run begin at one second, so that none is zero.
func (s *Session) now() mono.Time { return mono.Time(time.Second + time.Since(s.began)) }

// readFrames reads the link until Close. It answers requests for the tester's address, and messages of earlier runs, itself.
func (s *Session) readFrames() {
	buf := make([]byte, 65600)
	for {
		select {
		case <-s.stop:
			return
		default:
		}
		if err := s.readFrame(buf); err != nil {
			s.errs <- err
			return
		}
	}
}

func (s *Session) readFrame(buf []byte) error {
	const look = 50 * time.Millisecond // how soon Close is noticed
	l := s.link
	ready, err := l.wait(look)
	if err != nil || !ready {
		return err
	}
	r, err := l.recv(buf)
	at := s.now().Add(-r.age)
	if err == unix.EAGAIN || r.own {
		return nil
	}
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	o := &s.options
	for _, b := range l.split(bytes.Clone(buf[:r.n]), r.tag) {
		reply := answer(b, o.VLAN, o.TesterMAC, o.Tester, o.Tester6)
		answered := reply != nil
		if !answered {
			reply, answered = s.earlier(b)
		}
		if reply != nil {
			if err := l.send(reply); err != nil {
				return fmt.Errorf("link: %w", err)
			}
		}
		if answered {
			continue
		}
		select {
		case s.frames <- arrival{at, b}:
		case <-s.stop:
		}
	}
	return nil
}

// Limits of waits: for the answer to a command outside of scripts, and for the device's MAC address. Tests shorten them.
var (
	answerLimit = 20 * time.Second
	macLimit    = 5 * time.Second
)

// command sends a command and returns the fields of the answer. Reports are dropped.
func (s *Session) command(ctx context.Context, line string) (map[string]string, error) {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	answer, err := s.agent.Command(limited, line, func(string) {})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return answer, lost(err)
}

// lost marks an error of the agent, unless it is nil.
func lost(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// agentVersion is the version of the agent's commands.
const agentVersion = "5"

// open lets the agent open the device, and learns the device's capabilities and MAC address.
func (s *Session) open(ctx context.Context, arguments string) error {
	o := &s.options
	if o.VLAN != 0 {
		arguments += fmt.Sprintf(" vlan=%d", o.VLAN)
	}
	answer, err := s.command(ctx, fmt.Sprintf("open %s dut=%v dut6=%v tester=%v tester6=%v", arguments, o.DUT, o.DUT6, o.Tester, o.Tester6))
	if err != nil {
		return err
	}
	if v := answer["version"]; v != agentVersion {
		return fmt.Errorf("%w: the agent has version %q, rocedrill needs %s: build its sources (drill/agent) again on the device's host", ErrLost, v, agentVersion)
	}
	o.Caps = append(strings.Split(answer["caps"], ","), o.Caps...)
	s.limitMTU(answer["mtu"])
	if err := s.measure(ctx); err != nil {
		return err
	}
	return s.findMAC(ctx)
}

// limitMTU takes the lower one of the path MTUs that the device and the tester's interface have.
func (s *Session) limitMTU(active string) {
	const overhead = 96 // IPv6, UDP, BTH, the longest extension headers and ICRC, as Linux counts
	o := &s.options
	o.LinkMTU = s.link.mtu
	if n, err := strconv.Atoi(active); err == nil {
		o.MTU, o.MTULimit = n, fmt.Sprintf("the active MTU of the device is %d", n)
	}
	for mtu := 4096; mtu >= 256 && o.LinkMTU > 0; mtu /= 2 {
		if mtu+overhead <= o.LinkMTU {
			if o.MTU == 0 || mtu < o.MTU {
				o.MTU, o.MTULimit = mtu, fmt.Sprintf("the tester's interface has the MTU %d", o.LinkMTU)
			}
			return
		}
	}
}

// findMAC resolves the device's address by ARP and by neighbour discovery. The device also learns the tester's address.
func (s *Session) findMAC(ctx context.Context) error {
	const pause = 100 * time.Millisecond
	o := &s.options
	tag := tagOf(o.VLAN)
	requests := [][]byte{arp(1, o.TesterMAC, [6]byte{255, 255, 255, 255, 255, 255}, o.Tester, o.DUT, [6]byte{}), solicit(o.TesterMAC, o.Tester6, o.DUT6)}
	for began := time.Now(); time.Since(began) < macLimit; {
		for _, request := range requests {
			if err := s.link.send(retag(request, tag)); err != nil && err != unix.ECONNREFUSED && err != unix.ENOENT && !errors.Is(err, unix.EAGAIN) {
				return fmt.Errorf("%w: link: %w", ErrLost, err)
			}
		}
		timer := time.After(pause)
		for waiting := true; waiting; {
			select {
			case f := <-s.frames:
				if b, mac, ok := s.resolved(f.frame); ok {
					o.DUTMAC, s.probe = mac, requests[0]
					if etherType(b) == etherIPv6 {
						s.probe = requests[1]
					}
					return nil
				}
			case err := <-s.errs:
				return fmt.Errorf("%w: %w", ErrLost, err)
			case <-ctx.Done():
				return ctx.Err()
			case <-timer:
				waiting = false
			}
		}
	}
	where := ""
	if o.VLAN != 0 {
		where = fmt.Sprintf(" in VLAN %d", o.VLAN)
	}
	return fmt.Errorf("%w: it does not answer requests for the MAC address of %v and %v%s", ErrLost, o.DUT, o.DUT6, where)
}

// resolved returns the MAC address in an answer of the device, and the answer without its tag.
func (s *Session) resolved(frame []byte) (b []byte, mac [6]byte, ok bool) {
	if b, ok = inVLAN(frame, s.options.VLAN); ok {
		mac, ok = resolved(b, s.options.DUT, s.options.DUT6)
	}
	return b, mac, ok
}

// runs is how often a script runs at most if the tester is late.
const runs = 3

// Run runs a script with a seed, and repeats a run that is inconclusive. The error is a *script.Error, ctx's, or wraps ErrLost if no
// further script can run.
func (s *Session) Run(ctx context.Context, text *script.Script, seed uint64) (r *engine.Result, err error) {
	for i := 0; i < runs && (r == nil || r.Outcome == engine.Inconclusive); i++ {
		if r, err = s.runOnce(ctx, text, seed); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (s *Session) runOnce(ctx context.Context, text *script.Script, seed uint64) (*engine.Result, error) {
	o := s.options
	o.Seed, o.ID, o.Limit, o.Interrupted = seed, s.ids.next(), 2*time.Second, ctx.Err
	e, err := engine.New(text, o)
	if err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	s.late = lateness{}
	waited := waits(s.local)
	lost := s.drive(ctx, e)
	r := e.Result()
	if lost != nil {
		return r, lost
	}
	if _, err := s.command(ctx, "close"); err != nil {
		return r, err
	}
	if err := s.judge(ctx, r, waits(s.local)-waited); err != nil {
		return r, err
	}
	if r.Outcome == engine.Failed {
		return r, s.findMAC(ctx) // a device that has died fails every script
	}
	return r, nil
}

// settle drops the frames of the previous script, which may still be on their way. Links keep the order of frames: behind
// them comes the answer to a request for the device's MAC address. If the device does not answer, the script fails by itself.
func (s *Session) settle(ctx context.Context) error {
	if err := s.link.send(retag(s.probe, tagOf(s.options.VLAN))); err != nil {
		return nil // the script meets the same error
	}
	limit := time.After(time.Second)
	for {
		select {
		case f := <-s.frames:
			if b, _, ok := s.resolved(f.frame); ok && etherType(b) == etherType(s.probe) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-limit:
			return nil
		}
	}
}

// drive runs the engine to its end. An error means that the agent or the link is lost.
func (s *Session) drive(ctx context.Context, e *engine.Engine) error {
	for {
		for began := s.now(); ; began = s.now() {
			o, ok := e.Poll(began)
			if !ok || ctx.Err() != nil {
				break
			}
			if err := s.do(o); err != nil && ctx.Err() == nil {
				e.Lost(s.now(), err)
				return err
			}
			s.late.sends = max(s.late.sends, s.now().Sub(began))
		}
		if e.Done() {
			return ctx.Err()
		}
		due := e.NextTimeout()
		timer := time.NewTimer(max(0, due.Sub(s.now())))
		err := s.input(ctx, e, timer.C, due)
		timer.Stop()
		if ctx.Err() != nil {
			e.Stop()
			return ctx.Err()
		}
		if err != nil {
			e.Lost(s.now(), err)
			return err
		}
	}
}

// do performs an action of the engine.
func (s *Session) do(o engine.Output) error {
	if o.Frame != nil {
		if err := s.link.send(o.Frame); err != nil {
			return fmt.Errorf("%w: link: %w", ErrLost, err)
		}
		return nil
	}
	return lost(s.agent.Send(o.Command))
}

// input passes the next input to the engine. Frames come before the agent's lines, which report what frames have caused, and
// before timeouts.
func (s *Session) input(ctx context.Context, e *engine.Engine, timer <-chan time.Time, due mono.Time) error {
	take := func(f arrival) {
		s.late.reads = max(s.late.reads, s.now().Sub(f.at))
		e.Frame(f.at, f.frame)
	}
	select {
	case f := <-s.frames:
		take(f)
		return nil
	default:
	}
	select {
	case f := <-s.frames:
		take(f)
	case line, ok := <-s.agent.Lines():
		if !ok {
			return lost(s.agent.Err())
		}
		if text, ok := s.agent.Answer(line); ok {
			e.Reply(s.now(), text)
		}
	case err := <-s.errs:
		return fmt.Errorf("%w: %w", ErrLost, err)
	case <-ctx.Done():
		return ctx.Err()
	case <-timer:
		s.late.reads = max(s.late.reads, s.now().Sub(due))
		e.Advance(s.now())
	}
	return nil
}

// Limit sets the memory of each run (engine.Options.Memory).
func (s *Session) Limit(memory uint64) { s.options.Memory = memory }

// Close ends the agent and the device.
func (s *Session) Close() error {
	close(s.stop)
	err := s.agent.Close()
	s.reading.Wait()
	return errors.Join(err, s.link.close(), s.cleanup())
}
