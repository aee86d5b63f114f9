package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/drill/client"
	"roced.io/roced/drill/engine"
	"roced.io/roced/internal/lab/vm"
	"roced.io/roced/verbs"
)

// rxe is an end on an rdma_rxe device in the virtual machine. An agent drives it.
type rxe struct {
	agent *client.Conn
	addr  [2]netip.Addr // IPv4, IPv6

	settings settings
	base     address // Addr and RKey
	own      address
	peer     address
	objects  []string   // of the agent, without the buffer
	reported []verbs.WC // completions that Poll has not returned
}

// agentProgram is the agent in the machine.
const agentProgram = "rocedrill-agent"

// commandLimit is the time limit of commands that move no data.
const commandLimit = 20 * time.Second

// newRXE opens a device by an agent on the port of the same name. All queue pairs have the same peer. The buffer stays for
// all of them, because its registration takes the emulated machine long.
func newRXE(m *vm.VM, device string, own, peer [2]netip.Addr) (*rxe, error) {
	c, err := m.Run(agentProgram, device)
	if err != nil {
		return nil, err
	}
	r := &rxe{agent: client.New(c), addr: own}
	err = r.command("open device=%s dut=%v dut6=%v tester=%v tester6=%v", device, own[0], own[1], peer[0], peer[1])
	if err != nil {
		return r, err
	}
	mr, err := r.answer(commandLimit, "mr name=mr size=%d", bufferSize)
	if err == nil {
		_, err = fmt.Sscan(mr["va"]+" "+mr["rkey"], &r.base.Addr, &r.base.RKey)
	}
	return r, err
}

// answer runs a command of the agent and returns its answer.
func (r *rxe) answer(limit time.Duration, format string, args ...any) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return r.agent.Command(ctx, fmt.Sprintf(format, args...), r.report)
}

func (r *rxe) command(format string, args ...any) error {
	_, err := r.answer(commandLimit, format, args...)
	return err
}

// create creates an object, whose name is its kind.
func (r *rxe) create(kind, format string, args ...any) (map[string]string, error) {
	a, err := r.answer(commandLimit, "%s name=%[1]s "+format, append([]any{kind}, args...)...)
	if err == nil {
		r.objects = append(r.objects, kind)
	}
	return a, err
}

// report keeps a completion. Completions of earlier queue pairs have no owner.
func (r *rxe) report(line string) {
	word, rest, _ := strings.Cut(line, " ")
	if a := engine.Fields(rest); word == "cqe" && a["on"] == "qp" {
		r.reported = append(r.reported, completionOf(a))
	}
}

// completionOf converts a report. Absent numbers are zero.
func completionOf(a map[string]string) verbs.WC {
	number := func(key string) uint64 {
		v, _ := strconv.ParseUint(a[key], 10, 64)
		return v
	}
	w := verbs.WC{WRID: number("wr"), Status: statusOf(a["status"]), ByteLen: uint32(number("len")), Imm: uint32(number("imm") + number("inv")),
		SrcQP: uint32(number("peer"))}
	for key, flag := range map[string]verbs.WCFlags{"imm": verbs.WCWithImm, "inv": verbs.WCWithInv, "peer": verbs.WCGRH} {
		if a[key] != "" {
			w.Flags |= flag
		}
	}
	return w
}

// statusOf returns the status of a name. Unknown names are general errors.
func statusOf(name string) verbs.Status {
	for s, n := range client.StatusNames {
		if n == name {
			return verbs.Status(s)
		}
	}
	return verbs.StatusGeneralErr
}

func (r *rxe) Open(s settings) (address, error) {
	r.settings, r.reported, r.own = s, nil, r.base
	r.own.PSN = rand.Uint32N(1 << 24)
	r.own.GID = verbs.GIDOf(r.addr[0])
	if s.IPv6 {
		r.own.GID = verbs.GIDOf(r.addr[1])
	}
	if _, err := r.create("cq", "size=%d", 2*queueDepth); err != nil {
		return r.own, err
	}
	qp, err := r.create("qp", "type=%s scq=cq rcq=cq size=%d rsize=%d sges=1 inline=0 state=INIT qkey=%d", strings.ToLower(s.Type.String()),
		queueDepth, queueDepth, qkey)
	if err == nil {
		_, err = fmt.Sscan(qp["num"], &r.own.QPN)
	}
	return r.own, err
}

func (r *rxe) Connect(peer address) error {
	r.peer = peer
	s := r.settings
	ip := 4
	if s.IPv6 {
		ip = 6
	}
	var rtr, rts string // the kernel refuses attributes that a type does not have
	if s.Type != verbs.UD {
		rtr = fmt.Sprintf(" ip=%d peer=%d mtu=%d rqpsn=%d", ip, peer.QPN, bytesOf(s.MTU), peer.PSN)
	}
	if s.Type == verbs.RC {
		rtr += fmt.Sprintf(" dest_rd_atomic=%d min_rnr=%d", readDepth, minRNRTimer)
		rts = fmt.Sprintf(" timeout=%d retry=%d rnr_retry=%d rd_atomic=%d", s.Timeout, s.RetryCnt, s.RNRRetry, readDepth)
	}
	err := r.command("modify on=qp state=RTR%s", rtr)
	if err == nil {
		err = r.command("modify on=qp state=RTS psn=%d%s", r.own.PSN, rts)
	}
	if err == nil && s.Type == verbs.UD {
		_, err = r.create("ah", "ip=%d", ip)
	}
	return err
}

