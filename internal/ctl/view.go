package ctl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/base/version"
	"roced.io/roced/internal/daemon/web"
)

func (a *app) view() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use: "view FILE", Short: "Show a stored trace, a capture or a simulation in a browser", Args: about.Words(1, 1),
		Long: `Serves a page that shows a file, and prints its address, until Ctrl-C. A file is a trace
(rocectl trace -w, rocesim --trace), a capture (pcap or pcapng), or the result of a
simulation: the folder of rocesim --out, or its summary.json. The page needs nothing but
this program; the token in its address keeps other users of this machine out.`,
		Example: "  rocectl view out.json\n  rocectl view out.pcapng\n  rocesim run configs/sim/incast.yaml --out result && rocectl view result",
		RunE: func(c *cobra.Command, args []string) error {
			f, err := openStored(args[0])
			if err != nil {
				return err
			}
			return a.serveFile(c.Context(), listen, f)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address and port of the page")
	return cmd
}

// serveFile serves the page of a file until ctx ends.
func (a *app) serveFile(ctx context.Context, listen string, f *stored) error {
	ln, err := host.Listen(listen)
	if err != nil {
		return err
	}
	token := rand.Text()
	about := web.About{Version: version.Own().Version, File: filepath.Base(f.name()), Kind: f.kind}
	srv := &http.Server{Handler: web.New(web.Config{Views: f.routes(), Token: token, About: about}), ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	fmt.Fprintf(a.out, "http://%s/#token=%s\n", ln.Addr(), token)
	fmt.Fprintln(a.diag, "Ctrl-C ends")
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
