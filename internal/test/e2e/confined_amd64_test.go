package e2e

import "golang.org/x/sys/unix"

// These are forbidden, too, and not all processors have them.
func init() {
	forbidden = append(forbidden, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_KEXEC_FILE_LOAD)
}
