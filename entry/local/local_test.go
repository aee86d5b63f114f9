package local

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start makes NICs with active links.
func start(t *testing.T, yaml string) *NICs {
	t.Helper()
	n, err := Start(yaml, nil)
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, n.Ready(ctx))
	return n
}

// side is one end of a connection.
type side struct {
	dev *verbs.Context
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

func open(t *testing.T, n *NICs, name string) *side {
	t.Helper()
	s := &side{}
	var err error
	s.dev, err = n.Open(name)
	must(t, err)
	t.Cleanup(func() { s.dev.Close() })
	pd, err := s.dev.AllocPD()
	must(t, err)
	s.mr, err = pd.AllocMR(1<<16, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	must(t, err)
	s.cq, err = s.dev.CreateCQ(16, nil)
	must(t, err)
	s.qp, err = pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.cq, MaxSendWR: 8, MaxSendSGE: 1})
	must(t, err)
	return s
}

// write connects two NICs and writes 64 KiB from the first one's memory to the other's.
func write(t *testing.T, n *NICs, from, to string) {
	t.Helper()
	a, b := open(t, n, from), open(t, n, to)
	p := verbs.DefaultConnParams()
	toA, err := a.qp.Info(p)
	must(t, err)
	toB, err := b.qp.Info(p)
	must(t, err)
	must(t, a.qp.Connect(toB, p))
	must(t, b.qp.Connect(toA, p))
	for i := range a.mr.Bytes() {
		a.mr.Bytes()[i] = byte(i * 7)
	}
	must(t, a.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpWrite, Flags: verbs.SendSignaled, SGEs: []verbs.SGE{a.mr.SGE(0, 1<<16)},
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wcs [1]verbs.WC
	_, err = a.cq.PollWait(ctx, wcs[:])
	must(t, err)
	must(t, wcs[0].Err())
	if !bytes.Equal(a.mr.Bytes(), b.mr.Bytes()) {
		t.Error("the peer has other data")
	}
}

// TestStart: NICs of each port that needs no privilege move data, on a switch too, with an extended transport, and under
// fault rules.
func TestStart(t *testing.T) {
	for name, yaml := range map[string]string{
		"unix":      Pair,
		"switch":    strings.ReplaceAll(Pair, "{name:", "{switch: s, name:"),
		"shards":    strings.NewReplacer("{name: rxe_a,", "{switch: s, name: rxe_a,", "{name: rxe_b,", "{switch: s, shard: t, name: rxe_b,").Replace(Pair),
		"irn":       strings.ReplaceAll(Pair, "{name:", "{profile: irn, name:"),
		"faults":    strings.ReplaceAll(Pair, "{name:", "{faults: [tx drop p=0.1 seed=3], name:"),
		"udp, IPv4": "nics: [{name: rxe_a, port: {type: udp, address: 127.8.54.2}}, {name: rxe_b, port: {type: udp, address: 127.8.54.3}}]",
	} {
		t.Run(name, func(t *testing.T) { write(t, start(t, yaml), "rxe_a", "rxe_b") })
	}
}

// TestTurns: a client in the process runs the NIC's turns until the NIC ends; then it loses its device.
func TestTurns(t *testing.T) {
	n, err := Start(Pair, nil)
	must(t, err)
	dir := n.RunDir()
	socket := filepath.Join(dir, "uverbs0")
	if uverbs.TurnOf(socket) == nil {
		t.Error("clients of this process wait for the NIC's thread")
	}
	st, err := os.Stat(dir)
	must(t, err)
	if st.Mode().Perm() != 0o700 {
		t.Errorf("other users may read the run directory: %v", st.Mode())
	}
	s := open(t, n, "rxe_b")
	must(t, n.Close())
	if uverbs.TurnOf(socket) != nil {
		t.Error("the turn of a NIC outlives it")
	}
	<-s.dev.Done()
	if _, err := s.cq.Poll(make([]verbs.WC, 1)); err == nil {
		t.Error("a device outlives its NIC")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the run directory stays: %v", err)
	}
}

// TestCapture: the configuration's capture has the frames, and its run_dir is used.
func TestCapture(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.pcapng")
	n := start(t, fmt.Sprintf("run_dir: %s/run\n", dir)+strings.Replace(Pair, "{name:", "{capture: {file: "+file+"}, name:", 1))
	if n.RunDir() != filepath.Join(dir, "run") {
		t.Errorf("run directory %s", n.RunDir())
	}
	write(t, n, "rxe_a", "rxe_b")
	must(t, n.Close())
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	r, err := pcapng.NewReader(f)
	must(t, err)
	frames := 0
	for r.Next(&pcapng.Frame{}) == nil {
		frames++
	}
	if frames < 16 {
		t.Errorf("%d frames", frames)
	}
}

// TestRefused: a wrong configuration leaves no directory behind.
func TestRefused(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, yaml := range []string{"nics: [{name: a, port: {type: pigeon}}]", "nics: [{name: a, port: {type: udp, address: 192.0.2.1}}]", "{"} {
		if _, err := Start(yaml, nil); err == nil {
			t.Errorf("%s is accepted", yaml)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
