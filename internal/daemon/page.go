package daemon

import (
	"crypto/rand"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/internal/daemon/accept"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/web"
)

// startPage serves the live page if the configuration sets web.listen. routes handles the requests of the admin
// interface.
func (d *Daemon) startPage(routes http.Handler) error {
	c := &d.cfg.Web
	cfg := web.Config{Views: routes, Control: c.Control, Hosts: c.Hosts, About: web.About{Version: version.Own().Version}}
	for _, n := range d.nics {
		cfg.NICs = append(cfg.NICs, n.cfg.Name)
	}
	path, socket := c.UnixPath()
	switch {
	case c.Listen == "":
		return nil
	case socket:
		return d.servePageOn(path, cfg)
	}
	ln, err := listen("web.listen", c.Listen)
	if err != nil {
		return err
	}
	cfg.Token = rand.Text()
	addr := *ln.Addr().(*net.TCPAddr)
	cfg.Open = addr.IP.IsLoopback()
	if addr.IP.IsUnspecified() {
		addr.IP = net.IPv4(127, 0, 0, 1) // one of the addresses on which it listens
	}
	d.page = api.Page{Address: "http://" + addr.String() + "/", Control: c.Control}
	d.page.URL = d.page.Address + "#token=" + cfg.Token
	page := web.New(cfg)
	d.serveTCP(page, ln, page.MaySee, 0)
	d.log.Info("live page", "address", d.page.Address, "control", c.Control)
	return nil
}

// servePageOn serves the page on a Unix socket, to the users that may use the admin socket.
func (d *Daemon) servePageOn(path string, cfg web.Config) error {
	path = filepath.Clean(path)
	ln, err := accept.Unix("unix", path, fs.FileMode(d.cfg.Control.Mode))
	if err != nil {
		return err
	}
	d.page = api.Page{Address: "unix:" + path, URL: "unix:" + path, Control: cfg.Control}
	d.serveUntilEnd(d.personal(web.New(cfg)), &admission{ln, d.quota, d.log})
	d.served.Go(func() {
		<-d.ending
		os.Remove(path)
	})
	return nil
}

// getPage answers with the address of the page. The answer may contain the token, because the client has those rights
// already.
func (d *Daemon) getPage(w http.ResponseWriter, _ *http.Request) {
	if d.page.Address == "" {
		answer(w, http.StatusNotFound, api.Fault{Error: "the daemon serves no page: run roced down, then roced up --web; or set web: {listen: 127.0.0.1:9465} in its configuration"})
		return
	}
	answer(w, http.StatusOK, d.page)
}
