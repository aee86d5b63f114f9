package nictest_test

import (
	"testing"
	"time"

	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/rocev2/nictest"
)

// TestCountersOfTransports checks the counters of requests with each transport: each message counts once, whatever its
// packets, and only at the receiver.
func TestCountersOfTransports(t *testing.T) {
	const messages, size = 3, 3000
	kinds := []struct {
		name    string
		mrc, uc bool // MRC has WRITEs only, UC has no responses
		post    func(id uint64, at nictest.Remote, sge qp.SGE) qp.SendWQE
		want    map[string]uint64
	}{
		{"WRITE", true, true, func(id uint64, at nictest.Remote, sge qp.SGE) qp.SendWQE { return nictest.Write(id, at, sge) },
			map[string]uint64{"rx_write_requests": messages}},
		{"WRITE with immediate", true, true, func(id uint64, at nictest.Remote, sge qp.SGE) qp.SendWQE { return nictest.WriteImm(id, at, 7, sge) },
			map[string]uint64{"rx_write_requests": messages, "rdma_recvs": messages}},
		{"SEND", false, true, func(id uint64, _ nictest.Remote, sge qp.SGE) qp.SendWQE { return nictest.Send(id, sge) },
			map[string]uint64{"rdma_recvs": messages}},
		{"READ", false, false, func(id uint64, at nictest.Remote, sge qp.SGE) qp.SendWQE { return nictest.Read(id, at, sge) },
			map[string]uint64{"rx_read_requests": messages}},
		{"FETCH AND ADD", false, false, func(id uint64, at nictest.Remote, sge qp.SGE) qp.SendWQE {
			sge.Length = 8
			return nictest.FetchAdd(id, at, 1, sge)
		}, map[string]uint64{"rx_atomic_requests": messages}},
	}
	for _, transport := range append(profile.Names(), "uc") {
		for _, k := range kinds {
			if transport == "mrc" && !k.mrc || transport == "uc" && !k.uc {
				continue
			}
			t.Run(transport+"/"+k.name, func(t *testing.T) {
				p := nictest.New(t, nictest.Options{Seed: 1})
				var a, b *nictest.QP
				if transport == "uc" {
					a, b = p.UC()
				} else {
					a, b = p.RC(func(o *nictest.QPOptions) { o.Profile = transport })
				}
				src, dst, received := p.A.Buffer(size), p.B.Buffer(size), p.B.Buffer(size)
				for id := range uint64(messages) {
					b.PostRecv(id, received.SGE())
					a.Post(k.post(id, dst.At(0), src.SGE()))
				}
				for id := range uint64(messages) {
					a.WaitSend(id)
				}
				p.Run(time.Millisecond)
				for _, name := range []string{"rx_write_requests", "rx_read_requests", "rx_atomic_requests", "rdma_recvs"} {
					if got := p.B.Counter(name); got != k.want[name] {
						t.Errorf("%s is %d at the receiver, want %d", name, got, k.want[name])
					}
					if got := p.A.Counter(name); got != 0 {
						t.Errorf("%s is %d at the sender, want 0", name, got)
					}
				}
			})
		}
	}
}

// TestExpectedPSN: the attribute rq_psn is the PSN that the responder expects (qp_attr.rq_psn of rxe is resp.psn).
func TestExpectedPSN(t *testing.T) {
	for _, transport := range append(profile.Names(), "uc") {
		p := nictest.New(t, nictest.Options{Seed: 1})
		first := func(o *nictest.QPOptions) { o.PSN = 0xfffffe }
		var a, b *nictest.QP
		if transport == "uc" {
			a, b = p.UC(first)
		} else {
			a, b = p.RC(first, func(o *nictest.QPOptions) { o.Profile = transport })
		}
		src, dst := p.A.Buffer(100), p.B.Buffer(100)
		const messages = 5
		for id := range uint64(messages) {
			a.Post(nictest.Write(id, dst.At(0), src.SGE()))
			a.WaitSend(id)
		}
		p.Run(time.Millisecond)
		i, err := p.B.NIC.QueryQP(b.QueuePair)
		if err != nil || i.Attr.RQPSN != (0xfffffe+messages)&0xffffff {
			t.Errorf("%s: rq_psn is %#x, %v", transport, i.Attr.RQPSN, err)
		}
	}
}

// TestKeyViolations: a datagram with another Q_Key counts as a violation at the port.
func TestKeyViolations(t *testing.T) {
	p := nictest.New(t, nictest.Options{Seed: 1})
	a, b, to, _ := p.UD()
	src, dst := p.A.Buffer(64), p.B.Buffer(256)
	b.PostRecv(1, dst.SGE())
	w := nictest.SendTo(1, to.Handle(), b, src.SGE())
	w.RemoteQKey ^= 1
	a.Post(w)
	a.WaitSend(1)
	p.Run(time.Millisecond)
	if got := p.B.NIC.PortAttr(); got.BadQKeys != 1 || got.BadPKeys != 0 {
		t.Errorf("%d wrong Q_Keys and %d wrong P_Keys, want 1 and 0", got.BadQKeys, got.BadPKeys)
	}
}
