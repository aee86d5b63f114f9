package engine

import (
	"container/heap"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
)

// faults are the faults of a lab's network and NICs: probabilities per event, or times.
type faults struct {
	lose, duplicate float64
	disorder        float64 // delayed by up to a millisecond
	stall           float64 // delayed by up to three seconds
	ackLose         float64
	qpFails         float64 // with a WQE: its queue pair enters the error state
	deaf            float64 // with a lost WQE: its queue pair delivers nothing any more
}

// lab runs two engines on two NICs over a faulty network, on a virtual clock. Data are real bytes. UC accepts any WQE
// that arrives whole, in any order and at any time, as specified (IBTA vol.1 9.8.2). It does not drop late WQEs, as
// Flor 5 says of NICs. RC keeps order and delivers once, and may fail after a WQE has arrived (Flor 6).
type lab struct {
	t     testing.TB
	rng   *rand.Rand
	now   mono.Time
	seq   int
	queue events
	f     faults
	rc    bool
	nodes [2]*node
}

type event struct {
	at  mono.Time
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

func (l *lab) after(d time.Duration, do func()) {
	l.seq++
	heap.Push(&l.queue, event{l.now.Add(d), l.seq, do})
}

func (l *lab) chance(p float64) bool { return p > 0 && l.rng.Float64() < p }

func (l *lab) upTo(d time.Duration) time.Duration { return time.Duration(l.rng.Int64N(int64(d))) }

// run executes events until there are none, or until time until.
func (l *lab) run(until mono.Time) {
	for len(l.queue) > 0 && l.queue[0].at <= until {
		e := heap.Pop(&l.queue).(event)
		l.now = e.at
		e.do()
		for _, n := range l.nodes {
			n.rearm()
		}
	}
	if until != mono.Never {
		l.now = max(l.now, until)
	}
}

// node is an engine, its NIC and its user.
type node struct {
	l       *lab
	side    int
	e       *Engine
	crashed bool
	qps     map[QPN]*labQP
	recvs   []int // posted receives
	exposed map[uint32][]byte
	key     uint32
	armed   mono.Time

	sent      map[uint64]*sentMessage
	got       map[uint64]int
	empty     int // empty messages received
	landings  []landed
	holding   int
	noLanding bool
	offset    time.Duration // offset of the NIC's clock
	unused    int
	closed    map[*Conn]error
	posted    int
}

type sentMessage struct {
	b    Buffer
	told bool
	err  error
}

// landed is a landing buffer with the content that its user has written since.
type landed struct {
	b    Buffer
	done bool
}

type labQP struct {
	n      *node
	num    QPN
	peer   *labQP
	c      *Conn
	up     bool
	deaf   bool // until it is reconnected
	epoch  int
	posted []uint64  // uncompleted WQEs
	last   mono.Time // arrival of the last WQE: RC keeps order
	inbox  []request
	again  bool // it will be reconnected
}

func newLab(t testing.TB, seed uint64, rc bool, f faults, cfg Config) *lab {
	l := &lab{t: t, rng: rand.New(rand.NewPCG(seed, 17)), f: f, rc: rc, now: 1}
	cfg.Hardware = rc
	if cfg.MaxSend == 0 {
		cfg.MaxSend = 32 << 10
	}
	for side := range l.nodes {
		n := &node{l: l, side: side, qps: map[QPN]*labQP{}, exposed: map[uint32][]byte{}, sent: map[uint64]*sentMessage{},
			got: map[uint64]int{}, armed: mono.Never, closed: map[*Conn]error{}, offset: time.Duration(side) * 5 * time.Millisecond}
		l.nodes[side] = n
		c := cfg
		pool := cfg.Pool
		if pool == nil {
			pool = make([]Buffer, 32)
		}
		c.Pool = make([]Buffer, len(pool))
		for i := range c.Pool {
			c.Pool[i].Data = make([]byte, HeaderLen+int(cfg.MaxSend))
		}
		e, err := New(c, n, n)
		if err != nil {
			t.Fatal(err)
		}
		n.e = e
	}
	return l
}

// connect opens a connection with two backups.
func (l *lab) connect(first [2]Numbers) (ends [2]*Conn) {
	var qps [2][]*labQP
	for range 3 {
		for side, n := range l.nodes {
			q := &labQP{n: n, num: QPN(100*side + len(n.qps) + 1), up: true}
			n.qps[q.num] = q
			qps[side] = append(qps[side], q)
		}
	}
	for side, n := range l.nodes {
		c := ConnConfig{AckPeer: uint64(1 - side), First: first[side], PeerFirst: first[1-side]}
		for i, q := range qps[side] {
			q.peer = qps[1-side][i]
			c.QPs, c.Peers = append(c.QPs, q.num), append(c.Peers, q.peer.num)
		}
		k, err := n.e.Open(l.now, c)
		if err != nil {
			l.t.Fatal(err)
		}
		for _, q := range qps[side] {
			q.c = k
		}
		ends[side] = k
	}
	return ends
}

// rearm sets the engine's timer.
func (n *node) rearm() {
	at := n.e.NextTimeout()
	if n.crashed || at == mono.Never || n.armed <= at && n.armed > n.l.now {
		return
	}
	n.armed = max(at, n.l.now)
	n.l.after(n.armed.Sub(n.l.now), func() {
		if n.armed = mono.Never; !n.crashed {
			n.e.OnTimeout(n.l.now)
		}
	})
}

func (n *node) Time() mono.Time { return n.l.now.Add(n.offset + time.Duration(n.l.now/20_000)) } // 50 ppm fast

func (n *node) Room(qp QPN) bool { return len(n.qps[qp].posted) < 64 }

func (n *node) Post(qp QPN, w *WQE) {
	q, k := n.qps[qp], *w
	if b, window := q.c.InFlight(); b > window && q.c.flying > 1 {
		n.l.t.Fatalf("%d bytes in flight, the window has %d", b, window)
	}
	n.posted++
	q.posted = append(q.posted, k.ID)
	if !q.up {
		q.flush()
		return
	}
	epoch := q.epoch
	n.l.after(time.Microsecond+n.l.upTo(5*time.Microsecond), func() {
		if q.epoch == epoch && q.up && !n.crashed {
			q.transmit(k)
		}
	})
}

// transmit sends a WQE; it reads the memory now.
func (q *labQP) transmit(w WQE) {
	n, l := q.n, q.n.l
	for _, s := range n.sent {
		if s.told && len(w.Data.Data) > 0 && len(s.b.Data) > 0 && &w.Data.Data[:1][0] == &s.b.Data[:1][0] {
			l.t.Fatal("memory is read after its message was told of")
		}
	}
	data := append([]byte(nil), w.Data.Data...)
	delay := 3*time.Microsecond + l.upTo(2*time.Microsecond)
	if l.chance(l.f.disorder) {
		delay += l.upTo(time.Millisecond)
	}
	if l.chance(l.f.stall) {
		delay += l.upTo(3 * time.Second)
	}
	if l.rc {
		q.transmitRC(w, data, delay)
		return
	}
	q.complete(w.ID, Sent)
	copies := 1
	if l.chance(l.f.lose) {
		copies = 0
		q.peer.deaf = q.peer.deaf || l.chance(l.f.deaf)
		if w.Op == OpWriteImm { // some of its packets arrive
			part := l.rng.IntN(len(data))
			epoch := q.peer.epoch
			l.after(delay, func() { q.peer.write(epoch, &w, data[:part]) })
		}
	} else if l.chance(l.f.duplicate) {
		copies = 2
	}
	for range copies {
		epoch := q.peer.epoch
		l.after(delay, func() { q.peer.arrive(epoch, &w, data) })
		delay += l.upTo(time.Second)
	}
	if l.chance(l.f.qpFails) {
		q.down()
	}
}

// transmitRC delivers in order, or fails; after a failure the WQE may have arrived all the same.
func (q *labQP) transmitRC(w WQE, data []byte, delay time.Duration) {
	l, mine := q.n.l, q.epoch
	q.last = max(q.last, l.now.Add(delay))
	delay = q.last.Sub(l.now)
	fails := l.chance(l.f.qpFails) || delay > 50*time.Millisecond
	in := request{epoch: q.peer.epoch, w: w, data: data, done: func(ok bool) {
		l.after(2*time.Microsecond, func() {
			if q.epoch != mine || !q.up {
				return
			} else if ok && !fails {
				q.complete(w.ID, Sent)
			} else {
				q.down()
			}
		})
	}}
	if !fails || l.chance(0.5) {
		l.after(delay, func() {
			q.peer.inbox = append(q.peer.inbox, in)
			q.peer.drain()
		})
	}
	if fails {
		l.after(min(delay, 50*time.Millisecond), func() { in.done(false) })
	}
}

// request is a WQE that has arrived by RC, with the callback after its execution or failure.
type request struct {
	epoch int
	w     WQE
	data  []byte
	done  func(ok bool)
}

// drain executes the arrived RC requests until no receive is posted (RNR).
func (q *labQP) drain() {
	for len(q.inbox) > 0 {
		in := q.inbox[0]
		gone := q.n.crashed || !q.up || q.epoch != in.epoch
		if !gone && len(q.n.recvs) == 0 {
			if !q.again {
				q.again = true
				q.n.l.after(20*time.Microsecond, func() { q.again = false; q.drain() })
			}
			return
		}
		q.inbox = q.inbox[1:]
		if !gone {
			q.arrive(in.epoch, &in.w, in.data)
		}
		in.done(!gone)
	}
}

// write copies the data of a WRITE to its address if the key is valid.
func (q *labQP) write(epoch int, w *WQE, data []byte) bool {
	if q.n.crashed || !q.up || q.deaf || q.epoch != epoch {
		return false
	}
	to, ok := q.n.exposed[w.RemoteKey]
	if !ok || w.RemoteAddr+uint64(len(data)) > uint64(len(to)) {
		return false
	}
	copy(to[w.RemoteAddr:], data)
	return true
}

// arrive delivers a WQE to the receiver.
func (q *labQP) arrive(epoch int, w *WQE, data []byte) {
	n, l := q.n, q.n.l
	if n.crashed || !q.up || q.deaf || q.epoch != epoch || len(n.recvs) == 0 {
		return
	}
	cp := Completion{QP: q.num, Kind: Written, Bytes: uint32(len(data)), Imm: w.Imm, At: n.Time(), Buf: n.recvs[0]}
	if w.Op == OpWriteImm {
		if !q.write(epoch, w, data) {
			return
		}
	} else {
		cp.Kind, cp.Bytes = Received, HeaderLen+cp.Bytes
		to := n.e.cfg.Pool[cp.Buf].Data
		copy(to, w.Header[:])
		copy(to[HeaderLen:], data)
	}
	n.recvs = n.recvs[1:]
	n.e.Complete(l.now, &cp)
}

// complete reports a WQE to the engine after a short delay.
func (q *labQP) complete(id uint64, kind CompletionKind) {
	at := q.n.Time()
	for i, p := range q.posted {
		if p == id {
			q.posted = append(q.posted[:i], q.posted[i+1:]...)
			break
		}
	}
	q.n.l.after(q.n.l.upTo(20*time.Microsecond), func() {
		if !q.n.crashed {
			q.n.e.Complete(q.n.l.now, &Completion{QP: q.num, Kind: kind, ID: id, At: at})
		}
	})
}

// down moves a queue pair to the error state.
func (q *labQP) down() {
	if !q.up {
		return
	}
	q.up = false
	q.flush()
}

// flush completes all posted WQEs in error.
func (q *labQP) flush() {
	for _, id := range q.posted {
		q.n.l.after(0, func() {
			if !q.n.crashed {
				q.n.e.Complete(q.n.l.now, &Completion{QP: q.num, Kind: Failed, ID: id})
			}
		})
	}
	q.posted = nil
}

func (n *node) Disconnect(qp QPN, again bool) {
	q := n.qps[qp]
	q.down()
	if !again {
		return
	}
	epoch := q.epoch
	n.l.after(5*time.Millisecond, func() { // "a long time, e.g., 5 ms" (Flor 6)
		if q.epoch != epoch || n.crashed || q.peer.n.crashed || q.c.err != nil || q.peer.c.err != nil {
			return
		}
		for _, x := range []*labQP{q, q.peer} {
			x.down()
			x.epoch, x.last, x.deaf = x.epoch+1, 0, false
			n.l.after(time.Microsecond, func() {
				x.up = true
				x.n.e.Connected(n.l.now, x.num)
			})
		}
	})
}

func (n *node) PostRecv(i int) { n.recvs = append(n.recvs, i) }

func (n *node) PostAck(c *Conn, b []byte) {
	l, peer := n.l, n.l.nodes[1-n.side]
	if l.chance(l.f.ackLose) {
		return
	}
	data := append([]byte(nil), b...)
	delay := 3 * time.Microsecond
	if l.chance(l.f.disorder) {
		delay += l.upTo(time.Millisecond)
	}
	copies := 1
	if l.chance(l.f.duplicate) {
		copies = 2
	}
	for range copies {
		l.after(delay, func() {
			if !peer.crashed {
				peer.e.OnAck(l.now, uint64(n.side), peer.Time(), data)
			}
		})
		delay += l.upTo(time.Millisecond)
	}
}

func (n *node) Expose(b Buffer) (addr uint64, key uint32) {
	n.key++
	n.exposed[n.key] = b.Data
	return 0, n.key
}

func (n *node) Revoke(key uint32) {
	if n.exposed[key] == nil {
		n.l.t.Fatal("revoked twice")
	}
	delete(n.exposed, key)
}

// content fills b with the pattern of message id.
func content(id uint64, b []byte) {
	rng := rand.NewPCG(id, 1)
	for i := 0; i < len(b); i += 8 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], rng.Uint64())
		copy(b[i:], w[:])
	}
	if len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, id)
	}
}

