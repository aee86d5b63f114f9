package containers

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestHardened: further restrictions by administrators do no harm.
func TestHardened(t *testing.T) {
	foreign := []string{"process_vm_readv", "process_vm_writev", "ptrace", "kcmp", "pidfd_getfd", "process_madvise"}
	for _, c := range []struct {
		name string
		cell cell
	}{
		{"hidepid", cell{place: "siblings", user: daemonUser, port: "unix", hidepid: true}},
		{"hidepid in one container", cell{place: "one", port: "unix", hidepid: true}},
		// Like Yama's scope 3: no process may access another process. The daemon has no CAP_SYS_PTRACE anyway, as under
		// scopes 1 and 2.
		{"nobody traces", cell{place: "siblings", port: "unix", deny: foreign}},
		{"64 MiB of memory", cell{place: "siblings", user: daemonUser, port: "unix", memory: 64 << 20}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, &c.cell)
			l.startBoth()
			l.check(l.transfer())
		})
	}
}

// TestRefused: for an operation that lacks a right, the message says which right to grant.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		cell cell
		caps []string
		want string
	}{
		{"no tun device", cell{place: "one", port: "tap", noTun: true}, []string{"CAP_NET_ADMIN"}, "--device /dev/net/tun"},
		{"no right to a TAP", cell{place: "one", port: "tap"}, dockerCaps, "CAP_NET_ADMIN"},
		{"no right to packet sockets", cell{place: "pods", user: daemonUser, port: "packet"}, nil, "CAP_NET_RAW"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, &c.cell)
			s := l.prepare(0)
			r, _ := c.cell.rights()
			r.caps = c.caps
			at := setup{rights: r, netns: l.netns(0), binds: l.binds(s), tun: !c.cell.noTun, dir: s.dir}
			at.start(t, s.log, binDir+"/roced", "run", "--config", confDir+"/roced.yaml")
			if err := s.answers(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want a sentence with %q", err, c.want)
			}
		})
	}
}

// TestNoProc: without /proc only the daemon's own access to a program's memory remains, for which it has no right. The
// program's user and the log get a message. runc makes no container without /proc, so the programs are in their own
// mount namespace.
func TestNoProc(t *testing.T) {
	l := newLab(t, &cell{place: "siblings", user: daemonUser, port: "unix"})
	l.startBoth()
	var res [2]outcome
	var wg sync.WaitGroup
	for i, s := range l.side {
		c := exec.Command("unshare", "--mount", "sh", "-c", `mount -t tmpfs none /proc && exec "$0" "$@"`,
			filepath.Join(bin, "rocectl"), "--run-dir", s.path("run/daemon"), "exec", "--",
			filepath.Join(bin, "kinds"), [2]string{"listen", "connect"}[i], filepath.Join(l.dir, "meet/socket"), "/tmp", "stack")
		c.Env = append(os.Environ(), "ROCED_LIBRARY="+filepath.Join(bin, "libroced.so"))
		var diag bytes.Buffer
		c.Stderr = &diag
		wg.Go(func() {
			err := c.Run()
			res[i] = outcome{diag: diag.String(), err: err}
		})
	}
	wg.Wait()
	for i, r := range res {
		if r.err == nil || !strings.Contains(r.diag, "Bad address") || !strings.Contains(r.diag, "check that /proc is mounted") {
			t.Errorf("side %d: %v\n%s", i, r.err, r.diag)
		}
		if text := l.side[i].said(); !strings.Contains(text, "is /proc mounted where it runs") {
			t.Errorf("side %d: the daemon says %s", i, text)
		}
	}
}
