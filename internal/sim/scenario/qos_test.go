package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/result"
)

// sonic returns configs/sim/sonic.yaml.
func sonic(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../configs/sim/sonic.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// full are changes so that streams of both classes fill the link to host 0.
var full = []string{"transport={profile: rc, connections: persistent}", "transports=[{name: rest, profile: irn}]", "switch.buffer=2MiB", "stop=2ms",
	`workload=[{kind: stream, dscp: 26, from: 1, to: 0, size: 100KB}, {kind: stream, dscp: 26, from: 9, to: 0, size: 100KB},
	{kind: stream, transport: rest, from: 2, to: 0, size: 50KB, qps: 4}, {kind: stream, transport: rest, from: 3, to: 0, size: 50KB, qps: 4}]`}

// TestQoS: DSCPs select classes. The lossless one has flow control, loses nothing and gets its weight; the other one loses packets
// and is never stopped.
func TestQoS(t *testing.T) {
	r := simulated(t, sonic(t), full...)
	if len(r.Classes) != 2 || r.Classes[0].Class != 0 || r.Classes[1].Class != 3 {
		t.Fatalf("%+v", r.Classes)
	}
	rest, roce := r.Classes[0], r.Classes[1]
	if rest.Lost == 0 || rest.Pauses > 0 || roce.Lost > 0 || roce.Pauses == 0 {
		t.Errorf("lossy: %d lost, %d pauses; lossless: %d lost, %d pauses", rest.Lost, rest.Pauses, roce.Lost, roce.Pauses)
	}
	if share := float64(roce.Bytes) / float64(rest.Bytes); share < 2.5 || share > 4 {
		t.Errorf("the lossless class carries %.2f times as much as the lossy one", share)
	}
	r = simulated(t, sonic(t), append(full, "switch.weights=[3, 1, 1, 1]")...)
	if share := float64(r.Classes[1].Bytes) / float64(r.Classes[0].Bytes); share < 0.25 || share > 0.5 {
		t.Errorf("with weights 3 and 1 the lossless class carries %.2f times as much as the lossy one", share)
	}
}

// dscps returns the DSCPs of the packets that enter a link, and their number. Packets without payload have a name of their own.
func dscps(t *testing.T, link string, set ...string) (map[string]int, *result.Result) {
	t.Helper()
	c, err := config(sonic(t), set...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	links, err := s.Cluster().Network().Named(link)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	failed, err := s.CaptureTo(&file, links...)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Run()
	if err := errors.Join(err, failed()); err != nil {
		t.Fatal(err)
	}
	r, err := pcapng.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for {
		var f pcapng.Frame
		switch err := r.Next(&f); {
		case errors.Is(err, io.EOF):
			return got, res
		case err != nil:
			t.Fatal(err)
		case f.Data[12] == 0x08 && f.Data[13] == 0:
			name := "data"
			if f.Data[42] == byte(bth.OpcodeCNP) {
				name = "CNP"
			} else if len(f.Data) < 200 {
				name = "ACK"
			}
			got[fmt.Sprintf("%s %d", name, f.Data[15]>>2)]++
		}
	}
}

// TestControlDSCP: acknowledgements have the DSCP of data, or one of their own; CNPs have theirs. Captures show them.
func TestControlDSCP(t *testing.T) {
	for _, c := range []struct {
		set  []string
		want []string
	}{
		{nil, []string{"ACK 26", "CNP 48", "ACK 0"}},
		{[]string{"qos.ack_dscp=48", "qos.cnp_dscp=26"}, []string{"ACK 48", "CNP 26"}},
	} {
		got, _ := dscps(t, "h0-leaf0", c.set...)
		for _, name := range c.want {
			if got[name] == 0 {
				t.Errorf("%v: no %s in %v", c.set, name, got)
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Errorf("%v: also %v", c.set, got)
		}
	}
	got, _ := dscps(t, "h1-leaf0")
	if want := map[string]int{"data 26": 2000, "data 0": 2000}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestMarkedClasses: ecn.classes selects the packets that are marked.
func TestMarkedClasses(t *testing.T) {
	set := []string{"workload=[{kind: incast, dscp: 0, transport: rest, to: 0, senders: 15, size: 1MB}, {kind: incast, dscp: 26, to: 0, senders: 1, size: 1KB}]",
		"transports.0.congestion.name=dctcp"}
	if r := simulated(t, sonic(t), set...); r.Marked > 0 {
		t.Errorf("%d packets of class 0 are marked", r.Marked)
	}
	if r := simulated(t, sonic(t), append(set, "switch.ecn.classes=[0, 3]")...); r.Marked == 0 {
		t.Error("no packet of class 0 is marked")
	}
}

// TestStrictClasses: a strict class leaves before the others, which share by weight.
func TestStrictClasses(t *testing.T) {
	r := simulated(t, sonic(t), append(full, "switch.strict=[3, 6]")...)
	if share := float64(r.Classes[1].Bytes) / float64(r.Classes[0].Bytes+1); share < 8 {
		t.Errorf("the strict class carries %.2f times as much as the other one", share)
	}
}

// TestClassOfApplications: all kinds of workloads have a class.
func TestClassOfApplications(t *testing.T) {
	for _, w := range []string{
		"{kind: rpc, client: 0, server: 1, request: 1KB, response: 1KB, calls: 2, dscp: 26}", "{kind: all-to-all, size: 1KB, dscp: 26}",
		"{kind: ring-all-reduce, size: 1KB, dscp: 26}", "{kind: tree-all-reduce, size: 1KB, dscp: 26}",
		"{kind: permutation, size: 1KB, dscp: 26}", "{kind: poisson, size: 1KB, load: 0.5, until: 10us, dscp: 26}",
	} {
		r := simulated(t, sonic(t), "workload=["+w+"]", "transport.connections=persistent")
		if len(r.Classes) != 1 || r.Classes[0].Class != 3 || r.Classes[0].Messages != len(r.Flows) {
			t.Errorf("%s: %+v", w, r.Classes)
		}
	}
}

// TestQoSErrors: senseless DSCPs and classes are named.
func TestQoSErrors(t *testing.T) {
	for set, want := range map[string]string{
		"qos.dscp_to_class={64: 3}":           `qos.dscp_to_class.64: "64": a DSCP is from 0 to 63`,
		"qos.dscp_to_class={026: 3}":          `qos.dscp_to_class.026: "026": a DSCP`,
		"qos.dscp_to_class={26: 8}":           "qos.dscp_to_class.26: class 8: must be from 0 to 7",
		"qos.dscp_to_class={26: 7}":           "workload.0.dscp: 26 has class 7 in qos.dscp_to_class; data has classes from 0 to 6",
		"qos.dscp_to_class={26: x}":           `qos.dscp_to_class.26: "x" is not a whole number`,
		"qos.cnp_dscp=64":                     "qos.cnp_dscp: 64: a DSCP is from 0 to 63",
		"qos.ack_dscp=64":                     "qos.ack_dscp: 64: a DSCP is from 0 to 63",
		"workload.0.dscp=64":                  "workload.0.dscp: 64: a DSCP is from 0 to 63",
		"workload.0={kind: incast, class: 3}": "workload.0.class: qos selects classes by DSCP; set dscp instead of class",
		"transport.class_limits=[1KB]":        "qos: transport.class_limits selects the classes; remove one of them",
		"switch.ack_priority=true":            "switch.ack_priority: acknowledgements have a class of qos",
		"switch.strict=[8]":                   "switch.strict.0: class 8: must be from 0 to 7",
		"switch.ecn.classes=[3, 8]":           "switch.ecn.classes.1: class 8: must be from 0 to 7",
		"switch.ecn.classes=[1]":              "transport.congestion: dcqcn needs ECN marks, and no switch marks packets of the workloads' classes: set ecn.classes",
	} {
		if _, err := config(sonic(t), set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", set, err, want)
		}
	}
	if _, err := config(small, "workload.0.dscp=26"); err == nil || !strings.Contains(err.Error(), "workload.0.dscp: no map of DSCPs: set qos.dscp_to_class, or class instead of dscp") {
		t.Error(err)
	}
}
