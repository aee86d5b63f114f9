package server

import (
	"encoding/json"
	"strings"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/qp"
)

// traffic counts the messages of a client's queue pairs. Its fields belong to the shard while queue pairs exist.
type traffic struct {
	usage qp.Usage
	qps   [qp.UD + 1]int // created, by type
	// Registered regions by the kind of their memory. The commands of the client own it.
	regions map[string]api.Regions

	// The socket for the report, and the process as the client describes it. nil: no report was requested.
	to *reportTo
}

type reportTo struct {
	fd      int
	pid     uint32
	program string
}

// requestReport keeps the socket to which report writes. The daemon writes to sockets of this type only: on others
// (systemd, syslog) the daemon's credentials would lend weight to a client's message.
func (c *client) requestReport(q *request) error {
	var in uverbs.Report
	if err := q.decode(&in); err != nil {
		return err
	}
	if len(q.FDs) != 1 {
		return unix.EINVAL
	}
	if c.traffic.to != nil {
		return unix.EEXIST
	}
	if kind, err := unix.GetsockoptInt(q.FDs[0], unix.SOL_SOCKET, unix.SO_TYPE); err != nil || kind != unix.SOCK_SEQPACKET {
		return unix.ENOTSOCK
	}
	if !c.account.Take(quota.Descriptors, 1) {
		return unix.EMFILE
	}
	fd, err := duplicate(q.FDs[0])
	if err != nil {
		c.account.Add(quota.Descriptors, -1)
		return err
	}
	c.traffic.to = &reportTo{fd: fd, pid: in.PID, program: strings.ToValidUTF8(uverbs.Text(in.Program[:]), "?")}
	return nil
}

// report writes the traffic of the client and closes the socket. A reader that does not read loses the report. Call it
// after the destruction of the queue pairs.
func (c *client) report() {
	to := c.traffic.to
	if to == nil {
		return
	}
	defer func() {
		unix.Close(to.fd)
		c.account.Add(quota.Descriptors, -1)
	}()
	r := api.Report{PID: to.pid, Program: to.program, Device: c.srv.cfg.Device, QPs: map[string]int{},
		Regions: c.traffic.regions, Requested: workOf(&c.traffic.usage.Requested), Served: workOf(&c.traffic.usage.Served)}
	for t, n := range c.traffic.qps {
		if n > 0 {
			r.QPs[strings.ToLower(qp.Type(t).String())] = n
		}
	}
	b, err := json.Marshal(r)
	if err == nil {
		err = unix.Send(to.fd, b, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}
	if err != nil {
		c.log.Debug("report lost", "err", err)
	}
}

// register counts a region.
func (t *traffic) register(k keep, length uint64) {
	kind := "copied"
	switch {
	case k.mapping != nil && k.mapping.file != nil:
		kind = k.mapping.file.Kind.String()
	case k.mapping != nil:
		kind = "memfd"
	}
	if t.regions == nil {
		t.regions = map[string]api.Regions{}
	}
	r := t.regions[kind]
	t.regions[kind] = api.Regions{Count: r.Count + 1, Bytes: r.Bytes + length}
}

// workOf returns the operations that occurred, by name.
func workOf(counts *[qp.Operations]qp.Work) map[string]api.Work {
	m := map[string]api.Work{}
	for o, w := range counts {
		if w.Messages > 0 {
			m[qp.Operation(o).String()] = api.Work(w)
		}
	}
	return m
}
