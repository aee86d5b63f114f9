package dut

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/frame"
	"roced.io/roced/drill/script"
)

// TestMain shortens the limit after which a process is killed, because agents of these tests hang.
func TestMain(m *testing.M) {
	endLimit = 200 * time.Millisecond
	os.Exit(m.Run())
}

// shorten shortens a limit for the rest of a test that waits until it has passed.
func shorten(t *testing.T, limit *time.Duration, to time.Duration) {
	before := *limit
	*limit = to
	t.Cleanup(func() { *limit = before })
}

// fake is a device on AF_UNIX datagrams that only answers requests for its MAC address, and an agent that is a shell script.
type fake struct {
	agent Agent
	dir   string
	late  []byte // frame that the device sends, late, before an answer; nil for none
	close func() // ends the device
}

// newFake returns a device whose agent runs a script. $dir is the folder of the test.
func newFake(t *testing.T, text string) *fake {
	t.Helper()
	dir, err := os.MkdirTemp("", "dut") // with a short path, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := &fake{agent: DefaultAgent(), dir: dir}
	f.agent.Link = "unix:" + f.path("dut")
	f.agent.Command = "/bin/sh " + f.path("agent")
	if err := os.WriteFile(f.path("agent"), []byte("dir="+dir+"; echo $$ >$dir/pid\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fake) path(name string) string { return filepath.Join(f.dir, name) }

// connect makes the device's end of the link, and answers by neighbour discovery if v6 is set, else by ARP.
func (f *fake) connect(t *testing.T, v6 bool) {
	t.Helper()
	l, err := openSocket(f.path("dut"), f.path("dut"+testerSuffix))
	if err != nil {
		t.Fatal(err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	v4 := dutIP
	if v6 {
		v4 = netip.MustParseAddr("198.18.0.77")
	}
	go func() {
		defer close(ended)
		buf := make([]byte, 2000)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if ready, _ := l.wait(10 * time.Millisecond); !ready {
				continue
			}
			r, err := l.recv(buf)
			if reply := resolve(buf[:r.n], dutMAC, v4, dutIP6); err == nil && reply != nil {
				if f.late != nil {
					time.Sleep(20 * time.Millisecond)
					l.send(f.late)
				}
				l.send(reply)
			}
		}
	}()
	f.close = sync.OnceFunc(func() {
		close(stop)
		<-ended
		l.close()
	})
	t.Cleanup(f.close)
}

// started reports whether the agent has written its process ID.
func (f *fake) started() bool {
	text, _ := os.ReadFile(f.path("pid"))
	return len(text) > 0
}

// gone checks that the agent has ended and that the tester's socket is away.
func (f *fake) gone(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(f.path("pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("the agent still runs: %v", err)
	}
	if _, err := os.Stat(f.path("dut" + testerSuffix)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the tester's socket is left: %v", err)
	}
}

// opens is the beginning of an agent that opens its device, and whose round trip is measured.
const opens = "read n line; echo $n ok version=5 mtu=4096 gid4=0 gid6=1 caps=rc,ipv4,ipv6\n" +
	"for i in 1 2 3 4 5 6 7 8; do read n line; echo $n ok; done\n"

// answers is an agent that answers every command.
const answers = opens + "while read n line; do echo $n ok va=1 lkey=1 rkey=1 num=5; done\n"

// TestAgentIsLost: an agent or a device that cannot be reached, or ends or hangs while it starts, is a clear error. Nothing
// is left behind.
func TestAgentIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		agent string
		want  string
	}{
		"ends":          {"exit 7", "the agent has ended: exit status 7 of \"/bin/sh /"},
		"is killed":     {"kill -9 $$", "the agent has ended: signal: killed of \"/bin/sh /"},
		"no device":     {"read n line; echo $n error cannot open device; cat", "the agent answers \"cannot open device\" to \"open"},
		"older agent":   {"read n line; echo $n ok gid4=0 caps=rc; cat", "the agent has version \"\", rocedrill needs " + agentVersion},
		"silent device": {answers, "it does not answer requests for the MAC address of 198.18.0.2 and fd00::2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.agent)
			shorten(t, &macLimit, 100*time.Millisecond)
			_, err := StartAgent(t.Context(), f.agent)
			if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			f.gone(t)
		})
	}
	t.Run("hangs", func(t *testing.T) {
		f := newFake(t, "sleep 1000")
		for limit := 100 * time.Millisecond; !f.started(); limit *= 2 { // until the limit suffices for its start
			shorten(t, &answerLimit, limit)
			if _, err := StartAgent(t.Context(), f.agent); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "the agent does not answer \"open device=") {
				t.Error(err)
			}
		}
		f.gone(t)
	})
	t.Run("no program", func(t *testing.T) {
		f := newFake(t, "")
		f.agent.Command = "/nowhere/agent"
		if _, err := StartAgent(t.Context(), f.agent); err == nil || errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "/nowhere/agent: no such file") {
			t.Error(err)
		}
	})
	t.Run("no interface", func(t *testing.T) {
		f := newFake(t, "")
		f.agent.Link = "nowhere0"
		if _, err := StartAgent(t.Context(), f.agent); err == nil || errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "link nowhere0: route ip+net: no such network interface") {
			t.Error(err)
		}
	})
}

