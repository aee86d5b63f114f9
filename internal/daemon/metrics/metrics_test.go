package metrics

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

func TestMain(m *testing.M) { lab.LongMain(m, nil) }

const deploy = "../../../deploy"

// busy returns a lab whose NICs have moved messages of all kinds, with some packet losses.
func busy(t *testing.T) *lab.Lab {
	t.Helper()
	l := lab.New(t, netlab.LabOptions{NoOffload: true, Daemon: "metrics: {listen: \"127.0.0.1:0\"}\n"})
	traffic(l)
	return l
}

func traffic(l *lab.Lab) {
	l.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lab.Limit)
	defer cancel()
	lab.Must(l.T, l.SetFaults(ctx, 0, "tx drop p=0.02 seed=1"))
	for _, kind := range []string{"write-bw", "read-bw", "send-bw"} {
		_, err := l.Perf(ctx, filepath.Join(l.Dir, "oob"), kind, "-s", "8k", "-n", "200", "-q", "2")
		lab.Must(l.T, err)
	}
	lab.Must(l.T, l.SetFaults(ctx, 0))
}

// samples scrapes an address: values by name and labels.
func samples(t testing.TB, addr string) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	lab.Must(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	lab.Must(t, err)
	values := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			labels := []string{name}
			for _, p := range m.Label {
				labels = append(labels, p.GetName()+"="+p.GetValue())
			}
			values[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return values
}

// said returns the address at which a program or a daemon reports that it listens.
func said(t testing.TB, pattern *regexp.Regexp, text func() string) (addr string) {
	t.Helper()
	lab.Eventually(t, lab.Limit, pattern.String(), func() bool {
		m := pattern.FindStringSubmatch(text())
		if m != nil {
			addr = m[1]
		}
		return m != nil
	})
	return addr
}

// target returns the metrics address of the daemon of host i.
func target(l *lab.Lab, i int) string {
	l.T.Helper()
	return said(l.T, regexp.MustCompile(`msg=metrics address=(\S+)`), func() string {
		text, err := os.ReadFile(l.Host[i].LogFile)
		lab.Must(l.T, err)
		return string(text)
	})
}

// listening starts a program of the Prometheus project and returns its address.
func listening(t *testing.T, args ...string) string {
	t.Helper()
	lab.Need(t, args[0])
	p := lab.Launch(t, (*exec.Cmd).Start, append(args, "--web.listen-address=127.0.0.1:0"))
	return said(t, regexp.MustCompile(`msg="Listening on" address=(\S+)`), p.Said)
}

// TestNodeExporter: node_exporter, which reads a NIC's files, and the daemon export the same values under the same
// names.
func TestNodeExporter(t *testing.T) {
	l := busy(t)
	exporter := listening(t, "prometheus-node-exporter", "--collector.disable-defaults", "--collector.infiniband",
		"--path.sysfs="+filepath.Join(l.Host[0].RunDir, "sysfs"))
	compared := 0
	lab.Eventually(t, lab.Limit, "node_exporter's metrics and the daemon's alike", func() bool {
		l.Run(0, "exec", "--", "cat", "/sys/class/infiniband/"+netlab.Device+"/ports/1/counters/port_xmit_data") // this refreshes the files
		theirs, ours := samples(t, exporter), samples(t, target(l, 0))
		compared = 0
		for name, v := range theirs {
			if !strings.HasPrefix(name, "node_infiniband_") {
				continue
			}
			own, ok := ours[name]
			if !ok {
				t.Fatalf("the daemon has no %s", name)
			}
			if own != v {
				t.Logf("%s: %v, the daemon says %v", name, v, own)
				return false
			}
			compared++
		}
		return true
	})
	if compared < 15 {
		t.Errorf("only %d metrics were compared", compared)
	}
}

// helped checks that each metric of the daemon has a sentence of its own.
func helped(t *testing.T, text string) {
	t.Helper()
	of := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# HELP ((?:roced|node)_\S+) ?(.*)$`).FindAllStringSubmatch(text, -1) {
		name, help := m[1], m[2]
		if !strings.HasSuffix(help, ".") || strings.Contains(help, "docs/") || of[help] != "" {
			t.Errorf("%s: %q, also of %q", name, help, of[help])
		}
		of[help] = name
	}
	if len(of) < 90 {
		t.Errorf("%d metrics have help", len(of))
	}
}

// TestConventions: promtool reports no problem with the daemon's metrics, and their sums are consistent.
func TestConventions(t *testing.T) {
	lab.Need(t, "promtool")
	l := busy(t)
	resp, err := http.Get("http://" + target(l, 0) + "/metrics")
	lab.Must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	lab.Must(t, err)
	text := string(b)
	helped(t, text)
	c := exec.Command("promtool", "check", "metrics")
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	for _, op := range []string{"write", "read", "send"} {
		want := fmt.Sprintf("roced_message_latency_seconds_count{device=%q,operation=%q,port=\"1\"} 400\n", netlab.Device, op)
		if !strings.Contains(text, want) {
			t.Errorf("no line %s", want)
		}
	}
}
