package dut

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"roced.io/roced/drill/engine"
)

// Agent describes a device that an agent drives. Zero values mean the defaults of DefaultAgent.
type Agent struct {
	// Command starts the agent: program and arguments with blanks between them. "tcp:HOST:PORT" reaches an agent that
	// listens; it needs the token in $ROCEDRILL_TOKEN.
	Command string
	// Link leads to the device: an interface, tap:NAME, or unix:PATH.
	Link string
	// Device is the name of the RDMA device, empty for the first. Port is its port.
	Device string
	Port   int
	// GIDIndex is the index of the device's address, -1 for that of DUT.
	GIDIndex int
	// Tester and DUT are the addresses of both sides: IPv4 and IPv6.
	Tester, DUT [2]netip.Addr
	// Caps are capabilities beside those that the agent reports.
	Caps []string
	Traffic
}

// Traffic describes the packets of a run.
type Traffic struct {
	IP   int    // version of all scripts, 0: IPv4, and IPv6 for scripts that need it
	VLAN uint16 // 0 for none
	SL   uint8  // service level
	// Slack is the time that tester, agent and device need beside the bounds of a script. 0: it is measured.
	Slack time.Duration
}

func (t Traffic) apply(o *engine.Options) { o.IP, o.VLAN, o.SL, o.Slack = t.IP, t.VLAN, t.SL, t.Slack }

// DefaultAgent returns an agent with the addresses of the tester's own links.
func DefaultAgent() Agent {
	return Agent{Tester: [2]netip.Addr{testerIP, testerIP6}, DUT: [2]netip.Addr{dutIP, dutIP6}, Port: 1, GIDIndex: -1}
}

// TokenVariable is the environment variable with the token of an agent that listens on TCP.
const TokenVariable = "ROCEDRILL_TOKEN"

// StartAgent starts or reaches the agent, and opens the link. An error that is not ErrLost is one of a's fields or of this host.
func StartAgent(ctx context.Context, a Agent) (*Session, error) {
	l, err := openLink(a.Link)
	if err != nil {
		return nil, err
	}
	agent, err := a.reach(ctx)
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	s := newSession(a.options(), l, agent, func() error { return nil })
	if err := s.open(ctx, a.arguments()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (a *Agent) options() engine.Options {
	o := options(0)
	o.Tester, o.Tester6, o.DUT, o.DUT6, o.Caps = a.Tester[0], a.Tester[1], a.DUT[0], a.DUT[1], a.Caps
	a.apply(&o)
	return o
}

// arguments returns those of the command "open" besides addresses.
func (a *Agent) arguments() string {
	text := fmt.Sprintf("device=%s port=%d", a.Device, a.Port)
	if a.GIDIndex >= 0 {
		text += fmt.Sprintf(" gid_index=%d", a.GIDIndex)
	}
	return text
}

// reach starts the agent or connects to it. The agent beside this program comes before that in $PATH.
func (a *Agent) reach(ctx context.Context) (io.ReadWriteCloser, error) {
	if address, ok := strings.CutPrefix(a.Command, "tcp:"); ok {
		return dial(ctx, address)
	}
	words := strings.Fields(a.Command)
	if len(words) == 0 {
		return nil, errors.New("agent: the command is empty; name a program that starts " + agentProgram)
	}
	if words[0] == agentProgram || words[0] == managerAgent {
		if bin, err := programs(words[0]); err == nil {
			words[0] = filepath.Join(bin, words[0])
		}
	}
	return startProcess(ctx, words[0], words[1:]...)
}

// dial connects to an agent that listens on TCP, and authenticates by the token.
func dial(ctx context.Context, address string) (io.ReadWriteCloser, error) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(ctx, "tcp", port)
	}
	if err != nil {
		return nil, fmt.Errorf("agent tcp:%s: %w; write tcp:HOST:PORT", address, err)
	}
	token := os.Getenv(TokenVariable)
	if token == "" {
		return nil, fmt.Errorf("agent tcp:%s: $%s is not set; set it to the agent's token", address, TokenVariable)
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w: agent: %w", ErrLost, err)
	}
	if _, err := fmt.Fprintln(c, token); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: agent: %w", ErrLost, err), c.Close())
	}
	return c, nil
}
