package qp_test

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/qp/qptest"
	"roced.io/roced/reorder"
)

// Memory of a lone responder. Its MTU is 256.
//
//	key 1: local, writable     0x1000
//	key 2: local, read only    0x1000
//	key 5: open to the peer    0x7000
//	key 6: readable only       0x7000
//	key 7: writable only       0x7000
const (
	localVA  = 0x1000
	remoteVA = 0x7000
	lkey     = 1
	rkey     = 5
	peerQPN  = 99
)

const remoteAll = qp.AccessRemoteRead | qp.AccessRemoteWrite | qp.AccessRemoteAtomic | qp.AccessFlushGlobal

// lone is a queue pair whose peer is the test.
type lone struct {
	q   *qp.QP
	h   *qptest.Host
	ctr qp.Counters
	typ qp.Type
	mrc bool
	now mono.Time
}

// loneAttr are the attributes for most tests.
var loneAttr = qp.Attr{
	PathMTU: 1, DestQPN: peerQPN, RQPSN: 100, SQPSN: 500, QKey: 0x1111, MinRNRTimer: 12,
	MaxRdAtomic: 4, MaxDestRdAtomic: 4, AccessFlags: remoteAll,
}

// newLone returns a queue pair in state, RTS at most.
func newLone(t testing.TB, typ qp.Type, state qp.State, srq bool, a qp.Attr) *lone {
	return newLoneWith(t, typ, state, srq, a, qp.Profile{})
}

// newLoneWith is newLone with plug-ins.
func newLoneWith(t testing.TB, typ qp.Type, state qp.State, srq bool, a qp.Attr, prof qp.Profile) *lone {
	l := &lone{h: qptest.NewHost(), typ: typ, mrc: prof.Kind == bth.ProfileMRC, now: 1}
	local := l.h.Register(lkey, localVA, 0x3000, qp.AccessLocalWrite)
	l.h.Regions[2] = &qptest.Region{Base: localVA, Mem: local.Mem}
	remote := l.h.Register(rkey, remoteVA, 0x3000, remoteAll)
	l.h.Regions[6] = &qptest.Region{Base: remoteVA, Mem: remote.Mem, Access: qp.AccessRemoteRead}
	l.h.Regions[7] = &qptest.Region{Base: remoteVA, Mem: remote.Mem, Access: qp.AccessRemoteWrite}
	l.q = qp.New(qp.Config{Tuning: qp.Software,
		Type: typ, QPN: 17, Host: l.h, Counters: &l.ctr, HasSRQ: srq,
		MaxSendWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4, Profile: prof,
	})
	if err := qptest.Connect(l.now, l.q, typ, a, state); err != nil {
		t.Fatal(err)
	}
	return l
}

// opcodes maps the names of scripts to requests.
var opcodes = map[string]bth.Opcode{
	"send_first": bth.OpSendFirst, "send_middle": bth.OpSendMiddle, "send_last": bth.OpSendLast,
	"send_last_imm": bth.OpSendLastImm, "send_only": bth.OpSendOnly, "send_only_imm": bth.OpSendOnlyImm,
	"send_last_inv": bth.OpSendLastInv, "send_only_inv": bth.OpSendOnlyInv,
	"write_first": bth.OpWriteFirst, "write_middle": bth.OpWriteMiddle, "write_last": bth.OpWriteLast,
	"write_last_imm": bth.OpWriteLastImm, "write_only": bth.OpWriteOnly, "write_only_imm": bth.OpWriteOnlyImm,
	"read": bth.OpReadRequest, "cmp_swap": bth.OpCmpSwap, "fetch_add": bth.OpFetchAdd, "atomic_write": bth.OpAtomicWrite,
	"flush": bth.OpFlush, "probe": bth.OpcodeMRCProbe,
}

var transports = map[qp.Type]bth.Opcode{qp.RC: bth.TransportRC, qp.UC: bth.TransportUC, qp.UD: bth.TransportUD}

