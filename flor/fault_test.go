package flor

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"roced.io/roced/flor/engine"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
	"roced.io/roced/verbs"
)

var long = flag.Int("flor.connections", 1000, "how many connections TestManyConnections makes")

// rules replaces the fault rules of a NIC.
func (e *ends) rules(nic string, rules ...string) {
	e.t.Helper()
	c := api.NewClient(filepath.Join(e.w.RunDir, api.Socket))
	defer c.Close()
	lab.Must(e.t, c.Do(timeout(e.t), "POST", api.RuleSet{Rules: rules, Replace: true}, "faults", nic))
}

// content fills b, of at least eight bytes, with the pattern of message id.
func content(id uint64, b []byte) {
	rng := rand.NewPCG(id, 1)
	i := 8
	for ; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], rng.Uint64())
	}
	for ; i < len(b); i++ {
		b[i] = byte(id)
	}
	binary.LittleEndian.PutUint64(b, id)
}

// checked verifies the pattern of a message and returns the message's id.
func checked(b []byte) (uint64, error) {
	id := binary.LittleEndian.Uint64(b)
	want := make([]byte, len(b))
	content(id, want)
	if string(want) != string(b) {
		return id, fmt.Errorf("message %d of %d bytes has been changed", id, len(b))
	}
	return id, nil
}

// storm sends messages of all sizes from one end to the other.
type storm struct {
	mu   sync.Mutex
	got  map[uint64]int   // arrivals by id
	told map[uint64]error // the sender's result by id

	looking sync.Mutex // held while reading a message
	dead    bool       // the receiving program has ended and its memory is gone
}

// send sends count messages over c, several at a time.
func (s *storm) send(ctx context.Context, c *Conn, count, sizes int, errs chan<- error) {
	var senders sync.WaitGroup
	for w := range 4 {
		senders.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			for i := range count / 4 {
				id := uint64(w*count + i + 1)
				m, err := c.NewMessage(ctx, 8+rng.IntN(1<<(4+rng.IntN(sizes-3))))
				if err != nil {
					errs <- err
					return
				}
				content(id, m.Data)
				err = c.Send(ctx, m)
				s.mu.Lock()
				s.told[id] = err
				s.mu.Unlock()
			}
		})
	}
	senders.Wait()
}

// receive takes messages until the connection ends. It overwrites each message, so that a late WRITE into reused memory
// would show.
func (s *storm) receive(ctx context.Context, c *Conn, errs chan<- error) {
	for {
		m, err := c.Recv(ctx)
		if err != nil {
			return
		}
		s.looking.Lock()
		if s.dead {
			s.looking.Unlock()
			return
		}
		id, err := checked(m.Data)
		if err == nil && len(m.Data) > 64<<10 && id%8 == 0 { // the message must not change while held
			time.Sleep(10 * time.Millisecond)
			_, err = checked(m.Data)
		}
		clear(m.Data)
		s.looking.Unlock()
		if err != nil {
			errs <- err
		}
		m.Release()
		s.mu.Lock()
		s.got[id]++
		s.mu.Unlock()
	}
}

// complete reports whether all acknowledged messages have arrived.
func (s *storm) complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, err := range s.told {
		if err == nil && s.got[id] == 0 {
			return false
		}
	}
	return true
}

// check verifies that no message arrived twice. It returns the number of failed sends.
func (s *storm) check(t *testing.T, count int) (failed int) {
	t.Helper()
	if len(s.told) != count {
		t.Errorf("%d of %d messages were told of", len(s.told), count)
	}
	for id, err := range s.told {
		if n := s.got[id]; n > 1 {
			t.Errorf("message %d came %d times, its sender was told: %v", id, n, err)
		}
		if err != nil {
			failed++
		}
	}
	return failed
}

// storm sends messages in both directions and runs meanwhile at the same time. It closes sent when all messages are sent.
func (e *ends) storm(t *testing.T, count, sizes int, meanwhile func(sent <-chan struct{})) (failed int) {
	t.Helper()
	ctx := timeout(t)
	errs := make(chan error, 100)
	var storms [2]storm
	var senders, receivers sync.WaitGroup
	for i := range storms {
		storms[i] = storm{got: map[uint64]int{}, told: map[uint64]error{}}
		senders.Go(func() { storms[i].send(ctx, e.conn[i], count, sizes, errs) })
		receivers.Go(func() { storms[i].receive(ctx, e.conn[1-i], errs) })
	}
	sent := make(chan struct{})
	go func() {
		senders.Wait()
		close(sent)
	}()
	if meanwhile != nil {
		meanwhile(sent)
	}
	<-sent
	for i := range storms {
		lab.Eventually(t, 10*time.Second, "all that was acknowledged comes", storms[i].complete)
	}
	for _, c := range e.conn {
		if err := c.Shutdown(ctx); err != nil {
			t.Logf("shutdown: %v", err)
		}
	}
	receivers.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	for i := range storms {
		failed += storms[i].check(t, count)
	}
	e.nothingLeft(t)
	return failed
}

