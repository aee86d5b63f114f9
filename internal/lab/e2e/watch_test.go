package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/watch"
)

// watchLink starts rocectl watch on an interface of host i. stop ends it and returns its last report, which covers all
// frames.
func (l *rig) watchLink(i int, name string) (stop func() *watch.Report) {
	l.T.Helper()
	p := l.Ctl(i, "watch", name, "--interval", "1h", "--json", "--sort", "age")
	lab.Eventually(l.T, lab.Limit, "rocectl watches", func() bool {
		return strings.Contains(p.Diag.String(), "watching") || !p.Running()
	})
	return func() *watch.Report {
		l.T.Helper()
		p.Signal(os.Interrupt)
		if code := p.Exit(lab.Limit); code != 0 {
			l.T.Fatalf("rocectl watch: exit code %d\n%s", code, &p.Diag)
		}
		var r watch.Report
		if err := json.Unmarshal([]byte(p.Out.String()), &r); err != nil {
			l.T.Fatalf("%v in\n%s", err, &p.Out)
		}
		if r.Lost != 0 || r.Totals.Malformed != 0 || r.Totals.Evicted != 0 {
			l.T.Errorf("lost %d, %+v", r.Lost, r.Totals)
		}
		return &r
	}
}

// asked returns the flows of the requester at an address, without those of the connection manager.
func asked(r *watch.Report, addr string) (out []watch.Row) {
	for _, f := range r.Flows {
		if f.Requester.Addr.String() == addr && (f.Responder.QPN == nil || *f.Responder.QPN != 1) && f.Requests.Packets > 0 {
			out = append(out, f)
		}
	}
	return out
}

// TestWatch watches transfers without faults at both ends of the path, with and without super-frames, and on
// both NICs of a switch. Messages, bytes and queue pairs match the transfer.
func TestWatch(t *testing.T) {
	lab.Long(t)
	for name, o := range map[string]netlab.LabOptions{"super-frames": onTAP, "frames": onFrames, "sockets": onUDP, "switch": onSwitch,
		"shards on sockets": onUDPShards} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, o)
			places := [2]string{l.Link(0).Device, netlab.Veth}
			if o.Switch {
				places = [2]string{l.Host[0].Device, l.Host[1].Device}
			}
			l.verify("write-bw -n 1") // address resolution completes before the test
			for _, c := range []struct {
				args, verb string
				qps        int
				size       uint64
				uncounted  uint64 // messages that roceperf does not count
			}{
				{"write-bw -s 64k -n 40", "RDMA_WRITE", 1, 64 << 10, 0},
				{"read-bw -s 64k -n 20 -q 4", "RDMA_READ", 4, 64 << 10, 0},
				{"send-bw -s 1000 -n 100 -q 3", "SEND", 3, 1000, 0},
				{"atomic-lat -n 50", "FETCH_ADD", 1, 0, 200},
				{"send-bw -c uc -s 8k -n 20", "SEND", 1, 8 << 10, 0},
				{"send-bw -c ud -s 1k -n 20", "SEND", 1, 1 << 10, 0},
			} {
				t.Run(c.args, func(t *testing.T) { l.at(t).watched(places, c.args, c.verb, c.qps, c.size, c.uncounted) })
			}
		})
	}
}

// watched runs roceperf and checks that the reports of both places have its messages and the uncounted ones.
func (l *rig) watched(places [2]string, args, verb string, qps int, size, uncounted uint64) {
	l.T.Helper()
	near, far := l.watchLink(0, places[0]), l.watchLink(1, places[1])
	before := l.counters(0)["retransmitted_packets"]
	l.verify(args + " -u 24") // tail loss probes come after a second: delay on a loaded machine causes none
	// A queue pair also sends a packet again if none of its outstanding ones requests an acknowledgement.
	probes := l.counters(0)["retransmitted_packets"] - before
	n := uint64(option(strings.Fields(args), "-n", 0)) + uncounted
	for i, r := range []*watch.Report{near(), far()} {
		flows := asked(r, l.Host[0].Addr)
		if len(flows) != qps {
			l.T.Errorf("place %d: %d requesters, want %d: %+v", i, len(flows), qps, r.Flows)
		}
		again := uint64(0)
		for _, f := range flows {
			got := map[string]uint64{}
			for _, o := range f.Operations {
				got[o.Verb] = o.Messages
			}
			if got[verb] != n || f.Messages != n || f.Bytes != n*size {
				l.T.Errorf("place %d: %v, %d bytes; want %d %s, %d bytes", i, f.Operations, f.Bytes, n, verb, n*size)
			}
			c := f.Requests.SequenceCounts
			if again += c.Retransmitted; c.Lost+c.Reordered+c.Duplicated+f.Responses.Lost != 0 {
				l.T.Errorf("place %d: faults that there were not: %+v, %+v", i, c, f.Responses)
			}
			if f.Transport == "RC" && (f.RTT.Samples == 0 || f.Requester.QPN == nil) {
				l.T.Errorf("place %d: no round-trip time, or nobody knows the requester: %+v", i, f)
			}
		}
		if again != probes {
			l.T.Errorf("place %d: %d packets were sent again, the NIC counts %d", i, again, probes)
		}
	}
}

