package ctl

import (
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/daemon/api"
)

func (a *app) page() *cobra.Command {
	var open bool
	cmd := &cobra.Command{
		Use: "page", Short: "Open the live page, or print its address", Args: about.Words(0, 0),
		Long: `Prints the address of the daemon's live page with a token. The token permits its holder to
see everything and, with control: true, to change fault rules. All users of a machine can
read the arguments of programs, so do not pass the address to a program: --open passes a
file to xdg-open that only you can read (roced/page.html in $XDG_CACHE_HOME or ~/.cache).
The daemon serves a page after rocectl up --web, or if its configuration has

  web: {listen: 127.0.0.1:9465}`,
		Example: "  rocectl up --web\n  rocectl page --open",
		RunE: func(c *cobra.Command, _ []string) error {
			var p api.Page
			if err := a.client().Get(c.Context(), &p, "page"); err != nil {
				return err
			}
			if open {
				return openPage(p.URL)
			}
			return a.show(p, func(w io.Writer) { fmt.Fprintln(w, p.URL) })
		},
	}
	cmd.Flags().BoolVar(&open, "open", false, "open the page in a browser with xdg-open")
	return cmd
}

// openPage opens an address with a token in a browser. Arguments of programs are public, so the browser gets a file that
// leads to the address and that only this user can read.
func openPage(url string) error {
	if strings.HasPrefix(url, "unix:") {
		return fmt.Errorf("%s: browsers open no Unix sockets; set web.listen to an address such as 127.0.0.1:9465", url)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, "roced")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "page-*.html") // with mode 0600
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "<!doctype html><title>roced</title><meta http-equiv=\"refresh\" content=\"0; url=%s\">\n", html.EscapeString(url))
	name := filepath.Join(dir, "page.html")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := exec.Command("xdg-open", name).Run(); err != nil {
		return fmt.Errorf("xdg-open: %w; open %s in a browser", err, name)
	}
	return nil
}
