package nic

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// single is the setting of NICs whose WRITEs have packets of one length.
const single = "    write_segments: single\n"

// before is the folder of an older build; empty: the line between shards has no reference.
var before string

// line is a measurement of the data path. Lines of one table run in turns.
type line struct {
	name, unit string
	sample     func() (float64, error)
}

// inTurns measures lines in turns.
func (b *bench) inTurns(lines []line) error {
	samples, err := measure.Alternate(b.Rounds, len(lines), func(i int) (float64, error) {
		v, err := b.sample(lines[i].name, lines[i].sample)
		if err != nil {
			err = fmt.Errorf("%s: %w", lines[i].name, err)
		}
		return v, err
	})
	if err != nil {
		return err
	}
	for i, l := range lines {
		b.add(l.name, l.unit, samples[i]...)
	}
	return nil
}

// on returns b for another lab.
func (b *bench) on(l *netlab.Lab) *bench {
	c := *b
	c.lab = l
	return &c
}

// links of the data path: its kind of port, and the options of its lab.
var pathLinks = []struct {
	name string
	kind int // of kinds
	o    netlab.LabOptions
}{{"TAP", 0, netlab.LabOptions{}}, {"UDP", 4, netlab.LabOptions{Shared: [2]string{"udp", "udp"}}}}

// Names of the lines.
func pathName(what, link string) string { return "data path, " + link + ": " + what }

const (
	pathWrite   = "64 KiB WRITE"
	pathSingle  = "64 KiB WRITE, single segments"
	pathRead    = "64 KiB READ"
	pathTCP     = "iperf3"
	pathFloor   = "raw super-frames of a 64 KiB WRITE"
	pathChain   = "8 B, bare chain"
	pathLat     = "8 B WRITE latency"
	pathSendLat = "8 B SEND latency"
	pathPut     = "8 B, UCX put over TCP"
	pathTag     = "8 B, UCX tag over TCP"
	shardsNow   = "data path, between shards: 64 KiB WRITE"
	shardsThen  = "data path, between shards: 64 KiB WRITE, older build"
	inDaemon    = "data path, loopback: 8 B WRITE latency, daemon"
	inProgram   = "data path, loopback: 8 B WRITE latency, NIC in the program"
)

var singleSizes = []int{8, 16, 32}

func sizeName(kib int, how string) string { return fmt.Sprintf("%d KiB WRITE%s", kib, how) }

