package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/lab/withheld"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// distrust is pair with NICs that never block on client memory.
func distrust(t testing.TB, limits Limits, quotas ...*quota.Ledger) [2]*host {
	t.Helper()
	return pairWith(t, Config{Limits: limits, Distrust: true}, quotas...)
}

// turn waits for a turn of the shard.
func (h *host) turn(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := h.shard.Do(ctx, func(mono.Time, *rocev2.NIC) {}); err != nil {
		t.Fatal("the NIC stands still: ", err)
	}
}

// attack registers the file's memory in another process, after passing that process as the client's own.
func (e *endpoint) attack(f *withheld.File) (addr uint64, resp []byte) {
	e.t.Helper()
	pid, addr := f.Program(e.t)
	if _, err := e.pass(fmt.Sprintf("/proc/%d/mem", pid), fmt.Sprintf("/proc/%d/maps", pid)); err != nil {
		e.t.Fatal(err)
	}
	resp, _ = e.must(uverbs.CmdRegMR, uverbs.RegMR{Start: addr, Length: withheld.Pages * 4096, HCAVA: addr, PDHandle: e.pd, AccessFlags: 7})
	return addr, resp
}

// TestWithheldPage registers a file of a user-space file system that withholds the first page. Only the client that
// sends the page waits. Deregistration returns only after the access has ended.
func TestWithheldPage(t *testing.T) {
	file := withheld.New(t)
	hosts := distrust(t, testLimits)
	attacker, peer := connected(t, hosts)
	victim, other := connected(t, hosts)
	addr, resp := attacker.attack(file)
	mr, lkey := word(resp, 0), word(resp, 1)
	done := make(chan qp.Status)
	go func() { done <- attacker.transfer(qp.WRWrite, addr, lkey, memBase, peer.key, 100) }()
	select {
	case <-file.Waited():
	case <-time.After(10 * time.Second):
		t.Fatal("nobody asks for the page")
	}
	for _, h := range hosts {
		h.turn(t)
	}
	if s := victim.transfer(qp.WRWrite, memBase, victim.key, memBase, other.key, 4096); s != qp.StatusSuccess {
		t.Errorf("another client: status %d", s)
	}
	select {
	case s := <-done:
		t.Errorf("sent without the page: status %d", s)
	case <-time.After(20 * time.Millisecond):
	}
	file.Release()
	if s := <-done; s != qp.StatusSuccess || peer.mem[0] != 7 || peer.mem[99] != 7 {
		t.Errorf("after the page has come: status %d, %v", s, peer.mem[:4])
	}
	if err := attacker.try(uverbs.CmdDeregMR, uverbs.DeregMR{MRHandle: mr}); err != nil {
		t.Error(err)
	}
}

// TestWithheldAtTheEnd checks that neither the end of a client nor the daemon's shutdown waits for a page.
func TestWithheldAtTheEnd(t *testing.T) {
	file := withheld.New(t)
	hosts := distrust(t, testLimits)
	t.Cleanup(file.Release) // runs before the cleanup of the hosts, which may hang otherwise
	attacker, peer := connected(t, hosts)
	addr, resp := attacker.attack(file)
	attacker.post(qp.WRWrite, addr, word(resp, 1), memBase, peer.key, 100)
	<-file.Waited()
	attacker.conn.Close()
	eventually(t, "an end of the client", func() bool { return hosts[0].srv.Clients() == 0 })
	hosts[0].turn(t)
}

// TestWithheldTarget checks that no access writes to a client's memory after the client has destroyed or reset the
// queue pair.
func TestWithheldTarget(t *testing.T) {
	for name, end := range map[string]func(e *endpoint) error{
		"destroy": func(e *endpoint) error { return e.try(uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: e.qp}) },
		"reset": func(e *endpoint) error {
			return e.try(uverbs.CmdModifyQP, uverbs.ModifyQP{QPHandle: e.qp, AttrMask: uint32(qp.AttrState), QPState: uint8(qp.Reset)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := withheld.New(t)
			hosts := distrust(t, testLimits)
			owner, peer := connected(t, hosts)
			addr, resp := owner.attack(file)
			peer.post(qp.WRWrite, memBase, peer.key, addr, word(resp, 2), 100)
			<-file.Waited()
			done := make(chan error, 1)
			go func() { done <- end(owner) }()
			select {
			case err := <-done:
				t.Fatalf("the memory is still written to: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			file.Release()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
