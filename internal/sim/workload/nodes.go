package workload

import (
	"fmt"
	"slices"
	"strings"

	"roced.io/roced/internal/sim/nic"
)

// Nodes are the hosts that flow lists name.
type Nodes struct {
	Hosts int
	// IDs has the IDs of the hosts, ascending; nil: from 0 to Hosts-1.
	IDs []int
	// Switches has the names of switches, which with IDs are a prefix and an ID.
	Switches []string
	// Joined reports whether a path joins two hosts; nil: always.
	Joined func(a, b int) bool
}

// pair returns the numbers of two different hosts with IDs.
func (n *Nodes) pair(src, dst uint64) (from, to int, err error) {
	from, ok1 := n.number(src)
	to, ok2 := n.number(dst)
	switch {
	case !ok1:
		err = n.noHost("source", src)
	case !ok2:
		err = n.noHost("destination", dst)
	case from == to:
		err = fmt.Errorf("host %d sends to itself; source and destination must differ", src)
	case n.Joined != nil && !n.Joined(from, to):
		err = fmt.Errorf("from host %d to host %d: %w", src, dst, nic.ErrApart)
	}
	return from, to, err
}

// noHost returns an error about an ID that is not a host's.
func (n *Nodes) noHost(end string, id uint64) error {
	what := "no node"
	for _, prefix := range [...]string{"s", "nv"} {
		if name := prefix + fmt.Sprint(id); n.IDs != nil && slices.Contains(n.Switches, name) {
			what = "the switch " + name
		}
	}
	return fmt.Errorf("the %s %d is %s; hosts are %s", end, id, what, n.list())
}

// number returns the number of the host with an ID.
func (n *Nodes) number(id uint64) (int, bool) {
	if n.IDs == nil {
		return int(id), id < uint64(n.Hosts)
	}
	return slices.BinarySearch(n.IDs, int(id))
}

// list formats the IDs of the hosts as ranges. After four ranges only the last ID follows.
func (n *Nodes) list() string {
	if n.IDs == nil {
		return fmt.Sprintf("0 to %d", n.Hosts-1)
	}
	var ranges []string
	for first := 0; first < len(n.IDs); {
		last := first
		for last+1 < len(n.IDs) && n.IDs[last+1] == n.IDs[last]+1 {
			last++
		}
		text := fmt.Sprint(n.IDs[first])
		if last > first {
			text += fmt.Sprintf(" to %d", n.IDs[last])
		}
		if ranges = append(ranges, text); len(ranges) == 4 && last+1 < len(n.IDs) {
			return strings.Join(ranges, ", ") + fmt.Sprintf(" ... %d", n.IDs[len(n.IDs)-1])
		}
		first = last + 1
	}
	return strings.Join(ranges, ", ")
}
