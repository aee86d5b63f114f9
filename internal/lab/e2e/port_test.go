package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/lab"
)

// onLink runs f on a device of namespace i.
func (l *rig) onLink(i int, name string, f func(netlink.Link) error) {
	l.T.Helper()
	lab.Must(l.T, l.Bed.NS[i].Do(func() error {
		dev, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(dev)
	}))
}

// exists reports whether namespace i has a device.
func (l *rig) exists(i int, name string) bool {
	l.T.Helper()
	found := false
	lab.Must(l.T, l.Bed.NS[i].Do(func() error {
		_, err := netlink.LinkByName(name)
		found = err == nil
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		return err
	}))
	return found
}

// follow starts rocectl events. The returned function returns the events of the port so far.
func (l *rig) follow(i int) func() string {
	l.T.Helper()
	p := l.Ctl(i, "events", "--json")
	seen := func() (names []string) {
		for d := json.NewDecoder(strings.NewReader(p.Out.String())); ; {
			var e api.Event
			if err := d.Decode(&e); err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					l.T.Errorf("rocectl events: %v", err)
				}
				return names
			}
			if e.Object == "port" {
				names = append(names, e.Event)
			}
		}
	}
	return func() string { return strings.Join(seen(), " ") }
}

// TestPortIsLost removes the TAP during a transfer.
func TestPortIsLost(t *testing.T) {
	l := newLab(t, onTAP)
	events := l.follow(0)
	server, client := l.moving("write-bw", "--timeout", "10", "--retry-cnt", "2")
	downed := l.counters(0)["link_downed"]
	l.onLink(0, "tap_a", netlink.LinkDel)
	lab.Eventually(t, soon, "port_error", func() bool { return strings.HasPrefix(events(), "port_error") })
	client.Fails(soon, "retry")
	server.Fails(soon)
	lab.Eventually(t, soon, "port_active", func() bool { return events() == "port_error port_active" })
	if link := l.Link(0); link.State != "ACTIVE" || link.Reason != "" || link.Segments == 0 {
		t.Errorf("the link is not as before: %+v", link)
	}
	if n := l.counters(0)["link_downed"]; n != downed+1 {
		t.Errorf("link_downed went from %d to %d", downed, n)
	}
	l.serves()
}

// TestTransferSurvivesLostPort has enough retries to wait for the TAP.
func TestTransferSurvivesLostPort(t *testing.T) {
	lab.Long(t)
	l := newLab(t, onTAP)
	events := l.follow(0)
	server, client := l.pair("write-bw", "--timeout", "18", "-D", "2s", "-s", "64k", "--verify")
	lab.Eventually(t, lab.Limit, "data that moves", func() bool { return l.counters(0)["sent_pkts"] > 100 })
	l.onLink(0, "tap_a", netlink.LinkDel)
	if code := client.Exit(lab.Limit); code != 0 {
		t.Errorf("the client has failed: %s", &client.Diag)
	}
	if code := server.Exit(lab.Limit); code != 0 {
		t.Errorf("the server has failed: %s", &server.Diag)
	}
	lab.Eventually(t, soon, "port_active", func() bool { return events() == "port_error port_active" })
}

// TestPortIsDown keeps the TAP down without a time limit. The link state shows it.
func TestPortIsDown(t *testing.T) {
	lab.Long(t)
	l := newLab(t, onTAP)
	events := l.follow(1)
	l.serves()
	l.onLink(1, "tap_b", netlink.LinkSetDown)
	lab.Eventually(t, soon, "a link that is DOWN for a reason", func() bool {
		link := l.Link(1)
		return link.State == "DOWN" && link.Reason != ""
	})
	_, client := l.pair("write-bw", "-n", "1", "--timeout", "8", "--retry-cnt", "1")
	client.Fails(lab.Limit)
	l.onLink(1, "tap_b", netlink.LinkDel)
	lab.Eventually(t, soon, "the device again", func() bool { return l.exists(1, "tap_b") })
	lab.Eventually(t, soon, "an active link", func() bool { return l.Link(1).State == "ACTIVE" })
	lab.Eventually(t, soon, "port_active", func() bool { return events() == "port_error port_active" })
	l.serves()
	if fmt.Sprint(l.Link(1).GIDs) == "[]" {
		t.Error("the addresses are gone")
	}
}
