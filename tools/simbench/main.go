// Command simbench measures rocesim: link transmissions (whatever enters a link: data,
// acknowledgements, PFC frames) a second of CPU time, and memory. With HTSIM set to a folder that
// has its run.sh, htsim runs beside it: the same permutation of 128 hosts over the same fat-tree.
//
//	go run ./tools/simbench -bin bin [-out docs/bench-sim.md]
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
)

// row is one measurement.
type row struct {
	name  string
	links float64 // transmissions
	cpu   float64 // seconds
	mb    float64
	note  string
}

func (r *row) speed() float64 { return r.links / r.cpu / 1e6 }

func main() {
	bin := flag.String("bin", "bin", "folder with rocesim")
	out := flag.String("out", "", "file for the table; default: standard output")
	flag.Parse()
	if err := run(*bin, *out); err != nil {
		fmt.Fprintln(os.Stderr, "simbench:", err)
		os.Exit(1)
	}
}

// scenarios are what is measured, besides htsim.
var scenarios = []struct {
	name, file string
	set        []string
}{
	{"permutation of 128 hosts, 8 MB: rc + PFC", "permutation.yaml", nil},
	{"permutation of 1024 hosts, 500 KB: rc + PFC", "permutation.yaml", []string{"topology.k=16", "workload.0.size=500KB"}},
	{"ns3-conweave, 80 % load, 1 ms: rc + PFC + DCQCN, ECMP", "ns3-conweave.yaml", []string{"workload.0.until=1ms"}},
	{"the same: irn", "ns3-conweave.yaml", append([]string{"workload.0.until=1ms"}, irn...)},
	{"the same: eunomia, DRILL", "ns3-conweave.yaml", append([]string{"workload.0.until=1ms"}, eunomia...)},
}

var (
	irn = []string{"transport.profile=irn", "transport.reorder={name: irn, bdp_packets: 104}",
		"transport.recovery={name: irn, bdp_packets: 104, rto_doublings: 0}", "switch.pfc=null", "switches.0.pfc=null"}
	eunomia = []string{"transport.profile=eunomia", "transport.reorder={name: eunomia}", "transport.recovery={name: gobackn, rto_us: 4000, rto_doublings: 0}",
		"switch.balance.name=drill", "switches.0.balance.name=drill"}
)

func run(bin, out string) error {
	var rows []row
	peer, err := htsim()
	if err != nil {
		return err
	}
	if peer != nil {
		rows = append(rows, *peer)
	}
	for _, s := range scenarios {
		args := []string{"run", filepath.Join("configs/sim", s.file), "--json", "-q"}
		for _, x := range s.set {
			args = append(args, "--set", x)
		}
		r, err := measure(filepath.Join(bin, "rocesim"), args)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.name = s.name
		rows = append(rows, r)
	}
	w := io.Writer(os.Stdout)
	if out != "" {
		f, err := os.Create(out)
		if err != nil {
			return err
		}
		defer f.Close()
		w = f
	}
	report(w, rows, peer)
	return nil
}

// measure runs rocesim.
func measure(program string, args []string) (r row, err error) {
	var stdout, stderr bytes.Buffer
	c := exec.Command(program, args...)
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		return r, fmt.Errorf("%w: %s", err, stderr.String())
	}
	var res struct {
		Links    float64 `json:"link_transmissions"`
		Messages int     `json:"messages"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &res); err != nil {
		return r, err
	}
	r.links, r.note = res.Links, fmt.Sprintf("%d messages", res.Messages)
	r.cpu = c.ProcessState.UserTime().Seconds() + c.ProcessState.SystemTime().Seconds()
	if u, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.mb = float64(u.Maxrss) / 1024
	}
	return r, nil
}

var htsimLine = regexp.MustCompile(`htsim_roce: (\d+) flows, last FCT ([0-9.]+) us, (\d+) link transmissions, ([0-9.]+) s, [0-9.]+ M/s, (\d+) MB`)

// htsim runs the peer, nil if it is not there.
func htsim() (*row, error) {
	dir := os.Getenv("HTSIM")
	if dir == "" {
		return nil, nil
	}
	build := filepath.Join(os.TempDir(), "htsim-build")
	out, err := exec.Command("bash", filepath.Join(dir, "run.sh"), build).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("htsim: %w: %s", err, out)
	}
	m := htsimLine.FindStringSubmatch(string(out))
	if m == nil {
		return nil, errors.New("htsim said: " + string(out))
	}
	number := func(s string) float64 { v, _ := strconv.ParseFloat(s, 64); return v }
	return &row{name: "htsim, its RoCE: permutation of 128 hosts, 8 MB", links: number(m[3]), cpu: number(m[4]), mb: number(m[5]), note: "last message after " + m[2] + " us"}, nil
}

func report(w io.Writer, rows []row, peer *row) {
	fmt.Fprint(w, "# Speed of the simulator\n\n`make bench-sim`, all rows in one run. A link transmission is whatever enters a link.\n\n")
	if peer == nil {
		fmt.Fprint(w, "htsim was not there: `HTSIM=DIR make bench-sim` measures it beside.\n\n")
	}
	fmt.Fprint(w, "| | link transmissions | s of CPU | M a second | times htsim | MB | |\n|---|--:|--:|--:|--:|--:|---|\n")
	for i := range rows {
		r := &rows[i]
		ratio := ""
		if peer != nil {
			ratio = fmt.Sprintf("%.2f", r.speed()/peer.speed())
		}
		fmt.Fprintf(w, "| %s | %.0f | %.2f | %.2f | %s | %.0f | %s |\n", r.name, r.links, r.cpu, r.speed(), ratio, r.mb, r.note)
	}
}
