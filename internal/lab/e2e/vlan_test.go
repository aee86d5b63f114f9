package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// TestVLAN moves data between addresses in a VLAN, by queue pairs that connect over a socket and by rdma_cm. The link
// carries these frames only with their tag, and other frames without.
func TestVLAN(t *testing.T) {
	const vlan = 10
	for name, o := range map[string]netlab.LabOptions{"tap": {VLAN: vlan}, "single frames": {VLAN: vlan, NoOffload: true}, "unix": {VLAN: vlan, Unix: true}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, o)
			for _, c := range []struct {
				addr string
				tags []uint16
			}{{"198.19.0.%d", []uint16{vlan}}, {"fd19::%d", []uint16{vlan}}, {"198.18.0.%d", nil}} {
				l.inVLAN(fmt.Sprintf(c.addr, 1), fmt.Sprintf(c.addr, 2), c.tags)
			}
		})
	}
}

// inVLAN moves data from one address to another. All sent frames have the tags.
func (l *rig) inVLAN(from, to string, tags []uint16) {
	l.T.Helper()
	index := l.gid(0, from)
	if index < 0 || l.gid(1, to) != index {
		l.T.Fatalf("GIDs %v and %v", l.Link(0).GIDs, l.Link(1).GIDs)
	}
	stop := l.capture(0)
	for _, args := range []string{"write-bw -s 64k -n 8", "read-bw -s 64k -n 8", "send-bw -c ud -s 1k -n 8"} {
		l.verify(fmt.Sprintf("%s --gid-index %d", args, index))
	}
	l.rping(to)
	services, cm := map[string]bool{}, false
	for _, r := range l.decoded(stop()) {
		if r.Error != "" || r.Base == nil {
			l.T.Fatalf("not a good frame: %+v", r)
		}
		services[r.Opcode[:2]] = true
		cm = cm || r.QPN == 1
		if !slices.Equal(r.VLAN, tags) {
			l.T.Errorf("tags %v of %+v", r.VLAN, r)
		}
	}
	if !services["RC"] || !services["UD"] || !cm && rpingPath() != "" {
		l.T.Errorf("%s: services %v, rdma_cm %v", from, services, cm)
	}
}

// rpingPath returns the path of librdmacm's rping, empty if it is not installed.
func rpingPath() string {
	path, err := exec.LookPath("rping")
	if err != nil {
		return ""
	}
	return path
}

// rping connects by rdma_cm to an address of host 1 and compares the echoed data.
func (l *rig) rping(to string) {
	l.T.Helper()
	if rpingPath() == "" {
		if os.Getenv("CI") == "true" {
			l.T.Error("rping is not installed")
		}
		return
	}
	for try := 1; ; try++ {
		server := l.Exec(1, "rping", "-s", "-a", to, "-C", "5", "-V")
		lab.Must(l.T, l.ListensCM(1, server, func(api.Resource) bool { return true }))
		client := l.Exec(0, "rping", "-c", "-a", to, "-C", "5", "-V")
		err := client.Wait(lab.Limit)
		lab.Must(l.T, server.Wait(lab.Limit))
		if err == nil || try == 20 || !strings.Contains(client.Said(), lab.LateRping) {
			lab.Must(l.T, err)
			return
		}
	}
}
