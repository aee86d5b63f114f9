package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"roced.io/roced/verbs"
)

// netemLines are the settings of tc netem, applied in both directions.
var netemLines = []string{
	"", // nothing, to compare with
	"loss 0.1%",
	"loss 1%",
	"loss 5%",
	"delay 2ms 1ms",
	"delay 1ms reorder 25% gap 5",
	"duplicate 10%",
	"corrupt 1%",
	"loss 1% delay 1ms reorder 25% gap 5 duplicate 1% corrupt 0.1%",
}

const netemIntro = "Inside the machine, on its network card and on a veth pair between two rxe devices. Data: 48 requests of all\n" +
	"kinds that are outstanding together, in order, exactly once, byte by byte. Throughput: WRITEs of 64 KiB, 16 at a\n" +
	"time, path MTU 1024, that completed. Where rxe's requests to us fail, rxe's to rxe are tried."

// shortNetemLines are the sample for the short form.
var shortNetemLines = []string{netemLines[0], netemLines[2], netemLines[len(netemLines)-1]}

// netem is the part under tc netem.
type netem struct {
	lines []string
	time  time.Duration // of a throughput measurement
	seed  uint64
}

// run runs all lines.
func (n netem) run(l *lab, r *report) {
	if err := l.redirectIngress(); err != nil {
		r.failed("netem", err)
		return
	}
	r.begin(table{Title: "tc netem", Intro: netemIntro, Head: []string{"netem, both directions", "data, we request", "data, we respond",
		"roced to rxe, MB/s", "rxe to roced, MB/s", "rxe to rxe, MB/s"}})
	for _, line := range n.lines {
		if err := l.setNetem(line); err != nil {
			r.failed("netem "+line, err)
			continue
		}
		n.seed++
		row := []string{"`" + line + "`"}
		if line == "" {
			row[0] = "none"
		}
		pairs := [][2]end{{l.ours[linkUnix], l.rxe[linkUnix]}, {l.rxe[linkUnix], l.ours[linkUnix]}, {l.pair[0], l.pair[1]}}
		for i, name := range []string{"we request", "we respond"} {
			b := newBatch(n.seed)
			result, err := b.run(pairs[i][0], pairs[i][1])
			if err != nil && pairs[i][0] != l.ours[linkUnix] && n.alone(pairs[2]) {
				result, err = "rxe fails, with itself too", nil
			}
			if err != nil {
				r.failed(fmt.Sprintf("netem %q, %s, seed %d", line, name, n.seed), err)
				result = "**differs**"
			}
			row = append(row, result)
		}
		for _, p := range pairs {
			rate, err := n.rate(p[0], p[1])
			if err != nil {
				r.failed(fmt.Sprintf("netem %q, throughput", line), err)
			}
			row = append(row, rate)
		}
		r.row(row...)
	}
	if err := l.setNetem(""); err != nil {
		r.failed("netem", err)
	}
}

// trialsAlone is the maximum number of attempts to make rxe fail with itself.
const trialsAlone = 5

// alone reports whether rxe also fails with itself, as rxe of Linux 6.12 does under reordering. Its requests complete
// as flushed without a failed request, and its atomics return the values before other atomics.
func (n netem) alone(rxe [2]end) bool {
	for i := range uint64(trialsAlone) {
		if _, err := newBatch(n.seed+i).run(rxe[0], rxe[1]); err != nil {
			return true
		}
	}
	return false
}

// redirectIngress passes the ingress of eth0 through ifb0, because netem applies to egress. It does so once.
func (l *lab) redirectIngress() error {
	_, err := l.vm.Shell(`set -e; tc qdisc show dev eth0 | grep -q ingress && exit
ip link set ifb0 mtu 4200 up; tc qdisc add dev eth0 ingress
tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0`, commandLimit)
	return err
}

// setNetem applies a line in both directions of eth0 and of the veth pair.
func (l *lab) setNetem(line string) error {
	_, err := l.vm.Shell(netemScript(line, "dev eth0", "dev ifb0", "dev veth0", "dev veth1"), commandLimit)
	return err
}

// netemScript applies a line to devices, or removes it if it is empty. A device is an argument of tc(8): "dev NAME",
// with "-n NAMESPACE" in front in another namespace.
func netemScript(line string, devices ...string) string {
	var script strings.Builder
	for _, d := range devices {
		at := strings.LastIndex(d, "dev ")
		fmt.Fprintf(&script, "tc %sqdisc del %s root 2>/dev/null; ", d[:at], d[at:])
		if line != "" {
			fmt.Fprintf(&script, "tc %sqdisc add %s root netem limit 10000 %s || exit 1; ", d[:at], d[at:], line)
		}
	}
	return script.String() + "true"
}

// Devices of netemScript.
var (
	pairDevices  = []string{"dev veth0", "dev veth1"}       // of rxe (pairScript)
	setupDevices = []string{"-n s1 dev v0", "-n s2 dev v0"} // of ours (setup)
)

// settings returns the settings under netem, with a short retry timeout because retries are common.
func (n netem) settings() settings {
	s := tolerantSettings(verbs.RC, verbs.MTU1024, false)
	s.Timeout = 14 // 67 ms
	return s
}