// TestWatchLoad watches a transfer at full speed: each packet that the NICs have sent is either seen or counted as
// lost.
func TestWatchLoad(t *testing.T) {
	lab.Long(t)
	l := newLab(t, onTAP)
	l.verify("write-bw -n 1")
	p := l.Ctl(0, "watch", "tap_a", "--interval", "1h", "--json")
	lab.Eventually(t, lab.Limit, "rocectl watches", func() bool { return strings.Contains(p.Diag.String(), "watching") || !p.Running() })
	sent := func() uint64 { return l.counters(0)["sent_pkts"] + l.counters(1)["sent_pkts"] }
	before := sent()
	for _, args := range []string{"write-bw -s 64k -n 20000", "write-bw -s 64 -n 200000 -q 4", "read-bw -s 64k -n 10000"} {
		l.perf(strings.Fields(args)...)
	}
	n := sent() - before
	p.Signal(os.Interrupt)
	if code := p.Exit(lab.Limit); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &p.Diag)
	}
	var r watch.Report
	lab.Must(t, json.Unmarshal([]byte(p.Out.String()), &r))
	t.Logf("%d packets, %d of them lost", n, r.Lost)
	if r.Totals.Packets+r.Lost != n {
		t.Errorf("%d packets were sent, %d seen and %d lost", n, r.Totals.Packets, r.Lost)
	}
}

// watchFault is a NIC's rule and the expected relation of two views. The passive view is between the NICs; the other
// view is the NICs' own counters.
type watchFault struct {
	host   int // whose NIC has the rule
	rule   string
	args   string
	expect func(f *watch.Row, mine, peer counts) error
}

// equal compares pairs of a measured value and a counter or a number.
func equal(pairs ...any) error {
	for i := 0; i < len(pairs); i += 3 {
		if got, want := pairs[i+1].(uint64), pairs[i+2].(uint64); got != want {
			return fmt.Errorf("%s: seen %d, want %d", pairs[i], got, want)
		}
	}
	return nil
}

const oneWrite = "write-bw -s 64k -n 4 -Q 4"

