package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// permutation is a traffic pattern for both simulators.
type permutation struct {
	hosts, k int
	bytes    int
}

var peerSizes = []permutation{{128, 8, 8_000_000}, {1024, 16, 2_000_000}}

// files writes p as htsim's matrix and as a flow list.
func (p permutation) files(dir string) (matrix, flows string, err error) {
	order := rand.New(rand.NewPCG(1, 2)).Perm(p.hosts)
	var m, f strings.Builder
	fmt.Fprintf(&m, "Nodes %d\nConnections %d\n", p.hosts, p.hosts)
	fmt.Fprintf(&f, "%d\n", p.hosts)
	for i, src := range order {
		dst := order[(i+1)%p.hosts]
		fmt.Fprintf(&m, "%d->%d id %d start 0 size %d\n", src, dst, i+1, p.bytes)
		fmt.Fprintf(&f, "%d %d 3 100 %d 0.0\n", src, dst, p.bytes)
	}
	matrix = filepath.Join(dir, fmt.Sprintf("p%d.cm", p.hosts))
	flows = filepath.Join(dir, fmt.Sprintf("p%d.txt", p.hosts))
	if err = os.WriteFile(matrix, []byte(m.String()), 0o644); err == nil {
		err = os.WriteFile(flows, []byte(f.String()), 0o644)
	}
	return matrix, flows, err
}

// permutations measures rocesim, and htsim if it is present.
func permutations(rocesim, dir string) (rows []row, missing bool, err error) {
	for _, p := range peerSizes {
		matrix, flows, err := p.files(dir)
		if err != nil {
			return nil, false, err
		}
		peer, err := htsim(matrix, p)
		if err != nil {
			return nil, false, err
		}
		ours, err := simulate(rocesim, scenario{fmt.Sprintf("rocesim, rc + PFC: %d hosts, %d MB each", p.hosts, p.bytes/1e6), "permutation.yaml",
			[]string{fmt.Sprintf("topology.k=%d", p.k), fmt.Sprintf("workload=[{kind: flows, file: %q}]", flows)}})
		if err != nil {
			return nil, false, err
		}
		if peer == nil {
			missing = true
		} else {
			peer.name = fmt.Sprintf("htsim, its RoCE: %d hosts, %d MB each", p.hosts, p.bytes/1e6)
			rows = append(rows, *peer)
			ours.peer = peer
		}
		rows = append(rows, ours)
	}
	return rows, missing, nil
}

var htsimLine = regexp.MustCompile(`htsim_roce: (\d+) flows, last FCT ([0-9.]+) us, (\d+) link transmissions, ([0-9.]+) s, [0-9.]+ M/s, (\d+) MB`)

// htsim runs the peer, and returns nil if it is absent. Its script counts packets that enter a pipe. A packet enters
// one pipe at each link and one in each switch between two links, for the switch latency: 2n-1 pipes for n links. So
// the links are half of the count plus half of one for each packet and its acknowledgement. A PFC frame enters only one
// pipe, so the formula counts half of it, which is below 1 % of all.
func htsim(matrix string, p permutation) (*row, error) {
	dir := os.Getenv("HTSIM")
	if dir == "" {
		return nil, nil
	}
	build := filepath.Join(os.TempDir(), "htsim-build")
	out, err := exec.Command("bash", filepath.Join(dir, "run.sh"), build, "roce", matrix, strconv.Itoa(p.hosts)).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("htsim: %w: %s", err, out)
	}
	m := htsimLine.FindStringSubmatch(string(out))
	if m == nil {
		return nil, errors.New("htsim said: " + string(out))
	}
	number := func(s string) float64 { v, _ := strconv.ParseFloat(s, 64); return v }
	fmt.Fprint(os.Stderr, m[0], "\n")
	pipes, packets := number(m[3]), float64(p.hosts)*float64(p.bytes)/1000
	return &row{links: (pipes + 2*packets) / 2, pipes: pipes, cpu: number(m[4]), mb: number(m[5]), note: m[1] + " messages, the last after " + m[2] + " us"}, nil
}
