package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"roced.io/roced/drill/dut"
	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/interrupt"
	"roced.io/roced/internal/base/suggest"
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
	port, gid         int
	traffic           dut.Traffic
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
	s.IntVar(&f.port, "port", d.Port, "with agent: port of the RDMA device")
	s.IntVar(&f.gid, "gid-index", d.GIDIndex, "with agent: index of the device's address (default: that of --dut-address)")
	s.IntVar(&f.traffic.IP, "ip", 0, "IP `VERSION` of all scripts, 4 or 6 (default: 4, and 6 for scripts that need it)")
	s.Uint16Var(&f.traffic.VLAN, "vlan", 0, "VLAN of the device's addresses (default: none)")
	s.Uint8Var(&f.traffic.SL, "sl", 0, "service level of the device's paths")
	s.BoolVar(&f.force, "force", false, "run scripts that need more than 1 GiB of memory")
	s.DurationVar(&f.traffic.Slack, "slack", 0, "`TIME` to add to the time limits of scripts (default: 20ms and two round trips of the agent)")
}

// check checks the values of flags.
func (f *deviceFlags) check() error {
	switch t := f.traffic; {
	case t.IP != 0 && t.IP != 4 && t.IP != 6:
		return about.Usage(fmt.Errorf("--ip %d: must be 4 or 6", t.IP))
	case t.VLAN > 4094:
		return about.Usage(fmt.Errorf("--vlan %d: must be at most 4094", t.VLAN))
	case t.SL > 15:
		return about.Usage(fmt.Errorf("--sl %d: must be at most 15", t.SL))
	case f.port < 1 || f.port > 255:
		return about.Usage(fmt.Errorf("--port %d: must be between 1 and 255", f.port))
	case f.gid < -1 || f.gid > 255:
		return about.Usage(fmt.Errorf("--gid-index %d: must be between 0 and 255", f.gid))
	case strings.ContainsFunc(f.device, func(c rune) bool { return c <= ' ' }):
		return about.Usage(fmt.Errorf("--device %q: must be the name of an RDMA device, without spaces", f.device))
	case t.Slack < 0:
		return about.Usage(fmt.Errorf("--slack %v: must not be negative", t.Slack))
	}
	for _, c := range f.caps {
		if !slices.Contains(engine.Capabilities(), c) {
			return about.Usage(fmt.Errorf("--cap %s: there is no such capability%s", c, suggest.Hint(c, engine.Capabilities())))
		}
	}
	return nil
}

func texts(a [2]netip.Addr) []string { return []string{a[0].String(), a[1].String()} }

// addresses parses an IPv4 and an IPv6 address, in any order. otherwise has those that are not named.
func addresses(flag string, list []string, otherwise [2]netip.Addr) ([2]netip.Addr, error) {
	for _, text := range list {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return otherwise, about.Usage(fmt.Errorf("--%s: %w", flag, err))
		}
		otherwise[map[bool]int{false: 0, true: 1}[a.Is6()]] = a
	}
	return otherwise, nil
}

// open starts the device under test. The caller calls end, also after an error.
func (f *deviceFlags) open(ctx context.Context, a *app) (r runner, end func() error, err error) {
	end = func() error { return nil }
	if err := f.check(); err != nil {
		return nil, end, err
	}
	command, isAgent := strings.CutPrefix(f.dut, agentPrefix)
	if !isAgent && f.link != "" {
		return nil, end, about.Usage(fmt.Errorf("--link is for --dut agent:COMMAND; %s has a link of its own", f.dut))
	}
	var s *dut.Session
	switch {
	case isAgent:
		s, err = f.openAgent(ctx, command)
	case f.dut == "virtual":
		return dut.Virtual{Memory: f.memory(), Traffic: f.traffic}, end, nil
	case f.dut == "roced":
		s, err = dut.StartRoced(ctx, f.traffic)
	case slices.Contains(dut.RXE(), f.dut):
		s, err = dut.StartRXE(ctx, f.dut, f.traffic, a.diag)
	default:
		err = about.Usage(fmt.Errorf("--dut %s: must be virtual, roced, %s or agent:COMMAND", f.dut, strings.Join(dut.RXE(), ", ")))
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, end, interrupt.Errorf("the device under test has not started")
	case !errors.Is(err, dut.ErrLost):
		return nil, end, about.Usage(err)
	default:
		return nil, end, err
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
	d.Command, d.Link, d.Device, d.Caps, d.Traffic, d.Port, d.GIDIndex = command, f.link, f.device, f.caps, f.traffic, f.port, f.gid
	if command == "" || f.link == "" {
		return nil, about.Usage(fmt.Errorf("--dut agent:COMMAND needs a command and --link, such as --dut 'agent:ssh host rocedrill-agent' --link eth1"))
	}
	var err error
	if d.Tester, err = addresses("tester-address", f.tester, d.Tester); err != nil {
		return nil, err
	}
	if d.DUT, err = addresses("dut-address", f.address, d.DUT); err != nil {
		return nil, err
	}
	for i, a := range d.DUT {
		if a == d.Tester[i] {
			return nil, about.Usage(fmt.Errorf("--dut-address %v: is the address of the tester; set --tester-address to another one", a))
		}
	}
	return dut.StartAgent(ctx, d)
}
