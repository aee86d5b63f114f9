package verbs

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
)

// bridge replaces a device file of the kernel. A daemon executes the written commands, and the bridge places the
// responses where the kernel would. So tests cover the kernel's ABI without a kernel with RDMA.
type bridge struct {
	conn *uverbs.Conn
	file int      // the memfd of rings
	mem  *os.File // memory of this process
	// channels maps completion channels to the daemon's numbers; the kernel identifies channels by descriptor.
	channels map[int32]uint32
}

// OpenBridged opens the daemon's device as if it were a kernel device, with its files in sysfs.
func OpenBridged(socket, sysfs string) (*Context, error) {
	conn, err := uverbs.Dial(socket)
	if err != nil {
		return nil, err
	}
	b := &bridge{conn: conn, file: -1, channels: map[int32]uint32{}}
	d, err := findKernelDevice(sysfs, socket)
	if err == nil {
		err = b.begin()
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return newContext(newKernel(d, b))
}

// begin maps the memory of rings. It also shares the memory of this process, which the kernel would access directly.
func (b *bridge) begin() error {
	_, fds, err := b.conn.Call(uverbs.Command(uverbs.ExtHello, uverbs.Size[uverbs.HelloResp](), uverbs.Hello{Version: uverbs.ExtVersion}), nil)
	if err != nil {
		return err
	}
	b.file = fds[0].FD
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	if b.mem, err = os.OpenFile("/proc/self/mem", os.O_RDWR, 0); err != nil {
		return err
	}
	_, _, err = b.conn.Call(uverbs.Command(uverbs.ExtPassMemory, uverbs.Size[uverbs.PassMemoryResp](), uverbs.PassMemory{}),
		[]int{int(b.mem.Fd()), int(maps.Fd())})
	return err
}

// Write executes a command.
func (b *bridge) Write(cmd []byte) (int, error) {
	r, err := uverbs.ParseRequest(cmd)
	if err != nil {
		return 0, err
	}
	at := uint64(0)
	if r.Out > 0 {
		at = binary.NativeEndian.Uint64(cmd[responseAt:])
	}
	if m, err := uverbs.Decode[uverbs.ModifySRQ](r.Body); err == nil && r.Command == uverbs.CmdModifySRQ && m.AttrMask&uverbs.SRQMaxWR != 0 {
		p, err := uverbs.Decode[uverbs.RxeModifySRQ](r.Body[uverbs.Size[uverbs.ModifySRQ]():])
		if err != nil {
			return 0, err
		}
		at = p.MmapInfoAddr
		cmd = uverbs.Command(uverbs.CmdModifySRQ, uverbs.Size[uverbs.ModifySRQResp](), m)
	}
	if q, err := uverbs.Decode[uverbs.CreateCQ](r.Body); err == nil && r.Command == uverbs.CmdCreateCQ && q.CompChannel >= 0 {
		q.CompChannel = int32(b.channels[q.CompChannel])
		cmd = uverbs.Command(uverbs.CmdCreateCQ, r.Out, q)
	}
	return len(cmd), b.answer(cmd, at)
}

// answer stores the response to a command at its address.
func (b *bridge) answer(cmd []byte, at uint64) error {
	resp, fds, err := b.conn.Call(cmd, nil)
	if err != nil {
		return &os.PathError{Op: "write", Path: "uverbs", Err: err}
	}
	for _, f := range fds {
		if b.channels != nil {
			b.channels[int32(f.FD)] = binary.NativeEndian.Uint32(resp[f.Arg:])
		}
		binary.NativeEndian.PutUint32(resp[f.Arg:], uint32(f.FD))
	}
	if len(resp) > 0 {
		_, err = b.mem.WriteAt(resp, int64(at))
	}
	return err
}

func (b *bridge) mmap(offset uint64, size uint32) ([]byte, error) {
	return shm.Map(b.file, offset, uint64(size))
}

func (b *bridge) Close() error {
	if b.mem != nil {
		_ = b.mem.Close()
	}
	if b.file >= 0 {
		_ = unix.Close(b.file)
		b.file = -1
	}
	return b.conn.Close()
}

// cmBridge is a bridge to the daemon's connection manager.
type cmBridge struct {
	bridge
	bell *os.File
}

// OpenCMBridged opens the connection manager of a daemon as if it were that of the kernel.
func OpenCMBridged(socket string) (*CM, error) {
	conn, err := uverbs.Dial(socket)
	if err != nil {
		return nil, err
	}
	b := &cmBridge{bridge: bridge{conn: conn, file: -1}}
	_, fds, err := conn.Call(cmCommand(rdmacm.ExtHello, uverbs.Size[rdmacm.HelloResp](), rdmacm.Hello{Version: rdmacm.ExtVersion}), nil)
	if err == nil {
		b.bell, err = eventFile(fds[0].FD)
	}
	if err == nil {
		b.mem, err = os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return newCM(&cmKernel{dev: b})
}

func (b *cmBridge) Write(cmd []byte) (int, error) {
	h, err := uverbs.Decode[rdmacm.Hdr](cmd)
	if err != nil {
		return 0, err
	}
	at := uint64(0)
	if h.Out > 0 {
		at = binary.NativeEndian.Uint64(cmd[rdmacm.HdrLen:])
		if h.Cmd == rdmacm.CmdCreateID {
			at = binary.NativeEndian.Uint64(cmd[rdmacm.HdrLen+8:])
		}
	}
	return len(cmd), b.answer(cmd, at)
}

func (b *cmBridge) await() error {
	_, err := io.ReadFull(b.bell, make([]byte, 1))
	return err
}

func (b *cmBridge) Close() error {
	_ = b.bell.Close()
	return b.bridge.Close()
}

// TestRxeCompletions: amend converts rxe's flags to those of libibverbs, and reads invalidated keys as such.
func TestRxeCompletions(t *testing.T) {
	k := &kernel{}
	swapped := binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, 0x01020304))
	wcs := []WC{{Flags: WCGRH | rxeWithInv, Imm: swapped}, {Flags: WCGRH | WCWithImm, Imm: 5}, {Flags: WCGRH | WCWithImm, Imm: 5, SrcQP: 17}}
	k.amend(wcs)
	for i, want := range []WC{{Flags: WCWithInv, Imm: 0x01020304}, {Flags: WCWithImm, Imm: 5}, {Flags: WCGRH | WCWithImm, Imm: 5, SrcQP: 17}} {
		if want.Time = wcs[i].Time; wcs[i] != want || want.Time == 0 {
			t.Errorf("%+v, want %+v", wcs[i], want)
		}
	}
}

