package contact

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/doctor"
	"roced.io/roced/internal/lab"
)

// in runs a command in a mount namespace after a script has changed it.
func in(script string) []string {
	return []string{"unshare", "--mount", "sh", "-ec", script + `; exec "$@"`, "sh"}
}

// TestDoctor: doctor finds missing prerequisites, and names the remedy and the affected uses.
func TestDoctor(t *testing.T) {
	p := newPlace(t)
	missing := filepath.Join(p.dir, "no.so")
	lab.Must(t, os.WriteFile(missing, []byte("no library"), 0o644))
	taken := p.start("python3", "-c",
		`import socket,time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("0.0.0.0", 4791)); print("bound", flush=True); time.sleep(600)`)
	lab.Must(t, taken.Ready("the port is taken", func() (bool, error) { return strings.Contains(taken.Out.String(), "bound"), nil }))
	for _, c := range []struct {
		name, finding string
		wrap          []string
		status        doctor.Status
		do            string
		lost          []string // verdicts
		code          int
		here          bool // in the place, where the port is taken
	}{
		{name: "nothing", finding: "memfd", status: doctor.OK},
		{name: "no tun", finding: "tun", wrap: in("mount -t tmpfs none /dev/net"), status: doctor.Missing, do: "--device /dev/net/tun", lost: []string{"port tap", "namespaces"}},
		{name: "no rights", finding: "packet sockets", wrap: nobody, status: doctor.Missing, do: "CAP_NET_RAW", lost: []string{"port packet", "port tap", "port xdp", "interfaces"}},
		{name: "little shared memory", finding: "/dev/shm", wrap: in("mount -t tmpfs -o size=1m none /dev/shm"), status: doctor.Limited, do: "--shm-size"},
		{name: "little locked memory", finding: "memlock", wrap: []string{"prlimit", "--memlock=65536"}, status: doctor.Limited, do: "ulimit -l"},
		{name: "no rdma-core", finding: "rdma-core", wrap: in("mount -t tmpfs none /etc/libibverbs.d"), status: doctor.Missing, do: "ibverbs-providers", lost: []string{"exec"}, code: 1},
		{name: "no library", finding: "library", wrap: []string{"env", "ROCED_LIBRARY=/nothing.so"}, status: doctor.Missing, do: "make build", lost: []string{"exec"}, code: 1},
		{name: "a library that cannot be loaded", finding: "library", wrap: []string{"env", "ROCED_LIBRARY=" + missing}, status: doctor.Missing, do: "build it on this system", lost: []string{"exec"}, code: 1},
		{name: "port taken", finding: "udp port 4791", status: doctor.Missing, do: "ss -lunp", lost: []string{"port udp"}, code: 1, here: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := slices.Concat(c.wrap, []string{lab.Program("rocectl"), "doctor", "--json"})
			if c.here {
				args = slices.Concat(p.enter, args)
			}
			r, code := examine(t, args)
			i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Name == c.finding })
			if f := r.Findings[i]; f.Status != c.status || !strings.Contains(f.Do, c.do) {
				t.Errorf("%+v", f)
			}
			var lost []string
			for _, v := range r.Verdicts {
				if !v.Works {
					lost = append(lost, v.Name)
				}
			}
			if !slices.Equal(lost, c.lost) || code != c.code {
				t.Errorf("exit code %d; what does not work: %v, not %v", code, lost, c.lost)
			}
		})
	}
}

func examine(t *testing.T, args []string) (r doctor.Report, code int) {
	t.Helper()
	c := lab.Launch(t, (*exec.Cmd).Start, args)
	code = c.Exit(lab.Limit)
	if err := json.Unmarshal([]byte(c.Out.String()), &r); err != nil {
		t.Fatalf("%v\n%s", err, c.Said())
	}
	return r, code
}

// TestDoctorIsRight: the report on ports matches the result of opening them, with rights and without.
func TestDoctorIsRight(t *testing.T) {
	p := newPlace(t)
	lab.Must(t, p.start("ip", "link", "set", "v0", "mtu", "1500").Wait(lab.Limit))
	for user, wrap := range map[string][]string{"root": nil, "nobody": nobody} {
		dir := p.path(user)
		lab.Must(t, os.Mkdir(dir, 0o755))
		if wrap != nil {
			lab.Must(t, os.Chown(dir, 65534, 65534))
		}
		r, _ := examine(t, slices.Concat(p.enter, wrap, []string{lab.Program("rocectl"), "doctor", "--json"}))
		for _, port := range []string{"udp", "packet", "xdp"} {
			i := slices.IndexFunc(r.Verdicts, func(v doctor.Verdict) bool { return v.Name == "port "+port })
			rocectl := slices.Concat(wrap, []string{lab.Program("rocectl"), "--run-dir", filepath.Join(dir, port)})
			up := p.start(slices.Concat(rocectl, []string{"up", "v0", "--port", port})...)
			works := up.Exit(lab.Limit) == 0
			if works {
				lab.Must(t, p.start(append(rocectl, "down")...).Wait(lab.Limit))
			}
			if works != r.Verdicts[i].Works {
				t.Errorf("%s, %s: works: %t, the doctor says %t\n%s", user, port, works, r.Verdicts[i].Works, up.Said())
			}
		}
	}
}
