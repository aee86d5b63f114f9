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

// ErrLost says that the machine does not answer any more.
var ErrLost = errors.New("the virtual machine does not answer")

// Link is a network card of the machine: eth0, eth1 and so on, in order.
type Link struct {
	MAC string
	// Local and Remote are the sockets of a link of AF_UNIX datagrams: the
	// machine's end and the other one.
	Local, Remote string
	// TAP is the name of a TAP device in the namespace where the machine is
	// started, instead.
	TAP string
}

// Options say what machine to start.
type Options struct {
	Image Image
	Dir   string // existing folder with a short path: a socket and the log are made in it
	CPUs  int
	// Counted makes time pass with the instructions that the machine executes, one
	// nanosecond each, instead of with the clock of the host: what else the host
	// does has no influence on measurements then. Such a machine has one processor.
	Counted bool
	// CPU is QEMU's model of the processors, "max" if empty: all that can be emulated.
	CPU   string
	Links []Link
	// Start starts QEMU, perhaps in a namespace; nil: as it is.
	Start func(*exec.Cmd) error
}

// VM is a running machine. It is safe for concurrent use: commands are run one
// after the other.
type VM struct {
	CPUs int // emulated processors

	cmd    *exec.Cmd
	ended  chan error
	log    string
	listen *net.UnixListener
	jobs   atomic.Int32 // begun

	mu     sync.Mutex
	conn   net.Conn
	reader *bufio.Reader
	lost   error // why it does not answer any more
}

// memory of the machine: MiB.
const memory = 1024

// Start boots a machine and waits until it takes commands. It powers itself off
// when this process ends, in whatever way.
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
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off random.trust_cpu=on net.ifnames=0",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=control,path="+control,
		"-device", "virtserialport,chardev=control,name=control")
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

// accept takes QEMU's connection and waits for rxepeer's first answer.
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

// CommandError is the answer to a command that has failed in the machine.
type CommandError struct {
	Command string
	Text    string
}

// Error tells what rxepeer or the shell has said.
func (e *CommandError) Error() string {
	return fmt.Sprintf("in the virtual machine: %q: %s", abridge(e.Command), strings.TrimSpace(e.Text))
}

// Run runs a command of rxepeer and returns its answer; guest/rxepeer.c has the
// commands. A machine that has once not answered in time is lost: what it says
// later would be taken for the answer to something else.
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

// Console returns what the machine has printed.
func (v *VM) Console() string {
	text, _ := os.ReadFile(v.log)
	return string(text)
}

// PID is QEMU's process.
func (v *VM) PID() int { return v.cmd.Process.Pid }

// Close switches the machine off.
func (v *VM) Close() error {
	if v.conn != nil {
		v.conn.Close() // rxepeer ends, and init with it
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
