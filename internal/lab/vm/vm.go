package vm

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ErrLost means that the machine no longer answers.
var ErrLost = errors.New("the virtual machine does not answer")

// Link is a network card of the machine: eth0, eth1 and so on, in order.
type Link struct {
	MAC string
	// Local and Remote are the sockets of a link of AF_UNIX datagrams: the machine's end and the other end.
	Local, Remote string
	// TAP replaces Local and Remote: the name of a TAP device in the namespace where the machine starts.
	TAP string
}

// Options describe the machine to start.
type Options struct {
	Image Image
	Dir   string // an existing folder with a short path, for a socket and the log
	CPUs  int
	// Counted makes time advance by one nanosecond per executed instruction instead of by the host's clock. Other load
	// on the host then has no influence on measurements. Such a machine has one processor.
	Counted bool
	// QEMU's processor model; empty means "max": all that QEMU can emulate
	CPU   string
	Links []Link
	// Ports are the names of further channels to programs in the machine. VM.Run starts a program on one.
	Ports []string
	// Start starts QEMU, for example in a namespace; nil starts it directly.
	Start func(*exec.Cmd) error
}

// VM is a running machine. It is safe for concurrent use: commands run one after the other.
type VM struct {
	CPUs int // emulated processors

	cmd   *exec.Cmd
	ended chan error
	log   string
	ports map[string]net.Conn // by name; QEMU connects to a socket of that name in Options.Dir
	jobs  atomic.Int32        // started so far

	mu     sync.Mutex
	conn   net.Conn // the port control
	reader *bufio.Reader
	lost   error // the reason why it no longer answers
}

// memory is the machine's memory in MiB.
const memory = 1024

// Start boots a machine and waits until it accepts commands. The machine powers off when this process ends for any
// reason.
func Start(o Options, limit time.Duration) (*VM, error) {
	o.Ports = append([]string{control}, o.Ports...)
	v := &VM{CPUs: o.CPUs, log: filepath.Join(o.Dir, "console.log"), ports: map[string]net.Conn{}, ended: make(chan error, 1)}
	v.cmd = exec.Command("qemu-system-x86_64", arguments(o)...)
	log, err := os.Create(v.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	listeners, err := listen(o)
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	v.cmd.Stdout, v.cmd.Stderr = log, log
	start := o.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(v.cmd); err != nil {
		return nil, err
	}
	go func() { v.ended <- v.cmd.Wait() }()
	if err := v.accept(o.Ports, listeners, limit); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w\n%s", ErrLost, err, v.Console()), v.Close())
	}
	return v, nil
}

// control is the port of commands.
const control = "control"

// listen makes the sockets of the ports. The caller closes them, also after an error.
func listen(o Options) (list []*net.UnixListener, err error) {
	for _, name := range o.Ports {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(o.Dir, name)})
		if err != nil {
			return list, err
		}
		list = append(list, l)
	}
	return list, nil
}

func arguments(o Options) []string {
	accel := []string{"-accel", "tcg,thread=multi", "-smp", strconv.Itoa(o.CPUs)}
	if o.Counted {
		accel = []string{"-accel", "tcg,thread=single", "-smp", "1", "-icount", "shift=0,sleep=off"}
	}
	args := append(accel, "-machine", "q35", "-cpu", cmp.Or(o.CPU, "max"),
		"-m", strconv.Itoa(memory), "-nodefaults", "-nographic", "-no-reboot", "-monitor", "none", "-serial", "stdio",
		"-kernel", o.Image.Kernel, "-initrd", o.Image.Initrd,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check random.trust_cpu=on net.ifnames=0",
		"-device", "virtio-serial-pci")
	for _, name := range o.Ports {
		args = append(args, "-chardev", "socket,id="+name+",path="+filepath.Join(o.Dir, name), "-device", "virtserialport,chardev="+name+",name="+name)
	}
	for i, l := range o.Links {
		id := "n" + strconv.Itoa(i)
		back := fmt.Sprintf("dgram,id=%s,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", id, l.Local, l.Remote)
		if l.TAP != "" {
			back = fmt.Sprintf("tap,id=%s,ifname=%s,script=no,downscript=no", id, l.TAP)
		}
		// A device that filters VLANs drops priority tags (VLAN 0) for a guest without 8021q.
		args = append(args, "-netdev", back, "-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,ctrl_vlan=off,romfile=", id, l.MAC))
	}
	return args
}

