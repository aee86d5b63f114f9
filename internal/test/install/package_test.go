package install

import (
	"debug/elf"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/internal/lab"
)

var all = flag.Bool("all", false, "make packages for all processors, which takes a cross compiler")

// machines are the architectures of the packages.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// build makes a package of a built checkout and the tarball of rocedrill, and returns their paths.
func build(t *testing.T, dir, arch string) []string {
	t.Helper()
	return strings.Fields(command(t, []string{"SOURCE_DATE_EPOCH="}, filepath.Join(dir, "tools/scripts/package"), filepath.Join(dir, "bin"), filepath.Join(dir, "out"), arch))
}

// samePackages makes the packages of two checkouts, checks that they are equal, and returns the first checkout's. This
// machine's architecture comes first. It returns nil if packages cannot be built here.
func samePackages(t *testing.T, dirs []string) (packages []string) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil || machines[runtime.GOARCH] == 0 {
		t.Log("no packages are made on this system")
		return nil
	}
	archs := []string{runtime.GOARCH}
	if *all {
		command(t, nil, filepath.Join(root, "tools/scripts/setup.sh"), "package")
		archs = append(archs, map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH])
	}
	for _, arch := range archs {
		one := build(t, dirs[0], arch)
		build(t, dirs[1], arch)
		packages = append(packages, one[0])
		for _, file := range one {
			sameFile(t, dirs, filepath.Join("out", filepath.Base(file)))
		}
		agentOfTarball(t, one[1], filepath.Join(dirs[0], "bin"))
		for _, name := range []string{"bin/roced", "bin/rocectl", "bin/roceperf", "bin/rocesim", "bin/rocedrill", "lib/roced/libroced.so"} {
			f, err := elf.Open(filepath.Join(dirs[0], "out", arch, "root/usr", name))
			lab.Must(t, err)
			if f.Machine != machines[arch] {
				t.Errorf("%s of the package for %s is for %v", name, arch, f.Machine)
			}
			lab.Must(t, f.Close())
		}
	}
	return packages
}

// agentOfTarball builds the agent of the tarball by the line in its README, lets its rocedrill check its suite, and drive the
// agent on a daemon of the programs in bin.
func agentOfTarball(t *testing.T, file, bin string) {
	t.Helper()
	dir := t.TempDir()
	command(t, nil, "tar", "-xzf", file, "--strip-components=1", "-C", dir)
	text, err := os.ReadFile(filepath.Join(dir, "README"))
	lab.Must(t, err)
	_, line, ok := strings.Cut(string(text), "\n    cc ")
	line, _, _ = strings.Cut(line, "\n")
	if !ok {
		t.Fatalf("no command in %s", text)
	}
	_, err = os.Stat("/usr/include/infiniband/verbs.h")
	builds := err == nil
	if builds {
		command(t, nil, "sh", "-ec", "cd "+dir+"; cc "+line+"; mv rocedrill-agent bin")
	}
	if f, err := elf.Open(filepath.Join(dir, "bin/rocedrill")); err != nil || f.Machine != machines[runtime.GOARCH] {
		return // it does not run here
	}
	command(t, nil, filepath.Join(dir, "bin/rocedrill"), "lint", filepath.Join(dir, "suite"))
	if !builds {
		return
	}
	for _, name := range []string{"roced", "rocectl", "libroced.so"} {
		lab.Must(t, os.Symlink(filepath.Join(bin, name), filepath.Join(dir, "bin", name)))
	}
	out := command(t, nil, filepath.Join(dir, "bin/rocedrill"), "run", filepath.Join(dir, "suite/requester/nak_seq.drill"), "--dut", "roced", "--slack", "3s")
	if !strings.Contains(out, "1 passed, 0 failed, 0 not applicable") {
		t.Errorf("the agent of the tarball: %s", out)
	}
}

