package decode

import (
	"fmt"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/flor"
)

// Results of the ICRC check.
const (
	icrcOK  = "ok"
	icrcBad = "bad"
)

// Record describes one RoCEv2 frame. Parts that a frame does not have are nil, empty or zero, and the JSON object
// omits them.
type Record struct {
	Packet    int             `json:"packet"` // frame number in the file, from 1
	Time      time.Time       `json:"time"`
	Dir       string          `json:"dir,omitempty"`  // "in" or "out"
	SMAC      string          `json:"smac,omitempty"` // source of the innermost Ethernet header
	DMAC      string          `json:"dmac,omitempty"`
	VLAN      []uint16        `json:"vlan,omitempty"`     // outermost first
	Priority  []uint16        `json:"priority,omitempty"` // of each VLAN tag
	Outer     []dissect.Outer `json:"outer,omitempty"`    // encapsulations, outermost first
	Src       string          `json:"src"`
	Dst       string          `json:"dst"`
	SPort     uint16          `json:"sport"`
	DSCP      uint8           `json:"dscp"`
	ECN       string          `json:"ecn"`       // "not-ect", "ect0", "ect1" or "ce"
	HopLimit  uint8           `json:"hop_limit"` // or TTL
	FlowLabel uint32          `json:"flow_label"`
	ID        uint16          `json:"id"` // of IPv4

	*Base
	values []value    // of the extension headers; they follow the other members in JSON
	Flor   *flor.Info `json:"flor,omitempty"`

	Payload   *int   `json:"payload,omitempty"` // bytes, without the pad
	Pad       *int   `json:"pad,omitempty"`
	ICRC      string `json:"icrc,omitempty"`      // "ok" or "bad"
	Truncated bool   `json:"truncated,omitempty"` // the capture holds only the first part of the frame
	Comment   string `json:"comment,omitempty"`
	Error     string `json:"error,omitempty"` // the error in the frame
}

// Base holds the fields of the BTH.
type Base struct {
	Opcode    string `json:"opcode"`
	QPN       uint32 `json:"qpn"`
	PSN       uint32 `json:"psn"`
	AckReq    bool   `json:"ackreq"`
	Solicited bool   `json:"solicited"`
	MigReq    bool   `json:"migreq"`
	FECN      bool   `json:"fecn"`
	BECN      bool   `json:"becn"`
	PKey      uint16 `json:"pkey"`
}

// appendText appends the line of text.
func (r *Record) appendText(b []byte) []byte {
	b = r.Time.AppendFormat(b, "2006-01-02 15:04:05.000000000")
	if r.Dir != "" {
		b = fmt.Appendf(b, " %s", r.Dir)
	}
	b = r.appendLink(b)
	for i := range r.Outer {
		b = r.Outer[i].AppendText(b)
	}
	b = fmt.Appendf(b, " %s > %s sport %d", r.Src, r.Dst, r.SPort)
	if r.DSCP != 0 {
		b = fmt.Appendf(b, " dscp %d", r.DSCP)
	}
	if r.ECN != ecnNames[0] {
		b = fmt.Appendf(b, " %s", r.ECN)
	}
	for _, v := range []struct {
		name  string
		value uint32
	}{{"ttl", uint32(r.HopLimit)}, {"label", r.FlowLabel}, {"id", uint32(r.ID)}} {
		if v.value != 0 {
			b = fmt.Appendf(b, " %s %d", v.name, v.value)
		}
	}
	b = r.appendTransport(b)
	if r.Payload != nil {
		b = fmt.Appendf(b, " payload %d", *r.Payload)
	}
	if r.Pad != nil && *r.Pad != 0 {
		b = fmt.Appendf(b, " pad %d", *r.Pad)
	}
	if r.ICRC != "" {
		b = fmt.Appendf(b, " icrc %s", r.ICRC)
	}
	if r.Truncated {
		b = append(b, " truncated"...)
	}
	if r.Error != "" {
		b = fmt.Appendf(b, " error: %s", r.Error)
	}
	if r.Comment != "" {
		b = fmt.Appendf(b, " comment: %s", output.Line(r.Comment))
	}
	return b
}

// appendLink appends the Ethernet addresses and the VLAN tags.
func (r *Record) appendLink(b []byte) []byte {
	if none := (inet.MAC{}).String(); r.SMAC != "" && (r.SMAC != none || r.DMAC != none) {
		b = fmt.Appendf(b, " %s > %s", r.SMAC, r.DMAC)
	}
	for i, id := range r.VLAN {
		b = fmt.Appendf(b, " vlan %d", id)
		if r.Priority[i] != 0 {
			b = fmt.Appendf(b, " priority %d", r.Priority[i])
		}
	}
	return b
}

// appendTransport appends the BTH and everything after it.
func (r *Record) appendTransport(b []byte) []byte {
	if r.Base == nil {
		return b
	}
	b = fmt.Appendf(b, " %s qp %s psn %d", r.Opcode, bth.QPN(r.QPN).Text(), r.PSN)
	for _, f := range []struct {
		set  bool
		name string
	}{
		{r.AckReq, "ackreq"}, {r.Solicited, "solicited"}, {r.MigReq, "migreq"}, {r.FECN, "fecn"}, {r.BECN, "becn"},
	} {
		if f.set {
			b = fmt.Appendf(b, " %s", f.name)
		}
	}
	if r.PKey != bth.DefaultPKey {
		b = fmt.Appendf(b, " pkey 0x%04x", r.PKey)
	}
	for i := range r.values {
		b = r.values[i].appendText(b)
	}
	if r.Flor != nil {
		b = r.Flor.AppendText(b)
	}
	return b
}
