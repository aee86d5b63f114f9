package siege

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"roced/internal/abi/uverbs"
	"roced/internal/daemon/api"
	"roced/internal/daemon/ucma"
	"roced/verbs"
)

// attack is what a hostile program does, again and again, until it is killed. What it is
// refused does not stop it.
type attack func(runDir string, rng *rand.Rand)

// attacks, by name. Each begins anew when it returns.
var attacks = map[string]attack{
	"connections": connections, "objects": objects, "channels": channels, "flush": flush, "bells": bells,
	"memory": memory, "admin": admin, "commands": commands, "logs": logs, "traffic": traffic,
}

// environment makes the test binary an attacker.
const environment = "ROCED_SIEGE"

// Main is the attacker. A test binary calls it first in its TestMain.
func Main() {
	var name, runDir string
	var seed uint64
	if n, _ := fmt.Sscan(os.Getenv(environment), &name, &runDir, &seed); n != 3 {
		return
	}
	go func() { // ends with whoever has started it
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	for rng := rand.New(rand.NewPCG(seed, 0)); ; {
		attacks[name](runDir, rng)
		time.Sleep(time.Millisecond)
	}
}

func device(runDir string, i int) string { return filepath.Join(runDir, fmt.Sprintf("uverbs%d", i)) }

// some opens up to n contexts and returns those that it gets.
func some(runDir string, n int) (out []*verbs.Context) {
	for range n {
		c, err := verbs.Open(device(runDir, 0))
		if err != nil {
			break
		}
		out = append(out, c)
	}
	return out
}

func end(list []*verbs.Context) {
	for _, c := range list {
		c.Close()
	}
}

// connections opens as many connections to everything as it can.
func connections(runDir string, _ *rand.Rand) {
	var list []net.Conn
	for _, name := range []string{"uverbs0", "uverbs1", ucma.Socket} {
		for range 400 {
			c, err := net.Dial("unixpacket", filepath.Join(runDir, name))
			if err != nil {
				break
			}
			list = append(list, c)
		}
	}
	time.Sleep(50 * time.Millisecond)
	for _, c := range list {
		c.Close()
	}
}

// objects takes as many protection domains, regions and completion queues as it can get over
// several connections.
func objects(runDir string, _ *rand.Rand) {
	list := some(runDir, 8)
	defer end(list)
	for _, c := range list {
		for range 2000 {
			if _, err := c.AllocPD(); err != nil {
				break
			}
		}
		for range 2000 {
			if _, err := c.CreateCQ(1, nil); err != nil {
				break
			}
		}
	}
}

// breakable returns queue pairs in the error state, to which can be posted.
func breakable(c *verbs.Context, n, depth int, ch *verbs.CompChannel) (qps []*verbs.QP, cqs []*verbs.CQ) {
	pd, err := c.AllocPD()
	if err != nil {
		return nil, nil
	}
	for range n {
		cq, err := c.CreateCQ(4*depth, ch)
		if err != nil {
			return qps, cqs
		}
		q, err := pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1})
		if err != nil || q.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.AttrState) != nil {
			return qps, cqs
		}
		qps, cqs = append(qps, q), append(cqs, cq)
	}
	return qps, cqs
}

// channels makes completion events in many channels and reads none.
func channels(runDir string, _ *rand.Rand) {
	list := some(runDir, 8)
	defer end(list)
	for _, c := range list {
		for range 100 {
			ch, err := c.CreateCompChannel()
			if err != nil {
				break
			}
			qps, cqs := breakable(c, 1, 16, ch)
			for range 400 {
				for i, q := range qps {
					if cqs[i].ReqNotify(false) != nil || q.PostSend(&verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled}) != nil {
						break
					}
					var wcs [16]verbs.WC
					_, _ = cqs[i].Poll(wcs[:])
				}
			}
		}
	}
}

// flush posts to many broken queue pairs as fast as they are flushed.
func flush(runDir string, _ *rand.Rand) {
	list := some(runDir, 1)
	defer end(list)
	for _, c := range list {
		qps, cqs := breakable(c, 64, 4096, nil)
		wrs := make([]verbs.SendWR, 512)
		for i := range wrs {
			wrs[i] = verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled}
		}
		var wcs [1024]verbs.WC
		for begun := time.Now(); time.Since(begun) < time.Second; {
			for i, q := range qps {
				_, _ = q.PostSendN(wrs)
				_, _ = cqs[i].Poll(wcs[:])
			}
		}
	}
}

