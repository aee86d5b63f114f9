package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"roced.io/roced/drill/client"
	"roced.io/roced/verbs"
)

// fakeRXE returns an end whose agent answers commands by their first word, "ok" by default, and the list of commands.
func fakeRXE(t *testing.T, answers map[string]string) (*rxe, *[]string) {
	t.Helper()
	near, far := net.Pipe()
	var commands []string
	go func() {
		defer far.Close()
		for r := bufio.NewScanner(far); r.Scan(); {
			number, command, _ := strings.Cut(r.Text(), " ")
			word, _, _ := strings.Cut(command, " ")
			commands = append(commands, command)
			for line := range strings.Lines(cmp.Or(answers[word], "ok\n")) {
				if strings.HasPrefix(line, "ok") { // completions have no number
					line = number + " " + line
				}
				fmt.Fprint(far, line)
			}
		}
	}()
	own := [2]netip.Addr{netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("fd00::2")}
	r := &rxe{agent: client.New(near), addr: own, base: address{Addr: 4096, RKey: 77}}
	t.Cleanup(func() { r.agent.Close() })
	return r, &commands
}

// TestRXEConnects: an end passes the settings to the agent, takes addresses from its answers, and destroys objects before
// those that they need.
func TestRXEConnects(t *testing.T) {
	r, commands := fakeRXE(t, map[string]string{"mw": "ok rkey=511\n", "qp": "ok num=18\n", "bind": "ok\ncqe on=qp status=SUCCESS\n", "query": "ok state=ERR psn=3\n"})
	s := settings{Type: verbs.UD, MTU: verbs.MTU256, IPv6: true, Timeout: 14, RetryCnt: 5, RNRRetry: 6}
	a, err := r.Open(s)
	if want := (address{QPN: 18, PSN: a.PSN, GID: verbs.GIDOf(r.addr[1]), Addr: 4096, RKey: 77}); err != nil || a != want {
		t.Errorf("%+v, %v, want %+v", a, err, want)
	}
	if err := r.Connect(address{QPN: 33, PSN: 44}); err != nil {
		t.Error(err)
	}
	if s, err := r.State(); s != verbs.QPErr || err != nil {
		t.Error(s, err)
	}
	if key, err := r.Window(64, 8); key != 256 || err != nil {
		t.Errorf("window: %d, %v", key, err)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	want := []string{
		"cq name=cq size=512",
		"qp name=qp type=ud scq=cq rcq=cq size=256 rsize=256 sges=1 inline=0 state=INIT qkey=286331153",
		"modify on=qp state=RTR",
		fmt.Sprintf("modify on=qp state=RTS psn=%d", a.PSN),
		"ah name=ah ip=6",
		"query on=qp",
		"mw name=mw type=2",
		"bind on=qp mw=mw to=mr:64:8 rkey=256 access=wr",
		"destroy on=mw", "destroy on=ah", "destroy on=qp", "destroy on=cq",
	}
	if !slices.Equal(*commands, want) {
		t.Errorf("commands\n%q, want\n%q", *commands, want)
	}
}

// TestRXERequests: requests have the operands of their operation.
func TestRXERequests(t *testing.T) {
	const common = " on=qp wr=5 remote=108 rkey=9 compare=2 swap=3"
	r := &rxe{peer: address{QPN: 33, Addr: 100, RKey: 9}, settings: settings{Type: verbs.RC}}
	w := work{ID: 5, Remote: 8, Off: 64, Len: 8, Imm: 7, Compare: 2, Swap: 3}
	for op, verb := range map[verbs.Opcode]string{
		verbs.OpSend: "send", verbs.OpSendImm: "send imm=7", verbs.OpSendWithInv: "send inv=7", verbs.OpWrite: "write",
		verbs.OpWriteImm: "write imm=7", verbs.OpRead: "read", verbs.OpFetchAdd: "fadd", verbs.OpCmpSwap: "cas",
	} {
		w.Op = op
		if got, want := r.request(w), verb+common+" sge=mr:64:8"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r.settings.Type = verbs.UD
	w.Op, w.Len, w.RKey = verbs.OpSend, 0, 10
	if got, want := r.request(w), "send on=qp wr=5 remote=108 rkey=10 compare=2 swap=3 ah=ah peer=33 qkey=286331153"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRXEPolls: completions arrive between answers, and those of an earlier queue pair are dropped.
func TestRXEPolls(t *testing.T) {
	r, _ := fakeRXE(t, map[string]string{
		"send": "cqe on=qp queue=recv wr=1 status=SUCCESS op=RECV len=48 imm=6 peer=3\ncqe on= queue=send wr=8 status=SUCCESS op=SEND\nok\n" +
			"cqe on=qp queue=send wr=2 status=REM_ACCESS_ERR\ncqe on=qp queue=recv wr=3 status=SUCCESS op=RECV len=0 inv=5\n",
		"write": "ok ns=2000000000 done=9 status=RETRY_EXC_ERR\n",
	})
	if err := r.Send(work{Op: verbs.OpSend}); err != nil {
		t.Fatal(err)
	}
	want := []verbs.WC{{WRID: 1, ByteLen: 48, Imm: 6, SrcQP: 3, Flags: verbs.WCWithImm | verbs.WCGRH}, {WRID: 2, Status: verbs.StatusRemAccessErr},
		{WRID: 3, Imm: 5, Flags: verbs.WCWithInv}}
	if got, err := r.Poll(2, time.Minute); err != nil || !slices.Equal(got, want[:2]) {
		t.Errorf("%+v, %v, want %+v", got, err, want[:2])
	}
	if got, err := r.Poll(1, time.Minute); err != nil || !slices.Equal(got, want[2:]) {
		t.Errorf("%+v, %v, want %+v", got, err, want[2:])
	}
	if got, err := r.Poll(1, time.Millisecond); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v, want none", got, err)
	}
	if s, err := r.Stream(work{Op: verbs.OpWrite}, 16, time.Second); err != nil || s != (streamed{2 * time.Second, 9, verbs.StatusRetryExcErr}) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestRXEMemory: eight bytes of memory are a little-endian number.
func TestRXEMemory(t *testing.T) {
	r, commands := fakeRXE(t, map[string]string{"check": "ok data=0807060504030201\n"})
	if v, err := r.Word(16); v != 0x0102030405060708 || err != nil {
		t.Errorf("%#x, %v", v, err)
	}
	if err := r.SetWord(24, 0x0102030405060708); err != nil {
		t.Error(err)
	}
	if err := r.Fill(64, 3000, 1<<63, 5); err != nil {
		t.Error(err)
	}
	want := []string{"check sge=mr:16:8", "set sge=mr:24:8 data=0807060504030201", "set sge=mr:64:3000 seed=9223372036854775808 from=5"}
	if !slices.Equal(*commands, want) {
		t.Errorf("%q, want %q", *commands, want)
	}
}
