package siege

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/internal/lab/withheld"
	"roced.io/roced/qp"
	"roced.io/roced/verbs"
)

// timeout is the time limit of a WRITE.
const timeout = 10 * time.Second

// The castle's devices besides the victim's.
const (
	onSockets = 2  // its NIC is on UDP sockets, to which every user can send
	onLink    = 3  // its NIC has a peer in another daemon, which dies
	onPacket  = 4  // its NIC shares an interface whose addresses change
	onPeer    = 5  // its NIC shares the interface at the other end, by UDP sockets
	onTarget  = 12 // its NIC is on UDP sockets and takes packets from all source ports
)

// dial connects n queue pairs of the two NICs on sockets. It returns a socket of this user with the address of the first NIC,
// from which datagrams reach the second.
func (p *pair) dial(runDir string, n, size int) (*net.UDPConn, error) {
	if err := p.connect([2]string{device(runDir, onSockets), device(runDir, onTarget)}, n, size); err != nil {
		return nil, err
	}
	var ip [2]net.IP
	for i, c := range p.ctx {
		_, gid, err := c.DefaultGID()
		if err != nil {
			return nil, err
		}
		ip[i] = net.IP(gid[12:16])
	}
	return net.DialUDP("udp4", &net.UDPAddr{IP: ip[0]}, &net.UDPAddr{IP: ip[1], Port: bth.UDPPort})
}

// frames connects its own queue pairs to each other. It sends packets to them that look like the NIC's, with numbers
// that fit or nearly fit.
func frames(runDir string, rng *rand.Rand) {
	p := &pair{}
	defer p.close()
	c, err := p.dial(runDir, 4, 1<<16)
	if err != nil {
		return
	}
	defer c.Close()
	psn := map[int]uint32{}
	for i := range 20_000 {
		k := rng.IntN(len(p.to))
		if i%64 == 0 {
			_ = p.post(k, 64) // so that some packets are in flight
			_ = p.reap(k)
		}
		psn[k] += uint32(rng.IntN(4))
		if rng.IntN(50) == 0 {
			psn[k] = rng.Uint32()
		}
		_, _ = c.Write(p.forge(rng, k, psn[k], c))
	}
}

// segments sends super-frames of the shortest packets to a NIC on UDP sockets: 128 by each call. The first packet of a
// super-frame is valid in one of three cases, a request of a queue pair of the attacker.
func segments(runDir string, rng *rand.Rand) {
	p := &pair{}
	defer p.close()
	c, err := p.dial(runDir, 1, 4096)
	if err != nil {
		return
	}
	defer c.Close()
	const size, count = 16, 128
	raw, err := c.SyscallConn()
	if err != nil || raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, size) }) != nil || err != nil {
		return
	}
	b := make([]byte, size*count)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for i := range count {
		copy(b[i*size:], []byte{byte(bth.OpSendOnly), 0, 0xff, 0xff, 0})
		qpn := uint32(p.to[0].Num())
		b[i*size+5], b[i*size+6], b[i*size+7] = byte(qpn>>16), byte(qpn>>8), byte(qpn)
	}
	valid := datagram(c, &bth.Packet{Opcode: bth.OpSendOnly, PKey: bth.DefaultPKey, DestQP: bth.QPN(p.to[0].Num())})
	for i := range 20_000 {
		if i%3 == 0 {
			copy(b, valid)
		} else {
			b[bth.BTHLen]++
		}
		_, _ = c.Write(b)
	}
}

// datagram returns a packet as the other end of a socket receives it.
func datagram(c *net.UDPConn, p *bth.Packet) []byte {
	return netlab.Datagram(c.LocalAddr().(*net.UDPAddr).AddrPort(), c.RemoteAddr().(*net.UDPAddr).AddrPort().Addr(), p)
}

// forge makes a packet for queue pair k.
func (p *pair) forge(rng *rand.Rand, k int, psn uint32, c *net.UDPConn) []byte {
	op := bth.Opcode(rng.IntN(0x18)) // of RC
	for !op.Valid() {
		op = bth.Opcode(rng.IntN(0x18))
	}
	pkt := bth.Packet{Opcode: op, PKey: bth.DefaultPKey, DestQP: bth.QPN(p.to[k].Num()), PSN: bth.MakePSN(psn),
		AckReq: rng.IntN(2) == 0, Solicited: rng.IntN(2) == 0, Payload: make([]byte, 4*rng.IntN(300)),
		RETH: bth.RETH{VA: p.dst.Addr() + uint64(rng.IntN(1<<17)), RKey: p.dst.RKey() ^ uint32(rng.IntN(2)), Length: rng.Uint32() >> rng.IntN(32)},
		AETH: bth.AETH{Syndrome: bth.Syndrome(rng.Uint32()), MSN: rng.Uint32() & 0xffffff}}
	body := datagram(c, &pkt)
	if rng.IntN(4) == 0 { // an unintended change
		body[rng.IntN(len(body))] ^= byte(1 << rng.IntN(8))
	}
	return body[:len(body)-rng.IntN(2)*rng.IntN(16)]
}

