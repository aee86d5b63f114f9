package dut

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

// now returns the tester's time.
func (s *Session) now() mono.Time { return s.since(time.Now()) }

// since converts a time. Times of a run begin at one second, so that none is zero.
func (s *Session) since(t time.Time) mono.Time { return mono.Time(time.Second + t.Sub(s.began)) }

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
	n, at, own, err := l.recv(buf)
	if err == unix.EAGAIN || own {
		return nil
	}
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	for _, b := range l.split(bytes.Clone(buf[:n])) {
		reply := resolve(b, s.options.TesterMAC, s.options.Tester, s.options.Tester6)
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
		case s.frames <- arrival{s.since(at), b}:
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

// open lets the agent open the device, and learns the device's capabilities and MAC address.
func (s *Session) open(ctx context.Context, device string) error {
	o := &s.options
	answer, err := s.command(ctx, fmt.Sprintf("open device=%s dut=%v dut6=%v tester=%v tester6=%v", device, o.DUT, o.DUT6, o.Tester, o.Tester6))
	if err != nil {
		return err
	}
	o.Caps = append(strings.Split(answer["caps"], ","), o.Caps...)
	return s.findMAC(ctx)
}

// findMAC resolves the device's address by ARP and by neighbour discovery. The device also learns the tester's address.
func (s *Session) findMAC(ctx context.Context) error {
	const pause = 100 * time.Millisecond
	o := &s.options
	requests := [][]byte{arp(1, o.TesterMAC, [6]byte{255, 255, 255, 255, 255, 255}, o.Tester, o.DUT, [6]byte{}), solicit(o.TesterMAC, o.Tester6, o.DUT6)}
	for began := time.Now(); time.Since(began) < macLimit; {
		for _, request := range requests {
			if err := s.link.send(request); err != nil && err != unix.ECONNREFUSED && err != unix.ENOENT && err != unix.EAGAIN {
				return fmt.Errorf("%w: link: %w", ErrLost, err)
			}
		}
		timer := time.After(pause)
		for waiting := true; waiting; {
			select {
			case f := <-s.frames:
				if mac, ok := resolved(f.frame, o.DUT, o.DUT6); ok {
					o.DUTMAC, s.probe = mac, requests[0]
					if etherType(f.frame) == etherIPv6 {
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
	return fmt.Errorf("%w: it does not answer requests for the MAC address of %v and %v", ErrLost, o.DUT, o.DUT6)
}

// Run runs a script with a seed. The error is a *script.Error, ctx's, or wraps ErrLost if no further script can run.
func (s *Session) Run(ctx context.Context, text *script.Script, seed uint64) (*engine.Result, error) {
	o := s.options
	o.Seed, o.ID, o.Limit, o.Interrupted = seed, s.ids.next(), 2*time.Second, ctx.Err
	e, err := engine.New(text, o)
	if err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	lost := s.drive(ctx, e)
	r := e.Result()
	if lost != nil {
		return r, lost
	}
	if _, err := s.command(ctx, "close"); err != nil {
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
	if err := s.link.send(s.probe); err != nil {
		return nil // the script meets the same error
	}
	limit := time.After(time.Second)
	for {
		select {
		case f := <-s.frames:
			if _, ok := resolved(f.frame, s.options.DUT, s.options.DUT6); ok && etherType(f.frame) == etherType(s.probe) {
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
		for o, ok := e.Poll(s.now()); ok; o, ok = e.Poll(s.now()) {
			if ctx.Err() != nil {
				break
			}
			if err := s.do(o); err != nil {
				e.Lost(s.now(), err)
				return err
			}
		}
		if e.Done() {
			return ctx.Err()
		}
		timer := time.NewTimer(max(0, e.NextTimeout().Sub(s.now())))
		err := s.input(ctx, e, timer.C)
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
func (s *Session) input(ctx context.Context, e *engine.Engine, timer <-chan time.Time) error {
	select {
	case f := <-s.frames:
		e.Frame(f.at, f.frame)
		return nil
	default:
	}
	select {
	case f := <-s.frames:
		e.Frame(f.at, f.frame)
	case line, ok := <-s.agent.Lines():
		if !ok {
			return lost(client.ErrEnded)
		}
		if text, ok := s.agent.Answer(line); ok {
			e.Reply(s.now(), text)
		}
	case err := <-s.errs:
		return fmt.Errorf("%w: %w", ErrLost, err)
	case <-ctx.Done():
		return ctx.Err()
	case <-timer:
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
