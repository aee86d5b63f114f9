package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/viper"

	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/strict"
)

// SystemFile is the configuration of root's daemon, and of users without a file of their own.
const SystemFile = "/etc/roced.yaml"

// Sources are the sources of settings, in ascending precedence: the defaults, one file, the environment, and Set. NICs and
// lists come from the file only.
type Sources struct {
	File string   // empty: DefaultFile
	Set  []string // such as "log.level=debug"
}

// DefaultFile returns the file that a user's daemon reads: roced/roced.yaml in the user's configuration directory if it
// exists, else SystemFile. Root's daemon reads only the latter.
func DefaultFile(uid int) string {
	dir, err := os.UserConfigDir()
	if uid == 0 || err != nil {
		return SystemFile
	}
	file := filepath.Join(dir, "roced", "roced.yaml")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return SystemFile
	}
	return file
}

// Load reads the file, applies the other sources, and validates the result.
func (s *Sources) Load() (*Config, error) {
	file := s.File
	if file == "" {
		file = DefaultFile(os.Geteuid())
	}
	text, owner, err := readFile(file)
	if s.File == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no configuration: write %s, name a file with --config, or run \"roced up\", which needs none", file)
	}
	if err != nil {
		return nil, err
	}
	doc, err := strict.Parse(file, text)
	if err == nil {
		err = s.override(doc)
	}
	if err != nil {
		return nil, err
	}
	c, err := decode(doc)
	if err != nil {
		return nil, err
	}
	c.from, c.file, c.owner = s, file, owner
	return c, nil
}

// Again reads the file of c again, and applies the same other sources. The file must have the same owner as before.
func (c *Config) Again() (*Config, error) {
	if c.from == nil || c.owner == noOwner {
		return nil, fmt.Errorf("the configuration %s is not a regular file, so it cannot be read again: restart the daemon", c.file)
	}
	next, err := (&Sources{File: c.file, Set: c.from.Set}).Load()
	if err != nil {
		return nil, err
	}
	if next.owner != c.owner {
		return nil, fmt.Errorf("%s: user %d owns it, but user %d did at the start: chown it, or restart the daemon", c.file, next.owner, c.owner)
	}
	return next, nil
}

// noOwner is the owner of a file that is no regular file.
const noOwner = ^uint32(0)

// readFile reads a configuration file, and returns the user that owns it. It rejects a file that all users can write.
func readFile(name string) (text []byte, owner uint32, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	owner = noOwner
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && st.Mode().IsRegular() {
		if st.Mode()&0o002 != 0 {
			return nil, 0, fmt.Errorf("%s: every user can write it (mode %04o): chmod o-w %[1]s", name, st.Mode().Perm())
		}
		owner = sys.Uid
	}
	text, err = bounded.ReadAll(f, bounded.Text)
	return text, owner, err
}

// Variable returns the environment variable of a key; "" if it has none.
func Variable(key string) string {
	if !slices.Contains(Scalars(), key) || key == "run_dir" { // ROCED_RUN_DIR names the daemon of a client
		return ""
	}
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

const variablePrefix = "ROCED_"

// otherVariables are the variables of clients, tests and scripts.
var otherVariables = []string{
	"ROCED_RUN_DIR", "ROCED_LIBRARY", "ROCED_NIC", "ROCED_EXPLAIN", "ROCED_REPORT", "ROCED_MR", // programs and the preload library
	"ROCED_CI", "ROCED_NICS", "ROCED_CAPTURES", "ROCED_CAPTURES_KEEP", "ROCED_CAPTURES_SNAPLEN", "ROCED_EXPORT", "ROCED_REQUIRE_TRAFFIC", "ROCED_REPOSITORY", "ROCED_REF", "ROCED_RELEASE", "ROCED_RELEASES", "ROCED_PACKAGES", // pipelines
	"ROCED_LAB", "ROCED_CACHE", "ROCED_BIN", "ROCED_SIEGE", "ROCED_SIEGE_DAEMON", "ROCED_SIEGE_CHARGED",
	"ROCED_XDP_CRASH", "ROCED_CAPS_CHILD", "ROCED_E2E_CONFINED", "ROCED_TESTBED_USERNS",
	"ROCED_TEST_BIN", "ROCED_TEST_CONFIG", "ROCED_TEST_ROLE", "ROCED_TEST_WITHHELD",
}

// ofService reports whether Kubernetes sets the variable for a Service whose name begins with roced. Of each Service it sets
// X_SERVICE_HOST, X_PORT, and others that begin with X_SERVICE_ or X_PORT_.
func ofService(name string) bool {
	return slices.ContainsFunc(os.Environ(), func(entry string) bool {
		key, _, _ := strings.Cut(entry, "=")
		service, ok := strings.CutSuffix(key, "_SERVICE_HOST")
		rest, of := strings.CutPrefix(name, service+"_")
		return ok && of && (rest == "PORT" || strings.HasPrefix(rest, "PORT_") || strings.HasPrefix(rest, "SERVICE_"))
	})
}

// override applies the environment and Set to the document of the file.
func (s *Sources) override(doc *strict.Document) error {
	v, origins := viper.New(), map[string]string{}
	for _, key := range Scalars() {
		name := Variable(key)
		if name == "" {
			continue
		}
		if err := v.BindEnv(key, name); err != nil {
			return err
		}
		origins[name], origins[key] = name, name
	}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, variablePrefix) && origins[name] == "" && !slices.Contains(otherVariables, name) && !ofService(name) {
			return fmt.Errorf("%s: no setting has this variable: unset it, or use one that roced.yaml(5) lists in ENVIRONMENT", name)
		}
	}
	for _, text := range s.Set {
		key, value, ok := strings.Cut(text, "=")
		if !ok || !slices.Contains(Scalars(), key) {
			return fmt.Errorf("--set %s: expected KEY=VALUE, with a KEY of %s", text, strings.Join(Scalars(), ", "))
		}
		v.Set(key, value)
		origins[key] = "--set " + text
	}
	for _, key := range Scalars() {
		if !v.IsSet(key) {
			continue
		}
		if err := doc.Override(key, v.GetString(key), origins[key]); err != nil {
			return err
		}
	}
	return nil
}
