// Package api is the daemon's administration interface as its clients see it:
// HTTP with JSON over a Unix socket in the run directory.
//
//	GET    /v1/links               []Link
//	GET    /v1/res/KIND            []Resource, KIND is qp, mr, cq, pd, srq, ah, cm_id or user
//	GET    /v1/stat[/NIC]          []Stat
//	GET    /v1/events              one Event per line, until the client disconnects
//	GET    /v1/faults/NIC          []FaultRule
//	POST   /v1/faults/NIC          RuleSet: adds or replaces rules
//	DELETE /v1/faults/NIC          removes all rules
//	POST   /v1/capture/NIC         the answer is a pcapng stream, until the client disconnects
//	                               or ends a chunked body; the latter ends it complete;
//	                               ?snaplen=N keeps N bytes of each frame, ?id=ID names it
//	DELETE /v1/capture/NIC/ID      ends the capture of that name, complete
//	POST   /v1/trace/NIC/QP        the answer is a trace of a queue pair in JSON lines
//	                               (trace.Record), until the queue pair is destroyed, the client
//	                               disconnects or ends a chunked body; QP is a number, or next
//	                               for the next one that connects; ?most=N leaves events out
//	                               above about N per second; ?flor decodes packets as Flor's
//	GET    /v1/poll/NIC            PollSetting
//	PUT    /v1/poll/NIC            PollSetting
//	GET    /v1/page                Page
//	POST   /v1/reload              Reload; the answer is Reloaded, or 409 if nothing has changed
//	GET    /metrics                for Prometheus
//
// The body of an error answer is a Fault.
package api

import (
	"time"

	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/port"
)

// Socket is the name of the administration socket in the run directory.
const Socket = "roced.sock"

// NextQP stands for the next queue pair that connects, in POST /v1/trace/NIC/QP.
const NextQP = "next"

// Link describes a NIC in GET /v1/links.
type Link struct {
	Name      string   `json:"name"`
	Socket    string   `json:"socket"`
	MAC       string   `json:"mac"`
	GIDs      []string `json:"gids"`
	VLANs     []uint16 `json:"vlans,omitempty"` // VLAN of each GID; 0: none
	State     string   `json:"state"`
	Reason    string   `json:"reason,omitempty"` // why the link is down
	MTU       int      `json:"mtu"`
	ActiveMTU int      `json:"active_mtu"`
	Port      string   `json:"port"`
	Device    string   `json:"device,omitempty"`
	Switch    string   `json:"switch,omitempty"`
	Shard     string   `json:"shard,omitempty"` // of the switch
	Mode      string   `json:"mode,omitempty"`  // receive and transmit path of a port that shares an interface with the kernel
	Overruns  uint64   `json:"overruns"`        // frames lost because the port was too slow
	Segments  int      `json:"segments"`        // of a super-frame; 0: single frames only
	Profile   string   `json:"profile,omitempty"`
	Poll      string   `json:"poll"`
	Clients   int      `json:"clients"`
	Faults    int      `json:"faults"`
	// Congestion is nil for a NIC without congestion control.
	Congestion *Congestion `json:"congestion,omitempty"`
	Planes     []Plane     `json:"planes,omitempty"` // in their order; none for a NIC with one port
	Losses     []Loss      `json:"losses,omitempty"` // frames that the NIC could not send
	Devices    []Device    `json:"devices"`          // for verbs programs, one for each profile, the default first
}

// Reload is the body of POST /v1/reload.
type Reload struct {
	Force bool `json:"force,omitempty"` // remove NICs that have clients
}

// Reloaded is the answer to a reload.
type Reloaded struct {
	Changed []string `json:"changed"` // keys, and NICs that were added or removed
}

// Congestion is the congestion control of a NIC: the algorithm, and its parameters that differ from the default.
type Congestion struct {
	Algorithm string             `json:"algorithm"`
	Params    map[string]float64 `json:"params,omitempty"`
}

// Loss counts frames that a NIC could not send for one reason.
type Loss struct {
	Counter string `json:"counter"`
	Frames  uint64 `json:"frames"`
	Reason  string `json:"reason"`
}

