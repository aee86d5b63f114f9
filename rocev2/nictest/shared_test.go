package nictest

import (
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2"
)

// TestSharedControl: four queue pairs have a rate per destination, per five-tuple, or one each, as the parameters
// say. Two of them use the peer's IPv4 address, two its IPv6 address.
func TestSharedControl(t *testing.T) {
	const rate, took = 1e9, 4 * time.Millisecond
	for name, want := range map[string]float64{"": 4, "per_five_tuple": 4, "per_destination": 2} {
		t.Run(name, func(t *testing.T) {
			params := map[string]float64{"rate_bps": rate}
			if name != "" {
				params[name] = 1
			}
			bytes := 0
			p := New(t, Options{Seed: 1, Rate: 100e9, Config: func(c *rocev2.Config) {
				m := profile.NewMaker(profile.Link{})
				c.NewProfile = func(string) (qp.Profile, error) {
					return m.New("rc", profile.Spec{Congestion: profile.Part{Name: "static", Params: params}})
				}
			}})
			p.SetHook(OnlyRoCE(func(f *Flight) Fate {
				var pkt bth.Packet
				if f.From == p.A && f.RoCE(&pkt) {
					bytes += len(pkt.Payload)
				}
				return Fate{}
			}))
			for i := range 4 {
				a, _ := p.RC(func(o *QPOptions) { o.GID = uint8(i % 2) })
				src, dst := p.A.Buffer(4<<20), p.B.Buffer(4<<20)
				a.Post(Write(1, dst.At(0), src.SGE()))
			}
			p.Run(took / 2) // shares have settled
			bytes = 0
			p.Run(took)
			got := float64(bytes) * 8 / took.Seconds() / rate
			if got < 0.85*want || got > want {
				t.Errorf("%.2f times the rate, want %.0f without headers", got, want)
			}
		})
	}
}
