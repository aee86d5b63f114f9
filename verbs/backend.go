package verbs

import (
	"os"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
)

// backend is the provider of a Context's device: roced through a socket (daemon), or the kernel's driver rdma_rxe
// through a file in KernelDir (kernel). Both share commands, responses, rings and event channels. This interface holds
// the differences.
type backend interface {
	// open sets the name of the device in c and opens the verbs context.
	open(c *Context) error
	// call runs a command, whose bytes it may change. A unix.Errno or a *uverbs.Refusal is the response to the command;
	// after any other error the device is lost. The caller owns the descriptors of a response.
	call(cmd []byte, fds []int) ([]byte, []uverbs.FD, error)
	// hangUp closes the connection and aborts calls in progress. release frees the memory; call it last.
	hangUp() error
	release()

	// mmap maps a ring at the offset of a response, until unmap.
	mmap(offset uint64, size uint32) ([]byte, error)
	unmap(mem []byte)
	// maxQP is the limit on handles of queue pairs.
	maxQP() uint32
	// ringBell makes the device read the send queue of a queue pair. The rings must not be released meanwhile.
	ringBell(handle uint32) error
	// turn runs a turn of a NIC in this process. It reports whether there was work, which may be a completion.
	turn() bool
	// arm requests an event of q, by rxe.ArmAny or rxe.ArmSolicited. The caller holds the lock of q.
	arm(q *CQ, bits uint32) error
	// amend sets the fields of completions that the device leaves out.
	amend(wcs []WC)
	clock() (ClockAttr, error)

	// share gives the device access to the memory of a memfd, if it needs that; unshare revokes the access.
	share(fd int, base, length uint64) (handle uint32, err error)
	unshare(handle uint32) error
	// modify runs MODIFY_QPs in order and stops at the first error.
	modify(cmds []uverbs.ModifyQP) error
	// resizeSRQ replaces the ring of a shared receive queue and returns the location of the new one.
	resizeSRQ(cmd uverbs.ModifySRQ) (uverbs.MMInfo, error)

	gid(port, index int) (GID, error)
	setProfile(name string) error
	stats() ([]Stat, error)
}

// eventFile returns a file for the descriptor of an event channel, which it owns. For -1 it returns ErrProtocol.
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
