package siege

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/nldev"
	"roced.io/roced/internal/daemon/ucma"
	"roced.io/roced/verbs"
)

// attack is the action of a hostile program. The program repeats it until it is killed. Refused calls do not stop it.
type attack func(runDir string, rng *rand.Rand)

// attacks, by name. Each starts again when it returns.
var attacks = map[string]attack{
	"connections": connections, "objects": objects, "channels": channels, "flush": flush, "bells": bells,
	"memory": memory, "admin": admin, "commands": commands, "logs": logs, "traffic": traffic,
	"stops": traffic, "frames": frames, "segments": segments, "deaths": deaths, "withheld": withholding,
	"addresses": addresses, "backlog": backlog, "holes": holes, "netlink": lists,
}

// Programs for comparison with the victim: programs with the victim's traffic, and programs that also compute, as
// attackers do.
const (
	honest = "honest"
	busy   = "busy"
)

// compute occupies a processor and never returns.
func compute(rng *rand.Rand) {
	for {
		rng.Uint64()
	}
}

// write does the same as the victim.
func write(runDir string, _ *rand.Rand) {
	p, err := newPair(runDir, 1, 4096)
	if err != nil {
		return
	}
	defer p.close()
	for i := 0; ; i++ {
		if _, err := p.write(context.Background(), byte(i), 1024); err != nil {
			return
		}
	}
}

var native = binary.NativeEndian

// environment makes the test binary an attacker.
const environment = "ROCED_SIEGE"

// daemonEnv makes the test binary a daemon. Its value names the configuration.
const daemonEnv = "ROCED_SIEGE_DAEMON"

// twin distinguishes the two programs of an attack.
var twin uint64

// Main runs the attacker. A test binary calls it first in its TestMain.
func Main() {
	var name, runDir string
	var seed uint64
	if n, _ := fmt.Sscan(os.Getenv(environment), &name, &runDir, &seed, &shift); n != 4 {
		return
	}
	go func() { // exits with its parent
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}()
	twin = seed % 2
	do := attacks[name]
	if l, ok := parseLoad(name); ok {
		do = l.run
	}
	switch name {
	case honest:
		do = write
	case busy:
		do = write
		go compute(rand.New(rand.NewPCG(seed, 1)))
	}
	for rng := rand.New(rand.NewPCG(seed, 0)); ; {
		do(runDir, rng)
		time.Sleep(time.Millisecond)
	}
}

// shift moves the first device of an attacker.
var shift int

func device(runDir string, i int) string {
	return filepath.Join(runDir, fmt.Sprintf("uverbs%d", i+shift))
}

// some opens up to n contexts and returns those that opened.
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

