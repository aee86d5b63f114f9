package nic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/internal/lab/netlab"
)

// Lines of scale.
const (
	scaleAnon     = "RssAnon of the daemon for a connected RC QP, of 10,000"
	scaleShmem    = "ring pages for such a QP"
	scaleAnonMany = "RssAnon of the daemon for a connected RC QP, of 50,000 of 16 programs"
	scaleMake     = "QPs made and connected a second, 16 programs"
	scaleWrites   = "WRITEs of 50,000 QPs, one each"
	scaleOne      = "rdma_cm, one connection after another, with their QPs"
	scaleMany     = "rdma_cm, 16 connections at a time, with their QPs"
	scaleCPU      = ": CPU of all four processes for one"
	scaleHeldQPs  = "rdma_cm, 16 connections at a time, with QPs that are there"
)

// workers is a set of programs with the same task, in pairs across the two hosts.
type workers struct {
	pairs [][2]*process
}

// process is one program of a pair.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder
}

// startWorker starts this executable again as a worker.
func startWorker(h *netlab.Host, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	x := &process{cmd: exec.Command(self, append([]string{"worker", h.RunDir, h.Device}, args...)...)}
	x.cmd.Stderr = os.Stderr
	if x.in, err = x.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	x.enc, x.dec = json.NewEncoder(x.in), json.NewDecoder(out)
	return x, x.cmd.Start()
}

// end tells the program to end, and waits for it.
func (h *process) end() error {
	h.in.Close()
	return h.cmd.Wait()
}

// startPairs makes n pairs of programs. Each program has count connected queue pairs.
func (b *bench) startPairs(n, count int) (*workers, error) {
	c := &workers{}
	for range n {
		var p [2]*process
		for i := range p {
			h, err := startWorker(b.lab.Host[i], "hold", strconv.Itoa(count))
			if err != nil {
				return c, err
			}
			p[i] = h
		}
		c.pairs = append(c.pairs, p)
	}
	for _, p := range c.pairs {
		if err := p[0].exchange(p[1]); err != nil {
			return c, err
		}
	}
	return c, c.each(nil)
}

// exchange passes the output line of each program to the other.
func (h *process) exchange(o *process) error {
	var a, b json.RawMessage
	return errors.Join(h.dec.Decode(&a), o.dec.Decode(&b), h.enc.Encode(b), o.enc.Encode(a))
}

// each sends the request, if any, to the programs of the first host, and waits until all programs are done.
func (c *workers) each(what any) error {
	for _, p := range c.pairs {
		if what != nil {
			if err := p[0].enc.Encode(what); err != nil {
				return err
			}
		}
	}
	for _, p := range c.pairs {
		for i, h := range p {
			var done bool
			if what != nil && i > 0 {
				continue
			}
			if err := h.dec.Decode(&done); err != nil {
				return fmt.Errorf("a worker: %w", err)
			}
		}
	}
	return nil
}

func (c *workers) end() (err error) {
	for _, p := range c.pairs {
		err = errors.Join(err, p[0].end(), p[1].end())
	}
	return err
}

// resident returns the bytes of one kind of the daemon's memory.
func resident(pid int, kind string) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == kind+":" {
			kb, err := strconv.Atoi(f[1])
			return float64(kb) * 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in the daemon's status", kind)
}

// settle is the idle time before the measurement of a daemon's memory.
const settle = 5 * time.Second

// scale measures the cost of many queue pairs.
func (b *bench) scale() error {
	pid := b.lab.Host[0].PID()
	for _, v := range []struct {
		programs, qps int
		anon          string
	}{{4, 2500, scaleAnon}, {16, 3125, scaleAnonMany}} {
		anon, err1 := resident(pid, "RssAnon")
		shmem, err2 := resident(pid, "RssShmem")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		begun := time.Now()
		c, err := b.startPairs(v.programs, v.qps)
		if err != nil {
			return errors.Join(err, c.end())
		}
		took := time.Since(begun)
		time.Sleep(settle)
		n := float64(v.programs * v.qps)
		anon2, err1 := resident(pid, "RssAnon")
		shmem2, err2 := resident(pid, "RssShmem")
		b.add(v.anon, "B", (anon2-anon)/n)
		if v.anon == scaleAnon {
			b.add(scaleShmem, "B", (shmem2-shmem)/n)
		} else {
			b.add(scaleMake, "1/s", 2*n/took.Seconds())
			begun = time.Now()
			err = c.each("write")
			b.add(scaleWrites, "s", time.Since(begun).Seconds())
		}
		if err := errors.Join(err, err1, err2, c.end()); err != nil {
			return err
		}
	}
	return nil
}

// connections measures connection setup by rdma_cm.
func (b *bench) connections() error {
	for _, v := range []struct {
		name, kind string
		parallel   int
	}{{scaleOne, "new", 1}, {scaleMany, "new", 16}, {scaleHeldQPs, "old", 16}} {
		var costs []float64
		err := b.median(v.name, "1/s", func() (float64, error) {
			rate, cost, err := b.connectRate(v.kind, v.parallel)
			costs = append(costs, float64(cost.Microseconds()))
			return rate, err
		})
		if err != nil {
			return err
		}
		b.add(v.name+scaleCPU, "us", costs...)
	}
	return nil
}

// connectRate makes a client connect to a server for a while. The cost of a connection is the CPU time of both daemons
// and both programs.
func (b *bench) connectRate(kind string, parallel int) (rate float64, cost time.Duration, err error) {
	var server, client *process
	before, err := b.daemonsTime()
	if err != nil {
		return 0, 0, err
	}
	if server, err = startWorker(b.lab.Host[1], "accept", kind, strconv.Itoa(parallel)); err != nil {
		return 0, 0, err
	}
	var addr string
	if err = server.dec.Decode(&addr); err == nil {
		client, err = startWorker(b.lab.Host[0], "dial", kind, strconv.Itoa(parallel), addr, strconv.Itoa(b.Seconds))
	}
	var done dialed
	if err == nil {
		err = errors.Join(client.dec.Decode(&done), client.end())
	}
	if err = errors.Join(err, server.end()); err != nil {
		return 0, 0, err
	}
	after, err := b.daemonsTime()
	used := after - before
	for _, h := range []*process{server, client} {
		used += h.cmd.ProcessState.UserTime() + h.cmd.ProcessState.SystemTime()
	}
	return done.Rate, used / time.Duration(max(1, done.Count)), err
}

// daemonsTime returns the CPU time of both daemons.
func (b *bench) daemonsTime() (used time.Duration, err error) {
	for _, h := range b.lab.Host {
		t, err := cpuOf(h.PID())
		if err != nil {
			return 0, err
		}
		used += t
	}
	return used, nil
}
