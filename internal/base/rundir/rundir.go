// Package rundir decides which run directory a program may trust. Programs pass their memory to the daemon behind the
// sockets of that directory, so a directory that another user prepared would give that user the memory.
//
// A directory that a user named is trusted: by a flag, a configuration or the variable ROCED_RUN_DIR. The default
// directory is trusted only if no other user can have prepared it. The C library follows the same rule
// (preload/rundir.c).
package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Variable is the environment variable that names the run directory.
const Variable = "ROCED_RUN_DIR"

// overflowUID stands for users that the user namespace of this process does not map (user_namespaces(7)).
const overflowUID = 65534

// ErrUntrusted reports a default run directory that another user may have prepared.
var ErrUntrusted = errors.New("it must belong to you or root and not be writable by others; select another with --run-dir or " + Variable)

// ErrOthers reports a run directory in which others could exchange the sockets of a daemon.
var ErrOthers = errors.New("the run directory must belong to the daemon's user and not be writable by others; the daemon makes one that does not exist yet")

// ErrPeer reports a socket whose daemon does not belong to the owner of the run directory.
var ErrPeer = errors.New("the daemon must belong to the owner of its run directory")

// longest is the maximum length of a run directory: the path of a Unix socket in it has at most 107 bytes.
const longest = 107 - len("/uverbs99")

// CheckLength returns an error if a run directory has too long a path for the sockets in it.
func CheckLength(dir string) error {
	if len(dir) <= longest {
		return nil
	}
	return fmt.Errorf("the run directory %s has a path of %d bytes, and its sockets permit %d: name a shorter one by --run-dir, %s or XDG_RUNTIME_DIR",
		dir, len(dir), longest, Variable)
}

// OfUser returns the default run directory of the user's daemon.
func OfUser() string {
	if os.Geteuid() == 0 {
		return "/run/roced"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "roced")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("roced-%d", os.Geteuid()))
}

// Default returns the directory that ROCED_RUN_DIR names, else that of the user's daemon.
func Default() string {
	if dir := os.Getenv(Variable); dir != "" {
		return dir
	}
	return OfUser()
}

// named reports whether a user named dir: it is not the default.
func named(dir string) bool {
	abs, err := filepath.Abs(dir)
	return err != nil || os.Getenv(Variable) == dir || abs != OfUser()
}

// owner opens dir without following links.
func owner(dir string) (st unix.Stat_t, err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st)
}

const writableForOthers = 0o022

// Check returns an error if a program must not use the daemon of dir. It wraps ErrUntrusted, or fs.ErrNotExist if there
// is no such directory.
func Check(dir string) error {
	if named(dir) {
		return nil
	}
	st, err := owner(dir)
	switch {
	case err != nil:
		return refusal("run directory", dir, err, ErrUntrusted)
	case st.Mode&writableForOthers == 0 && (st.Uid == uint32(os.Geteuid()) || st.Uid == 0 || unmapped(dir, st.Uid)):
		return nil
	}
	return wrongOwner("run directory", dir, st, ErrUntrusted)
}

// refusal returns the error for a directory that owner cannot open. A link or a file wraps rule.
func refusal(kind, dir string, err, rule error) error {
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%s %s: not a directory: %w", kind, dir, rule)
	}
	return fmt.Errorf("%s %s: %w", kind, dir, err)
}

// wrongOwner returns the error for a directory whose owner or mode breaks rule.
func wrongOwner(kind, dir string, st unix.Stat_t, rule error) error {
	return fmt.Errorf("%s %s: owned by uid %d with mode %#o: %w", kind, dir, st.Uid, st.Mode&0o7777, rule)
}

// unmapped reports whether dir belongs to a user outside of this user namespace and lies where others cannot make
// directories: there root of the host made it.
func unmapped(dir string, uid uint32) bool {
	st, err := owner(filepath.Dir(dir))
	return uid == overflowUID && err == nil && st.Uid == overflowUID && st.Mode&writableForOthers == 0
}

// CheckPeer returns an error that wraps ErrPeer if the process that listens behind a connection to a socket in dir
// belongs to neither the owner of dir nor root.
func CheckPeer(dir string, conn syscall.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return cerr
	}
	if err != nil {
		return err
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	return mayServe(dir, st.Sys().(*syscall.Stat_t).Uid, cred.Uid)
}

// mayServe reports whether a daemon of a user may serve the directory of an owner. User namespaces hide both.
func mayServe(dir string, owner, peer uint32) error {
	if peer == owner || peer == 0 || named(dir) && (peer == overflowUID || owner == overflowUID) {
		return nil
	}
	return fmt.Errorf("run directory %s: owned by uid %d, its daemon by uid %d: %w", dir, owner, peer, ErrPeer)
}

// Create makes the directory of a daemon unless it exists. It wraps ErrOthers if others could exchange files in it.
func Create(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return private("run directory", dir, uint32(os.Geteuid()))
}

// CheckFiles returns an error that wraps ErrOthers if users other than this one and root could exchange files of a
// directory.
func CheckFiles(dir string) error {
	return private("directory", dir, uint32(os.Geteuid()), 0)
}

// private returns an error unless dir belongs to one of the users and others cannot write to it.
func private(kind, dir string, users ...uint32) error {
	st, err := owner(dir)
	switch {
	case err != nil:
		return refusal(kind, dir, err, ErrOthers)
	case st.Mode&writableForOthers != 0 || !slices.Contains(users, st.Uid):
		return wrongOwner(kind, dir, st, ErrOthers)
	}
	return nil
}

// Open opens a regular file of the run directory for writing without following a link, and creates it with the mode.
func Open(path string, mode os.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	own := uint32(os.Geteuid())
	if err == nil && (!st.Mode().IsRegular() || own != 0 && own != st.Sys().(*syscall.Stat_t).Uid) {
		err = &os.PathError{Op: "open", Path: path, Err: unix.EPERM}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Replace removes a file of the run directory and creates it anew.
func Replace(path string, mode os.FileMode) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
}
