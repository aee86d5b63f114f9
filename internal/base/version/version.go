// Package version identifies the source of a program.
package version

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Number is the version of this source, or its next release: the first one in CHANGELOG.md.
const Number = "0.1.0"

// module is the path of this module.
const module = "roced.io/roced"

// source is the output of tools/scripts/source, if make built the program.
var source string

// Info identifies a program. Revision is that of the checkout from which the program was built; it is empty if the source
// was an archive.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`     // of Revision, RFC 3339
	Modified bool   `json:"modified,omitempty"` // built from files that differ from Revision
	// Module is the module of a program with plug-ins of its own (docs/guides/extending.md); Revision belongs to that module.
	Module   string `json:"module,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"` // operating system and processor
}

// Own returns the Info of this program.
func Own() Info {
	build, _ := debug.ReadBuildInfo()
	return of(build, source)
}

// of reads the data that the go command and make have written into a program; nil and empty if there is none.
func of(build *debug.BuildInfo, source string) Info {
	v := Info{Version: Number, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if build == nil {
		return v
	}
	if build.Main.Path != module {
		v.Module = build.Main.Path
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	if s := strings.Fields(source); len(s) == 3 {
		v.Revision, v.Time, v.Modified = s[0], s[1], s[2] == "true"
	}
	return v
}

// revisionLen is the length of a revision in String.
const revisionLen = 12

// String returns one line, without the program's name.
func (v Info) String() string {
	words := []string{v.Version}
	if v.Module != "" {
		words = append(words, "in "+v.Module)
	}
	if v.Revision != "" {
		words = append(words, v.Revision[:min(revisionLen, len(v.Revision))])
	}
	if v.Modified {
		words = append(words, "modified")
	}
	return fmt.Sprintf("%s %s %s", strings.Join(words, " "), v.Go, v.Platform)
}
