package server

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

func TestLimits(t *testing.T) {
	l := testLimits
	l.PDs, l.CQs, l.QPs, l.MRs, l.MWs, l.Channels, l.Connections, l.Memory = 2, 2, 1, 2, 1, 2, 2, memSize+4*8192
	var all quota.Amounts
	all[quota.Connections] = 2 // the tests run as root, so only the capacity limits them
	h := pair(t, l, quota.New(quota.Amounts{}, all, nil))[0]
	u := h.connect(t)
	pd := u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	mr := uverbs.RegMR{Start: memBase, Length: 4096, HCAVA: memBase, PDHandle: pd}
	cq := uverbs.CreateCQ{CQE: 1, CompChannel: -1}
	cqHandle := u.handle(uverbs.CmdCreateCQ, cq)
	qpr := uverbs.CreateQP{PDHandle: pd, SendCQHandle: cqHandle, RecvCQHandle: cqHandle, QPType: uint8(qp.UD), MaxSendWR: 1, MaxRecvWR: 1}
	for _, c := range []struct {
		name  string
		cmd   uint32
		body  any
		after int
	}{
		{"PDs", uverbs.CmdAllocPD, uverbs.AllocPD{}, 1},
		{"MRs", uverbs.CmdRegMR, mr, 2},
		{"MWs", uverbs.CmdAllocMW, uverbs.AllocMW{PDHandle: pd, MWType: 1}, 1},
		{"QPs", uverbs.CmdCreateQP, qpr, 1},
		{"CQs", uverbs.CmdCreateCQ, cq, 1},
		{"memory", uverbs.CmdCreateSRQ, uverbs.CreateSRQ{PDHandle: pd, MaxWR: 4096, MaxSGE: 1}, 0},
	} {
		for i := range c.after + 1 {
			err := u.try(c.cmd, c.body)
			if i < c.after && err != nil || i == c.after && !errors.Is(err, unix.ENOMEM) {
				t.Errorf("%s: number %d: %v", c.name, i+1, err)
			}
		}
	}
	h.connect(t)
	if conn, err := uverbs.Dial(h.path); err == nil { // the kernel accepts the connection, then the daemon closes it
		if _, _, err = conn.Call(uverbs.Command(uverbs.CmdGetContext, 8, uverbs.GetContext{}), nil); err == nil {
			t.Error("a third connection is served")
		}
		conn.Close()
	}
}

// TestChannelsComeBack checks that channels closed by the client no longer count, although no command reports the
// close.
func TestChannelsComeBack(t *testing.T) {
	u := pair(t, testLimits)[0].connect(t)
	for range 5 * testLimits.Channels {
		u.handle(uverbs.CmdCreateCompChannel, uverbs.CreateCompChannel{})
	}
}

func TestRefusals(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	e := newEndpoint(t, h)
	raw := uverbs.CreateQP{PDHandle: e.pd, SendCQHandle: e.cq, RecvCQHandle: e.cq, QPType: 8}
	big := raw
	big.QPType, big.MaxSendWR = uint8(qp.RC), 1<<30
	for _, c := range []struct {
		u    *user
		cmd  uint32
		body any
		want unix.Errno
	}{
		{u, uverbs.CmdGetContext, uverbs.GetContext{}, unix.EINVAL},
		{u, 37, struct{ A, B uint64 }{}, unix.EOPNOTSUPP}, // OPEN_XRCD
		{u, 200 + 30, struct{}{}, unix.EOPNOTSUPP},
		{u, uverbs.CmdQueryPort, uverbs.QueryPort{PortNum: 2}, unix.EINVAL},
		{u, uverbs.CmdCreateCQ, uverbs.CreateCQ{CQE: 1 << 30, CompChannel: -1}, unix.EINVAL},
		{u, uverbs.CmdCreateCQ, uverbs.CreateCQ{CQE: 1, CompChannel: 3}, unix.ENOENT},
		{e.user, uverbs.CmdCreateQP, raw, unix.EOPNOTSUPP},
		{e.user, uverbs.CmdCreateQP, big, unix.EINVAL},
		{e.user, uverbs.CmdRegMR, uverbs.RegMR{Start: memBase + memSize - 4096, Length: 8192, HCAVA: memBase, PDHandle: e.pd}, unix.EFAULT},
		{e.user, uverbs.CmdRegMR, uverbs.RegMR{Start: memBase, Length: 1 << 63, HCAVA: memBase, PDHandle: e.pd}, unix.EFAULT},
		{e.user, uverbs.CmdRegMR, uverbs.RegMR{Start: memBase, Length: 8, HCAVA: memBase + 1, PDHandle: e.pd}, unix.EINVAL},
		{u, uverbs.ExtHello, uverbs.Hello{Version: 9}, unix.EPROTONOSUPPORT},
		{u, uverbs.ExtSetProfile, uverbs.SetProfile{Profile: [64]byte{'x'}}, unix.EINVAL},
		{u, uverbs.ExtMapMemory, uverbs.MapMemory{Base: memBase, Length: 4096}, unix.EINVAL}, // no descriptor
		{u, uverbs.ExtQueryGID, uverbs.QueryGID{Port: 1, Index: 99}, unix.EINVAL},
	} {
		if err := c.u.try(c.cmd, c.body); !errors.Is(err, c.want) {
			t.Errorf("command %d: %v, want %v", c.cmd, err, c.want)
		}
	}
}

