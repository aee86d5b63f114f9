package netlab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Lab is two daemons with a NIC each, joined by a network.
type Lab struct {
	Bin  string // folder of the programs
	Dir  string // configurations, logs and run directories
	Bed  *Bed   // nil on AF_UNIX links
	Host [2]*Host
}

// Device is the name of both NICs: some programs want the device of the other side to be
// called as their own.
const Device = "rxe0"

// Host is one daemon.
type Host struct {
	NS      *Namespace // in which it is started; nil is that of this process
	Name    string     // a or b
	RunDir  string
	Device  string // name of its NIC
	Addr    string // address of its NIC
	Config  string
	LogFile string
	User    uint32 // that the daemon runs as; 0: as this process
	cmd     *exec.Cmd
	done    chan error
}

// LabOptions choose the kind of a lab.
type LabOptions struct {
	Bin  string // folder of the programs
	Dir  string // existing folder, with a short path: sockets are made in it
	Unix bool   // join the NICs by AF_UNIX datagrams: needs no privilege
	// Loopback gives each NIC a loopback address of this namespace, on UDP sockets: needs no privilege either.
	Loopback bool
	// NoOffload makes TAPs carry single frames.
	NoOffload bool
	// Shared are the types of ports that share the veth of a namespace with the kernel:
	// packet or xdp, perhaps with more keys behind a comma; empty for a TAP.
	Shared [2]string
	VLAN   uint16 // in which NICs have addresses 198.19.0.1 and 2 as well, and fd19::1 and 2; 0: none
	Extra  string // YAML added to the NIC's entry, indented by four spaces
	Daemon string // YAML added to the daemon's configuration: whole lines
}

// NewLab builds the network, starts both daemons, and returns when frames pass between them.
func NewLab(o LabOptions) (*Lab, error) {
	l := &Lab{Bin: o.Bin, Dir: o.Dir}
	if !o.Unix && !o.Loopback {
		var err error
		if l.Bed, err = NewDirect([2]bool{o.Shared[0] != "", o.Shared[1] != ""}); err != nil {
			return nil, err
		}
	}
	for i := range l.Host {
		h, err := l.startHost(i, o)
		if err != nil {
			l.Close()
			return nil, err
		}
		l.Host[i] = h
	}
	if l.Bed != nil {
		if err := l.Bed.Ready(); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

func (l *Lab) startHost(i int, o LabOptions) (*Host, error) {
	name := string(rune('a' + i))
	h := &Host{
		Name: name, RunDir: filepath.Join(l.Dir, name), Device: Device, Addr: fmt.Sprintf("198.18.0.%d", i+1),
		Config: filepath.Join(l.Dir, name+".yaml"), LogFile: filepath.Join(l.Dir, name+".log"),
	}
	port := fmt.Sprintf("{type: tap, netns: %q, device: tap_%s, bridge: %s, offload: %t}", l.netns(i), name, Bridge, !o.NoOffload)
	if o.Shared[i] != "" {
		port = fmt.Sprintf("{netns: %q, interface: %s, type: %s}", l.netns(i), Veth, o.Shared[i])
	}
	if o.Unix {
		port = fmt.Sprintf("{type: unix, local: %q, remote: %q}", l.link(i), l.link(1-i))
	}
	addrs := fmt.Sprintf("    addresses: [%q, %q]\n", nicAddrs(i)[0], nicAddrs(i)[1])
	if o.Loopback {
		h.Addr = fmt.Sprintf("127.0.0.%d", i+2)
		port = fmt.Sprintf("{type: udp, address: %s}", h.Addr)
	}
	if o.Shared[i] != "" || o.Loopback {
		addrs = "" // the interface has them
	}
	if o.VLAN != 0 {
		addrs += fmt.Sprintf("    vlans: [{id: %d, addresses: [\"198.19.0.%d/24\", \"fd19::%d/64\"]}]\n", o.VLAN, i+1, i+1)
	}
	text := fmt.Sprintf("run_dir: %q\n%snics:\n  - name: %s\n%s    port: %s\n%s", h.RunDir, o.Daemon, h.Device, addrs, port, o.Extra)
	if err := os.WriteFile(h.Config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return h, h.Start(o.Bin)
}

func (l *Lab) netns(i int) string {
	if l.Bed == nil {
		return ""
	}
	return l.Bed.NS[i].Path()
}

func (l *Lab) link(i int) string { return filepath.Join(l.Dir, fmt.Sprintf("link%d", i)) }

// Start starts the daemon and waits until it can be used.
func (h *Host) Start(bin string) error {
	log, err := os.OpenFile(h.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	h.cmd = exec.Command(filepath.Join(bin, "roced"), "run", "--config", h.Config)
	h.cmd.Stdout, h.cmd.Stderr = log, log
	if h.User != 0 {
		h.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: h.User, Gid: h.User}}
	}
	if err := h.NS.Start(h.cmd); err != nil {
		return err
	}
	h.done = make(chan error, 1)
	go func() { h.done <- h.cmd.Wait() }()
	return h.wait()
}

func (h *Host) wait() error {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if c, err := net.Dial("unix", filepath.Join(h.RunDir, "roced.sock")); err == nil {
			return c.Close()
		}
		select {
		case err := <-h.done:
			h.done <- err
			text, _ := os.ReadFile(h.LogFile)
			return fmt.Errorf("roced ended at once (%v):\n%s", err, text)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return errors.New("roced does not answer after 10 s")
}

// PID is the daemon's process.
func (h *Host) PID() int { return h.cmd.Process.Pid }

// Stop ends the daemon by a signal and waits for it.
func (h *Host) Stop(sig os.Signal) error {
	if h == nil || h.cmd == nil || h.cmd.Process == nil {
		return nil
	}
	if err := h.cmd.Process.Signal(sig); err != nil {
		return nil // it has ended already
	}
	select {
	case err := <-h.done:
		return err
	case <-time.After(15 * time.Second):
		h.cmd.Process.Kill()
		return errors.New("roced did not end within 15 s")
	}
}

// Close stops the daemons and removes the network.
func (l *Lab) Close() error {
	var errs []error
	for _, h := range l.Host {
		errs = append(errs, h.Stop(syscall.SIGTERM))
	}
	if l.Bed != nil {
		errs = append(errs, l.Bed.Close())
	}
	return errors.Join(errs...)
}

// Pair runs a server beside host 1 and a client beside host 0, the client when
// the server is ready, and returns the client's output. Each is given as
// program and arguments; ready waits for the server.
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

// Output runs a program beside host i and returns what it prints.
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

// Interruptible is Output for a program that runs until ctx ends, which it is
// told by SIGINT.
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

// NS is where the programs of host i run: nil, the namespace of this process, if there are
// no others.
func (l *Lab) NS(i int) *Namespace {
	if l.Bed == nil {
		return nil
	}
	return l.Bed.NS[i]
}

// WaitFile waits until a program that has just been started makes a file.
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
	return fmt.Errorf("%s does not appear within 5 s", path)
}
