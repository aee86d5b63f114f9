package qp

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/reorder"
)

// multipath returns a profile of MP-RDMA with L tracked packets, these path parameters and this congestion control,
// in both directions.
func multipath(length int, p path.Params, control string, c ccalgo.Params) func() Profile {
	l := reorder.Params{"bitmap_slots": float64(length)}
	return func() Profile {
		return Profile{Kind: bth.ProfileMPRDMA, Traits: Traits{PerPacket: true}, Tracker: tracker("mp-rdma", l), Recovery: recovery("mp-rdma", nil),
			Controller: plugIn(ccalgo.New, control, c), Paths: plugIn(path.New, "mp-rdma", p),
			ResponseTracker: tracker("mp-rdma", l), ResponseRecovery: recovery("mp-rdma", nil),
			ResponseControl: plugIn(ccalgo.New, control, c), ResponsePaths: plugIn(path.New, "mp-rdma", p)}
	}
}

// control begins with a window that fits into L. With a larger window the first congestion signal would be a loss.
var control = ccalgo.Params{"iw_packets": 20}

// equalLinks returns n links like those of path's loop. A packet takes 800 ns, the round trip is 16 us, and a link
// marks packets when more than 20 are queued.
func equalLinks(n int) []link {
	return slices.Repeat([]link{{delay: 7 * time.Microsecond, perPacket: 800 * time.Nanosecond, markAt: 16 * time.Microsecond}}, n)
}

// changed returns r with f applied to the last link.
func changed(r []link, f func(*link)) []link {
	f(&r[len(r)-1])
	return r
}

// Length of the requests of moving, in bytes and in packets.
const (
	moveLength  = 1 << 16
	movePackets = moveLength / 256
)

// unequalLinks returns links whose round trips differ by up to 6 us.
func unequalLinks() []link {
	r := equalLinks(4)
	for i := range r {
		r[i].delay += time.Duration(i) * time.Microsecond
	}
	return r
}

// reading returns a pair whose first end reads n times 64 KiB of the second's memory.
func reading(t *testing.T, c pairConfig, n int) *pair { return moving(t, c, WRRead, n) }

// moving returns a pair whose first end reads or writes n times 64 KiB.
func moving(t *testing.T, c pairConfig, op WROpcode, n int) *pair {
	return movingIn(t, c, op, n, moveLength)
}

// movingIn is moving with requests of another length, at most 64 KiB.
func movingIn(t *testing.T, c pairConfig, op WROpcode, n int, length uint32) *pair {
	c.unacked, c.rd, c.retry, c.rnrRetry = 1<<14, 4, 7, 7
	c.timeout = 12 // 17 ms: longer than the queueing delay of a slow link
	p := newPair(t, c)
	h, from, to := p.ends[0].h, p.ends[1].h.mem, p.ends[0].h.mem
	if op == WRWrite {
		from, to = to, from
	}
	for i := range from {
		from[i] = byte(i>>8*31 + i*7)
	}
	clear(to)
	for i := range n {
		at := memBase + uint64(i%2*moveLength)
		h.queue = append(h.queue, SendWQE{WRID: uint64(i), Opcode: op, Length: length, RemoteVA: at, RKey: 5, SGEs: []SGE{{at, length, 1}}})
	}
	return p
}

// checkMoved checks that all requests of moving took effect once, in order, byte for byte.
func checkMoved(t *testing.T, p *pair, n int) {
	t.Helper()
	h := p.ends[0].h
	if len(h.sendCQ) != n {
		t.Fatalf("%d completions of %d\n%s", len(h.sendCQ), n, p.tail())
	}
	for i, c := range h.sendCQ {
		if c.WRID != uint64(i) || c.Status != StatusSuccess {
			t.Fatalf("request %d completed as %+v", i, c)
		}
	}
	if end := min(n, 2) * moveLength; !bytes.Equal(h.mem[:end], p.ends[1].h.mem[:end]) {
		t.Fatal("data differ")
	}
}

