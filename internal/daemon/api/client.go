package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/rundir"
)

// Client is a client of a daemon's administration interface.
type Client struct {
	socket string
	http   http.Client
}

// NewClient returns a client of the daemon at a socket.
func NewClient(socket string) *Client {
	c := &Client{socket: socket}
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dial(ctx, socket)
	}}
	return c
}

// dial connects to the socket of a daemon if its run directory is safe.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	dir := filepath.Dir(socket)
	if err := rundir.CheckLength(dir); err != nil {
		return nil, err
	}
	if err := rundir.Check(dir); err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if err := rundir.CheckPeer(dir, c.(*net.UnixConn)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get sends a GET for a path below /v1/ and decodes the answer into out, a pointer.
func (c *Client) Get(ctx context.Context, out any, path ...string) error {
	return c.call(ctx, http.MethodGet, nil, out, path)
}

// Do sends in as JSON. It returns the error of the answer and ignores other content.
func (c *Client) Do(ctx context.Context, method string, in any, path ...string) error {
	return c.call(ctx, method, in, nil, path)
}

// Ask sends in as JSON and decodes the answer into out, a pointer.
func (c *Client) Ask(ctx context.Context, method string, in, out any, path ...string) error {
	return c.call(ctx, method, in, out, path)
}

func (c *Client) call(ctx context.Context, method string, in, out any, path []string) error {
	body, err := c.Stream(ctx, method, in, path...)
	if err != nil {
		return err
	}
	defer body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return fmt.Errorf("answer of the daemon: %w", err)
	}
	return nil
}

// Stream returns the body of an answer that may continue until the caller closes it.
func (c *Client) Stream(ctx context.Context, method string, in any, path ...string) (io.ReadCloser, error) {
	var send io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(b)
	}
	return c.exchange(ctx, method, send, "", path)
}

// lastFrames limits the time that a recording takes to end.
const lastFrames = 5 * time.Second

// Capture returns a capture of a NIC. When ctx ends, the capture ends with all frames up to then, and the reader gets
// EOF.
func (c *Client) Capture(ctx context.Context, nic string) (io.ReadCloser, error) {
	return c.record(ctx, "", "capture", nic)
}

// Trace returns a trace of a queue pair: a number or NextQP. It ends when ctx ends, as for Capture, or when the queue
// pair is destroyed. flor decodes packets as Flor's.
func (c *Client) Trace(ctx context.Context, nic, qp string, flor bool) (io.ReadCloser, error) {
	query := ""
	if flor {
		query = "?flor"
	}
	return c.record(ctx, query, "trace", nic, qp)
}

// record sends a request whose answer continues until the request body ends.
func (c *Client) record(ctx context.Context, query string, path ...string) (io.ReadCloser, error) {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	// The daemon ends the recording when the body of the request ends.
	rd, wr := io.Pipe()
	stop := context.AfterFunc(ctx, func() {
		wr.Close()
		time.AfterFunc(lastFrames, cancel)
	})
	body, err := c.exchange(hard, http.MethodPost, rd, query, path)
	if err != nil {
		stop()
		cancel()
		wr.Close()
		return nil, err
	}
	return &captureBody{body, func() {
		stop()
		wr.Close()
		cancel()
	}}, nil
}

// captureBody is the body of an answer. Close ends the request.
type captureBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *captureBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

// exchange sends a request and returns the body of its answer.
func (c *Client) exchange(ctx context.Context, method string, send io.Reader, query string, path []string) (io.ReadCloser, error) {
	escaped := make([]string, len(path))
	for i, p := range path {
		escaped[i] = url.PathEscape(p)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://roced/v1/"+strings.Join(escaped, "/")+query, send)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var f Fault
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&f); err != nil || f.Error == "" {
		return nil, refused(method, path[0], resp)
	}
	return nil, errors.New(f.Error)
}

// refused describes an error answer without a Fault. A daemon that does not know a path is older than this client.
func refused(method, what string, resp *http.Response) error {
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed {
		return fmt.Errorf("the daemon does not support %s %q: it is older than this program; restart it", method, what)
	}
	return fmt.Errorf("the daemon answers %s", resp.Status)
}

// explain turns a connection error into an error message.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("no daemon at %s: is roced running? \"rocectl up\" starts one, --run-dir names another", c.socket)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: permission denied: control.mode in the daemon's configuration sets the permissions", c.socket)
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