// nothingLeft waits until no connection state is left at either end.
func (e *ends) nothingLeft(t *testing.T) {
	t.Helper()
	for i, d := range e.dev {
		for deadline := time.Now().Add(10 * time.Second); d.left() != ""; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("device %d still has %s", i, d.left())
			}
		}
	}
}

// left describes the remaining connection state.
func (d *Device) left() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	blocks := 0
	for k := range d.landing.ready {
		blocks += len(d.landing.ready[k]) << k
	}
	if len(d.conns)+len(d.pairs)+len(d.peers)+len(d.joining)+d.lent+len(d.failed)+len(d.landing.hungry)+d.eng.Connections()+d.send.inUse()+d.header.inUse() == 0 &&
		blocks == d.landing.used {
		return ""
	}
	return fmt.Sprintf("%d connections, %d queue pairs, %d peers, %d joining, %d buffers of the pool, %d bytes to send, %d of headers, %d of %d bytes to land",
		len(d.conns), len(d.pairs), len(d.peers), len(d.joining), d.lent, d.send.inUse(), d.header.inUse(), d.landing.used-blocks, d.landing.used)
}

// modes are UC, and RC with backups.
var modes = map[string]Config{"uc": {}, "rc": {Engine: engine.Config{Hardware: true}}}

// TestFaults sends messages of all sizes in both directions. The link drops, duplicates, reorders and delays frames,
// some for seconds. Each message arrives once and intact, or its sender gets an error.
func TestFaults(t *testing.T) {
	for name, rules := range map[string][]string{
		"none":      nil,
		"loss":      {"tx drop p=0.005 seed=1"},
		"duplicate": {"tx duplicate 2 p=0.02 seed=2"},
		"disorder":  {"tx reorder 3 p=0.01 seed=3"},
		"delay":     {"tx delay 2s p=0.0005 seed=4", "tx delay 3ms p=0.002 seed=5"},
		"all":       {"tx drop p=0.002 seed=6", "tx duplicate p=0.005 seed=7", "tx reorder 3 p=0.003 seed=8", "tx delay 1s p=0.0003 seed=9"},
	} {
		for mode, cfg := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				e := newEnds(t, cfg)
				e.rules("rxe_a", rules...)
				e.rules("rxe_b", rules...)
				if n := e.storm(t, 80, 20, nil); n > 0 {
					t.Errorf("%d messages failed", n)
				}
				for _, d := range e.dev {
					t.Logf("%+v", d.Counters())
				}
			})
		}
	}
}

// TestQueuePairsFail: queue pairs fail repeatedly, including backups and reconnected queue pairs.
func TestQueuePairsFail(t *testing.T) {
	for mode, cfg := range modes {
		t.Run(mode, func(t *testing.T) {
			e := newEnds(t, cfg)
			failed := e.storm(t, 400, 18, func(sent <-chan struct{}) {
				var failed [2]*pair
				for i := range 12 {
					c, last := e.conn[i%2], &failed[i%2]
					done := false // without messages to send, a failed queue pair is not connected anew
					lab.Eventually(t, 10*time.Second, "another queue pair works, or all is sent", func() bool {
						select {
						case <-sent:
							done = true
						default:
						}
						c.d.mu.Lock()
						defer c.d.mu.Unlock()
						p := c.d.pairs[uint32(c.e.Primary())]
						works := p != nil && p.state == pairUp && p != *last
						if works {
							*last = p
						}
						return works || done
					})
					if done {
						return
					}
					_ = (*last).q.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.AttrState) // the queue pair may be gone
				}
			})
			a, b := e.dev[0].Counters(), e.dev[1].Counters()
			t.Logf("%d failed; %+v; %+v", failed, a, b)
			if failed > 0 || a.Switches+b.Switches == 0 || a.Reconnects+b.Reconnects == 0 {
				t.Errorf("%d messages failed, %d queue pairs were left, %d connected anew", failed, a.Switches+b.Switches, a.Reconnects+b.Reconnects)
			}
		})
	}
}

// TestFailureInSetup: a queue pair fails again while it waits in INIT for the peer. Both ends set it up anew.
func TestFailureInSetup(t *testing.T) {
	e := newEnds(t, Config{})
	a, b := e.dev[0], e.dev[1]
	p := a.pairs[uint32(e.conn[0].e.Primary())]
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	b.worker.do(func() { <-hold })
	is := func(want pairState) func() bool {
		return func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return p.state == want
		}
	}
	a.enter()
	a.eng.Disconnected(a.now(), engine.QPN(p.num))
	a.leave()
	lab.Eventually(t, 10*time.Second, "the queue pair waits for the peer", is(pairReady))
	lab.Must(t, p.q.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.AttrState))
	release()
	lab.Eventually(t, 10*time.Second, "the queue pair is connected again", is(pairUp))
	if failed := e.storm(t, 40, 12, nil); failed > 0 || a.Counters().Reconnects == 0 || b.Counters().Reconnects == 0 {
		t.Errorf("%d messages failed; %+v; %+v", failed, a.Counters(), b.Counters())
	}
}

