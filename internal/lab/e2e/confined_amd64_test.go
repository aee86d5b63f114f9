package e2e

import "golang.org/x/sys/unix"

// These system calls are forbidden, too. Not all architectures have them.
func init() {
	forbidden = append(forbidden, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_KEXEC_FILE_LOAD)
}
