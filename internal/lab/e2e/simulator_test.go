package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/observe/decode"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// told is a run of roceperf with one message in flight at a time, and rules of both ends. The sequence of packets at
// each end must not depend on timing. The daemons therefore send a message in one turn, so that it leaves whole before
// any reply. The simulated link and the timeouts are long.
type told struct {
	verb  workload.Verb
	bytes uint32
	rules []string
	// long messages have several packets. A daemon that finds several packets in its port acknowledges them in one
	// packet, so the test compares only the packets of the sender.
	long bool
}

const toldMessages = 8

var tolds = []told{
	{workload.Write, 1000, nil, false},
	{workload.Write, 1000, []string{"tx drop op=write psn=+2 n=1", "tx drop op=write psn=+5 n=1,2"}, false},
	{workload.Write, 1000, []string{"tx drop op=ack psn=+3 n=1"}, false},
	{workload.Send, 700, []string{"tx drop op=send psn=+1 n=1", "tx drop op=ack psn=+4..5 n=1"}, false},
	{workload.Read, 500, []string{"tx drop op=read psn=+2 n=1", "tx drop op=readresp psn=+4 n=1"}, false},
	{workload.Write, 8000, []string{"tx drop op=write psn=+3 n=1"}, true},
	{workload.Write, 8000, []string{"tx drop op=write psn=+2..4 n=1", "tx drop op=write psn=+31 n=1"}, true},
	{workload.Write, 8000, []string{"tx drop op=write psn=+10 n=1,2"}, true},
	{workload.Send, 8000, []string{"tx drop op=send psn=+9..14 n=1"}, true},
}

// longTimeouts are timeouts that even a loaded machine meets, for the profiles with their own timeouts.
var longTimeouts = map[string]map[string]float64{
	"rc": {}, "irn": {"rto_low_us": 250_000, "rto_high_us": 250_000}, "melo": {"rto_us": 250_000}, "eunomia": {"rto_us": 250_000},
}

// 4.096 us * 2^20: 4.3 s. Tail loss probes wait for a 64th of it: 67 ms, which even a loaded machine meets.
const toldTimeout = 20

// TestSimulatorTellsTheWire: two daemons in two namespaces and the simulator produce the same packets. With exact
// faults, the transmissions, retransmissions and acknowledgements match line by line at each end.
func TestSimulatorTellsTheWire(t *testing.T) {
	lab.Long(t)
	for _, name := range profile.Complete() {
		if name == "mp-rdma" { // its acknowledgements clock out copies of the data in flight (3.5), so the result depends on timing
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recovery, err := json.Marshal(longTimeouts[name]) // JSON is YAML, too
			lab.Must(t, err)
			l := newLab(t, netlab.LabOptions{NoOffload: true, Extra: fmt.Sprintf("    profile: %s\n    transports: {%s: {recovery: %s}}\n", name, name, recovery)})
			l.verify("write-bw -n 1") // address resolution completes before the test
			for _, c := range tolds {
				t.Run(fmt.Sprint(c), func(t *testing.T) {
					wire, simulated := l.at(t).speaks(c), simulate(t, name, c)
					sameLines(t, "the client", wire[0], simulated[0])
					if !c.long {
						sameLines(t, "the server", wire[1], simulated[1])
					}
				})
			}
		})
	}
}

var verbs = [...]string{workload.Write: "write", workload.Send: "send", workload.Read: "read"}

// speaks returns the packets that each daemon sends.
func (l *rig) speaks(c told) (lines [2][]string) {
	l.T.Helper()
	var stop [2]func() string
	for i := range stop {
		if nic := l.Host[i].Device; len(c.rules) > 0 {
			l.Run(i, append([]string{"fault", "add", nic}, c.rules...)...)
			defer l.Run(i, "fault", "clear", nic)
		}
		stop[i] = l.capture(i)
	}
	l.perf(verbs[c.verb]+"-bw", "-s", fmt.Sprint(c.bytes), "-n", fmt.Sprint(toldMessages), "-t", "1", "-Q", "1", "-m", "1024", "-u", fmt.Sprint(toldTimeout))
	for i := range stop {
		file, err := os.ReadFile(stop[i]())
		lab.Must(l.T, err)
		lines[i] = spoken(l.T, file)
	}
	return lines
}

