package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/port"
)

func TestKernels(t *testing.T) {
	for release, lacks := range map[string]int{
		"6.18.44-fc": 0, "6.6.0": 0, "6.5.13-amd64": 1, "6.1.0-44-amd64": 2, "5.10.0": 2, "4.19.0-27-amd64": 3, "4.15.0": 4,
	} {
		status, found := judgeKernel(release)
		if n := strings.Count(found, "("); n != lacks || (status == OK) != (lacks == 0) {
			t.Errorf("%s: %s, %s", release, status, found)
		}
	}
	if status, _ := judgeKernel("none"); status != Limited {
		t.Error("a kernel of no known kind is", status)
	}
}

// TestNeeds checks that probes exist for all requirements, and that the basic uses determine the error.
func TestNeeds(t *testing.T) {
	r := Examine()
	for _, u := range uses {
		for _, need := range u.needs {
			if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Name == need }) {
				t.Errorf("nobody looks for %q", need)
			}
		}
	}
	for i := range r.Verdicts {
		r.Verdicts[i].Works, r.Verdicts[i].Lacks = true, nil
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	for i := range r.Verdicts {
		r.Verdicts[i].Works, r.Verdicts[i].Lacks = false, []string{"it"}
		if err := r.Err(); (err != nil) != uses[i].basic {
			t.Errorf("without %s: %v", uses[i].name, err)
		}
		r.Verdicts[i].Works = true
	}
}

// TestReceiveBuffer: the advice is that of a UDP port that drops frames, and only for users whom the limit affects.
func TestReceiveBuffer(t *testing.T) {
	for _, c := range []struct {
		limit int
		admin bool
		want  Status
	}{{4 << 20, false, Limited}, {4 << 20, true, OK}, {32 << 20, false, OK}} {
		f := judgeBuffer(c.limit, c.admin)
		if f.Status != c.want || (f.Do == port.RaiseReceiveBuffer) != (c.want == Limited) {
			t.Errorf("%d: %+v", c.limit, f)
		}
	}
}

// TestPortOfDaemon: the first port of ordinary users decides who can take the port of a daemon that is down.
func TestPortOfDaemon(t *testing.T) {
	for _, c := range []struct {
		first int
		root  bool
		want  Status
		says  string
	}{
		{1024, true, OK, "ip_unprivileged_port_start=4792"}, {1024, false, OK, "any user"},
		{4791, true, OK, "ip_unprivileged_port_start=4792"}, {4792, true, OK, "reserved"}, {4792, false, Limited, "may not bind"},
	} {
		if f := judgePort(c.first, c.root); f.Status != c.want || !strings.Contains(fmt.Sprintf("%+v", f), c.says) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
