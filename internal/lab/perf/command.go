package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"roced.io/roced/entry/local"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/base/suggest"
)

var stdout, stderr = output.NewSafe(os.Stdout), output.NewSafe(os.Stderr)

// Main runs roceperf and returns its exit code: 0 on success, 1 if a test failed, 2 for a usage error.
func Main(args []string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	c := NewCommand()
	c.SetArgs(args)
	c.SetOut(stdout)
	c.SetErr(stderr)
	err := output.Result(stdout, c.ExecuteContext(ctx))
	switch {
	case err == nil:
		return 0
	case about.IsUsage(err):
		fmt.Fprintf(stderr, "roceperf: %v\nSee roceperf --help.\n", err)
		return 2
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "roceperf: interrupted")
		return 1
	}
	fmt.Fprintln(stderr, "roceperf:", err)
	return 1
}

// NewCommand returns the root command.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "roceperf",
		Short: "Measure and verify RDMA between two NICs of roced",
		Long: `roceperf measures bandwidth and latency between two NICs, like perftest, and can
verify every byte. Without HOST it is the server; the client's parameters hold
for both sides. The two meet over TCP, or over a Unix socket with --oob.`,
		Example: `  roceperf write-bw                           server
  roceperf write-bw 198.18.1.2 -s 64k -D 5s   client
  roceperf send-bw --connection ud HOST --json
  roceperf read-bw HOST -q 16 --verify
  roceperf write-lat HOST -s 8 -n 10000
  roceperf write-lat HOST --local nic.yaml    on a NIC of its own, without a daemon`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return about.Usage(fmt.Errorf("no test %q: the tests are %s and flor%s", args[0], strings.Join(Tests, ", "), suggest.Hint(args[0], Tests)))
			}
			return nil
		},
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	for _, t := range Tests {
		root.AddCommand(newTest(t))
	}
	root.AddCommand(newFlor())
	about.Program{Section: 1}.Add(root)
	return root
}

// does describes each test.
var does = map[string]string{
	"write-bw": "RDMA WRITE bandwidth", "read-bw": "RDMA READ bandwidth", "send-bw": "SEND bandwidth",
	"write-lat":  "RDMA WRITE latency, half a round trip, polling memory",
	"read-lat":   "RDMA READ latency",
	"send-lat":   "SEND latency, half a round trip",
	"atomic-lat": "FETCH_ADD latency",
}

