package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/internal/lab"
)

func TestMain(m *testing.M) { lab.LongMain(m, nil) }

const root = "../../.."

var programs = []string{"roced", "rocectl", "roceperf", "rocesim", "rocedrill"}

// command runs a program with additional variables, fails the test unless it succeeds, and returns its output.
func command(t *testing.T, env []string, args ...string) string {
	t.Helper()
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("%v: %v\n%s%s", args, err, out, exit.Stderr)
	}
	return string(out)
}

// tree lists the files below a folder with their modes.
func tree(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	files := map[string]fs.FileMode{}
	lab.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		files[strings.TrimPrefix(path, dir)] = info.Mode()
		return err
	}))
	return files
}

// wanted returns the files below a prefix except examples and documentation, with their modes.
func wanted(prefix string) map[string]fs.FileMode {
	files := map[string]fs.FileMode{
		"/etc/roced.yaml": 0o644, prefix + "/lib/roced/libroced.so": 0o644, prefix + "/lib/systemd/system/roced.service": 0o644,
	}
	for _, name := range programs {
		files[prefix+"/bin/"+name] = 0o755
		section := "1"
		if name == "roced" {
			section = "8"
		}
		for _, shared := range []string{"man/man" + section + "/" + name + "." + section, "bash-completion/completions/" + name,
			"zsh/site-functions/_" + name, "fish/vendor_completions.d/" + name + ".fish"} {
			files[prefix+"/share/"+shared] = 0o644
		}
	}
	if _, err := os.Stat(lab.Program("libmrc.so")); err == nil { // made where libibverbs-dev is installed
		files[prefix+"/lib/roced/libmrc.so"] = 0o644
		for _, name := range []string{"lib_mrc.so", "libnv_mrc.so"} {
			files[prefix+"/lib/roced/"+name] = fs.ModeSymlink | 0o777
		}
		for _, name := range []string{"mrc.h", "mrc_api_ver.h"} {
			files[prefix+"/include/roced/"+name] = 0o644
		}
	}
	for _, name := range []string{"rocedrill-agent", "rocedrill-agent-cm"} { // made where libibverbs-dev and librdmacm-dev are installed
		if _, err := os.Stat(lab.Program(name)); err == nil {
			files[prefix+"/bin/"+name] = 0o755
		}
	}
	files[prefix+"/share/man/man5/roced.yaml.5"], files[prefix+"/share/man/man7/roced-fault.7"] = 0o644, 0o644
	for _, doc := range []string{"LICENSE", "THIRD_PARTY_NOTICES", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "bpf/LICENSE.GPL-2.0", "bpf/LICENSE.BSD-2-Clause",
		"deploy/grafana/roced.json", "deploy/prometheus/prometheus.yaml", "deploy/prometheus/roced-alerts.yaml"} {
		files[prefix+"/share/doc/roced/"+doc] = 0o644
	}
	return files
}

// installed returns a root with a complete installation.
func installed(t *testing.T, prefix string) string {
	t.Helper()
	dir := t.TempDir()
	command(t, nil, "make", "-s", "-C", root, "install", "BIN="+lab.Bin, "DESTDIR="+dir, "PREFIX="+prefix)
	return dir
}

func TestFiles(t *testing.T) {
	for _, prefix := range []string{"/usr/local", "/opt/roced-1"} {
		dir := installed(t, prefix)
		is, examples, docs := tree(t, dir), 0, 0
		for name, mode := range wanted(prefix) {
			if is[name] != mode {
				t.Errorf("%s has mode %v, not %v", name, is[name], mode)
			}
			delete(is, name)
		}
		for name := range is {
			switch {
			case strings.HasPrefix(name, prefix+"/share/roced/"):
				examples++
			case strings.HasPrefix(name, prefix+"/share/doc/roced/docs/"):
				docs++
			default:
				t.Errorf("%s is installed, too", name)
			}
		}
		if source := len(tree(t, filepath.Join(root, "docs"))); docs != source {
			t.Errorf("%d of %d files of the documentation", docs, source)
		}
		source := 0
		for _, folder := range []string{"configs", "drill/suite", "bth/testdata"} {
			source += len(tree(t, filepath.Join(root, folder)))
		}
		if examples != source {
			t.Errorf("%d examples of %d", examples, source)
		}
		if out := strings.TrimSpace(command(t, nil, dir+prefix+"/bin/roced", "examples")); out != dir+prefix+"/share/roced" {
			t.Errorf("roced examples prints %s", out)
		}
		try := filepath.Join(t.TempDir(), "try")
		command(t, nil, dir+prefix+"/bin/roced", "examples", try)
		if copied := len(tree(t, try)); copied != examples {
			t.Errorf("roced examples copies %d files of %d", copied, examples)
		}
	}
}

