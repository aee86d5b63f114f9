package shard

import (
	"testing"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/rocev2"
)

// slowPort delivers some frames and records the arrival time of each.
type slowPort struct {
	nullPort
	frames int
	came   []mono.Time
}

func (p *slowPort) Recv(mono.Time, []byte) ([]byte, int, error) {
	if p.frames == 0 {
		return nil, 0, port.ErrAgain
	}
	p.frames--
	p.came = append(p.came, Now())
	return make([]byte, 60), 0, nil
}

// seen records the times at which the NIC received frames.
type seen []mono.Time

func (s *seen) Frame(now mono.Time, _ link.Direction, _ []byte, _ string) { *s = append(*s, now) }

// TestFramesHaveTimes checks that a frame carries its arrival time, not the start of this turn or of the previous
// one.
func TestFramesHaveTimes(t *testing.T) {
	nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	var at seen
	nic.SetObserver(&at)
	p := &slowPort{frames: 3}
	s := alone(&NIC{nic: nic, port: p, up: true})
	if !s.receive() || len(at) != 3 {
		t.Fatalf("%d frames", len(at))
	}
	for i := range at {
		if at[i] < p.came[i] {
			t.Errorf("frame %d has come at %d, before %d", i, at[i], p.came[i])
		}
	}
}