// readDepth is the number of READs and atomic operations of rxe in flight.
const readDepth = 16

// memory formats a part of the buffer.
func memory(off, n int) string { return fmt.Sprintf("sge=mr:%d:%d", off, n) }

func (r *rxe) Fill(off, n int, seed, from uint64) error {
	return r.command("set %s seed=%d from=%d", memory(off, n), seed, from)
}

func (r *rxe) Check(off, n int, seed, from uint64) error {
	return r.command("check %s seed=%d from=%d", memory(off, n), seed, from)
}

func (r *rxe) Word(off int) (uint64, error) {
	a, err := r.answer(commandLimit, "check %s", memory(off, 8))
	if err != nil {
		return 0, err
	}
	b, err := hex.DecodeString(a["data"])
	if err != nil || len(b) != 8 {
		return 0, fmt.Errorf("the agent answers data=%s", a["data"])
	}
	return binary.LittleEndian.Uint64(b), nil
}

func (r *rxe) SetWord(off int, v uint64) error {
	return r.command("set %s data=%x", memory(off, 8), binary.LittleEndian.AppendUint64(nil, v))
}

func (r *rxe) Recv(id uint64, off, n int) error {
	return r.command("recv on=qp wr=%d %s", id, memory(off, n))
}

// requests are the agent's commands that post an operation, with the arguments for work.Imm.
var requests = map[verbs.Opcode]string{
	verbs.OpSend: "send", verbs.OpSendImm: "send imm=%d", verbs.OpSendWithInv: "send inv=%d", verbs.OpWrite: "write",
	verbs.OpWriteImm: "write imm=%d", verbs.OpRead: "read", verbs.OpFetchAdd: "fadd", verbs.OpCmpSwap: "cas",
}

// request formats a work request.
func (r *rxe) request(w work) string {
	text := requests[w.Op]
	if strings.Contains(text, "%") {
		text = fmt.Sprintf(text, w.Imm)
	}
	rkey := w.RKey
	if rkey == 0 {
		rkey = r.peer.RKey
	}
	text += fmt.Sprintf(" on=qp wr=%d remote=%d rkey=%d compare=%d swap=%d", w.ID, r.peer.Addr+uint64(w.Remote), rkey, w.Compare, w.Swap)
	if r.settings.Type == verbs.UD {
		text += fmt.Sprintf(" ah=ah peer=%d qkey=%d", r.peer.QPN, qkey)
	}
	if w.Len == 0 {
		return text
	}
	return text + " " + memory(w.Off, w.Len)
}

func (r *rxe) Send(w work) error { return r.command("%s", r.request(w)) }

func (r *rxe) Poll(n int, limit time.Duration) ([]verbs.WC, error) {
	timeout := time.After(limit)
	for late := false; len(r.reported) < n && !late; {
		select {
		case line, ok := <-r.agent.Lines():
			if !ok {
				return nil, client.ErrEnded
			}
			r.report(line)
		case <-timeout:
			late = true
		}
	}
	n = min(n, len(r.reported))
	out := r.reported[:n]
	r.reported = r.reported[n:]
	return out, nil
}

func (r *rxe) Stream(w work, depth int, limit time.Duration) (s streamed, err error) {
	a, err := r.answer(limit+commandLimit, "%s depth=%d ms=%d", r.request(w), depth, limit.Milliseconds())
	if err == nil {
		_, err = fmt.Sscan(a["ns"]+" "+a["done"], (*int64)(&s.Time), &s.Done)
		s.Status = statusOf(a["status"])
	}
	return s, err
}

func (r *rxe) Window(off, n int) (rkey uint32, err error) {
	if slices.Contains(r.objects, "mw") {
		if err := r.destroy("mw"); err != nil {
			return 0, err
		}
	}
	mw, err := r.create("mw", "type=2")
	if err == nil {
		_, err = fmt.Sscan(mw["rkey"], &rkey)
	}
	if err != nil {
		return 0, err
	}
	rkey = rkey&^0xff | uint32(uint8(rkey)+1)
	if err := r.command("bind on=qp mw=mw to=mr:%d:%d rkey=%d access=wr", off, n, rkey); err != nil {
		return 0, err
	}
	_, err = completion(r, commandLimit)
	return rkey, err
}

func (r *rxe) State() (verbs.QPState, error) {
	a, err := r.answer(commandLimit, "query on=qp")
	if err != nil {
		return 0, err
	}
	s := verbs.QPReset
	for s < verbs.QPErr && s.String() != a["state"] {
		s++
	}
	return s, nil
}

func (r *rxe) Fail() error { return r.command("modify on=qp state=%v", verbs.QPErr) }

func (r *rxe) destroy(object string) error {
	err := r.command("destroy on=%s", object)
	if err == nil {
		r.objects = slices.DeleteFunc(r.objects, func(o string) bool { return o == object })
	}
	return err
}

func (r *rxe) Close() error {
	for _, object := range slices.Backward(slices.Clone(r.objects)) { // a bound window holds its queue pair
		if err := r.destroy(object); err != nil {
			return err
		}
	}
	return nil
}
