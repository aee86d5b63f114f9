package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A C layer is one header of preload/ and the files that define its functions.
type cLayer struct {
	header  string
	sources []string
}

// cLayers lists the layers of the preload library from the bottom to the top (preload/process.h). A file may include
// the header of its own layer and headers below it.
var cLayers = []cLayer{
	{"process.h", []string{"process.c", "fds.c", "explain.c"}},
	{"connection.h", []string{"tree.c", "rundir.c", "conn.c", "call_lock.c"}},
	{"objects.h", []string{"objects.c", "ring.c"}},
	{"context.h", []string{"context.c", "doorbell.c", "direct.c", "report.c"}},
	{"maps.h", []string{"maps.c", "guard.c"}},
	{"backing.h", []string{"backing.c", "spare.c"}},
	{"mr.h", []string{"mappings.c", "stretch.c", "replace.c", "mr.c", "mr_fork.c", "mr_pass.c", "shared.c"}},
	{"events.h", []string{"events.c", "death.c"}},
	{"commands.h", []string{"uverbs_open.c", "uverbs.c", "uverbs_answer.c", "rdmacm.c", "netlink.c"}},
	{"layout.h", nil},
	{"interpose.h", []string{"next.c", "io.c", "fd_calls.c", "paths.c", "path_calls.c", "socket_calls.c", "glob.c", "counters.c", "mr_calls.c", "map_calls.c", "dmabuf.c",
		"address.c", "umad.c", "poll.c", "provider.c", "stamp.c"}},
}

// cPurpose ends every failure message about the layers of the preload library.
const cPurpose = "the preload library has layers so that a reader can understand one file with its own layer and the layers below; " +
	"move the code down, or let the upper layer register a callback (cLayers in internal/test/arch/preload_test.go)"

// cFile is one file of preload/.
type cFile struct {
	name  string
	layer int
	text  string // without comments and string literals
	lines int
}

var (
	cNoise    = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+'`)
	cInclude  = regexp.MustCompile(`(?m)^\s*#\s*include\s*"([^"]+)"`)
	cDeclared = regexp.MustCompile(`(?m)^[a-zA-Z_][\w \t*()]*?\b(\w+)\([^;{]*\)(?:\s*__attribute__\(\(.*\)\))?;`)
	cWord     = regexp.MustCompile(`\b[a-z]\w*\b`)
)

// cFiles reads the files of preload/.
func cFiles(t *testing.T) []cFile {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, "preload", "*.[ch]"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no C files in preload/ (%v)", err)
	}
	var files []cFile
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f := cFile{name: filepath.Base(name), lines: strings.Count(string(raw), "\n")}
		f.layer = slices.IndexFunc(cLayers, func(l cLayer) bool { return l.header == f.name || slices.Contains(l.sources, f.name) })
		if f.layer < 0 {
			t.Errorf("preload/%s belongs to no layer; %s", f.name, cPurpose)
		}
		f.text = cNoise.ReplaceAllStringFunc(string(raw), func(s string) string {
			if strings.HasPrefix(s, `"`) && strings.HasSuffix(s, `.h"`) {
				return s
			}
			return " "
		})
		files = append(files, f)
	}
	return files
}

// layerOfHeader returns the index in cLayers of a header, -1 if it is none.
func layerOfHeader(name string) int {
	return slices.IndexFunc(cLayers, func(l cLayer) bool { return l.header == name })
}

// TestPreloadIncludes checks that a file of the preload library includes its own layer's header and lower ones only. So
// the include graph has no cycles.
func TestPreloadIncludes(t *testing.T) {
	for _, f := range cFiles(t) {
		for _, m := range cInclude.FindAllStringSubmatch(f.text, -1) {
			to := layerOfHeader(m[1])
			switch {
			case to < 0:
				t.Errorf("preload/%s includes %s, which is not the header of a layer; %s", f.name, m[1], cPurpose)
			case to > f.layer || to == f.layer && strings.HasSuffix(f.name, ".h"):
				t.Errorf("preload/%s includes %s, which is not below it; %s", f.name, m[1], cPurpose)
			}
		}
	}
}

