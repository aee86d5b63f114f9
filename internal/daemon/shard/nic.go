package shard

import (
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	"roced.io/roced/rocev2"
)

// NIC is a NIC with its port, served by a shard.
type NIC struct {
	shard   *Shard
	nic     *rocev2.NIC
	port    port.Port
	onFault func(uintptr)
	ask     func(rocev2.Query)
	// monitored is the port if it reports its link state, else nil.
	monitored port.Monitored
	// unsealing is the port if it can receive frames without ICRCs, else nil.
	unsealing interface{ Unsealed() bool }

	calls  chan *call
	closed chan struct{} // closed when the shard has stopped to serve the NIC

	// The fields below belong to the loop.
	gone     bool // the shard does not serve the NIC any more
	waiting  int  // closures to run in this turn
	poll     time.Duration
	small    bool // the last batch was one small frame
	up       bool
	mtu      int    // of the link, 0 if unknown
	ports    uint32 // of the link that are up, 0 without planes
	bells    []*Bell
	bellTurn int         // the bell polled last
	unsent   bool        // transmit stopped before it had sent everything
	held     *link.Frame // a frame that the port had no room for
	timed    bool        // the port's timer tells when there is room, not its descriptor
	heldFrm  link.Frame
	heldAt   mono.Time
	heldBuf  []byte
	heldBufs [1][]byte
	stats    Stats
	watch    watch

	poster   recvPoster
	watched  []watched
	indexOf  map[*rocev2.QueuePair]int // index in watched
	scanned  mono.Time                 // start of the last scan
	scanning bool                      // the scan is not complete
	seen     int                       // number of entries scanned
	broken   bool                      // the scan found a queue pair in the error state
}

func newNIC(cfg *Config) *NIC {
	n := &NIC{
		nic: cfg.NIC, port: cfg.Port, onFault: cfg.OnFault, ask: cfg.Ask, poll: cfg.Poll, up: true,
		calls: make(chan *call, 64), closed: make(chan struct{}), heldBuf: make([]byte, 0, bufSize),
		poster: cfg.NIC, watch: watch{fd: -1},
	}
	n.monitored, _ = cfg.Port.(port.Monitored)
	n.unsealing, _ = cfg.Port.(interface{ Unsealed() bool })
	return n
}

// down reports that the port has no descriptor to wait for.
func (n *NIC) down() bool { return n.port.FD() < 0 }
