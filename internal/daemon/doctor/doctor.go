// Package doctor examines a machine. It reports which uses of roced will work, which will not, and how to fix the latter.
// It changes nothing.
package doctor

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Status is the result of a check.
type Status string

// Values of Status.
const (
	OK      Status = "ok"
	Limited Status = "limited" // it works with a restriction that Finding.Found describes
	Missing Status = "missing"
)

// Finding is one checked property of the machine.
type Finding struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Do     string `json:"do,omitempty"` // recommended action
}

// Verdict says whether a use will work.
type Verdict struct {
	Name  string   `json:"name"`
	Works bool     `json:"works"`
	Lacks []string `json:"lacks,omitempty"` // names of missing findings
	What  string   `json:"what"`
}

// Report holds the findings and verdicts for a machine.
type Report struct {
	Findings []Finding `json:"findings"`
	Verdicts []Verdict `json:"verdicts"`
}

// use is a use of roced, with the findings that it requires.
type use struct {
	name, what string
	needs      []string
	basic      bool // without it the machine cannot run roced
}

var uses = []use{
	{"port udp", "a NIC on UDP sockets, without rights: rocectl up", []string{"memfd", "udp port 4791"}, true},
	{"exec", "unmodified programs: rocectl exec", []string{"memfd", "library", "rdma-core"}, true},
	{"port unix", "NICs without a network: rocectl up --pair --port unix", []string{"memfd"}, false},
	{"port packet", "a NIC on an Ethernet interface, beside the kernel", []string{"memfd", "packet sockets"}, false},
	{"port tap", "a NIC of its own on a bridge", []string{"memfd", "tun", "CAP_NET_ADMIN"}, false},
	{"port xdp", "a NIC on AF_XDP", []string{"memfd", "xdp sockets", "packet sockets", "CAP_NET_ADMIN", "CAP_BPF"}, false},
	{"interfaces", "faults, bottleneck and watch on any interface", []string{"CAP_BPF", "CAP_NET_ADMIN", "packet sockets"}, false},
	{"namespaces", "tests between namespaces: make demo, make test", []string{"tun", "namespaces"}, false},
}

// Examine checks this machine from the point of view of the calling process.
func Examine() *Report {
	r := &Report{}
	for _, probe := range probes {
		r.Findings = append(r.Findings, probe()...)
	}
	for _, u := range uses {
		v := Verdict{Name: u.name, What: u.what}
		for _, need := range u.needs {
			if i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.Name == need }); r.Findings[i].Status == Missing {
				v.Lacks = append(v.Lacks, need)
			}
		}
		v.Works = len(v.Lacks) == 0
		r.Verdicts = append(r.Verdicts, v)
	}
	return r
}

// Err returns the reasons for which a basic use will not work, or nil if all basic uses will work.
func (r *Report) Err() error {
	var not []string
	for i, v := range r.Verdicts {
		if uses[i].basic && !v.Works {
			not = append(not, fmt.Sprintf("%s lacks %s", v.Name, strings.Join(v.Lacks, ", ")))
		}
	}
	if not == nil {
		return nil
	}
	return fmt.Errorf("common uses do not work on this machine: %s", strings.Join(not, "; "))
}

// Write prints the report as tab-separated columns.
func (r *Report) Write(w io.Writer) {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Status, f.Name, f.Found)
		if f.Do != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", f.Do)
		}
	}
	fmt.Fprintln(w)
	for _, v := range r.Verdicts {
		word, lacks := "works", ""
		if !v.Works {
			word, lacks = "not here", "; lacks "+strings.Join(v.Lacks, ", ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\n", word, v.Name, v.What, lacks)
	}
}