// TestConfigurationStays: an installation does not overwrite a changed configuration, and the first installed one is
// valid.
func TestConfigurationStays(t *testing.T) {
	dir := installed(t, "/usr")
	file := filepath.Join(dir, "etc/roced.yaml")
	if out := command(t, nil, dir+"/usr/bin/roced", "check", "--config", file); out != file+": good, 1 NICs\n" {
		t.Errorf("%s", out)
	}
	lab.Must(t, os.WriteFile(file, []byte("mine"), 0o644))
	command(t, nil, "make", "-s", "-C", root, "install", "BIN="+lab.Bin, "DESTDIR="+dir, "PREFIX=/usr")
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("%s, %v", text, err)
	}
}

// TestRuns: an installed daemon runs with its own configuration except the folder, and a program finds the library.
func TestRuns(t *testing.T) {
	dir, run := installed(t, "/usr"), filepath.Join(lab.Dir(t), "run")
	rocectl := []string{filepath.Join(dir, "usr/bin/rocectl"), "--run-dir", run}
	ctl := func(args ...string) string { return command(t, nil, slices.Concat(rocectl, args)...) }
	t.Cleanup(func() { ctl("down") })
	pid := os.Getpid() // other tests may run at the same time
	ctl("up", fmt.Sprintf("127.77.%d.%d", pid>>8&0xff, max(pid&0xff, 1)))
	var vars []struct{ Name, Value string }
	lab.Must(t, json.Unmarshal([]byte(ctl("env", "--json")), &vars))
	if want := filepath.Join(dir, "usr/lib/roced/libroced.so"); len(vars) == 0 || vars[0].Value != want {
		t.Errorf("%v, not %s", vars, want)
	}
}

// TestVersions: each program reports its version, and so does the daemon's metric (TestAdmin of internal/daemon).
func TestVersions(t *testing.T) {
	for _, name := range programs {
		text := command(t, nil, lab.Program(name), "version")
		if !strings.HasPrefix(text, name+" "+version.Number+" ") || command(t, nil, lab.Program(name), "--version") != text {
			t.Errorf("%s: %s", name, text)
		}
		var v version.Info
		if err := json.Unmarshal([]byte(command(t, nil, lab.Program(name), "version", "--json")), &v); err != nil || v.Version != version.Number || v.Go == "" {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}

// TestPages: man(1) reads the pages without a warning, and they do not depend on the folder of the build.
func TestPages(t *testing.T) {
	lab.Need(t, "groff")
	elsewhere := []string{"GOMAXPROCS=17", "ROCED_RUN_DIR=/elsewhere", "XDG_RUNTIME_DIR=/elsewhere", "TMPDIR=/elsewhere", "HOME=/elsewhere"}
	for _, page := range [][]string{{"roced"}, {"rocectl"}, {"roceperf"}, {"rocesim"}, {"roced", "roced.yaml"}, {"rocectl", "roced-fault"}} {
		name, args := page[len(page)-1], slices.Concat([]string{lab.Program(page[0]), "man"}, page[1:])
		page := command(t, nil, args...)
		if there := command(t, elsewhere, args...); there != page {
			t.Errorf("the page of %s is different elsewhere", name)
		}
		if len(page) < 1000 {
			t.Errorf("the page of %s has %d bytes", name, len(page))
		}
		c := exec.Command("groff", "-man", "-Tutf8", "-ww", "-z")
		c.Stdin = strings.NewReader(page)
		if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestCompletions: the installed shells can read the scripts, and complete words.
func TestCompletions(t *testing.T) {
	for _, name := range programs {
		for _, shell := range []string{"bash", "zsh", "fish"} {
			t.Run(name+" "+shell, func(t *testing.T) {
				lab.Need(t, shell)
				script := filepath.Join(t.TempDir(), shell)
				lab.Must(t, os.WriteFile(script, []byte(command(t, nil, lab.Program(name), "completion", shell)), 0o644))
				command(t, nil, shell, "-n", script)
			})
		}
	}
	for _, c := range []struct{ program, word, want string }{{"rocectl", "cap", "capture"}, {"roceperf", "write-b", "write-bw"}, {"rocesim", "sw", "sweep"}, {"rocedrill", "an", "analyze"}, {"roced", "ch", "check"}} {
		out := command(t, nil, lab.Program(c.program), "__complete", c.word) // the query of the scripts
		if word, _, _ := strings.Cut(out, "\t"); word != c.want {
			t.Errorf("%s %s is completed by %q", c.program, c.word, out)
		}
	}
}
