package containers

import (
	"slices"
	"strings"
	"testing"
)

// kinds are the kinds of memory, as testdata/kinds.c calls them.
var kinds = []string{"heap", "stack", ".bss", "file", "SysV", "POSIX shm", "memfd", "hugetlb", "locked", "threads", "fork", "read-only"}

// check makes sure that all kinds of memory have been moved, on both sides, and that the
// user has been told why one registration has failed, which was to fail.
func (l *lab) check(res [2]outcome) {
	l.t.Helper()
	for i, r := range res {
		got := strings.Split(strings.TrimSpace(r.out), "\n")
		for k, line := range got {
			if line == "hugetlb (none here)" {
				l.t.Log("no huge pages")
				got[k] = "hugetlb"
			}
		}
		if r.err != nil || !slices.Equal(got, kinds) || !strings.Contains(r.diag, "may not be written by its own program") {
			l.t.Errorf("side %d: %v\n%s%s\n%s", i, r.err, r.out, r.diag, l.side[i].said())
		}
	}
}

// sample is what is run of the matrix by default: everything once at least, with the
// rights that are fewest.
var sample = []string{"one/root/unix", "one/user/packet", "siblings/user/unix", "siblings/root/packet", "host/root/tap", "host/user/unix",
	"pods/user/unix", "pods/user/tap", "one/user/udp", "pods/user/udp"}

// TestMatrix: in whatever containers daemon and programs are, memory of every kind is moved
// and every byte verified.
func TestMatrix(t *testing.T) {
	for _, place := range []string{"one", "siblings", "host", "pods"} {
		for _, user := range []int{0, daemonUser} {
			for _, port := range []string{"unix", "udp", "packet", "tap"} {
				c := &cell{place: place, user: user, port: port}
				t.Run(c.String(), func(t *testing.T) {
					if !*all && !slices.Contains(sample, c.String()) {
						t.Skip("not in the sample")
					}
					l := newLab(t, c)
					l.startBoth()
					l.check(l.transfer())
				})
			}
		}
	}
}
