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
