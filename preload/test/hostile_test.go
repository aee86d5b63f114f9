package test

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"roced.io/roced/internal/lab"
)

// message is an answer of a false daemon (docs/reference/control-protocol.md). Every field can be wrong.
type message struct {
	ret        int32
	len        int // claimed length of the response minus its real length
	nfd        int // claimed number of descriptors minus the real number
	kind, size uint32
	arg        uint64
	fds        int
	body       []byte
	raw        []byte // replaces the whole message
	close      bool   // close the connection instead
	memory     bool   // answers PASS_MEMORY, which other scripts refuse
}

func (m message) bytes() []byte {
	if m.raw != nil {
		return m.raw
	}
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(m.ret))
	b = le.AppendUint32(b, uint32(len(m.body)+m.len))
	b = le.AppendUint32(b, uint32(m.fds+m.nfd))
	b = le.AppendUint32(b, 0)
	for range 4 {
		b = le.AppendUint64(b, m.arg)
		b = le.AppendUint32(b, m.kind)
		b = le.AppendUint32(b, m.size)
	}
	return append(b, m.body...)
}

// words makes a response of 32-bit words.
func words(w ...uint32) (b []byte) {
	for _, v := range w {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

const (
	kindNumber, kindMemory, kindEventfd = 1, 2, 3
	helloVersion                        = 1 // of rdma_cm
	extPassMemory                       = 0xc8
)

var (
	goodHello   = message{kind: kindMemory, fds: 1, body: make([]byte, 264)}
	goodContext = message{kind: kindNumber, fds: 1, body: words(0, 1)}
	noDoorbell  = message{ret: -int32(syscall.EOPNOTSUPP)}
	goodCQ      = message{body: words(7, 100, 0, 0, 4096, 0)}
)

// attacks are malformed answers. Each entry has its own connection; command is the command of testdata/hostile.c that
// gets the last answer.
var attacks = []struct {
	name, command string
	answers       []message
}{
	{"end before the context", "open", []message{{close: true}}},
	{"refused", "open", []message{{ret: -int32(syscall.EIO)}}},
	{"no memory for rings", "open", []message{{body: make([]byte, 264)}}},
	{"a number for memory", "open", []message{{kind: kindNumber, fds: 1, body: make([]byte, 264)}}},
	{"too much memory", "open", []message{{kind: kindMemory, fds: 2, body: make([]byte, 264)}}},

	{"end of the connection", "context", []message{{close: true}}},
	{"nothing", "context", []message{{raw: []byte{}}}},
	{"half a header", "context", []message{{raw: make([]byte, 40)}}},
	{"response shorter than said", "context", []message{{kind: kindNumber, fds: 1, body: words(0, 1), len: 8}}},
	{"response longer than said", "context", []message{{kind: kindNumber, fds: 1, body: words(0, 1), len: -4}}},
	{"enormous length", "context", []message{{kind: kindNumber, fds: 1, body: words(0, 1), len: 1<<31 - 1}}},
	{"long message", "context", []message{{kind: kindNumber, fds: 1, body: make([]byte, 20000)}}},
	{"positive result", "context", []message{{ret: 5, kind: kindNumber, fds: 1, body: words(0, 1)}}},
	{"absurd error", "context", []message{{ret: -100000}}},
	{"error with descriptors", "context", []message{{ret: -int32(syscall.EIO), fds: 2}}},
	{"no descriptor", "context", []message{{body: words(0, 1)}}},
	{"fewer descriptors than said", "context", []message{{kind: kindNumber, nfd: 1, body: words(0, 1)}}},
	{"more descriptors than said", "context", []message{{kind: kindNumber, fds: 1, nfd: -1, body: words(0, 1)}}},
	{"two descriptors", "context", []message{{kind: kindNumber, fds: 2, body: words(0, 1)}}},
	{"too many descriptors", "context", []message{{kind: kindNumber, fds: 9, body: words(0, 1)}}},
	{"descriptor of memory", "context", []message{{kind: kindMemory, fds: 1, body: words(0, 1)}}},
	{"descriptor of no kind", "context", []message{{kind: 77, fds: 1, body: words(0, 1)}}},
	{"descriptor behind the response", "context", []message{{kind: kindNumber, fds: 1, arg: 6, body: words(0, 1)}}},
	{"descriptor far away", "context", []message{{kind: kindNumber, fds: 1, arg: 1<<64 - 2, body: words(0, 1)}}},

	{"channel without descriptor", "channel", []message{goodContext, noDoorbell, {body: words(0)}}},
	{"channel of memory", "channel", []message{goodContext, noDoorbell, {kind: kindMemory, fds: 1, body: words(0)}}},
	{"queue without name", "cq", []message{goodContext, noDoorbell, {body: words(7)}}},
	{"queue with an enormous name", "cq", []message{goodContext, noDoorbell, {body: words(1<<30, 100)}}},
	{"queue with a channel", "cq", []message{goodContext, noDoorbell, {kind: kindNumber, fds: 1, body: words(7, 100)}}},
	{"queue with memory", "cq", []message{goodContext, noDoorbell, {kind: kindMemory, fds: 1, body: goodCQ.body}}},

	{"memory passed into nothing", "fine", []message{goodContext, noDoorbell, {memory: true}, goodCQ}},
	{"memory with descriptors", "fine", []message{goodContext, noDoorbell, {memory: true, kind: kindMemory, fds: 4, body: words(1, 0)}, goodCQ}},
	{"refusal with a long sentence", "fine", []message{goodContext, noDoorbell, {memory: true, ret: -1, body: make([]byte, 16000)}, goodCQ}},
	{"refusal with a sentence and descriptors", "fine", []message{goodContext, noDoorbell, {memory: true, ret: -1, fds: 3, body: []byte("%s%n")}, goodCQ}},

	{"end after the context", "cq", []message{goodContext, noDoorbell, {close: true}}},
	{"ring behind the memory", "fine", []message{goodContext, noDoorbell, goodCQ}},
	{"ring far away", "fine", []message{goodContext, noDoorbell, {body: words(7, 100, 1<<32-4096, 1<<32-1, 4096, 0)}}},
	{"ring of no size", "fine", []message{goodContext, noDoorbell, {body: words(7, 100, 0, 0, 0, 0)}}},
	{"doorbell without descriptors", "fine", []message{goodContext, {body: words(0, 0, 8192, 0)}, goodCQ}},
	{"doorbell of memory", "fine", []message{goodContext, {kind: kindMemory, fds: 1, body: words(0, 0, 8192, 0)}, goodCQ}},
	{"doorbell of few words", "fine", []message{goodContext, {kind: kindEventfd, fds: 1}, goodCQ}},
	{"doorbell that is small", "fine", []message{goodContext, {kind: kindEventfd, fds: 1, body: words(0, 0, 4096, 0)}, goodCQ}},
	{"doorbell behind the memory", "fine", []message{goodContext, {kind: kindEventfd, fds: 1, body: words(4096, 0, 8192, 0)}, goodCQ}},

	{"rdma_cm of another version", "cm", []message{{kind: kindNumber, fds: 1, body: words(helloVersion+1, 0)}}},
	{"rdma_cm without descriptor", "cm", []message{{body: words(helloVersion, 0)}}},
	{"rdma_cm with memory", "cm", []message{{kind: kindMemory, fds: 1, body: words(helloVersion, 0)}}},
	{"rdma_cm of few words", "cm", []message{{kind: kindNumber, fds: 1, body: words(helloVersion)}}},
}

// falseDaemon serves a socket. next returns the script of each connection.
func falseDaemon(t *testing.T, path string, next func() []message) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			play(c, next())
			c.Close()
		}
	}()
}

