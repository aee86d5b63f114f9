package daemon

import (
	"fmt"
	"time"

	"roced/internal/server"
	"roced/internal/shard"
	"roced/qp"
	"roced/rocev2"
	"roced/tap"
)

// AdminSocket is the name of the admin interface's socket in the run directory.
const AdminSocket = "roced.sock"

// Link describes a NIC in GET /v1/links.
type Link struct {
	Name      string   `json:"name"`
	Socket    string   `json:"socket"`
	MAC       string   `json:"mac"`
	GIDs      []string `json:"gids"`
	State     string   `json:"state"`
	Reason    string   `json:"reason,omitempty"` // why the link is down
	MTU       int      `json:"mtu"`
	ActiveMTU int      `json:"active_mtu"`
	Port      string   `json:"port"`
	Device    string   `json:"device,omitempty"`
	Segments  int      `json:"segments"` // in a super-frame; 0 for single frames
	Profile   string   `json:"profile,omitempty"`
	Poll      string   `json:"poll"`
	Clients   int      `json:"clients"`
	Faults    int      `json:"faults"`
}

// Resource is an object of a NIC in GET /v1/res: what the NIC says of it, the
// client that it belongs to and the NIC's name.
type Resource struct {
	NIC    string `json:"nic"`
	Client uint64 `json:"client,omitempty"`
	PID    int32  `json:"pid,omitempty"`
	UID    uint32 `json:"uid"`
	QP     *QP    `json:"qp,omitempty"`
	MR     *MR    `json:"mr,omitempty"`
	CQ     *CQ    `json:"cq,omitempty"`
	PD     *PD    `json:"pd,omitempty"`
	SRQ    *SRQ   `json:"srq,omitempty"`
	AH     *AH    `json:"ah,omitempty"`
}

// QP describes a queue pair.
type QP struct {
	Num     uint32 `json:"qpn"`
	Type    string `json:"type"`
	State   string `json:"state"`
	PD      uint32 `json:"pd"`
	SendCQ  uint32 `json:"send_cq"`
	RecvCQ  uint32 `json:"recv_cq"`
	SRQ     uint32 `json:"srq,omitempty"`
	Dest    uint32 `json:"dest_qpn,omitempty"`
	Peer    string `json:"peer,omitempty"`
	PathMTU int    `json:"path_mtu,omitempty"`
	SQPSN   uint32 `json:"sq_psn"`
	RQPSN   uint32 `json:"rq_psn"`
	Profile string `json:"profile,omitempty"`
}

// MR describes a memory region. Keys are secrets of its owner and not told.
type MR struct {
	ID      uint32 `json:"id"`
	PD      uint32 `json:"pd"`
	Length  uint64 `json:"length"`
	Access  uint32 `json:"access"`
	Windows int    `json:"windows"`
}

// CQ describes a completion queue.
type CQ struct {
	ID     uint32 `json:"id"`
	CQE    int    `json:"cqe"`
	Users  int    `json:"users"`
	Armed  bool   `json:"armed"`
	Failed bool   `json:"failed"`
}

// PD describes a protection domain.
type PD struct {
	ID    uint32 `json:"id"`
	Users int    `json:"users"`
}

// SRQ describes a shared receive queue.
type SRQ struct {
	ID     uint32 `json:"id"`
	PD     uint32 `json:"pd"`
	MaxWR  uint32 `json:"max_wr"`
	Limit  uint32 `json:"limit"`
	Posted int    `json:"posted"`
	Users  int    `json:"users"`
}

// AH describes an address handle.
type AH struct {
	Handle uint32 `json:"handle"`
	PD     uint32 `json:"pd"`
	Peer   string `json:"peer"`
}

// Stat holds the counters of a NIC in GET /v1/stat.
type Stat struct {
	NIC      string            `json:"nic"`
	Counters map[string]uint64 `json:"counters"`
	Shard    shard.Stats       `json:"shard"`
	Port     tap.Stats         `json:"port"`
}

// Event is one line of GET /v1/events.
type Event struct {
	Time   time.Time `json:"time"`
	NIC    string    `json:"nic"`
	Object string    `json:"object"` // qp, cq, srq, port
	Number uint32    `json:"number"`
	Event  string    `json:"event"`
	Client uint64    `json:"client,omitempty"`
	PID    int32     `json:"pid,omitempty"`
}

// FaultRule is a rule in GET /v1/faults/NIC. POST takes {"rules": ["text"...]}
// and adds them, DELETE removes all.
type FaultRule struct {
	Rule    string `json:"rule"`
	Matched uint64 `json:"matched"`
	Hit     uint64 `json:"hit"`
}

// RuleSet is the body of POST /v1/faults/NIC.
type RuleSet struct {
	Rules   []string `json:"rules"`
	Replace bool     `json:"replace,omitempty"`
}

// PollSetting is the body of PUT and GET /v1/poll/NIC.
type PollSetting struct {
	Poll string `json:"poll"`
}

// Fault is the body of every answer that is an error.
type Fault struct {
	Error string `json:"error"`
}

var eventNames = map[qp.Event]string{
	qp.EventCQErr: "cq_error", qp.EventQPFatal: "qp_fatal", qp.EventQPReqErr: "qp_request_error",
	qp.EventQPAccessErr: "qp_access_error", qp.EventCommEst: "communication_established",
	qp.EventSQDrained: "sq_drained", qp.EventDeviceFatal: "device_fatal", qp.EventPortActive: "port_active",
	qp.EventPortErr: "port_error", qp.EventSRQErr: "srq_error", qp.EventSRQLimitReached: "srq_limit_reached",
	qp.EventQPLastWQE: "qp_last_wqe_reached", qp.EventGIDChange: "gid_change",
}

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

var typeNames = map[qp.Type]string{qp.RC: "RC", qp.UC: "UC", qp.UD: "UD"}

func newEvent(nic, object string, number uint32, o *server.Owner, e qp.Event) Event {
	ev := Event{Time: time.Now(), NIC: nic, Object: object, Number: number, Event: eventNames[e]}
	if ev.Event == "" {
		ev.Event = fmt.Sprint(uint8(e))
	}
	if o != nil {
		ev.Client, ev.PID = o.Client, o.PID
	}
	return ev
}

// resource begins the description of an object.
func resource(nic string, ctx any) Resource {
	r := Resource{NIC: nic}
	if o, ok := ctx.(server.Owned); ok {
		own := o.Own()
		r.Client, r.PID, r.UID = own.Client, own.PID, own.UID
	}
	return r
}

func qpOf(i *rocev2.QPInfo) *QP {
	q := &QP{Num: uint32(i.Num), Type: typeNames[i.Type], State: stateNames[i.Attr.State], PD: i.PD, SendCQ: i.SendCQ,
		RecvCQ: i.RecvCQ, SRQ: i.SRQ, SQPSN: i.Attr.SQPSN, RQPSN: i.Attr.RQPSN, Profile: i.Profile}
	if i.Connected {
		q.Dest, q.Peer, q.PathMTU = i.Attr.DestQPN, i.AV.DGID.Addr().String(), i.Attr.PathMTU.Bytes()
	}
	return q
}
