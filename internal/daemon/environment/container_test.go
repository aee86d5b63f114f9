package environment

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestForContainer(t *testing.T) {
	vars := func(run, lib string) []Variable {
		return []Variable{{"LD_PRELOAD", lib}, {"ROCED_RUN_DIR", run}, {"ROCED_NIC", "b"}, {"SYSFS_PATH", run + "/nic/b"}, {"ROCED_EXPLAIN", "1"}, {"LD_LIBRARY_PATH", "/usr/lib/roced"}}
	}
	s, err := ForContainer(vars("/tmp/roced-1000", "/usr/lib/roced/libroced.so:/usr/lib/other.so"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--volume=/tmp/roced-1000:/run/roced:ro",
		"--volume=/usr/lib/roced/libroced.so:/opt/roced/libroced.so:ro",
		"--env=LD_PRELOAD=/opt/roced/libroced.so",
		"--env=ROCED_RUN_DIR=/run/roced",
		"--env=ROCED_NIC=b",
		"--env=SYSFS_PATH=/run/roced/nic/b",
		"--env=ROCED_EXPLAIN=1",
	}
	if d := cmp.Diff(want, s.Flags()); d != "" {
		t.Error(d)
	}
	for _, bad := range [][2]string{{"/run/it's a", "/l.so"}, {"/run/a,b", "/l.so"}, {"/run/roced", "/a b/l.so"}} {
		if _, err := ForContainer(vars(bad[0], bad[1])); err == nil || !strings.Contains(err.Error(), "cannot be mounted") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestPrepend(t *testing.T) {
	for others, want := range map[string]string{"": "/a", "/b:/c": "/a:/b:/c", "/a": "/a", ":/b:/a": "/a:/b"} {
		if got := prepend("/a", others); got != want {
			t.Errorf("%q: %q, want %q", others, got, want)
		}
	}
}
