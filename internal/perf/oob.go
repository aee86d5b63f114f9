package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"roced/verbs"
)

// version of the out-of-band protocol: JSON objects over a stream.
const version = 1

// hello is what each side tells the other at the start.
type hello struct {
	Version int              `json:"version"`
	Params  *Params          `json:"params,omitempty"` // from the client
	QPs     []verbs.ConnInfo `json:"qps,omitempty"`
	Addr    uint64           `json:"addr,omitempty"` // of the region
	RKey    uint32           `json:"rkey,omitempty"`
	Error   string           `json:"error,omitempty"`
}

// note is everything that is said later.
type note struct {
	Kind     string  `json:"kind"` // ready, check, done, result
	Round    int     `json:"round,omitempty"`
	Messages uint64  `json:"messages,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`
	Error    string  `json:"error,omitempty"`
}

// errPeer marks what the other side has reported.
var errPeer = errors.New("the other side reports")

// oob is the connection on which the two sides meet.
type oob struct {
	c    net.Conn
	enc  *json.Encoder
	dec  *json.Decoder
	stop func() bool
}

// newOOB takes over a connection; it is closed when ctx ends, so that neither
// side waits for one that has gone.
func newOOB(ctx context.Context, c net.Conn) *oob {
	return &oob{
		c: c, enc: json.NewEncoder(c), dec: json.NewDecoder(io.LimitReader(c, 1<<28)),
		stop: context.AfterFunc(ctx, func() { c.Close() }),
	}
}

func (o *oob) close() error {
	o.stop()
	return o.c.Close()
}

func (o *oob) send(v any) error {
	if err := o.enc.Encode(v); err != nil {
		return fmt.Errorf("out-of-band connection: %w", err)
	}
	return nil
}

func (o *oob) receive(v any) error {
	if err := o.dec.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the other side has gone")
		}
		return fmt.Errorf("out-of-band connection: %w", err)
	}
	return nil
}

// expect receives a note of a certain kind.
func (o *oob) expect(kind string) (note, error) {
	var n note
	if err := o.receive(&n); err != nil {
		return n, err
	}
	if n.Error != "" {
		return n, fmt.Errorf("%w: %s", errPeer, n.Error)
	}
	if n.Kind != kind {
		return n, fmt.Errorf("out-of-band connection: %q instead of %q", n.Kind, kind)
	}
	return n, nil
}

// sync waits until both sides have come here.
func (o *oob) sync() error {
	if err := o.send(note{Kind: "ready"}); err != nil {
		return err
	}
	_, err := o.expect("ready")
	return err
}

// dial connects to the server.
func dial(ctx context.Context, o *Options) (*oob, error) {
	network, addr := "tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	if path, ok := strings.CutPrefix(o.OOB, "unix:"); ok {
		network, addr = "unix", path
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return newOOB(ctx, c), nil
}

// listen waits for clients. A socket that a dead server has left is replaced.
func listen(o *Options) (net.Listener, error) {
	path, ok := strings.CutPrefix(o.OOB, "unix:")
	if !ok {
		return net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(o.Port)))
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("%s is in use", path)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		os.Remove(path)
	}
	return net.Listen("unix", path)
}
