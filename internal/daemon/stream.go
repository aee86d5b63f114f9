package daemon

import (
	"sync"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/rocev2"
)

// broadcast sends events to all subscribers. A slow subscriber loses events.
type broadcast struct {
	mu   sync.Mutex
	subs map[chan api.Event]struct{}
}

// eventBacklog is the event queue length of a subscriber.
const eventBacklog = 256

func (b *broadcast) subscribe() chan api.Event {
	ch := make(chan api.Event, eventBacklog)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs == nil {
		b.subs = map[chan api.Event]struct{}{}
	}
	b.subs[ch] = struct{}{}
	return ch
}

func (b *broadcast) unsubscribe(ch chan api.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.subs, ch)
}

func (b *broadcast) send(e api.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.subs {
		select {
		case ch <- e:
		default:
		}
	}
}

// taps shows the frames of a NIC to several observers. It belongs to the shard.
type taps struct{ list []link.Observer }

// Frame implements link.Observer.
func (t *taps) Frame(now mono.Time, d link.Direction, frame []byte, comment string) {
	for _, o := range t.list {
		o.Frame(now, d, frame, comment)
	}
}

// add and remove change the set of observers. Without observers the NIC does not show its frames.
func (t *taps) add(n *rocev2.NIC, o link.Observer) {
	t.list = append(t.list, o)
	n.SetObserver(t)
}

func (t *taps) remove(n *rocev2.NIC, o link.Observer) {
	for i := range t.list {
		if t.list[i] == o {
			t.list = append(t.list[:i], t.list[i+1:]...)
			break
		}
	}
	if len(t.list) == 0 {
		n.SetObserver(nil)
	}
}
