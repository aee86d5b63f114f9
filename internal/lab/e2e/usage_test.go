package e2e

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

// said runs one of our programs and returns its exit code and output.
func said(t *testing.T, args ...string) (code int, out, diag string) {
	t.Helper()
	p := lab.Launch(t, (*exec.Cmd).Start, append([]string{lab.Program(args[0])}, args[1:]...))
	code = p.Exit(lab.Limit)
	return code, p.Out.String(), p.Diag.String()
}

// TestErrors calls the programs with wrong arguments, and makes them fail.
func TestErrors(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	for _, c := range []struct {
		code int
		args string
		word string // of the message
	}{
		{2, "roced frob", "frob"},
		{2, "roced run extra", "extra"},
		{2, "roced run --frob", "frob"},
		{2, "roced check --config " + nowhere, nowhere},
		{2, "roced run --config /dev/null", "the file is empty"},

		{2, "rocectl frob", "frob"},
		{2, "rocectl --frob", "frob"},
		{2, "rocectl link frob", "frob"},
		{2, "rocectl link show frob", "usage"},
		{2, "rocectl res frob", "frob"},
		{2, "rocectl res show frob", "frob"},
		{2, "rocectl stat a b", "usage"},
		{2, "rocectl stat --watch x", "watch"},
		{2, "rocectl capture", "usage"},
		{2, "rocectl capture rxe0", "-w FILE"},
		{2, "rocectl decode", "usage"},
		{2, "rocectl fault frob", "frob"},
		{2, "rocectl fault add rxe0 frob", "frob"},
		{2, "rocectl fault list", "usage"},
		{2, "rocectl poll", "usage"},
		{2, "rocectl up a b", "usage"},
		{2, "rocectl up --port tap", "udp, packet, xdp"},
		{2, "rocectl down frob", "usage"},
		{2, "rocectl up --socket x", "--run-dir"},
		{2, "roced up --pair eth0", "connected to each other"},
		{2, "roced up --no-switch", "requires --pair"},
		{2, "roced up --pair --port packet", "udp, unix"},
		{1, "roced up nothing0 --run-dir " + filepath.Join(t.TempDir(), "run"), "no such interface"},
		{1, "roced up --run-dir /proc/run", "/proc/run"},
		{1, "rocectl link --run-dir " + nowhere, "is roced running?"},
		{1, "rocectl stat --socket " + nowhere, nowhere},
		{1, "rocectl events --run-dir " + nowhere, "is roced running?"},
		{1, "rocectl capture rxe0 -w /dev/null --run-dir " + nowhere, "is roced running?"},
		{1, "rocectl decode " + nowhere, nowhere},
		{1, "rocectl decode /proc/self/cmdline", "not a valid pcap"},

		{2, "roceperf frob", "frob"},
		{2, "roceperf write-bw --frob", "frob"},
		{2, "roceperf write-bw a b", "more than one host"},
		{2, "roceperf write-bw -s 0", "size"},
		{2, "roceperf write-bw -s 4x", "4x"},
		{2, "roceperf write-bw -q 0", "qps"},
		{2, "roceperf write-bw -m 1000", "1000"},
		{2, "roceperf write-bw -c xrc", "xrc"},
		{2, "roceperf write-bw -c ud", "UD"},
		{2, "roceperf read-bw -c uc", "UC"},
		{2, "roceperf write-lat -q 2", "one queue pair"},
		{2, "roceperf write-lat -b", "bidirectional"},
		{2, "roceperf write-bw -b --verify", "one direction"},
		{2, "roceperf write-bw --oob tcp:1", "tcp:1"},
		{2, "roceperf write-bw -D -1s", "duration"},
		{1, "roceperf write-bw peer --oob unix:" + nowhere, nowhere},
		{1, "roceperf write-bw localhost -p 1", "refused"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			code, out, diag := said(t, strings.Fields(c.args)...)
			if code != c.code || !strings.Contains(diag, c.word) || out != "" {
				t.Errorf("exit code %d, want %d; says %q on standard output and\n%s", code, c.code, out, diag)
			}
			if err := lab.InWords(diag); err != nil {
				t.Error(err)
			}
		})
	}
}

var commandLine = regexp.MustCompile(`(?m)^  ([a-z-]+)  +\S`)

// TestHelp walks through all commands: each has a description and examples.
func TestHelp(t *testing.T) {
	seen := 0
	var walk func(args []string)
	walk = func(args []string) {
		seen++
		code, out, diag := said(t, append(args, "--help")...)
		name := strings.Join(args, " ")
		if code != 0 || diag != "" {
			t.Errorf("%s --help: exit code %d\n%s", name, code, diag)
		}
		if _, examples, ok := strings.Cut(out, "Examples:\n"); !ok || !strings.HasPrefix(examples, "  "+args[0]+" ") {
			t.Errorf("%s --help has no examples:\n%s", name, out)
		}
		if strings.TrimSpace(strings.SplitN(out, "\n", 2)[0]) == "" {
			t.Errorf("%s --help has no description", name)
		}
		_, list, _ := strings.Cut(out, "Available Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
			if m[1] != "help" {
				walk(append(args[:len(args):len(args)], m[1]))
			}
		}
	}
	for _, program := range []string{"roced", "rocectl", "roceperf"} {
		walk([]string{program})
	}
	if seen < 20 {
		t.Errorf("only %d commands", seen)
	}
}

// TestNoDevice makes roceperf open NICs that do not exist.
func TestNoDevice(t *testing.T) {
	l := newLab(t, onUnix)
	args := []string{lab.Program("roceperf"), "write-bw", "--oob", "unix:" + filepath.Join(l.Dir, "oob"), "--run-dir"}
	l.Start(1, append(args, l.Host[1].RunDir, "--device", "rxe_z")...).Fails(soon, "rxe_z") // at once, not at the first client
	server := l.Start(1, append(args, l.Host[1].RunDir)...)
	lab.Eventually(t, soon, "a server", func() bool { return pathExists(filepath.Join(l.Dir, "oob")) })
	l.Start(0, append(args, l.Host[0].RunDir, "--device", "rxe_z", "peer")...).Fails(soon, "rxe_z")
	server.Fails(soon)
	for _, options := range []string{"--gid-index 99", "--profile frob"} {
		server, client := l.pair(append([]string{"write-bw"}, strings.Fields(options)...)...)
		client.Fails(soon)
		server.Fails(soon)
	}
	l.serves()
}

// TestNoSuchNIC makes rocectl name a NIC that does not exist.
func TestNoSuchNIC(t *testing.T) {
	l := newLab(t, onUnix)
	for _, args := range []string{"stat rxe_z", "capture rxe_z -w /dev/null", "fault clear rxe_z", "poll rxe_z", "poll rxe0 frob"} {
		l.Ctl(0, strings.Fields(args)...).Fails(soon)
	}
}

// TestSides refuses a client whose test differs from the server's.
func TestSides(t *testing.T) {
	l := newLab(t, onUnix)
	sock := filepath.Join(l.Dir, "oob")
	perf := lab.Program("roceperf")
	server := l.Start(1, perf, "write-bw", "--run-dir", l.Host[1].RunDir, "--oob", "unix:"+sock)
	lab.Eventually(t, soon, "a server", func() bool { return pathExists(sock) })
	client := l.Start(0, perf, "read-bw", "peer", "--run-dir", l.Host[0].RunDir, "--oob", "unix:"+sock)
	client.Fails(soon, "the other side reports", "read-bw", "write-bw")
	server.Fails(soon, "read-bw", "write-bw")
}
