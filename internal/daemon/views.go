package daemon

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/rocev2"
)

// getLinks describes all NICs.
func (d *Daemon) getLinks(w http.ResponseWriter, r *http.Request) {
	out := make([]api.Link, 0, len(d.nics()))
	for _, n := range d.nics() {
		l, err := n.link(r.Context())
		if err != nil {
			answer(w, http.StatusInternalServerError, api.Fault{Error: err.Error()})
			return
		}
		for _, dev := range n.devices {
			l.Devices = append(l.Devices, api.Device{Name: dev.shown.Name, Profile: dev.server.Profile(),
				Socket: filepath.Join(d.cfg.RunDir, "uverbs"+strconv.Itoa(dev.shown.Index))})
		}
		l.Socket = l.Devices[0].Socket
		out = append(out, l)
	}
	answer(w, http.StatusOK, out)
}

func (n *nic) link(ctx context.Context) (api.Link, error) {
	l := api.Link{Name: n.cfg.Name, State: "DOWN", Port: n.cfg.Port.Type, Device: n.netdev(), Switch: n.cfg.Switch, Shard: n.cfg.Shard,
		Profile: n.cfg.Profile, Clients: n.clients(), GIDs: []string{}}
	if l.Device == "" {
		l.Device = n.cfg.Port.Each()[0].Local
	}
	if c := &n.live.Load().Congestion; c.Algorithm != "none" {
		l.Congestion = &api.Congestion{Algorithm: c.Algorithm, Params: c.Params}
	}
	poll, err := n.shard.Poll(ctx)
	l.Poll = config.PollOf(poll).String()
	derr := n.shard.Do(ctx, func(_ mono.Time, core *rocev2.NIC) {
		a := core.PortAttr()
		l.MAC = core.MAC().String()
		l.MTU, l.ActiveMTU = a.LinkMTU, a.ActiveMTU.Bytes()
		if a.State == rocev2.PortActive {
			l.State = "ACTIVE"
		}
		for _, g := range core.GIDs() {
			l.GIDs = append(l.GIDs, g.GID.Addr().String())
			if len(n.cfg.VLANs) > 0 {
				l.VLANs = append(l.VLANs, g.VLAN)
			}
		}
		l.Faults, l.Segments = len(n.rules), n.port.Offload().MaxSegments
		if st := n.port.State(); st.Err != nil {
			l.Reason = st.Err.Error()
		}
		l.Overruns, l.Planes = n.port.Stats().Overruns, n.planeViews()
		l.Losses = losses(core.CounterSnapshot(), n.port.Stats().SendDropped)
		if n.shared != nil {
			l.Mode = n.shared.port.Mode()
		}
	})
	return l, errors.Join(err, derr)
}

// linkSendDropped is the name in metrics for frames that the kernel refused.
const linkSendDropped = "link_send_dropped"

// lossReasons explains the counters of frames that a NIC could not send.
var lossReasons = map[string]string{
	"port_xmit_discards":     "the link was down",
	"tx_dropped_no_path":     "the queue pair had no path, or the address handle was destroyed",
	"tx_dropped_mtu":         "packets are longer than the MTU of the link: set the path MTU of the queue pair to at most the active MTU",
	"tx_dropped_unreachable": "the neighbour does not answer ARP or neighbour discovery",
	"tx_dropped_hold":        "too many frames waited for the answer of a neighbour",
	"tx_dropped_control":     "too many ARP, ICMP or management packets waited, or one was longer than the MTU",
	linkSendDropped:          "the kernel refused the frames; the mode of the port and the log name the error",
}

// losses returns the reasons for which frames were not sent.
func losses(counters []rocev2.Counter, refused uint64) (out []api.Loss) {
	for _, c := range append(counters, rocev2.Counter{Name: linkSendDropped, Value: refused}) {
		if reason, lost := lossReasons[c.Name]; lost && c.Value > 0 {
			out = append(out, api.Loss{Counter: c.Name, Frames: c.Value, Reason: reason})
		}
	}
	return out
}

// lister lists the objects of one kind of a NIC.
type lister func(nic string, n *rocev2.NIC) []api.Resource

