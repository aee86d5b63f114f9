package test

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"roced.io/roced/drill/client"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// pipes are the standard input and output of an agent.
type pipes struct {
	io.ReadCloser
	io.Writer
	close func() error
}

func (p pipes) Close() error { return p.close() }

// connect starts the agent on the NIC of host 1.
func connect(t *testing.T, l *lab.Lab) *client.Conn {
	t.Helper()
	c := exec.Command("/bin/sh", "-c", "exec "+agentOf(l))
	in, err := c.StdinPipe()
	lab.Must(t, err)
	out, err := c.StdoutPipe()
	lab.Must(t, err)
	lab.Must(t, l.NS(0).Start(c))
	a := client.New(pipes{out, in, func() error { return errors.Join(in.Close(), c.Wait()) }})
	t.Cleanup(func() { lab.Must(t, a.Close()) })
	return a
}

// TestAgent: the agent fills and compares memory by a pattern, and repeats a request until its time is over. The queue pair is
// connected to itself.
func TestAgent(t *testing.T) {
	needAgent(t)
	a := connect(t, lab.New(t, netlab.LabOptions{}))
	say := func(command string) map[string]string {
		t.Helper()
		answer, err := a.Command(t.Context(), command, func(string) {})
		lab.Must(t, err)
		return answer
	}
	const pattern = "e132451fbe9a822c3cab16c93a1384c5" // of seed 7
	say("open device= dut=198.18.0.2 tester=198.18.0.2")
	mr := say("mr name=mr size=4096")
	say("set sge=mr:3:12 seed=7 from=2")
	if data := say("check sge=mr:0:16")["data"]; data != "000000"+pattern[4:28]+"00" {
		t.Errorf("memory is %s", data)
	}
	say("check sge=mr:5:10 seed=7 from=4")
	for command, want := range map[string]string{
		"check sge=mr:5:10 seed=7 from=5":    "byte 0 of 10 is 0xbe, want 0x9a",
		"check sge=mr:3:13 seed=7 from=2":    "byte 12 of 13 is 0, want 0x84",
		"set sge=mr:4090:7 seed=7 from=0":    "the part lies outside the region",
		"set sge=mr:0:2 data=abc":            "not two hexadecimal digits for each byte",
		"set sge=mr:0:2 data=abcdef":         "not two hexadecimal digits for each byte",
		"set sge=mr:0:2 data=-1-1":           "not two hexadecimal digits for each byte",
		"set sge=mr:0:1":                     "not two hexadecimal digits for each byte",
		"mr name=huge size=1073741825":       "memory of 1073741825 bytes",
		"mr name=huge size=-1":               "memory of 18446744073709551615 bytes",
		"awrite on=mr data=0102030405060708": "no object mr",
	} {
		if _, err := a.Command(t.Context(), command, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", command, err, want)
		}
	}
	num := say("qp name=qp state=INIT")["num"]
	say("modify on=qp state=RTR peer=" + num)
	say("modify on=qp state=RTS timeout=10 retry=1")
	s := map[string]string{"status": "SUCCESS", "done": "0"}
	for ms := 20; s["status"] == "SUCCESS" && s["done"] == "0"; ms *= 2 { // until the time suffices
		begin := time.Now()
		s = say(fmt.Sprintf("write on=qp sge=mr:0:8 remote=%s rkey=%s depth=4 ms=%d", mr["va"], mr["rkey"], ms))
		if took := time.Since(begin); s["status"] != "SUCCESS" || took < 20*time.Millisecond {
			t.Errorf("%v: %v", took, s)
		}
	}
	s = say("write on=qp sge=mr:0:8 remote=" + mr["va"] + " rkey=" + mr["rkey"] + " depth=64 ms=0")
	if s["status"] != "SUCCESS" || s["done"] != "0" { // no completion of the first one is left
		t.Errorf("no time: %v", s)
	}
	s = say("write on=qp sge=mr:0:8 remote=0 rkey=0 depth=1 ms=1000000")
	if s["status"] != "WR_FLUSH_ERR" || s["done"] != "0" { // the queue pair is the responder, too, which breaks
		t.Errorf("a wrong key: %v", s)
	}
}
