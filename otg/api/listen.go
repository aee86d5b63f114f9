package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"roced.io/roced/internal/base/bounded"
)

// Access says where the API listens, and who may use it.
type Access struct {
	GRPC, HTTPS string // addresses with ports; empty: none
	// Certificate and Key are files in PEM. Without them, HTTPS has a certificate that the program generates.
	Certificate, Key string
	// ClientCA is a file in PEM: clients need a certificate of this authority, for gRPC too, which then has TLS.
	ClientCA string
	// Allow has the networks of clients. Other clients than those of this host need it, or ClientCA.
	Allow []netip.Prefix
}

// Serve serves the API until ctx is done. ready is called with the addresses.
func (s *Server) Serve(ctx context.Context, a Access, ready func(grpc, https net.Addr)) error {
	config, err := a.TLS()
	if err != nil {
		return err
	}
	rpc, err := a.Listen(a.GRPC)
	if err != nil {
		return err
	}
	defer rpc.Close()
	web, err := a.Listen(a.HTTPS)
	if err != nil {
		return err
	}
	defer web.Close()
	options := GRPCOptions()
	if a.ClientCA != "" {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	g := grpc.NewServer(options...)
	s.RegisterGRPC(g)
	h := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: time.Minute, TLSConfig: config,
		ErrorLog: log.New(io.Discard, "", 0)} // clients could fill a log
	ended := make(chan error, 2)
	go func() { ended <- g.Serve(rpc) }()
	go func() { ended <- h.ServeTLS(web, "", "") }()
	ready(rpc.Addr(), web.Addr())
	err = s.wait(ctx, ended)
	g.Stop()
	_ = h.Close()
	return err
}

// wait returns when ctx is done or a service has ended. Meanwhile it reads all metrics once per second, so that their rates are
// averages of the last second for rare readers too.
func (s *Server) wait(ctx context.Context, ended <-chan error) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.engine.PortMetrics()
			s.engine.FlowMetrics()
			s.engine.RawFlowMetrics()
		}
	}
}

// Listen listens on an address, for the permitted clients only.
func (a *Access) Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w; write ADDRESS:PORT", address, err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	if !addr.IsLoopback() && len(a.Allow) == 0 && a.ClientCA == "" {
		_ = l.Close()
		return nil, fmt.Errorf("address %q: other hosts can reach %s; name their networks by --allow, or require certificates by --client-ca",
			address, host)
	}
	return &listener{Listener: l, allow: a.Allow}, nil
}

// maxConnections limits the open connections of each service.
const maxConnections = 64

// listener closes connections of clients that are not in its networks, and those beyond the limit. Without networks, it
// accepts all clients.
type listener struct {
	net.Listener
	allow []netip.Prefix
	open  atomic.Int32
}

// connection counts as open until Close.
type connection struct {
	net.Conn
	once sync.Once
	open *atomic.Int32
}

func (c *connection) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		allowed := len(l.allow) == 0 || from.IsLoopback() || slices.ContainsFunc(l.allow, func(p netip.Prefix) bool { return p.Contains(from) })
		if allowed && l.open.Load() < maxConnections {
			l.open.Add(1)
			return &connection{Conn: c, open: &l.open}, nil
		}
		_ = c.Close()
	}
}

// TLS returns the configuration of TLS.
func (a *Access) TLS() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	certificate, err := a.certificate()
	if err != nil {
		return nil, err
	}
	c.Certificates = []tls.Certificate{certificate}
	if a.ClientCA == "" {
		return c, nil
	}
	pem, err := bounded.ReadFile(a.ClientCA, bounded.Text)
	if err != nil {
		return nil, err
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: has no certificate in PEM", a.ClientCA)
	}
	return c, nil
}

func (a *Access) certificate() (tls.Certificate, error) {
	if (a.Certificate == "") != (a.Key == "") {
		return tls.Certificate{}, errors.New("a certificate needs its key: use --cert and --key together")
	}
	if a.Certificate != "" {
		return KeyPair(a.Certificate, a.Key)
	}
	return generate()
}

// KeyPair reads a certificate and its key from files in PEM.
func KeyPair(certificate, key string) (tls.Certificate, error) {
	c, err := bounded.ReadFile(certificate, bounded.Text)
	if err != nil {
		return tls.Certificate{}, err
	}
	k, err := bounded.ReadFile(key, bounded.Text)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(c, k)
}

// generate returns a certificate for this host, which is valid for a year and signed by itself.
func generate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	host, err := os.Hostname()
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "roceotg on " + host}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.AddDate(1, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{host, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
