package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/verbs"
)

// TestSizes: every operation is tested with all its valid sizes.
func TestSizes(t *testing.T) {
	large := []int{0, 1, 3, 1023, 1024, 1025, 64 << 10, 8 << 20}
	for _, c := range []struct {
		name string
		m    matrix
		op   verbs.Opcode
		s    settings
		want []int
	}{
		{"RC, all", matrix{large: true}, verbs.OpWrite, tolerantSettings(verbs.RC, verbs.MTU1024, true), large},
		{"RC, short form, IPv4", matrix{}, verbs.OpRead, tolerantSettings(verbs.RC, verbs.MTU1024, false), large},
		{"RC, short form, IPv6", matrix{}, verbs.OpRead, tolerantSettings(verbs.RC, verbs.MTU1024, true), large[:7]},
		{"RC, short form, MTU 256", matrix{}, verbs.OpSend, tolerantSettings(verbs.RC, verbs.MTU256, false), []int{0, 1, 3, 255, 256, 257, 64 << 10}},
		{"UD", matrix{large: true}, verbs.OpSend, tolerantSettings(verbs.UD, verbs.MTU1024, false), large[:5]},
		{"atomic", matrix{large: true}, verbs.OpCmpSwap, tolerantSettings(verbs.RC, verbs.MTU4096, false), []int{8}},
	} {
		if got := c.m.sizes(c.op, c.s); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestOperations: the services have the operations of the specification (IBTA table 35), and each has a name.
func TestOperations(t *testing.T) {
	for typ, want := range map[verbs.QPType]int{verbs.RC: 8, verbs.UC: 4, verbs.UD: 2} {
		if got := operations[typ]; len(got) != want {
			t.Errorf("%v has %d operations, want %d", typ, len(got), want)
		}
		for _, op := range operations[typ] {
			if opNames[op] == "" {
				t.Errorf("%v: operation %d has no name", typ, op)
			}
		}
	}
}

// TestPattern: the pattern of a seed is the agent's (TestAgent in drill/test), it is the same from any starting
// offset, and differences are found.
func TestPattern(t *testing.T) {
	b := make([]byte, 100)
	fill(b, 7, 0)
	for from := range b {
		if err := check(b[from:], 7, uint64(from)); err != nil {
			t.Fatalf("from %d: %v", from, err)
		}
	}
	if got := hex.EncodeToString(b[:16]); got != "e132451fbe9a822c3cab16c93a1384c5" {
		t.Errorf("it begins with %s", got)
	}
	b[41] ^= 1
	if err := check(b, 7, 0); err == nil || !strings.Contains(err.Error(), "byte 41 of 100") {
		t.Errorf("changed byte 41: %v", err)
	}
}

// TestNetworks: a word selects the networks for speed measurements.
func TestNetworks(t *testing.T) {
	for word, n := range map[string]int{"": 4, "loss": 1, "16 QP": 1, "MTU 4096": 3, "MTU 9000": 0} {
		if list := networks(word); len(list) != n {
			t.Errorf("%q: %v, want %d", word, list, n)
		}
	}
	if list := speedParts(false, speedCPU, "MTU 9000"); list != nil {
		t.Errorf("%d parts without a network", len(list))
	}
}

// TestBatch: a batch is the same for the same seed, and its requests do not share memory.
func TestBatch(t *testing.T) {
	a, b := newBatch(3), newBatch(3)
	if !slices.Equal(a.works, b.works) {
		t.Error("the same seed gives different batches")
	}
	end := 0
	for i, w := range a.works {
		if isAtomic(w.Op) {
			continue
		}
		low := min(w.Off, w.Remote)
		if low < end || w.Len > batchSlot {
			t.Errorf("request %d begins at %d, the one before ends at %d", i, low, end)
		}
		end = low + w.Len
	}
	if end > recvArea {
		t.Errorf("the batch needs %d bytes of an area of %d", end, recvArea)
	}
}

// TestMangle: the changes that the wire makes to frames cause the intended drops.
func TestMangle(t *testing.T) {
	frame := roceFrame(t)
	if p, ok := parse(frame); !ok || p.Opcode != bth.OpSendOnly || p.PSN != bth.MakePSN(77) {
		t.Fatalf("parse: %+v, %t", p, ok)
	}
	moved := wrongPKey(slices.Clone(frame))
	p, ok := parse(moved)
	if !ok || p.PKey != 0x9234 {
		t.Errorf("P_Key %#x, %t", p.PKey, ok)
	}
	if err := bth.CheckICRC(datagram(moved)); err != nil {
		t.Errorf("wrong P_Key: %v", err)
	}
	if err := bth.CheckICRC(datagram(badICRC(slices.Clone(frame)))); err == nil {
		t.Error("the damaged ICRC is right")
	}
	if _, ok := parse(frame[:40]); ok {
		t.Error("a cut frame is parsed")
	}
}

// roceFrame returns a SEND of 12 bytes over IPv4, with the trailing bytes that an Ethernet frame may have.
func roceFrame(t *testing.T) []byte {
	p := bth.Packet{Opcode: bth.OpSendOnly, PKey: 0xffff, PSN: bth.MakePSN(77), DestQP: 17, Payload: make([]byte, 12)}
	f := make([]byte, ethLen+ipUDPLen+p.WireLen())
	f[12] = 8 // IPv4
	ip := f[ethLen:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	binary.BigEndian.PutUint16(ip[20:], 0xc000)
	binary.BigEndian.PutUint16(ip[22:], rocePort)
	binary.BigEndian.PutUint16(ip[24:], uint16(len(ip)-20))
	p.PutHeaders(ip[ipUDPLen:])
	if err := bth.SealICRC(ip); err != nil {
		t.Fatal(err)
	}
	return append(f, 0, 0)
}

// datagram returns the IP datagram in a frame.
func datagram(f []byte) []byte { return f[ethLen:][:binary.BigEndian.Uint16(f[ethLen+2:])] }

// TestReport: the document has the counts, the failures, and every table.
func TestReport(t *testing.T) {
	r := &report{log: io.Discard, command: "make interop", seed: 9, versions: []string{"Linux 6.1"}}
	good := r.of(kind{Type: verbs.RC, Op: verbs.OpSend})
	good.Cases, good.Bytes = 5, 3e6
	if r.of(kind{Type: verbs.RC, Op: verbs.OpSend}) != good {
		t.Error("the same kind has two tallies")
	}
	bad := r.of(kind{Type: verbs.UD, Op: verbs.OpSendImm, WeRespond: true})
	bad.Cases, bad.Wrong, bad.Lost = 4, 1, 2
	r.failed("case", errors.New("first line\nsecond line"))
	r.begin(table{Title: "Errors", Head: []string{"trial", "value"}})
	r.row("dead network", "1.5")
	var b bytes.Buffer
	if err := r.document(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"**9 cases of the matrix with 3 MB, 2 repeated because UC or UD lost them; 1 rows of other tables; 1 failures.**",
		"Seed 9.", "* Linux 6.1\n", "    case: first line\n    second line\n",
		"| service | operation | AF_UNIX: we request | AF_UNIX: we respond |\n|---|---|--:|--:|\n| RC | SEND | 5 of 5 | 0 of 0 |\n",
		"| UD | SEND_IMM | 0 of 0 | 3 of 4 |\n", "## Errors\n\n| trial | value |\n|---|--:|\n| dead network | 1.5 |\n",
		"## Where rxe departs",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the document lacks %q:\n%s", want, b.String())
		}
	}
}

// TestSpeed: the output of rxespeed is parsed, and a smaller latency is better.
func TestSpeed(t *testing.T) {
	run := func(bandwidth string) string {
		return "a: " + bandwidth + "\nb: 1\nc: 1\nd: 1\ncompletion: transport retry counter exceeded\ne latency, us: 40\nf: failed\ng: 1\n"
	}
	list, err := parseSpeed(run("10.5"))
	if err != nil || list[0].value != 10.5 || list[4] != (reading{name: "e latency, us", value: 40}) || !list[5].failed {
		t.Errorf("%v %v", list, err)
	}
	if r := (reading{name: "latency", value: 30}).ratio(reading{value: 60}); r != "2.00" {
		t.Errorf("half the latency is %v times as good", r)
	}
	if r := (reading{value: 30}).ratio(reading{value: 60}); r != "0.50" {
		t.Errorf("half the bandwidth is %v times as good", r)
	}
	if r := (reading{value: 30}).ratio(reading{failed: true}); r != "-" {
		t.Errorf("compared with what failed: %v", r)
	}
	for _, out := range []string{"", "a: x\n", "a: 1\n", run("0"), run("nan"), run("+Inf")} {
		if _, err := parseSpeed(out); err == nil {
			t.Errorf("%q is accepted", out)
		}
	}
}

// TestLack: a case whose path MTU a NIC lacks has no values, and the table gives the reason once. Other cases are measured.
func TestLack(t *testing.T) {
	const list = `[{"name": "rxe_s1", "port": "xdp", "active_mtu": 2048, "mode": "no multi-buffer"}, {"name": "rxe_s2", "active_mtu": 4096}]`
	for mtu, want := range map[int]string{2048: "", 4096: "path MTU 4096: the largest of the xdp port is 2048 (no multi-buffer)"} {
		if lack, err := (speedCase{mtu: mtu}).lack(list); lack != want || err != nil {
			t.Errorf("%d: %q, %v, want %q", mtu, lack, err, want)
		}
	}
	if _, err := (speedCase{}).lack("no JSON"); err == nil {
		t.Error("a wrong list is accepted")
	}
	v := reading{lack: "reason"}
	if cell, ratio := v.String(), v.ratio(reading{value: 1}); cell != "not supported" || ratio != "-" {
		t.Errorf("cells %q and %q", cell, ratio)
	}
	if text, want := lacks("AF_XDP", []reading{v, {value: 1}, v}), "\nNot supported: AF_XDP, reason."; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

// TestCommandLine: the placeholders of command lines are filled in.
func TestCommandLine(t *testing.T) {
	p := same("ibv_rc_pingpong -d %d -g %g", true)
	if got, want := line(p.server, "198.18.0.1", "rxe1", "1"), "ibv_rc_pingpong -d rxe1 -g 1"; got != want {
		t.Errorf("server %q, want %q", got, want)
	}
	if got, want := line(p.client, "198.18.0.1", "rxe1", "1"), "ibv_rc_pingpong -d rxe1 -g 1 198.18.0.1"; got != want {
		t.Errorf("client %q, want %q", got, want)
	}
}

// TestFlorCell: a client without answers is an error.
func TestFlorCell(t *testing.T) {
	cell, err := florCell(`{"calls": 7, "counters": {"Lost": 3, "Reconnects": 2, "WQEs": 9}}`)
	if want := "7, 3 lost, 2 anew"; err != nil || cell != want {
		t.Errorf("%q, %v, want %q", cell, err, want)
	}
	for _, out := range []string{"", "no connection", `{"calls": 0, "counters": {}}`} {
		if cell, err := florCell(out); err == nil {
			t.Errorf("%q is %q", out, cell)
		}
	}
}

// TestDirty: no last byte is right before the data arrive.
func TestDirty(t *testing.T) {
	for seed := range uint64(2000) {
		for _, size := range []int{1, 3, 1024} {
			b := make([]byte, guard+size)
			fill(b, transfer{seed: mix(seed), size: size}.dirty(), 0)
			if check(b[guard+size-1:], mix(seed), uint64(size-1)) == nil {
				t.Fatalf("seed %d, %d bytes", seed, size)
			}
		}
	}
}

// TestRaces: a program runs again if it has lost a race of its own, and for no other failure.
func TestRaces(t *testing.T) {
	lost, other := errors.New("client: RDMA_CM_EVENT_REJECTED; error: 8"), errors.New("RDMA_CM_EVENT_REJECTED; error: 28")
	for _, c := range []struct {
		races []string
		err   error
		runs  int
	}{{lateListen, lost, mostRuns}, {lateListen, other, 1}, {nil, lost, 1}, {otherQueue, nil, 1}} {
		runs := 0
		err := program{}.racing(c.races).again(func() error { runs++; return c.err })
		if err != c.err || runs != c.runs {
			t.Errorf("%q after %v: %d runs, %v", c.races, c.err, runs, err)
		}
	}
}
