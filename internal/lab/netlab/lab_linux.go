package netlab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab/namespace"
)

// Lab is two daemons with a NIC each on a common network.
type Lab struct {
	Bin  string // folder of the programs
	Dir  string // configurations, logs and run directories
	Bed  *Bed   // nil on AF_UNIX links and loopback addresses
	Host [2]*Host
	More []*Lab // more pairs of NICs of the same daemon (LabOptions.Pairs)
	loop *loop  // of labs without Bed
}

// Device is the name of both NICs. Some programs need the same name on both sides.
const Device = "rxe0"

// Host is one daemon.
type Host struct {
	NS      *namespace.Namespace // of the daemon; nil means that of this process
	Name    string               // a or b
	RunDir  string
	Device  string // name of its NIC
	Addr    string // address of its NIC
	Config  string
	LogFile string
	User    uint32 // UID of the daemon; 0 means that of this process
	daemon  *namespace.Daemon
}

// Timeouts of the daemons of a lab.
const (
	startTimeout = 10 * time.Second
	stopTimeout  = 15 * time.Second
)

// LabOptions selects the type of a lab.
type LabOptions struct {
	Bin  string // folder of the programs
	Dir  string // existing folder; its path must be short, because it contains sockets
	Unix bool   // connect the NICs by AF_UNIX datagrams, without privileges; programs get a namespace where permitted
	// Loopback gives each NIC a loopback address, on UDP sockets: in a namespace of the lab, or without the privilege to
	// make one free addresses of this namespace.
	Loopback bool
	// Together makes one daemon with both NICs, for Unix and Loopback. Switch also puts them on a switch, and Shards gives
	// each of them a shard of its own. With more than one of Pairs, each pair has a shard.
	Together, Switch, Shards bool
	Pairs                    int
	// NoOffload turns off super-frames on TAPs.
	NoOffload bool
	// Shared are the types of ports that share the veth of a namespace with the kernel: packet or xdp. More keys may
	// follow after a comma. Empty means a TAP, or udp with Loopback.
	Shared [2]string
	// Planes is the number of ports of each NIC, each in a plane of its own (Bed.AddPlanes); 0 means one port without planes.
	Planes int
	VLAN   uint16 // VLAN with the additional addresses 198.19.0.1 and .2, fd19::1 and ::2; 0 means none
	Extra  string // YAML for the entry of the NIC, indented by four spaces
	Daemon string // YAML lines for the configuration of the daemon
}

