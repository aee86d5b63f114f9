package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"roced/internal/decode"
)

func (a *app) capture() *cobra.Command {
	var file string
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "capture NIC -w FILE", Short: "Capture all frames of a NIC, dropped ones with the reason, as pcapng",
		Args: between(1, 1),
		Example: `  rocectl capture rxe_a -w out.pcapng            until Ctrl-C
  rocectl capture rxe_a -w out.pcapng --duration 10s
  rocectl capture rxe_a -w - | tshark -r -`,
		RunE: func(c *cobra.Command, args []string) error {
			if file == "" {
				return usageError{errors.New("-w FILE is missing; - stands for standard output")}
			}
			ctx := c.Context()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			return a.record(ctx, args[0], file)
		},
	}
	cmd.Flags().StringVarP(&file, "write", "w", "", "file to write, - for standard output")
	cmd.Flags().DurationVar(&limit, "duration", 0, "how long (default: until interrupted)")
	return cmd
}

func (a *app) record(ctx context.Context, nic, file string) (err error) {
	body, err := a.client().Stream(ctx, "POST", nil, "capture", nic)
	if err != nil {
		return err
	}
	defer body.Close()
	out := a.out
	if file != "-" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	n, err := io.Copy(io.MultiWriter(out, a.captured()), body)
	if ctx.Err() != nil {
		err = nil // that is how captures end
	}
	if file != "-" {
		fmt.Fprintf(a.diag, "%d bytes written to %s\n", n, file)
	}
	return err
}

// progress shows how much has been written, where somebody sees it.
type progress struct {
	w     io.Writer
	total uint64
	last  time.Time
}

func (a *app) captured() io.Writer {
	f, ok := a.diag.(*os.File)
	if !ok {
		return io.Discard
	}
	if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err != nil {
		return io.Discard
	}
	return &progress{w: f}
}

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	p.total += uint64(len(b))
	if now := time.Now(); now.Sub(p.last) > 200*time.Millisecond {
		p.last = now
		fmt.Fprintf(p.w, "\r%d bytes captured; Ctrl-C ends \x1b[K\r", p.total)
	}
	return len(b), nil
}

func (a *app) decode() *cobra.Command {
	return &cobra.Command{
		Use: "decode FILE", Short: "Print the RoCE frames of a pcap or pcapng file, one a line", Args: between(1, 1),
		Example: `  rocectl decode out.pcapng
  rocectl decode out.pcapng --json | jq 'select(.icrc == "bad")'
  rocectl decode - < out.pcapng`,
		RunE: func(c *cobra.Command, args []string) error {
			in := c.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			return a.decodeStream(in)
		},
	}
}

func (a *app) decodeStream(in io.Reader) error {
	st, err := decode.Stream(in, a.out, decode.Options{JSON: a.json})
	if errors.Is(err, unix.EPIPE) {
		return nil // who reads our output has seen enough
	}
	if !a.json {
		fmt.Fprintf(a.diag, "%d frames, %d RoCE, %d other, %d malformed, %d with a bad ICRC\n",
			st.Frames, st.RoCE, st.Skipped, st.Malformed, st.BadICRC)
	}
	return err
}
