package rocev2

import (
	"fmt"
	"math/rand/v2"
	"time"

	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// objects are the verbs objects of a NIC.
type objects struct {
	rng  *rand.ChaCha8
	rngs *rand.ChaCha8 // of seeds for choices of paths
	keys keyTable
	pds  table[PD]
	mrs  table[MR]
	mws  table[MW]
	cqs  table[CQ]
	srqs table[SRQ]
	ahs  table[AH]
	qps  table[QueuePair]

	numbers qpnTable
	failing []*QueuePair
	run     writeRun
}

// defaultLimits are of the size of rxe's.
var defaultLimits = Limits{
	QPs: 16384, CQs: 32768, SRQs: 8192, MRs: 1 << 17, MWs: 1 << 17, PDs: 8192, AHs: 1 << 16,
	SendWR: 1<<14 - 1, RecvWR: 1<<14 - 1, SGE: qp.MaxSGE, CQE: 1<<20 - 1, Inline: 512,
	RdAtomic: 16,
}

// defaultMaxUnacked is the window of a queue pair in PSNs, 1 MiB at an MTU of 1024.
const defaultMaxUnacked = 1024

// defaultCNPInterval is N of DCQCN (Zhu et al., SIGCOMM 2015, section 3.1).
const defaultCNPInterval = 50 * time.Microsecond

// New makes a NIC.
func New(cfg Config) (*NIC, error) {
	var err error
	if cfg.Limits, err = effectiveLimits(cfg.Limits); err != nil {
		return nil, err
	}
	if cfg.Events == nil {
		cfg.Events = noEvents{}
	}
	if cfg.NewProfile == nil {
		m := profile.NewMaker(profile.Link{})
		cfg.NewProfile = func(name string) (qp.Profile, error) { return makeProfile(m, name) }
	}
	if cfg.MaxUnacked == 0 {
		cfg.MaxUnacked = defaultMaxUnacked
	}
	if cfg.CNPInterval == 0 {
		cfg.CNPInterval = defaultCNPInterval
	}
	n := &NIC{cfg: cfg}
	if cfg.Distributions {
		n.ctr.Distributions = qp.NewDistributions()
	}
	n.obj.init(cfg.Seed, cfg.Limits)
	n.sch.init(cfg.Quantum)
	if err := n.initNet(); err != nil {
		return nil, err
	}
	return n, nil
}

func (o *objects) init(seed [32]byte, l Limits) {
	o.rng = rand.NewChaCha8(seed)
	o.keys.init(o.rng)
	o.numbers.init(o.rng)
	seed[0] = ^seed[0]
	o.rngs = rand.NewChaCha8(seed)
	o.pds.limit, o.mrs.limit, o.mws.limit = l.PDs, l.MRs, l.MWs
	o.cqs.limit, o.srqs.limit, o.ahs.limit, o.qps.limit = l.CQs, l.SRQs, l.AHs, l.QPs
}

// effectiveLimits fills in the defaults and refuses what the NIC cannot number.
func effectiveLimits(l Limits) (Limits, error) {
	d := defaultLimits
	for _, f := range []struct {
		name string
		v    *int
		def  int
		most int
	}{
		{"QPs", &l.QPs, d.QPs, maxQPs}, {"CQs", &l.CQs, d.CQs, 1 << 22}, {"SRQs", &l.SRQs, d.SRQs, 1 << 22},
		{"MRs", &l.MRs, d.MRs, keysLimit / 2}, {"MWs", &l.MWs, d.MWs, keysLimit / 2},
		{"PDs", &l.PDs, d.PDs, 1 << 22}, {"AHs", &l.AHs, d.AHs, 1 << 22},
		{"SendWR", &l.SendWR, d.SendWR, 1 << 22}, {"RecvWR", &l.RecvWR, d.RecvWR, 1 << 22},
		{"SGE", &l.SGE, d.SGE, qp.MaxSGE}, {"CQE", &l.CQE, d.CQE, 1 << 24}, {"Inline", &l.Inline, d.Inline, 1 << 16},
		{"RdAtomic", &l.RdAtomic, d.RdAtomic, 128},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < 0 || *f.v > f.most {
			return l, fail("new", fmt.Sprintf("Limits.%s %d, at most %d", f.name, *f.v, f.most), ErrInvalid)
		}
	}
	return l, nil
}

// Limits returns the limits in force.
func (n *NIC) Limits() Limits { return n.cfg.Limits }

// NewProfile makes the plug-ins of a transport profile by its name, as its paper has them
// and without congestion control unless that is part of it. The empty name is "rc".
func NewProfile(name string) (qp.Profile, error) {
	return makeProfile(profile.NewMaker(profile.Link{}), name)
}

func makeProfile(m *profile.Maker, name string) (qp.Profile, error) {
	p, err := m.New(name, profile.Spec{})
	if err != nil {
		err = fmt.Errorf("%w: %v", ErrInvalid, err)
	}
	return p, err
}

type noEvents struct{}

func (noEvents) QPEvent(*QueuePair, qp.Event) {}
func (noEvents) CQEvent(*CQ, qp.Event)        {}
func (noEvents) SRQEvent(*SRQ, qp.Event)      {}
func (noEvents) PortEvent(qp.Event)           {}

// table keeps the objects of one kind at places counted from 1. The place of an
// object that has gone is given to another one as late as is reasonable.
type table[T any] struct {
	slots      []slot[T] // the first one is not used
	head, tail uint32    // free places in the order in which they became free
	free       int
	live       int
	limit      int
}

type slot[T any] struct {
	v    *T
	next uint32 // when free
}

// tableRest is the number of free places that are kept back while the table may grow.
const tableRest = 256

// add finds a place for v; ok is false when there are as many objects as may be.
func (t *table[T]) add(v *T) (i uint32, ok bool) {
	if t.live >= t.limit {
		return 0, false
	}
	if len(t.slots) == 0 {
		t.slots = make([]slot[T], 1, 8)
	}
	t.live++
	if t.free > tableRest || len(t.slots) > t.limit {
		i = t.head
		t.head = t.slots[i].next
		t.free--
		t.slots[i] = slot[T]{v: v}
		return i, true
	}
	t.slots = append(t.slots, slot[T]{v: v})
	return uint32(len(t.slots) - 1), true
}

// remove frees place i.
func (t *table[T]) remove(i uint32) {
	t.slots[i] = slot[T]{}
	if t.free == 0 {
		t.head = i
	} else {
		t.slots[t.tail].next = i
	}
	t.tail = i
	t.free++
	t.live--
}

// get returns what is at place i, nil if nothing is.
func (t *table[T]) get(i uint32) *T {
	if i < uint32(len(t.slots)) {
		return t.slots[i].v
	}
	return nil
}

// all yields the objects in the order of their places.
func (t *table[T]) all(yield func(*T) bool) {
	for i := range t.slots {
		if v := t.slots[i].v; v != nil && !yield(v) {
			return
		}
	}
}
