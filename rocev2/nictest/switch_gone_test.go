package nictest

import (
	"bytes"
	"runtime/debug"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// vanishing is memory whose pages go after View has found them.
type vanishing struct {
	*rocev2.Bytes
	mem []byte
}

func (v vanishing) View(off uint64, n int) ([]byte, bool) { return v.mem[off:][:n:n], true }

// TestSwitchSenderFreesPages sends memory whose second half has gone, to each kind of memory. The packets with its bytes
// are lost, as on a link, and the sender gives up. The receiver gets no wrong byte, and is not at fault.
func TestSwitchSenderFreesPages(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	const page = 4096
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	for i := range mem {
		mem[i] = 7
	}
	if err := unix.Mprotect(mem[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{}, {Remote: true}, {Deferred: true}} {
		o.Seed, o.Switch = 1, &rocev2.Switch{}
		p := New(t, o)
		a, b := p.RC(func(q *QPOptions) { q.MTU, q.RetryCnt = 4, 1 })
		dst := p.B.Buffer(2 * page)
		dst.Fill(1)
		old := bytes.Clone(dst.B)
		mr, err := p.A.NIC.RegMR(p.A.PD, rocev2.MRAttr{Length: 2 * page, Access: AllAccess, Mem: vanishing{rocev2.NewBytes(mem), mem}})
		if err != nil {
			t.Fatal(err)
		}
		b.PostRecv(1, dst.SGE())
		a.Post(Send(1, qp.SGE{LKey: mr.LKey, Length: 2 * page}))
		c := a.SendCQ.Wait()
		if c.Status != qp.StatusRetryExcErr || !bytes.Equal(dst.B[page:], old[page:]) {
			t.Errorf("remote %v, deferred %v: status %v", o.Remote, o.Deferred, c.Status)
		}
		healthy(t, &o, b)
	}
}

// healthy reports a fault if q has completed its receive or broken, or if its NIC found faults of memory.
func healthy(t *testing.T, o *Options, q *QP) {
	t.Helper()
	if q.RecvCQ.Len() != 0 || q.State() != qp.RTS || q.Node.Counter("memory_faults") != 0 {
		t.Errorf("remote %v, deferred %v: receiver in state %v", o.Remote, o.Deferred, q.State())
	}
}

// leaving is memory of which all goes but the byte that a sender looks at.
type leaving struct{ *RemoteMemory }

func (l leaving) Read(off uint64, p []byte) bool { return len(p) == 1 && l.RemoteMemory.Read(off, p) }

// TestSwitchSenderGoes sends from the memory of a program that goes in the middle, to each kind of memory, and reads from
// it. The message fails as on a link, and no byte of the buffer changes.
func TestSwitchSenderGoes(t *testing.T) {
	const size = 1 << 15
	for _, profile := range []string{"rc", "irn", "mp-rdma"} {
		for _, o := range []Options{{}, {Remote: true}, {Deferred: true}} {
			for _, read := range []bool{false, true} {
				o.Seed, o.Switch = 1, &rocev2.Switch{}
				p := New(t, o)
				a, b := p.RC(func(q *QPOptions) { q.Profile = profile })
				from, to := p.A, p.B
				if read {
					from, to = to, from
				}
				dst := to.Buffer(size)
				dst.Fill(1)
				want := bytes.Clone(dst.B)
				mem := leaving{&RemoteMemory{Bytes: rocev2.NewBytes(bytes.Repeat([]byte{7}, size))}}
				mr, err := from.NIC.RegMR(from.PD, rocev2.MRAttr{Length: size, Access: AllAccess, Mem: mem})
				if err != nil {
					t.Fatal(err)
				}
				statuses := []qp.Status{qp.StatusLocProtErr}
				if read { // a lost response may hide the refusal of the next one
					statuses = []qp.Status{qp.StatusRemAccessErr, qp.StatusRetryExcErr}
					a.Post(Read(1, Remote{RKey: mr.RKey}, dst.SGE()))
				} else {
					b.PostRecv(1, dst.SGE())
					a.Post(Send(1, qp.SGE{LKey: mr.LKey, Length: size}))
				}
				c := a.SendCQ.Wait()
				if !slices.Contains(statuses, c.Status) || !bytes.Equal(dst.B, want) || from.Counter("memory_faults") == 0 || to.Counter("memory_faults") != 0 {
					t.Errorf("%s, read %v, remote %v, deferred %v: %v", profile, read, o.Remote, o.Deferred, c.Status)
				}
				if !read {
					healthy(t, &o, b)
				}
			}
		}
	}
}
