// Package sim measures rocesim: link transmissions per second of CPU time, memory, and the time of each component. A link
// transmission is any packet that enters a link: data, an acknowledgement or a PFC frame. If HTSIM names a folder with
// htsim's run.sh, htsim runs as well. Both simulate the same permutations of 128 and 1,024 hosts over the same fat-trees.
package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"roced.io/roced/internal/lab/bench/measure"
)

// row is one measurement.
type row struct {
	name  string
	links float64 // transmissions
	pipes float64 // htsim: the count of its script
	cpu   float64 // seconds
	wall  float64 // seconds
	mb    float64
	note  string
	peer  *row // to compare with
}

func (r *row) speed() float64 { return r.links / r.cpu / 1e6 }

// Part returns the part of the benchmark.
func Part() measure.Part {
	long := false
	return measure.Part{Name: "sim", Short: "Measure the simulator, and htsim in the folder HTSIM", Title: "Speed of the simulator",
		Flags: func(f *pflag.FlagSet) {
			f.BoolVar(&long, "long", false, "simulate 10^8 packets as well, which takes some minutes")
		},
		Measure: func(r *measure.Run, w io.Writer) error { return run(filepath.Join(r.Bin, "rocesim"), w, long) }}
}

// scenario is a file of configs/sim with changes.
type scenario struct {
	name, file string
	set        []string
}

var (
	irn = []string{"transport.profile=irn", "transport.reorder={name: irn, bdp_packets: 104}",
		"transport.recovery={name: irn, bdp_packets: 104, rto_doublings: 0}", "switch.pfc=null", "switches.0.pfc=null"}
	eunomia = []string{"transport.profile=eunomia", "transport.reorder={name: eunomia}", "transport.recovery={name: gobackn, rto_us: 4000, rto_doublings: 0}",
		"switch.balance.name=drill", "switches.0.balance.name=drill"}
	leafSpine = []scenario{
		{"rc + PFC + DCQCN, ECMP", "ns3-conweave.yaml", []string{"workload.0.until=1ms"}},
		{"irn + DCQCN", "ns3-conweave.yaml", append([]string{"workload.0.until=1ms"}, irn...)},
		{"eunomia + PFC + DCQCN, DRILL", "ns3-conweave.yaml", append([]string{"workload.0.until=1ms"}, eunomia...)},
	}
	large = scenario{"permutation of 4,096 hosts, 1 MB, leaf-spine of 64 and 64", "permutation.yaml", []string{
		"topology={kind: leaf-spine, leaves: 64, spines: 64, hosts_per_leaf: 64, host_rate: 100Gbps, delay: 1us}", "workload.0.size=1MB"}}
)

// growing is a permutation with the given number of data packets.
func growing(exponent int, size string) scenario {
	return scenario{fmt.Sprintf("10^%d packets of data", exponent), "permutation.yaml", []string{"workload.0.size=" + size}}
}

// report has the results.
type report struct {
	peers, leaf, sizes, beside []row
	shares                     []share
	pairs                      *pairsResult
	large                      row
	peerMissing                bool
}

func run(rocesim string, w io.Writer, long bool) error {
	dir, err := os.MkdirTemp("", "simbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var r report
	if r.peers, r.peerMissing, err = permutations(rocesim, dir); err != nil {
		return err
	}
	if r.leaf, err = measureAll(rocesim, leafSpine); err != nil {
		return err
	}
	sizes := []scenario{growing(6, "8MB"), growing(7, "80MB")}
	if long {
		sizes = append(sizes, growing(8, "800MB"))
	}
	if r.sizes, err = measureAll(rocesim, sizes); err != nil {
		return err
	}
	if r.large, err = simulate(rocesim, large); err != nil {
		return err
	}
	if r.beside, err = sideBySide(rocesim, sizes[0]); err != nil {
		return err
	}
	if r.pairs, err = pairs(); err != nil {
		return err
	}
	for _, s := range append([]scenario{sizes[0]}, leafSpine...) {
		x, err := shares(rocesim, s)
		if err != nil {
			return err
		}
		r.shares = append(r.shares, x)
	}
	r.write(w)
	return nil
}

func measureAll(program string, ss []scenario) (rows []row, err error) {
	for _, s := range ss {
		r, err := simulate(program, s)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (s *scenario) args() []string {
	args := []string{"run", filepath.Join("configs/sim", s.file), "--json", "-q"}
	for _, x := range s.set {
		args = append(args, "--set", x)
	}
	return args
}

// simulate runs rocesim.
func simulate(program string, s scenario) (r row, err error) {
	var stdout, stderr bytes.Buffer
	c := exec.Command(program, s.args()...)
	c.Stdout, c.Stderr = &stdout, &stderr
	from := time.Now()
	if err := c.Run(); err != nil {
		return r, fmt.Errorf("%s: %w: %s", s.name, err, stderr.String())
	}
	r = row{name: s.name, wall: time.Since(from).Seconds()}
	var res struct {
		Links    float64 `json:"link_transmissions"`
		Messages int     `json:"messages"`
	}
	if err := json.Unmarshal(stdout.Bytes(), &res); err != nil {
		return r, err
	}
	r.links, r.note = res.Links, fmt.Sprintf("%d messages", res.Messages)
	r.used(c.ProcessState)
	fmt.Fprintf(os.Stderr, "%s: %.2f s, %.2f M/s\n", r.name, r.cpu, r.speed())
	return r, nil
}

// used records the resource usage of a process.
func (r *row) used(p *os.ProcessState) {
	r.cpu = p.UserTime().Seconds() + p.SystemTime().Seconds()
	if u, ok := p.SysUsage().(*syscall.Rusage); ok {
		r.mb = float64(u.Maxrss) / 1024
	}
}

// sideBySide runs a scenario alone and then twice at once.
func sideBySide(program string, s scenario) ([]row, error) {
	rows := make([]row, 3)
	errs := make([]error, len(rows))
	rows[0], errs[0] = simulate(program, s)
	var both sync.WaitGroup
	for i := 1; i < len(rows); i++ {
		both.Go(func() { rows[i], errs[i] = simulate(program, s) })
	}
	both.Wait()
	return rows, errors.Join(errs...)
}