// inspect checks a package with dpkg-deb.
func inspect(t *testing.T, file, head string) {
	field := func(name string) string { return strings.TrimSpace(command(t, nil, "dpkg-deb", "-f", file, name)) }
	for name, want := range map[string]string{"Package": "roced", "Architecture": runtime.GOARCH, "Recommends": "ibverbs-providers, librdmacm1",
		"Version": version.Number + "~20260102030405." + head[:12]} {
		if field(name) != want {
			t.Errorf("%s: %q, not %q", name, field(name), want)
		}
	}
	if !strings.HasPrefix(field("Depends"), "libc6 (>= 2.") || strings.Contains(field("Depends"), ",") {
		t.Errorf("Depends: %s", field("Depends"))
	}
	// No maintainer scripts: dpkg only unpacks files.
	control := strings.Fields(command(t, nil, "sh", "-c", "dpkg-deb --ctrl-tarfile \"$1\" | tar -t | sort", "sh", file))
	if want := []string{"./", "./conffiles", "./control", "./md5sums"}; !slices.Equal(control, want) {
		t.Errorf("the package is controlled by %v", control)
	}
	for line := range strings.Lines(command(t, []string{"TZ=UTC"}, "dpkg-deb", "-c", file)) {
		// drwxr-xr-x root/root         0 2026-01-02 03:04 ./etc/
		line, link, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		w := strings.Fields(line)
		if link == "libmrc.so" { // other names of the library
			w[0] = strings.Replace(w[0], "lrwxrwxrwx", "-rw-r--r--", 1)
		}
		if modes := []string{"drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--"}; len(w) != 6 || !slices.Contains(modes, w[0]) || w[1] != "root/root" || w[3]+w[4] != "2026-01-0203:04" {
			t.Errorf("in the package: %s", line)
		}
	}
}

// upgrade installs a package into an empty root, then a newer one, and removes it.
func upgrade(t *testing.T, first, second string) {
	if os.Geteuid() != 0 {
		t.Skip("dpkg wants to be root")
	}
	dir := t.TempDir()
	for _, d := range []string{"info", "updates", "triggers"} {
		lab.Must(t, os.MkdirAll(filepath.Join(dir, "var/lib/dpkg", d), 0o755))
	}
	lab.Must(t, os.WriteFile(filepath.Join(dir, "var/lib/dpkg/status"), nil, 0o644))
	env := []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "DEBIAN_FRONTEND=noninteractive"}
	dpkg := func(args ...string) {
		t.Helper()
		// The root is otherwise empty, without even a C library.
		command(t, env, slices.Concat([]string{"dpkg", "--root=" + dir, "--force-depends", "--force-unsafe-io", "--log=/dev/null"}, args)...)
	}
	dpkg("-i", first)
	for name, mode := range map[string]os.FileMode{"usr/bin/roced": 0o755, "usr/lib/roced/libroced.so": 0o644, "etc/roced.yaml": 0o644,
		"usr/share/man/man8/roced.8.gz": 0o644, "usr/share/man/man5/roced.yaml.5.gz": 0o644, "usr/share/doc/roced/docs/README.md": 0o644,
		"usr/share/zsh/vendor-completions/_rocectl": 0o644, "usr/share/doc/roced/copyright": 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	command(t, nil, dir+"/usr/bin/roced", "check", "--config", dir+"/etc/roced.yaml")
	command(t, nil, "gzip", "-t", dir+"/usr/share/man/man8/roced.8.gz")
	conf := filepath.Join(dir, "etc/roced.yaml")
	lab.Must(t, os.WriteFile(conf, []byte("# mine\n"), 0o644))
	dpkg("-i", second)
	if out := command(t, nil, dir+"/usr/bin/roced", "version"); !strings.Contains(out, " modified ") {
		t.Errorf("it is still the old one: %s", out)
	}
	for _, args := range [][]string{{"-r", "roced"}, {"-P", "roced"}} {
		if text, err := os.ReadFile(conf); err != nil || string(text) != "# mine\n" {
			t.Errorf("before dpkg %v the configuration is %q, %v", args, text, err)
		}
		dpkg(args...)
	}
	for name := range tree(t, dir) {
		if !strings.HasPrefix(name, "/var/") {
			t.Errorf("%s has been left", name)
		}
	}
}

// TestPackageWithoutCompiler: without a cross compiler, the script names the skipped processor, and fails because it has
// made no package.
func TestPackageWithoutCompiler(t *testing.T) {
	other, compiler := "arm64", "aarch64-linux-gnu-gcc"
	if runtime.GOARCH == other {
		other, compiler = "amd64", "x86_64-linux-gnu-gcc"
	}
	dir := t.TempDir()
	for _, d := range filepath.SplitList(os.Getenv("PATH")) {
		files, _ := filepath.Glob(filepath.Join(d, "*"))
		for _, f := range files {
			if filepath.Base(f) != compiler {
				_ = os.Symlink(f, filepath.Join(dir, filepath.Base(f))) // the first of a name counts
			}
		}
	}
	c := exec.Command(filepath.Join(root, "tools/scripts/package"), filepath.Join(root, "bin"), t.TempDir(), other)
	c.Env = append(os.Environ(), "PATH="+dir)
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no package for "+other+": "+compiler+" is not installed") {
		t.Errorf("%v\n%s", err, out)
	}
}
