package install

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

// unit installs and returns the path of the unit and its keys. The last value of a repeated key counts.
func unit(t *testing.T) (path string, keys map[string]string) {
	t.Helper()
	path, keys = filepath.Join(installed(t, "/usr"), "usr/lib/systemd/system/roced.service"), map[string]string{}
	text, err := os.ReadFile(path)
	lab.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			keys[key] = value
		}
	}
	return path, keys
}

// TestUnit has systemd check the unit.
func TestUnit(t *testing.T) {
	path, keys := unit(t)
	for key, want := range map[string]string{"ExecStart": "/usr/bin/roced run --config /etc/roced.yaml", "RuntimeDirectory": "roced",
		"ExecStartPre": "/usr/bin/roced check --config /etc/roced.yaml", "ProtectSystem": "strict",
		"MemoryMax": "75%", "UMask": "0022", "ProtectProc": "invisible"} {
		if keys[key] != want {
			t.Errorf("%s is %q, not %q", key, keys[key], want)
		}
	}
	lab.Need(t, "systemd-analyze")
	// systemd looks for the programs of the unit, which are at other paths here.
	text, err := os.ReadFile(path)
	lab.Must(t, err)
	lab.Must(t, os.WriteFile(path, bytes.ReplaceAll(text, []byte("=/usr/bin/"), []byte("="+lab.Bin+"/")), 0o644))
	c := exec.Command("systemd-analyze", "verify", "--man=no", path)
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

// calls returns the set of system calls that the words of SystemCallFilter= name.
func calls(t *testing.T, words string) map[string]bool {
	t.Helper()
	sets, name := map[string][]string{}, ""
	for line := range strings.Lines(command(t, nil, "systemd-analyze", "syscall-filter")) {
		switch word := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "@"):
			name = word
		case strings.HasPrefix(line, " ") && !strings.HasPrefix(word, "#"):
			sets[name] = append(sets[name], word)
		}
	}
	out := map[string]bool{}
	var add func(words []string)
	add = func(words []string) {
		for _, w := range words {
			if strings.HasPrefix(w, "@") {
				add(sets[w])
			} else {
				out[w] = true
			}
		}
	}
	add(strings.Fields(words))
	return out
}

// confined starts the daemon with the unit's capabilities and records its system calls. The namespace has an interface
// for each kind of port.
const confined = `ip link set lo up
ip link add v0 type veth peer name v1
for i in 0 1; do ip address add 198.18.$i.1/24 dev v$i; ip link set v$i up; done
exec setpriv --no-new-privs --bounding-set "$1" strace -f -qq -c -o "$2" "$3" run --config "$4"`

// TestUnitSuffices: with the unit's capabilities the daemon opens ports of all types, serves a program, and makes no
// system call that the unit forbids.
func TestUnitSuffices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as whom systemd runs the daemon")
	}
	for _, program := range []string{"systemd-analyze", "strace", "setpriv", "ip", "unshare"} {
		lab.Need(t, program)
	}
	_, keys := unit(t)
	dir := lab.Dir(t)
	config, summary, run := filepath.Join(dir, "roced.yaml"), filepath.Join(dir, "calls"), filepath.Join(dir, "run")
	lab.Must(t, os.WriteFile(config, fmt.Appendf(nil, `run_dir: %s
privileges: drop
nics:
  - {name: rxe_a, port: {type: udp, address: 127.0.0.1}}
  - {name: rxe_b, port: {type: tap, device: roce0}, addresses: [198.18.2.1/24]}
  - {name: rxe_c, port: {type: packet, interface: v0}}
  - {name: rxe_d, port: {type: xdp, interface: v1}}
`, run), 0o644))
	caps := "-all"
	for c := range strings.FieldsSeq(keys["CapabilityBoundingSet"]) {
		caps += ",+" + strings.ToLower(strings.TrimPrefix(c, "CAP_"))
	}
	daemon := lab.LaunchCmd(t, (*exec.Cmd).Start, exec.Command("unshare", "--net", "sh", "-ec", confined, "sh", caps, summary, lab.Program("roced"), config))
	rocectl := func(args ...string) *exec.Cmd {
		return exec.Command(lab.Program("rocectl"), append([]string{"--run-dir", run}, args...)...)
	}
	lab.Eventually(t, lab.Limit, "a daemon with four NICs", func() bool {
		out, err := rocectl("link").Output()
		return err == nil && strings.Count(string(out), "ACTIVE") == 4
	})
	meet := filepath.Join(dir, "oob")
	perf := []string{lab.Program("roceperf"), "write-bw", "-n", "16", "--verify", "--run-dir", run, "-d", "rxe_a", "--oob", "unix:" + meet}
	server := lab.Launch(t, (*exec.Cmd).Start, perf)
	lab.Must(t, server.Ready("it listens", func() (bool, error) { _, err := os.Stat(meet); return err == nil, nil }))
	client := lab.Launch(t, (*exec.Cmd).Start, append(perf, "peer"))
	lab.Must(t, client.Wait(lab.Limit))
	lab.Must(t, server.Wait(lab.Limit))
	if out, err := rocectl("down").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	lab.Must(t, daemon.Wait(lab.Limit))
	allowed := calls(t, keys["SystemCallFilter"])
	text, err := os.ReadFile(summary)
	lab.Must(t, err)
	made := regexp.MustCompile(`(?m)^ *[0-9].* ([a-z_0-9]+)$`).FindAllSubmatch(text, -1)
	for _, m := range made {
		if call := string(m[1]); call != "total" && !allowed[call] {
			t.Errorf("the unit forbids %s, which the daemon calls", call)
		}
	}
	if len(made) < 40 || len(allowed) < 200 {
		t.Errorf("%d system calls made, %d allowed", len(made), len(allowed))
	}
}
