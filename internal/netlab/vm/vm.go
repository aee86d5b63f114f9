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
	// Ports are further channels to programs in the machine: the listening AF_UNIX sockets to which QEMU connects, by the
	// name of the channel. A program opens /dev/virtio-ports/NAME.
	Ports map[string]string
	// Start starts QEMU, for example in a namespace; nil starts it directly.
	Start func(*exec.Cmd) error
}

// VM is a running machine. It is safe for concurrent use: commands run one after the other.
type VM struct {
	CPUs int // emulated processors

	cmd    *exec.Cmd
	ended  chan error
	log    string
	listen *net.UnixListener
	jobs   atomic.Int32 // started so far

	mu     sync.Mutex
	conn   net.Conn
	reader *bufio.Reader
	lost   error // the reason why it no longer answers
}

// memory is the machine's memory in MiB.
const memory = 1024

// Start boots a machine and waits until it accepts commands. The machine powers off when this process ends for any
// reason.
func Start(o Options, limit time.Duration) (*VM, error) {
	path := filepath.Join(o.Dir, "control")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return nil, err
	}
	v := &VM{CPUs: o.CPUs, log: filepath.Join(o.Dir, "console.log"), listen: l, ended: make(chan error, 1)}
	v.cmd = exec.Command("qemu-system-x86_64", arguments(o, path)...)
	log, err := os.Create(v.log)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	defer log.Close()
	v.cmd.Stdout, v.cmd.Stderr = log, log
	start := o.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	if err := start(v.cmd); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	go func() { v.ended <- v.cmd.Wait() }()
	if err := v.accept(limit); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w\n%s", ErrLost, err, v.Console()), v.Close())
	}
	return v, nil
}

func arguments(o Options, control string) []string {
	accel := []string{"-accel", "tcg,thread=multi", "-smp", strconv.Itoa(o.CPUs)}
	if o.Counted {
		accel = []string{"-accel", "tcg,thread=single", "-smp", "1", "-icount", "shift=0,sleep=off"}
	}
	args := append(accel, "-machine", "q35", "-cpu", cmp.Or(o.CPU, "max"),
		"-m", strconv.Itoa(memory), "-nodefaults", "-nographic", "-no-reboot", "-monitor", "none", "-serial", "stdio",
		"-kernel", o.Image.Kernel, "-initrd", o.Image.Initrd,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check random.trust_cpu=on net.ifnames=0",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=control,path="+control,
		"-device", "virtserialport,chardev=control,name=control")
	for name, path := range o.Ports {
		args = append(args, "-chardev", "socket,id="+name+",path="+path, "-device", "virtserialport,chardev="+name+",name="+name)
	}
	for i, l := range o.Links {
		id := "n" + strconv.Itoa(i)
		back := fmt.Sprintf("dgram,id=%s,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", id, l.Local, l.Remote)
		if l.TAP != "" {
			back = fmt.Sprintf("tap,id=%s,ifname=%s,script=no,downscript=no", id, l.TAP)
		}
		args = append(args, "-netdev", back, "-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,romfile=", id, l.MAC))
	}
	return args
}

// accept accepts QEMU's connection and waits for rxepeer's first answer.
func (v *VM) accept(limit time.Duration) error {
	v.listen.SetDeadline(time.Now().Add(limit))
	c, err := v.listen.Accept()
	if err != nil {
		return err
	}
	v.conn, v.reader = c, bufio.NewReader(c)
	_, err = v.Run("sh true", limit)
	return err
}

// CommandError is the answer to a failed command in the machine.
type CommandError struct {
	Command string
	Text    string
}

// Error returns the message of rxepeer or the shell.
func (e *CommandError) Error() string {
	return fmt.Sprintf("in the virtual machine: %q: %s", abridge(e.Command), strings.TrimSpace(e.Text))
}

// Run runs a command of rxepeer and returns its answer; guest/rxepeer.c has the commands. After one late answer the
// machine is lost: a later answer could be taken for the answer to another command.
func (v *VM) Run(command string, limit time.Duration) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lost != nil {
		return "", v.lost
	}
	status, text, err := v.exchange(command, limit)
	if err != nil {
		v.lost = fmt.Errorf("%w: %q: %w", ErrLost, abridge(command), err)
		return "", v.lost
	}
	if status != "ok" {
		return "", &CommandError{command, text}
	}
	return text, nil
}

// exchange sends a command and reads the answer.
func (v *VM) exchange(command string, limit time.Duration) (status, text string, err error) {
	v.conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(v.conn, command+"\x00"); err != nil {
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

// abridge shortens a command for messages.
func abridge(command string) string {
	const most = 60
	if len(command) > most {
		return command[:most] + "..."
	}
	return command
}

// Shell runs a script in the machine's shell.
func (v *VM) Shell(script string, limit time.Duration) (string, error) {
	return v.Run("sh exec 2>&1; "+script, limit)
}

// ReadFile reads a file of the machine, in pieces that fit into its answers.
func (v *VM) ReadFile(path string, limit time.Duration) (content []byte, err error) {
	const piece = 512 << 10
	for i := 0; ; i++ {
		text, err := v.Shell(fmt.Sprintf("dd if='%s' bs=%d skip=%d count=1 2>/dev/null | base64", path, piece, i), limit)
		if err != nil {
			return nil, err
		}
		b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(text, "\n", ""))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		content = append(content, b...)
		if len(b) < piece {
			return content, nil
		}
	}
}

// Console returns the machine's console output.
func (v *VM) Console() string {
	text, _ := os.ReadFile(v.log)
	return string(text)
}

// PID returns the process ID of QEMU.
func (v *VM) PID() int { return v.cmd.Process.Pid }

// Close powers the machine off.
func (v *VM) Close() error {
	if v.conn != nil {
		v.conn.Close() // then rxepeer ends, and init with it
	}
	v.listen.Close()
	select {
	case <-v.ended:
		return nil
	case <-time.After(5 * time.Second):
		v.cmd.Process.Kill()
		<-v.ended
		return nil
	}
}
