package profile_test

import (
	"errors"
	"strings"
	"testing"

	"roced/bth"
	"roced/profile"
)

// TestProfiles makes each as its paper has it.
func TestProfiles(t *testing.T) {
	m := profile.NewMaker()
	for i, name := range profile.Names() {
		if err := profile.Validate(name, profile.Spec{}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p, err := m.New(name, profile.Spec{})
		if err != nil || p.Kind != bth.Profile(i) || p.Kind.String() != name || p.Tracker == nil || p.Recovery == nil || p.Controller == nil {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if ext := p.Kind != bth.ProfileRC; ext != (p.Responses != nil && p.Answers != nil && p.Paths != nil && p.AnswerPaths != nil) {
			t.Errorf("%s: %+v", name, p)
		}
		if own := p.AnswerControl != nil; own != (name == "mp-rdma") {
			t.Errorf("%s: responses have congestion control of their own: %t", name, own)
		}
	}
	if p, err := m.New("", profile.Spec{}); err != nil || p.Kind != bth.ProfileRC {
		t.Errorf("the empty name: %+v, %v", p, err)
	}
}

func part(name string) profile.Part { return profile.Part{Name: name} }

// TestMixtures has some that make sense and those that make none.
func TestMixtures(t *testing.T) {
	for _, c := range []struct {
		name  string
		spec  profile.Spec
		wrong string
	}{
		{"mp-rdma", profile.Spec{Congestion: part("dctcp")}, ""},
		{"mp-rdma", profile.Spec{Paths: part("spray")}, ""},
		{"eunomia", profile.Spec{Paths: part("spray"), Congestion: part("dcqcn")}, ""},
		{"eunomia", profile.Spec{Recovery: part("selective")}, ""},
		{"eunomia", profile.Spec{Reorder: part("mp-rdma")}, ""},
		{"rc", profile.Spec{Congestion: part("swift")}, ""},
		{"rc", profile.Spec{Reorder: part("mp-rdma")}, "standard packets"},
		{"rc", profile.Spec{Recovery: part("selective")}, "standard packets"},
		{"rc", profile.Spec{Paths: part("spray")}, "standard packets"},
		{"mp-rdma", profile.Spec{Reorder: part("eunomia")}, "Head"},
		{"eunomia", profile.Spec{Paths: part("mp-rdma"), Congestion: part("mp-rdma")}, "echo"},
		{"mp-rdma", profile.Spec{Congestion: part("timely")}, "window"},
		{"eunomia", profile.Spec{Reorder: part("strict"), Recovery: part("selective")}, "strict receiver keeps"},
		{"eunomia", profile.Spec{Reorder: part("strict"), Recovery: part("gobackn"), Paths: part("spray")}, "loss"},
	} {
		err := profile.Validate(c.name, c.spec)
		if c.wrong == "" && err != nil || c.wrong != "" && (!errors.Is(err, profile.ErrMixture) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s %+v: %v, want %q", c.name, c.spec, err, c.wrong)
		}
	}
	for _, s := range []profile.Spec{
		{Reorder: part("warp")}, {Recovery: part("warp")}, {Paths: part("warp")}, {Congestion: part("warp")},
		{Reorder: profile.Part{Name: "eunomia", Params: map[string]float64{"memory_blocks": 0}}},
		{Reorder: profile.Part{Name: "eunomia", Params: map[string]float64{"warp": 1}}},
	} {
		if profile.Validate("eunomia", s) == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
	if err := profile.Validate("warp", profile.Spec{}); err == nil || !strings.Contains(err.Error(), "mp-rdma") {
		t.Errorf("unknown profile: %v", err)
	}
}
