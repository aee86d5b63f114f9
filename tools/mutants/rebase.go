package main

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// rebaseTree rewrites the lists below root after code has moved. It reports the mutations that it cannot place.
func rebaseTree(root string, files []string) error {
	p, err := readProject(root, files)
	if err != nil {
		return err
	}
	for i := range p.list {
		m := &p.list[i]
		before := *m
		p.rebase(m)
		if m.list != before.list || m.decl != before.decl {
			fmt.Printf("%v: %s: moves to %s: %s\n", &before, before.decl, m.list, m.decl)
		}
	}
	faults := []error{writeLists(root, files, p.list, p.rows)}
	for i := range p.list {
		m := &p.list[i]
		if err := p.tree.check(m); err != nil {
			faults = append(faults, fmt.Errorf("%w%s", err, p.similar(m)))
		}
	}
	return errors.Join(faults...)
}

// rebase moves m to the only declaration that has its lines, if the present one has not, and finds its tests there.
func (t *tree) rebase(m *mutation) {
	var dirs []string
	for _, name := range m.tests {
		dirs = append(dirs, t.searchTest(m, name))
	}
	if _, err := t.place(m); err != nil {
		t.move(m)
	}
	m.tests = slices.Clone(m.tests)
	for i, dir := range dirs {
		if _, test := splitTest(m.tests[i]); dir == m.dir() {
			m.tests[i] = test
		} else if dir != "" {
			m.tests[i] = path.Base(dir) + "." + test
		}
	}
}

// move moves m to the only place with its lines: in a declaration of the same name, else in the same package, else
// anywhere. If no place has these lines, the case of letters may differ, as after an export of names.
func (t *tree) move(m *mutation) {
	for _, equal := range []func(a, b string) bool{identical, strings.EqualFold} {
		for _, accept := range []func(*decl) bool{
			func(d *decl) bool { return strings.EqualFold(d.name, m.decl) },
			func(d *decl) bool { return path.Dir(d.file) == m.dir() },
			func(d *decl) bool { return true },
		} {
			if places := t.find(m.remove, equal, accept); len(places) == 1 {
				p := places[0]
				m.decl, m.list = p.name, path.Join(path.Dir(p.file), listName)
				m.rename(p.lines[p.at : p.at+len(m.remove)])
				return
			}
		}
	}
}

// rename gives the words of m the case that they have in lines, which are otherwise those that m replaces.
func (m *mutation) rename(lines []string) {
	renamed := map[string]string{}
	for i, line := range lines {
		now := words.FindAllString(line, -1)
		for k, w := range words.FindAllString(m.remove[i], -1) {
			renamed[w] = now[k]
		}
	}
	adapt := func(line string) string {
		return words.ReplaceAllStringFunc(line, func(w string) string { return cmp.Or(renamed[w], w) })
	}
	m.remove, m.insert = slices.Clone(m.remove), slices.Clone(m.insert)
	for _, part := range [][]string{m.remove, m.insert} {
		for i := range part {
			part[i] = adapt(part[i])
		}
	}
}

// searchTest returns the folder of a test, else the only folder with such a test, else "".
func (t *tree) searchTest(m *mutation, name string) string {
	if dir, err := t.testDir(m, name); err == nil {
		return dir
	}
	_, test := splitTest(name)
	function, _, _ := strings.Cut(test, "/")
	if dirs := t.tests[function]; len(dirs) == 1 {
		return dirs[0]
	}
	return ""
}

var words = regexp.MustCompile(`\w+`)

// similar returns the three lines of the tree that share most words with the first line that m replaces.
func (t *tree) similar(m *mutation) string {
	type candidate struct {
		score float64
		text  string
	}
	var best []candidate
	want := words.FindAllString(m.remove[0], -1)
	for _, d := range t.decls {
		for i, line := range d.lines {
			score := likeness(want, words.FindAllString(line, -1))
			if len(best) == 3 && score <= best[2].score || score == 0 {
				continue
			}
			best = append(best, candidate{score, fmt.Sprintf("\n\t%s:%d: %s: %s", d.file, d.first+i+1, d.name, strings.TrimSpace(line))})
			slices.SortStableFunc(best, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
			best = best[:min(len(best), 3)]
		}
	}
	var b strings.Builder
	for _, c := range best {
		b.WriteString(c.text)
	}
	return b.String()
}

// likeness returns the share of words that two lines have in common, without regard to case, from 0 to 1.
func likeness(a, b []string) float64 {
	common := 0
	for _, w := range a {
		if slices.ContainsFunc(b, func(x string) bool { return strings.EqualFold(w, x) }) {
			common++
		}
	}
	return 2 * float64(common) / float64(max(len(a)+len(b), 1))
}
