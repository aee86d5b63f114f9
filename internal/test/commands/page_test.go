package commands

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

// command is a command of a page and its output there; without lines, any output is accepted.
type command struct {
	text   string
	prints []string
	effect []string // conditions that hold after the command
	beside bool     // an earlier command may still run in the background
}

var (
	prompt     = regexp.MustCompile(`^[a-z]*\$ `)
	hereDoc    = regexp.MustCompile(`<<'?(\w+)'?`)
	background = regexp.MustCompile(`&\s*(#.*)?$`)
	ctrlC      = regexp.MustCompile(`# .*until Ctrl-C`)

	// promises matches commands that promise an effect: a packet hit, a picture, frames, flows, results.
	promises = regexp.MustCompile(`^[^#]*\b(rocectl|rocesim)\b[^#]* (fault (add|run)|trace|watch|capture|bottleneck|sweep|--trace|--pcapng)\b`)
)

// read reads the commands of a page: lines indented by four spaces that begin with "$ ", or with "b$ " for another machine.
// Their continuations begin with "> ", follow a backslash, or belong to a here-document. The output follows.
func read(t *testing.T, page string) (all []*command) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	lab.Must(t, err)
	var last *command
	end := ""   // of the here-document
	blank := "" // line within the output
	for line := range strings.Lines(string(text)) {
		line, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		switch m := prompt.FindString(line); {
		case line == "" && end == "" && last != nil && last.prints != nil:
			blank = "\n"
			continue
		case !indented && (end == "" || line != ""): // a here-document may have empty lines
			last = nil
		case end != "":
			last.text += "\n" + line
			if line == end {
				end = ""
			}
		case last != nil && strings.HasSuffix(last.text, `\`):
			last.text += "\n" + line
		case m != "":
			beside := len(all) > 0 && (all[len(all)-1].beside || background.MatchString(all[len(all)-1].text))
			last = &command{text: strings.TrimPrefix(line, "$ "), beside: beside}
			if d := hereDoc.FindStringSubmatch(line); d != nil {
				end = d[1]
			}
			all = append(all, last)
		case last != nil && strings.HasPrefix(line, "> "):
			last.text += "\n" + line[2:]
		case last != nil:
			last.prints = append(last.prints, blank+line)
		}
		blank = ""
	}
	return all
}

// bash returns the script of a command and its effects.
func (c *command) bash() string {
	text := c.script()
	for _, e := range c.effect {
		text += "\neffect " + quote(e)
	}
	return text
}

func (c *command) script() string {
	program, _, _ := strings.Cut(c.text, " ")
	elsewhere, onB := strings.CutPrefix(c.text, "b$ ")
	switch {
	case onB:
		return "on_b " + quote(elsewhere)
	case ctrlC.MatchString(c.text):
		return "interrupt " + quote(c.text)
	case len(c.prints) > 0 && strings.HasPrefix(c.prints[0], filepath.Base(program)+": "):
		return "{ " + c.text + "\n} && exit 1" // the page shows an error
	}
	return c.text
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// pattern matches the expected output, line by line. Commands in the background may print before and after it.
func (c *command) pattern() *regexp.Regexp {
	text := strings.ReplaceAll(regexp.QuoteMeta(strings.Join(c.prints, "\n")), `\.\.\.`, `.*`)
	if c.beside {
		return regexp.MustCompile(`(?s)^(.*\n)?` + text + `(\n.*)?$`)
	}
	return regexp.MustCompile(`(?s)^` + text + `\n?$`)
}

// pages returns the pages with commands.
func pages(t *testing.T) map[string][]*command {
	t.Helper()
	names := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		lab.Must(t, err)
		for _, f := range found {
			if name := strings.TrimPrefix(f, root+"/"); !strings.HasPrefix(name, "docs/results/") {
				names = append(names, name)
			}
		}
	}
	all := map[string][]*command{}
	for _, name := range names {
		if commands := read(t, name); commands != nil {
			all[name] = commands
		}
	}
	return all
}

// table reads a file of testdata with fields separated by tabs. Lines that begin with # are comments.
func table(t *testing.T, name string, fields ...string) (rows [][]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	lab.Must(t, err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(strings.TrimSpace(line), "\t")
		if len(row) != len(fields) {
			t.Fatalf("%s: %q has %d fields, not %s", name, line, len(row), strings.Join(fields, ", "))
		}
		rows = append(rows, row)
	}
	return rows
}

// effects adds the conditions of effects.txt to the commands, and reports promises without an effect.
func effects(t *testing.T, all map[string][]*command) {
	t.Helper()
	shown := map[*command]bool{}
	for _, f := range table(t, "effects.txt", "page", "beginning of the command", "beginning of a later command or -", "condition") {
		page := all[f[0]]
		i := slices.IndexFunc(page, func(c *command) bool { return strings.HasPrefix(c.text, f[1]) && !shown[c] })
		if i < 0 {
			t.Errorf("effects.txt: %s has no such command: %s", f[0], f[1])
			continue
		}
		shown[page[i]] = true
		if f[2] != "-" {
			later := slices.IndexFunc(page[i+1:], func(c *command) bool { return strings.HasPrefix(c.text, f[2]) })
			if later < 0 {
				t.Errorf("effects.txt: after %s, %s has no such command: %s", f[1], f[0], f[2])
				continue
			}
			i += 1 + later
		}
		page[i].effect = append(page[i].effect, f[3])
	}
	for name, page := range all {
		for _, c := range page {
			if promises.MatchString(c.text) && !shown[c] {
				t.Errorf("%s: %s promises an effect that effects.txt lacks", name, c.text)
			}
		}
	}
}

// except returns the pages without the commands that exceptions.txt lists, and reports exceptions without a command.
func except(t *testing.T, all map[string][]*command) map[string][]*command {
	t.Helper()
	for _, f := range table(t, "exceptions.txt", "page", "beginning of the command", "reason") {
		page := all[f[0]]
		i := slices.IndexFunc(page, func(c *command) bool { return strings.HasPrefix(c.text, f[1]) })
		if i < 0 {
			t.Errorf("exceptions.txt: %s has no such command: %s", f[0], f[1])
			continue
		}
		if all[f[0]] = slices.Delete(page, i, i+1); len(page) == 1 {
			delete(all, f[0])
		}
	}
	return all
}

// TestRead: the parts of a page's commands, and what becomes of them.
func TestRead(t *testing.T) {
	got := read(t, "internal/test/commands/testdata/page.md")
	for i, want := range []struct{ text, prints, bash string }{
		{"one | grep x", "a...\nb\n\nc", "one | grep x"},
		{"f() {\n  two\n}", "", "f() {\n  two\n}"},
		{"cat > x <<'END'\n$ no\nEND", "", "cat > x <<'END'\n$ no\nEND"},
		{"three \\\n    -a", "", "three \\\n    -a"},
		{"b$ four", "", "on_b 'four'"},
		{"bin/five 'x'   # until Ctrl-C", "", `interrupt 'bin/five '\''x'\''   # until Ctrl-C'`},
		{"bin/six", "six: wrong", "{ bin/six\n} && exit 1"},
	} {
		if i >= len(got) || got[i].text != want.text || strings.Join(got[i].prints, "\n") != want.prints || got[i].bash() != want.bash {
			t.Fatalf("command %d of %d is not %+v: %+v", i, len(got), want, got[min(i, len(got)-1)])
		}
	}
}

// TestPattern: what a command in the background prints beside the expected output is no difference.
func TestPattern(t *testing.T) {
	for _, c := range []struct {
		beside bool
		said   string
		want   bool
	}{
		{false, "rx drop  hit 1\n", true}, {false, "---\nrx drop  hit 1\n", false},
		{true, "---\nrx drop  hit 1\n", true}, {true, "rx drop  hit 1\n---\n", true}, {true, "---\nrx drop  hit 2\n", false},
	} {
		k := command{prints: []string{"rx drop...hit 1"}, beside: c.beside}
		if k.pattern().MatchString(c.said) != c.want {
			t.Errorf("%+v", c)
		}
	}
}
