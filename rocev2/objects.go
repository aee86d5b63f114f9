package rocev2

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2/memory"
	"roced.io/roced/rocev2/object"
)

// objects are the verbs objects of a NIC but for those of its memory.
type objects struct {
	seeds *rand.ChaCha8 // for random choices of paths
	cqs   object.Table[CQ]
	srqs  object.Table[SRQ]
	ahs   object.Table[AH]
	qps   object.Table[QueuePair]

	numbers qpnTable
	failing []*QueuePair // see CQ.push
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

// New returns a NIC.
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
	if cfg.CNPInterval == 0 {
		cfg.CNPInterval = defaultCNPInterval
	}
	cfg.CNPClass = cmp.Or(cfg.CNPClass, ClassOf(0, 0))
	n := &NIC{cfg: cfg}
	if cfg.Distributions {
		n.ctr.Distributions = qp.NewDistributions()
	}
	n.initObjects()
	n.sch.init(cfg.Quantum)
	if err := n.initNet(); err != nil {
		return nil, err
	}
	return n, nil
}

func (n *NIC) initObjects() {
	seed, l, o := n.cfg.Seed, n.cfg.Limits, &n.obj
	rng := rand.NewChaCha8(seed)
	n.mem = memory.NewSpace(rng, memory.Limits{PDs: l.PDs, MRs: l.MRs, MWs: l.MWs}, n.detachMemory)
	o.numbers.init(rng)
	seed[0] = ^seed[0]
	o.seeds = rand.NewChaCha8(seed)
	o.cqs.Limit, o.srqs.Limit, o.ahs.Limit, o.qps.Limit = l.CQs, l.SRQs, l.AHs, l.QPs
}

// effectiveLimits fills in the defaults and rejects limits beyond the NIC's number spaces.
func effectiveLimits(l Limits) (Limits, error) {
	d := defaultLimits
	for _, f := range []struct {
		name string
		v    *int
		def  int
		most int
	}{
		{"QPs", &l.QPs, d.QPs, maxQPs}, {"CQs", &l.CQs, d.CQs, 1 << 22}, {"SRQs", &l.SRQs, d.SRQs, 1 << 22},
		{"MRs", &l.MRs, d.MRs, memory.KeysLimit / 2}, {"MWs", &l.MWs, d.MWs, memory.KeysLimit / 2},
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

// NewProfile returns the plug-ins of a transport profile by its name, with the parameters of its paper. It has no
// congestion control unless that is part of the profile. The empty name is "rc".
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
