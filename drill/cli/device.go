package cli

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"roced.io/roced/drill/dut"
	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
)

// runner is a device under test.
type runner interface {
	Run(ctx context.Context, s *script.Script, seed uint64) (*engine.Result, error)
}

// deviceFlags name the device under test.
type deviceFlags struct {
	dut, link, device string
	tester, address   []string
	caps              []string
	slack             time.Duration
	force             bool
}

const agentPrefix = "agent:"

// add adds the flags to a command.
func (f *deviceFlags) add(s *pflag.FlagSet) {
	d := dut.DefaultAgent()
	s.StringVar(&f.dut, "dut", "virtual", "device under test: virtual, roced, rxe-6.1, rxe-6.12 or agent:COMMAND")
	s.StringVar(&f.link, "link", "", "with agent: `LINK` to the device: an interface, tap:NAME or unix:PATH")
	s.StringVar(&f.device, "device", "", "with agent: RDMA device (default: the first)")
	s.StringSliceVar(&f.address, "dut-address", texts(d.DUT), "with agent: IPv4 and IPv6 address of the device")
	s.StringSliceVar(&f.tester, "tester-address", texts(d.Tester), "with agent: IPv4 and IPv6 address of the tester")
	s.StringSliceVar(&f.caps, "cap", nil, "with agent: capabilities that libibverbs does not report, such as ecn")
	s.BoolVar(&f.force, "force", false, "run scripts that need more than 1 GiB of memory")
	s.DurationVar(&f.slack, "slack", d.Slack, "with agent: time to add to the time limits of scripts")
}

func texts(a [2]netip.Addr) []string { return []string{a[0].String(), a[1].String()} }

// addresses parses an IPv4 and an IPv6 address, in any order. otherwise has those that are not named.
func addresses(flag string, list []string, otherwise [2]netip.Addr) ([2]netip.Addr, error) {
	for _, text := range list {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return otherwise, usageError{fmt.Errorf("--%s: %w", flag, err)}
		}
		otherwise[map[bool]int{false: 0, true: 1}[a.Is6()]] = a
	}
	return otherwise, nil
}

// open starts the device under test.
func (f *deviceFlags) open(ctx context.Context, a *app) (r runner, end func() error, err error) {
	command, isAgent := strings.CutPrefix(f.dut, agentPrefix)
	if !isAgent && f.link != "" {
		return nil, nil, usageError{fmt.Errorf("--link is for --dut agent:COMMAND; %s has a link of its own", f.dut)}
	}
	var s *dut.Session
	switch {
	case isAgent:
		s, err = f.openAgent(ctx, command)
	case f.dut == "virtual":
		return dut.Virtual{Memory: f.memory()}, func() error { return nil }, nil
	case f.dut == "roced":
		s, err = dut.StartRoced(ctx)
	case slices.Contains(dut.RXE(), f.dut):
		s, err = dut.StartRXE(ctx, f.dut, a.diag)
	default:
		err = usageError{fmt.Errorf("--dut %s: must be virtual, roced, %s or agent:COMMAND", f.dut, strings.Join(dut.RXE(), ", "))}
	}
	if err != nil {
		return nil, nil, err
	}
	s.Limit(f.memory())
	return s, s.Close, nil
}

// memory returns the memory that a script may need.
func (f *deviceFlags) memory() uint64 {
	if f.force {
		return 1 << 46 // a process has no more
	}
	return engine.DefaultMemory
}

func (f *deviceFlags) openAgent(ctx context.Context, command string) (*dut.Session, error) {
	d := dut.DefaultAgent()
	d.Command, d.Link, d.Device, d.Caps, d.Slack = command, f.link, f.device, f.caps, f.slack
	if command == "" || f.link == "" {
		return nil, usageError{fmt.Errorf("--dut agent:COMMAND needs a command and --link, such as --dut 'agent:ssh host rocedrill-agent' --link eth1")}
	}
	var err error
	if d.Tester, err = addresses("tester-address", f.tester, d.Tester); err != nil {
		return nil, err
	}
	if d.DUT, err = addresses("dut-address", f.address, d.DUT); err != nil {
		return nil, err
	}
	return dut.StartAgent(ctx, d)
}