// TestSelectiveRTT: on paths of different delay, a cumulative acknowledgement measures the slower ones. The acknowledgement of
// the timed packet itself measures its own path.
func TestSelectiveRTT(t *testing.T) {
	mean := func(selective bool) float64 {
		profile := multipath(64, nil, "mp-rdma", control)
		p := moving(t, pairConfig{links: unequalLinks(), profile: func() Profile {
			p := profile()
			p.Traits.SelectiveRTT = selective
			return p
		}}, WRWrite, 16)
		d := NewDistributions()
		p.ends[0].q.ctr.Distributions = d
		p.run(t)
		checkMoved(t, p, 16)
		n := uint64(0)
		for _, k := range d.RTT.Counts {
			n += k
		}
		return float64(d.RTT.Sum) / float64(n)
	}
	if own, all := mean(true), mean(false); own >= all {
		t.Errorf("%.0f ns by selective acknowledgements, %.0f by cumulative ones", own, all)
	}
}

// TestReadPaths runs the experiments of path's TestMPRDMAPaths with READs. Responses use many paths, leave slow paths,
// and arrive with bounded reordering.
func TestReadPaths(t *testing.T) {
	const reads, packets = 64, 64 * movePackets
	unaware := path.Params{"delta_packets": 1 << 16}
	degraded := changed(equalLinks(4), func(k *link) { k.perPacket *= 40 })
	misconfigured := changed(equalLinks(4), func(k *link) { k.markAt, k.perPacket = 0, 4*k.perPacket })
	for _, c := range []struct {
		name   string
		links  []link
		length int // L
		p      path.Params
		speed  float64 // share of the capacity of one link, at least
		degree [2]int  // 99.9 % of the out-of-order degree, between
		last   [2]float64
	}{
		{"one path", equalLinks(1), 64, nil, 0.95, [2]int{0, 0}, [2]float64{1, 1}},
		{"load is shared", equalLinks(4), 64, nil, 3, [2]int{1, 48}, [2]float64{0.2, 0.3}},
		{"a slow path is left", degraded, 64, nil, 2, [2]int{1, 96}, [2]float64{0.0001, 0.01}},
		{"unequal delay", unequalLinks(), 64, nil, 2.5, [2]int{1, 64}, [2]float64{0.1, 0.3}},
		{"unequal delay, L infinite", unequalLinks(), 4096, nil, 2.5, [2]int{1, 64}, [2]float64{0.1, 0.3}},
		{"a slow path does not mark", misconfigured, 4096, nil, 2.2, [2]int{1, 48}, [2]float64{0.02, 0.1}},
		{"... without control", misconfigured, 4096, unaware, 2.2, [2]int{160, 4096}, [2]float64{0.02, 0.2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := reading(t, pairConfig{profile: multipath(c.length, c.p, "mp-rdma", control), links: c.links}, reads)
			var degrees []int
			p.links.arrive = func(f *flight) {
				if f.p.Opcode.IsReadResponse() && f.p.Ext.Flags&bth.XReTx == 0 {
					degrees = append(degrees, max(0, f.p.PSN.Diff(p.ends[0].q.x.out.trk.Expected())))
				}
			}
			p.run(t)
			checkMoved(t, p, reads)
			slices.Sort(degrees)
			degree, taken := degrees[len(degrees)*999/1000], 0
			for _, k := range p.links.ways[0] {
				taken += k.taken
			}
			last := float64(p.links.ways[0][len(c.links)-1].taken) / float64(taken)
			speed := packets * 800 / float64(p.now)
			ctr := p.ends[1].q.ctr
			t.Logf("%.2f links, out-of-order degree %d, last path %.4f, %d sent again, %d timeouts", speed, degree, last, ctr.RetransmittedPackets, ctr.LocalAckTimeoutErr)
			if speed < c.speed || degree < c.degree[0] || degree > c.degree[1] || last < c.last[0] || last > c.last[1] {
				t.Errorf("want %v links at least, degree in %v, share of the last path in %v", c.speed, c.degree, c.last)
			}
		})
	}
}

// TestReadPathFails: one link of four loses all packets, or each of them loses some.
func TestReadPathFails(t *testing.T) {
	lossy := equalLinks(4)
	for i := range lossy {
		lossy[i].loss = 0.005
	}
	for name, links := range map[string][]link{
		"dead": changed(equalLinks(4), func(k *link) { k.loss = 1 }), "lossy": lossy,
	} {
		t.Run(name, func(t *testing.T) {
			p := reading(t, pairConfig{profile: multipath(64, nil, "mp-rdma", control), links: links, seed: 5}, 16)
			p.run(t)
			checkMoved(t, p, 16)
			speed, last := 16*movePackets*800/float64(p.now), p.links.ways[0][3]
			t.Logf("%.2f links, last %+v, %d+%d timeouts", speed, last, p.ends[0].q.ctr.LocalAckTimeoutErr, p.ends[1].q.ctr.LocalAckTimeoutErr)
			if speed < 1.2 || last.loss == 1 && last.taken > movePackets {
				t.Errorf("want more than a single link carries, and not by one that is dead")
			}
		})
	}
}

