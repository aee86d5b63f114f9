package cli

import (
	"fmt"
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

// readKnown reads a file of lines "SCRIPT...: REASON". Lines that begin with "#" are comments. No name means no file.
func readKnown(path string) (knownFailures, error) {
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
		names, reason, _ := strings.Cut(line, ": ")
		if reason = strings.TrimSpace(reason); reason == "" {
			return nil, about.Usage(fmt.Errorf("%s:%d: must be SCRIPT...: REASON", path, i+1))
		}
		for _, name := range strings.Fields(names) {
			list[scriptName(name)] = reason
		}
	}
	return list, nil
}

// readRules reads a file of lines "RULE...: REASON", with rules of the model.
func readRules(path string) (map[string]string, error) {
	list, err := readKnown(path)
	var ids []string
	for _, r := range model.Rules {
		ids = append(ids, r.ID)
	}
	for id := range list {
		if !slices.Contains(ids, id) {
			return nil, about.Usage(fmt.Errorf("%s: the model has no rule %s%s", path, id, suggest.Hint(id, ids)))
		}
	}
	return list, err
}

// scriptName returns the path of a script without its extension.
func scriptName(path string) string { return strings.TrimSuffix(filepath.Clean(path), ".drill") }

// reason returns why a failure of a script is expected, empty if it is not.
func (l knownFailures) reason(path string) string {
	path = scriptName(path)
	for name, reason := range l {
		if path == name || strings.HasSuffix(path, "/"+name) {
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
