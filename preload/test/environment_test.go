package test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

// TestNetlinkSocket checks RDMA netlink from the view of a C program.
func TestNetlinkSocket(t *testing.T) {
	lab.Long(t)
	succeed(t, verbs(t, newLab(t), "netlink"))
}

// linkUp waits until the tree of the first host shows that its port is up.
func linkUp(t *testing.T, l *lab.Lab) {
	t.Helper()
	state := filepath.Join(l.Host[0].RunDir, "sysfs/class/infiniband", l.Host[0].Device, "ports/1/state")
	lab.Eventually(t, lab.Limit, "the link is up", func() bool {
		text, err := os.ReadFile(state)
		return err == nil && string(text) == "4: ACTIVE\n"
	})
}

// TestEnvironment inspects a device and the objects of a program with the tools of iproute2 and infiniband-diags.
func TestEnvironment(t *testing.T) {
	lab.Long(t)
	for _, tool := range []string{"rdma", "ibstat"} {
		lab.Need(t, tool)
	}
	l := newLab(t)
	linkUp(t, l)
	h := l.Host[0]
	holder := withCM(t, l, "holder")
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	lab.Must(t, holder.Start())
	qpn, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the program ended: %v", holder.Wait())
	}
	c := preloaded(t, h.RunDir, filepath.Join(h.RunDir, "sysfs"), "bash", "testdata/environment.sh")
	c.Env = append(c.Env, "DEVICE="+h.Device, "SCRATCH="+t.TempDir(), "QPN="+strings.TrimSpace(qpn), fmt.Sprintf("PID=%d", holder.Process.Pid))
	succeed(t, c)
	lab.Must(t, in.Close())
	lab.Must(t, holder.Wait())
}

// TestTopology checks that programs that list the PCI bus find the NIC below its bridge, also with the tree of one NIC.
func TestTopology(t *testing.T) {
	lab.Long(t)
	for _, tool := range []string{"lstopo-no-graphics", "lspci"} {
		lab.Need(t, tool)
	}
	l := newLab(t)
	linkUp(t, l)
	h := l.Host[0]
	trees, err := filepath.Glob(filepath.Join(h.RunDir, "nic/*"))
	if err != nil || len(trees) != 1 {
		t.Fatalf("trees %v, %v", trees, err)
	}
	for _, tree := range append(trees, filepath.Join(h.RunDir, "sysfs")) {
		for _, c := range []struct {
			program string
			args    []string
			want    string
		}{
			{"lstopo-no-graphics", []string{"-v", "--whole-io"}, `HostBridge .*buses=0ced:\[00-01\]\)\n +PCIBridge .*busid=0ced:00:00\.0 .*buses=0ced:\[01-01\]\)\n` +
				` +PCI .*busid=0ced:01:00\.0 id=0ced:0001 class=0200\(Ethernet\) link=15\.75GB/s\)\n +OpenFabrics .*"` + h.Device + `"\n`},
			{"lspci", []string{"-t"}, `\[0ced:00\]---00\.0-\[01\]----00\.0\n`},
			{"lspci", []string{"-n"}, `\n0ced:01:00\.0 0200: 0ced:0001 \(rev 01\)\n`},
		} {
			out, err := preloaded(t, h.RunDir, tree, c.program, c.args...).CombinedOutput()
			if !regexp.MustCompile(c.want).Match(out) || err != nil {
				t.Errorf("%s %v with %s: %v, no %s in\n%s", c.program, c.args, tree, err, c.want, out)
			}
		}
	}
}

// TestNodeExporter runs the collector of node_exporter. It is a Go program, which the library does not reach, so it reads
// the daemon's tree.
func TestNodeExporter(t *testing.T) {
	lab.Long(t)
	lab.Need(t, "prometheus-node-exporter")
	l := newLab(t)
	linkUp(t, l)
	h := l.Host[0]
	c := exec.Command("prometheus-node-exporter", "--path.sysfs="+filepath.Join(h.RunDir, "sysfs"), "--collector.disable-defaults",
		"--collector.infiniband", "--web.listen-address=127.0.0.1:0")
	diag, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	lab.Must(t, c.Start())
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	address := ""
	for s := bufio.NewScanner(diag); address == "" && s.Scan(); {
		_, address, _ = strings.Cut(s.Text(), "address=")
	}
	got, err := (&http.Client{Timeout: lab.Limit}).Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`node_infiniband_info{board_id="roced",device="` + h.Device + `"`, `node_infiniband_state_id{device="` + h.Device + `",port="1"} 4`,
		`node_infiniband_port_data_transmitted_bytes_total{device="` + h.Device + `",port="1"}`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}
