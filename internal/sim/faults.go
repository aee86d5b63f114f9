package sim

import (
	"cmp"
	"fmt"

	"roced.io/roced/internal/base/fault"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
)

// judge applies fault rules of the daemon's ports to the packets of a simulated link.
type judge struct {
	k      *nic.Cluster
	dscp   *[fabric.Classes]uint8
	engine fault.Engine
	frame  []byte
}

// possible lists the actions that lose or mark a packet. The others change its arrival time or content, which
// simulated links do not support.
var possible = map[fault.Action]bool{fault.Drop: true, fault.ECN: true}

// Faults sets the fault rules (package internal/base/fault) of a link: "tx drop psn=+3 n=1" loses the first
// transmission of each flow's fourth packet.
func (s *Simulation) Faults(links []*fabric.Link, rules ...string) error {
	j, err := newJudge(s.cluster, s.cfg.DSCP, rules)
	for _, l := range links {
		if err == nil {
			l.Judge = j
		}
	}
	return err
}

func newJudge(k *nic.Cluster, dscp *[fabric.Classes]uint8, rules []string) (*judge, error) {
	j := &judge{k: k, dscp: dscp}
	parsed, err := fault.ParseAll(rules)
	for i := range parsed {
		err = cmp.Or(err, check(&parsed[i], rules[i]))
	}
	if err != nil {
		return nil, err
	}
	return j, j.engine.SetRules(parsed)
}

// CheckFault validates a fault rule of a simulated link.
func CheckFault(text string) error {
	r, err := fault.Parse(text)
	if err != nil {
		return err
	}
	return check(&r, text)
}

func check(r *fault.Rule, text string) error {
	if r.Dir != fault.Tx || !possible[r.Action] {
		return fmt.Errorf("%q: rules of a simulated link are \"tx drop\" and \"tx ecn\"", text)
	}
	return nil
}

// Lost implements fabric.Judge.
func (j *judge) Lost(now engine.Time, _ *fabric.Link, d *fabric.Packet) bool {
	if d.Kind != fabric.Data {
		return false
	}
	p, src, port := j.k.Packet(d)
	h := Headers{Src: src, Dst: d.Dst, Port: port, ECN: d.ECN, DSCP: dscp(j.dscp, d.Class)}
	j.frame = AppendFrame(j.frame[:0], p, h)
	v := j.engine.Process(now.Mono(), fault.Tx, j.frame)
	if v.Copies > 0 && v.Frame[15]&3 == fabric.CE {
		d.ECN = fabric.CE
	}
	return v.Copies == 0
}