// play answers commands with the script until the client closes the connection.
func play(c *net.UnixConn, script []message) {
	empty, err := os.CreateTemp("", "empty") // stands for memory and channels of all kinds
	if err != nil {
		panic(err)
	}
	defer os.Remove(empty.Name())
	defer empty.Close()
	buf := make([]byte, 1<<15)
	for i := 0; i < len(script); i++ {
		m := script[i]
		n, err := c.Read(buf)
		if err != nil || n == 0 {
			return
		}
		if buf[0] == extPassMemory && !m.memory {
			m, i = noDoorbell, i-1
		}
		if m.close {
			return
		}
		var rights []byte
		if m.fds > 0 {
			fds := make([]int, m.fds)
			for i := range fds {
				fds[i] = int(empty.Fd())
			}
			rights = syscall.UnixRights(fds...)
		}
		if _, _, err := c.WriteMsgUnix(m.bytes(), rights, nil); err != nil {
			return
		}
	}
	_, _ = c.Read(buf) // until the client closes the connection
}

// TestHostileDaemon sends malformed answers to the library.
func TestHostileDaemon(t *testing.T) { succeed(t, hostile(t)) }

// hostile makes a command for a program that faces all attacks.
func hostile(t *testing.T) *exec.Cmd {
	t.Helper()
	run, sysfs := t.TempDir(), t.TempDir()
	show := func(class string, device int) {
		path := filepath.Join(sysfs, "class", class)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "dev"), fmt.Appendf(nil, "231:%d\n", 192+device), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := preloaded(t, run, sysfs, compile(t, "hostile"))
	c.Env = append(c.Env, "ROCED_EXPLAIN=1")
	var cm [][]message
	devices := 0
	for i, a := range attacks {
		t.Log(i, a.name)
		c.Args = append(c.Args, a.command)
		if a.command == "cm" {
			cm = append(cm, a.answers)
			continue
		}
		name := fmt.Sprint("uverbs", devices)
		show("infiniband_verbs/"+name, devices)
		answers := a.answers
		if a.command != "open" {
			answers = append([]message{goodHello}, answers...)
		}
		falseDaemon(t, filepath.Join(run, name), func() []message { return answers })
		devices++
	}
	show("misc/rdma_cm", devices)
	falseDaemon(t, filepath.Join(run, "rdma_cm"), func() []message {
		script := cm[0]
		cm = cm[1:]
		return script
	})
	return c
}

// TestLongRunDir checks the error for a run directory that exceeds the length of a Unix socket address.
func TestLongRunDir(t *testing.T) {
	lab.Long(t)
	sysfs := t.TempDir()
	dev := filepath.Join(sysfs, "class/infiniband_verbs/uverbs0")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dev, "dev"), []byte("231:192\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := preloaded(t, "/"+strings.Repeat("long/", 30), sysfs, "cat", "/dev/infiniband/uverbs0")
	out, err := c.CombinedOutput()
	if _, failed := err.(*exec.ExitError); !failed || !strings.Contains(string(out), syscall.ENAMETOOLONG.Error()) &&
		!strings.Contains(string(out), "File name too long") {
		t.Fatalf("%v\n%s", err, out)
	}
}