var listers = map[string]lister{
	"mr": func(nic string, n *rocev2.NIC) []api.Resource {
		return list(nic, n.MRs(), func(i *rocev2.MRInfo, r *api.Resource) any {
			r.MR = &api.MR{ID: i.ID, PD: i.PD, Length: i.Length, Access: uint32(i.Access), Windows: i.Windows}
			return i.Ctx
		})
	},
	"cq": func(nic string, n *rocev2.NIC) []api.Resource {
		return list(nic, n.CQs(), func(i *rocev2.CQInfo, r *api.Resource) any {
			r.CQ = &api.CQ{ID: i.ID, CQE: i.Entries, Users: i.Users, Armed: i.Armed, Failed: i.Failed}
			return i.Ctx
		})
	},
	"pd": func(nic string, n *rocev2.NIC) []api.Resource {
		return list(nic, n.PDs(), func(i *rocev2.PDInfo, r *api.Resource) any {
			r.PD = &api.PD{ID: i.ID, Users: i.Users}
			return i.Ctx
		})
	},
	"srq": func(nic string, n *rocev2.NIC) []api.Resource {
		return list(nic, n.SRQs(), func(i *rocev2.SRQInfo, r *api.Resource) any {
			r.SRQ = &api.SRQ{ID: i.ID, PD: i.PD, MaxWR: i.MaxWR, Limit: i.Limit, Posted: i.Posted, Users: i.Users}
			return i.Ctx
		})
	},
	"ah": func(nic string, n *rocev2.NIC) []api.Resource {
		return list(nic, n.AHs(), func(i *rocev2.AHInfo, r *api.Resource) any {
			r.AH = &api.AH{Handle: i.Handle, PD: i.PD, Peer: i.AV.DGID.Addr().String()}
			return i.Ctx
		})
	},
}

// list describes objects. fill sets the fields of their kind and returns the object's context.
func list[T any](nic string, objects []T, fill func(*T, *api.Resource) any) []api.Resource {
	out := make([]api.Resource, len(objects))
	for i := range objects {
		var r api.Resource
		ctx := fill(&objects[i], &r)
		owner := resource(nic, ctx)
		r.NIC, r.Client, r.PID, r.UID, r.Device = owner.NIC, owner.Client, owner.PID, owner.UID, owner.Device
		out[i] = r
	}
	return out
}

func (d *Daemon) getResources(w http.ResponseWriter, r *http.Request) {
	switch r.PathValue("kind") {
	case "cm_id":
		answer(w, http.StatusOK, d.cmIDs())
		return
	case "user":
		answer(w, http.StatusOK, d.users())
		return
	case "qp":
		d.getQPs(w, r)
		return
	}
	kind := listers[r.PathValue("kind")]
	if kind == nil {
		answer(w, http.StatusNotFound, api.Fault{Error: "no such kind of object: " + r.PathValue("kind")})
		return
	}
	out := []api.Resource{}
	for _, n := range d.nics() {
		err := n.shard.Do(r.Context(), func(_ mono.Time, core *rocev2.NIC) { out = append(out, kind(n.cfg.Name, core)...) })
		if err != nil {
			answer(w, http.StatusInternalServerError, api.Fault{Error: err.Error()})
			return
		}
	}
	answer(w, http.StatusOK, out)
}

func (d *Daemon) getQPs(w http.ResponseWriter, r *http.Request) {
	out := []api.Resource{}
	for _, n := range d.nics() {
		list, err := n.queuePairs(r.Context())
		if err != nil {
			answer(w, http.StatusInternalServerError, api.Fault{Error: err.Error()})
			return
		}
		out = append(out, list...)
	}
	answer(w, http.StatusOK, out)
}

// queuePairs lists queue pairs in pages: they are the most numerous objects, and users without a token may request the
// list.
func (n *nic) queuePairs(ctx context.Context) (out []api.Resource, err error) {
	err = n.eachQP(ctx, func(q *rocev2.QueuePair) {
		info := q.Info()
		res := resource(n.cfg.Name, info.Ctx)
		res.QP = qpOf(&info)
		out = append(out, res)
	})
	return out, err
}

// getStats answers with the counters of all NICs, or of the NIC in the path.
func (d *Daemon) getStats(w http.ResponseWriter, r *http.Request) {
	out := []api.Stat{}
	name := r.PathValue("nic")
	for _, n := range d.nics() {
		if name != "" && name != n.cfg.Name {
			continue
		}
		s, err := n.stat(r.Context())
		if err != nil {
			answer(w, http.StatusInternalServerError, api.Fault{Error: err.Error()})
			return
		}
		out = append(out, s)
	}
	if name != "" && len(out) == 0 {
		answer(w, http.StatusNotFound, d.unknown(name))
		return
	}
	answer(w, http.StatusOK, out)
}

func (n *nic) stat(ctx context.Context) (api.Stat, error) {
	s := api.Stat{NIC: n.cfg.Name, Counters: map[string]uint64{}}
	var err error
	if s.Shard, err = n.shard.Stats(ctx); err != nil {
		return s, err
	}
	err = n.shard.Do(ctx, func(_ mono.Time, core *rocev2.NIC) {
		for _, c := range core.CounterSnapshot() {
			s.Counters[c.Name] = c.Value
		}
		s.Port = n.port.Stats()
	})
	return s, err
}

func getFaults(n *nic, w http.ResponseWriter, r *http.Request) error {
	var st port.FaultStats
	err := n.shard.Do(r.Context(), func(mono.Time, *rocev2.NIC) { st = n.port.FaultStats() })
	if err != nil {
		return err
	}
	out := make([]api.FaultRule, 0, len(st.Rules))
	for _, s := range st.Rules {
		out = append(out, api.FaultRule{Rule: s.Rule.String(), Matched: s.Matched, Hit: s.Hit})
	}
	answer(w, http.StatusOK, out)
	return nil
}
