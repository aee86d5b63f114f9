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

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// soon is the time limit for detecting an end. It is generous, because the machine may be loaded.
const soon = 30 * time.Second

// moving starts an endless run and waits until data move.
func (l *rig) moving(args ...string) (server, client *lab.Proc) {
	l.T.Helper()
	server, client = l.pair(append(args, "-D", "10m")...)
	lab.Eventually(l.T, lab.Limit, "queue pairs of the client", func() bool { return len(l.queuePairs(0, client.PID())) > 0 })
	start := l.counters(0)["sent_pkts"]
	lab.Eventually(l.T, lab.Limit, "data that moves", func() bool {
		if !client.Running() || !server.Running() {
			l.T.Fatalf("ended too early\nclient: %s\nserver: %s", &client.Diag, &server.Diag)
		}
		return l.counters(0)["sent_pkts"] > start+100
	})
	return server, client
}

// serves checks that both daemons still work.
func (l *rig) serves() {
	l.T.Helper()
	l.verify("write-bw -s 64k -n 4")
	l.verify("send-bw -s 4k -n 4 -q 4")
}

// TestClientDies kills a client during a transfer.
func TestClientDies(t *testing.T) {
	for name, o := range map[string]netlab.LabOptions{"unix": onUnix, "switch": onSwitch, "shards": onShards} {
		t.Run(name, func(t *testing.T) { newLab(t, o).clientsDie(t) })
	}
}

func (l *rig) clientsDie(t *testing.T) {
	for _, args := range []string{"write-bw -q 4", "send-bw -b", "read-bw", "send-bw -c ud", "send-lat"} {
		t.Run(args, func(t *testing.T) {
			l := l.at(t)
			server, client := l.moving(strings.Fields(args)...)
			client.Signal(os.Kill)
			lab.Eventually(t, soon, "no queue pairs of the dead client", func() bool {
				return len(l.queuePairs(0, client.PID())) == 0
			})
			server.Fails(soon)
			lab.Eventually(t, soon, "no queue pairs of the server", func() bool { return len(l.queuePairs(1, server.PID())) == 0 })
			l.serves()
		})
	}
	l.NoClients()
}

// TestServerDies kills the passive side while a client reads its memory.
func TestServerDies(t *testing.T) {
	lab.Long(t)
	for name, o := range map[string]netlab.LabOptions{"unix": onUnix, "switch": onSwitch, "shards": onShards} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, o)
			server, client := l.moving("read-bw")
			server.Signal(os.Kill)
			client.Fails(soon)
			l.serves()
		})
	}
}

// TestDaemonDies kills a client's daemon, and starts it again.
func TestDaemonDies(t *testing.T) {
	for _, args := range []string{"write-bw", "send-bw -b --events", "write-lat", "send-bw --verify"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, onUnix)
			server, client := l.moving(strings.Fields(args)...)
			l.Host[0].Stop(os.Kill)
			client.Fails(soon, "the daemon is gone")
			server.Fails(soon)
			lab.Must(t, l.Host[0].Start(lab.Bin))
			l.serves()
		})
	}
}

// TestDaemonDiesOnTAP restarts the daemon on a TAP that disappeared with it.
func TestDaemonDiesOnTAP(t *testing.T) {
	lab.Long(t)
	l := newLab(t, onTAP)
	_, client := l.moving("write-bw")
	l.Host[0].Stop(os.Kill)
	client.Fails(soon, "the daemon is gone")
	lab.Must(t, l.Host[0].Start(lab.Bin))
	l.serves()
}

// TestRunDirIsBusy starts a second daemon, which must refuse to start.
func TestRunDirIsBusy(t *testing.T) {
	l := newLab(t, onUnix)
	p := l.Start(0, lab.Program("roced"), "run", "--config", l.Host[0].Config)
	p.Fails(soon, l.Host[0].RunDir, "another roced")
	l.serves()
}

// TestTerminate sends SIGTERM to a daemon. It waits a limited time for active clients, and exits at once if it has
// none.
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
		client.Fails(soon, "the daemon is gone")
	})
	t.Run("finishing", func(t *testing.T) {
		o := onUnix
		o.Extra = "drain: 30s\n"
		l := newLab(t, o)
		_, client := l.pair("write-bw", "-D", "1s")
		// The daemon does not wait for a client without data in flight.
		lab.Eventually(t, lab.Limit, "data that moves", func() bool { return l.counters(0)["sent_pkts"] > 1000 })
		ended := make(chan error, 1)
		go func() { ended <- l.Host[0].Stop(syscall.SIGTERM) }()
		lab.Eventually(t, soon, "new clients are refused", func() bool {
			c, err := net.Dial("unixpacket", filepath.Join(l.Host[0].RunDir, "uverbs0"))
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		if code := client.Exit(soon); code != 0 {
			t.Errorf("the client was not allowed to finish: %s", &client.Diag)
		}
		lab.Must(t, <-ended)
	})
}

// TestPeerDies kills the peer's daemon, and stops the program there, which would notify the client. A reliable sender
// detects the failure by itself.
func TestPeerDies(t *testing.T) {
	lab.Long(t)
	l := newLab(t, onUnix)
	server, client := l.moving("write-bw", "--timeout", "10", "--retry-cnt", "2")
	server.Signal(syscall.SIGSTOP)
	l.Host[1].Stop(os.Kill)
	client.Fails(soon, "retry")
	if n := l.counters(0)["retry_exceeded_err"]; n == 0 {
		t.Error("retry_exceeded_err is 0")
	}
	server.Signal(os.Kill)
	lab.Must(t, l.Host[1].Start(lab.Bin))
	l.serves()
}
