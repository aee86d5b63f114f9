package measure

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Run has the settings of a part. All parts have the same flags.
type Run struct {
	Ctx     context.Context
	Bin     string   // folder of the programs
	Only    []string // texts that select lines of the report; none: all
	Seconds int      // length of each measurement
	Rounds  int      // measurements of each kind; the median counts
}

// Part is a benchmark with a report.
type Part struct {
	Run                // defaults; without Rounds the part has no such flags
	Name, Short, Title string
	Lines              []string             // names that Run.Only selects from; nil: nothing to select
	Programs           []string             // that must be installed
	Flags              func(*pflag.FlagSet) // adds flags of the part; may be nil
	Check              func() error         // checks these flags; may be nil
	Measure            func(*Run, io.Writer) error
}

// Validate returns an error for wrong flags, and for settings with which the part measures nothing.
func (p *Part) Validate(r *Run) error {
	switch {
	case p.Rounds > 0 && (r.Seconds < 1 || r.Rounds < 1):
		return fmt.Errorf("--seconds %d, --rounds %d: both must be at least 1", r.Seconds, r.Rounds)
	case p.Lines != nil && !slices.ContainsFunc(p.Lines, r.Selects):
		return fmt.Errorf("--only %q selects none of: %s", r.Only, strings.Join(p.Lines, "; "))
	case p.Check != nil:
		return p.Check()
	}
	return nil
}

// Selects reports whether Only selects a line.
func (r *Run) Selects(line string) bool {
	return len(r.Only) == 0 || slices.ContainsFunc(r.Only, func(text string) bool { return strings.Contains(line, text) })
}

// Write measures the part and writes its report: title, origin, results.
func (r *Run) Write(p Part, w io.Writer) error {
	if m := missing(p.Programs); len(m) > 0 {
		return fmt.Errorf("%s: not installed; make setup installs them", strings.Join(m, ", "))
	}
	fmt.Fprintf(w, "# %s\n\nFor readers who compare speeds: measurements, with their command and machine.\n\n%s, %s, %d cores, %s,\ncommit %s: `bench %s`", p.Title, time.Now().UTC().Format(time.DateOnly), kernel(), runtime.NumCPU(),
		runtime.Version(), commit(), strings.Join(os.Args[1:], " "))
	if r.Rounds > 0 {
		fmt.Fprintf(w, ", median of %d rounds of %d s", r.Rounds, r.Seconds)
	}
	fmt.Fprint(w, ".\nMachines are noisy: compare lines with each other, not with other runs.\n\n")
	return p.Measure(r, w)
}

// missing returns the programs that are not installed.
func missing(programs []string) []string {
	return slices.DeleteFunc(slices.Clone(programs), Installed)
}

// Installed reports whether a program is installed.
func Installed(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// commit returns the commit of the source in the working directory.
func commit() string {
	out, err := exec.Command("tools/scripts/source").Output()
	f := strings.Fields(string(out))
	switch {
	case err != nil || len(f) != 3:
		return "unknown"
	case f[2] == "true":
		return f[0][:12] + " modified"
	}
	return f[0][:12]
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + strings.TrimSpace(string(release))
}

// Table writes the heading of a table. Columns with the prefix ">" are aligned to the right.
func Table(w io.Writer, columns ...string) {
	rule := "|"
	for _, c := range columns {
		name, right := strings.CutPrefix(c, ">")
		fmt.Fprintf(w, "| %s ", name)
		if right {
			rule += "--:|"
		} else {
			rule += "---|"
		}
	}
	fmt.Fprintf(w, "|\n%s\n", rule)
}

// Goal describes whether a value reaches a goal, which is a minimum or, with most, a maximum. A goal of 0 is none.
func Goal(v, goal float64, most bool) string {
	bound, reached := "at least", v >= goal
	if most {
		bound, reached = "at most", v <= goal
	}
	switch {
	case goal == 0:
		return "-"
	case reached:
		return fmt.Sprintf("%s %g: reached", bound, goal)
	}
	return fmt.Sprintf("%s %g: **missed**", bound, goal)
}