var watchFaults = []watchFault{
	{0, "tx drop psn=+3 n=1", oneWrite, func(f *watch.Row, mine, peer counts) error {
		return equal("retransmitted", f.Requests.Retransmitted, mine["retransmitted_packets"],
			"recovered", f.Requests.Recovered, uint64(1), "lost", f.Requests.Lost, uint64(1),
			"missing", f.Requests.Missing, uint64(0), "NAKs", f.Responses.NAKs.PSNSequence, mine["packet_seq_err"])
	}},
	{0, "tx drop psn=+3 n=1,2", oneWrite, func(f *watch.Row, mine, peer counts) error {
		return equal("retransmitted", f.Requests.Retransmitted+1, mine["retransmitted_packets"], // one packet never passed here
			"recovered", f.Requests.Recovered, uint64(1), "lost", f.Requests.Lost, uint64(1))
	}},
	{1, "rx drop psn=+3 n=1,2", oneWrite, func(f *watch.Row, mine, peer counts) error {
		return equal("retransmitted", f.Requests.Retransmitted, mine["retransmitted_packets"],
			"recovered", f.Requests.Recovered, uint64(0), "lost", f.Requests.Lost, uint64(0),
			"NAKs", f.Responses.NAKs.PSNSequence, mine["packet_seq_err"])
	}},
	{1, "rx drop psn=+63 n=1", oneWrite, func(f *watch.Row, mine, peer counts) error {
		return equal("retransmitted", f.Requests.Retransmitted, mine["retransmitted_packets"], "lost", f.Requests.Lost, uint64(0))
	}},
	{0, "rx drop op=ack count=1", "write-bw -s 1k -n 64 -Q 1", func(f *watch.Row, mine, peer counts) error {
		return equal("retransmitted", f.Requests.Retransmitted, mine["retransmitted_packets"],
			"NAKs", f.Responses.NAKs.Total, uint64(0))
	}},
	{0, "tx ecn psn=+0..10 n=1", oneWrite, func(f *watch.Row, mine, peer counts) error {
		return equal("CE", f.Requests.CE, uint64(11), "CNPs", f.CNPs, peer["np_cnp_sent"], "retransmitted", f.Requests.Retransmitted, uint64(0))
	}},
	{0, "tx duplicate psn=+3 n=1", oneWrite, func(f *watch.Row, mine, peer counts) error {
		return equal("duplicated", f.Requests.Duplicated, uint64(1), "retransmitted", f.Requests.Retransmitted, uint64(0))
	}},
	{0, "tx reorder 3 10s psn=+3 n=1", oneWrite, func(f *watch.Row, mine, peer counts) error {
		// If the NAK arrives before the late packet, that packet looks like a retransmission.
		return equal("late and retransmitted", f.Requests.Reordered+f.Requests.Retransmitted, mine["retransmitted_packets"]+1,
			"degree", uint64(f.Requests.OutOfOrder.Max), uint64(3), "lost", f.Requests.Lost, uint64(1), "missing", f.Requests.Missing, uint64(0))
	}},
	{1, "tx drop psn=+3 op=readresp n=1", "read-bw -s 64k -n 4", func(f *watch.Row, mine, peer counts) error {
		return equal("recovered", f.Responses.Recovered, uint64(1), "lost", f.Responses.Lost, uint64(1),
			"missing", f.Responses.Missing, uint64(0), "READs again", f.Requests.Retransmitted, mine["retransmitted_packets"])
	}},
	{1, "rx drop p=0.02 seed=7 op=request", "write-bw -s 64k -n 40", func(f *watch.Row, mine, peer counts) error {
		return equal("retransmitted", f.Requests.Retransmitted, mine["retransmitted_packets"], "lost", f.Requests.Lost, uint64(0),
			"NAKs", f.Responses.NAKs.Total, mine["packet_seq_err"])
	}},
	{0, "tx drop p=0.02 seed=7 op=request", "write-bw -s 64k -n 40", func(f *watch.Row, mine, peer counts) error {
		return equal("NAKs", f.Responses.NAKs.Total, mine["packet_seq_err"], "missing", f.Requests.Missing, uint64(0),
			"reordered", f.Requests.Reordered, uint64(0))
	}},
}

// TestWatchFaults sets rules on one NIC. The passive view, on the link between the NICs, shows exactly the NICs' own
// counts.
func TestWatchFaults(t *testing.T) {
	lab.Long(t)
	l := newLab(t, onTAP)
	l.verify("write-bw -n 1")
	for _, c := range watchFaults {
		t.Run(fmt.Sprintf("%d/%s/%s", c.host, c.rule, c.args), func(t *testing.T) { l.at(t).watchFault(c) })
	}
}

func (l *rig) watchFault(c watchFault) {
	l.T.Helper()
	nic := l.Host[c.host].Device
	stop := l.watchLink(0, "tap_a")
	l.Run(c.host, "fault", "add", nic, c.rule)
	defer l.Run(c.host, "fault", "clear", nic)
	before := [2]counts{l.counters(0), l.counters(1)}
	l.verify(c.args)
	r := stop()
	var grown [2]counts
	for i := range grown {
		grown[i] = counts{}
		for name, n := range l.counters(i) {
			grown[i][name] = n - before[i][name]
		}
	}
	flows := asked(r, l.Host[0].Addr)
	if len(flows) != 1 {
		l.T.Fatalf("%d requesters, want one: %+v", len(flows), r.Flows)
	}
	f := &flows[0]
	if err := c.expect(f, grown[0], grown[1]); err != nil {
		l.T.Errorf("%v\nrequests %+v\nresponses %+v\nCNPs %d\nsender's counters %v\nreceiver's %v", err, f.Requests, f.Responses, f.CNPs,
			nonZero(grown[0]), nonZero(grown[1]))
	}
}

func nonZero(c counts) counts {
	out := counts{}
	for name, n := range c {
		if n != 0 {
			out[name] = n
		}
	}
	return out
}

// TestWatchCongestion marks packets of a sender with congestion control. The passive view counts the same marks and
// notifications as the NICs.
func TestWatchCongestion(t *testing.T) {
	lab.Long(t)
	o := onTAP
	o.Extra = "    congestion: {algorithm: dcqcn, line_rate_bps: 200e6, min_rate_bps: 20e6}\n"
	l := newLab(t, o)
	l.verify("write-bw -n 1")
	l.watchFault(watchFault{0, "tx ecn op=write", "write-bw -s 64k -n 40", func(f *watch.Row, mine, peer counts) error {
		if f.CNPs == 0 {
			return errors.New("no CNPs")
		}
		return equal("CE", f.Requests.CE, f.Requests.Packets, "marks", f.Requests.CE, peer["np_ecn_marked_roce_packets"],
			"CNPs", f.CNPs, peer["np_cnp_sent"], "handled", f.CNPs, mine["rp_cnp_handled"], "CNPs to the peer", f.SentCNPs, uint64(0))
	}})
}