// TestKernelBell: the doorbell is a POST_SEND without work requests, and allocates nothing.
func TestKernelBell(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file, end := os.NewFile(uintptr(fds[0]), "uverbs"), os.NewFile(uintptr(fds[1]), "kernel")
	defer end.Close()
	k := newKernel(kernelDevice{}, deviceFile{file})
	defer k.hangUp()
	if k.void, err = unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		t.Fatal(err)
	}
	defer k.release()
	var b [100]byte
	if allocs := testing.AllocsPerRun(100, func() {
		if err == nil {
			err = k.ringBell(7)
		}
		if err == nil {
			_, err = end.Read(b[:])
		}
	}); allocs > 0 || err != nil {
		t.Errorf("%v allocations, %v", allocs, err)
	}
	r, err := uverbs.ParseRequest(b[:len(bellCommand{})])
	if err != nil {
		t.Fatal(err)
	}
	p, err := uverbs.Decode[uverbs.PostSend](r.Body)
	want := uverbs.PostSend{Response: addressOf(k.void), QPHandle: 7, WQESize: wrSize}
	if err != nil || p != want || r.Command != uverbs.CmdPostSend || r.Out != uverbs.Size[uverbs.PostSendResp]() {
		t.Errorf("%+v %+v, %v", r, p, err)
	}
}