// accept accepts QEMU's connections and waits for the first answer.
func (v *VM) accept(names []string, listeners []*net.UnixListener, limit time.Duration) error {
	for i, l := range listeners {
		l.SetDeadline(time.Now().Add(limit))
		c, err := l.Accept()
		if err != nil {
			return err
		}
		v.ports[names[i]] = c
	}
	v.conn = v.ports[control]
	v.reader = bufio.NewReader(v.conn)
	_, err := v.Shell("true", limit)
	return err
}

// ScriptError is a failed script in the machine.
type ScriptError struct {
	Script string
	Output string
}

// Error returns the script's output.
func (e *ScriptError) Error() string {
	return fmt.Sprintf("in the virtual machine: %q: %s", abridge(e.Script), strings.TrimSpace(e.Output))
}

// Shell runs a script in the machine's shell and returns its output. After one late answer the machine is lost: a later
// answer could be taken for the answer to another script.
func (v *VM) Shell(script string, limit time.Duration) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost != nil {
		return "", v.lost
	}
	status, text, err := v.exchange(script, limit)
	if err != nil {
		v.lost = fmt.Errorf("%w: %q: %w%s", ErrLost, abridge(script), err, v.lastLines())
		return "", v.lost
	}
	if status != "ok" {
		return "", &ScriptError{script, text}
	}
	return text, nil
}

// exchange sends a script and reads the answer; guest/init.sh has the protocol.
func (v *VM) exchange(script string, limit time.Duration) (status, text string, err error) {
	v.conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(v.conn, base64.StdEncoding.EncodeToString([]byte(script))+"\n"); err != nil {
		return "", "", err
	}
	head, err := v.reader.ReadString('\n')
	var n int
	if err == nil {
		_, err = fmt.Sscanf(head, "%s %d\n", &status, &n)
	}
	if err != nil {
		return "", "", err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(v.reader, b)
	return status, string(b), err
}

// abridge shortens a script for messages.
func abridge(script string) string {
	const most = 60
	if len(script) > most {
		return script[:most] + "..."
	}
	return script
}

// Run starts a program with the path of a port as its argument, and returns the other end of the port.
func (v *VM) Run(program, port string) (net.Conn, error) {
	_, err := v.Shell(fmt.Sprintf("setsid %s /dev/virtio-ports/%s >/tmp/%[2]s.log 2>&1 </dev/null &", program, port), answerTime)
	return v.ports[port], err
}

// Console returns the machine's console output.
func (v *VM) Console() string {
	text, _ := os.ReadFile(v.log)
	return string(text)
}

// lastLines returns the end of the console's output and how QEMU ended, for an error.
func (v *VM) lastLines() string {
	const (
		most  = 20
		ended = 100 * time.Millisecond // for QEMU to end after it closed its ports
	)
	lines := strings.Split(strings.TrimSpace(v.Console()), "\n")
	text := "\nconsole: " + strings.Join(lines[max(0, len(lines)-most):], "\n")
	select {
	case err := <-v.ended:
		v.ended <- err // for Close
		return fmt.Sprintf("%s\nQEMU has ended: %v", text, err)
	case <-time.After(ended):
		return text
	}
}

// PID returns the process of QEMU.
func (v *VM) PID() int { return v.cmd.Process.Pid }

// Close powers the machine off.
func (v *VM) Close() error {
	for _, c := range v.ports {
		c.Close() // init ends with the port control
	}
	select {
	case <-v.ended:
		return nil
	case <-time.After(5 * time.Second):
		v.cmd.Process.Kill()
		<-v.ended
		return nil
	}
}