// connections opens as many connections as possible to all sockets.
func connections(runDir string, _ *rand.Rand) {
	var list []net.Conn
	for _, name := range []string{"uverbs0", "uverbs1", ucma.Socket, nldev.Socket} {
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

// objects allocates as many protection domains, regions and completion queues as possible over several connections.
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

// raw is a context without the library. The attack writes its memory directly.
type raw struct {
	conn *uverbs.Conn
	mem  []byte // the first part of the context's memory, with small rings
	bell int    // the eventfd
	pd   uint32
}

// rawMem is the number of bytes that a raw context maps.
const rawMem = 16 << 20

func newRaw(runDir string) *raw {
	conn, err := uverbs.Dial(device(runDir, 0))
	if err != nil {
		return nil
	}
	r := &raw{conn: conn, bell: -1}
	_, file := r.call(uverbs.ExtHello, uverbs.Hello{Version: uverbs.ExtVersion})
	_, async := r.call(uverbs.CmdGetContext, uverbs.GetContext{})
	_, bell := r.call(uverbs.ExtDoorbell, struct{}{})
	pd, _ := r.call(uverbs.CmdAllocPD, uverbs.AllocPD{})
	if len(file) != 1 || len(async) != 1 || len(bell) != 1 || len(pd) < 4 {
		conn.Close()
		return nil
	}
	r.bell, r.pd = bell[0].FD, native.Uint32(pd)
	r.mem, err = unix.Mmap(file[0].FD, 0, rawMem, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	unix.Close(file[0].FD)
	unix.Close(async[0].FD)
	if err != nil {
		r.end()
		return nil
	}
	return r
}

func (r *raw) end() {
	r.conn.Close()
	unix.Close(r.bell)
	if r.mem != nil {
		_ = unix.Munmap(r.mem)
	}
}

// call executes a command. An empty response means that the daemon refused it.
func (r *raw) call(cmd uint32, body any) ([]byte, []uverbs.FD) {
	resp, fds, _ := r.conn.Call(uverbs.Command(cmd, 4096, body), nil)
	return resp, fds
}

// broken is a queue pair in the error state: the daemon flushes all its work requests.
type broken struct {
	*raw
	handle uint32
	sq, cq []byte // rings
}

// breakOne makes a broken queue pair. A channel that is not negative receives its completion events.
func (r *raw) breakOne(depth uint32, channel int32) *broken {
	resp, _ := r.call(uverbs.CmdCreateCQ, uverbs.CreateCQ{CQE: 2 * depth, CompChannel: channel})
	b := &broken{raw: r, cq: r.ring(resp)}
	if b.cq == nil {
		return nil
	}
	cq := native.Uint32(resp)
	resp, _ = r.call(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: r.pd, SendCQHandle: cq, RecvCQHandle: cq, MaxSendWR: depth,
		MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, QPType: 2})
	if b.sq = r.ring(resp); b.sq == nil {
		return nil
	}
	b.handle = native.Uint32(resp)
	r.call(uverbs.CmdModifyQP, uverbs.ModifyQP{QPHandle: b.handle, AttrMask: 1, QPState: 6})
	return b
}

// ring maps the ring that the end of a response describes.
func (r *raw) ring(resp []byte) []byte {
	size := uverbs.Size[uverbs.MMInfo]()
	if len(resp) < size {
		return nil
	}
	mi, err := uverbs.Decode[uverbs.MMInfo](resp[len(resp)-size:])
	if err != nil || mi.Offset+uint64(mi.Size) > rawMem {
		return nil
	}
	return r.mem[mi.Offset:][:mi.Size]
}

// Offsets in the headers of rings (docs/reference/control-protocol.md).
const (
	ringMask     = 4
	ringProducer = 128
	ringConsumer = 256
	ringArm      = 260
)

// fill reaps all completions, arms the completion queue, posts n work requests with the ring's current contents, and
// rings the doorbell.
func (b *broken) fill(n uint32) {
	native.PutUint32(b.cq[ringConsumer:], native.Uint32(b.cq[ringProducer:]))
	native.PutUint32(b.cq[ringArm:], 1)
	mask := native.Uint32(b.sq[ringMask:])
	native.PutUint32(b.sq[ringProducer:], (native.Uint32(b.sq[ringConsumer:])+min(n, mask))&mask)
}

// channels makes completion events in many channels and reads none.
func channels(runDir string, _ *rand.Rand) {
	r := newRaw(runDir)
	if r == nil {
		return
	}
	defer r.end()
	var list []*broken
	for range 60 { // few enough that all fill up soon
		resp, fds := r.call(uverbs.CmdCreateCompChannel, uverbs.CreateCompChannel{})
		if len(fds) != 1 {
			break
		}
		defer unix.Close(fds[0].FD)
		if b := r.breakOne(16, int32(native.Uint32(resp))); b != nil {
			list = append(list, b)
		}
	}
	r.fillAll(list, 1)
}

// flush posts to many broken queue pairs as fast as the daemon flushes them.
func flush(runDir string, _ *rand.Rand) {
	r := newRaw(runDir)
	if r == nil {
		return
	}
	defer r.end()
	var list []*broken
	for range 64 {
		if b := r.breakOne(1024, -1); b != nil {
			list = append(list, b)
		}
	}
	r.fillAll(list, 1<<20)
}

// fillAll posts n work requests to each queue pair of list repeatedly for a second.
func (r *raw) fillAll(list []*broken, n uint32) {
	for begun := time.Now(); time.Since(begun) < time.Second; {
		for _, b := range list {
			b.fill(n)
			r.name(b.handle)
		}
		_, _ = unix.Write(r.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func orWord(mem []byte, off int, bits uint64) {
	atomic.OrUint64((*uint64)(unsafe.Pointer(&mem[off])), bits)
}

// bells overwrites the whole memory of a context at random, including doorbells and rings.
func bells(runDir string, rng *rand.Rand) {
	r := newRaw(runDir)
	if r == nil {
		return
	}
	defer r.end()
	for range 64 {
		r.breakOne(64, -1)
	}
	const size = 1 << 20
	for range 200_000 {
		native.PutUint64(r.mem[rng.IntN(size/8)*8:], rng.Uint64())
		if rng.IntN(1000) == 0 {
			_, _ = unix.Write(r.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}
	}
}

// memory maps, touches and unmaps memory.
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

// admin holds idle connections to the admin interface, which its user may not use.
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

// lists floods RDMA netlink: over many connections it requests long lists of objects, and reads no answer.
func lists(runDir string, rng *rand.Rand) {
	list := some(runDir, 1)
	defer end(list)
	for _, c := range list {
		for range 4000 {
			if _, err := c.AllocPD(); err != nil {
				break
			}
		}
	}
	var request []byte
	for len(request) < nldev.MaxRequest {
		request = native.AppendUint32(request, unix.NLMSG_HDRLEN)
		request = native.AppendUint16(request, uint16(5<<10|9+rng.IntN(6))) // RDMA_NLDEV_CMD_RES_GET to RES_PD_GET
		request = native.AppendUint16(request, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
		request = append(request, make([]byte, 8)...)
	}
	var conns []net.Conn
	for range 200 {
		c, err := net.Dial("unixpacket", filepath.Join(runDir, nldev.Socket))
		if err != nil {
			break
		}
		conns = append(conns, c)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte{0}) // all NICs
		_, _ = c.Write(request)
	}
	time.Sleep(200 * time.Millisecond)
	for _, c := range conns {
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
			native.PutUint32(b, uint32(rng.IntN(256)))
			native.PutUint16(b[4:], uint16(len(b)/4))
			native.PutUint16(b[6:], 1024)
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

// logs causes refusals that the daemon logs.
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

// traffic writes at full speed over many queue pairs.
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
