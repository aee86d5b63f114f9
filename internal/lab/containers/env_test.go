package containers

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// programsDir is the container's folder for the test program, outside the mounts of "rocectl env --container".
const programsDir = "/opt/programs"

// TestEnvContainer: the output of "rocectl env --container" is sufficient for a container, for any location of the
// daemon's run directory and the library outside.
func TestEnvContainer(t *testing.T) {
	l := newLab(t, &cell{place: "host", user: daemonUser, port: "unix"})
	daemon, client := l.cell.rights()
	for i := range l.side {
		l.side[i] = l.prepare(i)
		l.onHost(i, l.side[i], daemon)
	}
	var res [2]outcome
	var wg sync.WaitGroup
	for i, s := range l.side {
		must(t, s.answers())
		binds, env := s.envContainer()
		binds[meetDir], binds[programsDir] = filepath.Join(l.dir, "meet"), bin
		at := setup{rights: client, readOnly: true, binds: binds, dir: s.dir}
		s.client = at.start(t, s.log, "sleep", "1000")
		role := [2]string{"listen", "connect"}[i]
		wg.Go(func() { res[i] = s.client.run(client, env, programsDir+"/kinds", role, meetDir+"/socket", "/tmp") })
	}
	wg.Wait()
	l.check(res)
}

// envContainer returns the output of "rocectl env --container" for a daemon on the host, as docker run understands it:
// mounts, by path inside, and variables.
func (s *side) envContainer() (binds map[string]string, env []string) {
	s.t.Helper()
	out, err := exec.Command(filepath.Join(bin, "rocectl"), "--run-dir", s.path("run/daemon"), "env", "--container").Output()
	must(s.t, err)
	binds = map[string]string{}
	for _, flag := range strings.Fields(string(out)) {
		if v, ok := strings.CutPrefix(flag, "--env="); ok {
			env = append(env, v)
			continue
		}
		v, ok := strings.CutPrefix(flag, "--volume=")
		place := strings.Split(v, ":")
		if !ok || len(place) != 3 || place[2] != "ro" {
			s.t.Fatalf("docker run does not know %q", flag)
		}
		binds[place[1]] = place[0]
	}
	return binds, env
}
