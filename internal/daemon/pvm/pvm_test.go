package pvm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/nictest"
)

// childKey makes the test program a child whose memory the test accesses.
const childKey = "PVM_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childKey) != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

// child prints the address of its memory and then follows commands: it prints the memory, or executes another
// program.
func child() {
	mem, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		panic(err)
	}
	copy(mem, "the child's")
	fmt.Printf("%d\n", address(mem))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "show":
			fmt.Printf("%s\n", mem[:11])
		case "exec":
			panic(unix.Exec("/bin/sh", []string{"sh", "-c", "echo done; read end"}, nil))
		}
	}
}

func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// victim is a child process.
type victim struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	addr  uint64
	pidfd int
}

func newVictim(t *testing.T, uid uint32) *victim {
	t.Helper()
	v := &victim{t: t, cmd: exec.Command("/proc/self/exe")}
	v.cmd.Env = append(os.Environ(), childKey+"=1")
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, PidFD: &v.pidfd}
	v.cmd.Stderr = os.Stderr
	var err error
	if v.in, err = v.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	v.out = bufio.NewReader(out)
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.end(); unix.Close(v.pidfd) })
	if _, err := fmt.Sscan(v.line(), &v.addr); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *victim) line() string {
	v.t.Helper()
	s, err := v.out.ReadString('\n')
	if err != nil {
		v.t.Fatal(err)
	}
	return strings.TrimSpace(s)
}

func (v *victim) say(s string) {
	v.t.Helper()
	if _, err := fmt.Fprintln(v.in, s); err != nil {
		v.t.Fatal(err)
	}
}

// end waits until the process has ended.
func (v *victim) end() {
	v.in.Close()
	v.cmd.Wait()
}

func (v *victim) open(uid uint32) *Process {
	v.t.Helper()
	p, err := Open(v.cmd.Process.Pid, uid, v.pidfd)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(p.Close)
	return p
}

func TestAccess(t *testing.T) {
	for _, uid := range []uint32{0, 65534} {
		v := newVictim(t, uid)
		p := v.open(uid)
		b := make([]byte, 11)
		if !p.Read(v.addr, b) || string(b) != "the child's" {
			t.Errorf("read %q", b)
		}
		if !p.Write(v.addr, []byte("the daemon'")) {
			t.Error("write failed")
		}
		v.say("show")
		if s := v.line(); s != "the daemon'" {
			t.Errorf("the child has %q", s)
		}
	}
}

// TestAnotherProgram checks that after execve the old address space is gone and the new one stays untouched.
func TestAnotherProgram(t *testing.T) {
	v := newVictim(t, 0)
	p := v.open(0)
	v.say("exec")
	if s := v.line(); s != "done" {
		t.Fatalf("got %q", s)
	}
	b := make([]byte, 1)
	if p.Read(v.addr, b) || p.Write(v.addr, b) || p.Check(v.addr, 1, false) == nil {
		t.Error("there is still memory")
	}
}

func TestProcessIsGone(t *testing.T) {
	v := newVictim(t, 0)
	p := v.open(0)
	v.end()
	b := make([]byte, 1)
	if p.Read(v.addr, b) || p.Write(v.addr, b) {
		t.Error("there is still memory")
	}
	if _, err := Open(v.cmd.Process.Pid, 0, v.pidfd); !errors.Is(err, ErrNotThere) {
		t.Errorf("Open: %v", err)
	}
	// Simulate a PID that belongs to another process meanwhile.
	if _, err := Open(os.Getpid(), 0, v.pidfd); !errors.Is(err, ErrNotThere) {
		t.Errorf("Open of the number's next owner: %v", err)
	}
}

// TestMoreRights checks that Open refuses a process that has more rights than the user.
func TestMoreRights(t *testing.T) {
	v := newVictim(t, 0)
	if _, err := Open(v.cmd.Process.Pid, 65534, v.pidfd); !errors.Is(err, ErrNotThere) {
		t.Errorf("Open: %v", err)
	}
}

