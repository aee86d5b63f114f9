package rocev2

import (
	"testing"

	"roced.io/roced/qp"
)

// TestPeers: RC queue pairs to one address share a window, which ends with the last of them. Connections within the NIC
// have none.
func TestPeers(t *testing.T) {
	o := newObjs(t, Limits{})
	o.NIC = newNIC(t, testConfig(macA, "10.0.0.1/24"))
	var err error
	o.pd, err = o.AllocPD(nil)
	ok(t, err)
	o.cq, err = o.CreateCQ(CQAttr{Entries: 64, Ring: o.ring, Notify: func() {}})
	ok(t, err)
	modify := func(q *QueuePair, dst string) {
		t.Helper()
		av := AddressVector{DGID: gid(dst)}
		ok(t, o.ModifyQP(0, q, qp.Attr{State: qp.Init, Port: 1}, qp.AttrState|qp.AttrPKeyIndex|qp.AttrPort|qp.AttrAccessFlags, nil))
		ok(t, o.ModifyQP(0, q, qp.Attr{State: qp.RTR, PathMTU: 3, DestQPN: 5}, qp.AttrState|qp.AttrAV|qp.AttrPathMTU|
			qp.AttrDestQPN|qp.AttrRQPSN|qp.AttrMaxDestRdAtomic|qp.AttrMinRNRTimer, &av))
	}
	var qps []*QueuePair
	for _, dst := range []string{"10.0.0.2", "10.0.0.2", "10.0.0.3", "10.0.0.1"} {
		q := o.newQP(o.pd)
		modify(q, dst)
		qps = append(qps, q)
	}
	if qps[0].flow == nil || qps[0].flow != qps[1].flow || qps[2].flow.to == qps[0].flow.to || qps[3].flow != nil || len(o.NIC.peers) != 2 {
		t.Errorf("%d peers: %v", len(o.NIC.peers), qps)
	}
	ok(t, o.DestroyQP(qps[0]))
	ok(t, o.ModifyQP(0, qps[1], qp.Attr{State: qp.Reset}, qp.AttrState, nil))
	if qps[1].flow != nil || len(o.NIC.peers) != 1 {
		t.Errorf("%d peers remain", len(o.NIC.peers))
	}
	modify(qps[1], "10.0.0.3")
	if qps[1].flow != qps[2].flow {
		t.Error("a queue pair that is connected again has another window")
	}
}
