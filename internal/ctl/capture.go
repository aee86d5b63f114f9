package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/observe/decode"
	"roced.io/roced/internal/observe/flor"
)

// capturing holds the options of a capture.
type capturing struct {
	nic, file string
	duration  time.Duration
	count     uint64
}

func (a *app) capture() *cobra.Command {
	var o capturing
	cmd := &cobra.Command{
		Use: "capture NIC -w FILE", Short: "Capture frames of a NIC as pcapng",
		Args: about.Words(1, 1),
		Example: `  rocectl capture rxe_a -w out.pcapng            until Ctrl-C
  rocectl capture rxe_a -w out.pcapng --duration 10s
  rocectl capture rxe_a -w out.pcapng -c 1000
  rocectl capture rxe_a -w - | tshark -r -`,
		RunE: func(c *cobra.Command, args []string) error {
			if o.file == "" {
				return about.Usage(errors.New("-w FILE is required; -w - writes to standard output"))
			}
			if o.duration < 0 {
				return about.Usage(fmt.Errorf("--duration %v is negative", o.duration))
			}
			o.nic = args[0]
			ctx := c.Context()
			if o.duration > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, o.duration)
				defer cancel()
			}
			return a.record(ctx, &o)
		},
	}
	cmd.Flags().StringVarP(&o.file, "write", "w", "", "file to write, - for standard output")
	cmd.Flags().DurationVar(&o.duration, "duration", 0, "duration (default: until interrupted)")
	cmd.Flags().Uint64VarP(&o.count, "count", "c", 0, "number of frames (default: unlimited)")
	return cmd
}

// captured is the JSON summary of a capture.
type captured struct {
	File   string `json:"file"`
	Frames uint64 `json:"frames"`
	Bytes  uint64 `json:"bytes"`
}

func (a *app) record(ctx context.Context, o *capturing) (err error) {
	body, err := a.client().Capture(ctx, o.nic)
	if err != nil {
		return err
	}
	defer body.Close()
	out := output.Raw(a.out)
	if o.file != "-" {
		f, err := output.Create(o.file)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	if !a.json && o.file != "-" {
		fmt.Fprintf(a.diag, "capturing %s; Ctrl-C ends\n", o.nic)
	}
	c := &recorder{limit: o.count}
	c.seen = a.progress(c)
	err = c.copy(out, body)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, unix.EPIPE) {
		err = nil // a capture ends normally with this error
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the daemon ended during the capture")
	}
	switch {
	case o.file == "-":
		fmt.Fprintf(a.diag, "%d frames, %d bytes\n", c.frames, c.bytes)
	case a.json:
		return errors.Join(err, a.show(captured{o.file, c.frames, c.bytes}, nil))
	default:
		fmt.Fprintf(a.diag, "%d frames, %d bytes written to %s\n", c.frames, c.bytes, o.file)
	}
	return err
}

// progress returns a function that prints the progress at intervals, if standard error is a terminal.
func (a *app) progress(c *recorder) func() {
	f := output.Terminal(a.diag)
	if f == nil {
		return func() {}
	}
	var last time.Time
	return func() {
		if now := time.Now(); now.Sub(last) > 200*time.Millisecond {
			last = now
			fmt.Fprintf(f, "\r%d frames, %d bytes captured; Ctrl-C ends \x1b[K\r", c.frames, c.bytes)
		}
	}
}

func (a *app) decode() *cobra.Command {
	var carry string
	cmd := &cobra.Command{
		Use: "decode FILE", Short: "Print the RoCE frames of a pcap or pcapng file", Args: about.Words(1, 1),
		Example: `  rocectl decode out.pcapng
  rocectl decode out.pcapng --json | jq 'select(.icrc == "bad")'
  rocectl decode out.pcapng --flor all             headers, immediates and acknowledgements of Flor
  rocectl decode out.pcapng --flor 17,0x12
  rocectl decode - < out.pcapng`,
		RunE: func(c *cobra.Command, args []string) error {
			qps, err := flor.ParseQueuePairs(carry)
			if err != nil {
				return about.Usage(fmt.Errorf("--flor: %w", err))
			}
			in, err := input(c, args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			return a.decodeStream(in, qps)
		},
	}
	cmd.Flags().StringVar(&carry, "flor", "", "destination queue pairs of Flor's packets, separated by commas, or all")
	return cmd
}

func (a *app) decodeStream(in io.Reader, carry flor.QueuePairs) error {
	st, err := decode.Stream(in, a.out, decode.Options{JSON: a.json, Flor: carry})
	if errors.Is(err, unix.EPIPE) {
		return nil // the reader of our output closed the pipe
	}
	fmt.Fprintf(a.diag, "%d frames, %d RoCE, %d other%v, %d truncated, %d malformed, %d with a bad ICRC%v\n",
		st.Frames, st.RoCE, st.Skipped, st.Others, st.Truncated, st.Malformed, st.BadICRC, st.Cut)
	if err == nil && st.RoCE == 0 {
		return fmt.Errorf("%w%s", errNoRoCE, st.Others.Instead())
	}
	return err
}
