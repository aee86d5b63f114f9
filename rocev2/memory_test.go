package rocev2

import (
	"net/netip"
	"runtime"
	"testing"

	"roced.io/roced/bth/inet"
	"roced.io/roced/qp"
)

// TestMemoryPerQP measures the memory of a connected, idle RC queue pair in the daemon. It includes the state of NIC
// and transport, and excludes the rings, which clients share.
func TestMemoryPerQP(t *testing.T) {
	const count, most = 10000, 2048
	n, err := New(Config{MAC: inet.MAC{2}, MTU: 4300, Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}})
	ok(t, err)
	pd, err := n.AllocPD(nil)
	ok(t, err)
	cq, err := n.CreateCQ(CQAttr{Entries: 1, Ring: &ringStub{}})
	ok(t, err)
	a := QPAttr{Type: qp.RC, PD: pd, SendCQ: cq, RecvCQ: cq, SQ: &sqStub{}, RQ: &rqStub{},
		Caps: QPCaps{MaxSendWR: 128, MaxRecvWR: 128, MaxSendSGE: 4, MaxRecvSGE: 4}}
	av := AddressVector{DGID: inet.GIDOf(netip.MustParseAddr("10.0.0.2")), SGIDIndex: 0}

	before := heapInUse()
	qps := make([]*QueuePair, 0, count)
	for range count {
		q, err := n.CreateQP(a)
		ok(t, err)
		connectRC(t, n, q, &av)
		qps = append(qps, q)
	}
	bytes := (heapInUse() - before) / count
	t.Logf("%d bytes per connected, idle RC queue pair", bytes)
	if bytes > most {
		t.Errorf("%d bytes per queue pair, more than %d", bytes, most)
	}
	runtime.KeepAlive(qps)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// connectRC takes q from RESET to RTS.
func connectRC(t testing.TB, n *NIC, q *QueuePair, av *AddressVector) {
	t.Helper()
	ok(t, n.ModifyQP(0, q, initAttr, initMask, nil))
	ok(t, n.ModifyQP(0, q, qp.Attr{State: qp.RTR, PathMTU: 3, DestQPN: uint32(q.num), MaxDestRdAtomic: 16, MinRNRTimer: 1},
		qp.AttrState|qp.AttrAV|qp.AttrPathMTU|qp.AttrDestQPN|qp.AttrRQPSN|qp.AttrMaxDestRdAtomic|qp.AttrMinRNRTimer, av))
	ok(t, n.ModifyQP(0, q, qp.Attr{State: qp.RTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 16},
		qp.AttrState|qp.AttrSQPSN|qp.AttrTimeout|qp.AttrRetryCnt|qp.AttrRNRRetry|qp.AttrMaxRdAtomic, nil))
}
