// Package scenario reads descriptions of simulations: strict YAML with units. docs/reference/simulator.md describes the
// format. Errors name file, line and key.
package scenario

import (
	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/base/strict"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp/profile"
)

// File is a scenario file.
type File struct {
	Name        string
	Description string
	Seed        uint64
	Topology    Topology
	Framing     nic.Framing // as in other simulators; none: as on the wire
	Contexts    nic.Contexts
	QoS         *QoS `yaml:"qos"`
	Switch      Switch
	Switches    []Override
	Transport   Transport
	Transports  []Sender
	NICs        []NICs `yaml:"nics"`
	Flor        *Flor
	Workload    []Work
	Events      []Event
	Faults      []Faults
	Stop        engine.Time // none: run until all messages have ended
	Sample      engine.Time // interval of samples; none: a thousandth of Stop, or no samples
	Ideal       string
	Paper       *Paper // the result of a paper that it reproduces

	Force bool `yaml:"-"` // accept it however much memory and time it needs

	*strict.Document `yaml:"-"`

	estimate estimate
}

// Topology describes hosts, switches and their links.
type Topology struct {
	Kind         string
	Hosts        int // star, parallel (on each side), jellyfish
	Left, Right  int // dumbbell
	Paths        int // parallel
	Leaves       int
	Spines       int
	HostsPerLeaf int `yaml:"hosts_per_leaf"`
	Cables       int // leaf-spine: between a leaf and a spine, default 1
	K            int // fat-tree
	Switches     int // jellyfish
	Degree       int // jellyfish
	Seed         uint64
	fabric.Wires `yaml:",inline"`
	Planes       int     // ports of a NIC, each in a copy of the network
	Machines     int     // rails
	Rails        int     // NICs per machine, default 2
	Links        []Cable // graph
	File         string  // ns3
	Relay        bool    // graph, ns3: hosts with several links forward packets of others
}

// Cable joins two nodes of a graph. Hosts are h0, h1 ..., all other names are switches.
type Cable struct {
	A, B  string
	Rate  quantity.Rate
	Delay engine.Time
}

// Switch describes switches.
type Switch struct {
	fabric.BufferConfig `yaml:",inline"`

	PFC         *PFC
	ECN         *ECN
	Scheduling  string  // fifo, srpt, voq, strict, drr
	Weights     []int   // drr: by class
	Strict      []uint8 // classes that leave before the others
	AckPriority bool    `yaml:"ack_priority"` // acknowledgements leave first
	Balance     fabric.BalanceConfig
	Detour      bool
	Trim        quantity.Bytes // remaining size of trimmed packets
	TrimClasses []uint8        `yaml:"trim_classes"` // whose packets are trimmed; none: all
}

// Override is for switches whose names begin with Match.
type Override struct {
	Match  string
	Switch Switch `yaml:",inline"`
}

// PFC is priority flow control. Classes are lossless; none: those of all workloads.
type PFC struct {
	fabric.PFCConfig `yaml:",inline"`

	Classes []uint8
}

// ECN marks packets of classes; none: all.
type ECN struct {
	fabric.ECNConfig `yaml:",inline"`

	Classes []uint8
}

// Transport describes the transport of hosts.
type Transport struct {
	Profile      string
	profile.Spec `yaml:",inline"`

	MTU         int
	MaxUnacked  uint32           `yaml:"max_unacked"` // packets
	AckTimeout  engine.Time      `yaml:"ack_timeout"`
	AckEach     bool             `yaml:"ack_each_packet"`
	CNPInterval engine.Time      `yaml:"cnp_interval"`
	Unlimited   bool             `yaml:"unlimited_retries"`
	Connections string           // message, persistent
	ClassLimits []quantity.Bytes `yaml:"class_limits"` // remaining bytes, descending
}

// Sender is a transport of messages that some hosts, or workloads that name it, send.
type Sender struct {
	Name      string
	Hosts     []int     // first and last
	Transport Transport `yaml:",inline"`
}

// Work is a workload.
type Work struct {
	Kind        string
	Verb        string // write, write_imm, send, read, fetch_add, compare_swap
	Service     string // rc, uc, ud
	Class       uint8  // traffic class
	DSCP        *uint8 `yaml:"dscp"` // selects the class by QoS
	Transport   string // one of Transports; none: that of the source
	Path        string // stream: the switch through which it goes
	Sizes       string // poisson: a distribution or a size
	Size        quantity.Bytes
	Load        float64
	Until       engine.Time
	CrossRack   bool    `yaml:"cross_rack"`
	Halves      bool    // poisson, permutation: the first half of the hosts sends to the second
	Random      bool    // incast: random senders; collectives: ranks on random hosts
	From        int     // stream
	Fence       float64 // stream: part of the messages that are synchronise operations
	StopWait    bool    `yaml:"stop_wait"` // stream: post these when all earlier messages have completed
	To          int     // incast, stream
	Senders     int
	Rounds      int
	Every       engine.Time
	At          engine.Time
	File        string // flows, goal
	Pattern     string // iterations
	Compute     engine.Time
	Group       int // iterations: of pattern hierarchical
	Client      int // rpc
	Server      int
	Request     quantity.Bytes
	Response    quantity.Bytes
	Calls       int
	Outstanding int
	Ranks       int   // collectives: of a job; none: all hosts
	Jobs        int   // collectives, each on hosts of its own
	QPs         int   `yaml:"qps"` // collectives, stream: connections between two hosts
	Clients     []int // calls: the first and the last host
	Servers     []int
	Connections int  // calls: per client and server
	Plain       bool // calls: without Flor
}

// Faults are rules of package fault for packets that enter a link.
type Faults struct {
	Link  string
	Rules []string
}

// Event changes the network.
type Event struct {
	At          engine.Time
	Link        string // * is any text
	Index       *int   // selects one of several cables between the same nodes, from 0; none: all
	Do          string
	Rate        quantity.Rate
	Probability float64
	Most        engine.Time    // jitter
	Min, Max    quantity.Bytes // mark: as in switch.ecn
	Percent     float64        // fail-some: of the links between switches, others each time
	Every       engine.Time    // fail-some
	Until       engine.Time    // fail-some: then all links are restored
}

// Read reads a scenario. path is its name in errors; set are changes "a.b.c=value".
func Read(path string, text []byte, set []string) (*File, error) {
	doc, err := strict.Parse(path, text)
	if err != nil {
		return nil, err
	}
	for _, s := range set {
		if err := doc.Change(s); err != nil {
			return nil, err
		}
	}
	f := &File{Seed: 1, Document: doc}
	if faults := doc.Decode(f); faults != nil {
		return nil, faults
	}
	return f, nil
}
