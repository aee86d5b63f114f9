package qp_test

import (
	"fmt"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/path"
	"roced.io/roced/reorder"
)

// pathChoices are the choices of path selection and endpoint operations.
func pathChoices(t *testing.T) []choice {
	t.Helper()
	s, err := path.New("mrc", path.Params{"ev_count": 2, "ev_active": 2, "ev_min_active": 1, "ev_probe_answers": 3})
	if err != nil {
		t.Fatal(err)
	}
	m := s.(*path.MRC)
	first, _ := m.Next(0, path.Window{})
	m.OnSent(0, path.Window{})
	second, _ := m.Next(0, path.Window{})
	m.OnSent(0, path.Window{})
	port, label := bth.SplitEntropy(first)
	m.OnAck(0, &reorder.Feedback{VP: second, ECE: true}, 0, path.Window{})
	missed := 0
	for range 2 {
		if vp, _ := m.Next(0, path.Window{}); vp == first {
			missed++
		}
		m.OnSent(0, path.Window{})
	}
	m.Lost(0, port)
	answers := 0
	for state := path.EVAssumedBad; state == path.EVAssumedBad; answers++ {
		m.BeginProbes(m.ProbesDue())
		_, id, _ := m.NextProbe()
		m.Answered(id)
		state, _ = m.State(int(port & 1))
	}
	return []choice{
		{"generated entropy values", "at most 16 bits; how they become port and label differs", fmt.Sprintf("both have the same number: port 0x%x, label 0x%x of the %s",
			port&^1, label&^1, "first one"), "`path.MRC`"},
		{"how long an entropy value is skipped", "implementation-defined; one per packet sent", fmt.Sprintf("it misses one turn: of 2, the other is used %d times in a row",
			missed), "`path.MRC`"},
		{"losses that make an entropy value ASSUMED_BAD", "timeouts without SACK or trimming", "all that no NACK reports, also by later packets that have arrived; probes without an answer",
			"`path.MRC.Lost`, `mrcRequester.ask`"},
		{"return from ASSUMED_BAD", "an EV probe is answered", fmt.Sprintf("a number of consecutive answers, 8 by default, since a lossy path answers, too: %d of 3",
			answers), "`path.MRC.Answered`"},
		{"path of SACKs and NACKs", "a reverse set of entropy values, learnt from SACKs", "the entropy value of the packet; that of the last one for Transport ACKs",
			"`encodeMRC`"},
		{"answers to endpoint requests", "silent about their path and sender", "on the path of the request, to addresses with a connected queue pair",
			"`NIC.receiveEndpoint`"},
		{"belief in a port status", "the plane is removed",
			"the plane is removed if an EV probe in it is not answered before one in another plane; at most once in 100 ms; the simulator believes it at once",
			"`challenge`"},
		{"effect of a port status", "the plane is removed", "its entropy values become ASSUMED_BAD, and probes return them", "`path.MRC.SetPorts`"},
		{"retransmission of a port status", "silent", "8 times, 1ms apart, until it is answered", "`endpoint`"},
	}
}
