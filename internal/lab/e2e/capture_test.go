package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// captured are the runs to capture.
var captured = []string{
	"send-bw -s 64k -n 4", "write-bw -s 10000 -n 4", "read-bw -s 64k -n 4", "atomic-lat -n 5",
	"send-bw -c uc -s 64k -n 4", "write-bw -c uc -s 64k -n 4", "send-bw -c ud -s 1001 -n 4",
}

// TestCapture makes tshark and rocectl read the capture of a NIC.
func TestCapture(t *testing.T) {
	for name, o := range map[string]netlab.LabOptions{"tap": onTAP, "unix": onUnix, "udp": onUDP, "switch": onSwitch, "shards": onShards, "shards on sockets": onUDPShards} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, o)
			before := l.retransmitted()
			stop := [2]func() string{l.capture(0), l.capture(1)}
			for _, args := range captured {
				l.verify(args)
			}
			files := [2]string{stop[0](), stop[1]()}
			a, b := l.decoded(files[0]), l.decoded(files[1])
			sockets := o.Loopback || o.Shared[0] == "udp"
			checkRecords(t, a, sockets, l.retransmitted() > before)
			text, err := os.ReadFile(files[0])
			lab.Must(t, err)
			if marked := strings.Contains(string(text), "are reconstructed"); marked != sockets {
				t.Errorf("the file says that headers are reconstructed: %v", marked)
			}
			if len(a) != len(b) {
				t.Errorf("one NIC has seen %d frames, the other one %d", len(a), len(b))
			}
			t.Run("tshark", func(t *testing.T) { dissect(t, files[0], len(a)) })
		})
	}
}

// TestCaptureOnFullDisk: if the disk is full, the daemon logs the failure of the configured capture at once. The daemon
// and the NIC continue.
func TestCaptureOnFullDisk(t *testing.T) {
	lab.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small file system")
	}
	small := lab.Dir(t)
	lab.Must(t, unix.Mount("none", small, "tmpfs", 0, "size=64k"))
	defer func() { lab.Must(t, unix.Unmount(small, unix.MNT_DETACH)) }()
	l := newLab(t, onUnix)
	h := l.Host[0]
	text, err := os.ReadFile(h.Config)
	lab.Must(t, err)
	file := filepath.Join(small, "all.pcapng")
	lab.Must(t, os.WriteFile(h.Config, fmt.Appendf(text, "    capture: {file: %q}\n", file), 0o600))
	lab.Must(t, h.Stop(os.Interrupt))
	lab.Must(t, h.Start(lab.Bin))
	l.verify("write-bw -s 64k -n 8")
	lab.Eventually(t, lab.Limit, "a word about the full disk", func() bool {
		log, err := os.ReadFile(h.LogFile)
		return err == nil && strings.Contains(string(log), "nothing more is written") && strings.Contains(string(log), file) &&
			strings.Contains(string(log), "no space left on device")
	})
	l.verify("write-bw -s 64k -n 8")
	if err := h.Stop(os.Interrupt); err == nil {
		t.Error("the daemon ends as if the capture were whole")
	}
}

// overtaken is the comment of an acknowledgement that arrives after a later one. Receivers of a veth have a queue on
// each processor, so frames of a thread that migrates between processors can be reordered.
const overtaken = "stale acknowledgement"

// repeated are comments of legal frames after a retransmission. A busy machine can delay an acknowledgement until a timer
// of its peer fires.
var repeated = []string{overtaken, "duplicate", "out of order", "dropped: no such queue pair"}

// retransmitted returns how many packets both NICs have sent more than once.
func (l *rig) retransmitted() uint64 {
	l.T.Helper()
	return l.counters(0)["retransmitted_packets"] + l.counters(1)["retransmitted_packets"]
}

// checkRecords checks that frames are good, and that both directions and all kinds occur.
func checkRecords(t *testing.T, records []record, mayOvertake, mayRepeat bool) {
	t.Helper()
	dirs, services := map[string]int{}, map[string]int{}
	for _, r := range records {
		if r.Comment == overtaken && mayOvertake || mayRepeat && slices.Contains(repeated, r.Comment) {
			r.Comment = ""
		}
		dirs[r.Dir]++
		if r.ICRC != "ok" || r.Error != "" || r.Truncated || r.Comment != "" || r.Base == nil {
			t.Fatalf("not a good frame: %+v", r)
		}
		services[r.Opcode[:2]]++
	}
	if dirs["in"] == 0 || dirs["out"] == 0 {
		t.Errorf("directions: %v", dirs)
	}
	if services["RC"] == 0 || services["UC"] == 0 || services["UD"] == 0 {
		t.Errorf("services: %v", services)
	}
}

// dissect makes tshark read a capture of n RoCE frames.
func dissect(t *testing.T, file string, n int) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("tshark is not installed")
	}
	var diag strings.Builder
	c := exec.Command(tshark, "-r", file, "--disable-protocol", "rpcordma", "-T", "fields", "-E", "separator=|",
		"-e", "frame.number", "-e", "udp.dstport", "-e", "_ws.col.Protocol", "-e", "frame.protocols", "-e", "_ws.malformed")
	c.Stderr = &diag
	out, err := c.Output()
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, &diag)
	}
	roce := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 5 {
			t.Fatalf("tshark says %q", line)
		}
		if f[4] != "" || strings.Contains(f[3], "_ws.malformed") {
			t.Fatalf("malformed: %s", line)
		}
		if f[1] != "4791" {
			continue
		}
		roce++
		if f[2] != "RRoCE" || !strings.Contains(f[3], "infiniband") {
			t.Fatalf("not dissected as RoCE: %s", line)
		}
	}
	if roce != n {
		t.Errorf("tshark knows %d frames, rocectl decode %d", roce, n)
	}
}
