package nic

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"roced.io/roced/bth"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

const gig = 1e9

// lab is a cluster over a graph, with losses.
type lab struct {
	t     testing.TB
	eng   engine.Engine
	k     *Cluster
	maker []*profile.Maker
	hash  uint64 // hash of all packets that enter a link
	sent  int
}

var labSwitch = fabric.SwitchConfig{
	Buffer: fabric.BufferConfig{Bytes: 4 << 20},
	ECN:    fabric.ECNConfig{Min: 20_000, Max: 80_000, Probability: 0.2},
}

func newLab(t testing.TB, g *fabric.Graph, sc fabric.SwitchConfig, seed uint64) *lab {
	t.Helper()
	l := &lab{t: t}
	var err error
	l.k, err = NewCluster(&l.eng, Config{MTU: 1000, Classes: Classes{Ack: 7, CNP: 7}, Network: func(o fabric.Owner) (*fabric.Network, error) {
		return fabric.New(&l.eng, fabric.Config{Graph: g, Seed: seed, Owner: o, Switch: func(int, int) fabric.SwitchConfig { return sc }})
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range g.Hosts {
		l.maker = append(l.maker, profile.NewMaker(profile.Link{Rate: 100e9, RTT: 10_000}))
	}
	return l
}

// watch hashes the packets that enter links.
func (l *lab) watch() {
	links := l.k.Network().Links()
	for i := range links {
		links[i].Tap = l
	}
}

// Sent implements fabric.Tap.
func (l *lab) Sent(now engine.Time, link *fabric.Link, d *fabric.Packet) {
	l.sent++
	h := fnv.New64a()
	fmt.Fprint(h, l.hash, now, link.Name, d.Bytes, d.Class, d.ECN)
	if d.Kind == fabric.Data {
		p, src, port := l.k.Packet(d)
		fmt.Fprint(h, p.Opcode, p.PSN, p.DestQP, len(p.Payload), src, port)
	}
	l.hash = h.Sum64()
}

// profiles returns a function for a queue pair's Profile.
func (l *lab) profiles(name string, s profile.Spec) func(int) (qp.Profile, error) {
	return func(host int) (qp.Profile, error) { return l.maker[host].New(name, s) }
}

// lose makes all links lose packets.
func (l *lab) lose(p float64) {
	links := l.k.Network().Links()
	for i := range links {
		links[i].Lose(p)
	}
}

// check fails if a packet is missing.
func (l *lab) check() {
	l.t.Helper()
	if err := l.k.Check(); err != nil {
		l.t.Fatal(err)
	}
	if n := l.k.InFlight(); n != 0 {
		l.t.Fatalf("%d packets are left", n)
	}
}

// job is a random list of requests from one queue pair to another, with their expected effects.
type job struct {
	l        *lab
	src, dst []byte
	ops      []jobOp
	done     int
	got      int // completed receives
	adds     uint64
}

type jobOp struct {
	w        qp.SendWQE
	at       uint64
	expected []byte
	receives bool
}

// The last 8 bytes of memory are a counter.
const jobMemory = 1 << 20

var jobVerbs = []qp.WROpcode{qp.WRWrite, qp.WRWriteImm, qp.WRSend, qp.WRSendImm, qp.WRRead, qp.WRFetchAdd, qp.WRCmpSwap}

func newJob(l *lab, name string, n int, rng *rand.Rand) *job {
	verbs := slices.DeleteFunc(slices.Clone(jobVerbs), func(op qp.WROpcode) bool { return !profile.Supports(name, op) })
	j := &job{l: l, src: make([]byte, jobMemory), dst: make([]byte, jobMemory)}
	for at := uint64(0); len(j.ops) < n; {
		op := verbs[rng.IntN(len(verbs))]
		size := rng.IntN(12_000)
		if op == qp.WRFetchAdd || op == qp.WRCmpSwap {
			size = 8
		}
		if at += uint64(-int64(at) & 7); at+uint64(size)+8 > jobMemory {
			break
		}
		o := jobOp{at: at, expected: make([]byte, size)}
		for i := range o.expected {
			o.expected[i] = byte(rng.Uint32())
		}
		o.w = qp.SendWQE{WRID: uint64(len(j.ops)), Opcode: op, Length: uint32(size), RemoteVA: at, Imm: uint32(len(j.ops)),
			SGEs: []qp.SGE{{Addr: at, Length: uint32(size)}}}
		switch op {
		case qp.WRRead:
			copy(j.dst[at:], o.expected)
		case qp.WRFetchAdd, qp.WRCmpSwap:
			o.w.RemoteVA, o.w.CompareAdd, o.w.Swap = jobMemory-8, 1, j.adds+1
			if op == qp.WRCmpSwap {
				o.w.CompareAdd = j.adds
			}
			binary.NativeEndian.PutUint64(o.expected, j.adds)
			j.adds++
		default:
			copy(j.src[at:], o.expected)
			o.receives = op != qp.WRWrite
		}
		at += uint64(size)
		j.ops = append(j.ops, o)
	}
	return j
}

// start posts all requests.
func (j *job) start(x, y *QP) {
	for i, o := range j.ops {
		if o.receives {
			y.PostRecv(RecvWR{ID: uint64(i), Addr: o.at, Length: o.w.Length})
		}
	}
	for _, o := range j.ops {
		x.Post(o.w)
	}
}

// Completed implements User.
func (j *job) Completed(_ engine.Time, _ *QP, c qp.CQE, receive bool) {
	if c.Status != qp.StatusSuccess {
		j.l.t.Fatalf("request %d completed with status %d", c.WRID, c.Status)
	}
	if receive {
		for !j.ops[j.got].receives {
			j.got++
		}
		if c.WRID != uint64(j.got) || c.ByteLen != j.ops[j.got].w.Length {
			j.l.t.Fatalf("receive %d of %d bytes completed in place of %d of %d", c.WRID, c.ByteLen, j.got, j.ops[j.got].w.Length)
		}
		j.got++
		return
	}
	if c.WRID != uint64(j.done) {
		j.l.t.Fatalf("request %d completed in place of %d", c.WRID, j.done)
	}
	j.done++
}

// verify compares every byte.
func (j *job) verify() {
	j.l.t.Helper()
	if j.done != len(j.ops) {
		j.l.t.Fatalf("%d of %d requests have completed", j.done, len(j.ops))
	}
	for i, o := range j.ops {
		mem := j.dst
		if o.w.Opcode == qp.WRRead || o.w.Opcode == qp.WRFetchAdd || o.w.Opcode == qp.WRCmpSwap {
			mem = j.src
		}
		if !bytes.Equal(mem[o.at:o.at+uint64(len(o.expected))], o.expected) {
			j.l.t.Fatalf("request %d (operation %d, %d bytes): data differ", i, o.w.Opcode, len(o.expected))
		}
	}
	if n := binary.NativeEndian.Uint64(j.dst[jobMemory-8:]); n != j.adds {
		j.l.t.Fatalf("the counter is %d, want %d", n, j.adds)
	}
}

// bundle is a transport profile with parts.
type bundle struct {
	name    string
	profile string
	spec    profile.Spec
}

func bundles() []bundle {
	out := []bundle{
		{"rc+dcqcn", "rc", profile.Spec{Congestion: profile.Part{Name: "dcqcn"}}},
		{"rc+timely", "rc", profile.Spec{Congestion: profile.Part{Name: "timely"}}},
		{"irn+dctcp", "irn", profile.Spec{Congestion: profile.Part{Name: "dctcp"}}},
		{"irn+nscc", "irn", profile.Spec{Congestion: profile.Part{Name: "nscc"}}},
		{"eunomia+selective+swift", "eunomia", profile.Spec{Recovery: profile.Part{Name: "selective"}, Congestion: profile.Part{Name: "swift"}}},
		{"eunomia+gobackn+static", "eunomia", profile.Spec{Recovery: profile.Part{Name: "gobackn"}, Congestion: profile.Part{Name: "static"}}},
		{"irn+spray", "irn", profile.Spec{Paths: profile.Part{Name: "spray"}}},
	}
	for _, name := range profile.Names() {
		out = append(out, bundle{name, name, profile.Spec{}})
	}
	return out
}

// TestTransports: every transport executes every verb over a lossy fabric. Each byte is in its place, and each
// completion arrives once and in order. The same seed produces the same events.
func TestTransports(t *testing.T) {
	for _, b := range bundles() {
		for _, loss := range []float64{0, 0.01} {
			t.Run(fmt.Sprintf("%s/%g", b.name, loss), func(t *testing.T) {
				run := func(seed uint64) (hash uint64, sent int) {
					l := newLab(t, fabric.ParallelPaths(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 2, 4), labSwitch, seed)
					l.watch()
					l.lose(loss)
					rng := rand.New(rand.NewPCG(seed, 1))
					var jobs []*job
					for i := range 3 { // two paths between two hosts; one pair has the opposite direction
						j := newJob(l, b.profile, 60, rng)
						x, y, err := l.k.Connect(i%2*2, 2-i%2*2+i/2, QPConfig{Profile: l.profiles(b.profile, b.spec), User: j, Timeout: 8,
							CNPInterval: 50_000, Memory: [2][]byte{j.src, j.dst}, FirstPSN: 1<<24 - 20})
						if err != nil {
							t.Fatal(err)
						}
						j.start(x, y)
						jobs = append(jobs, j)
					}
					l.eng.Run(2 * engine.Second)
					for _, j := range jobs {
						j.verify()
					}
					l.check()
					return l.hash, l.sent
				}
				hash, sent := run(3)
				if again, n := run(3); again != hash || n != sent {
					t.Errorf("the same seed gave %d transmissions, then %d; hashes %x and %x", sent, n, hash, again)
				}
				if other, _ := run(4); other == hash {
					t.Error("another seed gave the same")
				}
			})
		}
	}
}

// TestPhantom: phantom payload produces the same packets at the same instants as real bytes.
func TestPhantom(t *testing.T) {
	for _, b := range bundles() {
		var hashes [2]uint64
		for i := range hashes {
			l := newLab(t, fabric.Dumbbell(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 1, 1), labSwitch, 5)
			l.watch()
			l.lose(0.005)
			rng := rand.New(rand.NewPCG(5, 1))
			j := newJob(l, b.profile, 60, rng)
			c := QPConfig{Profile: l.profiles(b.profile, b.spec), User: j, Timeout: 8, CNPInterval: 50_000}
			if i == 0 {
				c.Memory = [2][]byte{j.src, j.dst}
			}
			x, y, err := l.k.Connect(0, 1, c)
			if err != nil {
				t.Fatal(err)
			}
			j.start(x, y)
			l.eng.Run(2 * engine.Second)
			if j.done != len(j.ops) {
				t.Fatalf("%s: %d of %d done", b.name, j.done, len(j.ops))
			}
			hashes[i] = l.hash
		}
		if hashes[0] != hashes[1] {
			t.Errorf("%s: payload without content is sent otherwise", b.name)
		}
	}
}

// TestUnreliable: with unreliable services, packets arrive unless lost, and sends complete once they have left.
func TestUnreliable(t *testing.T) {
	l := newLab(t, fabric.Star(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 3), labSwitch, 1)
	u := &counter{}
	x, y, err := l.k.Connect(0, 1, QPConfig{Type: qp.UC, Profile: l.profiles("rc", profile.Spec{}), User: u})
	if err != nil {
		t.Fatal(err)
	}
	shared := new(Receives)
	c := QPConfig{Profile: l.profiles("rc", profile.Spec{}), User: u, QKey: 5, SRQ: [2]*Receives{shared, shared}}
	from, err := l.k.Datagrams(0, c)
	if err != nil {
		t.Fatal(err)
	}
	to, err := l.k.Datagrams(2, c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		y.PostRecv(RecvWR{ID: uint64(i), Length: 5000})
		x.Post(qp.SendWQE{Opcode: qp.WRSend, Length: 5000})
		to.PostRecv(RecvWR{Length: 1040})
		from.Post(qp.SendWQE{Opcode: qp.WRSend, Length: 1000, AH: to.AddressHandle(), RemoteQPN: uint32(to.Num()), RemoteQKey: 5})
	}
	l.eng.Drain()
	if l.check(); u.sends != 200 || u.receives != 200 || u.failed != 0 || shared.Len() != 0 {
		t.Errorf("%+v, %d receives left", *u, shared.Len())
	}
}

// counter counts completions.
type counter struct {
	sends, receives, failed int
	last                    engine.Time // time of the last completion
}

func (c *counter) Completed(now engine.Time, _ *QP, e qp.CQE, receive bool) {
	c.last = now
	switch {
	case e.Status != qp.StatusSuccess:
		c.failed++
	case receive:
		c.receives++
	default:
		c.sends++
	}
}

// TestPausedClass: a paused class waits; acknowledgements in another class do not.
func TestPausedClass(t *testing.T) {
	sc := labSwitch
	sc.Buffer, sc.PFC = fabric.BufferConfig{Bytes: 600_000}, fabric.PFCConfig{Lossless: 1, Headroom: 30_000, Reserve: 2000}
	sc.Port.Strict = 1 << 7
	l := newLab(t, fabric.Star(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 9), sc, 1)
	u := &counter{}
	for h := range 8 {
		x, _, err := l.k.Connect(h, 8, QPConfig{Profile: l.profiles("rc", profile.Spec{}), User: u, MaxUnacked: 1000})
		if err != nil {
			t.Fatal(err)
		}
		x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: 1_000_000})
	}
	l.eng.Drain()
	l.check()
	var pauses uint64
	for h := range 8 {
		pauses += l.k.nics[h].link.Stats.Pauses
	}
	if u.sends != 8 || pauses == 0 || l.k.Network().Drops(fabric.Overflow)+l.k.Network().Drops(fabric.NoHeadroom) != 0 {
		t.Errorf("%d done, %d pauses, %d lost", u.sends, pauses, l.k.Network().Drops(fabric.NoHeadroom))
	}
	if n := l.k.Counters().RetransmittedPackets; n != 0 {
		t.Errorf("%d packets sent again on a lossless fabric", n)
	}
}

// TestContexts: a NIC that holds the state of fewer queue pairs than send by turns fetches it for each packet, and sends nothing
// meanwhile. One that holds all of them fetches each once.
func TestContexts(t *testing.T) {
	const packets = 50
	took := func(c Contexts) engine.Time {
		l := newLab(t, fabric.Pair(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, false), labSwitch, 1)
		l.k.cfg.Contexts = c
		u := &counter{}
		for range 4 {
			x, _, err := l.k.Connect(0, 1, QPConfig{Profile: l.profiles("rc", profile.Spec{}), User: u, Tuning: qp.Tuning{AcksPerWindow: 1 << 30}})
			if err != nil {
				t.Fatal(err)
			}
			x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: packets * 1024})
		}
		l.eng.Drain()
		l.check()
		if u.sends != 4 {
			t.Fatalf("%d of 4 done", u.sends)
		}
		return u.last
	}
	const fetch = 5 * engine.Microsecond
	all := took(Contexts{})
	if held := took(Contexts{Held: 4, Fetch: fetch}) - all; held < 4*fetch || held > 10*fetch {
		t.Errorf("with room for all, fetches take %v", held)
	}
	if missed := took(Contexts{Held: 3, Fetch: fetch}) - all; missed < 4*(packets-2)*fetch {
		t.Errorf("with room for three, fetches take %v", missed)
	}
}

