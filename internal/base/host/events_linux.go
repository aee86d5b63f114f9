package host

import (
	"errors"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// change accumulates notifications.
type change struct {
	state  bool // link, addresses or routes have changed: reload them
	lost   bool // notifications have been lost: reload the neighbours as well
	neighs []neighEvent
}

// neighEvent is a change or removal of a neighbour entry.
type neighEvent struct {
	netlink.Neigh
	gone bool
}

func (c *change) empty() bool { return !c.state && !c.lost && len(c.neighs) == 0 }

// maxPending is the maximum number of pending neighbour events. Beyond it, the follower reloads the table.
const maxPending = 4096

// retry is the interval before the first retry after a failure. It doubles up to maxRetry.
const (
	retry    = 100 * time.Millisecond
	maxRetry = 10 * time.Second
)

func (c *change) merge(o change) {
	c.state, c.lost = c.state || o.state, c.lost || o.lost
	if c.lost || len(c.neighs)+len(o.neighs) > maxPending {
		*c = change{state: true, lost: true}
		return
	}
	c.neighs = append(c.neighs, o.neighs...)
}

// listen merges changes until follow takes them, so that receive reads the socket without delay.
func (f *Follower) listen() {
	in := make(chan change)
	f.running.Go(func() { f.receive(in) })
	var pending change
	for {
		out := f.news
		if pending.empty() {
			out = nil
		}
		select {
		case c := <-in:
			pending.merge(c)
		case out <- pending:
			pending = change{}
		case <-f.ending:
			return
		}
	}
}

// receive reads the socket until Close.
func (f *Follower) receive(in chan<- change) {
	for {
		c, err := f.next()
		if err != nil {
			c = change{lost: true} // ENOBUFS, or a malformed message
		}
		select {
		case in <- c:
		case <-f.ending:
			return
		}
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			select {
			case <-time.After(retry):
			case <-f.ending:
				return
			}
		}
	}
}

// next waits for notifications.
func (f *Follower) next() (c change, err error) {
	msgs, from, err := f.events.Receive()
	if err != nil {
		return c, err
	}
	if from.Pid != 0 {
		return c, nil // not from the kernel
	}
	for i := range msgs {
		m := &msgs[i]
		switch m.Header.Type {
		case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
			n, err := netlink.NeighDeserialize(m.Data)
			if err != nil {
				return c, err
			}
			c.neighs = append(c.neighs, neighEvent{*n, m.Header.Type == unix.RTM_DELNEIGH})
		default:
			c.state = true
		}
	}
	return c, nil
}

// follow handles changes and queries until Close.
func (f *Follower) follow(h Handler) {
	again := time.NewTimer(0) // for changes since Open
	defer again.Stop()
	wait := retry
	look := func(c change) {
		err := f.apply(h, c)
		if err == nil {
			wait = retry
			return
		}
		h.Failed(err)
		again.Reset(wait)
		wait = min(2*wait, maxRetry)
	}
	for {
		select {
		case c := <-f.news:
			look(c)
		case <-again.C:
			look(change{state: true, lost: true})
		case q := <-f.queries:
			f.answer(h, q, true)
		case <-f.ending:
			return
		}
	}
}

// apply updates the state and reports changes to h.
func (f *Follower) apply(h Handler, c change) error {
	before := f.state
	if c.state || c.lost {
		if err := f.loadState(); err != nil {
			return err
		}
	}
	if f.state.Index != before.Index || c.lost {
		if err := f.loadNeighbours(); err != nil {
			return err
		}
		c.neighs = nil
	}
	if !f.state.equal(&before) {
		h.Changed(f.state)
	}
	if c.state || c.lost {
		f.table.via = map[netip.Addr]netip.Addr{}
		for _, q := range h.Destinations() {
			f.answer(h, q, false)
		}
	}
	for i := range c.neighs {
		f.neighbour(h, &c.neighs[i])
	}
	return nil
}
