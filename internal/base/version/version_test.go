package version

import (
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOf(t *testing.T) {
	const revision = "0123456789abcdef0123456789abcdef01234567"
	settings := []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "vcs.revision", Value: revision},
		{Key: "vcs.time", Value: "2026-11-22T20:00:00Z"}, {Key: "vcs.modified", Value: "true"}}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	for _, c := range []struct {
		name   string
		build  *debug.BuildInfo
		source string
		want   Info
		text   string
	}{
		{"not by the go command", nil, "", Info{}, Number},
		{"from an archive", &debug.BuildInfo{Main: debug.Module{Path: "roced.io/roced", Version: "(devel)"}}, "", Info{}, Number},
		{"from a checkout", &debug.BuildInfo{Main: debug.Module{Path: "roced.io/roced"}, Settings: settings}, "",
			Info{Revision: revision, Time: "2026-11-22T20:00:00Z", Modified: true}, Number + " 0123456789ab modified"},
		{"in another module", &debug.BuildInfo{Main: debug.Module{Path: "example.org/aimd"}, Settings: settings[:2]}, "",
			Info{Revision: revision, Module: "example.org/aimd"}, Number + " in example.org/aimd 0123456789ab"},
		{"by make", &debug.BuildInfo{Main: debug.Module{Path: "roced.io/roced"}}, revision + " 2026-11-22T20:00:00Z true",
			Info{Revision: revision, Time: "2026-11-22T20:00:00Z", Modified: true}, Number + " 0123456789ab modified"},
		{"by make, from an archive", &debug.BuildInfo{Main: debug.Module{Path: "roced.io/roced"}}, "", Info{}, Number},
		{"a short revision", &debug.BuildInfo{Main: debug.Module{Path: "roced.io/roced"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "17"}}}, "",
			Info{Revision: "17"}, Number + " 17"},
	} {
		c.want.Version, c.want.Go, c.want.Platform = Number, runtime.Version(), platform
		got := of(c.build, c.source)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
		if want := c.text + " " + runtime.Version() + " " + platform; got.String() != want {
			t.Errorf("%s: %q, not %q", c.name, got, want)
		}
	}
}

// TestNumber: the first version of CHANGELOG.md equals that of the source.
func TestNumber(t *testing.T) {
	text, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)\b`).FindSubmatch(text); m == nil || string(m[1]) != Number {
		t.Errorf("CHANGELOG.md begins with %q, the source is %s", m, Number)
	}
}