// own opens this process.
func own(t testing.TB) *Process {
	t.Helper()
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	p, err := Open(os.Getpid(), uint32(os.Getuid()), pidfd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

const page = 4096

func mmap(t testing.TB, fd, pages, prot, flags int) []byte {
	t.Helper()
	mem, err := unix.Mmap(fd, 0, pages*page, prot, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

func TestCheck(t *testing.T) {
	p := own(t)
	const rw = unix.PROT_READ | unix.PROT_WRITE
	mem := mmap(t, -1, 8, rw, unix.MAP_PRIVATE|unix.MAP_ANON) // rw rw r- -- rw rw rw rw
	for i, prot := range map[int]int{2: unix.PROT_READ, 3: unix.PROT_NONE} {
		if err := unix.Mprotect(mem[i*page:(i+1)*page], prot); err != nil {
			t.Fatal(err)
		}
	}
	short, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	if err := short.Truncate(page + 1); err != nil {
		t.Fatal(err)
	}
	file := mmap(t, int(short.Fd()), 4, rw, unix.MAP_SHARED) // the file has two pages
	base, fbase := address(mem), address(file)
	for _, c := range []struct {
		addr, n uint64
		write   bool
		want    error
	}{
		{base, 2 * page, true, nil},
		{base + 5, 1, true, nil},
		{base, 3 * page, false, nil},
		{base, 3 * page, true, unix.EFAULT},
		{base + page, page + 1, true, unix.EFAULT},
		{base + 2*page, page + 1, false, unix.EFAULT},
		{base + 3*page, 1, false, unix.EFAULT},
		{base + 4*page, 4 * page, true, nil},
		{fbase, 2 * page, true, nil},
		{fbase, 2*page + 1, true, unix.EFAULT},
		{0, 1, false, unix.EFAULT},
		{0, 1 << 63, false, unix.EFAULT},
		{1<<64 - page, page, false, unix.EFAULT},
		{base, 1<<64 - 1, false, unix.EFAULT},
	} {
		if err := p.Check(c.addr, c.n, c.write); !errors.Is(err, c.want) {
			t.Errorf("%#x, %d bytes, write %v: %v, want %v", c.addr-base, c.n, c.write, err, c.want)
		}
	}
}

func TestRegion(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(2 * page); err != nil {
		t.Fatal(err)
	}
	mem := mmap(t, int(file.Fd()), 3, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED) // the file lacks the last page
	r := NewRegion(own(t), address(mem)+8)
	mem[8] = 5
	if v, ok := r.FetchAdd(0, 3); v != 5 || !ok || mem[8] != 8 {
		t.Errorf("FetchAdd: %d, %v, %d", v, ok, mem[8])
	}
	if v, ok := r.CompareSwap(0, 7, 1); v != 8 || !ok || mem[8] != 8 {
		t.Errorf("CompareSwap that does not fit: %d, %v, %d", v, ok, mem[8])
	}
	if v, ok := r.CompareSwap(0, 8, 1); v != 8 || !ok || mem[8] != 1 {
		t.Errorf("CompareSwap: %d, %v, %d", v, ok, mem[8])
	}
	for _, off := range []uint64{1, 2*page - 8} {
		if _, ok := r.FetchAdd(off, 1); ok {
			t.Errorf("FetchAdd at %d", off)
		}
	}
	b := bytes.Repeat([]byte{7}, page)
	if !r.Write(page/2, b) || !bytes.Equal(mem[8+page/2:][:page], b) {
		t.Error("Write")
	}
	if r.Write(page, b) {
		t.Error("a write beyond the end succeeds")
	}
}

// TestUserfault checks that a page registered with userfaultfd that the process never delivers causes an error. The
// access does not block.
func TestUserfault(t *testing.T) {
	const (
		api          = 0xc018aa3f // UFFDIO_API, UFFDIO_REGISTER of linux/userfaultfd.h
		register     = 0xc020aa00
		version      = 0xaa
		registerMiss = 1
	)
	mem := mmap(t, -1, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer unix.Close(int(fd))
	for _, c := range []struct {
		request uintptr
		arg     [4]uint64
	}{{api, [4]uint64{version}}, {register, [4]uint64{address(mem), page, registerMiss}}} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, c.request, uintptr(unsafe.Pointer(&c.arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	p, done := own(t), make(chan bool, 1)
	go func() { done <- p.Read(address(mem), make([]byte, 1)) }()
	select {
	case ok := <-done:
		if ok {
			t.Error("the page was read")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the reader waits")
	}
}

func FuzzParseVMA(f *testing.F) {
	f.Add("7f0000000000-7f0000001000 rw-p 00000000 00:00 0    [stack]")
	f.Add("7f0000000000-7f0000001000 r--s 00001000 fd:01 77 /a b")
	f.Fuzz(func(t *testing.T, line string) {
		if v, ok := parseVMA(line); ok && v.start >= v.end {
			t.Errorf("%+v", v)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	mem := mmap(b, -1, 16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	r := NewRegion(own(b), address(mem))
	for _, n := range []int{64, page, 16 * page} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			buf := make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				if !r.Read(0, buf) {
					b.Fatal("failed")
				}
			}
		})
	}
}

// BenchmarkWrite measures RDMA WRITEs between two NICs in this process, without a link: to mapped memory, and to
// memory accessed through /proc.
func BenchmarkWrite(b *testing.B) {
	const size, base = 1 << 16, 1 << 20
	for _, n := range []int{64, page, size} {
		for _, kind := range []string{"shared", "distant"} {
			b.Run(fmt.Sprintf("%d/%s", n, kind), func(b *testing.B) {
				p := nictest.New(b, nictest.Options{Seed: 1, Offload: link.Offload{MaxSegments: 64, MaxBytes: 65535}, Whole: true})
				x, _ := p.RC(func(o *nictest.QPOptions) { o.MTU = 5 })
				var key [2]uint32
				for i, node := range []*nictest.Node{p.A, p.B} {
					mem := mmap(b, -1, size/page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
					a := rocev2.MRAttr{VA: base, Length: size, Access: nictest.AllAccess, Mem: rocev2.NewBytes(mem)}
					if kind == "distant" {
						a.Mem = NewRegion(own(b), address(mem))
					}
					mr, err := node.NIC.RegMR(node.PD, a)
					if err != nil {
						b.Fatal(err)
					}
					key[i] = mr.LKey
				}
				b.SetBytes(int64(n))
				for b.Loop() {
					x.Post(nictest.Write(1, nictest.Remote{VA: base, RKey: key[1]}, qp.SGE{Addr: base, Length: uint32(n), LKey: key[0]}))
					x.WaitSend(1)
				}
			})
		}
	}
}
