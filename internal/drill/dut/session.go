package dut

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/drill"
	"roced.io/roced/internal/drill/script"
	"roced.io/roced/plugin/mono"
)

// Session runs scripts against a device on a real link, one after the other.
type Session struct {
	// Caps are the capabilities of the device.
	Caps []string
	// Slack is the time that tester, agent and device need beside the bounds of a script.
	Slack time.Duration

	link    *link
	agent   io.ReadWriteCloser
	lines   chan string // of the agent; closed when the agent has ended
	frames  chan arrival
	errs    chan error
	stop    chan struct{}
	reading sync.WaitGroup
	dutMAC  [6]byte
	began   time.Time
	cleanup func() error
}

// arrival is a received frame.
type arrival struct {
	at    mono.Time
	frame []byte
}

// ErrLost says that the agent or the device no longer answers.
var ErrLost = errors.New("the device under test is lost")

// newSession starts to read the link and the agent's answers.
func newSession(l *link, agent io.ReadWriteCloser, cleanup func() error) *Session {
	s := &Session{link: l, agent: agent, lines: make(chan string, 64), frames: make(chan arrival, 1024), errs: make(chan error, 1),
		stop: make(chan struct{}), began: time.Now(), cleanup: cleanup}
	s.reading.Add(2)
	go s.readLines()
	go s.readFrames()
	return s
}

// now returns the tester's time.
func (s *Session) now() mono.Time { return s.since(time.Now()) }

// since converts a time. Times of a run begin at one second, so that none is zero.
func (s *Session) since(t time.Time) mono.Time { return mono.Time(time.Second + t.Sub(s.began)) }

func (s *Session) readLines() {
	defer s.reading.Done()
	defer close(s.lines)
	r := bufio.NewScanner(s.agent)
	r.Buffer(nil, 4<<20)
	for r.Scan() {
		select {
		case s.lines <- r.Text():
		case <-s.stop:
			return
		}
	}
}

// readFrames reads the link until Close. It answers requests for the tester's address itself.
func (s *Session) readFrames() {
	defer s.reading.Done()
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
	ready, err := s.link.wait(look)
	if err != nil || !ready {
		return err
	}
	n, at, own, err := s.link.recv(buf)
	if err == unix.EAGAIN || own {
		return nil
	}
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	b := append([]byte(nil), buf[:n]...)
	if reply := resolve(b, testerMAC, testerIP, testerIP6); reply != nil {
		return s.link.send(reply)
	}
	select {
	case s.frames <- arrival{s.since(at), b}:
	case <-s.stop:
	}
	return nil
}

// answerLimit bounds the time of a command outside of scripts.
const answerLimit = 30 * time.Second

// command sends a command and returns the answer. Reports are dropped.
func (s *Session) command(line string) (string, error) {
	if _, err := io.WriteString(s.agent, line+"\n"); err != nil {
		return "", fmt.Errorf("%w: %w", ErrLost, err)
	}
	limit := time.After(answerLimit)
	for {
		select {
		case answer, ok := <-s.lines:
			if !ok {
				return "", fmt.Errorf("%w: the agent has ended", ErrLost)
			}
			word, rest, _ := strings.Cut(answer, " ")
			if word == "ok" {
				return rest, nil
			}
			if word == "error" {
				return "", errors.New(rest)
			}
		case <-limit:
			return "", fmt.Errorf("%w: no answer to %q within %v", ErrLost, line, answerLimit)
		}
	}
}

// open lets the agent open the device, and learns the device's MAC address.
func (s *Session) open(device string) error {
	if _, err := s.command(fmt.Sprintf("open device=%s dut=%v dut6=%v tester=%v tester6=%v", device, dutIP, dutIP6, testerIP, testerIP6)); err != nil {
		return err
	}
	return s.findMAC()
}

