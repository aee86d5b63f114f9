package ns3

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/result"
)

// FCT is a line of a file of flow completion times: a completed flow. Times are in nanoseconds.
type FCT struct {
	Src, Dst         int // IDs of the hosts
	SrcPort, DstPort uint16
	Bytes            uint32
	Start, FCT       int64
	Alone            int64 // duration in an empty network
}

// maxTime limits times: their picoseconds fit into 63 bits.
const maxTime = int64(engine.Never / 1000)

// Addresses of hosts in HPCC's files: 11.H.L.1, where H and L are the bytes of the ID.
const (
	network = 11 << 24
	hostBit = 1
)

// Firsts of the ports that the simulators assign.
const (
	firstSrcPort = 10000
	firstDstPort = 100
)

// ReadFCT reads lines "src dst sport dport bytes start fct standalone_fct" of HPCC's simulator, with addresses of eight
// hexadecimal digits, or of ConWeave's, with IDs.
func ReadFCT(r io.Reader) (out []FCT, err error) {
	s := bufio.NewScanner(r)
	line := 0
	for s.Scan() {
		line++
		f := strings.Fields(s.Text())
		if len(f) == 0 {
			continue
		}
		x, err := parseFCT(f)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		out = append(out, x)
	}
	if s.Err() == bufio.ErrTooLong {
		return nil, fmt.Errorf("line %d: longer than %d bytes instead of src dst sport dport bytes start fct standalone_fct", line+1, bufio.MaxScanTokenSize)
	}
	return out, s.Err()
}

func parseFCT(f []string) (x FCT, err error) {
	if len(f) != 8 {
		return x, fmt.Errorf("%d fields instead of src dst sport dport bytes start fct standalone_fct", len(f))
	}
	var faults []error
	number := func(i int, name string, least, most int64) int64 {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil || n < least || n > most {
			faults = append(faults, fmt.Errorf("%s %.40q: must be from %d to %d", name, f[i], least, most))
		}
		return n
	}
	host := func(i int, name string) int {
		if len(f[i]) != 8 {
			return int(number(i, name, 0, maxNodes-1))
		}
		n, err := strconv.ParseUint(f[i], 16, 32)
		if err != nil || n&^0xffff00 != network|hostBit {
			faults = append(faults, fmt.Errorf("%s %q: must be an address such as 0b000101", name, f[i]))
		}
		return int(n >> 8 & 0xffff)
	}
	x = FCT{Src: host(0, "src"), Dst: host(1, "dst"),
		SrcPort: uint16(number(2, "sport", 0, 1<<16-1)), DstPort: uint16(number(3, "dport", 0, 1<<16-1)),
		Bytes: uint32(number(4, "bytes", 0, 1<<32-1)),
		Start: number(5, "start", 0, maxTime), FCT: number(6, "fct", 1, maxTime), Alone: number(7, "standalone_fct", 1, maxTime)}
	return x, errors.Join(faults...)
}

// Flow returns x as a message.
func (x *FCT) Flow() result.Flow {
	return result.Flow{Src: x.Src, Dst: x.Dst, Bytes: x.Bytes, Start: engine.Time(x.Start) * engine.Nanosecond,
		FCT: engine.Time(x.FCT) * engine.Nanosecond, Ideal: engine.Time(x.Alone) * engine.Nanosecond, Slowdown: max(float64(x.FCT)/float64(x.Alone), 1)}
}

// Completed returns the completed messages of r in the order of their completion. Times are rounded down to nanoseconds. Source
// ports are numbered as in the simulator whose format is used, among completed messages. A message without a port in its flow
// list has port 100, or in ConWeave's format the next one of its destination.
func Completed(r *result.Result, conweave bool) []FCT {
	flows := slices.Clone(r.Flows)
	slices.SortFunc(flows, func(a, b result.Flow) int { return cmp.Compare(a.ID, b.ID) })
	sources, destinations := map[[2]int]uint16{}, map[int]uint16{}
	out := make([]FCT, len(flows))
	for i := range flows {
		f := &flows[i]
		pair := [2]int{f.Src, f.Dst}
		dport := uint16(firstDstPort)
		if conweave {
			pair[1] = 0
			dport += destinations[f.Dst]
			destinations[f.Dst]++
		}
		out[i] = FCT{Src: r.HostID(f.Src), Dst: r.HostID(f.Dst), SrcPort: firstSrcPort + sources[pair], DstPort: cmp.Or(f.Port, dport), Bytes: f.Bytes,
			Start: int64(f.Start / engine.Nanosecond), FCT: max(int64(f.FCT/engine.Nanosecond), 1), Alone: max(int64(f.Ideal/engine.Nanosecond), 1)}
		sources[pair]++
	}
	slices.SortStableFunc(out, func(a, b FCT) int { return cmp.Compare(a.Start+a.FCT, b.Start+b.FCT) })
	return out
}

// WriteFCT writes the completed messages of r in the format of HPCC's or ConWeave's simulator.
func WriteFCT(w io.Writer, r *result.Result, conweave bool) error {
	b := bufio.NewWriter(w)
	for _, x := range Completed(r, conweave) {
		src, dst := strconv.Itoa(x.Src), strconv.Itoa(x.Dst)
		if !conweave {
			src, dst = address(x.Src), address(x.Dst)
		}
		fmt.Fprintf(b, "%s %s %d %d %d %d %d %d\n", src, dst, x.SrcPort, x.DstPort, x.Bytes, x.Start, x.FCT, x.Alone) // Flush returns the error
	}
	return b.Flush()
}

// address returns the address of a host, an ID below 65,536, in hexadecimal.
func address(id int) string { return fmt.Sprintf("%08x", network|id<<8|hostBit) }
