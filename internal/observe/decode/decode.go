// Package decode prints the RoCEv2 frames of a capture, one line for each frame, as text or JSON.
package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/flor"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
)

// Options sets the output of Stream.
type Options struct {
	// JSON selects one Record object on each line instead of text.
	JSON bool
	// Flor selects the queue pairs whose packets are also decoded as Flor.
	Flor flor.QueuePairs
}

// Stats counts the frames that Stream read.
type Stats struct {
	Frames    int         // all frames in the file
	RoCE      int         // printed
	Skipped   int         // not RoCEv2
	Others    flow.Others // the skipped ones, by reason
	Truncated int         // RoCEv2, the capture holds only the first part
	Malformed int         // RoCEv2 with an error
	BadICRC   int         // RoCEv2 with a wrong ICRC
	Cut       dissect.Cut
}

// Stream reads a pcap or pcapng file from r and writes one line to w for every RoCEv2 frame (UDP port 4791, and 4971 of MRC). Each
// line is one Write. Stream counts other frames and skips them. A malformed RoCEv2 frame produces a line with an
// error. A damaged file ends the stream with an error that names the packet and the byte offset; earlier frames are
// already printed. A cut file sets Stats.Cut.
func Stream(r io.Reader, w io.Writer, opt Options) (s Stats, err error) {
	s.Others = flow.Others{}
	put := textWriter(w)
	if opt.JSON {
		put = jsonWriter(w)
	}
	p := parser{flor: opt.Flor}
	s.Cut, err = dissect.Read(r, func(n int, f *pcapng.Frame, packet *dissect.Packet) error {
		s.Frames = n
		if !packet.RoCE {
			s.Skipped++
			s.Others[packet.Other]++
			return nil
		}
		p.parse(f, n, packet)
		s.count(&p.rec)
		return put(&p.rec)
	})
	if err != nil {
		err = fmt.Errorf("decode: %w", err)
	}
	return s, err
}

// count counts a frame of RoCEv2.
func (s *Stats) count(r *Record) {
	s.RoCE++
	if r.Truncated {
		s.Truncated++
	}
	if r.Error != "" {
		s.Malformed++
	}
	if r.ICRC == icrcBad {
		s.BadICRC++
	}
}

func jsonWriter(w io.Writer) func(*Record) error {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	return func(r *Record) error {
		line.Reset()
		if err := enc.Encode(r); err != nil {
			return err
		}
		b, err := appendJSON(bytes.TrimSuffix(line.Bytes(), []byte("}\n")), r.values)
		if err == nil {
			_, err = w.Write(append(b, "}\n"...))
		}
		return err
	}
}

func textWriter(w io.Writer) func(*Record) error {
	var line []byte
	return func(r *Record) error {
		line = append(r.appendText(line[:0]), '\n')
		_, err := w.Write(line)
		return err
	}
}
