package sim

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocument: the rocesim commands in docs/reference/simulator.md and the README behave as documented: they succeed,
// or fail with the documented error.
func TestDocument(t *testing.T) {
	withoutRaces(t)
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, doc := range []string{"docs/reference/simulator.md", "README.md"} {
		dir := t.TempDir()
		if err := os.Symlink(filepath.Join(root, "configs"), filepath.Join(dir, "configs")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "rocesim"), []byte("#!/bin/sh\nexec "+quote(wrapper(t, dir))+` "$@"`+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(root, doc))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commands(string(text)) {
			sh := exec.Command("sh", "-c", c.text)
			sh.Dir, sh.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
			out, err := sh.CombinedOutput()
			if c.refused == "" && err != nil || !strings.Contains(string(out), c.refused) {
				t.Errorf("%s: %s\n%v\n%s", doc, c.text, err, out)
			}
			ran++
		}
	}
	if ran < 12 {
		t.Errorf("%d commands", ran)
	}
}

// command is a command of a document, with its expected error.
type command struct{ text, refused string }

// commands returns the rocesim commands of a document and the commands that create their files. It skips incomplete
// commands and commands for other machines, and shortens sweeps.
func commands(doc string) (all []command) {
	lines := strings.Split(doc, "\n")
	for i := 0; i < len(lines); i++ {
		c, ok := strings.CutPrefix(lines[i], "    $ ")
		if !ok {
			continue
		}
		for strings.HasSuffix(c, `\`) || strings.Contains(c, "<<") && !strings.HasSuffix(c, "\nEND") && !strings.HasSuffix(c, "\nEOF") {
			i++
			c += "\n" + strings.TrimPrefix(lines[i], "    ")
		}
		c = strings.Replace(c, "bin/rocesim", "rocesim", 1)
		if strings.Contains(c, " ... ") || strings.Contains(c, "/shared/") || !strings.HasPrefix(c, "rocesim ") && !strings.Contains(c, "<<") {
			continue
		}
		if strings.HasPrefix(c, "rocesim sweep mine") {
			c += " --set workload.0.until=100us"
		}
		refused := ""
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "    rocesim: ") {
			refused = strings.TrimSpace(lines[i+1])
		}
		all = append(all, command{c, refused})
	}
	return all
}
