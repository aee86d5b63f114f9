package environment

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestAbsent: a daemon that closes connections is not told as one that does not run, or as one of another user.
func TestAbsent(t *testing.T) {
	dir := t.TempDir()
	if err := Absent(dir); !strings.Contains(err.Error(), "is roced running?") {
		t.Error(err)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "uverbs0"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Absent(dir); !strings.Contains(err.Error(), "a limit is reached") {
		t.Error(err)
	}
}
