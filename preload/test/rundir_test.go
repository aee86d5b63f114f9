package test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"roced.io/roced/internal/lab"
)

// Users of TestRunDirTrust.
const (
	victim   = 65000
	attacker = 64000
)

// asUser calls f in a thread with an effective user.
func asUser(t *testing.T, uid int, f func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const same = ^uintptr(0)
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, same, uintptr(uid), same); e != 0 {
		t.Fatal(e)
	}
	f()
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, same, 0, same); e != 0 {
		panic(e) // this thread must not return to the scheduler
	}
}

// TestRunDirTrust checks which run directories and daemons a program of the victim uses. A program passes its memory to
// the daemon, so a daemon of another user must not get it by preparing the victim's default directory.
func TestRunDirTrust(t *testing.T) {
	lab.Long(t)
	const accepted = "Invalid argument" // read() of an open device
	for _, c := range []struct {
		test, name    string
		owner, daemon int
		mode          os.FileMode
		link          bool
		want          string
	}{
		{"default of the victim", "roced-65000", victim, victim, 0o755, false, accepted},
		{"default of root", "roced-65000", 0, 0, 0o755, false, accepted},
		{"default of an attacker", "roced-65000", attacker, attacker, 0o755, false,
			"owned by uid 64000 with mode 0755; it must belong to you or root and not be writable by others"},
		{"writable default", "roced-65000", victim, attacker, 0o777, false,
			"owned by uid 65000 with mode 0777; it must belong to you or root and not be writable by others"},
		{"default is a link", "roced-65000", victim, victim, 0o755, true, "not a directory"},
		{"daemon of an attacker in the default", "roced-65000", victim, attacker, 0o755, false,
			"owned by uid 65000, its daemon by uid 64000; the daemon must belong to the owner of its run directory"},
		{"named directory", "named", attacker, attacker, 0o755, false, accepted},
		{"named link", "named", attacker, attacker, 0o755, true, accepted},
		{"daemon of an attacker in a named directory", "named", 0, attacker, 0o755, false,
			"owned by uid 0, its daemon by uid 64000; the daemon must belong to the owner of its run directory"},
		{"daemon of root in a named directory", "named", attacker, 0, 0o755, false, accepted},
	} {
		t.Run(c.test, func(t *testing.T) {
			base := t.TempDir()
			for _, dir := range []string{base, filepath.Dir(base), filepath.Dir(lab.Bin)} {
				if err := os.Chmod(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			dir := filepath.Join(base, c.name)
			real := dir
			if c.link {
				real = filepath.Join(base, "target")
				if err := os.Symlink(real, dir); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Mkdir(real, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(real, 0o777); err != nil {
				t.Fatal(err)
			}
			asUser(t, c.daemon, func() {
				falseDaemon(t, filepath.Join(real, "uverbs0"), func() []message { return []message{goodHello} })
			})
			socket := filepath.Join(real, "uverbs0")
			for _, err := range []error{os.Chmod(socket, 0o666), os.Chown(real, c.owner, c.owner), os.Chmod(real, c.mode)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			sysfs := filepath.Join(base, "sysfs")
			node := filepath.Join(sysfs, "class/infiniband_verbs/uverbs0")
			if err := os.MkdirAll(node, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(node, "dev"), []byte("231:192\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			p := preloaded(t, dir, sysfs, "cat", "/dev/infiniband/uverbs0")
			p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: victim, Gid: victim}}
			out, _ := p.CombinedOutput() // cat fails in each case
			refused := strings.Contains(string(out), "roced: run directory "+dir+": ")
			if !strings.Contains(string(out), c.want) || refused == (c.want == accepted) {
				t.Errorf("%s\nwant: %s", out, c.want)
			}
		})
	}
}