// waiting makes messages of n queue pairs wait on the first host, because the class of data is paused.
func waiting(t testing.TB, n int) (*lab, []*QP) {
	l := newLab(t, fabric.Pair(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, false), labSwitch, 1)
	u, qps := &counter{}, make([]*QP, n)
	for i := range qps {
		var err error
		if qps[i], _, err = l.k.Connect(0, 1, QPConfig{Profile: l.profiles("rc", profile.Spec{}), User: u}); err != nil {
			t.Fatal(err)
		}
		qps[i].Post(qp.SendWQE{Opcode: qp.WRWrite, Length: 10_000})
	}
	if d, _ := l.k.nics[0].Next(0, 1); d != nil || len(l.k.nics[0].waiting[0]) != n {
		t.Fatalf("%d of %d wait", len(l.k.nics[0].waiting[0]), n)
	}
	return l, qps
}

// TestWaiting: queue pairs wait for a paused class until it resumes, regardless of others. Closed queue pairs do not
// wait.
func TestWaiting(t *testing.T) {
	l, qps := waiting(t, 3)
	n := &l.k.nics[0]
	if d, _ := n.Next(0, 1|1<<7); d != nil || len(n.waiting[0]) != 3 {
		t.Errorf("%d wait after another class has been paused", len(n.waiting[0]))
	}
	qps[1].Close()
	if !slices.Equal(n.waiting[0], []*QP{qps[0], qps[2]}) {
		t.Errorf("%d wait after one has been closed", len(n.waiting[0]))
	}
	sent := map[bth.QPN]int{}
	for d, _ := n.Next(0, 1<<7); d != nil; d, _ = n.Next(0, 1<<7) {
		sent[bth.QPN(d.QP)]++
	}
	if len(sent) != 2 || sent[qps[0].Peer()] == 0 || sent[qps[2].Peer()] == 0 {
		t.Errorf("packets sent: %v", sent)
	}
}

