package papers

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"roced.io/roced/internal/base/version"
)

// firstUnseen is the first seed of final verdicts. Earlier seeds had been run before the criteria were set.
const firstUnseen = 101

// Origin says which build did a run, when and where.
type Origin struct {
	Build   string `json:"build"` // revision of the source; empty: not known
	Date    string `json:"date"`  // of the begin, UTC
	Machine string `json:"machine"`
}

func originOf(began time.Time) *Origin {
	build := version.Own()
	name := build.Revision
	if build.Modified {
		name += modified
	}
	return &Origin{Build: name, Date: began.UTC().Format(time.DateOnly), Machine: machine()}
}

// modified marks builds from files that differ from their revision.
const modified = " modified"

// machine describes the processor.
var machine = sync.OnceValue(func() string {
	model := "processor of unknown model"
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores, %s", model, runtime.NumCPU(), runtime.GOARCH)
})

// megabytes returns the most memory that this process has had; 0 if it is not known.
func megabytes() float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kilobytes); n == 1 {
			return math.Round(kilobytes / 1024)
		}
	}
	return 0
}

// sizeOf returns the bytes of the files below a folder.
func sizeOf(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

// origins lists the different values that of returns for the origins of the runs; one is empty for runs without origin.
func (f *Found) origins(of func(o *Origin) string) (list []string) {
	for _, ms := range f.Runs {
		for _, m := range ms {
			text := ""
			if m.Origin != nil {
				text = of(m.Origin)
			}
			if !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
	}
	slices.Sort(list)
	return list
}

// done says when and by which build the runs of rows were done; empty without runs.
func done(rows []*Found) string {
	if len(rows) == 0 {
		return ""
	}
	dates := allOrigins(rows, func(o *Origin) string { return o.Date })
	when := dates[0]
	if last := dates[len(dates)-1]; last != when {
		when += " to " + last
	}
	return fmt.Sprintf("Runs: %s, build %.8s unless a row names another.\n\n", when, usualBuild(rows))
}

// usualBuild returns the builds of most rows.
func usualBuild(rows []*Found) (most string) {
	n := map[string]int{}
	for _, f := range rows {
		b := f.builds()
		if n[b]++; n[b] > n[most] {
			most = b
		}
	}
	return most
}

// builds names the builds of the runs.
func (f *Found) builds() string {
	return strings.Join(f.origins(func(o *Origin) string { return o.Build }), " and ")
}

// allOrigins lists the different values that of returns for the runs of rows.
func allOrigins(rows []*Found, of func(o *Origin) string) (list []string) {
	for _, f := range rows {
		list = append(list, f.origins(of)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// unknown says why the settings of stored runs are not those of the row; empty if they are.
func (r *Row) unknown(f *Found, form string) string {
	switch {
	case f.Setting == "":
		return "the stored runs have no setting"
	case f.Setting != r.setting(form == "fast"):
		return fmt.Sprintf("values of build %.8s with another setting", f.builds())
	}
	return ""
}

// unfit says why stored runs allow no verdict on their row; empty if they do.
func (r *Row) unfit(f *Found, form string) string {
	if why := r.unknown(f, form); why != "" {
		return why
	}
	builds := f.origins(func(o *Origin) string { return o.Build })
	switch {
	case slices.Contains(builds, ""):
		return "the stored runs do not say which revision did them (make build stores it in programs)"
	case len(builds) > 1:
		return "the stored runs are of several builds: " + strings.Join(builds, "; ")
	case len(builds) == 1 && strings.HasSuffix(builds[0], modified):
		return "the stored runs are of a build from modified files"
	case form == "full" && f.First < firstUnseen:
		return fmt.Sprintf("seed %d had been seen before the criteria were set; final verdicts begin with %d", max(f.First, 1), firstUnseen)
	}
	return ""
}