// pack builds a request from a description such as "send_only psn=100 len=10 ackreq". It fills the payload with the
// low byte of the PSN.
func (l *lone) pack(line string) (p bth.Packet, err error) {
	words := strings.Fields(line)
	op, ok := opcodes[words[0]]
	if !ok {
		return p, fmt.Errorf("no opcode %s", words[0])
	}
	if p.Opcode = transports[l.typ] | op; l.mrc {
		p.Opcode |= bth.TransportMRC
	}
	p.RETH = bth.RETH{VA: remoteVA, RKey: rkey}
	p.AtomicETH = bth.AtomicETH{VA: remoteVA, RKey: rkey}
	p.DETH = bth.DETH{QKey: 0x1111, SrcQP: 77}
	n := uint64(0)
	for _, w := range words[1:] {
		key, val, _ := strings.Cut(w, "=")
		var v uint64
		if val != "" {
			if v, err = strconv.ParseUint(val, 0, 64); err != nil {
				return p, err
			}
		}
		switch key {
		case "psn":
			p.PSN = bth.MakePSN(uint32(v))
		case "len":
			n = v
		case "va":
			p.RETH.VA, p.AtomicETH.VA = v, v
		case "rkey":
			p.RETH.RKey, p.AtomicETH.RKey = uint32(v), uint32(v)
		case "total":
			p.RETH.Length = uint32(v)
		case "type":
			p.FETH.Type = uint8(v)
		case "level":
			p.FETH.Level = uint8(v)
		case "imm":
			p.Imm = uint32(v)
		case "inv":
			p.IETH = uint32(v)
		case "qkey":
			p.DETH.QKey = uint32(v)
		case "compare":
			p.AtomicETH.Compare = v
		case "value":
			p.AtomicETH.SwapAdd = v
		case "ackreq":
			p.AckReq = true
		case "solicited":
			p.Solicited = true
		default:
			if !mrcWord(&p, key, uint16(v)) {
				return p, fmt.Errorf("unknown word %s", w)
			}
		}
	}
	p.Payload = make([]byte, n)
	for i := range p.Payload {
		p.Payload[i] = byte(p.PSN.Uint32())
	}
	return p, nil
}

// mrcWord sets a field that only packets of MRC have.
func mrcWord(p *bth.Packet, key string, v uint16) bool {
	switch key {
	case "msn":
		p.METH.MSN = v
	case "rqmsn":
		p.METH.RQMSN = v
	case "stamp":
		p.TSETH.Timestamp, p.PETH.TSETH.Timestamp = v, v
	case "id":
		p.PETH.ProbeID = v
	case "retx":
		p.ReTx = true
	case "ce": // see rx
	default:
		return false
	}
	return true
}