func newTest(name string) *cobra.Command {
	o := &Options{Params: Params{Test: name}}
	var size string
	c := &cobra.Command{
		Use:   name + " [HOST]",
		Short: does[name],
		Example: fmt.Sprintf("  roceperf %s -d rxe_b          server on this machine's rxe_b\n"+
			"  roceperf %s HOST -d rxe_a     client", name, name),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return about.Usage(fmt.Errorf("more than one host: %v; name only the server", args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.complete(c, args, size); err != nil {
				return about.Usage(err)
			}
			return o.run(c.Context(), stdout)
		},
	}
	addFlags(c, o, &size)
	return c
}

// run runs one side, on a NIC of its own with --local.
func (o *Options) run(ctx context.Context, out io.Writer) error {
	if o.Local != "" {
		text, err := bounded.ReadFile(o.Local, bounded.Text)
		if err != nil {
			return about.Usage(err)
		}
		nics, err := local.Start(string(text), nil)
		if err != nil {
			return err
		}
		defer nics.Close()
		o.RunDir = nics.RunDir()
	}
	if o.Host == "" {
		return Serve(ctx, o, out, stderr)
	}
	return Client(ctx, o, out, stderr)
}

func addFlags(c *cobra.Command, o *Options, size *string) {
	f := c.Flags()
	f.StringVarP(&o.Device, "device", "d", "", "verbs device, by name or index (default: the first)")
	f.StringVar(&o.RunDir, "run-dir", "", "run directory of the daemon")
	f.StringVar(&o.Local, "local", "", "make the NICs of a configuration file in this process, without a daemon")
	f.IntVarP(&o.Port, "port", "p", 18515, "TCP port for the exchange of parameters")
	f.StringVar(&o.OOB, "oob", "", "exchange parameters over a Unix socket, unix:PATH")
	f.BoolVar(&o.Forever, "forever", false, "keep serving clients, one after the other")
	f.BoolVar(&o.JSON, "json", false, "print each result as a JSON object")
	f.BoolVar(&o.Quiet, "quiet", false, "show no progress")
	f.BoolVar(&o.All, "all", false, "measure a range of sizes; set it on both sides")
	f.IntVarP(&o.GIDIndex, "gid-index", "x", -1, "index of the GID (default: the first IPv4 GID)")
	f.StringVarP(&o.Connection, "connection", "c", "rc", "transport service: rc, uc or ud")
	f.StringVarP(size, "size", "s", "", "message size in bytes, with k, m or g (default 64k; latency 8; ud 1024)")
	f.IntVarP(&o.QPs, "qps", "q", 1, "number of queue pairs")
	f.DurationVarP(&o.Duration, "duration", "D", 0, "duration of the measurement (default 2s unless --iters)")
	f.IntVarP(&o.Iters, "iters", "n", 0, "number of messages of each queue pair, instead of a duration")
	f.IntVarP(&o.MTU, "mtu", "m", 0, "path MTU (default: the port's)")
	f.IntVarP(&o.TxDepth, "tx-depth", "t", 0, "send queue depth (default 256)")
	f.IntVarP(&o.RxDepth, "rx-depth", "r", 0, "receive queue depth (default 512)")
	f.IntVarP(&o.CQMod, "cq-mod", "Q", 0, "signal one of N messages (default: a quarter of --tx-depth, less for large messages)")
	f.IntVarP(&o.Inline, "inline", "I", 220, "maximum size of inline messages")
	f.IntVarP(&o.Timeout, "timeout", "u", 14, "ACK timeout exponent N: 4.096 us * 2^N; 0: no timeout")
	f.IntVar(&o.RetryCnt, "retry-cnt", 7, "retries before a message fails")
	f.BoolVarP(&o.Events, "events", "e", false, "sleep until a completion event instead of polling")
	f.BoolVar(&o.Verify, "verify", false, "compare all bytes of all messages; check the values of atomics")
	f.BoolVarP(&o.Both, "bidirectional", "b", false, "measure both directions at once")
	f.StringVar(&o.Profile, "profile", "", "transport profile")
}

// complete fills in defaults and checks the options.
func (o *Options) complete(c *cobra.Command, args []string, size string) (err error) {
	if len(args) == 1 {
		o.Host = args[0]
	}
	if o.OOB != "" && len(o.OOB) < len("unix:x") || o.OOB != "" && o.OOB[:5] != "unix:" {
		return fmt.Errorf("--oob %q is not unix:PATH", o.OOB)
	}
	if o.Local != "" && o.RunDir != "" {
		return fmt.Errorf("--local and --run-dir: NICs are either in this process or in a daemon")
	}
	switch {
	case size != "":
		if o.Size, err = parseSize(size); err != nil {
			return fmt.Errorf("--size: %w", err)
		}
	case o.latency():
		o.Size = 8
	case o.Connection == "ud":
		o.Size = 1024
	default:
		o.Size = 64 << 10
	}
	if o.op() == "atomic" {
		o.Size = 8
	}
	if o.Iters == 0 && !c.Flags().Changed("duration") {
		o.Duration = 2 * time.Second
	}
	if o.Iters > 0 {
		o.Duration = 0
	}
	o.TxDepth = cmp.Or(o.TxDepth, defaultTxDepth)
	o.RxDepth = cmp.Or(o.RxDepth, defaultRxDepth)
	p := o.Params
	if !c.Flags().Changed("cq-mod") {
		p.CQMod = defaultCQMod(p.TxDepth, p.Size)
	}
	return p.Validate()
}

const (
	defaultTxDepth = 256
	defaultRxDepth = 512
)

// defaultCQMod returns the default interval of signaled messages.
func defaultCQMod(txDepth, size int) int {
	if size > 8<<10 {
		return max(1, txDepth/32) // large messages saturate the link anyway
	}
	return max(1, txDepth/4)
}
