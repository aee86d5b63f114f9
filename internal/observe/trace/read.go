package trace

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
)

// maxLine limits a line of a stored trace, in bytes.
const maxLine = 1 << 16

// maxTime limits the time of a trace to 2^55 ns, more than a year.
const maxTime = 1 << 55

// maxRecords limits the records in memory.
const maxRecords = 5_000_000

// Errors of Read.
var (
	// ErrNoStart reports that the first line does not describe a queue pair: the file is no trace, or the queue
	// pair never connected.
	ErrNoStart = errors.New("trace: does not begin with a line \"start\"")
	// ErrCut reports that the last line is missing. The records before it are valid.
	ErrCut = errors.New("trace: ends early")
)

// Trace is a stored trace.
type Trace struct {
	Start   Start
	Records []Record // without the first and the last line
	Lost    uint64   // events that did not fit the ring
	first   int64    // T of the first packet; 0: none
}

// Read reads lines of JSON. With ErrCut it also returns the trace.
func Read(r io.Reader) (*Trace, error) {
	t, err := new(Trace), ErrCut
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	n := 1
	for ; s.Scan(); n++ {
		var rec Record
		if bad := json.Unmarshal(s.Bytes(), &rec); bad != nil {
			return nil, fmt.Errorf("trace: line %d: %w", n, bad)
		}
		if bad := rec.check(); bad != nil {
			return nil, fmt.Errorf("trace: line %d: %w", n, bad)
		}
		if k := len(t.Records); k > 0 && rec.Event != "end" && rec.T < t.Records[k-1].T {
			return nil, fmt.Errorf("trace: line %d: time goes back", n)
		}
		switch {
		case n == 1 && (rec.Event != "start" || rec.Start == nil):
			return nil, ErrNoStart
		case n == 1:
			t.Start = *rec.Start
		case rec.Event == "end":
			t.Lost, err = rec.Lost, nil
		case rec.Event == "skipped": // the last line has the sum
		case len(t.Records) == maxRecords:
			return nil, fmt.Errorf("trace: more than %d events", maxRecords)
		default:
			if t.first == 0 && rec.PSN != nil {
				t.first = rec.T
			}
			t.Records = append(t.Records, rec)
		}
	}
	switch {
	case s.Err() == bufio.ErrTooLong:
		return nil, fmt.Errorf("trace: line %d: longer than %d bytes: name a file that rocectl trace has written", n, maxLine)
	case s.Err() != nil:
		return nil, fmt.Errorf("trace: %w", s.Err())
	}
	if t.Start == (Start{}) {
		return nil, ErrNoStart
	}
	return t, err
}

// check rejects records that no recorder writes or that pictures cannot show.
func (r *Record) check() error {
	switch r.Event {
	case "start", "end", "limits", "footprint", "skipped":
	case "sent", "ack", "received", "timeout":
		if r.PSN == nil {
			return fmt.Errorf("%s without a PSN", r.Event)
		}
	default:
		return fmt.Errorf("unknown event %.40q", r.Event)
	}
	if r.T < 0 || r.RTT < 0 || r.Bytes < 0 {
		return errors.New("negative number")
	}
	if r.T > maxTime {
		return errors.New("time out of range")
	}
	return nil
}

// columns are the columns of a CSV file: the fields of Record.
var columns = []string{
	"t", "event", "response", "psn", "span", "length", "rtx", "sack", "nak", "refused", "ece", "rtt_ns",
	"verdict", "degree", "lost", "window", "rate", "bytes", "fields",
}

// WriteCSV writes a trace as CSV with a header line. Fields that an event does not have are empty.
func (t *Trace) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	if err := c.Write(columns); err != nil {
		return err
	}
	for i := range t.Records {
		if err := c.Write(t.Records[i].csv()); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

func (r *Record) csv() []string {
	number := func(v uint64) string {
		if v == 0 {
			return ""
		}
		return strconv.FormatUint(v, 10)
	}
	flag := func(b bool) string {
		if b {
			return "1"
		}
		return ""
	}
	return []string{
		strconv.FormatInt(r.T, 10), r.Event, flag(r.Response), optional(r.PSN), number(uint64(r.Span)), number(uint64(r.Length)),
		flag(r.Rtx), optional(r.SACK), flag(r.NAK), flag(r.Refused), flag(r.ECE), number(uint64(r.RTT)),
		r.Verdict, number(uint64(r.Degree)), number(r.Lost), optional(r.Window), optional(r.Rate), number(uint64(r.Bytes)),
		r.own(),
	}
}

// own returns the fields of the transport as "name=value name=value".
func (r *Record) own() string {
	var b []byte
	for _, name := range slices.Sorted(maps.Keys(r.Fields)) {
		b = fmt.Appendf(b, "%s=%d ", name, r.Fields[name])
	}
	return string(bytes.TrimSuffix(b, []byte(" ")))
}

func optional[T uint32 | uint64](v *T) string {
	if v == nil {
		return ""
	}
	return strconv.FormatUint(uint64(*v), 10)
}
