package qp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/retrans"
)

// script drives the requester of one queue pair with the commands of testdata/requester. Each command prints its
// effects, including completions.
type script struct {
	t   *testing.T
	q   *QP
	h   *scriptHost
	now mono.Time
}

func TestRequesterScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/requester", func(t *testing.T, path string) {
		s := &script{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			out := s.command(d)
			if s.h != nil {
				out += s.h.log.String()
				s.h.log.Reset()
			}
			return out
		})
	})
}

func (s *script) command(d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		return s.open(d)
	case "post":
		for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
			s.post(strings.Fields(line))
		}
		s.q.Doorbell(s.now)
		for !s.q.sending() && s.q.NextTimeout() <= s.now { // a broken queue
			s.q.OnTimeout(s.now)
		}
		return ""
	case "poll":
		return s.poll(s.arg(d, "max", 1000))
	case "ack", "nak", "rnr", "read", "atomic", "tack", "sack", "nack":
		return s.q.Receive(s.now, s.packet(d), RxMeta{}).String() + "\n"
	case "flushed":
		s.q.Flushed(s.now)
	case "revoke":
		s.h.revoked[uint32(s.arg(d, "lkey", 1))] = true
	case "modify":
		return s.modify(d)
	case "wait":
		return s.wait(d)
	case "counters":
		return s.counters()
	default:
		s.t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return ""
}

func (s *script) arg(d *datadriven.TestData, key string, v int) int {
	if d.HasArg(key) {
		d.ScanArgs(s.t, key, &v)
	}
	return v
}

// open returns a queue pair in RTS.
func (s *script) open(d *datadriven.TestData) string {
	types := map[string]Type{"rc": RC, "uc": UC, "ud": UD, "mrc": RC}
	typ := types[d.CmdArgs[0].Key]
	s.h, s.now = newScriptHost(1<<16), 0
	window, rate := uint64(s.arg(d, "window", 0)), uint64(s.arg(d, "rate", 0))
	if window == 0 {
		window = ccalgo.Unlimited
	}
	if rate == 0 {
		rate = ccalgo.Unlimited
	}
	control := ccalgo.Controller(ccalgo.NewStatic(window, rate))
	if d.HasArg("uncontrolled") {
		control = ccalgo.None{}
	}
	prof := Profile{Controller: control}
	if d.CmdArgs[0].Key == "mrc" {
		prof = mrcProfile(nil, retrans.Params{"max_wimm": float64(s.arg(d, "wimm", 32)), "loss_packets": float64(s.arg(d, "loss", 16))})()
		prof.Controller = control
	}
	s.q = New(Config{Tuning: Software,
		Type: typ, QPN: 17, Host: s.h,
		MaxSendWR: 16, MaxSendSGE: 4, MaxInline: 512,
		MaxUnacked: uint32(s.arg(d, "unacked", 16)),
		SigAll:     d.HasArg("sigall"),
		Profile:    prof,
	})
	err := toRTS(s.q, Attr{
		PathMTU: 1, DestQPN: 99, SQPSN: uint32(s.arg(d, "psn", 100)), QKey: 0x1111,
		Timeout: uint8(s.arg(d, "timeout", 10)), RetryCnt: uint8(s.arg(d, "retry", 2)), RNRRetry: uint8(s.arg(d, "rnr", 1)),
		MaxRdAtomic: uint8(s.arg(d, "rd", 2)),
	})
	if err != nil {
		return err.Error() + "\n"
	}
	return ""
}

// toRTS takes a queue pair from RESET to RTS with the attributes of a.
func toRTS(q *QP, a Attr) error {
	for to := Init; to <= RTS; to++ {
		rule, _ := transition(to-1, to, q.cfg.Type)
		a.State = to
		mask := rule.required | AttrState
		if err := q.Modify(0, a, mask); err != nil {
			return err
		}
		q.SetMTU(a.PathMTU)
	}
	return nil
}

var scriptOps = map[string]WROpcode{
	"write": WRWrite, "write_imm": WRWriteImm, "send": WRSend, "send_imm": WRSendImm, "read": WRRead,
	"cmp_swap": WRCmpSwap, "fetch_add": WRFetchAdd, "atomic_write": WRAtomicWrite, "local_inv": WRLocalInv, "bind_mw": WRBindMW,
	"send_inv": WRSendWithInv,
}

