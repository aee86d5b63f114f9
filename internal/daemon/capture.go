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

// reconstructed is what a capture says of a NIC on sockets.
const reconstructed = "UDP sockets: the kernel makes and takes Ethernet, IP and UDP headers; they are reconstructed here, without the hop limit, " +
	"flow label, UDP checksum and stations of the wire, and with the IP ID that the ICRC was made for"

// captureFile begins the capture of the configuration. That nothing more can be written is
// logged when it happens, not when the daemon ends.
func (n *nic) captureFile() (err error) {
	name := n.cfg.Capture.File
	n.file, err = n.startCapture(context.Background(), capture.Config{File: name, Failed: func(err error) {
		n.log.Error("capture: nothing more is written", "file", name, "err", err)
	}})
	return err
}

// startCapture makes a capture see the frames of the NIC.
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

// stopCapture ends what startCapture has begun.
func (n *nic) stopCapture(c *capture.Capture) (capture.Stats, error) {
	// A shard that has ended shows no frames any more.
	_ = n.shard.Do(context.Background(), func(_ mono.Time, core *rocev2.NIC) {
		n.taps.remove(core, c)
		if len(n.taps.list) == 0 {
			n.port.SetObserver(nil)
		}
	})
	return c.Stop()
}

// postCapture streams a capture as the body of the answer: whoever asked writes
// the file, with the rights that it has. It lasts until the caller goes or, so
// that nothing is lost, ends the body of its request or asks for its end by name.
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
	// The capture writes to its end of a pipe, which it opens by name.
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
	case <-d.ending:
	}
	if r.Context().Err() != nil {
		rd.Close() // ends a write of the capture that nobody reads
	}
	st, err := n.stopCapture(c)
	<-copied
	rd.Close()
	n.log.Info("capture ended", "frames", st.Written, "lost", st.Lost, "err", err)
	return nil
}

// endOfBody returns a channel that is closed when the body of a request of
// unknown length ends, as it does when the caller says so or goes. Another
// request's body means nothing: the channel is nil. stop ends the reading, which the server
// does not suffer beside its own once the request has been answered. As it could begin to read
// by itself where the body ends, the connection ends with the answer; endOfBody is called
// before the answer begins.
func endOfBody(w http.ResponseWriter, r *http.Request) (over <-chan struct{}, stop func()) {
	if r.ContentLength >= 0 {
		return nil, func() {}
	}
	w.Header().Set("Connection", "close")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, r.Body) // an error is an end as well
	}()
	return ended, func() {
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // a connection that cannot has ended
		<-ended
	}
}

// copyFlushed copies r to w and passes everything on at once.
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