// TestClose: late packets of a closed queue pair find no receiver. A reused slot has a different number.
func TestClose(t *testing.T) {
	l := newLab(t, fabric.Pair(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, false), labSwitch, 1)
	u := &counter{}
	c := QPConfig{Profile: l.profiles("melo", profile.Spec{}), User: u}
	seen := map[bth.QPN]bool{}
	for range 50 {
		x, y, err := l.k.Connect(0, 1, c)
		if err != nil {
			t.Fatal(err)
		}
		if seen[x.Num()] {
			t.Fatalf("number %d is used again", x.Num())
		}
		seen[x.Num()] = true
		x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: 50_000})
		l.eng.Run(l.eng.Now() + 3*engine.Microsecond)
		x.Close()
		y.Close()
	}
	l.eng.Drain()
	if l.check(); l.k.Stray() == 0 || len(l.k.nics[0].qps) != 3 {
		t.Errorf("%d stray packets, %d slots", l.k.Stray(), len(l.k.nics[0].qps))
	}
	if _, _, err := l.k.Connect(0, 2, c); err == nil {
		t.Error("connected to a host that is not there")
	}
}

// TestSpares: in each transport, connections on reused queue pairs send exactly the same as those on new ones. One
// connection is closed in the middle, and its packets in flight reach no other connection.
func TestSpares(t *testing.T) {
	run := func(name string, s *Spares) (hash, stray uint64) {
		g := fabric.Star(fabric.Wires{HostRate: 100 * gig, Delay: engine.Microsecond}, 3)
		l := newLab(t, g, fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 60_000}}, 1)
		l.watch()
		u := &counter{}
		for i := range 6 {
			l.lose(0.02)
			x, y, err := l.k.Connect(i%2, 2, QPConfig{Profile: l.profiles(name, profile.Spec{}), User: u, MaxUnacked: 256, Spares: s})
			if err != nil {
				t.Fatal(err)
			}
			x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: 300_000})
			if i == 2 {
				x.Post(qp.SendWQE{Opcode: qp.WRWrite, Length: 1000}) // is never started
				l.eng.Run(l.eng.Now() + 10*engine.Microsecond)
			} else {
				l.eng.Drain()
			}
			x.Close()
			y.Close()
		}
		if l.check(); u.sends != 5 || u.failed != 0 {
			t.Fatalf("%s: %d done, %d failed", name, u.sends, u.failed)
		}
		return l.hash, l.k.Stray()
	}
	for _, name := range []string{"rc", "irn", "melo", "mp-rdma", "eunomia"} {
		fresh, stray := run(name, nil)
		again, _ := run(name, new(Spares))
		if fresh != again || stray == 0 {
			t.Errorf("%s: closed queue pairs send something else, or nothing came too late (%d packets)", name, stray)
		}
	}
}

// TestIsSmall bounds the size of frequent objects. A packet in flight takes two cache lines. Two idle queue pairs with
// their cores and plug-ins take less than 2 KiB.
func TestIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(parcel{}); n != 128 {
		t.Errorf("a parcel has %d bytes", n)
	}
	if n := unsafe.Sizeof(QP{}); n > 240 {
		t.Errorf("a QP has %d bytes", n)
	}
}