// Plane is one of several ports of a NIC.
type Plane struct {
	Device   string `json:"device"` // or interface or socket
	State    string `json:"state"`
	Reason   string `json:"reason,omitempty"` // why it is down
	Sent     uint64 `json:"sent_bytes"`
	Received uint64 `json:"received_bytes"`
}

// Device is a verbs device of a NIC.
type Device struct {
	Name    string `json:"name"`
	Profile string `json:"profile"`
	Socket  string `json:"socket"`
}

// Resource is an object of a NIC in GET /v1/res: its attributes, its client and the NIC's name.
type Resource struct {
	NIC    string `json:"nic"`
	Client uint64 `json:"client,omitempty"`
	PID    int32  `json:"pid,omitempty"`
	UID    uint32 `json:"uid"`
	Device string `json:"device,omitempty"` // verbs device on which the client created it
	QP     *QP    `json:"qp,omitempty"`
	MR     *MR    `json:"mr,omitempty"`
	CQ     *CQ    `json:"cq,omitempty"`
	PD     *PD    `json:"pd,omitempty"`
	SRQ    *SRQ   `json:"srq,omitempty"`
	AH     *AH    `json:"ah,omitempty"`
	CMID   *CMID  `json:"cm_id,omitempty"`
	User   *User  `json:"user,omitempty"`
}

// User is the usage of a user, on a NIC or, if the resource names none, of the daemon's shared resources.
type User struct {
	Used map[string]int64 `json:"used"`
	May  map[string]int64 `json:"may,omitempty"` // limits; empty for root and the daemon's own user
}

// QP describes a queue pair.
type QP struct {
	Num     uint32 `json:"qpn"`
	Type    string `json:"type"`
	State   string `json:"state"`
	Error   string `json:"error,omitempty"` // of the work request that broke it, in states ERR and SQE
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
	Window  uint64 `json:"cwnd_bytes,omitempty"` // congestion window; 0: unlimited
	Rate    uint64 `json:"rate_bps,omitempty"`   // pacing rate; 0: unlimited
	// Groups are the multicast groups to which the queue pair is attached.
	Groups []string `json:"groups,omitempty"`
}

// MR describes a memory region. It contains no keys, because they are secrets of the owner.
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

// CMID describes a communication identifier of rdma_cm.
type CMID struct {
	ID    uint32 `json:"id"`
	State string `json:"state"`
	PS    string `json:"ps"` // port space
	Src   string `json:"src_addr"`
	Dst   string `json:"dst_addr,omitempty"`
	QPN   uint32 `json:"lqpn,omitempty"`
}

// Stat holds the counters of a NIC in GET /v1/stat.
type Stat struct {
	NIC      string            `json:"nic"`
	Counters map[string]uint64 `json:"counters"`
	Shard    shard.Stats       `json:"shard"`
	Port     port.Stats        `json:"port"`
}

// Event is one line of GET /v1/events.
type Event struct {
	Time   time.Time `json:"time"`
	NIC    string    `json:"nic"`
	Object string    `json:"object"` // qp, cq, srq, port
	Number uint32    `json:"number"`
	Event  string    `json:"event"`
	Status string    `json:"status,omitempty"` // of a completion_error
	Client uint64    `json:"client,omitempty"`
	PID    int32     `json:"pid,omitempty"`
}

// FaultRule is a rule in GET /v1/faults/NIC, with the number of frames that it matched and the number that it acted
// on.
type FaultRule struct {
	Rule    string `json:"rule"`
	Matched uint64 `json:"matched"`
	Hit     uint64 `json:"hit"`
}

// RuleSet is the body of POST /v1/faults/NIC: rules in the syntax of internal/base/fault.
type RuleSet struct {
	Rules   []string `json:"rules"`
	Replace bool     `json:"replace,omitempty"` // replace the existing rules instead of adding to them
}

// PollSetting is the body of GET and PUT /v1/poll/NIC.
type PollSetting struct {
	Poll string `json:"poll"`
}

// Page is the location of the live page, in GET /v1/page.
type Page struct {
	Address string `json:"address"` // http://host:port/, or unix:path
	URL     string `json:"url"`     // Address with the token, which grants the rights of Control
	Control bool   `json:"control"` // true: the token may change settings; false: it is read-only
}

// Fault is the body of every error answer.
type Fault struct {
	Error string `json:"error"`
}
