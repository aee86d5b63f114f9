package daemon

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/internal/observe/capture"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// reconstructed is the description in captures of a NIC on UDP sockets.
const reconstructed = "UDP sockets: the kernel makes and takes Ethernet, IP and UDP headers; they are reconstructed here, without the hop limit, " +
	"flow label, UDP checksum and stations of the wire, and with the IP ID that the ICRC was made for"

// captureFile starts the capture of the configuration. A write error is logged at once, not at the daemon's end.
func (n *nic) captureFile() (err error) {
	name := n.cfg.Capture.File
	n.file, err = n.startCapture(context.Background(), capture.Config{File: name, Keep: int64(n.cfg.Capture.Keep), SnapLen: n.cfg.Capture.SnapLen, Failed: func(err error) {
		n.log.Error("capture: nothing more is written", "file", name, "err", err)
	}})
	return err
}

// startCapture starts a capture of the NIC's frames.
func (n *nic) startCapture(ctx context.Context, cfg capture.Config) (*capture.Capture, error) {
	cfg.Interface, cfg.WallOffset = n.cfg.Name, time.Duration(time.Now().UnixNano()-int64(shard.Now()))
	if n.routed() {
		cfg.Description = reconstructed
	}
	c, err := capture.Start(cfg)
	if err != nil {
		return nil, err
	}
	err = n.shard.Do(ctx, func(_ mono.Time, core *rocev2.NIC) {
		n.taps.add(core, c)
		n.port.SetObserver(&n.taps)
	})
	if err != nil {
		_, _ = c.Stop()
		return nil, err
	}
	return c, nil
}

// stopCapture stops a capture that startCapture returned.
func (n *nic) stopCapture(c *capture.Capture) (capture.Stats, error) {
	// Do fails only if the shard has ended; the shard then shows no more frames.
	_ = n.shard.Do(context.Background(), func(_ mono.Time, core *rocev2.NIC) {
		n.taps.remove(core, c)
		if len(n.taps.list) == 0 {
			n.port.SetObserver(nil)
		}
	})
	return c.Stop()
}

// postCapture streams a capture as the body of the answer, so the client writes the file with its own rights. The
// capture lasts until the client disconnects. It ends without loss if the client ends its request body or deletes the
// capture by name.
func (d *Daemon) postCapture(n *nic, w http.ResponseWriter, r *http.Request) error {
	snap := 0
	if s := r.URL.Query().Get("snaplen"); s != "" {
		var err error
		if snap, err = strconv.Atoi(s); err != nil || snap < 0 {
			return badRequest{fmt.Errorf("snaplen %q is not a number of bytes", s)}
		}
	}
	ended, forget, err := n.captures.begin(r.URL.Query().Get("id"))
	if err != nil {
		return err
	}
	defer forget()
	// The capture opens the write end of a pipe by its name in /proc.
	rd, wr, err := os.Pipe()
	if err != nil {
		return err
	}
	c, err := n.startCapture(r.Context(), capture.Config{File: fmt.Sprintf("/proc/self/fd/%d", wr.Fd()), SnapLen: snap})
	wr.Close()
	if err != nil {
		rd.Close()
		return err
	}
	over, stop := endOfBody(w, r)
	defer stop()
	w.Header().Set("Content-Type", "application/x-pcapng")
	w.WriteHeader(http.StatusOK)
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		copyFlushed(w, rd)
	}()
	select {
	case <-r.Context().Done():
	case <-over:
	case <-ended:
	case <-copied:
	case <-n.ending:
	}
	if r.Context().Err() != nil {
		rd.Close() // unblocks a write of the capture, which has no reader any more
	}
	st, err := n.stopCapture(c)
	<-copied
	rd.Close()
	n.log.Info("capture ended", "frames", st.Written, "lost", st.Lost, "err", err)
	return nil
}

// endOfBody returns a channel that closes when a request body of unknown length ends. The body ends when the client
// ends it or disconnects. The channel is nil for a request with a known length.
//
// The caller must call stop before it returns: the server must not read the body at the same time. Call endOfBody
// before the answer begins, because it makes the connection close with the answer. Otherwise the server might start
// to read at the end of the body.
func endOfBody(w http.ResponseWriter, r *http.Request) (over <-chan struct{}, stop func()) {
	if r.ContentLength >= 0 {
		return nil, func() {}
	}
	w.Header().Set("Connection", "close")
	readWithin(w, 0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, r.Body) // an error ends the body too
	}()
	return ended, func() {
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // an error means that the connection has ended
		<-ended
	}
}

// copyFlushed copies r to w and flushes after each read.
func copyFlushed(w http.ResponseWriter, r io.Reader) {
	ctl := http.NewResponseController(w)
	buf := make([]byte, 64<<10)
	if ctl.Flush() != nil {
		return
	}
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil || ctl.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
