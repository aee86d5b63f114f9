package server

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/qp"
)

// program is another process, and one page of its memory.
type program struct {
	cmd  *exec.Cmd
	addr uint64
}

func newProgram(t *testing.T) *program {
	t.Helper()
	p := &program{cmd: exec.Command("sleep", "600")}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.end)
	eventually(t, "a stack", func() bool {
		maps, err := os.ReadFile(p.file("maps"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(maps)) {
			if strings.Contains(line, "[stack]") {
				_, err = fmt.Sscanf(line, "%x-", &p.addr)
			}
		}
		return p.addr != 0 && err == nil
	})
	return p
}

func (p *program) file(name string) string {
	return fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, name)
}

func (p *program) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // killed
}

// pass passes the memory of a process; mem and maps are the paths of its files.
func (u *user) pass(mem, maps string) (handle uint32, err error) {
	u.t.Helper()
	m, err := os.OpenFile(mem, os.O_RDWR, 0)
	if err != nil {
		u.t.Fatal(err)
	}
	defer m.Close()
	n, err := os.Open(maps)
	if err != nil {
		u.t.Fatal(err)
	}
	defer n.Close()
	resp, _, err := u.callFD(uverbs.ExtPassMemory, []int{int(m.Fd()), int(n.Fd())}, uverbs.PassMemory{})
	if err != nil {
		return 0, err
	}
	return word(resp, 0), nil
}

// TestPassedMemory checks that regions are in the process that was passed or selected last.
func TestPassedMemory(t *testing.T) {
	h := pair(t, testLimits)[0]
	e := newEndpoint(t, h)
	p := newProgram(t)
	reg := func(addr uint64) error {
		return e.try(uverbs.CmdRegMR, uverbs.RegMR{Start: addr, Length: 1, HCAVA: addr, PDHandle: e.pd, AccessFlags: 1})
	}
	mine, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mine)
	own := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mine))))
	others, err := e.pass(p.file("mem"), p.file("maps"))
	if err != nil {
		t.Fatal(err)
	}
	if err := reg(p.addr); err != nil {
		t.Errorf("in the other process: %v", err)
	}
	if err := reg(own); !errors.Is(err, unix.EFAULT) {
		t.Errorf("address of this process in another one: %v", err)
	}
	ours, err := e.pass("/proc/self/mem", "/proc/self/maps")
	if err != nil || ours == others {
		t.Fatalf("handles %d, %d: %v", others, ours, err)
	}
	if err := reg(own); err != nil {
		t.Errorf("in this process: %v", err)
	}
	if err := e.try(uverbs.ExtPassMemory, uverbs.PassMemory{Handle: others}); err != nil {
		t.Errorf("named again: %v", err)
	}
	if err := reg(p.addr); err != nil {
		t.Errorf("in the other process again: %v", err)
	}
	if err := e.try(uverbs.ExtPassMemory, uverbs.PassMemory{Handle: 77}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("unknown handle: %v", err)
	}
	if _, err := e.pass("/proc/self/comm", "/proc/self/maps"); !errors.Is(err, unix.EINVAL) {
		t.Errorf("something else: %v", err)
	}
	p.end()
	var r *uverbs.Refusal
	if err := reg(p.addr); !errors.As(err, &r) || r.Errno != unix.EFAULT || !strings.Contains(r.Text, "its process has ended") {
		t.Errorf("after the process has ended: %v", err)
	}
}

// TestMemoryLost checks that the log explains failures of requests whose memory is gone.
func TestMemoryLost(t *testing.T) {
	hosts := pair(t, testLimits)
	a, b := connected(t, hosts)
	p := newProgram(t)
	if _, err := b.pass(p.file("mem"), p.file("maps")); err != nil {
		t.Fatal(err)
	}
	resp, _ := b.must(uverbs.CmdRegMR, uverbs.RegMR{Start: p.addr, Length: 64, HCAVA: p.addr, PDHandle: b.pd, AccessFlags: 7})
	p.end()
	if s := a.transfer(qp.WRWrite, memBase, a.key, p.addr, word(resp, 1), 64); s != qp.StatusRemAccessErr {
		t.Errorf("status %d", s)
	}
	if text := hosts[1].log.String(); !strings.Contains(text, "are not there any more") {
		t.Errorf("the log says %q", text)
	}
}

// TestPassedProcesses passes more processes than allowed. Processes without regions make room.
func TestPassedProcesses(t *testing.T) {
	h := pair(t, testLimits)[0]
	e := newEndpoint(t, h)
	before := openFiles(t)
	for range 3 * maxProcs {
		if _, err := e.pass("/proc/self/mem", "/proc/self/maps"); err != nil {
			t.Fatal(err)
		}
	}
	if n := openFiles(t) - before; n > 2*maxProcs {
		t.Errorf("%d descriptors are open", n)
	}
	e.conn.Close()
	eventually(t, "all descriptors are closed", func() bool { return openFiles(t) < before })
}

func openFiles(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

// TestAdvicePause checks that programs cannot flood the log.
func TestAdvicePause(t *testing.T) {
	var p pauser
	now := time.Now()
	said := 0
	for range 100 {
		if ok, _ := p.may(now); ok {
			said++
		}
	}
	ok, unsaid := p.may(now.Add(advicePause))
	if said != 1 || !ok || unsaid != 99 {
		t.Errorf("said %d times, then %v, %d unsaid", said, ok, unsaid)
	}
}

// fragments returns memory of so many pages, each a mapping of its own.
func fragments(t *testing.T, n int) []byte {
	t.Helper()
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, n*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	for i := 0; i < n; i += 2 {
		if err := unix.Madvise(mem[i*page:(i+1)*page], unix.MADV_DONTFORK); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// TestManyMappings: the processor time of a REG_MR of many small mappings counts as time of the user, and of no other user.
func TestManyMappings(t *testing.T) {
	ledger := quota.New(quota.Amounts{}, quota.Amounts{}, nil)
	e := newEndpoint(t, distrust(t, testLimits, ledger)[0])
	if _, err := e.pass("/proc/self/mem", "/proc/self/maps"); err != nil {
		t.Fatal(err)
	}
	own, other := ledger.Open(uint32(os.Getuid())), ledger.Open(4711)
	past := time.Now().Add(-time.Hour)
	own.Spend(time.Now(), time.Second) // what follows adds to it
	cost := func(mem []byte) time.Duration {
		before, addr := own.Debt(past), uint64(uintptr(unsafe.Pointer(&mem[0])))
		e.handle(uverbs.CmdRegMR, uverbs.RegMR{Start: addr, Length: uint64(len(mem)), HCAVA: addr, PDHandle: e.pd, AccessFlags: 7})
		return own.Debt(past) - before
	}
	few, many := cost(fragments(t, 1)), cost(fragments(t, 10_000))
	if few == 0 || many < 10*few || other.Debt(past) != 0 {
		t.Errorf("a mapping costs %v, 10,000 cost %v, another user %v", few, many, other.Debt(past))
	}
}
