package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// inside is the configuration of a NIC on the interface of the daemon's own namespace.
const inside = "run_dir: %q\nnics:\n  - name: rxe_a\n    port: {type: %s, interface: %s}\n"

// TestMissingPrivilege starts daemons that lack one capability each. Their messages name it.
func TestMissingPrivilege(t *testing.T) {
	bed, err := netlab.NewDirect([2]bool{true, true})
	lab.Must(t, err)
	defer bed.Close()
	for _, c := range []struct {
		port string
		lack []uintptr
		want string
	}{
		{"xdp", []uintptr{unix.CAP_NET_RAW}, "CAP_NET_RAW"},
		{"xdp", []uintptr{unix.CAP_NET_ADMIN}, "CAP_NET_ADMIN"},
		{"xdp", []uintptr{unix.CAP_BPF, unix.CAP_SYS_ADMIN}, "CAP_BPF"},
		{"packet", []uintptr{unix.CAP_NET_RAW}, "CAP_NET_RAW"},
	} {
		t.Run(c.port+" "+c.want, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "roced.yaml")
			lab.Must(t, os.WriteFile(file, fmt.Appendf(nil, inside, dir, c.port, veth), 0o600))
			roced := exec.Command(lab.Program("roced"), "run", "--config", file)
			var log strings.Builder
			roced.Stderr = &log
			lab.Must(t, bed.NS[0].Do(func() error {
				// This affects only this thread, which ends, and its children.
				for _, capability := range c.lack {
					if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
						return err
					}
				}
				return roced.Start()
			}))
			if err := roced.Wait(); err == nil || !strings.Contains(log.String(), c.want) {
				t.Errorf("%v, log:\n%s", err, &log)
			}
			for _, other := range []string{"CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"} {
				if other != c.want && strings.Contains(log.String(), other) {
					t.Errorf("%s is not what is missing:\n%s", other, &log)
				}
			}
		})
	}
}

// TestPrivilegesDropped checks the rights of a running daemon. It also detaches the daemon's XDP program and waits
// until the daemon attaches it again.
func TestPrivilegesDropped(t *testing.T) {
	dir := t.TempDir()
	bed, err := netlab.NewDirect([2]bool{true, true})
	lab.Must(t, err)
	defer bed.Close()
	h := &netlab.Host{NS: bed.NS[0], RunDir: dir, Config: filepath.Join(dir, "roced.yaml"), LogFile: filepath.Join(dir, "log")}
	lab.Must(t, os.WriteFile(h.Config, fmt.Appendf(nil, inside, dir, "xdp", veth), 0o600))
	lab.Must(t, h.Start(lab.Bin))
	defer h.Stop(syscall.SIGTERM)
	lab.Eventually(t, lab.Limit, "dropped privileges", func() bool { return !privileged(t, h.PID()) })

	first := xdpProgram(t, bed)
	if first == 0 {
		t.Fatal("no program is attached")
	}
	lab.Must(t, detachXDP(first))
	if xdpProgram(t, bed) != 0 {
		t.Error("the program was not detached")
	}
	lab.Eventually(t, lab.Limit, "a program", func() bool { return xdpProgram(t, bed) != 0 })
	lab.Must(t, h.Stop(syscall.SIGTERM))
	if xdpProgram(t, bed) != 0 {
		t.Error("the program outlives the daemon")
	}
}

// privileged reports whether a thread of a process has a capability that it should not have.
func privileged(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // empty if the thread has ended
		for line := range strings.Lines(string(text)) {
			var set host.Caps
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			if name != "CapPrm" && name != "CapEff" {
				continue
			}
			if _, err := fmt.Sscanf(value, "%x", &set); err != nil {
				t.Fatal(err)
			}
			if set&host.NetworkCaps != 0 {
				return true
			}
		}
	}
	return false
}

// xdpProgram returns the ID of the program on the interface of namespace 0, 0 if none.
func xdpProgram(t *testing.T, bed *netlab.Bed) (id uint32) {
	t.Helper()
	lab.Must(t, bed.NS[0].Do(func() error {
		l, err := netlink.LinkByName(veth)
		if err == nil && l.Attrs().Xdp != nil {
			id = l.Attrs().Xdp.ProgId
		}
		return err
	}))
	return id
}

// detachXDP detaches a program, as bpftool-link(8) does.
func detachXDP(program uint32) error {
	var it link.Iterator
	defer it.Close()
	for it.Next() {
		if info, err := it.Link.Info(); err == nil && uint32(info.Program) == program {
			return it.Link.Detach()
		}
	}
	return errors.Join(it.Err(), fmt.Errorf("no link of program %d", program))
}
