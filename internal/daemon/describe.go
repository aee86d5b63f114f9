package daemon

import (
	"fmt"
	"time"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/server"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/verbs"
)

var eventNames = map[qp.Event]string{
	qp.EventCQErr: "cq_error", qp.EventQPFatal: "qp_fatal", qp.EventQPReqErr: "qp_request_error",
	qp.EventQPAccessErr: "qp_access_error", qp.EventCommEst: "communication_established",
	qp.EventSQDrained: "sq_drained", qp.EventDeviceFatal: "device_fatal", qp.EventPortActive: "port_active",
	qp.EventPortErr: "port_error", qp.EventSRQErr: "srq_error", qp.EventSRQLimitReached: "srq_limit_reached",
	qp.EventQPLastWQE: "qp_last_wqe_reached", qp.EventGIDChange: "gid_change",
}

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

var typeNames = map[qp.Type]string{qp.RC: "RC", qp.UC: "UC", qp.UD: "UD"}

func newEvent(nic, object string, number uint32, o *server.Owner, e qp.Event) api.Event {
	ev := api.Event{Time: time.Now(), NIC: nic, Object: object, Number: number, Event: eventNames[e]}
	if ev.Event == "" {
		ev.Event = fmt.Sprint(uint8(e))
	}
	if o != nil {
		ev.Client, ev.PID = o.Client, o.PID
	}
	return ev
}

// resource starts the description of an object.
func resource(nic string, ctx any) api.Resource {
	r := api.Resource{NIC: nic}
	if o, ok := ctx.(server.Owned); ok {
		own := o.Own()
		r.Client, r.PID, r.UID, r.Device = own.Client, own.PID, own.UID, own.Device
	}
	return r
}

func qpOf(i *rocev2.QPInfo) *api.QP {
	q := &api.QP{Num: uint32(i.Num), Type: typeNames[i.Type], State: stateNames[i.Attr.State], PD: i.PD, SendCQ: i.SendCQ,
		RecvCQ: i.RecvCQ, SRQ: i.SRQ, SQPSN: i.Attr.SQPSN, RQPSN: i.Attr.RQPSN, Profile: i.Profile}
	if s := i.Attr.State; i.Failure != qp.StatusSuccess && (s == qp.Err || s == qp.SQE) {
		q.Error = verbs.Status(i.Failure).String()
	}
	for _, g := range i.Groups {
		q.Groups = append(q.Groups, g.Addr().String())
	}
	if i.Window != ccalgo.Unlimited {
		q.Window = i.Window
	}
	if i.Rate != ccalgo.Unlimited {
		q.Rate = i.Rate
	}
	if i.Connected {
		q.Dest, q.Peer, q.PathMTU = i.Attr.DestQPN, i.AV.DGID.Addr().String(), i.Attr.PathMTU.Bytes()
	}
	return q
}
