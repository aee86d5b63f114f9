package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/verbs"
)

// matrix selects the cases to run.
type matrix struct {
	links   []int
	mtus    []verbs.MTU
	large   bool  // 8 MiB in every combination, not only over IPv4 at path MTU 1024
	sampled []int // links that are tested at one path MTU only
	seed    uint64
}

// services are the transport services, in the document's order.
var services = []verbs.QPType{verbs.RC, verbs.UC, verbs.UD}

// operations lists the operations of each transport service.
var operations = map[verbs.QPType][]verbs.Opcode{
	verbs.RC: {verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead, verbs.OpFetchAdd,
		verbs.OpCmpSwap, verbs.OpSendWithInv},
	verbs.UC: {verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm},
	verbs.UD: {verbs.OpSend, verbs.OpSendImm},
}

// sizes returns the message sizes of an operation.
func (m *matrix) sizes(op verbs.Opcode, s settings) []int {
	if isAtomic(op) {
		return []int{8}
	}
	mtu := bytesOf(s.MTU)
	list := []int{0, 1, 3, mtu - 1, mtu}
	if s.Type == verbs.UD {
		return list
	}
	list = append(list, mtu+1, 64<<10)
	if m.large || s.MTU == verbs.MTU1024 && !s.IPv6 {
		list = append(list, maxMessage)
	}
	return list
}

func bytesOf(m verbs.MTU) int { return 128 << m }

// run runs the matrix.
func (m *matrix) run(l *lab, r *report) {
	for _, link := range m.links {
		for _, typ := range services {
			for _, v6 := range []bool{false, true} {
				for _, mtu := range m.mtusOf(link) {
					s := tolerantSettings(typ, mtu, v6)
					m.cell(r, kind{Type: typ, Link: link}, l.ours[link], l.rxe[link], s)
					m.cell(r, kind{Type: typ, Link: link, WeRespond: true}, l.rxe[link], l.ours[link], s)
				}
			}
		}
	}
}

func (m *matrix) mtusOf(link int) []verbs.MTU {
	if slices.Contains(m.sampled, link) {
		return m.mtus[len(m.mtus)-1:]
	}
	return m.mtus
}

// portTaken starts a daemon on UDP sockets in the machine, where rxe has the port of RoCEv2 on all addresses. The error
// message must name the likely owner of the port.
func portTaken(l *lab, r *report) {
	out, err := l.vm.Shell(`echo 'run_dir: /tmp/taken
nics: [{name: rxe_u, port: {type: udp, interface: eth0}}]' >/tmp/taken.yaml; timeout 10 roced run --config /tmp/taken.yaml 2>&1; echo exit $?`, commandLimit)
	if err == nil && (!strings.Contains(out, "UDP port 4791 is taken: by a NIC of the kernel (rdma link show)") || !strings.Contains(out, "exit 1")) {
		err = fmt.Errorf("roced says %q", out)
	}
	if err != nil {
		r.failed("UDP sockets beside rxe", err)
	}
}

// singleWrites shows that the NIC of linkSingle sends a WRITE as WRITEs of one packet, by a capture.
func singleWrites(l *lab, r *report) {
	seen, err := l.capturedWrites(linkSingle, 64<<10)
	if want := []bth.Opcode{bth.OpWriteOnly}; err == nil && !slices.Equal(seen, want) {
		err = fmt.Errorf("the packets of a WRITE are %v, want %v", seen, want)
	}
	if err != nil {
		r.failed("write_segments: single", err)
	}
}

// capturedWrites sends a WRITE of ours and returns the different opcodes of its packets, in their order.
func (l *lab) capturedWrites(link, size int) (seen []bth.Opcode, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	stream, err := api.NewClient(filepath.Join(l.host.RunDir, api.Socket)).Capture(ctx, roceName(link))
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	s := tolerantSettings(verbs.RC, verbs.MTU4096, false)
	c, err := connect(l.ours[link], l.rxe[link], s)
	if err == nil {
		err = transfer{op: verbs.OpWrite, size: size, seed: 1}.run(c, commandLimit)
	}
	if err = errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	frames, err := pcapng.NewReader(stream)
	for left := size / bytesOf(s.MTU); err == nil && left > 0; {
		var f pcapng.Frame
		if err = frames.Next(&f); err != nil {
			break
		}
		if p, ok := parse(f.Data); ok && p.Opcode.IsWrite() {
			left--
			if !slices.Contains(seen, p.Opcode) {
				seen = append(seen, p.Opcode)
			}
		}
	}
	return seen, err
}

// caseLimit is the time limit of a case: 8 MiB take a second on an otherwise idle machine. Messages of unreliable
// services arrive soon or never.
func caseLimit(t verbs.QPType) time.Duration {
	if t == verbs.RC {
		return 60 * time.Second
	}
	return 10 * time.Second
}

// attempts is the maximum number of transmissions of a lost message. The emulated machine is slow and drops packets
// when its buffers are full.
func attempts(t verbs.QPType) int {
	if t == verbs.RC {
		return 1
	}
	return 4
}

// cell runs all operations and sizes over one queue pair. After a failure the next case gets a new queue pair.
func (m *matrix) cell(r *report, k kind, req, resp end, s settings) {
	p := &peers{req: req, resp: resp, s: s}
	for _, op := range operations[s.Type] {
		k.Op = op
		row := r.of(k)
		for _, size := range m.sizes(op, s) {
			m.seed++
			begin := time.Now()
			err := m.attempt(p, transfer{op: op, size: size, seed: mix(m.seed) >> 1}, row)
			row.Cases++
			row.Bytes += int64(size)
			row.Time += time.Since(begin)
			if err != nil {
				row.Wrong++
				r.failed(fmt.Sprintf("%v, IPv6 %t, path MTU %d, %d bytes, seed %d", k, s.IPv6, bytesOf(s.MTU), size, m.seed), err)
			}
		}
	}
	if err := p.close(); err != nil {
		r.failed(fmt.Sprintf("%v: close", k), err)
	}
}

// attempt runs a case, and repeats it if its message is lost.
func (m *matrix) attempt(p *peers, t transfer, row *tally) error {
	for left := attempts(p.s.Type); ; left-- {
		err := p.open()
		if err == nil {
			err = t.run(p.c, caseLimit(p.s.Type))
		}
		if err == nil {
			return nil
		}
		err = errors.Join(err, p.close())
		if !errors.Is(err, errLost) || left == 1 {
			return err
		}
		row.Lost++
	}
}

// peers are two ends and the connection between them, if any.
type peers struct {
	req, resp end
	s         settings
	c         connection
	up        bool
}

func (p *peers) open() (err error) {
	if !p.up {
		p.up = true
		p.c, err = connect(p.req, p.resp, p.s)
	}
	return err
}

func (p *peers) close() error {
	if !p.up {
		return nil
	}
	p.up = false
	return p.c.Close()
}
