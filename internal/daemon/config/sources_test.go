package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestPrecedence: --set is stronger than the environment, which is stronger than the file, and each value has its origin.
func TestPrecedence(t *testing.T) {
	file := write(t, t.TempDir()+"/x.yaml", "log:\n  level: error\n  format: json\ndrain: 1s\nlimits:\ncontrol: {mode: 0600}\n"+minimal)
	for name, value := range map[string]string{"ROCED_LOG_LEVEL": "warn", "ROCED_DRAIN": "2s", "ROCED_LIMITS_MEMORY": "512M", "ROCED_CONTROL_MODE": "0640",
		"ROCED_WEB_LISTEN": "[::1]:9465", "ROCED_METRICS_LISTEN": "", "ROCED_RUN_DIR": "/elsewhere"} {
		t.Setenv(name, value)
	}
	s := Sources{File: file, Set: []string{"drain=3s", "web.control=true"}}
	c, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	if c.File() != file || c.Control.Mode != 0o640 || c.Limits.Memory != 512<<20 || !c.Web.Control {
		t.Errorf("%+v", c)
	}
	got := map[string]string{}
	for _, v := range c.Effective() {
		got[v.Key] = v.Value + ", " + v.Origin
	}
	for key, want := range map[string]string{
		"log.level": "warn, ROCED_LOG_LEVEL", "log.format": "json, " + file + ":3", "drain": "3s, --set drain=3s",
		"limits.memory": "512M, ROCED_LIMITS_MEMORY", "limits.qps": "4096, default", "control.mode": "0640, ROCED_CONTROL_MODE",
		"web.listen": "[::1]:9465, ROCED_WEB_LISTEN", "web.control": "true, --set web.control=true", "nics.0.port.type": "tap, " + file + ":7",
		"nics.0.mtu": "4200, default", "metrics.listen": "", "nics.0.gateways": "",
	} {
		if got[key] != want {
			t.Errorf("%s: %q, want %q", key, got[key], want)
		}
	}
	if strings.HasPrefix(got["run_dir"], "/elsewhere") {
		t.Error("ROCED_RUN_DIR is of clients")
	}
}

// TestOverrideFaults: an error of an override names the variable or the option.
func TestOverrideFaults(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ file, env, set, want string }{
		{minimal, "ROCED_LOG_LEVEL=loud", "", `ROCED_LOG_LEVEL: log.level: "loud": must be one of debug, info, warn, error`},
		{minimal, "ROCED_LIMITS_QPS=many", "", `ROCED_LIMITS_QPS: limits.qps: "many" is not a whole number`},
		{minimal, "ROCED_LOGLEVEL=debug", "", "ROCED_LOGLEVEL: no setting has this variable: unset it, or use one that roced.yaml(5) lists in ENVIRONMENT"},
		{minimal, "", "drain=3", `--set drain=3: drain: "3" is not a duration such as 5s`},
		{minimal, "", "nics.0.mtu=1500", "--set nics.0.mtu=1500: expected KEY=VALUE, with a KEY of run_dir, "},
		{minimal, "", "control.users=me", "--set control.users=me: expected KEY=VALUE"},
		{minimal, "", "drain", "--set drain: expected KEY=VALUE"},
		{"log: loud\n" + minimal, "ROCED_LOG_LEVEL=debug", "", `ROCED_LOG_LEVEL: there is no "log.level"`},
	} {
		t.Run(c.env+c.set, func(t *testing.T) {
			s := Sources{File: write(t, dir+"/x.yaml", c.file)}
			if name, value, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(name, value)
			}
			if c.set != "" {
				s.Set = []string{c.set}
			}
			if _, err := s.Load(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// TestServiceVariables: the variables that Kubernetes sets for Services are no settings, others with such names are errors.
func TestServiceVariables(t *testing.T) {
	s := Sources{File: write(t, t.TempDir()+"/x.yaml", minimal)}
	for _, service := range []string{"ROCED", "ROCED_LOG", "ROCED_PORT"} {
		for name, value := range map[string]string{"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "9464", "SERVICE_PORT_METRICS": "9464",
			"PORT": "tcp://10.0.0.1:9464", "PORT_9464_TCP": "tcp://10.0.0.1:9464", "PORT_9464_TCP_PROTO": "tcp",
			"PORT_9464_TCP_PORT": "9464", "PORT_9464_TCP_ADDR": "10.0.0.1"} {
			t.Setenv(service+"_"+name, value)
		}
	}
	if _, err := s.Load(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"ROCED_METRICS_PORT", "ROCED_SERVICE", "ROCED_HOST", "ROCED_LOG_LEVEL_PORT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "9464")
			if _, err := s.Load(); err == nil || !strings.HasPrefix(err.Error(), name+": no setting has this variable") {
				t.Error(err)
			}
		})
	}
}

// TestDefaultFile: a user's file comes before that of the system, but not for root.
func TestDefaultFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	if got := DefaultFile(1000); got != SystemFile {
		t.Errorf("%s: the user has no file", got)
	}
	own := write(t, dir+"/roced/roced.yaml", minimal)
	if got := DefaultFile(1000); got != own {
		t.Error(got)
	}
	if got := DefaultFile(0); got != SystemFile {
		t.Errorf("%s: root reads a user's file", got)
	}
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("HOME", dir)
	own = write(t, dir+"/.config/roced/roced.yaml", minimal)
	if got := DefaultFile(1000); got != own {
		t.Error(got)
	}
}

// TestWritableFile: a file that all users can write is no configuration.
func TestWritableFile(t *testing.T) {
	file := write(t, t.TempDir()+"/x.yaml", minimal)
	if err := os.Chmod(file, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "every user can write it (mode 0666): chmod o-w "+file) {
		t.Error(err)
	}
}

// TestOtherVariables: otherVariables has all variables of the tree that are no settings, and no more.
func TestOtherVariables(t *testing.T) {
	name := regexp.MustCompile(`["'{$ ](ROCED_[A-Z0-9_]*[A-Z0-9])\b`)
	found := map[string]bool{}
	err := filepath.WalkDir("../../..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "out" || e.Name() == "node_modules" || strings.HasSuffix(path, "daemon/config")):
			return fs.SkipDir
		case !e.Type().IsRegular() || filepath.Ext(path) == ".md" || filepath.Ext(path) == ".h":
			return nil
		}
		if info, err := e.Info(); err != nil || info.Size() > 1<<20 { // data
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range name.FindAllSubmatch(text, -1) {
			found[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Scalars() {
		delete(found, Variable(k))
	}
	for _, v := range []string{"ROCED_PORT", "ROCED_SERVICE_HOST"} { // of Kubernetes, in the manual page
		delete(found, v)
	}
	for _, v := range otherVariables {
		if !found[v] {
			t.Errorf("nothing uses %s", v)
		}
		delete(found, v)
	}
	for v := range found {
		if !slices.Contains(otherVariables, v) {
			t.Errorf("%s is missing in otherVariables", v)
		}
	}
}