// deaths starts a daemon whose NIC is the peer of one of the castle's NICs. It writes from and to it, and kills it in
// the middle. The castle's link goes down and up with it.
func deaths(runDir string, rng *rand.Rand) {
	dir := filepath.Dir(runDir)
	cfg := filepath.Join(dir, fmt.Sprintf("mortal%d.yaml", os.Getpid()))
	text := fmt.Appendf(nil, "run_dir: %[1]s/run2\nnics:\n  - {name: rxe_m, addresses: [198.18.1.2/24], port: {type: unix, local: %[1]s/m, remote: %[1]s/d}}\n", dir)
	if os.WriteFile(cfg, text, 0o600) != nil {
		return
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), daemonEnv+"="+cfg)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if cmd.Start() != nil {
		return
	}
	dies := time.AfterFunc(time.Duration(100+rng.IntN(400))*time.Millisecond, func() { _ = cmd.Process.Kill() })
	defer func() {
		dies.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, or another daemon has the run directory
	}()
	devices := [2]string{device(runDir, onLink), device(filepath.Join(dir, "run2"), 0)}
	for i := range devices {
		k := (i + rng.IntN(2)) % 2
		p := &pair{}
		for range 20 {
			if p.connect([2]string{devices[k], devices[1-k]}, 1, 4096) == nil {
				break
			}
			p.close()
			p = &pair{}
			time.Sleep(10 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		for n := 0; p.cq != nil && p.dst != nil && len(p.from) > 0; n++ {
			if _, err := p.write(ctx, byte(n), 1024); err != nil {
				break
			}
		}
		cancel()
		p.close()
	}
}

// withheldFile returns the path of the file with a withheld page.
func withheldFile(runDir string) string { return filepath.Join(filepath.Dir(runDir), "withheld") }

// withholding sends memory to itself. The first page of that memory is withheld.
func withholding(runDir string, _ *rand.Rand) {
	mem, err := withheld.Map(withheldFile(runDir))
	if err != nil {
		return
	}
	r := newRaw(runDir)
	if r == nil {
		return
	}
	defer r.end()
	r.withhold(runDir, mem)
	time.Sleep(time.Second)
}

func (r *raw) withhold(runDir string, mem []byte) {
	files := [2]int{-1, -1}
	for i, name := range []string{"mem", "maps"} {
		fd, err := unix.Open("/proc/self/"+name, []int{unix.O_RDWR, unix.O_RDONLY}[i]|unix.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		files[i] = fd
	}
	if _, _, err := r.conn.Call(uverbs.Command(uverbs.ExtPassMemory, 8, uverbs.PassMemory{}), files[:]); err != nil {
		return
	}
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	mr, _ := r.call(uverbs.CmdRegMR, uverbs.RegMR{Start: start, Length: uint64(len(mem)), HCAVA: start, PDHandle: r.pd, AccessFlags: 7})
	for _, c := range some(runDir, 1) {
		defer c.Close()
		index, gid, err := c.DefaultGID()
		if err == nil && len(mr) >= 12 {
			r.send(start, native.Uint32(mr[4:]), native.Uint32(mr[8:]), gid, uint8(index))
		}
	}
}

// send writes 100 bytes at start to the same place, over a queue pair that is connected to itself.
func (r *raw) send(start uint64, lkey, rkey uint32, gid verbs.GID, index uint8) {
	resp, _ := r.call(uverbs.CmdCreateCQ, uverbs.CreateCQ{CQE: 16, CompChannel: -1})
	if len(resp) < 4 {
		return
	}
	cq := native.Uint32(resp)
	resp, _ = r.call(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: r.pd, SendCQHandle: cq, RecvCQHandle: cq, MaxSendWR: 4, MaxRecvWR: 1,
		MaxSendSGE: 1, MaxRecvSGE: 1, QPType: 2})
	ring := r.ring(resp)
	made, err := uverbs.Decode[uverbs.CreateQPResp](resp)
	if ring == nil || err != nil {
		return
	}
	for _, m := range []uverbs.ModifyQP{
		{AttrMask: uint32(qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccessFlags), QPState: 1, PortNum: 1, QPAccessFlags: 7},
		{AttrMask: uint32(qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer),
			QPState: 2, PathMTU: 3, DestQPNum: made.QPN, MaxDestRdAtomic: 1, MinRNRTimer: 12,
			Dest: uverbs.QPDest{DGID: gid, IsGlobal: 1, PortNum: 1, SGIDIndex: index, HopLimit: 64}},
		{AttrMask: uint32(qp.AttrState | qp.AttrSQPSN | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic),
			QPState: 3, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
	} {
		m.QPHandle = made.QPHandle
		r.call(uverbs.CmdModifyQP, m)
	}
	sq, err := rxe.NewSendProducer(ring, made.MaxSendSGE, made.MaxInlineData)
	if err != nil {
		return
	}
	e, err := sq.Next()
	if err != nil {
		return
	}
	*e.RDMA() = rxe.RDMA{Addr: start, RKey: rkey} // opcode 0 is WRITE
	if err = rxe.StageSGEs(sq, []rxe.SGE{{Addr: start, Length: 100, LKey: lkey}}); err == nil {
		sq.Commit()
		r.ringBell(made.QPHandle)
	}
}

// ringBell rings the doorbell of a queue pair.
func (r *raw) ringBell(handle uint32) {
	r.name(handle)
	_, _ = unix.Write(r.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// name sets the doorbell of a queue pair.
func (r *raw) name(handle uint32) {
	w := int(handle) / 64
	orWord(r.mem, uverbs.DoorbellMap+8*w, 1<<(handle%64)) // the doorbells are at the start of the memory
	orWord(r.mem, uverbs.DoorbellSummary+w/64*8, 1<<(w%64))
}
