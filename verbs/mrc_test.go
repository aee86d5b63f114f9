package verbs_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/verbs"
)

// TestMRC: queue pairs of MRC have attributes of their own, move data with them, and give up after their retries.
func TestMRC(t *testing.T) {
	hosts := lab(t)
	a, b := hosts[0].open(t), hosts[1].open(t)
	_, err := a.ctx.QueryMRC()
	want(t, err, unix.EOPNOTSUPP)
	set := verbs.MRCAttr{MPR: 1, MPRDest: 1, MaxWIMM: 2, MaxWIMMDest: 3, Timeout: 12, Linear: 3, Exponential: 7, Cap: verbs.MRCDynamicMPR}
	mask := verbs.MRCMPR | verbs.MRCMPRDest | verbs.MRCMaxWIMM | verbs.MRCMaxWIMMDest | verbs.MRCTimeout | verbs.MRCRetryCnt | verbs.MRCCap
	for _, n := range []*node{a, b} {
		must(t, n.ctx.SetProfile("mrc"))
		if l, err := n.ctx.QueryMRC(); err != nil || l.MaxMPR < 8 || l.MaxWIMM < 32 {
			t.Errorf("limits %+v, %v", l, err)
		}
		n.createQP(verbs.QPInitAttr{Type: verbs.RC, SignalAll: true})
		want(t, n.qp.ModifyMRC(verbs.MRCAttr{MPR: 65}, verbs.MRCMPR), unix.EINVAL)
		must(t, n.qp.ModifyMRC(set, mask))
	}
	join(t, a, b)
	for _, n := range []*node{a, b} {
		if got, err := n.qp.QueryMRC(); err != nil || got != set {
			t.Errorf("%+v, %v, want %+v", got, err, set)
		}
	}
	want(t, a.qp.ModifyMRC(set, verbs.MRCMPR), unix.EINVAL) // in RTS
	data := bytes.Repeat([]byte("mrc!"), 1<<14)
	copy(a.mr.Bytes(), data)
	write := verbs.SendWR{Opcode: verbs.OpWrite, SGEs: []verbs.SGE{a.mr.SGE(0, 1<<16)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	must(t, a.qp.PostSend(&write))
	if a.completion(); !bytes.Equal(b.mr.Bytes(), data) {
		t.Error("other data has arrived")
	}
	must(t, b.qp.Destroy())
	must(t, a.qp.PostSend(&write))
	if wc := a.anyCompletion(); wc.Status != verbs.StatusRetryExcErr {
		t.Errorf("the peer is gone: %v", wc.Status)
	}
}
