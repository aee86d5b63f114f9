package daemon

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/internal/daemon/accept"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/internal/daemon/web"
)

// startPage serves the live page. It returns nil without web.listen.
func (d *Daemon) startPage(all *config.Config, old *service) (*service, error) {
	c := &all.Web
	cfg := web.Config{Views: d.routes(), Control: c.Control, Hosts: c.Hosts, About: web.About{Version: version.Own().Version}}
	for _, n := range d.nics() {
		cfg.NICs = append(cfg.NICs, n.cfg.Name)
	}
	path, socket := c.UnixPath()
	switch {
	case c.Listen == "":
		d.page.Store(nil)
		return nil, nil
	case socket:
		return d.servePageOn(path, fs.FileMode(all.Control.Mode), cfg)
	}
	ln, err := listen("web.listen", c.Listen, old)
	if err != nil {
		return nil, err
	}
	if d.token == "" {
		d.token = rand.Text()
	}
	cfg.Token = d.token
	addr := *ln.Addr().(*net.TCPAddr)
	cfg.Open = addr.IP.IsLoopback()
	if addr.IP.IsUnspecified() {
		addr.IP = net.IPv4(127, 0, 0, 1) // one of the addresses on which it listens
	}
	p := &api.Page{Address: "http://" + addr.String() + "/", Control: c.Control}
	p.URL = p.Address + "#token=" + cfg.Token
	d.page.Store(p)
	page := web.New(cfg)
	d.log.Info("live page", "address", p.Address, "control", c.Control)
	return &service{address: c.Listen, ln: ln, stop: d.serveTCP(page, ln, page.MaySee, 0)}, nil
}

// servePageOn serves the page on a Unix socket, to the users that may use the admin socket.
func (d *Daemon) servePageOn(path string, mode fs.FileMode, cfg web.Config) (*service, error) {
	path = filepath.Clean(path)
	ln, err := accept.Unix("unix", path, mode)
	if err != nil {
		return nil, fmt.Errorf("web.listen: %w", err)
	}
	d.page.Store(&api.Page{Address: "unix:" + path, URL: "unix:" + path, Control: cfg.Control})
	stop := d.serveUntilEnd(d.personal(web.New(cfg)), &admission{ln, d.quota, d.log})
	gone := make(chan struct{})
	d.served.Go(func() {
		select {
		case <-d.ending:
			os.Remove(path)
		case <-gone:
		}
	})
	return &service{path: path, stop: func() {
		stop()
		close(gone)
	}}, nil
}

// getPage answers with the address of the page. The answer may contain the token, because the client has those rights
// already.
func (d *Daemon) getPage(w http.ResponseWriter, _ *http.Request) {
	p := d.page.Load()
	if p == nil {
		answer(w, http.StatusNotFound, api.Fault{Error: "the daemon serves no page: run roced down, then roced up --web; or set web: {listen: 127.0.0.1:9465} in its configuration"})
		return
	}
	answer(w, http.StatusOK, p)
}
