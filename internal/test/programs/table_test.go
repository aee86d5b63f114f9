package programs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// tableFile is what all runs but those with -update are held against.
const tableFile = "../../../docs/verbs-programs.md"

// Outcomes of a program or test.
const (
	pass = "pass"
	skip = "skip"
	fail = "fail"
)

// row is a line of the table.
type row struct {
	group   string // heading
	name    string // what was run, with its options
	outcome string
	why     string // of a skip
}

// key tells rows apart.
func (r row) key() string { return r.group + "|" + r.name }

// expected has the rows of the file, rows those of this run, in order.
var (
	expected = map[string]string{}
	rows     []row
)

// record takes a result down and fails the test if it is not that of the file.
func record(t testing.TB, r row) {
	t.Helper()
	rows = append(rows, r)
	if r.outcome == fail {
		t.Errorf("%s: %s", r.name, r.why)
		return
	}
	if was, ok := expected[r.key()]; ok && was != r.outcome && !*update {
		t.Errorf("%s: %s (%s), but %s in %s: `make verbs-table` if that is right", r.name, r.outcome, r.why, was, tableFile)
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
	expected = parseTable(string(text))
	return nil
}

func parseTable(text string) map[string]string {
	out, group := map[string]string{}, ""
	for line := range strings.Lines(text) {
		if h, ok := strings.CutPrefix(line, "## "); ok {
			group = strings.TrimSpace(h)
		}
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		outcome, _, _ := strings.Cut(strings.TrimSpace(cells[2]), ":")
		out[row{group: group, name: strings.Trim(cells[1], " `")}.key()] = outcome
	}
	return out
}

// writeTable writes the file.
func writeTable() error { return os.WriteFile(tableFile, []byte(formatTable(rows, versions())), 0o644) }

func formatTable(rows []row, versions string) string {
	var b strings.Builder
	b.WriteString(`# Unmodified programs

Every program and test that ran between two NICs in two network namespaces, on a
kernel without RDMA. Made by ` + "`make verbs-table`" + `; ` + "`make verbs-test`" + ` runs the same and fails
on any difference.

`)
	fmt.Fprintf(&b, "Versions: %s.\n\n", versions)
	count, reasons := map[string]int{}, map[string]int{}
	for _, r := range rows {
		count[r.outcome]++
		if r.outcome == skip {
			reasons[r.why]++
		}
	}
	fmt.Fprintf(&b, "%d pass, %d are skipped, %d fail.\n\n| skipped because | how many |\n|---|---|\n", count[pass], count[skip], count[fail])
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(&b, "| %s | %d |\n", cell(why), reasons[why])
	}
	group := ""
	for _, r := range rows {
		if r.group != group {
			group = r.group
			fmt.Fprintf(&b, "\n## %s\n\n| | result |\n|---|---|\n", group)
		}
		result := r.outcome
		if r.why != "" {
			result += ": " + cell(r.why)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", r.name, result)
	}
	return b.String()
}

// cell makes one line without borders of a text.
func cell(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.NewReplacer("|", "/", "`", "'").Replace(line)
}

// versions lists the packages that were tested.
func versions() string {
	packages := []string{"ibverbs-utils", "ibverbs-providers", "librdmacm1", "rdmacm-utils", "perftest", "python3-pyverbs"}
	out, err := exec.Command("dpkg-query", append([]string{"-W", "-f", "${Package} ${Version}, "}, packages...)...).Output()
	if err != nil {
		return "not known (no dpkg)"
	}
	return strings.TrimSuffix(string(out), ", ")
}

// TestTable checks that a table which is written is read again.
func TestTable(t *testing.T) {
	in := []row{
		{"ibv pingpong", "ibv_rc_pingpong -e", pass, ""},
		{"perftest", "ib_send_bw -c RC", pass, ""},
		{"perftest", "ib_send_bw -c XRC", skip, "no | XRC\nat all"},
		{"pyverbs: addr", "A.test_b", fail, "traceback"},
	}
	got := parseTable(formatTable(in, "a 1"))
	if len(got) != len(in) {
		t.Errorf("%d rows of %d: %v", len(got), len(in), got)
	}
	for _, r := range in {
		if got[r.key()] != r.outcome {
			t.Errorf("%+v was read as %q", r, got[r.key()])
		}
	}
}