// rx delivers a request.
func (l *lone) rx(t testing.TB, line string) qp.Drop {
	p, err := l.pack(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return l.q.Receive(l.now, &p, qp.RxMeta{GRH: qptest.GRH[:], CE: strings.HasSuffix(line, " ce"), Path: 0xc123})
}

// tx polls for all packets, and describes them.
func (l *lone) tx() string { return l.poll(1000) }

func (l *lone) poll(most int) string {
	var out strings.Builder
	var tr qp.Transmit
	for range most {
		if !l.q.PollTransmit(l.now, &tr) {
			break
		}
		p := &tr.Packet
		fmt.Fprintf(&out, "%v %v", p.PSN, p.Opcode)
		if p.Opcode.HasAETH() {
			fmt.Fprintf(&out, " %v msn=%d", p.AETH.Syndrome, p.AETH.MSN)
		}
		if h := &p.SETH; p.Opcode.IsSACK() {
			fmt.Fprintf(&out, " mark=%d ack=%+d base=%+d bitmap=%b mpr=%d ev=%#x stamp=%d ooo=%d received=%d", h.Mark, h.AckOffset, h.SACKOffset, h.Bitmap, h.MPR,
				h.Entropy, p.CCState.Timestamp, p.CCState.OutOfOrder, p.CCState.Received)
			if h.ProbeReply {
				out.WriteString(" probe")
			}
		}
		if h := &p.NETH; p.Opcode.IsNACK() {
			fmt.Fprintf(&out, " %v psn=%v ev=%#x stamp=%d", h.Reason, h.PSN, h.Entropy, h.Timestamp)
		}
		if p.Opcode.IsAtomicAck() {
			fmt.Fprintf(&out, " orig=%d", p.AtomicAck)
		}
		if p.Opcode.HasPayload() {
			fmt.Fprintf(&out, " [%s]", runs(p.Payload))
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// runs describes bytes as "100*256 7".
func runs(b []byte) string {
	var out []string
	for i := 0; i < len(b); {
		n := 1
		for i+n < len(b) && b[i+n] == b[i] {
			n++
		}
		s := strconv.Itoa(int(b[i]))
		if n > 1 {
			s += "*" + strconv.Itoa(n)
		}
		out, i = append(out, s), i+n
	}
	return strings.Join(out, " ")
}

var statusNames = map[qp.Status]string{
	qp.StatusSuccess: "SUCCESS", qp.StatusLocLenErr: "LOC_LEN_ERR", qp.StatusLocProtErr: "LOC_PROT_ERR",
	qp.StatusWRFlushErr: "WR_FLUSH_ERR", qp.StatusRemInvReqErr: "REM_INV_REQ_ERR", qp.StatusRemAccessErr: "REM_ACCESS_ERR",
	qp.StatusLocAccessErr: "LOC_ACCESS_ERR",
}

var eventNames = map[qp.Event]string{
	qp.EventQPReqErr: "QP_REQ_ERR", qp.EventQPAccessErr: "QP_ACCESS_ERR", qp.EventCommEst: "COMM_EST",
	qp.EventQPLastWQE: "QP_LAST_WQE_REACHED", qp.EventQPFatal: "QP_FATAL",
}

// news describes the completions and events since the previous call.
func (l *lone) news() string {
	var out strings.Builder
	for _, c := range l.h.RecvCQ {
		fmt.Fprintf(&out, "cqe wr=%d %s", c.WRID, statusNames[c.Status])
		if c.Status == qp.StatusSuccess {
			fmt.Fprintf(&out, " opcode=%d bytes=%d src=%d", c.Opcode, c.ByteLen, c.SrcQP)
		}
		switch {
		case c.Flags&qp.WCWithImm != 0:
			fmt.Fprintf(&out, " imm=%d", c.Imm)
		case c.Flags&qp.WCWithInv != 0:
			fmt.Fprintf(&out, " inv=%d", c.Imm)
		}
		if c.Flags&qp.WCGRH != 0 {
			out.WriteString(" grh")
		}
		if c.Solicited && c.Status == qp.StatusSuccess {
			out.WriteString(" solicited")
		}
		out.WriteByte('\n')
	}
	for _, e := range l.h.Events {
		fmt.Fprintf(&out, "event %s\n", eventNames[e])
	}
	l.h.RecvCQ, l.h.Events = l.h.RecvCQ[:0], l.h.Events[:0]
	return out.String()
}

// recv posts a receive: "wr=1 len=10+20 lkey=1". Elements are 0x400 apart.
func (l *lone) recv(d *datadriven.TestData, t *testing.T) {
	w := qp.RecvWQE{WRID: uint64(arg(d, t, "wr", 0))}
	at := uint64(localVA)
	if d.HasArg("len") {
		var lens string
		d.ScanArgs(t, "len", &lens)
		for s := range strings.SplitSeq(lens, "+") {
			n, err := strconv.Atoi(s)
			if err != nil {
				t.Fatalf("%s: %v", d.Pos, err)
			}
			w.SGEs = append(w.SGEs, qp.SGE{Addr: at, Length: uint32(n), LKey: uint32(arg(d, t, "lkey", lkey))})
			at += 0x400
		}
	}
	l.post(w)
}

func (l *lone) post(w qp.RecvWQE) {
	l.h.Recvs.WQEs = append(l.h.Recvs.WQEs, w)
	l.q.RecvPosted(l.now)
}

// arg returns a numeric argument, or v if it is missing.
func arg(d *datadriven.TestData, t *testing.T, key string, v int) int {
	if !d.HasArg(key) {
		return v
	}
	var s string
	d.ScanArgs(t, key, &s)
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return int(n)
}

// open returns the queue pair of a script.
func open(d *datadriven.TestData, t *testing.T) *lone {
	a := loneAttr
	a.RQPSN = uint32(arg(d, t, "psn", 100))
	a.MaxDestRdAtomic = uint8(arg(d, t, "rd", 4))
	if d.HasArg("closed") {
		a.AccessFlags = 0
	}
	state := qp.RTS
	if d.HasArg("rtr") {
		state = qp.RTR
	}
	types := map[string]qp.Type{"rc": qp.RC, "uc": qp.UC, "ud": qp.UD, "mrc": qp.RC}
	var prof qp.Profile
	if d.CmdArgs[0].Key == "mrc" {
		in := reorder.Params{"max_wimm": float64(arg(d, t, "wimm", 32)), "sack_bytes": float64(arg(d, t, "sack", 16384)), "dynamic_mpr": float64(arg(d, t, "dynamic", 0))}
		trk, err := reorder.New("mrc", in)
		if err != nil {
			t.Fatal(err)
		}
		prof = qp.Profile{Kind: bth.ProfileMRC, Tracker: trk}
	}
	l := newLoneWith(t, types[d.CmdArgs[0].Key], state, d.HasArg("srq"), a, prof)
	for i := range l.h.Regions[rkey].Mem {
		l.h.Regions[rkey].Mem[i] = byte(i >> 8)
	}
	return l
}

func TestResponderScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/responder", func(t *testing.T, path string) {
		var l *lone
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				l = open(d, t)
			}
			return l.command(d, t) + l.news()
		})
	})
}

