package cm

import (
	"fmt"
	"strings"

	"roced.io/roced/bth/mad"
	"roced.io/roced/rocev2"
)

// Messages counts messages by kind, in the order of their attribute IDs from REQ on.
type Messages [len(messageNames)]uint64

// messageNames are those of Linux's counters, in the order of the attribute IDs.
var messageNames = [...]string{"req", "mra", "rej", "rep", "rtu", "dreq", "drep", "sidr_req", "sidr_rep", "lap", "apr"}

// count counts a message of the connection manager and ignores others.
func (c *Messages) count(a mad.Attr) {
	if a >= mad.AttrREQ && int(a-mad.AttrREQ) < len(c) {
		c[a-mad.AttrREQ]++
	}
}

// String lists the kinds with a count.
func (c Messages) String() string {
	var kinds []string
	for i, n := range c {
		if n > 0 {
			kinds = append(kinds, fmt.Sprintf("%s:%d", messageNames[i], n))
		}
	}
	return "[" + strings.Join(kinds, " ") + "]"
}

// append appends the counters of a group, which is a folder of that name in Linux's sysfs.
func (c *Messages) append(s []rocev2.Counter, group string) []rocev2.Counter {
	for i, n := range c {
		s = append(s, rocev2.Counter{Name: group + "_" + messageNames[i], Value: n})
	}
	return s
}

// Counters count what an agent does.
type Counters struct {
	Sent             Messages // retransmissions included
	Received         Messages
	Retries          Messages // retransmissions
	Duplicates       Messages // received
	Malformed        uint64   // received MADs that are not valid
	Unexpected       uint64   // valid MADs for no connection, or for another state
	BacklogFull      uint64   // requests dropped because a listener's backlog is full
	NoService        uint64   // requests rejected because there is no listener
	InvalidMTU       uint64   // requests rejected because their path MTU exceeds the port's
	Stale            uint64   // requests of queue pairs that are still connected here
	SendErrors       uint64   // Port errors
	LimitConnections uint64   // requests rejected because of MaxConns
	Unanswered       uint64   // accepted connections given up because too many waited for their peers
}

// Counters returns the agent's counters.
func (a *Agent) Counters() Counters { return a.ctr }

// AppendCounters appends the counters: those of Linux under their names in sysfs, and ours.
func (a *Agent) AppendCounters(s []rocev2.Counter) []rocev2.Counter {
	c := &a.ctr
	s = c.Sent.append(s, "cm_tx_msgs")
	s = c.Retries.append(s, "cm_tx_retries")
	s = c.Received.append(s, "cm_rx_msgs")
	s = c.Duplicates.append(s, "cm_rx_duplicates")
	return append(s,
		rocev2.Counter{Name: "cm_malformed", Value: c.Malformed},
		rocev2.Counter{Name: "cm_unexpected", Value: c.Unexpected},
		rocev2.Counter{Name: "cm_backlog_full", Value: c.BacklogFull},
		rocev2.Counter{Name: "cm_no_service", Value: c.NoService},
		rocev2.Counter{Name: "cm_invalid_mtu", Value: c.InvalidMTU},
		rocev2.Counter{Name: "cm_stale", Value: c.Stale},
		rocev2.Counter{Name: "cm_send_errors", Value: c.SendErrors},
		rocev2.Counter{Name: "cm_limit_connections", Value: c.LimitConnections},
		rocev2.Counter{Name: "cm_unanswered", Value: c.Unanswered},
	)
}
