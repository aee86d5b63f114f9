package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/qp/profile"
)

// transfers cover every operation.
var transfers = []string{
	"write-bw -s 16k -n 60", "send-bw -s 5k -n 60 -q 4", "read-bw -s 16k -n 30", "atomic-lat -n 40", "send-lat -s 64 -n 40",
}

// TestTransports moves and verifies data by every extended transport, with and without losses. Wireshark dissects the
// frames.
func TestTransports(t *testing.T) {
	for _, name := range profile.Complete()[1:] {
		for kind, o := range map[string]netlab.LabOptions{"": onUnix, " on sockets": onUDP, " on a switch": onSwitch} {
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
		l.verify(args + longTimeout)
	}
	file := stop()
	for _, r := range l.decoded(file) {
		if r.ICRC != "ok" || r.Error != "" || r.Ext == nil || r.Ext.Profile != name {
			t.Fatalf("not a frame of %s: %+v", name, r)
		}
	}
	dissectFields(t, file, "roced.profile")
	l.Run(0, "fault", "add", l.Host[0].Device, "both drop p=0.01 seed=5")
	for _, args := range transfers {
		l.verify(args + longTimeout)
	}
	rules := lab.Query[[]api.FaultRule](l.Lab, 0, "fault", "list", l.Host[0].Device)
	if len(rules) != 1 || rules[0].Hit == 0 {
		t.Errorf("nothing was lost: %+v", rules)
	}
}

// dissectFields makes Wireshark, with our dissector, read a capture: no frame is malformed, every ICRC is good, and some frames have
// the field.
func dissectFields(t *testing.T, file, field string) {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("tshark is not installed")
	}
	for filter, none := range map[string]bool{
		`_ws.malformed or roced.malformed or roced.icrc == "bad"`: true, field + ` and roced.icrc == "good"`: false,
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

// TestMRC moves and verifies data by MRC, with and without losses. Wireshark dissects the frames. Other operations are
// refused, and the device does not offer them.
func TestMRC(t *testing.T) {
	packets := netlab.LabOptions{Shared: [2]string{"packet", "packet"}}
	for kind, o := range map[string]netlab.LabOptions{"frames": onUnix, "sockets": onUDP, "switch": onSwitch, "frames to 4971": onUnix,
		"sockets to 4971": onUDP, "packets to 4971": packets} {
		o.Extra = "    profile: mrc\n"
		port := bth.UDPPort
		if strings.HasSuffix(kind, " to 4971") {
			port = bth.MRCUDPPort
			o.Extra += fmt.Sprintf("    mrc_udp_port: %d\n", port)
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			newLab(t, o).mrc(t, port)
		})
	}
}

func (l *rig) mrc(t *testing.T, port int) {
	transfers := []string{"write-bw -s 64k -n 60", "write-bw -s 5k -n 60 -q 4", "write-lat -s 64 -n 40"}
	stop := l.capture(0)
	for _, args := range transfers {
		l.verify(args + longTimeout)
	}
	file := stop()
	seen := map[string]int{}
	for _, r := range l.decoded(file) {
		if r.ICRC != "ok" || r.Error != "" || r.MRC == nil {
			t.Fatalf("not a frame of MRC: %+v", r)
		}
		seen[r.Opcode]++
	}
	if seen["MRC_SACK"] == 0 || seen["MRC_ACKNOWLEDGE"] == 0 || seen["MRC_RDMA_WRITE_MIDDLE"] == 0 {
		t.Errorf("%v", seen)
	}
	dissectFields(t, file, fmt.Sprintf("roced.mrc.msn and udp.dstport == %d", port))
	l.Run(0, "fault", "add", l.Host[0].Device, "both drop p=0.01 seed=5")
	for _, args := range transfers {
		l.verify(args + longTimeout)
	}
	rules := lab.Query[[]api.FaultRule](l.Lab, 0, "fault", "list", l.Host[0].Device)
	if len(rules) != 1 || rules[0].Hit == 0 {
		t.Errorf("nothing was lost: %+v", rules)
	}
}
