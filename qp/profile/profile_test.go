package profile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// TestProfiles makes each as its paper has it.
func TestProfiles(t *testing.T) {
	m := profile.NewMaker(profile.Link{})
	for i, name := range profile.Names() {
		if err := profile.Validate(name, profile.Spec{}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p, err := m.New(name, profile.Spec{})
		if err != nil || p.Kind != bth.Profile(i) || profile.NameOf(p.Kind) != name || p.Tracker == nil || p.Recovery == nil || p.Controller == nil {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if ext := p.Kind.Extended(); ext != (p.ResponseTracker != nil && p.ResponseRecovery != nil && p.Paths != nil && p.ResponsePaths != nil) {
			t.Errorf("%s: %+v", name, p)
		}
		if own := p.ResponseControl != nil; own != (name == "mp-rdma") {
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
		{"rc", profile.Spec{Congestion: profile.Part{Name: "dctcp", Params: map[string]float64{"per_destination": 1}}}, ""},
		{"mp-rdma", profile.Spec{Congestion: profile.Part{Name: "dctcp", Params: map[string]float64{"per_destination": 1}}}, "queue pairs do not share"},
		{"rc", profile.Spec{Reorder: part("mp-rdma")}, "standard packets"},
		{"rc", profile.Spec{Recovery: part("selective")}, "standard packets"},
		{"rc", profile.Spec{Paths: part("spray")}, "standard packets"},
		{"mp-rdma", profile.Spec{Reorder: part("eunomia")}, "Head"},
		{"eunomia", profile.Spec{HoldLast: "sender-idle"}, ""},
		{"mp-rdma", profile.Spec{HoldLast: "receiver"}, "only eunomia"},
		{"irn", profile.Spec{CNPWithNAK: true}, ""},
		{"melo", profile.Spec{CNPWithNAK: true}, "only receivers of rc and irn"},
		{"eunomia", profile.Spec{Paths: part("mp-rdma"), Congestion: part("mp-rdma")}, "only acknowledgements of the profile mp-rdma"},
		{"mp-rdma", profile.Spec{Congestion: part("timely")}, "window"},
		{"mp-rdma", profile.Spec{Congestion: part("static")}, "window"},
		{"mp-rdma", profile.Spec{Congestion: profile.Part{Name: "static", Params: map[string]float64{"window_bytes": 1e5}}}, ""},
		{"eunomia", profile.Spec{Reorder: part("strict"), Recovery: part("selective")}, "strict receiver drops"},
		{"eunomia", profile.Spec{Reorder: part("strict"), Recovery: part("gobackn"), Paths: part("spray")}, "loss"},
		{"mrc", profile.Spec{Congestion: part("swift")}, ""},
		{"mrc", profile.Spec{Congestion: part("dcqcn")}, "no CNPs"},
		{"mrc", profile.Spec{Paths: part("spray")}, ""},
		{"irn", profile.Spec{Congestion: part("hpcc")}, ""},
		{"irn", profile.Spec{Paths: part("spray"), Congestion: part("hpcc")}, "packets of one path"},
		{"mrc", profile.Spec{Congestion: part("hpcc")}, "packets of one path"},
		{"rc", profile.Spec{Congestion: profile.Part{Name: "hpcc", Params: map[string]float64{"per_destination": 1}}}, "one control for each"},
		{"irn", profile.Spec{Paths: part("mrc")}, "path feedback"},
		{"mrc", profile.Spec{Recovery: part("irn")}, "profile mrc"},
		{"irn", profile.Spec{Reorder: part("mrc")}, "profile mrc"},
	} {
		err := profile.Validate(c.name, c.spec)
		if c.wrong == "" && err != nil || c.wrong != "" && (!errors.Is(err, profile.ErrMixture) || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s %+v: %v, want %q", c.name, c.spec, err, c.wrong)
		}
	}
	for _, s := range []profile.Spec{
		{HoldLast: "warp"}, {Reorder: part("warp")}, {Recovery: part("warp")}, {Paths: part("warp")}, {Congestion: part("warp")},
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

// TestExact: Exact selects the paper's rules, unless a parameter says otherwise; it does not change the given parameters.
func TestExact(t *testing.T) {
	own := map[string]float64{"rto_doublings": 2}
	for _, c := range []struct {
		name string
		spec profile.Spec
		want func(p qp.Profile) bool
	}{
		{"rc", profile.Spec{}, func(p qp.Profile) bool { return p.Traits == qp.Traits{} }},
		{"mp-rdma", profile.Spec{}, func(p qp.Profile) bool { return p.Traits.SelectiveRTT }},
		{"eunomia", profile.Spec{}, func(p qp.Profile) bool { return p.Traits.HoldLast == qp.HoldAtSender }},
		{"eunomia", profile.Spec{HoldLast: "receiver"}, func(p qp.Profile) bool { return p.Traits.HoldLast == qp.HoldAtReceiver }},
		{"irn", profile.Spec{}, func(p qp.Profile) bool { return timeouts(p.Recovery) == 1 }},
		{"rc", profile.Spec{CNPWithNAK: true}, func(p qp.Profile) bool { return p.Traits.CNPWithNAK }},
		{"irn", profile.Spec{Recovery: profile.Part{Name: "irn", Params: own}}, func(p qp.Profile) bool { return timeouts(p.Recovery) == 4 }},
		{"irn", profile.Spec{Recovery: profile.Part{Name: "irn", Params: map[string]float64{"partial_ack": 1}}}, func(p qp.Profile) bool { return partial(p.Recovery) }},
		{"irn", profile.Spec{}, func(p qp.Profile) bool { return !partial(p.Recovery) }},
		{"melo", profile.Spec{}, func(p qp.Profile) bool { return timeouts(p.Recovery) == 1 }},
		{"mp-rdma", profile.Spec{}, func(p qp.Profile) bool { return grows(p.Controller) }},
	} {
		c.spec.Exact = true
		if err := profile.Validate(c.name, c.spec); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		p, err := profile.NewMaker(profile.Link{}).New(c.name, c.spec)
		if err != nil || !c.want(p) {
			t.Errorf("%s, %+v: %+v, %v", c.name, c.spec, p, err)
		}
	}
	if len(own) != 1 {
		t.Errorf("the given parameters are now %v", own)
	}
	if p, err := profile.NewMaker(profile.Link{}).New("mp-rdma", profile.Spec{}); err != nil || p.Traits.SelectiveRTT || grows(p.Controller) {
		t.Errorf("exact by default: %+v, %v", p, err)
	}
}

// timeouts returns the ratio of the timeout after two timeouts to the first one.
func timeouts(r retrans.Recovery) float64 {
	r.Reset(bth.PSN{})
	for i := range 9 {
		r.OnSent(0, bth.PSN{}.Add(i), 1, false)
	}
	first := r.Deadline()
	var now mono.Time
	for range 2 {
		now = r.Deadline()
		r.OnTimeout(now)
		psn, _ := r.NextRetransmit()
		r.OnSent(now, psn, 1, true)
	}
	return float64(r.Deadline().Sub(now)) / float64(first)
}

// partial reports whether a partial acknowledgement after a timeout means another loss.
func partial(r retrans.Recovery) bool {
	r.Reset(bth.PSN{})
	for i := range 9 {
		r.OnSent(0, bth.PSN{}.Add(i), 1, false)
	}
	r.OnTimeout(r.Deadline())
	r.OnSent(1, bth.PSN{}, 1, true)
	r.OnFeedback(2, &reorder.Feedback{Expected: bth.PSN{}.Add(1)})
	_, again := r.NextRetransmit()
	return again
}

// grows reports whether an acknowledgement raises a window that is not filled.
func grows(c ccalgo.Controller) bool {
	c.Reset(1000)
	before, _ := c.Limits()
	for range 20 {
		c.OnAck(0, ccalgo.Sample{Bytes: 1000})
	}
	after, _ := c.Limits()
	return after > before
}

// TestHoldLast: the receiver holds last packets unless it is said otherwise (Eunomia A.1).
func TestHoldLast(t *testing.T) {
	for given, want := range map[string]qp.HoldLast{
		"": qp.HoldAtReceiver, "receiver": qp.HoldAtReceiver, "sender": qp.HoldAtSender, "sender-idle": qp.HoldAtSenderIdle,
	} {
		p, err := profile.NewMaker(profile.Link{}).New("eunomia", profile.Spec{HoldLast: given})
		if err != nil || p.Traits.HoldLast != want {
			t.Errorf("%q: %d, %v, want %d", given, p.Traits.HoldLast, err, want)
		}
	}
}

// TestLink: what is known of the link takes the place of the papers' numbers where nothing
// else is given.
func TestLink(t *testing.T) {
	link := profile.Link{Rate: 10e9, RTT: 100 * time.Microsecond}
	rate := func(l profile.Link, congestion profile.Part) uint64 {
		p, err := profile.NewMaker(l).New("irn", profile.Spec{Congestion: congestion})
		if err != nil {
			t.Fatal(err)
		}
		p.Controller.Reset(1024)
		_, rate := p.Controller.Limits()
		return rate
	}
	given := profile.Part{Name: "dcqcn", Params: map[string]float64{"line_rate_bps": 25e9}}
	for _, c := range []struct {
		link       profile.Link
		congestion profile.Part
		want       uint64
	}{
		{profile.Link{}, part("dcqcn"), 40e9}, {link, part("dcqcn"), 10e9}, {link, given, 25e9}, {link, part("timely"), 10e9},
	} {
		if got := rate(c.link, c.congestion); got != c.want {
			t.Errorf("%+v, %+v: %d bit/s, want %d", c.link, c.congestion, got, c.want)
		}
	}
	if given.Params["line_rate_bps"] != 25e9 || len(given.Params) != 1 {
		t.Errorf("parameters have been changed: %v", given.Params)
	}
	// MP-RDMA's burst timer is half a round trip, its first window one BDP, 122 packets, but
	// no more than the paper's.
	p, err := profile.NewMaker(link).New("mp-rdma", profile.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	p.Controller.Reset(1024)
	p.Paths.Reset(path.Start{})
	p.Paths.OnAck(1, new(reorder.Feedback), 0, path.Window{Packets: 9})
	if w, _ := p.Controller.Limits(); w != 54*1024 || p.Paths.Deadline() != 50_001 {
		t.Errorf("window %d, burst timer %d", w, p.Paths.Deadline())
	}
	link.MTU = 1000
	for _, name := range profile.Names() {
		for _, cc := range ccalgo.Names() {
			for _, paths := range path.Names() {
				s := profile.Spec{Congestion: part(cc), Paths: part(paths)}
				if _, err := profile.NewMaker(link).New(name, s); err != nil {
					t.Errorf("%s, %s, %s: %v", name, cc, paths, err)
				}
			}
		}
	}
}

// TestLinkBDP: caps follow the bandwidth-delay product of the fastest link, at both ends, if it
// is known and nothing else is given; MELO's is that of a round trip with queues (4.2.2).
func TestLinkBDP(t *testing.T) {
	link := profile.Link{Rate: 10e9, RTT: 50 * time.Microsecond, MTU: 1000}
	slow, unknown := link, link
	slow.Rate, slow.Fastest, unknown.MTU = 1e9, 10e9, 0
	given := profile.Part{Name: "irn", Params: map[string]float64{"bdp_packets": 30}}
	for _, c := range []struct {
		name          string
		link          profile.Link
		spec          profile.Spec
		sends, tracks int
	}{
		{"irn", link, profile.Spec{}, 63, 63},
		{"irn", slow, profile.Spec{}, 63, 63},
		{"irn", unknown, profile.Spec{}, 110, 110},
		{"irn", profile.Link{}, profile.Spec{}, 110, 110},
		{"irn", link, profile.Spec{Recovery: given}, 30, 63},
		{"irn", link, profile.Spec{Reorder: given}, 63, 30},
		{"irn", profile.Link{Rate: 1e3, RTT: 1, MTU: 9000}, profile.Spec{}, 1, 1},
		{"irn", profile.Link{Rate: 1e13, RTT: time.Second, MTU: 1000}, profile.Spec{}, 1 << 16, 1 << 16},
		{"melo", profile.Link{Rate: 1e13, RTT: time.Second, MTU: 1000}, profile.Spec{}, 1 << 16, 1 << 16},
		{"melo", link, profile.Spec{}, 250, 250},
		{"melo", profile.Link{Rate: 10e9, RTT: time.Millisecond, MTU: 1000}, profile.Spec{}, 1250, 1250},
		{"melo", unknown, profile.Spec{}, 977, 1024},
	} {
		p, err := profile.NewMaker(c.link).New(c.name, c.spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []retrans.Recovery{p.Recovery, p.ResponseRecovery} {
			if n := r.(retrans.Capped).Cap(); int(n) != c.sends {
				t.Errorf("%s, %+v: %d packets may be outstanding, want %d", c.name, c.link, n, c.sends)
			}
		}
		for _, trk := range []reorder.Tracker{p.Tracker, p.ResponseTracker} {
			first := bth.PSN{}
			trk.Reset(first)
			last, beyond := trk.Classify(first.Add(c.tracks-1)), trk.Classify(first.Add(c.tracks))
			if last == reorder.Beyond || beyond != reorder.Beyond {
				t.Errorf("%s, %+v: packet %d is %v, the next %v", c.name, c.link, c.tracks-1, last, beyond)
			}
		}
	}
}

func TestNameOf(t *testing.T) {
	for p, want := range map[bth.Profile]string{bth.ProfileRC: "rc", bth.ProfileIRN: "irn", bth.ProfileMELO: "melo",
		bth.ProfileMPRDMA: "mp-rdma", bth.ProfileEunomia: "eunomia", 200: "unknown"} {
		if got := profile.NameOf(p); got != want {
			t.Errorf("%d is %q, want %q", p, got, want)
		}
	}
}