// TestInterruptedStart: an interrupt kills an agent and a daemon that start, also if they ignore signals and the end of their input.
func TestInterruptedStart(t *testing.T) {
	const hangs = "trap '' INT TERM; while :; do sleep 1; done"
	for name, start := range map[string]func(ctx context.Context, f *fake) error{
		"agent": func(ctx context.Context, f *fake) error {
			_, err := StartAgent(ctx, f.agent)
			return err
		},
		"daemon": func(ctx context.Context, f *fake) error {
			if err := os.WriteFile(f.path("roced"), []byte("#!/bin/sh\necho $$ >"+f.path("pid")+"; "+hangs), 0o700); err != nil {
				return err
			}
			d := &daemon{bin: f.dir, dir: t.TempDir()}
			_, err := d.start(ctx)
			return errors.Join(err, d.stop())
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, hangs)
			shorten(t, &endLimit, time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				for !f.started() && t.Context().Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
			began := time.Now()
			if err := start(ctx, f); !errors.Is(err, context.Canceled) || time.Since(began) > 15*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			f.gone(t)
		})
	}
}

// session starts a session with the agent, which ends with the test.
func (f *fake) session(t *testing.T) *Session {
	t.Helper()
	s, err := StartAgent(t.Context(), f.agent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// run runs a script whose device does nothing. end, if not nil, is called while the script waits.
func (f *fake) run(t *testing.T, text string, end func(cancel func())) (*engine.Result, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := StartAgent(ctx, f.agent)
	if err != nil {
		t.Fatal(err)
	}
	d, err := script.Parse("x.drill", "spec \"x\" must\nneed rc\n"+text)
	if err != nil {
		t.Fatal(err)
	}
	if end != nil {
		end(cancel)
	}
	r, err := s.Run(ctx, d, 0)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	f.gone(t)
	return r, err
}

// conclusive repeats run until the tester was in time.
func (f *fake) conclusive(t *testing.T, text string) (r *engine.Result, err error) {
	t.Helper()
	for r, err = f.run(t, text, nil); err == nil && r.Outcome == engine.Inconclusive; r, err = f.run(t, text, nil) {
	}
	return r, err
}

// TestLateFrames: a frame of an earlier script that arrives late reaches no other script.
func TestLateFrames(t *testing.T) {
	for name, v6 := range map[string]bool{"ARP": false, "neighbour discovery": true} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, answers)
			ack, err := (&frame.Spec{SrcMAC: dutMAC, DstMAC: testerMAC, Src: dutIP, Dst: testerIP, Opcode: bth.OpAcknowledge,
				Fields: []frame.Set{{Name: "dst", Value: 0x11}}}).Build()
			if err != nil {
				t.Fatal(err)
			}
			f.late = ack.Bytes
			f.agent.Slack = time.Hour // delays are not the subject
			f.connect(t, v6)
			r, err := f.run(t, "quiet 50ms", nil)
			if err != nil || r.Outcome != engine.Passed {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestEarlierRuns: a device repeats the DREQ of a connection that an earlier script has left. The tester answers it, and hides
// it and other messages of that connection from the script. A message of the current run fails the script.
func TestEarlierRuns(t *testing.T) {
	f := newFake(t, answers)
	f.connect(t, false)
	s := f.session(t)
	old := s.ids.next()
	current := s.ids.next()
	message := func(attr mad.Attr, id uint32) []byte {
		f, err := (&frame.Spec{SrcMAC: dutMAC, DstMAC: testerMAC, Src: dutIP, Dst: testerIP, Opcode: bth.TransportUD | bth.OpSendOnly,
			Payload: frame.Message(attr, dutIP, testerIP, 0), Fields: []frame.Set{{Name: "mad.tid", Value: 0x99}, {Name: "cm.local", Value: 7},
				{Name: "cm.remote", Value: uint64(id)}}}).Build()
		if err != nil {
			t.Fatal(err)
		}
		return f.Bytes
	}
	for _, c := range []struct {
		attr    mad.Attr
		id      uint32
		earlier bool
		reply   string
	}{
		{mad.AttrDREQ, old, true, fmt.Sprintf("UD_SEND_ONLY dst=1 psn=0 qkey=0x80010000 src=1 mad.attr=0x16 cm.local=%#x cm.remote=7", old)},
		{mad.AttrREP, old, true, ""},
		{mad.AttrDREQ, current, false, ""},
		{mad.AttrDREQ, current + 1, false, ""},
		{mad.AttrDREQ, old - 2, false, ""},
		{mad.AttrREQ, 0, false, ""},
	} {
		reply, earlier := s.earlier(message(c.attr, c.id))
		text := ""
		if reply != nil {
			a, err := frame.Parse(reply)
			if err == nil {
				err = a.Check()
			}
			if err != nil {
				t.Fatal(err)
			}
			text = a.String()
			if tid, _ := a.Get("mad.tid"); tid != 0x99 {
				t.Errorf("the reply has the transaction ID %#x", tid)
			}
		}
		if earlier != c.earlier || !strings.HasPrefix(text, c.reply) || (c.reply == "") != (text == "") {
			t.Errorf("%#x to %#x: earlier %v, reply %q", c.attr, c.id, earlier, text)
		}
	}
}

// TestBrokenFrame: a frame with a wrong ICRC comes before the answer to a command. It fails this script, and the late answer
// disturbs no other one.
func TestBrokenFrame(t *testing.T) {
	f := newFake(t, opens+"while read n line; do case $line in qp*) echo >$dir/asked; until [ -e $dir/go ]; do sleep 0.01; done;; esac; "+
		"echo $n ok va=1 lkey=1 rkey=1 num=5; done\n")
	f.agent.Slack = time.Hour // delays are not the subject
	f.connect(t, false)
	s := f.session(t)
	broken, err := (&frame.Spec{SrcMAC: dutMAC, DstMAC: testerMAC, Src: dutIP, Dst: testerIP, Opcode: bth.OpAcknowledge, BadICRC: true,
		Fields: []frame.Set{{Name: "dst", Value: 0x11}}}).Build()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			if _, err := os.Stat(f.path("asked")); err == nil || t.Context().Err() != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		s.frames <- arrival{s.now(), broken.Bytes}
		os.WriteFile(f.path("go"), nil, 0o600)
	}()
	for _, want := range []engine.Outcome{engine.Failed, engine.Passed} {
		text, err := script.Parse("x.drill", "spec \"x\" must\nneed rc\nqp = dut.qp rc\nquiet 10ms")
		if err != nil {
			t.Fatal(err)
		}
		if r, err := s.Run(t.Context(), text, 0); err != nil || r.Outcome != want {
			t.Errorf("%+v, %v, want %v", r, err, want)
		}
	}
}

// TestDeviceIsLost: a device or an agent that ends during a script ends the run, and nothing is left behind.
func TestDeviceIsLost(t *testing.T) {
	const silent = "qp = dut.qp rc\n> SEND_ONLY within 50ms"
	t.Run("works", func(t *testing.T) {
		f := newFake(t, answers)
		f.connect(t, false)
		if r, err := f.conclusive(t, silent); err != nil || r.Outcome != engine.Failed {
			t.Error(r, err)
		}
	})
	t.Run("by neighbour discovery", func(t *testing.T) {
		f := newFake(t, answers)
		f.connect(t, true)
		if r, err := f.conclusive(t, silent); err != nil || r.Outcome != engine.Failed {
			t.Error(r, err)
		}
	})
	t.Run("the agent ends", func(t *testing.T) {
		f := newFake(t, opens+"read line")
		f.connect(t, false)
		if r, err := f.run(t, silent, nil); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "the agent has ended") || r.Outcome != engine.Broken {
			t.Error(r, err)
		}
	})
	t.Run("the device ends", func(t *testing.T) {
		f := newFake(t, answers)
		f.connect(t, false)
		_, err := f.run(t, silent, func(func()) {
			f.close()
			shorten(t, &macLimit, 100*time.Millisecond)
		})
		if !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	})
	t.Run("a signal", func(t *testing.T) {
		f := newFake(t, answers)
		f.connect(t, false)
		_, err := f.run(t, "wait 1000s", func(cancel func()) { time.AfterFunc(50*time.Millisecond, cancel) })
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
