package rocev2

import (
	"errors"
	"fmt"
	"testing"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// heldBy is the Ctx of an object of a user.
type heldBy Holder

func (h heldBy) Holder() Holder { return Holder(h) }

// TestNeighbourShare makes users fill the neighbour table with address handles. Each has at most a quarter, all have
// at most seven eighths, and the rest is for Unlimited. An entry counts once for each user.
func TestNeighbourShare(t *testing.T) {
	n := nicA(t)
	n.net.SetNeighbourLimit(16)
	pd, err := n.AllocPD(nil)
	ok(t, err)
	next := 2
	var made []*AH
	fill := func(h Holder, want int) {
		t.Helper()
		for got := 0; ; got++ {
			av := AddressVector{DGID: gid(fmt.Sprintf("10.0.0.%d", next))}
			a, err := n.CreateAH(0, pd, av, heldBy(h))
			if err != nil {
				if got != want || !errors.Is(err, ErrNeighbours) {
					t.Errorf("user %d has %d neighbours, want %d: %v", h, got, want, err)
				}
				return
			}
			b, err := n.CreateAH(0, pd, av, heldBy(h))
			if err != nil {
				t.Fatalf("the same neighbour again: %v", err)
			}
			made = append(made, a, b)
			next++
		}
	}
	fill(1, 4)
	if err := n.ResolveNeighbour(0, gid("10.0.0.99"), 0, 1, func(mono.Time, error) {}); !errors.Is(err, ErrNeighbours) {
		t.Errorf("resolution beyond the share: %v", err)
	}
	if _, err := n.CreateAH(0, pd, AddressVector{DGID: gid("10.0.0.2")}, heldBy(2)); err != nil {
		t.Errorf("the neighbour of another user: %v", err)
	}
	fill(2, 3)
	fill(3, 4)
	fill(4, 3) // the unreserved rest
	ok(t, n.DestroyAH(made[2]))
	fill(1, 0) // another handle uses the neighbour
	ok(t, n.DestroyAH(made[3]))
	fill(1, 1)
	fill(Unlimited, 2)
}

// TestNeighbourShareOfQP checks that the path of a queue pair counts.
func TestNeighbourShareOfQP(t *testing.T) {
	o := newObjs(t, Limits{})
	o.NIC = newNIC(t, testConfig(macA, "10.0.0.1/24"))
	o.net.SetNeighbourLimit(8)
	var err error
	o.pd, err = o.AllocPD(nil)
	ok(t, err)
	o.cq, err = o.CreateCQ(CQAttr{Entries: 64, Ring: o.ring, Notify: func() {}})
	ok(t, err)
	for i := range 3 {
		a := o.qpAttr()
		a.Ctx = heldBy(1)
		q, err := o.CreateQP(a)
		ok(t, err)
		av := AddressVector{DGID: gid(fmt.Sprintf("10.0.0.%d", i+2))}
		ok(t, o.ModifyQP(0, q, qp.Attr{State: qp.Init, Port: 1}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccessFlags, nil))
		err = o.ModifyQP(0, q, qp.Attr{State: qp.RTR, PathMTU: 3, DestQPN: 5}, qp.AttrState|qp.AttrAV|qp.AttrPathMTU|
			qp.AttrDestQPN|qp.AttrRQPSN|qp.AttrMaxDestRdAtomic|qp.AttrMinRNRTimer, &av)
		if i < 2 && err != nil || i == 2 && !errors.Is(err, ErrNeighbours) {
			t.Errorf("queue pair %d: %v", i, err)
		}
	}
}
