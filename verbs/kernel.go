package verbs

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/base/clock"
)

// KernelDir is the folder of the kernel's device files, for WithRunDir and Devices.
const KernelDir = "/dev/infiniband"

// kernel is a device of the kernel's driver rdma_rxe.
type kernel struct {
	kernelDevice
	ctx   *Context
	dev   charDevice
	bells sync.Pool // of *bellCommand
	void  []byte    // receives unused responses
}

// charDevice is the file of a device.
type charDevice interface {
	io.WriteCloser
	mmap(offset uint64, size uint32) ([]byte, error)
}

// deviceFile is a charDevice of the kernel.
type deviceFile struct{ *os.File }

func (f deviceFile) mmap(offset uint64, size uint32) (mem []byte, err error) {
	c, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlled := c.Control(func(fd uintptr) { mem, err = shm.Map(int(fd), offset, uint64(size)) })
	return mem, errors.Join(err, controlled)
}

// openKernel opens the device with a path.
func openKernel(path string) (*kernel, error) {
	d, err := findKernelDevice(kernelSysfs, path)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return newKernel(d, deviceFile{f}), nil
}

func newKernel(d kernelDevice, dev charDevice) *kernel {
	return &kernel{kernelDevice: d, dev: dev, bells: sync.Pool{New: func() any { return new(bellCommand) }}}
}

func (k *kernel) open(c *Context) (err error) {
	k.ctx, c.name = c, k.name
	if k.void, err = unix.Mmap(-1, 0, shm.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return fail("open_device", "", err)
	}
	return c.getContext()
}

// responseAt is the offset of the response's address in a command that has a response: the first field of its
// structure, and of the header of extended commands.
const responseAt = uverbs.HdrLen

// call writes a command. The kernel writes the response to the memory that the command names.
func (k *kernel) call(cmd []byte, _ []int) ([]byte, []uverbs.FD, error) {
	h, err := uverbs.Decode[uverbs.Hdr](cmd)
	if err != nil {
		return nil, nil, err
	}
	room := int(h.OutWords) * 4
	if h.Command&uverbs.FlagExtended != 0 {
		room *= 2
	}
	resp, err := writeCommand(k.dev, cmd, responseAt, room)
	if err != nil {
		return nil, nil, err
	}
	switch h.Command {
	case uverbs.CmdGetContext, uverbs.CmdCreateCompChannel: // both begin with a descriptor
		return resp, []uverbs.FD{{FD: int(binary.NativeEndian.Uint32(resp)), Kind: uverbs.FDNumber}}, nil
	}
	return resp, nil, nil
}

// writeCommand writes a command with room bytes for a response, whose address it puts at offset at of the command. An
// error is a unix.Errno, or os.ErrClosed.
func writeCommand(dev io.Writer, cmd []byte, at, room int) ([]byte, error) {
	resp := make([]byte, room)
	if room > 0 {
		var pin runtime.Pinner
		defer pin.Unpin()
		pin.Pin(unsafe.SliceData(resp))
		binary.NativeEndian.PutUint64(cmd[at:], addressOf(resp))
	}
	_, err := dev.Write(cmd)
	return resp, bare(err)
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// bare returns the errno in an error of package os, or the error itself.
func bare(err error) error {
	if err == nil {
		return nil // errno below is an allocation
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

func (k *kernel) hangUp() error { return k.dev.Close() }

func (k *kernel) release() {
	if k.void != nil {
		_ = unix.Munmap(k.void) // cannot fail for a mapping that we made
		k.void = nil
	}
}

// mmap maps a ring. The kernel permits it once per ring.
func (k *kernel) mmap(offset uint64, size uint32) ([]byte, error) { return k.dev.mmap(offset, size) }
func (k *kernel) unmap(mem []byte)                                { _ = shm.Unmap(mem) } // cannot fail for a mapping that we made

func (k *kernel) maxQP() uint32 { return 1<<32 - 1 }

// bellCommand is a POST_SEND without work requests, which makes the driver read the ring.
type bellCommand [uverbs.HdrLen + 24]byte

// wrSize is the size of ib_uverbs_send_wr, the minimum that the kernel accepts.
const wrSize = 56

func (k *kernel) turn() bool { return false }

func (k *kernel) ringBell(handle uint32) error {
	b := k.bells.Get().(*bellCommand)
	defer k.bells.Put(b)
	n := binary.NativeEndian
	n.PutUint32(b[:], uverbs.CmdPostSend)
	n.PutUint16(b[4:], uint16(len(b)/4))
	n.PutUint16(b[6:], 1)
	n.PutUint64(b[responseAt:], addressOf(k.void))
	n.PutUint32(b[uverbs.HdrLen+8:], handle)
	n.PutUint32(b[uverbs.HdrLen+20:], wrSize)
	_, err := k.dev.Write(b[:])
	return bare(err)
}

func (k *kernel) arm(q *CQ, bits uint32) error {
	cmd := uverbs.ReqNotifyCQ{CQHandle: q.handle}
	if bits == rxe.ArmSolicited {
		cmd.SolicitedOnly = 1
	}
	return k.ctx.run("req_notify_cq", uverbs.CmdReqNotifyCQ, cmd)
}

// rxeWithInv is the flag of a completion whose SEND has invalidated a key: rxe uses the kernel's number instead of
// that of libibverbs.
const rxeWithInv WCFlags = 1 << 2

// amend sets the time of polling, because rxe takes no time stamps. It clears WCGRH unless the completion is of a
// datagram, which has a SrcQP, because rxe sets WCGRH on all receive completions.
func (k *kernel) amend(wcs []WC) {
	now := Timestamp(clock.Now())
	for i := range wcs {
		w := &wcs[i]
		w.Time = now
		if w.SrcQP == 0 {
			w.Flags &^= WCGRH
		}
		if w.Flags&rxeWithInv != 0 {
			w.Flags ^= rxeWithInv | WCWithInv
			w.Imm = bits.ReverseBytes32(w.Imm) // it was read as immediate data
		}
	}
}

// clock describes the clock of amend.
func (k *kernel) clock() (ClockAttr, error) {
	return ClockAttr{Mask: 1<<64 - 1, KHz: 1e6, Polled: true}, nil
}

// share does nothing: registration gives the kernel access to any memory of the process.
func (k *kernel) share(int, uint64, uint64) (uint32, error) { return 0, nil }

func (k *kernel) unshare(uint32) error { return nil }

func (k *kernel) modify(cmds []uverbs.ModifyQP) error {
	for i := range cmds {
		if err := k.ctx.run("modify_qp", uverbs.CmdModifyQP, cmds[i]); err != nil {
			return err
		}
	}
	return nil
}

// resizeSRQ passes the address for the response of rxe in the provider's part of the command.
func (k *kernel) resizeSRQ(cmd uverbs.ModifySRQ) (uverbs.MMInfo, error) {
	mi := make([]byte, uverbs.Size[uverbs.MMInfo]())
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(unsafe.SliceData(mi))
	if err := k.ctx.run("modify_srq", uverbs.CmdModifySRQ, cmd, uverbs.RxeModifySRQ{MmapInfoAddr: addressOf(mi)}); err != nil {
		return uverbs.MMInfo{}, err
	}
	return uverbs.Decode[uverbs.MMInfo](mi)
}

// setProfile accepts only the default: the kernel has no profiles.
func (k *kernel) setProfile(name string) error {
	if name != "" {
		return fail("set_profile", strconv.Quote(name)+": the kernel has no profiles", unix.EOPNOTSUPP)
	}
	return nil
}
