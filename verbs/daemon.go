package verbs

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
)

// daemon is a device of roced.
type daemon struct {
	ctx   *Context
	conn  *uverbs.Conn
	bell  doorbell
	rings sharedFile
	local func() bool // runs a turn of the NIC; nil if the NIC is in another process
}

// newDaemon creates the backend of a connection, which it owns.
func newDaemon(conn *uverbs.Conn) *daemon { return &daemon{conn: conn, rings: newSharedFile()} }

func (d *daemon) open(c *Context) error {
	d.ctx = c
	if err := d.hello(); err != nil {
		return err
	}
	if err := c.getContext(); err != nil {
		return err
	}
	if err := d.getDoorbell(); err != nil {
		return err
	}
	d.requestReport()
	return nil
}

// hello verifies that the other end is a daemon with a compatible protocol version.
func (d *daemon) hello() error {
	const verb = "open_device"
	r, a, err := roundTrip[uverbs.HelloResp](d.ctx, verb, uverbs.ExtHello, uverbs.Hello{Version: uverbs.ExtVersion})
	if err != nil {
		return err
	}
	defer a.close()
	if d.rings.fd = a.take(uverbs.FDMemory, 0); d.rings.fd < 0 {
		return fail(verb, "memory for rings", ErrProtocol)
	}
	if err := d.rings.check(); err != nil {
		return fail(verb, "memory for rings", ErrProtocol)
	}
	if r.Version != uverbs.ExtVersion {
		return fail(verb, "version of the daemon", ErrProtocol)
	}
	d.ctx.name, d.ctx.profiles = uverbs.Text(r.Device[:]), splitList(uverbs.Text(r.Profiles[:]))
	return nil
}

// getDoorbell requests the doorbells of the context.
func (d *daemon) getDoorbell() error {
	const verb = "doorbell"
	r, a, err := roundTrip[uverbs.DoorbellResp](d.ctx, verb, uverbs.ExtDoorbell)
	if err != nil {
		return err
	}
	defer a.close()
	ev := a.take(uverbs.FDEventfd, 0)
	if ev < 0 || r.Size < uverbs.DoorbellSize {
		uverbs.CloseFDs([]int{ev})
		return fail(verb, "", ErrProtocol)
	}
	mem, err := d.rings.mmap(r.Offset, uverbs.DoorbellSize)
	if err != nil {
		uverbs.CloseFDs([]int{ev})
		return fail(verb, "", err)
	}
	d.bell = doorbell{mem: mem, fd: ev}
	return nil
}

func (d *daemon) call(cmd []byte, fds []int) ([]byte, []uverbs.FD, error) {
	return d.conn.Call(cmd, fds)
}

func (d *daemon) hangUp() error { return d.conn.Close() }

func (d *daemon) release() {
	d.bell.close(&d.rings)
	d.rings.close()
}

func (d *daemon) mmap(offset uint64, size uint32) ([]byte, error) { return d.rings.mmap(offset, size) }
func (d *daemon) unmap(mem []byte)                                { d.rings.unmap(mem) }
func (d *daemon) maxQP() uint32                                   { return uverbs.MaxQPHandle }
func (d *daemon) turn() bool                                      { return d.local != nil && d.local() }

func (d *daemon) ringBell(handle uint32) error {
	err := d.bell.ring(handle)
	d.turn()
	return err
}

// arm stores to the ring's memory.
func (d *daemon) arm(q *CQ, bits uint32) error {
	q.ring.RequestEvent(bits)
	return nil
}

// amend does nothing: the NIC fills in all fields.
func (d *daemon) amend([]WC) {}

func (d *daemon) clock() (ClockAttr, error) {
	r, err := alone(answered[uverbs.ExQueryDeviceResp](d.ctx, "query_device_ex",
		uverbs.ExCommand(uverbs.CmdQueryDevice, uverbs.Size[uverbs.ExQueryDeviceResp](), uverbs.ExQueryDevice{}), nil))
	return ClockAttr{Mask: r.TimestampMask, KHz: r.HCACoreClock}, err
}

func (d *daemon) share(fd int, base, length uint64) (handle uint32, err error) {
	r, err := alone(answered[uverbs.MapMemoryResp](d.ctx, "alloc_buffer", uverbs.Command(uverbs.ExtMapMemory,
		uverbs.Size[uverbs.MapMemoryResp](), uverbs.MapMemory{Base: base, Length: length}), []int{fd}))
	return r.Handle, err
}

func (d *daemon) unshare(handle uint32) error {
	return d.ctx.run("free_buffer", uverbs.ExtUnmapMemory, uverbs.UnmapMemory{Handle: handle})
}

// modify runs one command for all.
func (d *daemon) modify(cmds []uverbs.ModifyQP) error {
	if len(cmds) == 1 {
		return d.ctx.run("modify_qp", uverbs.CmdModifyQP, cmds[0])
	}
	bodies := make([]any, len(cmds))
	for i := range cmds {
		bodies[i] = cmds[i]
	}
	return d.ctx.run("modify_qp", uverbs.ExtModifyQPs, bodies...)
}

func (d *daemon) resizeSRQ(cmd uverbs.ModifySRQ) (uverbs.MMInfo, error) {
	r, err := ask[uverbs.ModifySRQResp](d.ctx, "modify_srq", uverbs.CmdModifySRQ, cmd)
	return r.MI, err
}

func (d *daemon) gid(port, index int) (GID, error) {
	r, err := ask[uverbs.QueryGIDResp](d.ctx, "query_gid", uverbs.ExtQueryGID, uverbs.QueryGID{Port: uint32(port), Index: uint32(index)})
	if err != nil {
		return GID{}, explain(err, fmt.Sprintf("port %d, index %d", port, index))
	}
	return r.GID, nil
}

func (d *daemon) setProfile(name string) error {
	const verb = "set_profile"
	var p uverbs.SetProfile
	if !uverbs.SetText(p.Profile[:], name) {
		return fail(verb, strconv.Quote(name), unix.EINVAL)
	}
	return explain(d.ctx.run(verb, uverbs.ExtSetProfile, p), strconv.Quote(name))
}

func (d *daemon) stats() ([]Stat, error) {
	const verb = "query_stats"
	const room = 128 // counters per response
	size := uverbs.Size[uverbs.Stat]()
	var out []Stat
	for {
		r, a, err := answered[uverbs.QueryStatsResp](d.ctx, verb, uverbs.Command(uverbs.ExtQueryStats,
			uverbs.Size[uverbs.QueryStatsResp]()+room*size, uverbs.QueryStats{First: uint32(len(out))}), nil)
		if err != nil {
			return nil, err
		}
		a.close()
		if uint64(len(a.rest)) < uint64(r.Count)*uint64(size) || r.More > 0 && r.Count == 0 {
			return nil, fail(verb, "response", ErrProtocol)
		}
		for i := range int(r.Count) {
			s, err := uverbs.Decode[uverbs.Stat](a.rest[i*size:])
			if err != nil {
				return nil, fail(verb, "response", ErrProtocol)
			}
			out = append(out, Stat{Name: uverbs.Text(s.Name[:]), Value: s.Value})
		}
		if r.More == 0 {
			return out, nil
		}
	}
}
