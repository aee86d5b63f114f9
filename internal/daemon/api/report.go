package api

// Report is the traffic of one verbs context. The daemon writes it as one JSON message to the socket of EXT_REPORT when
// the context ends.
type Report struct {
	PID     uint32         `json:"pid"` // as the process knows it
	Program string         `json:"program"`
	Device  string         `json:"device"`
	QPs     map[string]int `json:"qps"` // created, by type: rc, uc, ud
	// Regions are the registered memory regions by the kind of their memory: memfd (which the program shares with the
	// daemon), tmpfs, hugetlbfs, dma-buf, copied.
	Regions map[string]Regions `json:"regions"`
	// Requested are the work requests that succeeded, Served those of peers; by operation: send, write, read, atomic,
	// flush.
	Requested map[string]Work `json:"requested"`
	Served    map[string]Work `json:"served"`
}

// Regions counts memory regions and their bytes.
type Regions struct {
	Count uint64 `json:"count"`
	Bytes uint64 `json:"bytes"`
}

// Work counts messages and the bytes of their payload.
type Work struct {
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
}

// Add adds the counts of o, another context of the same process.
func (r *Report) Add(o *Report) {
	for t, n := range o.QPs {
		r.QPs[t] += n
	}
	if r.Regions == nil {
		r.Regions = map[string]Regions{}
	}
	for kind, n := range o.Regions {
		s := r.Regions[kind]
		r.Regions[kind] = Regions{s.Count + n.Count, s.Bytes + n.Bytes}
	}
	addWork(r.Requested, o.Requested)
	addWork(r.Served, o.Served)
}

func addWork(sum, more map[string]Work) {
	for op, w := range more {
		s := sum[op]
		sum[op] = Work{s.Messages + w.Messages, s.Bytes + w.Bytes}
	}
}

// Bytes sums the payload of operations.
func Bytes(ops map[string]Work) (n uint64) {
	for _, w := range ops {
		n += w.Bytes
	}
	return n
}