func (l *lone) command(d *datadriven.TestData, t *testing.T) (out string) {
	switch d.Cmd {
	case "new":
	case "rx":
		for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
			if v := l.rx(t, line); v != qp.Accepted {
				out += fmt.Sprintf("%s: %v\n", strings.Fields(line)[1], v)
			}
		}
	case "trimmed":
		p, err := l.pack(strings.TrimSpace(d.Input))
		if err != nil {
			t.Fatal(err)
		}
		p.RETH, p.Payload = bth.RETH{}, nil
		m := qp.RxMeta{Path: 0xc123, Trim: mrc.Trimmed}
		if d.HasArg("last_hop") {
			m.Trim = mrc.TrimmedLastHop
		}
		return fmt.Sprintln(l.q.Receive(l.now, &p, m))
	case "poll":
		return l.poll(arg(d, t, "max", 1000))
	case "recv":
		l.recv(d, t)
	case "revoke":
		delete(l.h.Regions, uint32(arg(d, t, "key", 0)))
	case "local", "remote":
		key := map[string]uint32{"local": lkey, "remote": rkey}[d.Cmd]
		at := arg(d, t, "at", 0)
		return runs(l.h.Regions[key].Mem[at:at+arg(d, t, "len", 16)]) + "\n"
	case "word":
		return fmt.Sprintln(binary.NativeEndian.Uint64(l.h.Regions[rkey].Mem[arg(d, t, "at", 0):]))
	case "error":
		if err := l.q.Modify(l.now, qp.Attr{State: qp.Err}, qp.AttrState); err != nil {
			t.Fatal(err)
		}
	case "counters":
		return l.counters()
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return out
}

// counters lists the counters that are not zero.
func (l *lone) counters() string {
	out := "state=" + l.q.State().String()
	c := &l.ctr
	for _, x := range []struct {
		name string
		n    uint64
	}{
		{"duplicate", c.DuplicateRequest}, {"out_of_seq", c.OutOfSeqRequest}, {"out_of_sequence", c.OutOfSequence},
		{"send_rnr", c.SendRNRErr}, {"out_of_buffer", c.OutOfBuffer}, {"ack_deferred", c.AckDeferred}, {"recvs", c.RDMARecvs},
		{"writes", c.RxWriteRequests}, {"reads", c.RxReadRequests}, {"atomics", c.RxAtomicRequests},
		{"local_length", c.RespLocalLengthError}, {"cqe_error", c.RespCQEError}, {"cqe_flush", c.RespCQEFlushError},
		{"access", c.RespRemoteAccessErrors}, {"invalid", c.RespRemoteInvalidRequest}, {"uc_dropped", c.UCDroppedMessages},
		{"ud_dropped", c.UDDropped},
	} {
		if x.n != 0 {
			out += fmt.Sprintf(" %s=%d", x.name, x.n)
		}
	}
	return out + "\n"
}