// rate measures the throughput of WRITEs of 64 KiB that complete in the given time.
func (n netem) rate(req, resp end) (string, error) {
	const size, depth = 64 << 10, 16
	c, err := connect(req, resp, n.settings())
	if err != nil {
		return "", errors.Join(err, c.Close())
	}
	s, err := req.Stream(work{Op: verbs.OpWrite, Off: sendArea, Len: size, Remote: recvArea}, depth, n.time)
	if err == nil && s.Status != verbs.StatusSuccess {
		return s.Status.String(), c.Close()
	}
	return fmt.Sprintf("%.2f", float64(s.Done*size)/1e6/s.Time.Seconds()), errors.Join(err, c.Close())
}

// batch is a mixture of requests that are in flight at the same time. Each has memory of its own.
type batch struct {
	works []work
}

const (
	batchLen   = 48
	batchSlot  = 20 << 10
	batchAdded = 3 // by each FETCH_ADD
)

func newBatch(seed uint64) batch {
	rng := rand.New(rand.NewPCG(seed, 0))
	ops := []verbs.Opcode{verbs.OpWrite, verbs.OpSend, verbs.OpRead, verbs.OpWriteImm, verbs.OpFetchAdd}
	var b batch
	for i := range batchLen {
		w := work{ID: uint64(i), Op: ops[rng.IntN(len(ops))], Len: rng.IntN(batchSlot), Imm: uint32(i),
			Off: sendArea + i*batchSlot, Remote: recvArea + i*batchSlot}
		switch w.Op {
		case verbs.OpRead: // in the opposite direction
			w.Off, w.Remote = w.Remote, w.Off
		case verbs.OpFetchAdd:
			w.Off, w.Len, w.Remote, w.Compare = wordArea+8+8*i, 8, wordArea, batchAdded
		}
		b.works = append(b.works, w)
	}
	return b
}

// batchLimit is the time limit of a batch. With the worst line some batches take ten seconds.
const batchLimit = 90 * time.Second

// run runs the batch. Either all data arrive, or the requester reports that its retries are exhausted, as RC promises.
func (b batch) run(req, resp end) (string, error) {
	c, err := connect(req, resp, netem{}.settings())
	if err == nil {
		err = b.start(c)
	}
	var wcs []verbs.WC
	if err == nil {
		wcs, err = req.Poll(len(b.works), batchLimit)
	}
	if err == nil && len(wcs) < len(b.works) {
		err = fmt.Errorf("%d of %d completions", len(wcs), len(b.works))
	}
	result := "arrived"
	if err == nil {
		result, err = b.verify(c, wcs)
	}
	return result, errors.Join(err, c.Close())
}

// start fills the memory and posts all requests.
func (b batch) start(c connection) error {
	errs := []error{c.resp.SetWord(wordArea, 0)}
	for i, w := range b.works {
		seed := uint64(i + 1)
		switch {
		case w.Op == verbs.OpRead:
			errs = append(errs, c.resp.Fill(w.Remote, w.Len, seed, 0))
		case !isAtomic(w.Op):
			errs = append(errs, c.req.Fill(w.Off, w.Len, seed, 0), c.resp.Fill(w.Remote, w.Len, ^seed, 0))
		}
		if takesReceive(w.Op) {
			errs = append(errs, c.resp.Recv(uint64(i), w.Remote, w.Len))
		}
	}
	for _, w := range b.works {
		errs = append(errs, c.req.Send(w))
	}
	return errors.Join(errs...)
}

// verify checks completions and data.
func (b batch) verify(c connection, wcs []verbs.WC) (string, error) {
	for _, wc := range wcs {
		if wc.Status == verbs.StatusRetryExcErr || wc.Status == verbs.StatusRNRRetryExcErr {
			return wc.Status.String(), inState(c.req, verbs.QPErr)
		}
		if err := wc.Err(); err != nil {
			return "", err
		}
	}
	added := uint64(0)
	receives := 0
	for i, w := range b.works {
		var err error
		switch {
		case w.Op == verbs.OpRead:
			err = c.req.Check(w.Off, w.Len, uint64(i+1), 0)
		case isAtomic(w.Op):
			var before uint64
			if before, err = c.req.Word(w.Off); err == nil && before != added {
				err = fmt.Errorf("returned %d, want %d", before, added)
			}
			added += batchAdded
		default:
			err = c.resp.Check(w.Remote, w.Len, uint64(i+1), 0)
		}
		if takesReceive(w.Op) {
			receives++
		}
		if err != nil {
			return "", fmt.Errorf("request %d, %s of %d bytes: %w", i, opNames[w.Op], w.Len, err)
		}
	}
	if sum, err := c.resp.Word(wordArea); err != nil || sum != added {
		return "", errors.Join(err, fmt.Errorf("the counter is %d, want %d", sum, added))
	}
	return "arrived", b.received(c, receives)
}

// received checks that there is exactly one completion for each receive, in order.
func (b batch) received(c connection, n int) error {
	wcs, err := c.resp.Poll(n+1, time.Second)
	if err != nil || len(wcs) != n {
		return errors.Join(err, fmt.Errorf("%d receives completed, want %d", len(wcs), n))
	}
	for i, wc := range wcs {
		if wc.Err() != nil || i > 0 && wc.WRID <= wcs[i-1].WRID {
			return fmt.Errorf("receive %d after %d: %w", wc.WRID, wcs[max(i-1, 0)].WRID, wc.Err())
		}
	}
	return nil
}
