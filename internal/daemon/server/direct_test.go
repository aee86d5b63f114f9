package server

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// director writes commands into the doorbell memory.
type director struct {
	*user
	mem []byte
	ev  int
}

func (u *user) director() *director {
	u.t.Helper()
	mem, ev := u.bell()
	return &director{u, mem, ev}
}

// ask writes a message there and waits for the answer.
func (d *director) ask(msg []byte, size uint32) ([]byte, unix.Errno) {
	d.t.Helper()
	copy(d.mem[uverbs.DirectCommand:uverbs.DirectBody], msg)
	atomic.StoreUint32(wordAt(d.mem, uverbs.DirectLen), size)
	state := wordAt(d.mem, uverbs.DirectState)
	atomic.StoreUint32(state, uverbs.DirectAsked)
	if err := shm.Signal(d.ev); err != nil {
		d.t.Fatal(err)
	}
	eventually(d.t, "an answer", func() bool { return atomic.LoadUint32(state) == uverbs.DirectAnswered })
	ret := int32(atomic.LoadUint32(wordAt(d.mem, uverbs.DirectRet)))
	n := atomic.LoadUint32(wordAt(d.mem, uverbs.DirectAnswer))
	return append([]byte(nil), d.mem[uverbs.DirectBody:][:n]...), unix.Errno(-ret)
}

func (d *director) call(cmd uint32, bodies ...any) ([]byte, unix.Errno) {
	d.t.Helper()
	msg := uverbs.Command(cmd, 64, bodies...)
	return d.ask(msg, uint32(len(msg)))
}

// TestDirect registers memory without the socket.
func TestDirect(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	pd := u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	d := u.director()
	before := h.objects(t)
	resp, errno := d.call(uverbs.CmdRegMR, uverbs.RegMR{Start: memBase, HCAVA: memBase, Length: 4096, PDHandle: pd})
	if errno != 0 || len(resp) != uverbs.Size[uverbs.RegMRResp]() || h.objects(t) != before+1 {
		t.Fatalf("%v, %d bytes, %d objects", errno, len(resp), h.objects(t)-before)
	}
	if _, errno := d.call(uverbs.CmdDeregMR, uverbs.DeregMR{MRHandle: word(resp, 0)}); errno != 0 || h.objects(t) != before {
		t.Fatalf("%v, %d objects", errno, h.objects(t)-before)
	}
}

// TestDirectRefuses writes malformed commands and commands that only the socket accepts.
func TestDirectRefuses(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	pd := u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	d := u.director()
	reg := uverbs.RegMR{Start: memBase, HCAVA: memBase, Length: 4096, PDHandle: pd}
	away := reg
	away.Start, away.HCAVA = 1<<40, 1<<40
	for _, c := range []struct {
		name string
		msg  []byte
		size uint32 // of msg, if zero
		want unix.Errno
	}{
		{"a command that waits", uverbs.Command(uverbs.CmdAllocPD, 64, uverbs.AllocPD{}), 0, unix.EAGAIN},
		{"an extended one", uverbs.ExCommand(uverbs.CmdRegMR, 64, reg), 0, unix.EAGAIN},
		{"memory that is copied", uverbs.Command(uverbs.CmdRegMR, 64, away), 0, unix.EAGAIN},
		{"no object", uverbs.Command(uverbs.CmdDeregMR, 0, uverbs.DeregMR{MRHandle: 77}), 0, unix.ENOENT},
		{"too long", nil, uverbs.DirectRoom + 1, unix.EINVAL},
		{"longest", nil, 1<<32 - 1, unix.EINVAL},
		{"nothing", nil, 0, unix.EINVAL},
		{"zeros", make([]byte, uverbs.DirectRoom), 0, unix.EINVAL},
		{"wrong length", uverbs.Command(uverbs.CmdRegMR, 64, reg), 20, unix.EINVAL},
	} {
		size := c.size
		if size == 0 {
			size = uint32(len(c.msg))
		}
		if _, errno := d.ask(c.msg, size); errno != c.want {
			t.Errorf("%s: %v, want %v", c.name, errno, c.want)
		}
	}
	if _, errno := d.call(uverbs.CmdRegMR, reg); errno != 0 {
		t.Errorf("afterwards: %v", errno)
	}
}

