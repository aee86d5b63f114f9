package cli

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"roced.io/roced/drill/record"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/output"
)

func (a *app) record() *cobra.Command {
	var qp, address, out string
	var d record.Device
	c := &cobra.Command{
		Use: "record CAPTURE --qp N", Short: "Turn a capture into a script to edit",
		Long: `Turns the packets between a queue pair and its peer into a script. The queue pair is the
device's; the tester plays its peer. PSNs are relative to P and Q, addresses to the
device's regions. Repeated packets become loops. The script replays losses, NAKs and late
receives: it omits packets that were lost after the capture, and permits packets that a
device need not send. It says what happened, not what has to: state the rule and remove
what it does not need. CAPTURE is pcap or pcapng; RC, UC and UD can be recorded.`,
		Example: `  rocedrill record roce.pcapng --qp 0x11 -o nak.drill
  rocedrill run nak.drill --dut virtual --log`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || qp == "" {
				return about.Usage(errors.New("usage: rocedrill record CAPTURE --qp N"))
			}
			var err error
			if d.QPN, err = strconv.ParseUint(qp, 0, 24); err != nil {
				return about.Usage(fmt.Errorf("--qp %s: must be a number of up to 24 bits, such as 0x11", qp))
			}
			if address != "" {
				if d.Addr, err = netip.ParseAddr(address); err != nil {
					return about.Usage(fmt.Errorf("--address: %w", err))
				}
			}
			f, err := os.Open(args[0])
			if err != nil {
				return about.Usage(err)
			}
			defer f.Close()
			if sameFile(args[0], out) {
				return about.Usage(fmt.Errorf("--output %s: is the capture; name another file", out))
			}
			text, err := record.Script(bufio.NewReader(bounded.Reader(f, bounded.Data)), filepath.Base(args[0]), d)
			if err != nil {
				return about.Usage(fmt.Errorf("%s: %w", args[0], err))
			}
			if out != "" {
				if err := output.Write(out, []byte(text)); err != nil {
					return about.Usage(err)
				}
			} else if !a.json {
				_, err = fmt.Fprint(a.out, text)
			}
			if a.json {
				return output.JSON(a.out, map[string]string{"script": text})
			}
			return err
		},
	}
	c.Flags().StringVar(&qp, "qp", "", "number of the device's queue pair, such as 17 or 0x11")
	c.Flags().StringVar(&address, "address", "", "IP address of the device, if both hosts have a queue pair of this number")
	icrcFlag(c, &d.IgnoreICRC)
	c.Flags().StringVarP(&out, "output", "o", "", "write `FILE` instead of standard output")
	return c
}
