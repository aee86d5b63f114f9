// Command roceotg generates RoCEv2 traffic for clients of Open Traffic Generator's API, such as snappi. Its arguments are
// the interfaces that it may use.
//
// It is a separate Go module, so that roced does not depend on the code of OTG's model.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path"
	"syscall"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/otg/agent"
	"roced.io/roced/otg/api"
	"roced.io/roced/otg/fleet"
)

const usage = `Usage: roceotg [flags] INTERFACE...
       roceotg agent [flags] INTERFACE...

Serve Open Traffic Generator's API and generate RoCEv2 traffic on the interfaces. An agent lets the roceotg of another machine use them.
An interface is a name, netns/NAMESPACE/NAME, nic://NIC of a running daemon, agent://HOST:PORT/INTERFACE, or a pattern of them.

Examples: roceotg netns/h1/eth1 'eth*' nic://rxe0 'agent://198.18.0.2:40052/*'
          roceotg agent -listen 198.18.0.2:40052 -allow 198.18.0.1/32 eth1

`

// options are those of the command line.
type options struct {
	api.Access
	agent.Identity
	agent   bool
	version bool
}

func main() {
	var o options
	arguments := os.Args[1:]
	if o.agent = len(arguments) > 0 && arguments[0] == "agent"; o.agent {
		arguments = arguments[1:]
	}
	f := o.flags()
	_ = f.Parse(arguments) // exits on errors
	if o.version {
		fmt.Println("roceotg", version.Own())
		return
	}
	if err := o.run(f.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "roceotg:", err)
		os.Exit(1)
	}
}

// flags returns the flags of the program or of an agent.
func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("roceotg", flag.ExitOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	f.StringVar(&o.ClientCA, "client-ca", "", "require client certificates of this authority, in PEM; gRPC has TLS then")
	f.Func("allow", "accept clients of this network, as 192.0.2.0/24; repeat for several", func(s string) error {
		p, err := netip.ParsePrefix(s)
		o.Allow = append(o.Allow, p)
		return err
	})
	f.StringVar(&o.Access.Certificate, "cert", "", "certificate in PEM; without it, roceotg generates one")
	f.StringVar(&o.Access.Key, "key", "", "private key of the certificate in PEM")
	f.BoolVar(&o.version, "version", false, "show the version")
	if o.agent {
		f.StringVar(&o.GRPC, "listen", "127.0.0.1:40052", "address for the controller")
		return f
	}
	f.StringVar(&o.GRPC, "grpc", "127.0.0.1:40051", "address of the gRPC service")
	f.StringVar(&o.HTTPS, "https", "127.0.0.1:8443", "address of the HTTPS service")
	f.StringVar(&o.Identity.Certificate, "agent-cert", "", "certificate for agents, in PEM")
	f.StringVar(&o.Identity.Key, "agent-key", "", "private key of the certificate for agents, in PEM")
	f.StringVar(&o.CA, "agent-ca", "", "authority of the certificates of agents, in PEM")
	return f
}

func (o *options) run(interfaces []string) (err error) {
	if len(interfaces) == 0 {
		return errors.New("no interfaces: name those that it may use, as eth1 or netns/h1/eth1")
	}
	for _, i := range interfaces {
		if _, err := path.Match(i, ""); err != nil {
			return fmt.Errorf("interface %q: %w", i, err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if o.agent {
		e := fleet.New(nil)
		return errors.Join(agent.Serve(ctx, o.Access, e, interfaces, func(a net.Addr) {
			log.Info("ready", "version", version.Number, "agent", a.String())
		}), e.Close())
	}
	dial, err := o.Dialer()
	if err != nil {
		return err
	}
	e := fleet.New(dial)
	defer func() { err = errors.Join(err, e.Close()) }()
	return api.New(e, interfaces).Serve(ctx, o.Access, func(grpc, https net.Addr) {
		log.Info("ready", "version", version.Number, "grpc", grpc.String(), "https", https.String())
	})
}