// TestPreloadCalls checks that the functions of a layer's header are defined in that layer, and that only that layer and
// the layers above name them.
func TestPreloadCalls(t *testing.T) {
	files := cFiles(t)
	declared := map[string]int{} // layer by function
	for _, f := range files {
		if strings.HasSuffix(f.name, ".h") {
			for _, m := range cDeclared.FindAllStringSubmatch(f.text, -1) {
				if strings.HasPrefix(m[0], "typedef") {
					continue
				}
				if _, twice := declared[m[1]]; twice {
					t.Errorf("preload/%s declares %s, which another layer declares, too; %s", f.name, m[1], cPurpose)
				}
				declared[m[1]] = f.layer
			}
		}
	}
	if len(declared) < 50 {
		t.Fatalf("found only %d declarations in the headers of preload/: the pattern no longer matches", len(declared))
	}
	defined := map[string]bool{}
	for _, f := range files {
		for _, word := range cWord.FindAllString(f.text, -1) {
			if layer, ok := declared[word]; ok && layer > f.layer {
				t.Errorf("preload/%s uses %s of %s, a layer above it; %s", f.name, word, cLayers[layer].header, cPurpose)
			}
		}
		if strings.HasSuffix(f.name, ".c") {
			for name, layer := range declared {
				if layer == f.layer && definition(f.text, name) {
					defined[name] = true
				}
			}
		}
	}
	for name, layer := range declared {
		if !defined[name] {
			t.Errorf("%s, which preload/%s declares, is defined in no file of that layer; %s", name, cLayers[layer].header, cPurpose)
		}
	}
}

// definition reports whether C text defines a function at the top level.
func definition(text, name string) bool {
	return regexp.MustCompile(`(?m)^[a-zA-Z_][\w \t*]*\b` + name + `\([^;{]*\)\s*\{`).MatchString(text)
}

// TestPreloadFilesAreReadable bounds the length of C files, as TestFilesAreReadable does for Go.
func TestPreloadFilesAreReadable(t *testing.T) {
	const most = 500
	for _, f := range cFiles(t) {
		if f.lines > most {
			t.Errorf("preload/%s has %d lines, more than %d: a reader must be able to keep a file in mind; split it by topic", f.name, f.lines, most)
		}
	}
}

// TestPreloadCircles checks that the files of the preload library do not call each other in circles. A file defines the
// functions that a header declares below its mark `/* ---- file.c ---- */`.
func TestPreloadCircles(t *testing.T) {
	mark := regexp.MustCompile(`(?m)^/\* ---- (\w+\.c)\b`)
	owner := map[string]string{} // file by function
	for _, l := range cLayers {
		raw, err := os.ReadFile(filepath.Join(root, "preload", l.header))
		if err != nil {
			t.Fatal(err)
		}
		marks := mark.FindAllStringSubmatchIndex(string(raw), -1)
		for i, m := range marks {
			end := len(raw)
			if i+1 < len(marks) {
				end = marks[i+1][0]
			}
			section := cNoise.ReplaceAllString(string(raw[m[1]:end]), " ")
			for _, d := range cDeclared.FindAllStringSubmatch(section, -1) {
				owner[d[1]] = string(raw[m[2]:m[3]])
			}
		}
	}
	calls := map[string][]string{}
	for _, f := range cFiles(t) {
		for _, word := range cWord.FindAllString(f.text, -1) {
			if to := owner[word]; strings.HasSuffix(f.name, ".c") && to != "" && to != f.name && !slices.Contains(calls[f.name], to) {
				calls[f.name] = append(calls[f.name], to)
			}
		}
	}
	done := map[string]bool{}
	for name := range calls {
		if circle := findCircle(calls, name, nil, done); circle != nil {
			t.Errorf("files of preload/ call each other in a circle: %s; %s", strings.Join(circle, " -> "), cPurpose)
		}
	}
}

// findCircle follows the calls of a file, at the end of a path, and returns the first circle.
func findCircle(calls map[string][]string, name string, path []string, done map[string]bool) []string {
	if i := slices.Index(path, name); i >= 0 {
		return append(slices.Clone(path[i:]), name)
	}
	if done[name] {
		return nil
	}
	for _, to := range calls[name] {
		if circle := findCircle(calls, to, append(path, name), done); circle != nil {
			return circle
		}
	}
	done[name] = true
	return nil
}