// TestMemoryThatIsNone passes descriptors that cannot be sealed.
func TestMemoryThatIsNone(t *testing.T) {
	u := pair(t, testLimits)[0].connect(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	small, err := shm.Create("small", 4096, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(small)
	foreign, err := os.Open("/proc/self/ns/net") // a network namespace
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	for _, fd := range []int{int(file.Fd()), small, int(foreign.Fd())} {
		_, _, err := u.callFD(uverbs.ExtMapMemory, []int{fd}, uverbs.MapMemory{Base: memBase << 4, Length: 8192})
		if err == nil {
			t.Errorf("descriptor %d was mapped", fd)
		}
	}
	// The client cannot truncate mapped memory.
	if _, _, err := u.callFD(uverbs.ExtMapMemory, []int{small}, uverbs.MapMemory{Base: memBase << 4, Length: 4096}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(small, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("truncate: %v", err)
	}
}

func TestQueries(t *testing.T) {
	h := pair(t, testLimits)
	a, _ := connected(t, h)
	resp, _ := a.must(uverbs.CmdQueryDevice, uverbs.QueryDevice{})
	dev, err := uverbs.Decode[uverbs.QueryDeviceResp](resp)
	if err != nil || dev.MaxQP != uint32(testLimits.QPs) || dev.PhysPortCnt != 1 || dev.NodeGUID[3] != 0xff {
		t.Errorf("device %+v, %v", dev, err)
	}
	var port uverbs.QueryPortResp
	eventually(t, "active port", func() bool {
		resp, _ = a.must(uverbs.CmdQueryPort, uverbs.QueryPort{PortNum: 1})
		port, err = uverbs.Decode[uverbs.QueryPortResp](resp)
		return err != nil || port.State == uverbs.PortActive
	})
	if err != nil || port.ActiveMTU != 3 || port.GIDTblLen != stack.GIDTableLen {
		t.Errorf("port %+v, %v", port, err)
	}
	resp, _ = a.must(uverbs.CmdQueryQP, uverbs.QueryQP{QPHandle: a.qp})
	q, err := uverbs.Decode[uverbs.QueryQPResp](resp)
	if err != nil || q.QPState != uint8(qp.RTS) || q.Dest.DGID != h[1].gid || q.MaxSendWR != 15 || q.SQSigAll != 1 {
		t.Errorf("QP %+v, %v", q, err)
	}
	first, seen := uint32(0), map[string]bool{}
	for more := uint32(1); more != 0; {
		resp, _ = a.must(uverbs.ExtQueryStats, uverbs.QueryStats{First: first})
		more = word(resp, 1)
		for i := range word(resp, 0) {
			s, err := uverbs.Decode[uverbs.Stat](resp[8+64*i:])
			if err != nil {
				t.Fatal(err)
			}
			seen[uverbs.Text(s.Name[:])] = true
		}
		first += word(resp, 0)
	}
	if !seen["sent_pkts"] || len(seen) != int(first) {
		t.Errorf("%d counters, %d names", first, len(seen))
	}
}

func TestResizeCQKeepsCompletions(t *testing.T) {
	h := pair(t, testLimits)
	a, b := connected(t, h)
	a.write(b.key, 8)
	a.must(uverbs.CmdPostSend, uverbs.PostSend{QPHandle: a.qp})
	eventually(t, "completion", func() bool { return a.wc.Len() == 1 })
	resp, _ := a.must(uverbs.CmdResizeCQ, uverbs.ResizeCQ{CQHandle: a.cq, CQE: 100})
	var err error
	if a.wc, err = rxe.NewCQConsumer(a.rings(1, resp)[0]); err != nil || word(resp, 0) != 127 { // a power of two minus one
		t.Fatal(err, resp)
	}
	if c := a.completion(); c.WRID != 5 {
		t.Errorf("completion %+v", c)
	}
}

// TestResizeSRQRefused checks that a refused resize leaves the queue unchanged and costs no memory.
func TestResizeSRQRefused(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	pd := u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	srq := u.handle(uverbs.CmdCreateSRQ, uverbs.CreateSRQ{PDHandle: pd, MaxWR: 15, MaxSGE: 1, SRQLimit: 9})
	resize := func(to uint32) uverbs.ModifySRQ {
		return uverbs.ModifySRQ{SRQHandle: srq, AttrMask: uverbs.SRQMaxWR, MaxWR: to, SRQLimit: 1 << 20}
	}
	both := resize(1 << 13)
	both.AttrMask |= uverbs.SRQLimit
	for range int(testLimits.Memory/(1<<13*64)) + 1 {
		for _, in := range []uverbs.ModifySRQ{resize(0), resize(4), resize(1 << 20), both} {
			if err := u.try(uverbs.CmdModifySRQ, in); !errors.Is(err, unix.EINVAL) {
				t.Fatalf("%+v: %v", in, err)
			}
		}
	}
	if _, _, err := u.conn.Call(uverbs.Command(uverbs.CmdModifySRQ, 8, resize(100)), nil); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("without room for an answer: %v", err)
	}
	if err := u.try(uverbs.CmdModifySRQ, uverbs.ModifySRQ{SRQHandle: srq + 1, AttrMask: uverbs.SRQMaxWR, MaxWR: 5}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("unknown queue: %v", err)
	}
	resp, _ := u.must(uverbs.CmdQuerySRQ, uverbs.QuerySRQ{SRQHandle: srq})
	if word(resp, 0) != 15 || word(resp, 2) != 9 {
		t.Errorf("max_wr %d, limit %d", word(resp, 0), word(resp, 2))
	}
	for i := range 3 * int(testLimits.Memory/(1<<13*64)) { // the old ring's memory is freed
		u.must(uverbs.CmdModifySRQ, resize(1<<13-uint32(i%2)))
	}
}

// FuzzCommands feeds datagrams to a client that has objects. A datagram may start with a valid command. Only that
// client may break.
func FuzzCommands(f *testing.F) {
	for cmd := range commands {
		if commands[cmd].run != nil {
			f.Add(uverbs.Command(uint32(cmd), 4096, [16]uint64{1: 1}))
			f.Add(uverbs.Command(uint32(cmd), 4096, make([]byte, 200)))
		}
	}
	h := pair(f, testLimits)[0]
	f.Fuzz(func(t *testing.T, b []byte) {
		u := h.connect(t)
		defer u.conn.Close()
		for _, c := range []any{uverbs.AllocPD{}, uverbs.CreateCQ{CQE: 4, CompChannel: -1}} {
			cmd := uint32(uverbs.CmdAllocPD)
			if _, ok := c.(uverbs.CreateCQ); ok {
				cmd = uverbs.CmdCreateCQ
			}
			if err := u.try(cmd, c); err != nil {
				t.Fatal(err)
			}
		}
		if len(b) > 8 {
			binary.NativeEndian.PutUint16(b[4:], uint16(len(b)/4))
			b = b[:len(b)&^3]
		}
		if len(b) == 0 || len(b) > uverbs.MaxMessage {
			return
		}
		for range 2 {
			_, fds, err := u.conn.Call(b, nil)
			var errno unix.Errno
			if err != nil && !errors.As(err, &errno) {
				t.Fatalf("%x: %v", b, err)
			}
			for _, fd := range fds {
				unix.Close(fd.FD)
			}
		}
	})
}

// TestHostileRings overwrites all shared memory of a client with random data.
func TestHostileRings(t *testing.T) {
	h := pair(t, testLimits)
	a, b := connected(t, h)
	other := newEndpoint(t, h[0])
	page, _ := other.bell()
	resp, _ := other.must(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: other.pd, SendCQHandle: other.cq, RecvCQHandle: other.cq,
		MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 4, MaxRecvSGE: 4, QPType: uint8(qp.RC)})
	rings := append(other.rings(2, resp), page)
	other.qp, other.qpn = word(resp, 0), word(resp, 1)
	other.join(h[1].gid, b.qpn)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		for _, mem := range rings {
			binary.NativeEndian.PutUint64(mem[rng.IntN(len(mem)-8):], rng.Uint64())
		}
		other.must(uverbs.CmdPostSend, uverbs.PostSend{QPHandle: other.qp})
	}
	other.conn.Close()
	copy(a.mem, "sane")
	a.write(b.key, 4)
	a.must(uverbs.CmdPostSend, uverbs.PostSend{QPHandle: a.qp})
	if c := a.completion(); c.Status != qp.StatusSuccess || string(b.mem[:4]) != "sane" {
		t.Errorf("completion %+v", c)
	}
}