var scriptFlags = map[string]SendFlags{
	"fence": SendFence, "signaled": SendSignaled, "solicited": SendSolicited, "inline": SendInline,
}

// post parses "op wr=1 len=10,20 flag ..."; each length is one element.
func (s *script) post(words []string) {
	op, ok := scriptOps[words[0]]
	if !ok {
		op = 77
	}
	w := SendWQE{Opcode: op, RemoteVA: 0x7000, RKey: 5, CompareAdd: 3, Swap: 4, AH: 8, RemoteQPN: 55, RemoteQKey: 0x2222}
	lkey, at := 1, uint64(memBase)
	var lens string
	for _, word := range words[1:] {
		key, val, _ := strings.Cut(word, "=")
		if f, ok := scriptFlags[key]; ok {
			w.Flags |= f
			continue
		}
		if key == "len" {
			lens = val
			continue
		}
		var n int
		if _, err := fmt.Sscan(val, &n); err != nil {
			s.t.Fatalf("%s: %v", word, err)
		}
		switch key {
		case "wr":
			w.WRID = uint64(n)
		case "imm", "key":
			w.Imm, w.Bind.RKey = uint32(n), uint32(n)
		case "lkey":
			lkey = n
		case "total":
			w.Length = uint32(n)
		case "qkey":
			w.RemoteQKey = uint32(n)
		default:
			s.t.Fatalf("unknown word %s", word)
		}
	}
	total := w.Length
	w.Length = 0
	for l := range strings.SplitSeq(lens, ",") {
		var n uint32
		if fmt.Sscan(l, &n); n == 0 {
			continue
		}
		w.SGEs = append(w.SGEs, SGE{Addr: at, Length: n, LKey: uint32(lkey)})
		w.Length += n
		at += uint64(n)
	}
	if w.Flags&SendInline != 0 {
		w.Inline = append(w.Inline, s.h.mem[:w.Length]...)
	}
	w.Length += total
	s.h.queue = append(s.h.queue, w)
}

func (s *script) poll(limit int) string {
	var out strings.Builder
	var tr Transmit
	for range limit {
		if !s.q.PollTransmit(s.now, &tr) {
			return out.String() + s.deadline()
		}
		out.WriteString(s.describe(&tr))
	}
	return out.String()
}

// describe prints a packet without its payload; it compares the payload with the memory.
func (s *script) describe(tr *Transmit) string {
	p := &tr.Packet
	out := fmt.Sprintf("%v %v", p.PSN, p.Opcode)
	if p.Opcode.HasRETH() {
		out += fmt.Sprintf(" va=%#x rkey=%d length=%d", p.RETH.VA, p.RETH.RKey, p.RETH.Length)
	}
	if p.Opcode.IsAtomic() {
		out += fmt.Sprintf(" va=%#x compare=%d swap_add=%d", p.AtomicETH.VA, p.AtomicETH.Compare, p.AtomicETH.SwapAdd)
	}
	if p.Opcode.HasPayload() {
		out += fmt.Sprintf(" payload=%d", len(p.Payload))
	}
	if p.Opcode.HasImm() {
		out += fmt.Sprintf(" imm=%d", p.Imm)
	}
	if p.Opcode.HasInv() {
		out += fmt.Sprintf(" inv=%d", p.IETH)
	}
	if p.Opcode.HasDETH() {
		out += fmt.Sprintf(" qkey=%#x src=%d dest=%d ah=%d", p.DETH.QKey, p.DETH.SrcQP, p.DestQP, tr.AH)
	}
	if p.Opcode.IsMRC() && p.Opcode.IsWrite() {
		out += fmt.Sprintf(" msn=%d rqmsn=%d stamp=%d", p.METH.MSN, p.METH.RQMSN, p.TSETH.Timestamp)
		if p.ReTx {
			out += " retx"
		}
	}
	if p.Opcode.IsProbe() {
		out += fmt.Sprintf(" probe=%d stamp=%d", p.PETH.ProbeID, p.PETH.TSETH.Timestamp)
	}
	if p.Solicited {
		out += " solicited"
	}
	if p.AckReq {
		out += " ackreq"
	}
	return out + "\n"
}

func (s *script) deadline() string {
	d := s.q.NextTimeout()
	if d == mono.Never {
		return ""
	}
	return fmt.Sprintf("next timeout in %v\n", d.Sub(s.now))
}

