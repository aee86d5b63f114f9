package profile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/path"
	"roced.io/roced/plugin/param"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// ownRecovery has a parameter that the link fills.
type ownRecovery struct {
	retrans.Recovery
	bdp int
}

// ownPaths has a parameter to which the profile gives another default.
type ownPaths struct {
	path.Selector
	paths int
}

// TestRegister adds a transport of the calling program.
func TestRegister(t *testing.T) {
	reorder.Register("own", func(*param.Reader) reorder.Tracker { return reorder.NewIRN(64, false) })
	retrans.Register("own", func(r *param.Reader) retrans.Recovery {
		return &ownRecovery{retrans.NewGoBackN(), r.Int("bdp_packets", 5, 1, 1000)}
	})
	path.Register("own", func(r *param.Reader) path.Selector { return &ownPaths{&path.Single{}, r.Int("paths", 1, 1, 99)} })
	fields := &qp.Fields{Ack: []qp.Field{{Name: "x", Bytes: 8}},
		PutAck: func([]byte, *reorder.Feedback) {}, TakeAck: func([]byte, *reorder.Feedback) bool { return true }}
	own := profile.Transport{Name: "own", Kind: 201, Traits: qp.Traits{OnlyHoles: true}, Fields: fields,
		Parts: profile.Spec{Reorder: part("own"), Recovery: part("own"), Paths: profile.Part{Name: "own", Params: map[string]float64{"paths": 8}}},
		Rules: []profile.Rule{{Wrong: func(t *profile.Transport, s profile.Spec) bool { return t.Name != "own" && s.Recovery.Name == "own" }, Why: "needs its own fields"}}}
	profile.Register(own)

	names := profile.Names()
	if names[len(names)-1] != "own" || profile.NameOf(201) != "own" || profile.FieldsOf(201) != fields || profile.FieldsOf(bth.ProfileIRN) != nil {
		t.Errorf("names %v, kind 201 is %s", names, profile.NameOf(201))
	}
	link := profile.Link{Rate: 10e9, RTT: 50 * time.Microsecond, MTU: 1000}
	for given, want := range map[float64]int{0: 8, 3: 3} {
		var s profile.Spec
		if given > 0 {
			s.Paths.Params = map[string]float64{"paths": given}
		}
		p, err := profile.NewMaker(link).New("own", s)
		if err != nil {
			t.Fatal(err)
		}
		if p.Kind != 201 || p.Fields != fields || !p.Traits.OnlyHoles || p.Paths.(*ownPaths).paths != want ||
			p.ResponseRecovery.(*ownRecovery).bdp != 63 || p.ResponseTracker == nil {
			t.Errorf("%v: %+v, %+v", given, p, p.Paths)
		}
	}
	for name, s := range map[string]profile.Spec{"irn": {Recovery: part("own")}, "rc": {Recovery: part("own"), Reorder: part("irn")}, "own": {Reorder: part("mrc")}} {
		if err := profile.Validate(name, s); !errors.Is(err, profile.ErrMixture) {
			t.Errorf("%s with %+v: %v", name, s, err)
		}
	}
	if err := profile.Validate("irn", profile.Spec{Recovery: part("own")}); err == nil || !strings.Contains(err.Error(), "needs its own fields") {
		t.Error(err)
	}
	refuses(t, own)
}

// refuses tries transports that Register must refuse, variants of one that is registered.
func refuses(t *testing.T, own profile.Transport) {
	for want, change := range map[string]func(x *profile.Transport){
		`the name "own" is taken`:    func(x *profile.Transport) { x.Name = "own" },
		`the name "" is taken`:       func(x *profile.Transport) { x.Name = "" },
		"the kind 201 is taken":      func(x *profile.Transport) { x.Kind = 201 },
		"the free ones begin at 128": func(x *profile.Transport) { x.Kind = 127 },
		"fields of 32 bytes": func(x *profile.Transport) {
			f := *x.Fields
			f.Ack = []qp.Field{{Name: "a", Bytes: 8}, {Name: "b", Bytes: 8}, {Name: "c", Bytes: 8}, {Name: "d", Bytes: 8}}
			x.Fields = &f
		},
		`no receiver structure "warp"`: func(x *profile.Transport) { x.Parts.Reorder = part("warp") },
	} {
		x := own
		x.Name, x.Kind, x.Rules, x.Parts = "other", 202, nil, profile.Spec{Reorder: part("irn"), Recovery: part("irn")}
		change(&x)
		func() {
			defer func() {
				if said := fmt.Sprint(recover()); !strings.Contains(said, want) {
					t.Errorf("%s, want %s", said, want)
				}
			}()
			profile.Register(x)
		}()
	}
}

// TestRegisterShared: requests and responses of a queue pair share the memory of registered plug-ins, and NICs do not.
func TestRegisterShared(t *testing.T) {
	type pooledTracker struct {
		reorder.Tracker
		pool *int
	}
	type pooledRecovery struct {
		retrans.Recovery
		pool *int
	}
	reorder.RegisterShared("pooled", func(*param.Reader) func(*param.Reader) reorder.Tracker {
		pool := new(int)
		return func(*param.Reader) reorder.Tracker { return &pooledTracker{reorder.NewIRN(64, false), pool} }
	})
	retrans.RegisterShared("pooled", func(*param.Reader) func(*param.Reader) retrans.Recovery {
		pool := new(int)
		return func(*param.Reader) retrans.Recovery { return &pooledRecovery{retrans.NewGoBackN(), pool} }
	})
	var pools [2][2]*int
	for nic := range pools {
		p, err := profile.NewMaker(profile.Link{}).New("irn", profile.Spec{Reorder: part("pooled"), Recovery: part("pooled")})
		if err != nil {
			t.Fatal(err)
		}
		pools[nic] = [2]*int{p.Tracker.(*pooledTracker).pool, p.Recovery.(*pooledRecovery).pool}
		if p.ResponseTracker.(*pooledTracker).pool != pools[nic][0] || p.ResponseRecovery.(*pooledRecovery).pool != pools[nic][1] {
			t.Errorf("NIC %d: requests and responses have memory of their own", nic)
		}
	}
	if pools[0][0] == pools[1][0] || pools[0][1] == pools[1][1] {
		t.Error("two NICs share memory")
	}
}
