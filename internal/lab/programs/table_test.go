package programs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// tableFile has the expected results, in one column for each release of Debian. A run uses the column of its release.
// -update writes the column, other runs compare with it.
const tableFile = "../../../docs/results/verbs-programs.md"

// Outcomes of a program or test.
const (
	pass = "pass"
	skip = "skip"
	fail = "fail"
)

// row is a line of the table.
type row struct {
	group   string // heading
	name    string // program or test, with its options
	outcome string
	why     string // of a skip
}

// key identifies a row.
func (r row) key() string { return r.group + "|" + r.name }

// table is the content of the file: the rows in order, and the cells by key and release.
type table struct {
	releases []string
	versions map[string]string // of packages, by release
	rows     []row             // without outcome
	cells    map[string]map[string]string
}

// was is the table of the file, rows are the rows of this run, in order.
var (
	was  = table{versions: map[string]string{}, cells: map[string]map[string]string{}}
	rows []row
)

// release returns the release of Debian: 12, 13, or sid, which has no number.
func release() string {
	text, _ := os.ReadFile("/etc/os-release")
	vars := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		vars[name] = strings.Trim(value, "\"")
	}
	if vars["ID"] == "debian" {
		return cmp.Or(vars["VERSION_ID"], "sid")
	}
	return cmp.Or(vars["VERSION_ID"], vars["VERSION_CODENAME"], "unknown")
}

// record adds a result and fails the test if the file has another one.
func record(t testing.TB, r row) {
	t.Helper()
	if !slices.ContainsFunc(rows, func(o row) bool { return o.key() == r.key() }) { // else it is another lab's
		rows = append(rows, r)
	}
	if r.outcome == fail {
		t.Errorf("%s: %s", r.name, r.why)
		return
	}
	before, _, _ := strings.Cut(was.cells[r.key()][release()], ":")
	if before != "" && before != r.outcome && !*update {
		t.Errorf("%s: %s (%s), but %s in %s: `make programs-table` if that is right", r.name, r.outcome, r.why, before, tableFile)
	}
}

// readTable reads the file.
func readTable() error {
	text, err := os.ReadFile(tableFile)
	if errors.Is(err, fs.ErrNotExist) && *update {
		return nil
	}
	if err != nil {
		return err
	}
	was = parseTable(string(text))
	return nil
}

func parseTable(text string) table {
	t := table{versions: map[string]string{}, cells: map[string]map[string]string{}}
	group, columns := "", []string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if h, ok := strings.CutPrefix(line, "## "); ok {
			group = h
		}
		if r, v, ok := strings.Cut(strings.TrimPrefix(line, "* Debian "), ": "); ok && strings.HasPrefix(line, "* Debian ") {
			t.versions[r] = v
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
		case group != "" && cells[0] == "":
			columns = cells[1:]
		case strings.HasPrefix(cells[0], "`"):
			r := row{group: group, name: strings.Trim(cells[0], "`")}
			t.set(r, columns, cells[1:])
		}
	}
	return t
}

// set adds a row, or cells to an existing row.
func (t *table) set(r row, columns, cells []string) {
	if t.cells[r.key()] == nil {
		t.cells[r.key()] = map[string]string{}
		t.rows = append(t.rows, row{group: r.group, name: r.name})
	}
	for i, c := range cells {
		if i < len(columns) && c != "" {
			t.cells[r.key()][columns[i]] = c
			if !slices.Contains(t.releases, columns[i]) {
				t.releases = append(t.releases, columns[i])
			}
		}
	}
}

// writeTable replaces the results of this release in the file with those of this run.
func writeTable() error {
	return os.WriteFile(tableFile, []byte(was.merged(release(), rows, versions()).format()), 0o644)
}

// merged returns the table with a new column of a release. Rows of other releases stay, at the end of their group.
func (t *table) merged(release string, rows []row, versions string) *table {
	out := &table{versions: map[string]string{release: versions}, cells: map[string]map[string]string{}}
	for _, r := range rows {
		text := r.outcome
		if r.why != "" {
			text += ": " + cell(r.why)
		}
		out.set(r, []string{release}, []string{text})
	}
	for _, other := range t.releases {
		if other == release {
			continue
		}
		out.versions[other] = t.versions[other]
		for _, r := range t.rows {
			if c := t.cells[r.key()][other]; c != "" {
				out.set(r, []string{other}, []string{c})
			}
		}
	}
	order := map[string]int{}
	for _, r := range out.rows {
		if _, ok := order[r.group]; !ok {
			order[r.group] = len(order)
		}
	}
	slices.SortStableFunc(out.rows, func(a, b row) int { return order[a.group] - order[b.group] })
	slices.Sort(out.releases)
	return out
}

