package rundir

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// home moves the default run directory to a new directory, and returns its path.
func home(t *testing.T) string {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("the default of root is fixed; TestOtherUser of internal/lab/siege tries other users")
	}
	t.Setenv(Variable, "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	return OfUser()
}

// TestCheck checks the default run directory after preparation by another user.
func TestCheck(t *testing.T) {
	dir := home(t)
	if err := Check(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("none: %v", err)
	}
	if err := Create(dir); err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[os.FileMode]error{0o700: nil, 0o755: nil, 0o775: ErrUntrusted, 0o702: ErrUntrusted} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := Check(dir); !errors.Is(err, want) {
			t.Errorf("mode %#o: %v", mode, err)
		}
	}
	if err := errors.Join(os.Remove(dir), os.Symlink(t.TempDir(), dir)); err != nil {
		t.Fatal(err)
	}
	if err := Check(dir); !errors.Is(err, ErrUntrusted) {
		t.Errorf("link: %v", err)
	}
	t.Setenv(Variable, dir)
	if err := Check(dir); err != nil {
		t.Errorf("a user named it: %v", err)
	}
}

// TestMayServe checks combinations of owners of directories and daemons.
func TestMayServe(t *testing.T) {
	t.Setenv(Variable, "/named")
	for _, c := range []struct {
		dir         string
		owner, peer uint32
		ok          bool
	}{
		{OfUser(), 1000, 1000, true}, {OfUser(), 1000, 0, true}, {OfUser(), 1000, 1001, false}, {OfUser(), 0, 1001, false},
		{OfUser(), 1000, overflowUID, false}, {OfUser(), overflowUID, overflowUID, true},
		{"/named", 0, overflowUID, true}, {"/named", overflowUID, 1000, true}, {"/named", 1000, 1001, false},
	} {
		if err := mayServe(c.dir, c.owner, c.peer); (err == nil) != c.ok {
			t.Errorf("%s of %d, daemon of %d: %v", c.dir, c.owner, c.peer, err)
		}
	}
}

// TestCheckPeer checks the owner of a listening socket.
func TestCheckPeer(t *testing.T) {
	dir := t.TempDir()
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := CheckPeer(dir, c.(*net.UnixConn)); err != nil {
		t.Error(err)
	}
}

// TestFiles: a link is not followed, and a replaced file counts as new.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, []byte("precious"), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if f, err := Open(link, 0o600); err == nil {
		f.Close()
		t.Error("a link is followed")
	}
	f, err := Replace(link, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("log"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "precious" {
		t.Errorf("the target of a link: %q, %v", b, err)
	}
}
