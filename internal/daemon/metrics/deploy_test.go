package metrics

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/lab"
)

// rules has the contents of deploy/prometheus/roced-alerts.yaml.
type rules struct {
	Groups []struct {
		Rules []struct{ Alert, Expr string }
	}
}

// tested has the contents of deploy/prometheus/roced-alerts_test.yaml.
type tested struct {
	Tests []struct {
		Rules []struct {
			Name   string `yaml:"alertname"`
			Alerts []any  `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	}
}

func read[T any](t *testing.T, name string) (v T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "prometheus", name))
	lab.Must(t, err)
	lab.Must(t, yaml.Unmarshal(text, &v))
	return v
}

// TestAlerts: promtool's tests of the rules pass. Each rule has a test in which it fires, and one in which it does not.
func TestAlerts(t *testing.T) {
	lab.Need(t, "promtool")
	for _, args := range [][]string{{"check", "config", "prometheus.yaml"}, {"test", "rules", "roced-alerts_test.yaml"}} {
		c := exec.Command("promtool", args...)
		c.Dir = filepath.Join(deploy, "prometheus")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range read[tested](t, "roced-alerts_test.yaml").Tests {
		for _, r := range test.Rules {
			map[bool]map[string]bool{true: fires, false: quiet}[len(r.Alerts) > 0][r.Name] = true
		}
	}
	for _, r := range read[rules](t, "roced-alerts.yaml").Groups[0].Rules {
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: tested to fire: %t, not to: %t", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
	}
}

// dashboard has the queries and panels of deploy/grafana/roced.json.
type dashboard struct {
	Panels []struct {
		ID          int
		Title, Type string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, "grafana/roced.json"))
	lab.Must(t, err)
	lab.Must(t, json.Unmarshal(text, &d))
	return d
}

// comparison matches the condition of a rule. Its left side has a value at any time.
var comparison = regexp.MustCompile(`^(.*) (==|>) [0-9.]+$`)

// labelValues matches the query of a dashboard variable.
var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// variables replaces Grafana's variables with values for the test.
var variables = strings.NewReplacer("$__rate_interval", "1m", "$job", ".+", "$instance", ".+", "$device", ".+")

// queries returns all queries of the dashboard and the rules, by location.
func queries(t *testing.T) map[string]string {
	all := map[string]string{}
	d := readDashboard(t)
	for _, p := range d.Panels {
		for i, q := range p.Targets {
			all[fmt.Sprintf("panel %q, query %d", p.Title, i)] = variables.Replace(q.Expr)
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Definition)
		if m == nil {
			t.Fatalf("variable %s: %s", v.Name, v.Definition)
		}
		all["variable "+v.Name] = fmt.Sprintf("count by (instance, %s) (%s)", m[2], variables.Replace(m[1]))
	}
	for _, r := range read[rules](t, "roced-alerts.yaml").Groups[0].Rules {
		m := comparison.FindStringSubmatch(r.Expr)
		if m == nil {
			t.Fatalf("alert %s is no comparison: %s", r.Alert, r.Expr)
		}
		all["alert "+r.Alert] = m[1]
	}
	for where, q := range all {
		if strings.Contains(q, "$") {
			t.Errorf("%s: %s", where, q)
		}
	}
	return all
}

// TestQueries runs each query of the dashboard, and the left side of each alert's comparison, in a Prometheus that has
// scraped traffic. Each returns series for both daemons, and a number for at least one.
func TestQueries(t *testing.T) {
	all := queries(t)
	if len(all) < 50 {
		t.Errorf("only %d queries", len(all))
	}
	l := busy(t)
	file := filepath.Join(l.Dir, "prometheus.yaml")
	text := fmt.Sprintf("scrape_configs:\n  - {job_name: roced, scrape_interval: 250ms, scrape_timeout: 250ms, static_configs: [{targets: [%q, %q]}]}\n", target(l, 0), target(l, 1))
	lab.Must(t, os.WriteFile(file, []byte(text), 0o600))
	prometheus := listening(t, "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(l.Dir, "tsdb"))
	ask := func(query string) (instances map[string]bool, numbers int) {
		return answer(t, "http://"+prometheus+"/api/v1/query?query="+url.QueryEscape(query))
	}
	lab.Eventually(t, lab.Limit, "Prometheus is ready", func() bool {
		resp, err := http.Get("http://" + prometheus + "/-/ready")
		lab.Must(t, err)
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	lab.Eventually(t, lab.Limit, "both daemons scraped", func() bool { _, n := ask(`roced_link_up == 1`); return n == 2 })
	for where, q := range all {
		lab.Eventually(t, lab.Limit, where+": "+q, func() bool {
			instances, numbers := ask(q)
			if len(instances) == 2 && numbers > 0 {
				return true
			}
			traffic(l) // rates need events between two scrapes, within the last minute
			return false
		})
	}
}

// answer runs a query. It returns the instances with series, and the number of series whose value is a number.
func answer(t testing.TB, url string) (instances map[string]bool, numbers int) {
	t.Helper()
	resp, err := http.Get(url)
	lab.Must(t, err)
	defer resp.Body.Close()
	var said struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	lab.Must(t, json.NewDecoder(resp.Body).Decode(&said))
	if said.Status != "success" {
		t.Fatalf("%s: %s", url, said.Error)
	}
	instances = map[string]bool{}
	for _, r := range said.Data.Result {
		instances[r.Metric["instance"]] = true
		text, _ := r.Value[1].(string)
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
			numbers++
		}
	}
	return instances, numbers
}

// TestDashboard: panels have distinct numbers and do not overlap.
func TestDashboard(t *testing.T) {
	d, ids := readDashboard(t), map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d: %+v", i, p)
		}
		ids[p.ID] = true
		for _, o := range d.Panels[:i] {
			a, b := p.GridPos, o.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%q covers %q", p.Title, o.Title)
			}
		}
	}
}