// TestOvertakenAcks: an acknowledgement that is overtaken on a shorter path still clocks its own path, for requests
// and responses. Otherwise only the shortest path would remain.
func TestOvertakenAcks(t *testing.T) {
	for op, data := range map[WROpcode]int{WRWrite: 1, WRRead: 0} { // the end that receives the data
		p := moving(t, pairConfig{profile: multipath(64, nil, "mp-rdma", control), links: unequalLinks()}, op, 32)
		p.run(t)
		checkMoved(t, p, 32)
		speed, ways := 32*movePackets*800/float64(p.now), p.links.ways[data]
		t.Logf("%d: %.2f links, %+v", op, speed, ways)
		for _, k := range ways {
			if k.taken < 32*movePackets/10 {
				t.Errorf("%d: %d packets by a link with a delay of %v", op, k.taken, k.delay)
			}
		}
	}
}

// TestReadClock: responses have a window of their own, separate from the window for requests of the same sender.
// READ-ACKs return on the path of the response.
func TestReadClock(t *testing.T) {
	const window = 8
	p := reading(t, pairConfig{profile: multipath(64, nil, "static", ccalgo.Params{"window_bytes": window * 256}), links: equalLinks(4)}, 4)
	by := map[bth.PSN][]uint32{}
	most, acks := uint32(0), 0
	p.links.sent = func(f *flight) {
		switch {
		case f.p.Opcode.IsReadResponse():
			by[f.p.PSN] = append(by[f.p.PSN], f.meta.Path)
			most = max(most, p.ends[1].q.x.responses.rec.InFlight())
		case f.p.Opcode.IsReadAck():
			acks++
			if h := &f.p.Ext; h.Flags&bth.XHasPath == 0 || uint32(h.Path) != f.meta.Path || !slices.Contains(by[h.SACK], uint32(h.Path)) {
				t.Fatalf("response %v went by %v and is acknowledged by %d: %+v", h.SACK, by[h.SACK], f.meta.Path, h)
			}
		}
	}
	p.run(t)
	checkMoved(t, p, 4)
	if most != window || acks < 4*movePackets {
		t.Errorf("%d responses in flight at most, want %d; %d READ-ACKs", most, window, acks)
	}
}

// TestReadWindowCloses: packets that acknowledgements released stay queued when the window closes before they leave.
func TestReadWindowCloses(t *testing.T) {
	p := reading(t, pairConfig{profile: multipath(64, nil, "static", ccalgo.Params{"window_bytes": 8 * 256}), links: equalLinks(4)}, 1)
	a := &p.ends[1].q.x.responses
	for a.outstanding() == 0 || a.rec.InFlight() == 8 {
		p.step()
	}
	a.ctl = plugIn(ccalgo.New, "static", ccalgo.Params{"window_bytes": 256})
	before := a.nxt
	p.send()
	if a.nxt != before {
		t.Errorf("%d packets have left, window %+v", a.nxt.Diff(before), a.window())
	}
	p.run(t)
	checkMoved(t, p, 1)
}

// TestForgedReadAck: acknowledgements of packets that were never sent, or sent long ago, change nothing.
func TestForgedReadAck(t *testing.T) {
	p := reading(t, pairConfig{profile: multipath(64, nil, "mp-rdma", control), links: equalLinks(4)}, 1)
	a := &p.ends[1].q.x.responses
	for a.outstanding() < 10 {
		p.step()
	}
	before, window := a.rec.InFlight(), a.window()
	for _, psn := range [][2]bth.PSN{
		{a.una, a.nxt.Add(1)}, {a.una, a.nxt.Add(1 << 22)}, {a.nxt.Add(1), a.una}, {a.una.Add(-1<<16 - 1), a.una}, {a.una, a.una.Add(-1<<16 - 1)},
	} {
		k := bth.Packet{Opcode: bth.OpcodeExtReadAck, PSN: psn[0], AETH: bth.AETH{Syndrome: bth.SyndromeACK},
			Ext: bth.XETH{Profile: bth.ProfileMPRDMA, Flags: bth.XHasSACK | bth.XHasPath, SACK: psn[1], Path: 0xc000}}
		if d := p.ends[1].q.Receive(p.now, &k, RxMeta{}); d != DropStaleAck || a.rec.InFlight() != before || a.window() != window {
			t.Errorf("expected %v, SACK %v: %v, window %+v", psn[0], psn[1], d, a.window())
		}
	}
	p.run(t)
	checkMoved(t, p, 1)
}

