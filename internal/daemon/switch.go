package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// nicSwitch is a switch: a rocev2.Switch for each of its shards. NICs of one shard exchange packets; between shards, the
// port of the sender copies frames into the inbox of the receiver's port.
type nicSwitch struct {
	mu      sync.Mutex // held during a change of members and addresses; no shard waits for it
	groups  map[string]*rocev2.Switch
	members []*nic
}

// switchOf returns the switch of a configuration, nil if there is none.
func (d *Daemon) switchOf(name string) *nicSwitch {
	if name == "" {
		return nil
	}
	if d.switches[name] == nil {
		d.switches[name] = &nicSwitch{groups: map[string]*rocev2.Switch{}}
	}
	return d.switches[name]
}

// beside returns a NIC whose shard n joins, nil if there is none.
func (s *nicSwitch) beside(n *nic) *nic {
	if s == nil {
		return nil
	}
	return s.on(n.cfg.Shard)
}

// on returns a member on a shard, nil if there is none.
func (s *nicSwitch) on(shard string) *nic {
	for _, m := range s.members {
		if m.cfg.Shard == shard {
			return m
		}
	}
	return nil
}

// join makes n a member of its switch.
func (n *nic) join() error {
	s := n.sw
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[n.cfg.Shard]
	if g == nil {
		g = &rocev2.Switch{}
		s.groups[n.cfg.Shard] = g
	}
	peers := s.peers(n.cfg.Shard)
	var err error
	derr := n.shard.Do(context.Background(), func(_ mono.Time, core *rocev2.NIC) {
		g.SetRemote(peers)
		n.port.SetSwitch(core.Across, g, n.shard.Wake)
		err = g.Join(core, n.port)
	})
	if err := errors.Join(derr, err); err != nil {
		return err
	}
	s.members = append(s.members, n)
	s.publish()
	return nil
}

// leave ends the membership of n. Afterwards no other shard uses its port.
func (n *nic) leave() {
	if n.sw == nil {
		return
	}
	n.sw.mu.Lock()
	defer n.sw.mu.Unlock()
	n.sw.members = slices.DeleteFunc(n.sw.members, func(m *nic) bool { return m == n })
	// An error means that the shard has ended.
	_ = n.shard.Do(context.Background(), func(_ mono.Time, core *rocev2.NIC) { core.LeaveSwitch() })
	n.sw.publish()
}

// readdress publishes the addresses of n after a change.
func (n *nic) readdress() {
	if n.sw == nil {
		return
	}
	n.sw.mu.Lock()
	defer n.sw.mu.Unlock()
	n.sw.publish()
}

// publish tells each shard the members of the others. The lists are new ones: shards read theirs without a lock.
func (s *nicSwitch) publish() {
	for shard, g := range s.groups {
		if m := s.on(shard); m != nil {
			peers := s.peers(shard)
			_ = m.shard.Do(context.Background(), func(mono.Time, *rocev2.NIC) { g.SetRemote(peers) })
		}
	}
}

// peers returns the members on other shards.
func (s *nicSwitch) peers(shard string) (peers []rocev2.Member) {
	for _, m := range s.members {
		if m.cfg.Shard != shard {
			_ = m.shard.Look(context.Background(), func(_ mono.Time, core *rocev2.NIC) { peers = append(peers, core.Member()) })
		}
	}
	return peers
}
