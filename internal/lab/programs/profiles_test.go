package programs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
	"roced.io/roced/qp/profile"
)

// profilePrograms are the programs of perftest that run on the device of each extended transport.
var profilePrograms = []string{
	"ib_write_bw -c RC -b", "ib_read_bw -c RC", "ib_send_bw -c RC", "ib_atomic_bw -c RC", "ib_atomic_bw -c RC -A CMP_AND_SWAP",
	"ib_write_lat -c RC",
}

// longTimeouts sets longer timeouts for transports with timeouts for hardware in their papers: on a loaded machine programs and
// daemons wait for each other, and no packet is lost.
const longTimeouts = "    transports: {irn: {recovery: {rto_low_us: 20000, rto_high_us: 20000}}, melo: {recovery: {rto_us: 20000}}}\n"

// newProfilesLab starts daemons with a device for each transport profile.
func newProfilesLab(t *testing.T) *lab.Lab {
	t.Helper()
	return newLab(t, fmt.Sprintf("    profiles: [%s]\n%s", strings.Join(profile.Complete(), ", "), longTimeouts))
}

// onProfiles returns the lab with the device of a transport profile on each host.
func onProfiles(l *lab.Lab, names [2]string) *lab.Lab {
	inner := *l.Lab
	for i, h := range l.Host {
		host := *h
		if names[i] != profile.Complete()[0] {
			host.Device += "_" + strings.ReplaceAll(names[i], "-", "_")
		}
		inner.Host[i] = &host
	}
	return &lab.Lab{Lab: &inner, T: l.T}
}

// TestProfiles runs programs on the device of each extended transport. Programs of rdma_cm need a NIC with that device
// only, because rdma_cm uses the first device of a NIC.
func TestProfiles(t *testing.T) {
	lab.Need(t, "ib_write_bw")
	all := newProfilesLab(t)
	for _, name := range profile.Complete()[1:] {
		t.Run(name, func(t *testing.T) {
			l := onProfiles(all.At(t), [2]string{name, name})
			rungs := []rung{outOfBand(l, rung{name: "ibv_rc_pingpong -c"}, "ibv_rc_pingpong", "-c", "-n", "300", "-g", gidIPv4)}
			for _, program := range profilePrograms {
				rungs = append(rungs, perftest(l, program, ""))
			}
			runAll(t, l, onProfile(name, rungs))
			only := newLab(t, "    profile: "+name+"\n"+longTimeouts)
			rping := rung{name: "rping -C 20 -V", common: strings.Fields("rping -C 20 -V -a " + only.Host[serverHost].Addr),
				server: []string{"-s"}, client: []string{"-c"}, ready: cmListens, race: lateRping["rping"]}
			runAll(t, only, onProfile(name, []rung{rping, perftestCM(only, "ib_send_bw -R -c RC", "")}))
			only.NoClients()
		})
	}
	all.NoClients()
}

// onProfile puts rungs under the heading of a profile.
func onProfile(name string, rungs []rung) []rung {
	for i := range rungs {
		rungs[i].group = "transport profile " + name
	}
	return rungs
}

// TestProfilesDiffer connects devices of different profiles.
func TestProfilesDiffer(t *testing.T) {
	lab.Need(t, "ib_read_bw")
	l := newProfilesLab(t)
	names := profile.Complete()
	for i, from := range names {
		to := names[(i+1)%len(names)]
		r := row{group: "transport profiles that differ", name: fmt.Sprintf("ib_read_bw -c RC, %s to %s", from, to),
			outcome: pass, why: "refused, " + invalidRequest}
		t.Run(from+" to "+to, func(t *testing.T) {
			if err := refused(onProfiles(l.At(t), [2]string{clientHost: from, serverHost: to})); err != nil {
				r.outcome, r.why = fail, err.Error()
			}
			record(t, r)
		})
	}
	l.NoClients()
}

// invalidRequest is perftest's message for IBV_WC_REM_INV_REQ_ERR.
const invalidRequest = "Failed status 9"

// refused runs a program whose two sides do not match and checks that both fail. The client must get a NAK at once; without
// an answer it would fail later with another status.
func refused(l *lab.Lab) error {
	r := perftest(l, "ib_read_bw -c RC", "")
	server := l.Exec(serverHost, slices.Concat(r.common, r.server)...)
	if err := r.ready(l, server); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	client := l.Exec(clientHost, slices.Concat(r.common, r.client)...)
	if err := client.Wait(lab.Limit); err == nil || !strings.Contains(client.Said(), invalidRequest) {
		return fmt.Errorf("client: not %q: %v\n%s", invalidRequest, err, client.Said())
	}
	if err := server.Wait(lab.Limit); err == nil {
		return errors.New("the server has not failed")
	}
	return nil
}