// send sends a message of n bytes; n is 0 or at least 8.
func (n *node) send(c *Conn, id uint64, size int) error {
	b := Buffer{Data: make([]byte, size)}
	content(id, b.Data)
	s := &sentMessage{b: b}
	n.sent[id] = s
	err := c.Send(n.l.now, id, uint32(id), b)
	if err != nil {
		delete(n.sent, id)
	}
	return err
}

func (n *node) Delivered(_ mono.Time, c *Conn, m Message) {
	check := func() {
		if len(m.Data) == 0 {
			return
		}
		want := make([]byte, len(m.Data))
		content(binary.LittleEndian.Uint64(m.Data), want)
		if string(want) != string(m.Data) {
			n.l.t.Fatalf("message %d of %d bytes has been changed", binary.LittleEndian.Uint64(m.Data), len(m.Data))
		}
	}
	check()
	if len(m.Data) == 0 {
		n.empty++
	} else {
		id := binary.LittleEndian.Uint64(m.Data)
		if m.Tag != uint32(id) {
			n.l.t.Fatalf("message %d has tag %d", id, m.Tag)
		}
		n.got[id]++
	}
	if m.Landing { // the application owns it now and writes to it
		for i := range n.landings {
			if &n.landings[i].b.Data[0] == &m.Data[0] {
				n.landings[i].done = true
				for k := range n.landings[i].b.Data {
					n.landings[i].b.Data[k] = 0xee
				}
			}
		}
		return
	}
	n.holding++
	n.l.after(n.l.upTo(200*time.Microsecond), func() {
		check()
		n.holding--
		n.e.Release(m)
	})
}

func (n *node) Told(_ mono.Time, c *Conn, id uint64, err error) {
	s := n.sent[id]
	if s == nil || s.told {
		n.l.t.Fatalf("message %d is told of twice, or never was", id)
	}
	s.told, s.err = true, err
}

func (n *node) Landing(c *Conn, size int) (Buffer, bool) {
	if n.noLanding {
		return Buffer{}, false
	}
	b := Buffer{Data: make([]byte, size)}
	n.landings = append(n.landings, landed{b: b})
	return b, true
}

func (n *node) Unused(_ *Conn, b Buffer) { n.unused++ }

func (n *node) Closed(_ mono.Time, c *Conn, err error) {
	if _, ok := n.closed[c]; ok {
		n.l.t.Fatal("closed twice")
	}
	n.closed[c] = err
}