// findMAC resolves the device's address by ARP.
func (s *Session) findMAC() error {
	const tries, pause = 50, 100 * time.Millisecond
	for range tries {
		if err := s.link.send(arp(1, testerMAC, [6]byte{255, 255, 255, 255, 255, 255}, testerIP, dutIP, [6]byte{})); err != nil && err != unix.ECONNREFUSED && err != unix.ENOENT {
			return fmt.Errorf("link: %w", err)
		}
		timer := time.After(pause)
		for waiting := true; waiting; {
			select {
			case f := <-s.frames:
				if mac, ok := isARPReply(f.frame, dutIP); ok {
					s.dutMAC = mac
					return nil
				}
			case err := <-s.errs:
				return err
			case <-timer:
				waiting = false
			}
		}
	}
	return fmt.Errorf("the device does not answer ARP requests for %v", dutIP)
}

// isARPReply returns the MAC address in an ARP reply of this address.
func isARPReply(f []byte, of netip.Addr) (mac [6]byte, ok bool) {
	if len(f) < 42 || f[12] != etherARP>>8 || f[13] != etherARP&0xff || f[21] != 2 || netip.AddrFrom4([4]byte(f[28:32])) != of {
		return mac, false
	}
	return [6]byte(f[22:28]), true
}

// Run runs a script with a seed. The error is a *script.Error, or wraps ErrLost if no further script can run.
func (s *Session) Run(text *script.Script, seed uint64) (*drill.Result, error) {
	o := options(seed)
	o.Caps, o.Slack, o.Limit, o.DUTMAC = s.Caps, s.Slack, 2*time.Second, s.dutMAC
	e, err := drill.New(text, o)
	if err != nil {
		return nil, err
	}
	s.drain()
	lost := s.drive(e)
	r := e.Result()
	if lost != nil {
		return r, lost
	}
	if _, err := s.command("close"); err != nil {
		return r, fmt.Errorf("%w: close: %w", ErrLost, err)
	}
	return r, nil
}

// drain drops frames of the previous script.
func (s *Session) drain() {
	const settle = 2 * time.Millisecond
	for {
		select {
		case <-s.frames:
		case <-time.After(settle):
			return
		}
	}
}

// drive runs the engine to its end. An error means that the agent or the link is lost.
func (s *Session) drive(e *drill.Engine) error {
	for {
		for o, ok := e.Poll(s.now()); ok; o, ok = e.Poll(s.now()) {
			if err := s.do(o); err != nil {
				e.Lost(s.now(), err)
				return err
			}
		}
		if e.Done() {
			return nil
		}
		timer := time.NewTimer(max(0, e.NextTimeout().Sub(s.now())))
		err := s.input(e, timer.C)
		timer.Stop()
		if err != nil {
			e.Lost(s.now(), err)
			return err
		}
	}
}

// do performs an action of the engine.
func (s *Session) do(o drill.Output) error {
	if o.Frame != nil {
		if err := s.link.send(o.Frame); err != nil {
			return fmt.Errorf("%w: link: %w", ErrLost, err)
		}
		return nil
	}
	if _, err := io.WriteString(s.agent, o.Command+"\n"); err != nil {
		return fmt.Errorf("%w: agent: %w", ErrLost, err)
	}
	return nil
}

// input passes the next input to the engine. Frames come before the agent's lines, which report what frames have caused, and
// before timeouts.
func (s *Session) input(e *drill.Engine, timer <-chan time.Time) error {
	select {
	case f := <-s.frames:
		e.Frame(f.at, f.frame)
		return nil
	default:
	}
	select {
	case f := <-s.frames:
		e.Frame(f.at, f.frame)
	case line, ok := <-s.lines:
		if !ok {
			return fmt.Errorf("%w: the agent has ended", ErrLost)
		}
		e.Reply(s.now(), line)
	case err := <-s.errs:
		return fmt.Errorf("%w: %w", ErrLost, err)
	case <-timer:
		e.Advance(s.now())
	}
	return nil
}

// Close ends the agent and the device.
func (s *Session) Close() error {
	close(s.stop)
	err := s.agent.Close()
	s.reading.Wait()
	return errors.Join(err, s.link.close(), s.cleanup())
}