func (t *table) format() string {
	var b strings.Builder
	b.WriteString(`# Unmodified programs

For users of RDMA programs: what was tested, and what failed.

Every program and test that ran between two NICs in two network namespaces, or over a
switch if the heading says so, on a kernel without RDMA, by release of Debian. Made by ` + "`make programs-table`" + `; ` + "`make verbs-test`" + `
(what needs few packages) and ` + "`make programs`" + ` (all) run the same and fail on any difference.
[Known problems](known-problems.md) has the causes of failures.

`)
	for _, r := range t.releases {
		fmt.Fprintf(&b, "* Debian %s: %s\n", r, t.versions[r])
	}
	for _, r := range t.releases {
		count, reasons := map[string]int{}, map[string]int{}
		for _, c := range t.cells {
			outcome, why, _ := strings.Cut(c[r], ": ")
			count[outcome]++
			if outcome == skip {
				reasons[why]++
			}
		}
		fmt.Fprintf(&b, "\nDebian %s: %d pass, %d are skipped, %d fail.\n\n| skipped because | how many |\n|---|---|\n", r, count[pass], count[skip], count[fail])
		for _, why := range slices.Sorted(maps.Keys(reasons)) {
			fmt.Fprintf(&b, "| %s | %d |\n", why, reasons[why])
		}
	}
	group := ""
	for _, r := range t.rows {
		if r.group != group {
			group = r.group
			fmt.Fprintf(&b, "\n## %s\n\n| | %s |\n|---%s|\n", group, strings.Join(t.releases, " | "), strings.Repeat("|---", len(t.releases)))
		}
		fmt.Fprintf(&b, "| `%s` |", r.name)
		for _, rel := range t.releases {
			fmt.Fprintf(&b, " %s |", t.cells[r.key()][rel])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell converts a text to one line without cell borders.
func cell(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.NewReplacer("|", "/", "`", "'").Replace(line)
}

// packages are the packages whose versions the table lists, if they are installed.
var packages = []string{"ibverbs-utils", "ibverbs-providers", "librdmacm1", "rdmacm-utils", "perftest", "python3-pyverbs",
	"ucx-utils", "libfabric1", "openmpi-bin", "mpich", "python3-mpi4py", "libgloo-dev", "ceph-osd", "qperf", "fio", "tgt", "libiscsi-bin", "iperf", "iperf3", "netcat-openbsd", "netcat-traditional"}

// versions returns the versions of the tested packages.
func versions() string {
	var list []string
	for _, p := range packages {
		out, err := exec.Command("dpkg-query", "-W", "-f", "${Package} ${Version}", p).Output()
		if err == nil && !strings.HasSuffix(string(out), " ") { // a known package that is not installed has no version
			list = append(list, string(out))
		}
	}
	return cmp.Or(strings.Join(list, ", "), "versions not known (no dpkg)")
}

// TestTable checks that reading inverts writing, and that the results of a release replace those of that release only.
func TestTable(t *testing.T) {
	old := []row{
		{"ibv pingpong", "ibv_rc_pingpong -e", pass, ""},
		{"perftest", "ib_send_bw -c RC", pass, ""},
		{"perftest", "ib_send_bw -c XRC", skip, "no | XRC\nat all"},
		{"pyverbs: addr", "A.test_b", fail, "traceback"},
	}
	next := []row{
		{"ibv pingpong", "ibv_rc_pingpong -e", skip, "no time"},
		{"perftest", "ib_send_bw -c DC", pass, ""},
	}
	one := (&table{}).merged("12", old, "a 1")
	got := parseTable(one.format())
	if d := gocmp.Diff(got, *one, gocmp.AllowUnexported(table{}, row{})); d != "" {
		t.Error(d)
	}
	both := parseTable(got.merged("13", next, "a 2").format())
	for _, r := range old {
		if want := one.cells[r.key()]["12"]; both.cells[r.key()]["12"] != want {
			t.Errorf("%s is %q in 12, want %q", r.key(), both.cells[r.key()]["12"], want)
		}
	}
	if c := both.cells["ibv pingpong|ibv_rc_pingpong -e"]["13"]; c != "skip: no time" {
		t.Errorf("13 has %q", c)
	}
	if len(both.rows) != 5 || both.rows[1].name != "ib_send_bw -c DC" || both.versions["12"] != "a 1" || both.versions["13"] != "a 2" {
		t.Errorf("%+v", both)
	}
	again := both.merged("13", next[:1], "a 3")
	if again.cells["perftest|ib_send_bw -c DC"] != nil || again.versions["13"] != "a 3" {
		t.Error("old results of the same release are still there")
	}
	for _, r := range old {
		if want := one.cells[r.key()]["12"]; again.cells[r.key()]["12"] != want || again.versions["12"] != "a 1" {
			t.Errorf("%s has lost its result in 12", r.key())
		}
	}
}
