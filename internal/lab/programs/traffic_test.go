package programs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// pairOf is a shell command that runs a server and, as soon as it listens on a TCP port, a client. It fails if the server
// ends before.
func pairOf(server, client string, port int) string {
	return fmt.Sprintf("%s & until ss -Hltn 'sport = :%d' | grep -q .; do kill -0 $! || exit 1; sleep 0.05; done; %s && wait $!", server, port, client)
}

// TestRequiredTraffic checks that exec counts the payload of all processes of a program, and catches programs that use
// TCP or no network at all.
func TestRequiredTraffic(t *testing.T) {
	lab.Need(t, "ib_write_bw")
	lab.Need(t, "ucx_perftest")
	l := lab.New(t, netlab.LabOptions{Shared: [2]string{"packet", "packet"}})
	addr, dev := l.Host[clientHost].Addr, l.Host[clientHost].Device
	perftest := "ib_write_bw -s 4096 -n 100 -d " + dev
	ucx := func(arg string) string {
		return onTerminal("ucx_perftest -t tag_lat -s 4096 -n 100 -w 1 -p 13400" + arg)
	}
	for _, c := range []struct {
		name, require, command string
		code                   int
		says                   string
	}{
		{"enough", "400k", pairOf(perftest, perftest+" "+addr, 18515), 0, ""},
		{"a byte too few", "409601", pairOf(perftest, perftest+" "+addr, 18515), 3, "moved 409600 bytes of payload"},
		{"TCP", "1", "export UCX_TLS=tcp; " + pairOf(ucx(""), ucx(" "+addr), 13400), 3, "moved 0 bytes"},
		{"device without queue pairs", "1", "ibv_devinfo", 3, "no process created a queue pair"},
		{"failure of the program", "1", "exit 7", 7, "moved 0 bytes"},
		{"death of the program", "1", "kill -9 $$", 137, "signal 9"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			p := l.At(t).Ctl(clientHost, "exec", "--require-traffic", c.require, "--", "sh", "-c", c.command)
			if code := p.Exit(lab.Limit); code != c.code || !strings.Contains(p.Diag.String(), c.says) {
				t.Errorf("exit code %d, want %d and %q\n%s", code, c.code, c.says, p.Said())
			}
		})
	}
}

// TestReceivedTraffic checks that exec counts the payload of SENDs that a program only receives.
func TestReceivedTraffic(t *testing.T) {
	lab.Need(t, "ib_send_bw")
	l := lab.New(t, netlab.LabOptions{Shared: [2]string{"packet", "packet"}})
	perftest := "ib_send_bw -s 4096 -n 100 -d "
	receiver := l.Ctl(serverHost, "exec", "--require-traffic", "400k", "--", "sh", "-c", perftest+l.Host[serverHost].Device)
	if err := receiver.Listens(18515); err != nil {
		t.Fatal(err)
	}
	sender := l.Ctl(clientHost, "exec", "--", "sh", "-c", perftest+l.Host[clientHost].Device+" "+l.Host[serverHost].Addr)
	if code := sender.Exit(lab.Limit); code != 0 {
		t.Errorf("sender: exit code %d\n%s", code, sender.Said())
	}
	if code := receiver.Exit(lab.Limit); code != 0 {
		t.Errorf("receiver: exit code %d\n%s", code, receiver.Said())
	}
}

// TestTrafficSummary checks what exec says about each process.
func TestTrafficSummary(t *testing.T) {
	lab.Need(t, "ib_write_bw")
	l := lab.New(t, netlab.LabOptions{Shared: [2]string{"packet", "packet"}})
	perftest := "ib_write_bw -s 4096 -n 100 -q 2 -d " + l.Host[clientHost].Device
	p := l.Ctl(clientHost, "exec", "--json", "--summary", "--", "sh", "-c",
		pairOf("exec "+perftest+" >/dev/null 2>&1", perftest+" "+l.Host[clientHost].Addr+" >/dev/null 2>&1", 18515))
	if code := p.Exit(lab.Limit); code != 0 {
		t.Fatalf("exit code %d: %s", code, p.Said())
	}
	type work struct{ Messages, Bytes uint64 }
	var s struct {
		Processes []struct {
			Program           string
			QPs               map[string]int
			Requested, Served map[string]work
		}
		Payload uint64
		Live    int
	}
	if err := json.Unmarshal([]byte(p.Diag.String()), &s); err != nil {
		t.Fatalf("%v: %s", err, p.Said())
	}
	const bytes = 2 * 100 * 4096
	if len(s.Processes) != 2 || s.Payload != bytes || s.Live != 0 {
		t.Fatalf("%+v", s)
	}
	requests := 0
	for _, r := range s.Processes {
		if r.Program != "ib_write_bw" || r.QPs["rc"] != 2 {
			t.Errorf("%+v", r)
		}
		if len(r.Requested) > 0 {
			requests++
			if r.Requested["write"] != (work{200, bytes}) {
				t.Errorf("%+v", r)
			}
		} else if r.Served["write"] != (work{200, bytes}) {
			t.Errorf("%+v", r)
		}
	}
	if requests != 1 {
		t.Errorf("%d processes have written, want one: %+v", requests, s)
	}
}