// TestSharedAcks: with SharedAcks, acknowledgements use the data queue pairs and need no others.
func TestSharedAcks(t *testing.T) {
	e := newEnds(t, Config{SharedAcks: true})
	e.rules("rxe_a", fmt.Sprintf("both drop qpn=%d", e.dev[0].acks.Num()))
	e.rules("rxe_b", fmt.Sprintf("both drop qpn=%d", e.dev[1].acks.Num()))
	failed := e.storm(t, 100, 18, nil)
	if a, b := e.dev[0].Counters(), e.dev[1].Counters(); failed > 0 || a.AcksReceived == 0 || b.AcksReceived == 0 {
		t.Errorf("%d messages failed; %+v; %+v", failed, a, b)
	}
}

// TestDeaf: a queue pair stops receiving without an error. The sender abandons and reconnects it. A UC queue pair of
// rdma_rxe fails this way after a loss; here the test resets the peer's queue pair behind its program's back.
func TestDeaf(t *testing.T) {
	e := newEnds(t, Config{})
	ctx := timeout(t)
	d := e.dev[1]
	d.mu.Lock()
	p := e.conn[1].pairs[0]
	d.mu.Unlock()
	lab.Must(t, p.q.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.AttrState))
	lab.Must(t, e.conn[0].Send(ctx, e.message(0, 64<<10)))
	m, err := e.conn[1].Recv(ctx)
	lab.Must(t, err)
	m.Release()
	lab.Eventually(t, 10*time.Second, "the queue pair is connected anew", func() bool {
		return e.dev[0].Counters().Reconnects > 0 && d.Counters().Reconnects > 0
	})
	e.over()
}

// TestPeerDies: the peer's program ends abruptly; every message gets a result.
func TestPeerDies(t *testing.T) {
	for mode, cfg := range modes {
		t.Run(mode, func(t *testing.T) {
			e := newEnds(t, cfg)
			ctx := timeout(t)
			s := storm{got: map[uint64]int{}, told: map[uint64]error{}}
			errs := make(chan error, 10)
			go s.receive(ctx, e.conn[1], errs)
			time.AfterFunc(20*time.Millisecond, func() {
				s.looking.Lock()
				defer s.looking.Unlock()
				s.dead = true
				d := e.dev[1]
				d.enter()
				defer d.leave()
				_, _ = d.cm.Close(), d.ctx.Close()
				d.fail(verbs.ErrDeviceFatal)
			})
			s.send(ctx, e.conn[0], 4000, 12, errs)
			<-e.conn[0].Done()
			if err := e.conn[0].Err(); !errors.Is(err, ErrPeerClosed) { // rdma_cm reports it before the silence timeout
				t.Error(err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if failed := s.check(t, 4000); failed == 0 {
				t.Error("no message failed")
			}
		})
	}
}

// TestDaemonDies: the NIC disappears, and every user gets an error.
func TestDaemonDies(t *testing.T) {
	e := newEnds(t, Config{})
	ctx := timeout(t)
	answers := make(chan error)
	for range 8 {
		go func() {
			m, err := e.conn[0].NewMessage(ctx, 100)
			if err == nil {
				_, err = e.conn[0].Call(ctx, m)
			}
			answers <- err
		}()
	}
	lab.Must(t, e.w.Stop())
	for range 8 {
		if err := <-answers; err == nil {
			t.Error("a call was answered by nobody")
		}
	}
	<-e.conn[0].Done()
	t.Log(e.conn[0].Err())
	if _, err := e.conn[0].Recv(ctx); err == nil {
		t.Error("received from nobody")
	}
}

// TestManyConnections: closed connections leave no state.
func TestManyConnections(t *testing.T) {
	e := newEnds(t, Config{})
	ctx := timeout(t)
	const together = 20
	for done := 0; done < *long; done += together {
		var pairs [together][2]*Conn
		for i := range pairs {
			pairs[i][0], pairs[i][1] = e.connect()
		}
		for i, p := range pairs {
			m, err := p[0].NewMessage(ctx, 8+1000*(i%40))
			lab.Must(t, err)
			content(uint64(i), m.Data)
			lab.Must(t, p[0].Send(ctx, m))
			m, err = p[1].Recv(ctx)
			lab.Must(t, err)
			if _, err := checked(m.Data); err != nil {
				t.Fatal(err)
			}
			m.Release()
			lab.Must(t, p[i%2].Close())
		}
		for _, p := range pairs {
			lab.Must(t, p[0].Close())
			lab.Must(t, p[1].Close())
		}
		if done%200 == 0 {
			ctx = timeout(t)
		}
	}
	lab.Must(t, e.conn[0].Close())
	lab.Must(t, e.conn[1].Close())
	e.nothingLeft(t)
}