// NewLab makes the network, starts both daemons, and returns when frames pass between them.
func NewLab(o LabOptions) (*Lab, error) {
	l := &Lab{Bin: o.Bin, Dir: o.Dir}
	var err error
	switch {
	case o.Loopback, o.Unix:
		l.loop, err = newLoop()
	default:
		l.Bed, err = newBed(o)
	}
	if err != nil {
		return nil, err
	}
	if err := l.startHosts(o); err != nil {
		l.Close()
		return nil, err
	}
	if err := l.ready(o); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// ready waits until frames pass. Of two AF_UNIX sockets the first one has no peer when it opens.
func (l *Lab) ready(o LabOptions) error {
	if l.Bed != nil {
		return l.Bed.Ready()
	}
	if !o.Unix {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, p := range append([]*Lab{l}, l.More...) {
		for i, h := range p.Host {
			if err := p.active(ctx, i); err != nil {
				return fmt.Errorf("wait for the link of %s of daemon %s: %w", h.Device, h.RunDir, err)
			}
		}
	}
	return nil
}

// active waits until the link of host i is active.
func (l *Lab) active(ctx context.Context, i int) error {
	h := l.Host[i]
	for {
		text, err := l.Ctl(ctx, i, "--json", "link", "show")
		if err != nil {
			return err
		}
		var links []api.Link
		if err := json.Unmarshal([]byte(text), &links); err != nil {
			return err
		}
		if slices.ContainsFunc(links, func(n api.Link) bool { return n.Name == h.Device && n.State == "ACTIVE" }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// newBed makes the network of a lab.
func newBed(o LabOptions) (*Bed, error) {
	shared := [2]bool{o.Shared[0] != "", o.Shared[1] != ""}
	if o.Planes == 0 {
		return NewDirect(shared)
	}
	b, err := New()
	if err != nil {
		return nil, err
	}
	if err := b.AddPlanes(o.Planes, shared); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// startHosts starts the daemons.
func (l *Lab) startHosts(o LabOptions) error {
	for i := range l.Host {
		name := string(rune('a' + i))
		l.Host[i] = &Host{
			Name: name, RunDir: filepath.Join(l.Dir, name), Device: Device,
			Config: filepath.Join(l.Dir, name+".yaml"), LogFile: filepath.Join(l.Dir, name+".log"),
		}
	}
	if o.Together || o.Switch {
		return l.startTogether(o)
	}
	for i, h := range l.Host {
		text := fmt.Sprintf("run_dir: %q\n%snics:\n%s", h.RunDir, o.Daemon, l.entry(i, h, o))
		if err := errors.Join(os.WriteFile(h.Config, []byte(text), 0o600), h.Start(o.Bin)); err != nil {
			return err
		}
	}
	return nil
}

// startTogether starts one daemon, that of host 0, with all NICs.
func (l *Lab) startTogether(o LabOptions) error {
	h := l.Host[0]
	h.Device = Device[:len(Device)-1] + "0"
	text := fmt.Sprintf("run_dir: %q\n%snics:\n", h.RunDir, o.Daemon)
	if o.Switch {
		o.Extra += "    switch: lab\n"
	}
	for k := range max(o.Pairs, 1) {
		p := l
		if k > 0 {
			p = &Lab{Bin: l.Bin, Dir: l.Dir, Host: [2]*Host{{}, {}}, loop: l.loop}
			l.More = append(l.More, p)
		}
		for i, to := range p.Host {
			n := 2*k + i
			if n > 0 {
				to.RunDir, to.Config, to.LogFile, to.Device = h.RunDir, h.Config, h.LogFile, Device[:len(Device)-1]+strconv.Itoa(n)
			}
			text += l.entry(n, to, o)
			if o.Shards {
				text += fmt.Sprintf("    shard: s%d\n", n)
			} else if o.Pairs > 1 && o.Switch {
				text += fmt.Sprintf("    shard: s%d\n", k)
			}
		}
	}
	if err := errors.Join(os.WriteFile(h.Config, []byte(text), 0o600), h.Start(o.Bin)); err != nil {
		return err
	}
	l.Host[1].daemon = h.daemon
	return nil
}

// entry returns the configuration of the NIC with this number, that of h. The NICs 0 and 1 are those of the hosts.
func (l *Lab) entry(n int, h *Host, o LabOptions) string {
	i := n % 2
	port := fmt.Sprintf("{type: tap, netns: %q, device: tap_%s, bridge: %s, offload: %t}", l.netns(i), h.Name, Bridge, !o.NoOffload)
	if o.Shared[i] != "" {
		port = fmt.Sprintf("{netns: %q, interface: %s, type: %s}", l.netns(i), Veth, o.Shared[i])
	}
	if o.Planes != 0 {
		port = l.planes(i, h, o)
	}
	if o.Unix {
		port = fmt.Sprintf("{type: unix, local: %q, remote: %q}", l.link(n), l.link(n^1))
	}
	h.Addr = fmt.Sprintf("198.18.0.%d", n+1)
	addrs := fmt.Sprintf("    addresses: [%q, %q]\n", nicAddrs(n)[0], nicAddrs(n)[1])
	if o.Loopback {
		h.Addr = l.loop.address(n).String()
		port = fmt.Sprintf("{netns: %q, address: %s, type: %s}", l.netns(i), h.Addr, cmp.Or(o.Shared[i], "udp"))
	}
	if o.Shared[i] != "" || o.Loopback {
		addrs = "" // the NIC uses those of the interface
	}
	if o.VLAN != 0 {
		addrs += fmt.Sprintf("    vlans: [{id: %d, addresses: [\"198.19.0.%d/24\", \"fd19::%d/64\"]}]\n", o.VLAN, n+1, n+1)
	}
	return fmt.Sprintf("  - name: %s\n%s    port: %s\n%s", h.Device, addrs, port, o.Extra)
}

// planes returns the configuration of a port with planes.
func (l *Lab) planes(i int, h *Host, o LabOptions) string {
	kind, plane := o.Shared[i], func(p int) string { return fmt.Sprintf("{interface: %s}", PlaneDevice(p)) }
	if kind == "" {
		kind, plane = fmt.Sprintf("tap, offload: %t", !o.NoOffload), func(p int) string {
			return fmt.Sprintf("{device: tap_%s%d, bridge: %s}", h.Name, p, planeBridge(p))
		}
	}
	var all []string
	for p := range o.Planes {
		all = append(all, plane(p))
	}
	return fmt.Sprintf("{netns: %q, type: %s, planes: [%s]}", l.netns(i), kind, strings.Join(all, ", "))
}

func (l *Lab) netns(i int) string {
	if n := l.NS(i); n != nil {
		return n.Path()
	}
	return ""
}

func (l *Lab) link(i int) string { return filepath.Join(l.Dir, fmt.Sprintf("link%d", i)) }

// Start starts the daemon and waits until it accepts connections.
func (h *Host) Start(bin string) (err error) {
	c := exec.Command(filepath.Join(bin, "roced"), "run", "--config", h.Config)
	if h.User != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: h.User, Gid: h.User}}
	}
	if h.daemon, err = h.NS.StartDaemon(c, h.RunDir, h.LogFile); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err = h.daemon.Ready(ctx); errors.Is(err, namespace.ErrEnded) {
		text, _ := os.ReadFile(h.LogFile)
		err = fmt.Errorf("%w:\n%s", err, text)
	}
	return err
}

// PID returns the process ID of the daemon.
func (h *Host) PID() int { return h.daemon.PID() }

// Stop ends the daemon with a signal and waits for it.
func (h *Host) Stop(sig os.Signal) error {
	if h == nil || h.daemon == nil {
		return nil
	}
	return h.daemon.Stop(sig, stopTimeout)
}

// Close stops the daemons and removes the network.
func (l *Lab) Close() error {
	var errs []error
	for i, h := range l.Host {
		if i == 0 || h != nil && h.daemon != l.Host[0].daemon {
			errs = append(errs, h.Stop(syscall.SIGTERM))
		}
	}
	if l.Bed != nil {
		errs = append(errs, l.Bed.Close())
	}
	if l.loop != nil {
		errs = append(errs, l.loop.close())
	}
	return errors.Join(errs...)
}

// Pair runs a server on host 1 and a client on host 0, and returns the output of the client. ready waits for the server;
// then the client starts.
func (l *Lab) Pair(ctx context.Context, server, client []string, ready func(context.Context) error) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := exec.CommandContext(ctx, server[0], server[1:]...)
	serverLog, err := os.CreateTemp(l.Dir, "server")
	if err != nil {
		return "", err
	}
	defer os.Remove(serverLog.Name())
	defer serverLog.Close()
	s.Stdout, s.Stderr = serverLog, serverLog
	if err := l.NS(1).Start(s); err != nil {
		return "", err
	}
	defer func() {
		cancel()
		s.Wait()
	}()
	if err := ready(ctx); err != nil {
		return "", fmt.Errorf("%s: %w", server[0], err)
	}
	out, err := l.Output(ctx, 0, client)
	if err != nil {
		text, _ := os.ReadFile(serverLog.Name())
		return out, fmt.Errorf("%w\nserver: %s", err, text)
	}
	return out, nil
}

// Output runs a program on host i and returns its output.
func (l *Lab) Output(ctx context.Context, i int, args []string) (string, error) {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	var out, diag bytes.Buffer
	c.Stdout, c.Stderr = &out, &diag
	if err := l.NS(i).Start(c); err != nil {
		return "", err
	}
	if err := c.Wait(); err != nil {
		return out.String(), fmt.Errorf("%v: %w\n%s%s", args, err, out.String(), diag.String())
	}
	return out.String(), nil
}

// Interruptible is like Output for a program that runs until SIGINT, which it receives when ctx ends.
func (l *Lab) Interruptible(ctx context.Context, i int, args []string) (string, error) {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := l.NS(i).Start(c); err != nil {
		return "", err
	}
	if err := c.Wait(); err != nil && ctx.Err() == nil {
		return out.String(), fmt.Errorf("%v: %w\n%s", args, err, out.String())
	}
	return out.String(), nil
}

// NS returns the namespace of host i; nil means that of this process.
func (l *Lab) NS(i int) *namespace.Namespace {
	switch {
	case l.Bed != nil:
		return l.Bed.NS[i]
	case l.loop != nil:
		return l.loop.ns
	}
	return nil
}

// WaitFile waits until a file exists.
func WaitFile(ctx context.Context, path string) error {
	for range 500 {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not exist after 5 s", path)
}
