package verbs_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/server"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/internal/daemon/ucma"
	unixport "roced.io/roced/port/unix"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/verbs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host is a daemon with one NIC.
type host struct {
	path string
	dir  string // run directory, with rdma_cm
	addr netip.Addr
	stop func()
}

// lab starts two daemons with connected NICs. Each has its sockets in its own run directory.
func lab(t testing.TB) [2]*host {
	t.Helper()
	dir := t.TempDir()
	return [2]*host{newHost(t, dir, 0), newHost(t, dir, 1)}
}

func newHost(t testing.TB, dir string, i int) *host {
	t.Helper()
	names := [2]string{"a", "b"}
	port, err := unixport.Open(unixport.Config{Local: filepath.Join(dir, "link-"+names[i]), Remote: filepath.Join(dir, "link-"+names[1-i])})
	must(t, err)
	events := &server.Events{}
	mac := inet.MAC{2, 0, 0, 0, 0, byte(i + 1)}
	nic, err := rocev2.New(rocev2.Config{Name: "rxe_" + names[i], MAC: mac, MTU: 1500, Seed: [32]byte{byte(i)}, Events: events,
		Addrs:      []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 24)},
		NewProfile: func(name string) (qp.Profile, error) { return rocev2.NewProfile(name) }})
	must(t, err)
	sh, err := shard.New(shard.Config{NIC: nic, Port: port})
	must(t, err)
	path := filepath.Join(dir, "uverbs"+string(rune('0'+i)))
	srv, err := server.New(server.Config{Path: path, Mode: 0o600, Shard: sh, Device: "rxe_" + names[i],
		Profiles: []string{"rc", "mrc"}, MAC: mac, Log: slog.New(slog.DiscardHandler),
		Limits: server.Limits{Connections: 8, QPs: 64, CQs: 64, SRQs: 8, MRs: 64, MWs: 8, PDs: 8, AHs: 8, Channels: 8, Memory: 64 << 20}})
	must(t, err)
	events.Attach(srv)
	h := &host{path: path, dir: filepath.Join(dir, names[i]), addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}
	must(t, os.Mkdir(h.dir, 0o700))
	cm, err := ucma.New(ucma.Config{Path: filepath.Join(h.dir, ucma.Socket), Mode: 0o600, Quota: quota.New(quota.Amounts{}, quota.Amounts{quota.CMDevices: 4, quota.CMIDs: 64}, nil),
		Log: slog.New(slog.DiscardHandler), NICs: []ucma.NIC{{Name: "rxe_" + names[i], GUID: server.GUID(mac), Shard: sh,
			May: func(*unix.Ucred) bool { return true }}}})
	must(t, err)
	h.stop = sync.OnceFunc(func() {
		for _, f := range []func() error{cm.Close, srv.Close, sh.Close, port.Close} {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(h.stop)
	return h
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want checks that err is one of kind.
func want(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("error %v, want %v", err, kind)
	}
}

// timeout returns a context that bounds a test.
func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// node is a process that uses one host.
type node struct {
	t   testing.TB
	ctx *verbs.Context
	pd  *verbs.PD
	ch  *verbs.CompChannel
	cq  *verbs.CQ
	mr  *verbs.MR
	qp  *verbs.QP
}

const all = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic | verbs.AccessFlushGlobal

// openDevice opens a host's device and openManager its connection manager. TestKernelABI replaces both.
var (
	openDevice  = func(_ testing.TB, h *host) (*verbs.Context, error) { return verbs.Open(h.path) }
	openManager = func(h *host) (*verbs.CM, error) { return verbs.OpenCM("", verbs.WithRunDir(h.dir)) }
)

// open creates the usual objects, without a queue pair.
func (h *host) open(t testing.TB) *node {
	t.Helper()
	n := &node{t: t}
	var err error
	n.ctx, err = openDevice(t, h)
	must(t, err)
	t.Cleanup(func() {
		if err := n.ctx.Close(); err != nil {
			t.Error(err)
		}
	})
	n.pd, err = n.ctx.AllocPD()
	must(t, err)
	n.ch, err = n.ctx.CreateCompChannel()
	must(t, err)
	n.cq, err = n.ctx.CreateCQ(128, n.ch)
	must(t, err)
	n.mr, err = n.pd.AllocMR(1<<16, all|verbs.AccessMWBind)
	must(t, err)
	return n
}

func (n *node) createQP(attr verbs.QPInitAttr) {
	n.t.Helper()
	n.qp = n.newQP(attr)
}

func (n *node) newQP(attr verbs.QPInitAttr) *verbs.QP {
	n.t.Helper()
	attr.SendCQ, attr.RecvCQ = n.cq, n.cq
	if attr.MaxSendWR == 0 {
		attr.MaxSendWR, attr.MaxRecvWR, attr.MaxSendSGE, attr.MaxRecvSGE, attr.MaxInline = 32, 32, 4, 4, 64
	}
	q, err := n.pd.CreateQP(attr)
	must(n.t, err)
	return q
}

// connected creates two nodes with connected queue pairs.
func connected(t testing.TB, attr verbs.QPInitAttr) (a, b *node) {
	t.Helper()
	hosts := lab(t)
	a, b = hosts[0].open(t), hosts[1].open(t)
	a.createQP(attr)
	b.createQP(attr)
	join(t, a, b)
	return a, b
}

func join(t testing.TB, a, b *node) {
	t.Helper()
	p := verbs.DefaultConnParams()
	p.QKey = 0x11111111
	ia, err := a.qp.Info(p)
	must(t, err)
	ib, err := b.qp.Info(p)
	must(t, err)
	must(t, a.qp.Connect(ib, p))
	must(t, b.qp.Connect(ia, p))
}

// completion waits for one completion, which must be successful.
func (n *node) completion() verbs.WC {
	n.t.Helper()
	w := n.anyCompletion()
	must(n.t, w.Err())
	return w
}

func (n *node) anyCompletion() verbs.WC {
	n.t.Helper()
	var wcs [1]verbs.WC
	_, err := n.cq.Wait(timeout(n.t), wcs[:])
	must(n.t, err)
	return wcs[0]
}
