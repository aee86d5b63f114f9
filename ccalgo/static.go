package ccalgo

// Static has a fixed window and a fixed rate. It is a plain rate limiter and, with a window of one BDP, the baseline for the
// adaptive algorithms.
type Static struct {
	None
	window, rate uint64
}

// NewStatic returns a controller with a fixed window in bytes and a fixed rate in bits per second; each may be Unlimited.
func NewStatic(windowBytes, rateBps uint64) *Static {
	return &Static{window: windowBytes, rate: rateBps}
}

// newStatic reads window_bytes and rate_bps; zero means unlimited.
func newStatic(r reader) Controller { return NewStatic(r.limit("window_bytes"), r.limit("rate_bps")) }

// Limits implements Controller.
func (s *Static) Limits() (windowBytes, rateBps uint64) { return s.window, s.rate }
