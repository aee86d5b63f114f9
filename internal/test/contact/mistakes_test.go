package contact

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

func TestMain(m *testing.M) { lab.LongMain(m, nil) }

// The command prefix that makes a program run as an unprivileged user.
var nobody = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs"}

// place is a network namespace with an interface v0 of a small MTU, a folder, and the programs in them.
type place struct {
	t     *testing.T
	dir   string
	enter []string // command prefix: nsenter
}

// newPlace makes a place for a test, and requires root.
func newPlace(t *testing.T) *place {
	t.Helper()
	for _, program := range []string{"unshare", "nsenter", "setpriv", "ip"} {
		lab.Need(t, program)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else besides")
	}
	p := &place{t: t, dir: lab.Dir(t)}
	lab.Must(t, os.Chmod(p.dir, 0o755))
	lab.Must(t, os.Chmod(filepath.Dir(lab.Bin), 0o755)) // for other users
	holder := lab.Launch(t, (*exec.Cmd).Start, []string{"unshare", "--net", "sh", "-ec",
		"ip link set lo up; ip link add v0 type veth peer name v1; ip addr add 198.18.9.1/24 dev v0; ip link set v0 up mtu 300; ip link set v1 up; echo made; exec sleep infinity"})
	lab.Must(t, holder.Ready("the namespace", func() (bool, error) { return strings.Contains(holder.Out.String(), "made"), nil }))
	p.enter = []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", holder.PID())}
	return p
}

// start starts a program in the place.
func (p *place) start(args ...string) *lab.Proc {
	p.t.Helper()
	return lab.Launch(p.t, (*exec.Cmd).Start, slices.Concat(p.enter, args))
}

// path returns the path of a file or a run directory of the place.
func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// config writes a configuration with one NIC, x, and returns the command of its daemon.
func (p *place) config(name, daemon, nic string) []string {
	p.t.Helper()
	file := p.path(name + ".yaml")
	text := fmt.Sprintf("run_dir: %s\n%snics:\n  - {name: x, %s}\n", p.path(name), daemon, nic)
	lab.Must(p.t, os.WriteFile(file, []byte(text), 0o644))
	return []string{lab.Program("roced"), "run", "--config", file}
}

// daemon starts a daemon and waits for its NIC.
func (p *place) daemon(name, daemon, nic string) {
	p.t.Helper()
	roced := p.start(p.config(name, daemon, nic)...)
	lab.Must(p.t, roced.Ready("its NIC is up", func() (bool, error) { return strings.Contains(roced.Said(), "roced is ready"), nil }))
}

// ctl returns a rocectl command for a run directory.
func (p *place) ctl(name string, args ...string) []string {
	return append([]string{lab.Program("rocectl"), "--run-dir", p.path(name)}, args...)
}

