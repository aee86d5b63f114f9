package server

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"roced.io/roced/internal/daemon/accept"
	"roced.io/roced/internal/daemon/quota"
)

// TestMappedRoot connects as root of a user namespace. The daemon sees the user outside, which has no privilege.
func TestMappedRoot(t *testing.T) {
	const outside = 4242
	if os.Geteuid() != 0 {
		t.Skip("maps another user, which takes root")
	}
	name := fmt.Sprintf("@roced-mapped-root-%d", os.Getpid())
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c := exec.Command("perl", "-MSocket", "-e", `socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack_sockaddr_un("\0$ARGV[0]")) or die; print $<; close(STDOUT); <STDIN>`, name[1:])
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Credential: &syscall.Credential{NoSetGroups: true},
		UidMappings: []syscall.SysProcIDMap{{HostID: outside, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: outside, Size: 1}}}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Skip("no user namespaces here:", err)
	}
	var inside int
	if _, err := fmt.Fscan(out, &inside); err != nil || inside != 0 {
		t.Fatalf("the client is user %d in its namespace: %v", inside, err)
	}
	conn, err := ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cred, err := accept.PeerCred(conn)
	if err != nil || cred.Uid != outside || quota.Privileged(cred.Uid) || accept.Allowed(cred, []uint32{1}, nil) {
		t.Errorf("%+v, %v", cred, err)
	}
	in.Close()
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}
