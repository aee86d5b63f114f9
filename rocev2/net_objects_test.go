package rocev2

import (
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// plug adds a queue pair that s drives; its core is never called.
func plug(t testing.TB, n *NIC, num bth.QPN, typ qp.Type, s machine) *QueuePair {
	t.Helper()
	return plugFor(t, n, num, typ, s, Share{})
}

// plugFor is plug for a client.
func plugFor(t testing.TB, n *NIC, num bth.QPN, typ qp.Type, s machine, x Share) *QueuePair {
	t.Helper()
	q := &QueuePair{nic: n, num: num, typ: typ, pkey: pkeyDefault}
	q.node.replaced = s
	n.sch.join(q, x)
	n.obj.qps.Add(q)
	n.obj.numbers.Put(uint32(num), q)
	return q
}

// plugUD adds a UD queue pair that may use the handles of plugAH.
func plugUD(t testing.TB, n *NIC, num bth.QPN, s machine) *QueuePair {
	t.Helper()
	return plug(t, n, num, qp.UD, s)
}

// plugAH adds an address handle and returns its number and its path.
func plugAH(t testing.TB, n *NIC, p stack.Path) (uint32, *stack.Path) {
	t.Helper()
	a := &AH{nic: n, path: p}
	var ok bool
	if a.id, ok = n.obj.ahs.Add(a); !ok {
		t.Fatal("no place for an address handle")
	}
	return a.id, &a.path
}