// TestDirectUnmaps writes commands that unmap memory. Large mappings require the socket.
func TestDirectUnmaps(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	d := u.director()
	fd, mem, err := shm.New("unmaps", 2*directUnmap, shm.SealSize)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	defer func() { _ = shm.Unmap(mem) }()
	for size, want := range map[uint64]unix.Errno{directUnmap: 0, 2 * directUnmap: unix.EAGAIN} {
		resp, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, uverbs.MapMemory{Base: 1 << 30, Length: size})
		if err != nil {
			t.Fatal(err)
		}
		if _, errno := d.call(uverbs.ExtUnmapMemory, uverbs.UnmapMemory{Handle: word(resp, 0)}); errno != want {
			t.Errorf("%d bytes: %v, want %v", size, errno, want)
		}
	}
}

// TestDirectYields writes a command while another one runs. The shard refuses it instead of blocking.
func TestDirectYields(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	pd := u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	d := u.director()
	reg := uverbs.RegMR{Start: memBase, HCAVA: memBase, Length: 4096, PDHandle: pd}
	var c *client
	h.srv.mu.Lock()
	for c = range h.srv.clients {
	}
	h.srv.mu.Unlock()
	c.mu.Lock()
	_, errno := d.call(uverbs.CmdRegMR, reg)
	c.mu.Unlock()
	if errno != unix.EAGAIN {
		t.Errorf("beside another command: %v", errno)
	}
	if _, errno := d.call(uverbs.CmdRegMR, reg); errno != 0 {
		t.Errorf("alone: %v", errno)
	}
}

// TestDirectWakes checks that the answer wakes a sleeping client.
func TestDirectWakes(t *testing.T) {
	h := pair(t, testLimits)[0]
	d := h.connect(t).director()
	state := wordAt(d.mem, uverbs.DirectState)
	atomic.StoreUint32(state, uverbs.DirectAwaited)
	if err := shm.Signal(d.ev); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); atomic.LoadUint32(state) == uverbs.DirectAwaited; {
		ts := unix.NsecToTimespec(int64(time.Minute))
		if errno := futexWait(state, uverbs.DirectAwaited, &ts); errno == unix.ETIMEDOUT || time.Now().After(end) {
			t.Fatal("nobody woke the client")
		}
	}
}

// mapFirst maps the first page of a memfd. It returns its memory, the mapping's handle, and the command that maps
// the second page without another transfer of the memfd.
func (u *user) mapFirst(t *testing.T) (mem []byte, handle uint32, second uverbs.MapMemory) {
	t.Helper()
	fd, mem, err := shm.New("first", memSize, shm.SealSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fd)
		_ = shm.Unmap(mem)
	})
	const base = 1 << 30
	resp, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, uverbs.MapMemory{Base: base, Length: 4096})
	if err != nil {
		t.Fatal(err)
	}
	return mem, word(resp, 0), uverbs.MapMemory{Base: base + 4096, Length: 4096, Offset: 4096, Flags: uverbs.MapKnown, Memory: word(resp, 1)}
}

