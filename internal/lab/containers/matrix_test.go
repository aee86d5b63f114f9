package containers

import (
	"slices"
	"strings"
	"testing"
)

// kinds are the kinds of memory, as testdata/kinds.c names them.
var kinds = []string{"heap", "stack", ".bss", "file", "SysV", "POSIX shm", "memfd", "hugetlb", "locked", "threads", "fork", "read-only"}

// check checks that all kinds of memory have been moved on both sides, and that the user has got the reason of the one
// registration that must fail.
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

// sample is the default part of the matrix. It has every value at least once, with the fewest rights.
var sample = []string{"one/root/unix", "one/user/packet", "siblings/user/unix", "siblings/root/packet", "host/root/tap", "host/user/unix",
	"pods/user/unix", "pods/user/tap", "one/user/udp", "pods/user/udp"}

// TestMatrix: for all placements of daemon and programs in containers, memory of every kind is moved and every byte is
// verified.
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
