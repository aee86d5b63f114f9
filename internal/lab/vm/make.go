package vm

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// setup installs QEMU and unpacks a kernel.
//
//go:embed setup.sh
var setup string

// ErrSkip says that this system cannot build the machine: packages are missing and it may not install them.
var ErrSkip = errors.New("the virtual machine cannot be built here")

// exitSkip is the exit code of setup.sh when it may not install its dependencies.
const exitSkip = 77

// Make builds the image of a Debian release's kernel in the cache. name distinguishes images with different programs: extra
// are our programs to copy into /usr/bin. Progress goes to out.
func Make(release, name string, out io.Writer, extra ...string) (im Image, err error) {
	dir, err := cacheDir(release)
	if err != nil {
		return im, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return im, err
	}
	defer unlock()
	c := exec.Command("bash", "-c", setup, "setup.sh", dir, release)
	var said strings.Builder
	c.Stdout, c.Stderr = out, &said
	if err := c.Run(); err != nil {
		if c.ProcessState != nil && c.ProcessState.ExitCode() == exitSkip {
			return im, fmt.Errorf("%w: %s", ErrSkip, strings.TrimSpace(said.String()))
		}
		return im, fmt.Errorf("vm: setup: %w\n%s", err, said.String())
	}
	return build(dir, name, extra...)
}

// cacheDir is the folder for images with the kernel of a Debian release: vm-RELEASE in $ROCED_CACHE or ~/.cache/roced.
func cacheDir(release string) (string, error) {
	dir := os.Getenv("ROCED_CACHE")
	if dir == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, "roced")
	}
	return filepath.Join(dir, "vm-"+release), nil
}

// lock creates the folder and locks it. Other builders in it block until unlock is called.
func lock(dir string) (unlock func() error, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return f.Close, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}
