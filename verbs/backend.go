package verbs

import (
	"os"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
)

// backend is what a Context has its device from: roced by a socket (daemon), or the kernel's driver rdma_rxe by a file in
// KernelDir (kernel). Commands, their answers, rings and channels of events are the same; all that is not is here.
type backend interface {
	// open begins: it tells c the name of the device and opens the verbs context.
	open(c *Context) error
	// call runs a command, of which it may change the bytes. An error that is a unix.Errno or a *uverbs.Refusal is the
	// answer; after another one the device is lost. The descriptors of an answer are the caller's.
	call(cmd []byte, fds []int) ([]byte, []uverbs.FD, error)
	// hangUp ends the connection, also under the feet of call. release, which comes last, gives memory back.
	hangUp() error
	release()

	// mmap makes a ring accessible that an answer has named, until unmap.
	mmap(offset uint64, size uint32) ([]byte, error)
	unmap(mem []byte)
	// maxQP bounds the handles of queue pairs that can be.
	maxQP() uint32
	// ringBell has the send queue of a queue pair looked at, whose rings are not released meanwhile.
	ringBell(handle uint32) error
	// arm requests an event of q, by rxe.ArmAny or rxe.ArmSolicited. The caller holds the lock of q.
	arm(q *CQ, bits uint32) error
	// amend completes what the device does not say of completions.
	amend(wcs []WC)
	clock() (ClockAttr, error)

	// share lets the device reach the memory of a memfd, if it needs that; unshare takes it back.
	share(fd int, base, length uint64) (handle uint32, err error)
	unshare(handle uint32) error
	// modify carries out MODIFY_QPs one after the other, until one fails.
	modify(cmds []uverbs.ModifyQP) error
	// resizeSRQ makes another ring of a shared receive queue, and tells where it is.
	resizeSRQ(cmd uverbs.ModifySRQ) (uverbs.MMInfo, error)

	gid(port, index int) (GID, error)
	setProfile(name string) error
	stats() ([]Stat, error)
}

// eventFile makes a file that can be waited for of the descriptor of a channel, which it owns; -1 is none.
func eventFile(fd int) (*os.File, error) {
	if fd < 0 {
		return nil, ErrProtocol
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "channel"), nil
}
