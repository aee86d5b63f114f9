package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"roced.io/roced/drill/model"
	"roced.io/roced/drill/script"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/suggest"
)

// knownFailures are the reasons of expected failures, by the end of the script's path.
type knownFailures map[string]string

// readKnown reads a file of lines "NAME...: REASON". Lines that begin with "#" are comments. No path means no file. like returns the
// names among which a name should be; unknown takes the error of another one.
func readKnown(path, where string, like func(name string) []string, unknown func(err error) error) (knownFailures, error) {
	list := knownFailures{}
	if path == "" {
		return list, nil
	}
	text, err := bounded.ReadFile(path, bounded.Text)
	if err != nil {
		return nil, about.Usage(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		text, reason, _ := strings.Cut(line, ": ")
		names := strings.Fields(text)
		if reason = strings.TrimSpace(reason); reason == "" || len(names) == 0 {
			return nil, about.Usage(fmt.Errorf("%s:%d: must be NAME...: REASON", path, i+1))
		}
		for _, name := range names {
			name = scriptName(name)
			if all := like(name); !slices.Contains(all, name) {
				if err := unknown(fmt.Errorf("%s:%d: there is no %s among the %s%s", path, i+1, name, where, suggest.Hint(name, all))); err != nil {
					return nil, err
				}
			}
			list[name] = reason
		}
	}
	return list, nil
}

// readKnownScripts reads a file of known failures, with names that end the paths of scripts. It tells names that no script of the run
// has: the file may be that of a larger suite.
func readKnownScripts(path string, scripts []*script.Script, diag io.Writer) (knownFailures, error) {
	like := func(name string) (ends []string) {
		for _, s := range scripts {
			ends = append(ends, pathEnd(s.Path, name))
		}
		return ends
	}
	return readKnown(path, "scripts", like, func(err error) error {
		fmt.Fprintf(diag, "note: %v\n", err)
		return nil
	})
}

// readRules reads a file of known failures, with rules of the model.
func readRules(path string) (map[string]string, error) {
	var ids []string
	for _, r := range model.Rules {
		ids = append(ids, r.ID)
	}
	return readKnown(path, "rules", func(string) []string { return ids }, about.Usage)
}

// scriptName returns the path of a script without its extension.
func scriptName(path string) string { return strings.TrimSuffix(filepath.Clean(path), ".drill") }

// pathEnd returns the end of a script's path that has as many elements as a name, without the extension.
func pathEnd(path, name string) string {
	words := strings.Split(scriptName(path), "/")
	return strings.Join(words[max(0, len(words)-1-strings.Count(name, "/")):], "/")
}

// reason returns why a failure of a script is expected, empty if it is not.
func (l knownFailures) reason(path string) string {
	for name, reason := range l {
		if pathEnd(path, name) == name {
			return reason
		}
	}
	return ""
}

// choose returns the scripts that --must and --only select. A rule is a section, and stands for those in it.
func (f *runFlags) choose(scripts []*script.Script) ([]*script.Script, error) {
	var sections []string
	chosen := slices.DeleteFunc(slices.Clone(scripts), func(s *script.Script) bool {
		sections = append(sections, s.Spec)
		return f.must && !s.Must || len(f.only) > 0 && !slices.ContainsFunc(f.only, func(rule string) bool { return inSection(s.Spec, rule) })
	})
	if len(chosen) > 0 {
		return chosen, nil
	}
	for _, rule := range f.only {
		if !slices.ContainsFunc(sections, func(s string) bool { return inSection(s, rule) }) {
			return nil, about.Usage(fmt.Errorf("--only %q: no script has this section%s; rocedrill list --spec lists them", rule, suggest.Hint(rule, sections)))
		}
	}
	return nil, about.Usage(fmt.Errorf("--must: no script tests a demand of the specification"))
}

// inSection reports whether a section is another one or lies in it.
func inSection(section, outer string) bool {
	return section == outer || strings.HasPrefix(section, outer+".") || strings.HasPrefix(section, outer+" ")
}
