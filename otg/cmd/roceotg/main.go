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
	"roced.io/roced/otg/api"
	"roced.io/roced/otg/engine"
)

func main() {
	var a api.Access
	f := flag.NewFlagSet("roceotg", flag.ExitOnError)
	f.StringVar(&a.GRPC, "grpc", "127.0.0.1:40051", "address of the gRPC service")
	f.StringVar(&a.HTTPS, "https", "127.0.0.1:8443", "address of the HTTPS service")
	f.StringVar(&a.Certificate, "cert", "", "certificate of HTTPS in PEM; without it, roceotg generates one")
	f.StringVar(&a.Key, "key", "", "private key of the certificate in PEM")
	f.StringVar(&a.ClientCA, "client-ca", "", "require client certificates of this authority, in PEM; gRPC has TLS then")
	f.Func("allow", "accept clients of this network, as 192.0.2.0/24; repeat for several", func(s string) error {
		p, err := netip.ParsePrefix(s)
		a.Allow = append(a.Allow, p)
		return err
	})
	show := f.Bool("version", false, "show the version")
	f.Usage = func() {
		fmt.Fprint(f.Output(), "Usage: roceotg [flags] INTERFACE...\n\nServe Open Traffic Generator's API and generate RoCEv2 traffic on the interfaces."+
			"\nAn interface is a name, netns/NAMESPACE/NAME, or a pattern of them.\n\nExample: roceotg netns/h1/eth1 'eth*'\n\n")
		f.PrintDefaults()
	}
	_ = f.Parse(os.Args[1:]) // exits on errors
	if *show {
		fmt.Println("roceotg", version.Own())
		return
	}
	if err := run(a, f.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "roceotg:", err)
		os.Exit(1)
	}
}

func run(a api.Access, interfaces []string) (err error) {
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
	e := engine.New()
	defer func() { err = errors.Join(err, e.Close()) }()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	return api.New(e, interfaces).Serve(ctx, a, func(grpc, https net.Addr) {
		log.Info("ready", "version", version.Number, "grpc", grpc.String(), "https", https.String())
	})
}
