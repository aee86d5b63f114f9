// Command mutants removes the mechanisms of docs/results/mechanisms-*.md, one after the other. For each it runs the
// tests that the document names: at least one must fail. It works on copies of the tree, never in place: one with all
// mutations of functions, of which a variable of the environment selects one, and one for the others and for survivors.
//
// Each package has its mutations in its file mutants.txt. A list is also wrong if a mutation no longer applies, or if a
// row of a document has no mutation.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// selection chooses mutations. Empty fields select all.
type selection struct{ doc, only, dir string }

func main() {
	var s selection
	flag.StringVar(&s.doc, "doc", "", "run only mutations of docs/results/mechanisms-`NAME`.md")
	flag.StringVar(&s.only, "only", "", "run only mutations whose section and mechanism, as in \"MELO: swapping\", contain `TEXT`")
	flag.StringVar(&s.dir, "package", "", "run only mutations of the package in `DIR`")
	rebase := flag.Bool("rebase", false, "run nothing; rewrite the lists after code has moved, and report mutations that need an edit")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "usage: go run ./tools/mutants [flags]\n\nChecks that a test fails without each mechanism of docs/results/mechanisms-*.md.\nExit status: 0 if so, 1 if a mutation survives or does not apply, 2 upon wrong usage.\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	files, err := listFiles()
	switch {
	case err != nil:
	case *rebase:
		err = rebaseTree(".", files)
	default:
		err = run(s, files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// project is a tree with its lists and documents.
type project struct {
	*tree
	list []mutation
	rows []row
}

func readProject(root string, files []string) (p *project, err error) {
	p = &project{}
	if p.tree, err = readTree(root, files); err != nil {
		return nil, err
	}
	if p.list, err = readLists(root, files); err != nil {
		return nil, err
	}
	p.rows, err = readDocuments(root)
	return p, err
}

// check checks the lists against the documents and the code.
func (p *project) check() error {
	faults := []error{matchRows(p.list, p.rows)}
	for i := range p.list {
		faults = append(faults, p.tree.check(&p.list[i]))
	}
	return errors.Join(faults...)
}

// selected returns the mutations that s selects.
func (p *project) selected(s selection) []mutation {
	return slices.DeleteFunc(slices.Clone(p.list), func(m mutation) bool {
		return s.doc != "" && p.rows[rowOf(p.rows, &m)].doc != s.doc || !strings.Contains(m.row, s.only) || s.dir != "" && m.dir() != path.Clean(s.dir)
	})
}

// run checks the lists and then tries each selected mutation.
func run(s selection, files []string) error {
	p, err := readProject(".", files)
	if err != nil {
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	list := p.selected(s)
	if len(list) == 0 {
		return errors.New("no mutation is selected")
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p.root = filepath.Join(dir, "single")
	joined := joint{dir: filepath.Join(dir, "joint")}
	for _, root := range []string{p.root, joined.dir} {
		if err := copyTree(files, root); err != nil {
			return err
		}
	}
	if err := joined.build(p.tree, list); err != nil {
		return err
	}
	var faults []error
	for i := range list {
		m := &list[i]
		begun := time.Now()
		verdict := "killed"
		if !joined.kills(p.tree, m, i) {
			if err := p.try(m); err != nil {
				verdict = err.Error()
				faults = append(faults, fmt.Errorf("%v: %w", m, err))
			}
		}
		fmt.Printf("%3d/%d %5.1fs %v: %s\n", i+1, len(list), time.Since(begun).Seconds(), m, verdict)
	}
	return errors.Join(faults...)
}

// listFiles returns the regular files of the tree that git does not ignore.
func listFiles() (files []string, err error) {
	out, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() { // neither deleted nor a link
			files = append(files, name)
		}
	}
	return files, nil
}

// copyTree copies files to a folder.
func copyTree(files []string, dir string) error {
	for _, name := range files {
		if err := copyFile(name, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, info.Mode().Perm())
}
