package netlab

import (
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestHostsReachEachOther sends a line over TCP from one namespace to the other.
func TestHostsReachEachOther(t *testing.T) {
	b, err := New()
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("needs CAP_NET_ADMIN: %v", err)
		}
		t.Fatal(err)
	}
	defer b.Close()
	var ln net.Listener
	err = b.NS[1].Do(func() (err error) {
		ln, err = net.Listen("tcp", net.JoinHostPort(HostAddr(1), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, "hello")
		c.Close()
	}()
	var c net.Conn
	err = b.NS[0].Do(func() (err error) {
		c, err = net.DialTimeout("tcp", ln.Addr().String(), 5*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "hello" {
		t.Fatalf("got %q, %v", got, err)
	}
}
