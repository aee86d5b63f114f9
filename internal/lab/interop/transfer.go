package main

import (
	"errors"
	"fmt"
	"time"

	"roced.io/roced/verbs"
)

// transfer is one case of the matrix: a work request and its expectations.
type transfer struct {
	op   verbs.Opcode
	size int
	seed uint64
}

var opNames = map[verbs.Opcode]string{
	verbs.OpSend: "SEND", verbs.OpSendImm: "SEND_IMM", verbs.OpWrite: "WRITE", verbs.OpWriteImm: "WRITE_IMM",
	verbs.OpRead: "READ", verbs.OpFetchAdd: "FETCH_ADD", verbs.OpCmpSwap: "CMP_SWAP", verbs.OpSendWithInv: "SEND_WITH_INV",
}

func takesReceive(op verbs.Opcode) bool {
	switch op {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpSendWithInv, verbs.OpWriteImm:
		return true
	}
	return false
}

func isAtomic(op verbs.Opcode) bool { return op == verbs.OpFetchAdd || op == verbs.OpCmpSwap }

// connection is two connected ends.
type connection struct {
	req, resp end
	s         settings
}

// connect makes queue pairs on both ends and connects them.
func connect(req, resp end, s settings) (connection, error) {
	c := connection{req, resp, s}
	a, err := req.Open(s)
	if err != nil {
		return c, fmt.Errorf("requester: %w", err)
	}
	b, err := resp.Open(s)
	if err != nil {
		return c, fmt.Errorf("responder: %w", err)
	}
	if err := req.Connect(b); err != nil {
		return c, fmt.Errorf("requester: %w", err)
	}
	if err := resp.Connect(a); err != nil {
		return c, fmt.Errorf("responder: %w", err)
	}
	return c, nil
}

func (c connection) Close() error { return errors.Join(c.req.Close(), c.resp.Close()) }

// errLost means that a message has not arrived, which an unreliable service permits.
var errLost = errors.New("lost")

// completion takes one completion, which must be a success.
func completion(e end, limit time.Duration) (verbs.WC, error) {
	wcs, err := e.Poll(1, limit)
	if err != nil {
		return verbs.WC{}, err
	}
	if len(wcs) == 0 {
		return verbs.WC{}, fmt.Errorf("no completion within %v: %w", limit, errLost)
	}
	return wcs[0], wcs[0].Err()
}

// run runs the case and checks every byte of both sides.
func (t transfer) run(c connection, limit time.Duration) error {
	if isAtomic(t.op) {
		return t.atomic(c, limit)
	}
	odd := int(t.seed % 61) // addresses need not be aligned
	from, to := c.req, c.resp
	if t.op == verbs.OpRead {
		from, to = to, from
	}
	src, dst := sendArea+guard+odd, recvArea+guard+(odd*7)%64
	dirty := t.dirty()
	if err := from.Fill(src, t.size, t.seed, 0); err != nil {
		return err
	}
	if err := to.Fill(dst-guard, t.size+2*guard, dirty, 0); err != nil {
		return err
	}
	if err := t.move(c, src, dst, limit); err != nil {
		return err
	}
	return errors.Join(
		wrap("data", to.Check(dst, t.size, t.seed, 0)),
		wrap("before the data", to.Check(dst-guard, guard-t.header(c), dirty, 0)),
		wrap("after the data", to.Check(dst+t.size, guard, dirty, uint64(guard+t.size))),
		wrap("source", from.Check(src, t.size, t.seed, 0)))
}

// dirty is the seed of the initial contents of the destination. Its last byte differs, so that settle sees the arrival.
func (t transfer) dirty() uint64 {
	seed := ^t.seed
	for t.size > 0 && byteOf(seed, guard+t.size-1) == byteOf(t.seed, t.size-1) {
		seed--
	}
	return seed
}

// byteOf returns a byte of a seed's pattern.
func byteOf(seed uint64, at int) byte {
	p := newPattern(seed, uint64(at))
	return p.next()
}