// TestMapKnown maps more of a memfd that the client has already sent.
func TestMapKnown(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	mem, _, m := u.mapFirst(t)
	stale, never := m, m
	stale.Memory--
	never.Flags |= 2
	for want, m := range map[error]uverbs.MapMemory{unix.ESTALE: stale, unix.EINVAL: never} {
		if err := u.try(uverbs.ExtMapMemory, m); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	handle := u.handle(uverbs.ExtMapMemory, m)
	pd := u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	reg := uverbs.RegMR{Start: m.Base, HCAVA: m.Base, Length: 100, PDHandle: pd, AccessFlags: 3}
	for want, src := range map[error]uverbs.MRSource{
		unix.ENOENT: {Kind: uverbs.SourceMapped, Handle: 99},
		unix.EINVAL: {Kind: 5},
	} {
		if _, _, err := u.conn.Call(uverbs.Command(uverbs.CmdRegMR, 64, reg, src), nil); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	away := reg
	away.Length = 5000
	if _, _, err := u.conn.Call(uverbs.Command(uverbs.CmdRegMR, 64, away, uverbs.MRSource{Kind: uverbs.SourceMapped, Handle: handle}), nil); err != unix.EFAULT {
		t.Errorf("beyond the mapping: %v", err)
	}
	if _, _, err := u.conn.Call(uverbs.Command(uverbs.CmdRegMR, 64, reg, uverbs.MRSource{Kind: uverbs.SourceMapped, Handle: handle}), nil); err != nil {
		t.Fatal(err)
	}
	// The memfd and its offset decide, not the address that the client states.
	copy(mem[4096:], "known")
	err := h.shard.Do(t.Context(), func(_ mono.Time, n *rocev2.NIC) {
		for _, r := range n.MRs() {
			if b, ok := r.Ctx.(*memoryRegion).keep.mapping.find(reg.Start, 5); !ok || string(b) != "known" {
				t.Errorf("%q, %t", b, ok)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMapAndRegister maps memory, registers it and drops another mapping in one command. A failed command changes
// nothing.
func TestMapAndRegister(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	_, old, m := u.mapFirst(t)
	reg := uverbs.RegMR{Start: m.Base, HCAVA: m.Base, Length: 100, AccessFlags: 3, PDHandle: u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})}
	together := func(out int, reg uverbs.RegMR, m uverbs.MapMemory, given uint32) ([]byte, error) {
		resp, _, err := u.conn.Call(uverbs.Command(uverbs.CmdRegMR, out, reg, uverbs.MRSource{Kind: uverbs.SourceMap, Handle: given}, m), nil)
		return resp, err
	}
	mapped := func() (n int) {
		h.srv.mu.Lock()
		defer h.srv.mu.Unlock()
		for c := range h.srv.clients {
			c.mu.Lock()
			n = c.maps.live
			c.mu.Unlock()
		}
		return n
	}
	before := mapped()
	stale, away, bad := m, reg, reg
	stale.Memory--
	away.Length, bad.AccessFlags = 5000, 2 // remote writes without local ones
	for i, c := range []struct {
		out   int
		reg   uverbs.RegMR
		m     uverbs.MapMemory
		given uint32
		want  error
	}{
		{64, reg, stale, old, unix.ESTALE}, {64, away, m, uverbs.NoHandle, unix.EFAULT}, {64, bad, m, uverbs.NoHandle, unix.EINVAL},
		{64, reg, m, old + 50, unix.ENOENT}, {12, reg, m, old, unix.ENOSPC},
	} {
		if _, err := together(c.out, c.reg, c.m, c.given); err != c.want || mapped() != before {
			t.Errorf("case %d: %v, want %v; %d mappings", i, err, c.want, mapped()-before)
		}
	}
	resp, err := together(20, reg, m, old)
	if err != nil || len(resp) != 20 || mapped() != before {
		t.Fatalf("%v, %d bytes, %d mappings more", err, len(resp), mapped()-before)
	}
	if err := u.try(uverbs.ExtUnmapMemory, uverbs.UnmapMemory{Handle: word(resp, 3)}); err != nil {
		t.Errorf("the mapping's handle: %v", err)
	}
	if err := u.try(uverbs.CmdDeregMR, uverbs.DeregMR{MRHandle: word(resp, 0)}); err != nil {
		t.Errorf("the region's handle: %v", err)
	}
}

// TestMapAgain replaces a mapping with one of the same memory at another address. The daemon reuses the mapping.
// After an error the mapping is unchanged.
func TestMapAgain(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	_, _, m := u.mapFirst(t)
	pd := u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	again := func(handle uint32, m uverbs.MapMemory, length uint64) ([]byte, error) {
		reg := uverbs.RegMR{Start: m.Base, HCAVA: m.Base, Length: length, AccessFlags: 3, PDHandle: pd}
		resp, _, err := u.conn.Call(uverbs.Command(uverbs.CmdRegMR, 20, reg, uverbs.MRSource{Kind: uverbs.SourceMap, Handle: handle}, m), nil)
		return resp, err
	}
	handle := u.handle(uverbs.ExtMapMemory, m)
	elsewhere := m
	elsewhere.Base += 1 << 20
	if _, err := again(handle, elsewhere, 5000); err != unix.EFAULT {
		t.Errorf("beyond the mapping: %v", err)
	}
	odd := elsewhere
	odd.Base++
	if _, err := again(handle, odd, 100); err != unix.EINVAL {
		t.Errorf("no page begins there: %v", err)
	}
	resp, err := again(handle, elsewhere, 4096)
	if err != nil || word(resp, 3) != handle {
		t.Fatalf("%v, %v", resp, err)
	}
	reg := uverbs.RegMR{Start: m.Base, HCAVA: m.Base, Length: 100, AccessFlags: 3, PDHandle: pd}
	if _, _, err := u.conn.Call(uverbs.Command(uverbs.CmdRegMR, 20, reg, uverbs.MRSource{Kind: uverbs.SourceMapped, Handle: handle}), nil); err != unix.EFAULT {
		t.Errorf("where it has been: %v", err)
	}
	other := elsewhere
	other.Offset = 0
	if resp, err = again(handle, other, 4096); err != nil || word(resp, 3) == handle {
		t.Errorf("another part of the memory: %v, %v", resp, err)
	}
}

// futexWait sleeps while a shared word has the given value.
func futexWait(at *uint32, value uint32, most *unix.Timespec) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(at)), 0, uintptr(value), uintptr(unsafe.Pointer(most)), 0, 0)
	return errno
}