// spoken describes the outgoing packets of a capture, one per line.
func spoken(t testing.TB, file []byte) (lines []string) {
	t.Helper()
	var text strings.Builder
	_, err := decode.Stream(bytes.NewReader(file), &text, decode.Options{JSON: true})
	lab.Must(t, err)
	first := map[string]uint32{} // first PSN of each kind
	for _, r := range parseRecords(t, text.String()) {
		if r.Dir == "in" {
			continue
		}
		if _, ok := first[kind(r.Opcode)]; !ok {
			first[kind(r.Opcode)] = r.PSN
		}
		since := func(psn uint32) uint32 { return (psn - first[kind(r.Opcode)]) & (1<<24 - 1) }
		line := fmt.Sprintf("%s psn +%d, asks %v", r.Opcode, since(r.PSN), r.AckReq)
		if r.Payload != nil {
			line += fmt.Sprintf(", %d bytes", *r.Payload)
		}
		if r.Syndrome != nil {
			line += fmt.Sprintf(", syndrome %#x, MSN %d", *r.Syndrome>>5, r.MSN)
		}
		if e := r.Ext; e != nil {
			line += fmt.Sprintf(", again %v, refused %v", e.ReTx, e.Refused)
			if e.SACK != nil {
				line += fmt.Sprintf(", SACK +%d", since(*e.SACK))
			}
			for _, h := range e.Holes {
				line += fmt.Sprintf(", hole of %d at +%d", h.Len, since(h.Start))
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// kind returns the key by which PSNs are counted.
func kind(opcode string) string {
	for _, k := range []string{"ACK", "RESPONSE"} {
		if strings.Contains(strings.ToUpper(opcode), k) {
			return k
		}
	}
	return "request"
}

// oneByOne posts a message after the previous one has completed.
type oneByOne struct {
	flow workload.Flow
	left int
}

func (o *oneByOne) Begin(_ engine.Time, r *workload.Runner) {
	if o.left--; o.left >= 0 {
		o.flow.App = o
		r.Send(o.flow)
	}
}

func (o *oneByOne) Done(now engine.Time, r *workload.Runner, _ *workload.Flow) { o.Begin(now, r) }

func (o *oneByOne) Delivered(engine.Time, *workload.Runner, *workload.Flow) {}

// simulate is speaks in the simulator.
func simulate(t *testing.T, name string, c told) (lines [2][]string) {
	t.Helper()
	o := &oneByOne{flow: workload.Flow{Src: 0, Dst: 1, Bytes: c.bytes, Verb: c.verb}, left: toldMessages}
	if c.verb == workload.Read { // the destination posts it
		o.flow.Src, o.flow.Dst = 1, 0
	}
	s, err := sim.New(sim.Config{Graph: fabric.Pair(fabric.Wires{HostRate: 10e9, Delay: 100 * engine.Microsecond}, false), Profile: name,
		Spec: profile.Spec{Recovery: profile.Part{Params: longTimeouts[name]}}, MTU: 1024, Persistent: true, Apps: []workload.App{o}, Check: true,
		QP:     nic.QPConfig{MaxUnacked: 256, Timeout: toldTimeout, FirstPSN: 1<<24 - 10, Tuning: qp.Software},
		Faults: map[string][]string{"h0-h1": c.rules, "h1-h0": c.rules}})
	lab.Must(t, err)
	var files [2]bytes.Buffer
	var failed [2]func() error
	for i, link := range []string{"h0-h1", "h1-h0"} {
		links, err := s.Cluster().Network().Named(link)
		lab.Must(t, err)
		failed[i], err = s.CaptureTo(&files[i], links...)
		lab.Must(t, err)
	}
	_, err = s.Run()
	lab.Must(t, err)
	for i := range files {
		lab.Must(t, failed[i]())
		lines[i] = spoken(t, files[i].Bytes())
	}
	return lines
}

func sameLines(t *testing.T, from string, wire, simulated []string) {
	t.Helper()
	for i := range max(len(wire), len(simulated)) {
		var w, s string
		if i < len(wire) {
			w = wire[i]
		}
		if i < len(simulated) {
			s = simulated[i]
		}
		if w != s {
			t.Errorf("packet %d of %d and %d from %s:\nwire:      %s\nsimulator: %s", i, len(wire), len(simulated), from, w, s)
			return
		}
	}
	if len(wire) < toldMessages {
		t.Errorf("%s: only %d packets", from, len(wire))
	}
}
