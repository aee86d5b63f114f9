package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// TestCongestion sets the congestion mark on the packets of a running transfer. The peer notifies the sender. The
// sender's limit falls, and rises again when the marks end. Data stay intact.
func TestCongestion(t *testing.T) {
	lab.Long(t)
	rate := func(q *api.QP) uint64 { return q.Rate }
	window := func(q *api.QP) uint64 { return q.Window }
	// The rates are slow, so that a packet takes longer than the minimum interval between two CNPs, and the rate rises
	// more slowly than CNPs arrive.
	const dcqcn = "algorithm: dcqcn, line_rate_bps: 200e6, min_rate_bps: 20e6, t_us: 20000"
	for _, c := range []struct {
		name, yaml string
		options    netlab.LabOptions
		limit      func(*api.QP) uint64
		low, high  uint64
	}{
		{"dcqcn over AF_UNIX", dcqcn, onUnix, rate, 50e6, 200e6},
		{"dcqcn over TAP", dcqcn, onTAP, rate, 50e6, 200e6},
		{"dctcp over AF_UNIX", "algorithm: dctcp, max_cwnd_packets: 64, min_cwnd_packets: 2", onUnix, window, 4 * 4096, 64 * 4096},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.options
			o.Extra = "    congestion: {" + c.yaml + "}\n"
			l := newLab(t, o)
			if g := l.Link(0).Congestion; g == nil || !strings.Contains(c.yaml, "algorithm: "+g.Algorithm) || len(g.Params) < 2 {
				t.Errorf("link shows congestion control %+v", g)
			}
			server, client := l.moving("write-bw", "-s", "64k", "--verify")
			limit := func() uint64 {
				if q := l.queuePairs(0, client.PID()); len(q) == 1 {
					return c.limit(q[0].QP)
				}
				t.Fatalf("the client has ended\n%s", &client.Diag)
				return 0
			}
			lab.Eventually(t, soon, "no limit but the highest", func() bool { return limit() == c.high })
			l.congest(limit, c.low)
			lab.Eventually(t, soon, "the limit rises when the marks end", func() bool { return limit() == c.high })
			if !client.Running() || !server.Running() {
				t.Errorf("the transfer has ended\n%s\n%s", &client.Diag, &server.Diag)
			}
			client.Signal(os.Kill)
			server.Fails(soon)
		})
	}
}

// congest marks frames until the limit has fallen to low.
func (l *rig) congest(limit func() uint64, low uint64) {
	l.T.Helper()
	mine, peer := l.counters(0), l.counters(1)
	stop := l.capture(1)
	l.Run(0, "fault", "add", l.Host[0].Device, "tx ecn op=write")
	lab.Eventually(l.T, soon, "the limit falls", func() bool { return limit() <= low })
	l.Run(0, "fault", "clear", l.Host[0].Device)
	records := l.decoded(stop())
	l.atLeast(0, mine, counts{"rp_cnp_handled": 1})
	l.atLeast(1, peer, counts{"np_cnp_sent": 1, "np_ecn_marked_roce_packets": 2})
	for _, ecn := range []string{"ect0", "ce"} {
		if !slices.ContainsFunc(records, func(r record) bool { return r.ECN == ecn && strings.Contains(r.Opcode, "WRITE") }) {
			l.T.Errorf("no WRITE packet with ECN bits %s in the capture", ecn)
		}
	}
	cnp := func(r record) bool {
		return r.Opcode == "CNP" && r.DSCP == 48 && r.ECN == "not-ect" && r.ICRC == "ok"
	}
	if !slices.ContainsFunc(records, cnp) {
		l.T.Error("no CNP in the capture")
	}
}
