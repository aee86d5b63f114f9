package main

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"roced.io/roced/internal/netlab/vm"
	"roced.io/roced/verbs"
)

// rxe is an end on an rdma_rxe device in the virtual machine.
type rxe struct {
	vm     *vm.VM
	number int           // of the end in rxepeer
	addr   [2]netip.Addr // IPv4, IPv6

	settings settings
	base     address // Addr and RKey
	own      address
	peer     address
}

// patience is the time limit of commands that move no data.
const patience = 20 * time.Second

// newRXE opens a device. number must differ between the ends of a machine.
func newRXE(m *vm.VM, number int, device string, v4, v6 netip.Addr) (*rxe, error) {
	r := &rxe{vm: m, number: number, addr: [2]netip.Addr{v4, v6}}
	text, err := r.run(patience, "open", "dev=%s size=%d", device, bufferSize)
	if err == nil {
		_, err = fmt.Sscanf(text, "addr=0x%x rkey=0x%x", &r.base.Addr, &r.base.RKey)
	}
	return r, err
}

func (r *rxe) run(limit time.Duration, verb, format string, args ...any) (string, error) {
	return r.vm.Run(fmt.Sprintf("%s end=%d ", verb, r.number)+fmt.Sprintf(format, args...), limit)
}

func (r *rxe) Open(s settings) (address, error) {
	r.settings, r.own = s, r.base
	r.own.PSN = rand.Uint32N(1 << 24)
	r.own.GID = verbs.GIDOf(r.addr[0])
	if s.IPv6 {
		r.own.GID = verbs.GIDOf(r.addr[1])
	}
	text, err := r.run(patience, "qp", "type=%d gid=%s qkey=%d", s.Type, hex.EncodeToString(r.own.GID[:]), qkey)
	if err == nil {
		_, err = fmt.Sscanf(text, "qpn=%d", &r.own.QPN)
	}
	return r.own, err
}

func (r *rxe) Connect(peer address) error {
	r.peer = peer
	s := r.settings
	_, err := r.run(patience, "connect", "dest=%d dgid=%s mtu=%d rqpsn=%d sqpsn=%d timeout=%d retry=%d rnrretry=%d rnrtimer=%d",
		peer.QPN, hex.EncodeToString(peer.GID[:]), s.MTU, peer.PSN, r.own.PSN, s.Timeout, s.RetryCnt, s.RNRRetry, minRNRTimer)
	return err
}

func (r *rxe) Fill(off, n int, seed, from uint64) error {
	_, err := r.run(patience, "fill", "off=%d len=%d seed=%d from=%d", off, n, seed, from)
	return err
}

func (r *rxe) Check(off, n int, seed, from uint64) error {
	_, err := r.run(patience, "check", "off=%d len=%d seed=%d from=%d", off, n, seed, from)
	return err
}

func (r *rxe) Word(off int) (v uint64, err error) {
	text, err := r.run(patience, "word", "off=%d len=8", off)
	if err == nil {
		_, err = fmt.Sscanf(text, "value=%d", &v)
	}
	return v, err
}

func (r *rxe) SetWord(off int, v uint64) error {
	_, err := r.run(patience, "word", "off=%d len=8 value=%d", off, v)
	return err
}

func (r *rxe) Recv(id uint64, off, n, count, stride int) error {
	_, err := r.run(patience, "recv", "id=%d off=%d len=%d count=%d stride=%d", id, off, n, count, stride)
	return err
}

// request formats the arguments of a work request.
func (r *rxe) request(w work) string {
	rkey := w.RKey
	if rkey == 0 {
		rkey = r.peer.RKey
	}
	return fmt.Sprintf("id=%d op=%d flags=%d off=%d len=%d raddr=%d rkey=%d imm=%d compare=%d swap=%d", w.ID, w.Op, w.Flags,
		w.Off, w.Len, r.peer.Addr+uint64(w.Remote), rkey, w.Imm, w.Compare, w.Swap)
}

func (r *rxe) Send(w work) error {
	_, err := r.run(patience, "send", "%s", r.request(w))
	return err
}

func (r *rxe) Poll(n int, limit time.Duration) ([]verbs.WC, error) {
	text, err := r.run(limit+patience, "poll", "n=%d ms=%d", n, limit.Milliseconds())
	if err != nil {
		return nil, err
	}
	var out []verbs.WC
	for line := range strings.Lines(text) {
		var w verbs.WC
		_, err := fmt.Sscanf(line, "%d %d %d %d %d %d %d", &w.WRID, &w.Status, &w.Opcode, &w.Flags, &w.ByteLen, &w.Imm, &w.SrcQP)
		if err != nil {
			return out, fmt.Errorf("completion %q: %w", line, err)
		}
		out = append(out, w)
	}
	return out, nil
}

func (r *rxe) Stream(w work, count, depth, stride int, limit time.Duration) (s streamed, err error) {
	text, err := r.run(limit+patience, "stream", "%s count=%d depth=%d stride=%d ms=%d", r.request(w), count, depth, stride,
		limit.Milliseconds())
	if err == nil {
		_, err = fmt.Sscanf(text, "ns=%d done=%d status=%d", &s.Time, &s.Done, &s.Status)
	}
	return s, err
}

func (r *rxe) Window(off, n int) (rkey uint32, err error) {
	text, err := r.run(patience, "window", "off=%d len=%d", off, n)
	if err == nil {
		_, err = fmt.Sscanf(text, "rkey=%d", &rkey)
	}
	return rkey, err
}

func (r *rxe) State() (s verbs.QPState, err error) {
	text, err := r.run(patience, "state", "")
	if err == nil {
		_, err = fmt.Sscanf(text, "state=%d", &s)
	}
	return s, err
}

func (r *rxe) Fail() error {
	_, err := r.run(patience, "state", "set=%d", verbs.QPErr)
	return err
}

func (r *rxe) Close() error {
	_, err := r.run(patience, "close", "")
	return err
}
