package dut

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"roced.io/roced/internal/lab/vm"
)

// rxeReleases maps the devices of Linux to the Debian releases with their kernels.
var rxeReleases = map[string]string{"rxe-6.1": "bookworm", "rxe-6.12": "trixie"}

// RXE lists the names of Linux's devices in a virtual machine.
func RXE() []string { return []string{"rxe-6.1", "rxe-6.12"} }

// bootLimit is generous: QEMU emulates, and other work may use the processors.
const bootLimit = 180 * time.Second

// StartRXE starts a virtual machine with the kernel that name, one of RXE, has, and the agent on its rdma_rxe device. The
// tester is outside, on QEMU's link. Progress of a first build goes to out.
func StartRXE(ctx context.Context, name string, t Traffic, out io.Writer) (*Session, error) {
	bin, err := programs(agentProgram)
	if err != nil {
		return nil, err
	}
	im, err := vm.Make(rxeReleases[name], "drill", out, agentIn(bin))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	dir, err := os.MkdirTemp("", "rocedrill")
	if err != nil {
		return nil, err
	}
	m := &machine{dir: dir, traffic: t, agent: filepath.Base(agentIn(bin))}
	s, err := m.start(ctx, im)
	if err != nil {
		return nil, errors.Join(err, m.stop())
	}
	return s, nil
}

// machine is a virtual machine in a folder of its own.
type machine struct {
	dir     string
	traffic Traffic
	agent   string // program of the agent in the image
	vm      *vm.VM
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

func (m *machine) start(ctx context.Context, im vm.Image) (*Session, error) {
	l, err := openLink("unix:" + m.path("dut"))
	if err != nil {
		return nil, err
	}
	channel, err := m.boot(im)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrLost, err), l.close())
	}
	o := options(0)
	o.Caps = []string{"retries"}
	m.traffic.apply(&o)
	s := newSession(o, l, channel, m.stop)
	s.local = []int{m.vm.PID()}
	if err := s.open(ctx, "device=rxe0"); err != nil {
		console := m.vm.Console()
		return nil, errors.Join(err, s.Close(), fmt.Errorf("the machine's console:\n%s", console))
	}
	return s, nil
}

// boot starts the machine and the agent in it, and returns the agent's channel.
func (m *machine) boot(im vm.Image) (channel net.Conn, err error) {
	const port = "agent"
	m.vm, err = vm.Start(vm.Options{Image: im, Dir: m.dir, CPUs: min(2, runtime.NumCPU()), Ports: []string{port},
		Links: []vm.Link{{MAC: "02:00:00:00:00:02", Local: m.path("dut"), Remote: m.path("dut" + testerSuffix)}}}, bootLimit)
	if err != nil {
		return nil, err
	}
	where, vlan := "eth0", ""
	if v := m.traffic.VLAN; v != 0 {
		where, vlan = "eth0.v", fmt.Sprintf("ip link add link eth0 name eth0.v type vlan id %d; ip link set eth0.v up", v)
	}
	_, err = m.vm.Shell(fmt.Sprintf(`set -e
sysctl -qw net.ipv6.conf.default.accept_dad=0 net.ipv6.conf.eth0.accept_dad=0
ip link set eth0 mtu 4200 up; %[4]s
ip addr add %[1]v/15 dev %[3]s; ip addr add %[2]v/64 dev %[3]s nodad
rdma link add rxe0 type rxe netdev eth0`, dutIP, dutIP6, where, vlan), 20*time.Second)
	if err != nil {
		return nil, err
	}
	return m.vm.Run(m.agent, port)
}

func (m *machine) stop() error {
	var err error
	if m.vm != nil {
		err = m.vm.Close()
	}
	return errors.Join(err, os.RemoveAll(m.dir))
}
