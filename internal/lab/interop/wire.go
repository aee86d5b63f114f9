package main

import (
	"errors"
	"net"
	"sync"
)

// mangler receives a frame in transit and returns its replacement; nil drops the frame. toVM is the direction. It may
// change the frame in place.
type mangler func(frame []byte, toVM bool) []byte

// wire passes frames between two AF_UNIX datagram links. A case can thereby make changes that neither fault rules nor
// tc can make: change fields and recompute the ICRC.
type wire struct {
	ends [2]*net.UnixConn
	to   [2]*net.UnixAddr
	wg   sync.WaitGroup

	mu     sync.Mutex
	mangle mangler
}

// newWire connects the NIC at nic, which sends to nicSide, with the machine at vm, which sends to vmSide.
func newWire(nic, nicSide, vmSide, vm string) (*wire, error) {
	w := &wire{}
	for i, path := range []string{nicSide, vmSide} {
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		c.SetReadBuffer(4 << 20)
		c.SetWriteBuffer(4 << 20)
		w.ends[i] = c
	}
	w.to = [2]*net.UnixAddr{{Name: nic, Net: "unixgram"}, {Name: vm, Net: "unixgram"}}
	for i := range w.ends {
		w.wg.Go(func() { w.pass(i) })
	}
	return w, nil
}

// Set installs f for all further frames. nil passes them unchanged.
func (w *wire) Set(f mangler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mangle = f
}

// pass copies frames from end i to the other side.
func (w *wire) pass(i int) {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.ends[i].Read(buf)
		if err != nil {
			return
		}
		w.mu.Lock()
		frame := buf[:n]
		if w.mangle != nil {
			frame = w.mangle(frame, i == 0)
		}
		w.mu.Unlock()
		if frame != nil {
			w.ends[1-i].WriteToUnix(frame, w.to[1-i]) // without a receiver the frame is lost
		}
	}
}

// Close closes both ends.
func (w *wire) Close() error {
	var errs []error
	for _, c := range w.ends {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	w.wg.Wait()
	return errors.Join(errs...)
}
