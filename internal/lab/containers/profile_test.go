package containers

import (
	"os"
	"strings"
	"testing"
)

// TestProfiles: the containers of these tests have the intended rights. Docker's capabilities are 0xa80425fb
// everywhere.
func TestProfiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		rights rights
		want   []string
	}{
		{"docker", docker(0), []string{"CapEff:\t00000000a80425fb", "CapBnd:\t00000000a80425fb", "NoNewPrivs:\t0", "Seccomp:\t2"}},
		{"docker --user", docker(daemonUser), []string{"Uid:\t1001\t1001", "CapEff:\t0000000000000000", "Seccomp:\t2"}},
		{"docker --cap-add", docker(0, "CAP_NET_ADMIN"), []string{"CapEff:\t00000000a80435fb"}},
		{"restricted", restricted(podUser), []string{"Uid:\t2002\t2002", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000",
			"NoNewPrivs:\t1", "Seccomp:\t2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			log, err := os.Create(dir + "/log")
			must(t, err)
			defer log.Close()
			at := setup{rights: c.rights, dir: dir, memory: 64 << 20}
			k := at.start(t, log, "sleep", "1000")
			o := k.run(c.rights, nil, "cat", "/proc/self/status", "/proc/self/limits")
			for _, want := range append(c.want, "Max locked memory         65536") {
				if !strings.Contains(o.out, want) {
					t.Errorf("no %q in\n%s%s", want, o.out, o.diag)
				}
			}
			for _, forbidden := range []string{"unshare -U true", "test -w /", "test -w /usr", "head -c 100m /dev/zero | tail"} {
				if o := k.run(c.rights, nil, "sh", "-ec", forbidden); o.err == nil {
					t.Errorf("%s succeeds", forbidden)
				}
			}
		})
	}
}
