package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// soon bounds how long an end takes to be noticed. It is not measured exactly:
// the machine may be loaded.
const soon = 10 * time.Second

// moving starts a run that does not end by itself and waits until data moves.
func (l *lab) moving(args ...string) (server, client *proc) {
	l.t.Helper()
	server, client = l.pair(append(args, "-D", "10m")...)
	eventually(l.t, limit, "queue pairs of the client", func() bool { return len(l.queuePairs(0, client.pid())) > 0 })
	start := l.counters(0)["sent_pkts"]
	eventually(l.t, limit, "data that moves", func() bool {
		if !client.running() || !server.running() {
			l.t.Fatalf("ended too early\nclient: %s\nserver: %s", &client.diag, &server.diag)
		}
		return l.counters(0)["sent_pkts"] > start+100
	})
	return server, client
}

// serves checks that both daemons still work.
func (l *lab) serves() {
	l.t.Helper()
	l.verify("write-bw -s 64k -n 4")
	l.verify("send-bw -s 4k -n 4 -q 4")
}

// TestClientDies kills a client in mid-transfer.
func TestClientDies(t *testing.T) {
	l := newLab(t, onUnix)
	for _, args := range []string{"write-bw -q 4", "send-bw -b", "read-bw", "send-bw -c ud", "send-lat"} {
		t.Run(args, func(t *testing.T) {
			l := l.at(t)
			server, client := l.moving(strings.Fields(args)...)
			client.signal(os.Kill)
			eventually(t, soon, "no queue pairs of the dead client", func() bool {
				return len(l.queuePairs(0, client.pid())) == 0
			})
			server.fails(soon)
			eventually(t, soon, "no queue pairs of the server", func() bool { return len(l.queuePairs(1, server.pid())) == 0 })
			l.serves()
		})
	}
	for i := range l.Host {
		if n := l.link(i).Clients; n != 0 {
			t.Errorf("%s still has %d clients", l.Host[i].Device, n)
		}
	}
}

// TestServerDies kills the passive side, while a client reads its memory.
func TestServerDies(t *testing.T) {
	l := newLab(t, onUnix)
	server, client := l.moving("read-bw")
	server.signal(os.Kill)
	client.fails(soon)
	l.serves()
}

// TestDaemonDies kills the daemon beside a client, and starts it again.
func TestDaemonDies(t *testing.T) {
	for _, args := range []string{"write-bw", "send-bw -b --events", "write-lat", "send-bw --verify"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, onUnix)
			server, client := l.moving(strings.Fields(args)...)
			l.Host[0].Stop(os.Kill)
			client.fails(soon, "the daemon is gone")
			server.fails(soon)
			must(t, l.Host[0].Start(bin))
			l.serves()
		})
	}
}

// TestDaemonDiesOnTAP starts the daemon again on a TAP that went with it.
func TestDaemonDiesOnTAP(t *testing.T) {
	l := newLab(t, onTAP)
	_, client := l.moving("write-bw")
	l.Host[0].Stop(os.Kill)
	client.fails(soon, "the daemon is gone")
	must(t, l.Host[0].Start(bin))
	l.serves()
}

// TestRunDirIsBusy has a second daemon refuse to start.
func TestRunDirIsBusy(t *testing.T) {
	l := newLab(t, onUnix)
	p := l.start(0, filepath.Join(bin, "roced"), "run", "--config", l.Host[0].Config)
	p.fails(soon, l.Host[0].RunDir, "another roced")
	l.serves()
}

// TestTerminate sends SIGTERM to a daemon: it waits for its clients for a while,
// and for nobody when there is nothing to do.
func TestTerminate(t *testing.T) {
	const drain = time.Second
	t.Run("idle", func(t *testing.T) {
		l := newLab(t, onUnix)
		if err := l.Host[0].Stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"roced.sock", "uverbs0"} {
			if _, err := os.Lstat(filepath.Join(l.Host[0].RunDir, name)); err == nil {
				t.Errorf("%s is left behind", name)
			}
		}
	})
	t.Run("busy", func(t *testing.T) {
		o := onUnix
		o.Extra = fmt.Sprintf("drain: %v\n", drain)
		l := newLab(t, o)
		_, client := l.moving("write-bw")
		start := time.Now()
		if err := l.Host[0].Stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d < drain || d > drain+soon {
			t.Errorf("ended after %v", d)
		}
		client.fails(soon, "the daemon is gone")
	})
	t.Run("finishing", func(t *testing.T) {
		o := onUnix
		o.Extra = "drain: 30s\n"
		l := newLab(t, o)
		_, client := l.pair("write-bw", "-D", "1s")
		// A client that has not begun has nothing under way to be waited for.
		eventually(t, limit, "data that moves", func() bool { return l.counters(0)["sent_pkts"] > 1000 })
		ended := make(chan error, 1)
		go func() { ended <- l.Host[0].Stop(syscall.SIGTERM) }()
		eventually(t, soon, "new clients are refused", func() bool {
			c, err := net.Dial("unixpacket", filepath.Join(l.Host[0].RunDir, "uverbs0"))
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		if code := client.exit(soon); code != 0 {
			t.Errorf("the client was not allowed to finish: %s", &client.diag)
		}
		must(t, <-ended)
	})
}

// TestPeerDies kills the peer's daemon, and stops the program there, which would
// tell the client: a reliable sender notices by itself.
func TestPeerDies(t *testing.T) {
	l := newLab(t, onUnix)
	server, client := l.moving("write-bw", "--timeout", "10", "--retry-cnt", "2")
	server.signal(syscall.SIGSTOP)
	l.Host[1].Stop(os.Kill)
	client.fails(soon, "retry")
	if n := l.counters(0)["retry_exceeded_err"]; n == 0 {
		t.Error("retry_exceeded_err is 0")
	}
	server.signal(os.Kill)
	must(t, l.Host[1].Start(bin))
	l.serves()
}