// TestMistakes: each of the likeliest mistakes ends with a message that names the error and the remedy.
func TestMistakes(t *testing.T) {
	p := newPlace(t)
	p.daemon("own", "metrics: {listen: 127.0.0.1:9464}\n", "port: {type: udp, address: 127.0.0.2}, access: {mode: '0600'}")
	p.daemon("tap", "", "addresses: [198.18.3.1/24], port: {type: tap, device: t0}")
	link := func(i int) string {
		return fmt.Sprintf("addresses: [198.18.4.%d/24], port: {type: unix, local: %s, remote: %s}", i+1, p.path(fmt.Sprint("l", i)), p.path(fmt.Sprint("l", 1-i)))
	}
	p.daemon("a", "", link(0))
	p.daemon("b", "", link(1))
	perf := []string{lab.Program("roceperf"), "write-bw", "-s", "64", "-n", "16", "--timeout", "8", "--retry-cnt", "1"}
	server := p.start(slices.Concat(perf, []string{"--run-dir", p.path("b"), "--oob", "unix:" + p.path("oob")})...)
	lab.Must(t, server.Ready("it listens", func() (bool, error) { _, err := os.Stat(p.path("oob")); return err == nil, nil }))
	lab.Must(t, p.start(p.ctl("a", "fault", "add", "x", "tx drop")...).Wait(lab.Limit))
	alone := filepath.Join(p.dir, "rocectl") // without a library in the same folder
	text, err := os.ReadFile(lab.Program("rocectl"))
	lab.Must(t, err)
	lab.Must(t, os.WriteFile(alone, text, 0o755))
	stop := p.ctl("own", "link")
	mistakes := []struct {
		name  string
		args  []string
		code  int
		words []string // the error and the remedy
	}{
		{"no daemon: rocectl", p.ctl("none", "link"), 1, []string{"no daemon at", `"rocectl up" starts one`}},
		{"no daemon: exec", p.ctl("none", "exec", "--", "true"), 1, []string{"is roced running?", `"rocectl up" starts one`}},
		{"no daemon: a server that would wait", slices.Concat(perf, []string{"--run-dir", p.path("none")}), 1, []string{"is roced running?", `"rocectl up" starts one`}},
		{"no permission", slices.Concat(nobody, stop), 1, []string{"permission denied", "user 0", "control.users"}},
		{"another user", slices.Concat(nobody, p.ctl("own", "exec", "--", "true")), 1, []string{"this user may not use the NICs", "nics[].access", `"rocectl up"`}},
		{"wrong namespace", p.config("c", "", "port: {type: packet, interface: eth9}"), 1, []string{"eth9", "no such interface in the network namespace", "key netns"}},
		{"a namespace that is not there", p.config("d", "", "addresses: [198.18.3.2/24], port: {type: tap, device: t1, netns: /run/netns/none}"), 1, []string{"network namespace /run/netns/none", "no such file"}},
		{"device busy", p.config("e", "", "addresses: [198.18.3.2/24], port: {type: tap, device: t0}"), 1, []string{"t0", "another process, such as another roced, uses it", "configure another device"}},
		{"run directory in use", p.config("own", "", "port: {type: udp, address: 127.0.0.3}"), 1, []string{"another roced uses it", `end that with "rocectl down"`}},
		{"address in use: a NIC's", p.config("f", "", "port: {type: udp, address: 127.0.0.2}"), 1, []string{"127.0.0.2", "UDP port 4791 is taken", "ss -ulpn"}},
		{"address in use: metrics", p.config("g", "metrics: {listen: 127.0.0.1:9464}\n", "port: {type: udp, address: 127.0.0.3}"), 1, []string{"metrics.listen", "address already in use", "choose a free one"}},
		{"MTU too small", p.config("h", "", "port: {type: packet, interface: v0}"), 1, []string{"MTU 300 is too small for path MTU 256", "ip link set v0 mtu"}},
		{"no C compiler, so no library", []string{alone, "--run-dir", p.path("a"), "exec", "--", "true"}, 1, []string{"no preload library in", "build it with make build and a C compiler"}},
		{"a library that is not there", slices.Concat([]string{"env", "ROCED_LIBRARY=/nothing.so"}, p.ctl("a", "exec", "--", "true")), 1, []string{"ROCED_LIBRARY", "/nothing.so"}},
		{"wrong profile", p.config("i", "", "profile: irm, port: {type: udp, address: 127.0.0.3}"), 2, []string{`no transport profile "irm"`, "there are [rc irn"}},
		{"nobody waits", slices.Concat(perf, []string{"--run-dir", p.path("a"), "127.0.0.1"}), 1, []string{"refused", "start roceperf", "first"}},
		{"peer unreachable", slices.Concat(perf, []string{"--run-dir", p.path("a"), "--oob", "unix:" + p.path("oob"), "peer"}), 1, []string{"retry counter exceeded", "rocectl link", "rocectl watch"}},
	}
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			c := lab.Launch(t, (*exec.Cmd).Start, slices.Concat(p.enter, m.args))
			if code := c.Exit(lab.Limit); code != m.code {
				t.Errorf("exit code %d, not %d", code, m.code)
			}
			for _, w := range m.words {
				if !strings.Contains(c.Diag.String(), w) {
					t.Errorf("it does not say %q but:\n%s", w, c.Said())
				}
			}
			if err := lab.InWords(c.Diag.String()); err != nil {
				t.Error(err)
			}
		})
	}
}