// TestReadMarks: a mark on a response narrows the window of responses at once, and no other window.
func TestReadMarks(t *testing.T) {
	links := equalLinks(4)
	for i := range links {
		links[i].markAt = time.Nanosecond
	}
	p := reading(t, pairConfig{profile: multipath(64, nil, "mp-rdma", ccalgo.Params{"iw_packets": 100}), links: links}, 4)
	requests, _ := p.ends[1].q.Limits()
	narrow, a := requests, &p.ends[1].q.x.responses
	p.links.sent = func(f *flight) {
		if a.exhausted() || !f.p.Opcode.IsReadResponse() { // at the end, unused window is lost
			return
		}
		bytes, _ := a.limits()
		narrow = min(narrow, bytes)
		if w := a.window(); w.InFlight > max(w.Packets, 1) {
			t.Fatalf("%+v after a packet has been sent", w)
		}
	}
	p.run(t)
	checkMoved(t, p, 4)
	if w, _ := p.ends[1].q.Limits(); narrow > requests/3 || w != requests {
		t.Errorf("window of responses %d bytes at least; of requests %d, before %d", narrow, w, requests)
	}
}

// TestWindowOfPackets: an acknowledgement-clocked window counts packets (MP-RDMA 3.2). Short packets fill it, too, so
// that it grows. After an idle time it restarts with short packets.
func TestWindowOfPackets(t *testing.T) {
	links := equalLinks(4)
	for i := range links {
		links[i].markAt = 0 // never
	}
	p := movingIn(t, pairConfig{profile: multipath(64, nil, "mp-rdma", control), links: links}, WRWrite, 400, 8)
	window := func() uint64 { w, _ := p.ends[0].q.Limits(); return w }
	first, most := window(), window()
	p.links.sent = func(*flight) { most = max(most, window()) }
	p.run(t)
	if most < first+5*256 {
		t.Errorf("a window of %d bytes never grew beyond %d", first, most)
	}
	if window() >= first {
		t.Errorf("a window of %d bytes after nothing was left to send, %d before", window(), first)
	}
	p.now, most = p.now.Add(time.Millisecond), 0
	h := p.ends[0].h
	h.queue = append(h.queue, SendWQE{Opcode: WRWrite, Length: 8, RemoteVA: memBase, RKey: 5, SGEs: []SGE{{memBase, 8, 1}}})
	p.ends[0].q.Doorbell(p.now)
	p.run(t)
	if most != first {
		t.Errorf("a window of %d bytes after a pause, at first %d", most, first)
	}
}

// TestPathsAnyFaults draws a network of several paths in addition to operations and faults. Each request must take
// effect once, in order, byte for byte.
func TestPathsAnyFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := lossless
		c.timeout, c.seed = 9, rapid.Uint64().Draw(t, "seed of losses")
		c.profile = multipath(rapid.SampledFrom([]int{4, 64}).Draw(t, "L"), nil, "mp-rdma", nil)
		for range rapid.IntRange(1, 5).Draw(t, "links") {
			c.links = append(c.links, link{
				delay:     time.Duration(rapid.IntRange(0, 100).Draw(t, "delay")) * time.Microsecond,
				perPacket: time.Duration(rapid.IntRange(0, 5000).Draw(t, "per packet")),
				markAt:    time.Duration(rapid.SampledFrom([]int{0, 1, 10}).Draw(t, "mark")) * time.Microsecond,
				// A higher loss would occasionally lose a packet or its answer eight times in a row.
				loss: rapid.SampledFrom([]float64{0, 0, 0.02, 0.1}).Draw(t, "loss"),
			})
		}
		anyFaults(t, c)
	})
}