// header is the number of bytes that a datagram reserves before its data.
func (t transfer) header(c connection) int {
	if c.s.Type == verbs.UD {
		return grh
	}
	return 0
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// move posts the request, and a receive if the request consumes one, and checks both completions.
func (t transfer) move(c connection, src, dst int, limit time.Duration) error {
	w := work{ID: t.seed, Op: t.op, Off: src, Len: t.size, Remote: dst, Imm: uint32(t.seed)}
	if t.op == verbs.OpRead {
		w.Off, w.Remote = dst, src
	}
	if t.op == verbs.OpSendWithInv {
		key, err := c.resp.Window(wordArea, 64)
		if err != nil {
			return wrap("window", err)
		}
		w.Imm = key
	}
	if takesReceive(t.op) {
		n, off := t.size+t.header(c), dst-t.header(c)
		if t.op == verbs.OpWriteImm {
			n = 0
		}
		if err := c.resp.Recv(t.seed, off, n); err != nil {
			return wrap("receive", err)
		}
	}
	if err := c.req.Send(w); err != nil {
		return wrap("send", err)
	}
	if _, err := completion(c.req, limit); err != nil {
		return wrap("requester", err)
	}
	if takesReceive(t.op) {
		wc, err := completion(c.resp, limit)
		if err == nil {
			err = t.received(c, wc, w.Imm)
		}
		return wrap("responder", err)
	}
	if c.s.Type != verbs.RC { // an unacknowledged WRITE: wait for the last byte
		return t.settle(c.resp, dst, limit)
	}
	return nil
}

// received checks the completion of a receive.
func (t transfer) received(c connection, wc verbs.WC, imm uint32) error {
	wantLen := uint32(t.size + t.header(c))
	wantFlags := verbs.WCFlags(0)
	switch t.op {
	case verbs.OpSendImm, verbs.OpWriteImm:
		wantFlags = verbs.WCWithImm
	case verbs.OpSendWithInv:
		wantFlags = verbs.WCWithInv
	}
	if wc.WRID != t.seed || wc.ByteLen != wantLen {
		return fmt.Errorf("receive %d of %d bytes, want %d of %d", wc.WRID, wc.ByteLen, t.seed, wantLen)
	}
	if wc.Flags&(verbs.WCWithImm|verbs.WCWithInv) != wantFlags || wantFlags != 0 && wc.Imm != imm {
		return fmt.Errorf("flags %#x, immediate %#x; want %#x, %#x", wc.Flags, wc.Imm, wantFlags, imm)
	}
	if c.s.Type == verbs.UD && wc.Flags&verbs.WCGRH == 0 { // rxe sets the flag on every receive
		return fmt.Errorf("flags %#x: no GRH", wc.Flags)
	}
	return nil
}

// settle waits until the last byte of an unacknowledged message has arrived.
func (t transfer) settle(e end, dst int, limit time.Duration) error {
	if t.size == 0 {
		return nil
	}
	last := t.size - 1
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		err := e.Check(dst+last, 1, t.seed, uint64(last))
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("last byte: %w: %w", errLost, err)
		}
	}
}

// atomic runs an atomic operation and checks the value before and after.
func (t transfer) atomic(c connection, limit time.Duration) error {
	before, operand, swap := mix(t.seed), mix(t.seed+1), mix(t.seed+2)
	if t.op == verbs.OpCmpSwap && t.seed%2 == 0 {
		operand = before // otherwise the comparison fails
	}
	want := before
	switch {
	case t.op == verbs.OpFetchAdd:
		want = before + operand
	case operand == before:
		want = swap
	}
	if err := errors.Join(c.resp.SetWord(wordArea, before), c.req.SetWord(wordArea+8, ^before)); err != nil {
		return err
	}
	w := work{ID: t.seed, Op: t.op, Off: wordArea + 8, Len: 8, Remote: wordArea, Compare: operand, Swap: swap}
	if err := c.req.Send(w); err != nil {
		return wrap("send", err)
	}
	if _, err := completion(c.req, limit); err != nil {
		return wrap("requester", err)
	}
	got, err := c.req.Word(wordArea + 8)
	after, err2 := c.resp.Word(wordArea)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	if got != before || after != want {
		return fmt.Errorf("returned %#x, left %#x; want %#x, %#x", got, after, before, want)
	}
	return nil
}
