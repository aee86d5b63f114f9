// Package decode prints the RoCEv2 frames of a capture, one line for each frame, as text or JSON.
package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"roced.io/roced/internal/observe/flor"
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
	Frames    int // all frames in the file
	RoCE      int // printed
	Skipped   int // not RoCEv2
	Fragments int // IP fragments, which are among the skipped ones
	Malformed int // RoCEv2 with an error
	BadICRC   int // RoCEv2 with a wrong ICRC
}

// Stream reads a pcap or pcapng file from r and writes one line to w for every RoCEv2 frame (UDP port 4791, and 4971 of MRC). Each
// line is one Write. Stream counts other frames and skips them. A malformed RoCEv2 frame produces a line with an
// error. A damaged file ends the stream with an error that names the packet and the byte offset; earlier frames are
// already printed.
func Stream(r io.Reader, w io.Writer, opt Options) (Stats, error) {
	var s Stats
	rd, err := pcapng.NewReader(r)
	if err != nil {
		return s, fmt.Errorf("decode: %w", err)
	}
	put := textWriter(w)
	if opt.JSON {
		put = jsonWriter(w)
	}
	var f pcapng.Frame
	p := parser{flor: opt.Flor}
	for {
		err := rd.Next(&f)
		if err == io.EOF {
			return s, nil
		}
		if err != nil {
			return s, fmt.Errorf("decode: %w", err)
		}
		s.Frames++
		if err := s.frame(&f, &p, put); err != nil {
			return s, fmt.Errorf("decode: packet %d: %w", s.Frames, err)
		}
	}
}

// frame parses f, counts it and prints it. A frame of a link type that is not supported is an error, unless others came before.
func (s *Stats) frame(f *pcapng.Frame, p *parser, put func(*Record) error) error {
	packet, err := p.parse(f, s.Frames)
	if err != nil && s.Frames == 1 {
		return err
	}
	if packet.Fragment {
		s.Fragments++
	}
	if !packet.RoCE {
		s.Skipped++
		return nil
	}
	s.RoCE++
	if p.rec.Error != "" {
		s.Malformed++
	}
	if p.rec.ICRC == icrcBad {
		s.BadICRC++
	}
	return put(&p.rec)
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