// TestWatchCapture watches an interface and captures a NIC at the same time. The file gives the same report except
// times, and ICRCs, which only whole packets show.
func TestWatchCapture(t *testing.T) {
	lab.Long(t)
	l := newLab(t, onTAP)
	l.verify("write-bw -n 1")
	stop, live := l.capture(0), l.watchLink(0, "tap_a")
	l.Run(1, "fault", "add", l.Host[1].Device, "rx drop p=0.02 seed=3 op=request")
	for _, args := range []string{"write-bw -s 64k -n 20 -q 3", "send-bw -s 3k -n 30", "read-bw -s 9k -n 20"} {
		l.verify(args)
	}
	text := l.Run(0, "watch", stop(), "--json", "--sort", "age")
	var file watch.Report
	if err := json.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	seen := live()
	if len(seen.Flows) != len(file.Flows) || len(file.Flows) < 5 {
		t.Fatalf("%d flows live, %d in the file", len(seen.Flows), len(file.Flows))
	}
	bare := func(r watch.Row) watch.Row {
		r.Start, r.End, r.RTT, r.Rate, r.MessageRate = 0, 0, flow.RTT{}, 0, 0
		r.Serial = 0 // live processing hands over the records of the processors in turns
		return r
	}
	for i := range file.Flows {
		if d := cmp.Diff(bare(file.Flows[i]), bare(seen.Flows[i]), cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Errorf("flow %d (-file +live)\n%s", i, d)
		}
	}
}

// TestWatchErrors covers invalid arguments of watch.
func TestWatchErrors(t *testing.T) {
	for _, c := range []struct {
		code       int
		args, word string
	}{
		{2, "", "usage"},
		{2, "lo --interval 1us", "less than"},
		{2, "lo --count -1", "negative"},
		{2, "lo --qp abc", "not a number"},
		{2, "lo --qp 0x1000000", "at most 0xffffff"},
		{2, "lo --sort beauty", "rate, bytes"},
		{2, "lo --streams 1", "between"},
		{2, "x.pcap --netns blue", "interfaces"},
		{2, "x.pcap --once", "interfaces"},
		{1, "nosuch --once", "neither an interface of this network namespace nor a NIC"},
		{1, "lo --netns nosuch", "nosuch"},
		{1, "./nosuch.pcap", "no such file"},
		{1, "/proc/self/cmdline", "not a valid pcap"},
	} {
		code, out, diag := said(t, append([]string{"rocectl", "watch"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(diag, c.word) || code == 2 && out != "" {
			t.Errorf("watch %s: exit code %d, want %d; %q and\n%s", c.args, code, c.code, out, diag)
		}
		if err := lab.InWords(diag); err != nil {
			t.Error(err)
		}
	}
}

// TestWatchPrivileges watches as an unprivileged user with some capabilities. The message names a missing capability.
// While it watches, the program has no capability left.
func TestWatchPrivileges(t *testing.T) {
	lab.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become others")
	}
	lab.Must(t, os.Chmod(lab.Bin, 0o755))
	lab.Must(t, os.Chmod(filepath.Dir(lab.Bin), 0o755))
	start := func(have ...uintptr) *lab.Proc {
		return lab.Launch(t, func(c *exec.Cmd) error {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, AmbientCaps: have}
			return c.Start()
		}, []string{lab.Program("rocectl"), "watch", "lo", "--interval", "1h"})
	}
	start().Fails(lab.Limit, "CAP_NET_RAW, CAP_BPF")
	start(unix.CAP_BPF).Fails(lab.Limit, "missing CAP_NET_RAW:")
	start(unix.CAP_NET_RAW).Fails(lab.Limit, "missing CAP_BPF:")
	p := start(unix.CAP_NET_RAW, unix.CAP_BPF)
	lab.Eventually(t, lab.Limit, "rocectl watches", func() bool { return strings.Contains(p.Diag.String(), "watching") || !p.Running() })
	if !p.Running() {
		t.Fatalf("it has ended\n%s", &p.Diag)
	}
	lab.Eventually(t, soon, "it has no capabilities that it does not need any more", func() bool { return !privileged(t, p.PID()) })
	p.Signal(os.Interrupt)
	if code := p.Exit(lab.Limit); code != 0 {
		t.Errorf("exit code %d\n%s", code, &p.Diag)
	}
}