// bells scribbles over the memory of a context: doorbells, rings and all.
func bells(runDir string, rng *rand.Rand) {
	conn, err := uverbs.Dial(device(runDir, 0))
	if err != nil {
		return
	}
	defer conn.Close()
	call := func(cmd uint32, body any) (resp []byte, fds []uverbs.FD) {
		resp, fds, _ = conn.Call(uverbs.Command(cmd, 4096, body), nil)
		return resp, fds
	}
	_, fds := call(uverbs.ExtHello, uverbs.Hello{Version: uverbs.ExtVersion})
	_, _ = call(uverbs.CmdGetContext, uverbs.GetContext{})
	_, bell := call(uverbs.ExtDoorbell, struct{}{})
	if len(fds) != 1 || len(bell) != 1 {
		return
	}
	resp, _ := call(uverbs.CmdAllocPD, uverbs.AllocPD{})
	if len(resp) < 4 {
		return
	}
	pd := binary.NativeEndian.Uint32(resp)
	resp, _ = call(uverbs.CmdCreateCQ, uverbs.CreateCQ{CQE: 64, CompChannel: -1})
	if len(resp) < 4 {
		return
	}
	cq := binary.NativeEndian.Uint32(resp)
	for range 64 {
		call(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: pd, SendCQHandle: cq, RecvCQHandle: cq, MaxSendWR: 64, MaxRecvWR: 64,
			MaxSendSGE: 1, MaxRecvSGE: 1, QPType: uint8(2 + rng.IntN(3))})
	}
	const size = 1 << 20
	mem, err := unix.Mmap(fds[0].FD, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return
	}
	defer unix.Munmap(mem)
	defer unix.Close(fds[0].FD)
	defer unix.Close(bell[0].FD)
	for range 200_000 {
		binary.NativeEndian.PutUint64(mem[rng.IntN(size/8)*8:], rng.Uint64())
		if rng.IntN(1000) == 0 {
			_, _ = unix.Write(bell[0].FD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}
	}
}

// memory maps, touches and gives up memory.
func memory(runDir string, _ *rand.Rand) {
	for range 8 {
		list := some(runDir, 1)
		for _, c := range list {
			if pd, err := c.AllocPD(); err == nil {
				if mr, err := pd.AllocMR(32<<20, verbs.AccessLocalWrite); err == nil {
					for i := 0; i < 32<<20; i += 4096 {
						mr.Bytes()[i] = 1
					}
				}
			}
		}
		end(list)
	}
}

// admin keeps idle connections to the admin interface, which it may not use.
func admin(runDir string, _ *rand.Rand) {
	var list []net.Conn
	for range 1000 {
		c, err := net.Dial("unix", filepath.Join(runDir, api.Socket))
		if err != nil {
			break
		}
		_, _ = c.Write([]byte("GET /v1/links HTTP/1.1\r\nHost: x\r\n\r\n"))
		list = append(list, c)
	}
	time.Sleep(200 * time.Millisecond)
	for _, c := range list {
		c.Close()
	}
}

// commands sends random commands to all sockets.
func commands(runDir string, rng *rand.Rand) {
	for _, name := range []string{"uverbs0", "uverbs1", ucma.Socket} {
		conn, err := uverbs.Dial(filepath.Join(runDir, name))
		if err != nil {
			continue
		}
		_, _, _ = conn.Call(uverbs.Command(uverbs.ExtHello, 4096, uverbs.Hello{Version: uverbs.ExtVersion}), nil)
		_, _, _ = conn.Call(uverbs.Command(uverbs.CmdGetContext, 4096, uverbs.GetContext{}), nil)
		for range 2000 {
			b := make([]byte, 8+4*rng.IntN(64))
			for i := range b {
				b[i] = byte(rng.Uint32() >> (8 * rng.IntN(4)))
			}
			binary.NativeEndian.PutUint32(b, uint32(rng.IntN(256)))
			binary.NativeEndian.PutUint16(b[4:], uint16(len(b)/4))
			binary.NativeEndian.PutUint16(b[6:], 1024)
			_, fds, err := conn.Call(b, nil)
			for _, f := range fds {
				unix.Close(f.FD)
			}
			if err != nil && conn == nil {
				break
			}
		}
		conn.Close()
	}
}

// logs makes the daemon refuse things that it tells of.
func logs(runDir string, _ *rand.Rand) {
	for range 5000 {
		c, err := net.Dial("unixpacket", device(runDir, 0))
		if err != nil {
			continue
		}
		if c, err := net.Dial("unix", filepath.Join(runDir, api.Socket)); err == nil {
			defer c.Close()
		}
		defer c.Close()
	}
}

// traffic writes as fast as it can over many queue pairs.
func traffic(runDir string, _ *rand.Rand) {
	p, err := newPair(runDir, 16, 1<<20)
	if err != nil {
		return
	}
	defer p.close()
	for begun := time.Now(); time.Since(begun) < time.Second; {
		for i := range p.from {
			_ = p.post(i, 64<<10)
			_ = p.reap(i)
		}
	}
}