// packet builds the peer's packet: ack psn=, nak psn= code=, rnr psn= timer=, read first|middle|last|only psn= len=,
// atomic psn= value=. Of MRC: tack psn= msn= code=, sack cack= psn= base= bitmap= probe= mpr= stamp=, nack psn= reason=.
func (s *script) packet(d *datadriven.TestData) *bth.Packet {
	p := &bth.Packet{
		Opcode: bth.OpAcknowledge,
		PSN:    bth.MakePSN(uint32(s.arg(d, "psn", 0))),
		AETH:   bth.AETH{Syndrome: bth.SyndromeACK},
	}
	switch d.Cmd {
	case "nak":
		p.AETH.Syndrome = bth.Syndrome(0x60 + s.arg(d, "code", 0))
	case "rnr":
		p.AETH.Syndrome = bth.SyndromeRNR | bth.Syndrome(s.arg(d, "timer", 1))
	case "tack":
		p.Opcode, p.AETH.MSN = bth.TransportMRC|bth.OpAcknowledge, uint32(s.arg(d, "msn", 0))
		if code := s.arg(d, "code", -1); code >= 0 {
			p.AETH.Syndrome = bth.Syndrome(0x60 + code)
		}
	case "sack":
		s.sack(d, p)
	case "nack":
		p.Opcode = bth.OpcodeMRCNACK
		p.NETH = bth.NETH{Reason: bth.MRCReason(s.arg(d, "reason", int(bth.MRCTrimmed))), PSN: p.PSN, CCType: bth.MRCStateNACK}
	case "atomic":
		p.Opcode, p.AtomicAck = bth.OpAtomicAck, uint64(s.arg(d, "value", 0))
	case "read":
		kinds := map[string]bth.Opcode{
			"first": bth.OpReadRespFirst, "middle": bth.OpReadRespMiddle,
			"last": bth.OpReadRespLast, "only": bth.OpReadRespOnly,
		}
		p.Opcode = kinds[d.CmdArgs[0].Key]
		p.Payload = make([]byte, s.arg(d, "len", 256))
	}
	return p
}

// sack makes p a SACK.
func (s *script) sack(d *datadriven.TestData, p *bth.Packet) {
	p.Opcode = bth.OpcodeMRCSACK
	cack := bth.MakePSN(uint32(s.arg(d, "cack", 0)))
	p.SETH = bth.SETH{Cack: cack, MPR: uint8(s.arg(d, "mpr", 0)), Bitmap: uint64(s.arg(d, "bitmap", 0)), SACKOffset: int16(s.arg(d, "base", 1))}
	if d.HasArg("psn") {
		p.SETH.AckOffset = int16(p.PSN.Diff(cack))
	}
	if d.HasArg("probe") {
		p.SETH.ProbeReply, p.SETH.AckOffset = true, int16(s.arg(d, "probe", 0))
	}
	p.PSN = cack
	p.CCState.Timestamp = uint16(s.arg(d, "stamp", 0))
}

func (s *script) modify(d *datadriven.TestData) string {
	a, m := Attr{EnSQDNotify: d.HasArg("notify")}, AttrState
	for st := Reset; st <= Err; st++ {
		if strings.EqualFold(st.String(), d.CmdArgs[0].Key) {
			a.State = st
		}
	}
	if a.EnSQDNotify {
		m |= AttrEnSQDNotify
	}
	if err := s.q.Modify(s.now, a, m); err != nil {
		return err.Error() + "\n"
	}
	return ""
}

// wait advances the clock by an argument, or to the next timeout.
func (s *script) wait(d *datadriven.TestData) string {
	if len(d.CmdArgs) > 0 {
		dur, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(dur)
	} else if n := s.q.NextTimeout(); n != mono.Never {
		s.now = n
	} else {
		return "nothing to wait for\n"
	}
	if s.now >= s.q.NextTimeout() {
		s.q.OnTimeout(s.now)
	}
	return ""
}

func (s *script) counters() string {
	c := *s.q.ctr
	return fmt.Sprintf("state=%v rnr=%d seq=%d retry=%d implied=%d timeout=%d retransmitted=%d retired=%d/%d\n",
		s.q.State(), c.RcvdRNRErr, c.RcvdSeqErr, c.CompleterRetry, c.ImpliedNAKSeqErr, c.LocalAckTimeoutErr,
		c.RetransmittedPackets, s.h.retired, len(s.h.queue))
}
