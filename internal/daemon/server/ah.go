package server

import (
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/rxering"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// addressHandle is an address handle with the attributes it was created from.
type addressHandle struct {
	ah     *rocev2.AH
	origin origin
}

// origin holds the attributes of an address handle. Providers before rdma-core 35 put them into work requests
// instead of the handle's number. The protection domain, which is the queue pair's, distinguishes handles to the
// same peer.
type origin struct {
	pd   *rocev2.PD
	dest rxering.Destination
}

func (c *client) createAH(q *request) error {
	var in uverbs.CreateAH
	if err := q.decode(&in); err != nil {
		return err
	}
	pd, err := c.pds.get(in.PDHandle)
	if err != nil {
		return err
	}
	if in.Attr.PortNum != 1 {
		return unix.EINVAL
	}
	if c.ahs.full() {
		return unix.ENOMEM
	}
	a := &in.Attr
	own := c.owner()
	return c.do(func(now mono.Time, n *rocev2.NIC) error {
		dest := rxering.Destination{AV: vector(a.GRH.DGID, a.GRH.FlowLabel, a.GRH.SGIDIndex, a.GRH.HopLimit, a.GRH.TrafficClass)}
		av, ok := dest.AV, true
		if a.IsGlobal == 0 {
			dest.LID = a.DLID
			av, ok = n.LIDVector(a.DLID)
		}
		if !ok {
			return unix.EINVAL
		}
		av.SL = a.SL & maxSL // work requests carry no SL
		ah, err := n.CreateAH(now, pd, av, &own)
		if err == nil {
			h := &addressHandle{ah, origin{pd, dest}}
			c.origins[h.origin] = append(c.origins[h.origin], ah)
			// Work requests carry ah_num. With zero the provider would resolve the address itself.
			q.core, q.provider = uverbs.CreateAHResp{AHHandle: c.ahs.add(h)}, uverbs.RxeCreateAHResp{AHNum: ah.Handle()}
		}
		return err
	})
}

func (c *client) destroyAH(q *request) error {
	var handle uint32
	if err := q.decode(&handle); err != nil {
		return err
	}
	h, err := c.ahs.get(handle)
	if err != nil {
		return err
	}
	return c.do(func(_ mono.Time, n *rocev2.NIC) error {
		err := n.DestroyAH(h.ah)
		if err == nil {
			c.ahs.remove(handle)
			c.forget(h)
		}
		return err
	})
}

// ahOf returns the number of an address handle with this origin, 0 if there is none.
func (c *client) ahOf(o origin) uint32 {
	if all := c.origins[o]; len(all) > 0 {
		return all[0].Handle()
	}
	return 0
}

func (c *client) forget(h *addressHandle) {
	all := slices.DeleteFunc(c.origins[h.origin], func(ah *rocev2.AH) bool { return ah == h.ah })
	if c.origins[h.origin] = all; len(all) == 0 {
		delete(c.origins, h.origin)
	}
}
