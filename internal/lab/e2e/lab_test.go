package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/perf"
	"roced.io/roced/internal/observe/decode"
)

func TestMain(m *testing.M) {
	if os.Getenv(confinedBy) != "" {
		fmt.Fprintln(os.Stderr, becomeConfined())
		os.Exit(1)
	}
	lab.Main(m, nil)
}

// rig is a lab with the helpers of this package.
type rig struct {
	*lab.Lab
	captures *int // so far
}

// Kinds of links, by name.
var (
	onTAP    = netlab.LabOptions{}
	onFrames = netlab.LabOptions{NoOffload: true}
	onUnix   = netlab.LabOptions{Unix: true}
	onSwitch = netlab.LabOptions{Unix: true, Switch: true}
	onShards = netlab.LabOptions{Unix: true, Switch: true, Shards: true}
	// onUDPShards is a switch whose NICs have ports on loopback addresses and a shard each.
	onUDPShards = netlab.LabOptions{Loopback: true, Switch: true, Shards: true}
	onUDP       = netlab.LabOptions{Shared: [2]string{"udp", "udp"}}
)

func newLab(t testing.TB, o netlab.LabOptions) *rig { return &rig{lab.New(t, o), new(int)} }

// at returns a rig that reports its failures to another test.
func (l *rig) at(t testing.TB) *rig { return &rig{l.At(t), l.captures} }

// counters returns the counters of host i.
func (l *rig) counters(i int) map[string]uint64 {
	l.T.Helper()
	all := lab.Query[[]api.Stat](l.Lab, i, "stat")
	return all[slices.IndexFunc(all, func(s api.Stat) bool { return s.NIC == l.Host[i].Device })].Counters
}

// queuePairs lists the queue pairs of host i that belong to a process.
func (l *rig) queuePairs(i, pid int) []api.Resource {
	l.T.Helper()
	all := lab.Query[[]api.Resource](l.Lab, i, "res", "show", "qp")
	return slices.DeleteFunc(all, func(r api.Resource) bool { return int(r.PID) != pid })
}

// pair starts both sides of a roceperf run with the same options. The client starts when the server listens.
func (l *rig) pair(args ...string) (server, client *lab.Proc) {
	l.T.Helper()
	oob, err := os.MkdirTemp(l.Dir, "o")
	lab.Must(l.T, err)
	sock := filepath.Join(oob, "s")
	args = append([]string{lab.Program("roceperf")}, append(slices.Clone(args), "--oob", "unix:"+sock)...)
	side := func(i int) []string {
		own := slices.Clone(args)
		if at := slices.Index(own, ipv6); at >= 0 {
			own[at] = strconv.Itoa(l.gid(i, fmt.Sprintf("fd00::%d", i+1)))
		}
		return append(own, "--run-dir", l.Host[i].RunDir, "-d", l.Host[i].Device)
	}
	server = l.Start(1, side(1)...)
	lab.Must(l.T, server.Ready("it listens", func() (bool, error) { return pathExists(sock), nil }))
	return server, l.Start(0, append(side(0), "--json", "peer")...)
}

// perf runs roceperf between the hosts, which must succeed.
func (l *rig) perf(args ...string) (r perf.Result) {
	l.T.Helper()
	server, client := l.pair(args...)
	code, scode := client.Exit(lab.Limit), -1
	if code == 0 { // otherwise the server may wait for a client without end, and the test shows no reason
		scode = server.Exit(lab.Limit)
	}
	if scode != 0 {
		l.T.Fatalf("roceperf %s: exit codes %d and %d\nclient: %s\nserver: %s", strings.Join(args, " "), code, scode,
			&client.Diag, &server.Diag)
	}
	if err := json.Unmarshal([]byte(client.Out.String()), &r); err != nil {
		l.T.Fatalf("roceperf %v: %v in\n%s", args, err, &client.Out)
	}
	return r
}

// capture starts a capture on host i. stop ends it and returns its file.
func (l *rig) capture(i int) (stop func() string) {
	l.T.Helper()
	*l.captures++
	file := filepath.Join(l.Dir, fmt.Sprintf("capture%d-%d.pcapng", i, *l.captures))
	p := l.Ctl(i, "capture", l.Host[i].Device, "-w", file)
	ctx, cancel := context.WithTimeout(context.Background(), lab.Limit)
	defer cancel()
	lab.Must(l.T, netlab.WaitFile(ctx, file))
	return func() string {
		l.T.Helper()
		p.Signal(os.Interrupt)
		if code := p.Exit(lab.Limit); code != 0 {
			l.T.Fatalf("rocectl capture: exit code %d\n%s", code, &p.Diag)
		}
		return file
	}
}

// decoded returns the frames of a capture.
func (l *rig) decoded(file string) []record {
	l.T.Helper()
	return parseRecords(l.T, l.Run(0, "decode", file, "--json"))
}

// record is a line of JSON of rocectl decode.
type record struct {
	decode.Record
	Syndrome *uint8
	MSN      uint32
	Ext      *struct {
		Profile       string
		ReTx, Refused bool
		SACK          *uint32
		Holes         []decode.Hole
	}
	MRC *struct {
		Op       *uint8
		PortMask *uint32 `json:"port_mask"`
	}
}

func parseRecords(t testing.TB, text string) (out []record) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		out = append(out, r)
	}
	return out
}
