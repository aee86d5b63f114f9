package config

import "time"

// Link describes the NIC's link and network, for the transports and congestion controls that depend on them. Values
// that are not set are those of their papers.
type Link struct {
	Rate float64       `yaml:"rate"` // bits per second
	RTT  time.Duration `yaml:"rtt"`  // round-trip time with empty queues
	MTU  int           `yaml:"mtu"`  // path MTU that programs use, bytes
}

func (l *Link) validate(f *faults, path string) {
	if l.Rate != 0 && !(l.Rate >= 1e3 && l.Rate <= 1e13) {
		f.add(path+".rate", "%v is not between 1e3 and 1e13 bits per second", l.Rate)
	}
	if l.RTT != 0 && (l.RTT < time.Microsecond || l.RTT > 10*time.Second) {
		f.add(path+".rtt", "%v is not between 1us and 10s", l.RTT)
	}
	if l.MTU != 0 && (l.MTU < 256 || l.MTU > 4096) {
		f.add(path+".mtu", "%d is not between 256 and 4096 bytes", l.MTU)
	}
}
