package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/netlab"
	"roced.io/roced/internal/test/lab"
	"roced.io/roced/qp/profile"
)

// transfers cover every operation.
var transfers = []string{
	"write-bw -s 16k -n 60", "send-bw -s 5k -n 60 -q 4", "read-bw -s 16k -n 30", "atomic-lat -n 40", "send-lat -s 64 -n 40",
}

// TestTransports moves and verifies data by every extended transport, with and without losses. Wireshark dissects the
// frames.
func TestTransports(t *testing.T) {
	for _, name := range profile.Names()[1:] {
		for kind, o := range map[string]netlab.LabOptions{"": onUnix, " on sockets": onUDP} {
			o.Extra = "    profile: " + name + "\n"
			t.Run(name+kind, func(t *testing.T) {
				t.Parallel()
				newLab(t, o).extended(t, name)
			})
		}
	}
}

// extended moves data by an extended transport.
func (l *rig) extended(t *testing.T, name string) {
	stop := l.capture(0)
	for _, args := range transfers {
		l.verify(args + patience)
	}
	file := stop()
	for _, r := range l.decoded(file) {
		if r.ICRC != "ok" || r.Error != "" || r.Extended == nil || r.Extended.Profile != name {
			t.Fatalf("not a frame of %s: %+v", name, r)
		}
	}
	dissectExtended(t, file)
	l.Run(0, "fault", "add", l.Host[0].Device, "both drop p=0.01 seed=5")
	for _, args := range transfers {
		l.verify(args + patience)
	}
	rules := lab.Query[[]api.FaultRule](l.Lab, 0, "fault", "list", l.Host[0].Device)
	if len(rules) != 1 || rules[0].Hit == 0 {
		t.Errorf("nothing was lost: %+v", rules)
	}
}

// dissectExtended makes Wireshark, with our dissector, read a capture: no frame is malformed, and every ICRC is good.
func dissectExtended(t *testing.T, file string) {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("tshark is not installed")
	}
	for filter, none := range map[string]bool{
		`_ws.malformed or roced.malformed or roced.icrc == "bad"`: true, `roced.profile and roced.icrc == "good"`: false,
	} {
		out, err := netlab.Tshark("../../../configs/wireshark/roced.lua", "-r", file, "-Y", filter).Output()
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(out), "\n"); n != 0 == none {
			t.Errorf("%d frames are %s", n, filter)
		}
	}
}
