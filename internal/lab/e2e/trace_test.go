package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/observe/trace"
)

// TestTrace records an MP-RDMA connection from its first packet to its end over a lossy link. The trace and the NIC's
// counters have the same number of retransmissions.
func TestTrace(t *testing.T) {
	lab.Long(t)
	for kind, o := range map[string]netlab.LabOptions{"unix": onUnix, "udp": onUDP, "switch": onSwitch, "shards": onShards} {
		o.Extra = "    profile: mp-rdma\n"
		t.Run(kind, func(t *testing.T) { newLab(t, o).traced() })
	}
}

// traced records a connection.
func (l *rig) traced() {
	t := l.T
	l.Run(0, "fault", "add", l.Host[0].Device, "both drop p=0.01 seed=5")
	file, csv, svg := filepath.Join(l.Dir, "t.json"), filepath.Join(l.Dir, "t.csv"), filepath.Join(l.Dir, "svg")
	before := l.counters(0)
	p := l.Ctl(0, "trace", l.Host[0].Device, "--next", "-w", file, "--csv", csv, "--svg", svg, "--json")
	ctx, cancel := context.WithTimeout(t.Context(), lab.Limit)
	defer cancel()
	lab.Must(t, netlab.WaitFile(ctx, file))
	l.verify("write-bw -s 64k -n 100 -q 1")
	if code := p.Exit(lab.Limit); code != 0 { // the queue pair has ended
		t.Fatalf("rocectl trace: exit code %d\n%s", code, &p.Diag)
	}
	after := l.counters(0)

	f, err := os.Open(file)
	lab.Must(t, err)
	defer f.Close()
	tr, err := trace.Read(f)
	lab.Must(t, err)
	events := map[string]int{}
	again := uint64(0)
	for _, r := range tr.Records {
		events[r.Event]++
		if r.Rtx {
			again++
		}
	}
	if n := after["retransmitted_packets"] - before["retransmitted_packets"]; again == 0 || again != n || tr.Lost != 0 {
		t.Errorf("%d packets were sent again, the NIC counts %d; %d events lost", again, n, tr.Lost)
	}
	if events["ack"] == 0 || events["limits"] < 2 || events["footprint"] == 0 || events["sent"] < 1600 {
		t.Errorf("events: %v", events)
	}
	var sum struct {
		Profile   string
		Pictures  []string
		SentAgain uint64 `json:"sent_again"`
	}
	lab.Must(t, json.Unmarshal([]byte(p.Out.String()), &sum))
	if sum.Profile != "mp-rdma" || sum.SentAgain != again || len(sum.Pictures) < 4 {
		t.Errorf("rocectl says %s", &p.Out)
	}
	lines, err := os.ReadFile(csv)
	if n := strings.Count(string(lines), "\n"); err != nil || n != len(tr.Records)+1 {
		t.Errorf("%d lines of CSV for %d events, %v", n, len(tr.Records), err)
	}
	again2 := lab.Query[map[string]any](l.Lab, 0, "trace", "draw", file, "--svg", svg)
	if again2["events"] != float64(len(tr.Records)) {
		t.Errorf("drawn again: %v", again2)
	}
}
