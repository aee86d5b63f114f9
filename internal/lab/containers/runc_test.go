package containers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// limit is the time limit of every program. Only a hanging program reaches it.
const limit = 90 * time.Second

// rights are the rights of a container.
type rights struct {
	uid        int
	caps       []string // effective; of an unprivileged user, ambient
	noNewPrivs bool
	deny       []string // additional system calls that fail with EPERM
}

// dockerCaps are the capabilities of a Docker container.
var dockerCaps = []string{"CAP_AUDIT_WRITE", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_MKNOD",
	"CAP_NET_BIND_SERVICE", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"}

// docker returns the rights of docker run, as root or, with --user, as another user. --cap-add adds more.
func docker(uid int, more ...string) rights {
	if uid != 0 {
		return rights{uid: uid, caps: more} // the others are in the bounding set only
	}
	return rights{caps: append(more, dockerCaps...)}
}

// restricted returns the rights of a pod under Kubernetes' restricted standard, which forbids root and drops all
// capabilities.
func restricted(uid int, more ...string) rights {
	return rights{uid: uid, caps: more, noNewPrivs: true}
}

// container is a container that runs until the test ends.
type container struct {
	t     *testing.T
	id    string
	state string // folder of runc
}

// setup describes a container.
type setup struct {
	rights   rights
	netns    string            // path of its network namespace, empty for a new one
	readOnly bool              // the root file system is, for the program
	binds    map[string]string // writable mounts from outside, by path inside
	tun      bool              // it has /dev/net/tun
	hidepid  bool              // processes see only those of their own user
	memory   int64             // limit in bytes, 0 for none
	dir      string
}

type object = map[string]any

// mounts returns the mounts of a container, as Docker makes them.
func (s *setup) mounts() []object {
	mount := func(to, kind, from string, options ...string) object {
		return object{"destination": to, "type": kind, "source": from, "options": options}
	}
	proc := mount("/proc", "proc", "proc", "nosuid", "noexec", "nodev")
	if s.hidepid {
		proc["options"] = []string{"nosuid", "noexec", "nodev", "hidepid=2"}
	}
	m := []object{
		proc,
		mount("/dev", "tmpfs", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
		mount("/dev/pts", "devpts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
		mount("/dev/shm", "tmpfs", "shm", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
		mount("/sys", "sysfs", "sysfs", "nosuid", "noexec", "nodev", "ro"),
		mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "mode=1777"),
		mount("/usr", "bind", "/usr", "rbind", "ro"),
		mount("/etc", "bind", "/etc", "rbind", "ro"),
	}
	if s.netns == "" {
		m[4] = mount("/sys", "tmpfs", "tmpfs", "ro") // sysfs requires rights over the namespace
	}
	for inside, outside := range s.binds {
		mode := "rw"
		if s.readOnly && inside != meetDir {
			mode = "ro" // sockets remain connectable
		}
		m = append(m, mount(inside, "bind", outside, "rbind", mode))
	}
	return m
}

// process describes a process in the container.
func (r *rights) process(args, env []string) object {
	caps := object{"bounding": r.caps, "effective": r.caps, "permitted": r.caps}
	if r.uid != 0 {
		caps["inheritable"], caps["ambient"] = r.caps, r.caps
	}
	return object{
		"terminal": false, "user": object{"uid": r.uid, "gid": r.uid}, "args": args, "cwd": "/",
		"env":             append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, env...),
		"capabilities":    caps,
		"noNewPrivileges": r.noNewPrivs,
		"rlimits": []object{
			{"type": "RLIMIT_NOFILE", "hard": 4096, "soft": 1024},
			{"type": "RLIMIT_MEMLOCK", "hard": 65536, "soft": 65536},
		},
	}
}

// seccomp returns the default list of system calls without the denied ones.
func (r *rights) seccomp(t *testing.T) object {
	t.Helper()
	text, err := os.ReadFile("testdata/seccomp.txt")
	if err != nil {
		t.Fatal(err)
	}
	denied := map[string]bool{}
	for _, name := range r.deny {
		denied[name] = true
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if c, rest, ok := strings.Cut(line, ":"); ok {
			if line = rest; !strings.Contains(strings.Join(r.caps, " ")+" ", c+" ") {
				continue
			}
		}
		for _, name := range strings.Fields(line) {
			if !denied[name] {
				names = append(names, name)
			}
		}
	}
	const (
		eperm, enosys = 1, 38
		vsock         = 40
		namespaces    = 0x7e020000 // flags of clone that create namespaces
	)
	arg := func(value uint64, op string) []object {
		return []object{{"index": 0, "value": value, "valueTwo": 0, "op": op}}
	}
	allow := func(name string, args []object) object {
		return object{"names": []string{name}, "action": "SCMP_ACT_ALLOW", "args": args}
	}
	return object{
		"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": eperm,
		"syscalls": []object{
			{"names": names, "action": "SCMP_ACT_ALLOW"},
			allow("socket", arg(vsock, "SCMP_CMP_NE")),
			allow("personality", arg(0, "SCMP_CMP_EQ")),
			allow("personality", arg(0xffffffff, "SCMP_CMP_EQ")),
			allow("clone", arg(namespaces, "SCMP_CMP_MASKED_EQ")),
			{"names": []string{"clone3"}, "action": "SCMP_ACT_ERRNO", "errnoRet": enosys}, // the C library then uses clone
		},
	}
}

// config returns the container's configuration (OCI runtime specification).
func (c *container) config(s *setup, root string, args []string) object {
	net := object{"type": "network"}
	if s.netns != "" {
		net["path"] = s.netns
	}
	linux := object{
		"namespaces": []object{{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, net},
		"seccomp":    s.rights.seccomp(c.t),
		"maskedPaths": []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
			"/proc/sched_debug", "/proc/scsi", "/sys/firmware"},
		"readonlyPaths": []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
	}
	resources := object{"devices": []object{{"allow": false, "access": "rwm"}}}
	if s.tun {
		linux["devices"] = []object{{"path": "/dev/net/tun", "type": "c", "major": 10, "minor": 200, "fileMode": 0o666}}
		resources["devices"] = []object{{"allow": false, "access": "rwm"}, {"allow": true, "type": "c", "major": 10, "minor": 200, "access": "rwm"}}
	}
	if s.memory != 0 {
		resources["memory"] = object{"limit": s.memory}
	}
	linux["resources"] = resources
	return object{
		"ociVersion": "1.0.2", "hostname": c.id, "process": s.rights.process(args, nil),
		"root": object{"path": root, "readonly": true}, "mounts": s.mounts(), "linux": linux,
	}
}

// serial numbers containers.
var serial atomic.Int32

// start starts a container with a program. Its output goes to log.
func (s *setup) start(t *testing.T, log *os.File, args ...string) *container {
	t.Helper()
	c := &container{t: t, id: fmt.Sprintf("roced-%d-%d", os.Getpid(), serial.Add(1)), state: filepath.Join(s.dir, "runc")}
	bundle := filepath.Join(s.dir, c.id)
	root := filepath.Join(bundle, "root")
	for _, d := range []string{"usr", "etc", "proc", "dev", "sys", "tmp", "run"} {
		must(t, os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	must(t, os.Chmod(filepath.Join(root, "tmp"), 0o777)) // the mount point inherits these permissions
	for inside, outside := range s.binds {
		info, err := os.Stat(outside)
		must(t, err)
		if info.IsDir() { // runc creates mount points for files
			must(t, os.MkdirAll(filepath.Join(root, inside), 0o755))
		}
	}
	for _, l := range []string{"bin", "lib", "lib64", "sbin"} {
		must(t, os.Symlink("usr/"+l, filepath.Join(root, l)))
	}
	text, err := json.MarshalIndent(c.config(s, root, args), "", " ")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600))
	cmd := exec.Command("runc", "--root", c.state, "run", "--detach", "--bundle", bundle, c.id)
	cmd.Stdout, cmd.Stderr = log, log
	t.Cleanup(c.end)
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Fatalf("runc run: %v\n%s", err, said)
	}
	return c
}

func (c *container) end() {
	if out, err := exec.Command("runc", "--root", c.state, "delete", "--force", c.id).CombinedOutput(); err != nil {
		c.t.Logf("runc delete: %v\n%s", err, out)
	}
}

// outcome is a program's output and exit status.
type outcome struct {
	out, diag string
	err       error
}

// run runs a program in the container.
func (c *container) run(r rights, env []string, args ...string) (o outcome) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	text, err := json.Marshal(r.process(args, env))
	if err != nil {
		return outcome{err: err}
	}
	path := filepath.Join(c.state, fmt.Sprint("process", serial.Add(1)))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return outcome{err: err}
	}
	cmd := exec.CommandContext(ctx, "runc", "--root", c.state, "exec", "--process", path, c.id)
	cmd.WaitDelay = time.Second
	var out, diag bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diag
	err = cmd.Run()
	return outcome{out.String(), diag.String(), err}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