// dataPath measures what a hand-over and a segment cost.
func (b *bench) dataPath() error {
	for i := range pathLinks {
		p := &pathLinks[i]
		with := p.o
		with.Extra = single
		err := b.labs([]netlab.LabOptions{p.o, with}, func(l []*netlab.Lab) error {
			std, one := b.on(l[0]), b.on(l[1])
			name := func(what string) string { return pathName(what, p.name) }
			bw := func(c *bench, test, size string) func() (float64, error) {
				return func() (float64, error) { return gbps(c.perf(test, "-s", size)) }
			}
			lines := []line{
				{name(pathTCP), "Gb/s", func() (float64, error) { return iperf3(b.ctx, l[0], b.Seconds) }},
				{name(pathFloor), "Gb/s", func() (float64, error) {
					if p.kind == 0 {
						return raw(l[0].Bed, time.Duration(b.Seconds)*time.Second, writeSegments...)
					}
					return rawUDP(time.Duration(b.Seconds)*time.Second, writeSegments...)
				}},
				{name(pathWrite), "Gb/s", bw(std, "write-bw", "64k")},
				{name(pathSingle), "Gb/s", bw(one, "write-bw", "64k")},
				{name(pathRead), "Gb/s", bw(std, "read-bw", "64k")},
			}
			for _, kib := range singleSizes {
				size := fmt.Sprintf("%dk", kib)
				lines = append(lines, line{name(sizeName(kib, "")), "Gb/s", bw(std, "write-bw", size)},
					line{name(sizeName(kib, ", single segments")), "Gb/s", bw(one, "write-bw", size)})
			}
			return errors.Join(b.inTurns(lines), b.inTurns(std.pathLatencies(p.kind, name)))
		})
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return errors.Join(b.betweenShards(), b.inProcess(), b.sharedFiles())
}

// pathLatencies returns the lines of latencies.
func (b *bench) pathLatencies(k int, name func(string) string) []line {
	test := func(test string) func() (float64, error) {
		return func() (float64, error) { return mean(b.perf(test, "-s", "8")) }
	}
	tcp := func(test string) func() (float64, error) {
		return func() (float64, error) {
			r, err := ucxPerftest(b.ctx, b.lab, test, 8, 30000*b.Seconds)
			return r.mean(), err
		}
	}
	lines := []line{
		{name(pathChain), "us", func() (float64, error) { return b.bareChain(&kinds[k]) }},
		{name(pathLat), "us", test("write-lat")}, {name(pathSendLat), "us", test("send-lat")},
	}
	if kinds[k].shared == "" { // UCX looks for the bridge
		lines = append(lines, line{name(pathPut), "us", tcp("ucp_put_lat")}, line{name(pathTag), "us", tcp("tag_lat")})
	}
	return lines
}

// bareChain measures a bare chain over a kind of port: over TAPs on the bridges of the lab, else on links of its own.
func (b *bench) bareChain(k *kind) (us float64, err error) {
	if k.shared == "" {
		return chained(b.lab.Bed, k, false, time.Duration(b.Seconds)*time.Second)
	}
	bed, err := netlab.NewDirect([2]bool{k.shared != "", k.shared != ""})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	return chained(bed, k, false, time.Duration(b.Seconds)*time.Second)
}

// betweenShards measures two NICs of a daemon with a shard each, in turns with an older build if there is one.
func (b *bench) betweenShards() error {
	o := netlab.LabOptions{Unix: true, Switch: true, Shards: true}
	write := func(l *netlab.Lab) func() (float64, error) {
		return func() (float64, error) { return gbps(b.on(l).perf("write-bw", "-s", "64k")) }
	}
	if before == "" {
		return b.Lab(o, func(l *netlab.Lab) error { return b.inTurns([]line{{shardsNow, "Gb/s", write(l)}}) })
	}
	old := o
	old.Bin = before
	return b.labs([]netlab.LabOptions{o, old}, func(l []*netlab.Lab) error {
		return b.inTurns([]line{{shardsNow, "Gb/s", write(l[0])}, {shardsThen, "Gb/s", write(l[1])}})
	})
}

// inProcess measures NICs on UDP sockets of loopback addresses, in daemons and in the programs.
func (b *bench) inProcess() error {
	return b.Lab(netlab.LabOptions{Loopback: true}, func(l *netlab.Lab) error {
		addr := netip.MustParseAddr(l.Host[1].Addr)
		var files [2]string
		for i := range files {
			addr = addr.Next()
			files[i] = filepath.Join(l.Dir, fmt.Sprintf("local%d.yaml", i))
			text := fmt.Sprintf("nics: [{name: rxe_l, port: {type: udp, address: %s}}]\n", addr)
			if err := os.WriteFile(files[i], []byte(text), 0o600); err != nil {
				return err
			}
		}
		return b.inTurns([]line{
			{inDaemon, "us", func() (float64, error) { return mean(b.on(l).perf("write-lat", "-s", "8")) }},
			{inProgram, "us", func() (float64, error) {
				r, err := l.LocalPerf(b.ctx, filepath.Join(l.Dir, "oob"), files, "write-lat", "-s", "8", "-D", fmt.Sprintf("%ds", b.Seconds))
				*b.cost = cost{client: clientCost(r)}
				return r.Latency.Mean, err
			}},
		})
	})
}

// pathRatios are the goals of the data path.
func pathRatios() (out []ratio) {
	for _, p := range pathLinks {
		add := func(of, to string, goal float64, most bool) {
			out = append(out, ratio{pathName(of+" against "+to, p.name), pathName(of, p.name), pathName(to, p.name), goal, most})
		}
		add(pathWrite, pathTCP, 1, false)
		add(pathWrite, pathFloor, 0, false)
		add(pathSingle, pathTCP, 1.2, false)
		add(pathRead, pathTCP, 1, false)
		for _, kib := range singleSizes {
			add(sizeName(kib, ", single segments"), sizeName(kib, ""), 1.8, false)
		}
		add(pathLat, pathChain, 1.1, true)
		add(pathSendLat, pathChain, 1.1, true)
		if p.o.Shared[0] == "" {
			add(pathLat, pathPut, 0, true)
			add(pathSendLat, pathTag, 0, true)
		}
	}
	return append(out, ratio{shardsNow + " against the older build", shardsNow, shardsThen, 1.2, false},
		ratio{inProgram + " against the daemon", inProgram, inDaemon, 0.55, true})
}
