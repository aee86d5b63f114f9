package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/observe/trace"
)

// tracing holds the options and outputs of a trace.
type tracing struct {
	nic, qp        string
	file, csv, svg string
	duration       time.Duration
	flor, toScale  bool
}

func (a *app) trace() *cobra.Command {
	var o tracing
	var num uint32
	var next bool
	cmd := &cobra.Command{
		Use: "trace NIC (--qp N|--next) [-w FILE] [--csv FILE] [--svg DIR]", Short: "Record the events of a queue pair, and draw them",
		Long: `Record one queue pair: every packet sent, sent again and received, what each
acknowledgement says, round-trip times, window and rate, timeouts, and the size
of the receiver's state. It ends when the queue pair does, with --duration, or by
Ctrl-C. Without -w, --csv or --svg, lines of JSON go to standard output.

Pictures are the time-sequence graph, the window, the rate, the round-trip time,
the out-of-order degree and the receiver's state; there is none of what did not
happen. Long pauses take little room in them, unless --to-scale is given.`,
		Example: `  rocectl trace rxe_a --qp 17 -w out.json            until the queue pair ends, or Ctrl-C
  rocectl trace rxe_a --next --svg pictures          the next one that connects
  rocectl trace rxe_a --qp 17 --csv out.csv --duration 5s
  rocectl trace rxe_a --next | jq 'select(.rtx)'
  rocectl trace rxe_a --qp 17 --flor | jq 'select(.flor)'
  rocectl trace draw out.json --svg pictures`,
		Args: about.Words(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case c.Flags().Changed("qp") == next:
				return about.Usage(errors.New("select a queue pair with either --qp N or --next"))
			case o.file == "-" && (o.csv != "" || o.svg != ""):
				return about.Usage(errors.New("--csv and --svg need a trace file: use -w FILE instead of -w -"))
			case o.duration < 0:
				return about.Usage(fmt.Errorf("--duration %v is negative", o.duration))
			}
			if o.file == "" && o.csv == "" && o.svg == "" {
				o.file = "-"
			}
			if o.nic, o.qp = args[0], api.NextQP; !next {
				o.qp = strconv.FormatUint(uint64(num), 10)
			}
			ctx := c.Context()
			if o.duration > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, o.duration)
				defer cancel()
			}
			return a.recordTrace(ctx, &o)
		},
	}
	f := cmd.Flags()
	f.Uint32Var(&num, "qp", 0, "number of the queue pair, such as 17 or 0x11")
	f.BoolVar(&next, "next", false, "trace the next queue pair that connects")
	f.StringVarP(&o.file, "write", "w", "", "file for JSON lines, - for standard output")
	f.StringVar(&o.csv, "csv", "", "file for CSV")
	f.StringVar(&o.svg, "svg", "", "folder for SVG pictures")
	f.BoolVar(&o.toScale, "to-scale", false, toScale)
	f.BoolVar(&o.flor, "flor", false, "decode the queue pair's packets as Flor")
	f.DurationVar(&o.duration, "duration", 0, "duration (default: until interrupted)")
	cmd.AddCommand(a.traceDraw())
	return cmd
}

const toScale = "long pauses take as much room in pictures as they took time"

func (a *app) traceDraw() *cobra.Command {
	var o tracing
	cmd := &cobra.Command{
		Use: "draw FILE (--svg DIR|--csv FILE)", Short: "Draw a stored trace", Args: about.Words(1, 1),
		Example: "  rocectl trace draw out.json --svg pictures\n  rocectl trace draw - --csv out.csv < out.json",
		RunE: func(c *cobra.Command, args []string) error {
			if o.csv == "" && o.svg == "" {
				return about.Usage(errors.New("--svg DIR or --csv FILE is missing"))
			}
			in, err := input(c, args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			return a.renderTrace(in, &o)
		},
	}
	cmd.Flags().StringVar(&o.svg, "svg", "", "folder for SVG pictures")
	cmd.Flags().BoolVar(&o.toScale, "to-scale", false, toScale)
	cmd.Flags().StringVar(&o.csv, "csv", "", "file for CSV")
	return cmd
}

// recordTrace stores a trace and generates the requested outputs. Without an output file it stores the trace in a
// temporary file and deletes that at the end.
func (a *app) recordTrace(ctx context.Context, o *tracing) (err error) {
	body, err := a.client().Trace(ctx, o.nic, o.qp, o.flor)
	if err != nil {
		return err
	}
	defer body.Close()
	if o.file == "-" {
		return ended(io.Copy(a.out, body))
	}
	f, err := o.open()
	if err != nil {
		return err
	}
	defer func() {
		if o.file == "" {
			os.Remove(f.Name())
		}
		err = errors.Join(err, f.Close())
	}()
	if err := ended(io.Copy(f, body)); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err = a.renderTrace(f, o); errors.Is(err, trace.ErrNoStart) {
		err = errors.New("no queue pair has connected")
	}
	return err
}

// open opens the file of a trace, without -w a temporary one. It makes sure that the outputs at the end can be written.
func (o *tracing) open() (*os.File, error) {
	if err := output.Folders(o.svg); err != nil {
		return nil, err
	}
	if o.csv != "" {
		f, err := output.Create(o.csv)
		if err != nil {
			return nil, err
		}
		f.Close()
	}
	if o.file == "" {
		return os.CreateTemp("", "rocectl-trace")
	}
	return output.Create(o.file)
}

// ended returns the error of a copy, or nil if the recording ended normally.
func ended(_ int64, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, unix.EPIPE) {
		return nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the daemon ended during the trace")
	}
	return err
}

// traced is the JSON summary of a trace.
type traced struct {
	QPN      uint32   `json:"qpn"`
	Profile  string   `json:"profile"`
	Events   int      `json:"events"`
	Lost     uint64   `json:"lost"`
	Sent     int      `json:"sent"`
	SentRtx  int      `json:"sent_again"`
	Timeouts int      `json:"timeouts"`
	Pictures []string `json:"pictures,omitempty"`
}

// renderTrace reads a trace, generates CSV and charts, and summarizes it.
func (a *app) renderTrace(in io.Reader, o *tracing) error {
	t, err := trace.Read(in)
	if errors.Is(err, trace.ErrCut) {
		fmt.Fprintln(a.diag, "rocectl:", err)
	} else if err != nil {
		return err
	}
	if o.csv != "" {
		if err := writeFile(o.csv, t.WriteCSV); err != nil {
			return err
		}
	}
	sum := traced{QPN: t.Start.QPN, Profile: t.Start.Profile, Events: len(t.Records), Lost: t.Lost}
	if o.svg != "" {
		if sum.Pictures, err = t.Draw(o.svg, o.toScale); err != nil {
			return err
		}
	}
	for i := range t.Records {
		switch r := &t.Records[i]; {
		case r.Event == "sent" && r.Rtx:
			sum.SentRtx++
			fallthrough
		case r.Event == "sent":
			sum.Sent++
		case r.Event == "timeout":
			sum.Timeouts++
		}
	}
	if a.json {
		return a.show(sum, nil)
	}
	if sum.Sent == 0 {
		fmt.Fprintf(a.diag, "0 packets sent: the other end of the connection sends the data; trace its queue pair, %s\n", bth.QPN(t.Start.Dest).Text())
	}
	fmt.Fprintf(a.diag, "QP %s, %s: %d events (%d lost), %d packets sent, %d of them again, %d timeouts\n",
		bth.QPN(sum.QPN).Text(), sum.Profile, sum.Events, sum.Lost, sum.Sent, sum.SentRtx, sum.Timeouts)
	return nil
}

// writeFile creates a file with the output of write.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := output.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