// TestQuotaOfUser distributes objects over many connections of one user. The quota counts them together, and the end
// of a connection refunds its objects.
func TestQuotaOfUser(t *testing.T) {
	var all quota.Amounts
	all[quota.PDs], all[quota.Channels], all[quota.Memory], all[quota.Descriptors] = 5, 3, 8*memSize, 40
	h := pair(t, testLimits, quota.New(quota.Amounts{}, all, nil))[0]
	for round := range 3 {
		pds, channels := 0, 0
		var users []*user
		for range 4 {
			u := h.connect(t)
			users = append(users, u)
			for range 3 {
				if u.try(uverbs.CmdAllocPD, uverbs.AllocPD{}) == nil {
					pds++
				}
				if u.try(uverbs.CmdCreateCompChannel, uverbs.CreateCompChannel{}) == nil {
					channels++
				}
			}
		}
		if got := h.srv.cfg.Quota.Usage(); len(got) != 1 || pds != 5 || got[0].Used[quota.PDs] != 5 || got[0].Used[quota.Memory] < 4*memSize {
			t.Errorf("round %d: %d domains, %d channels, %+v", round, pds, channels, got)
		}
		for _, u := range users {
			u.conn.Close()
		}
		eventually(t, "an end of all accounts", func() bool { return len(h.srv.cfg.Quota.Usage()) == 0 })
	}
}
