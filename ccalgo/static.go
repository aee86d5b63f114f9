package ccalgo

// Static is a fixed window and a fixed rate: the baseline against which the
// adaptive algorithms are compared (a window of one BDP), and a plain rate
// limiter.
type Static struct {
	None
	window, rate uint64
}

// NewStatic returns a controller with a fixed window in bytes and a fixed rate
// in bits per second; each may be Unlimited.
func NewStatic(windowBytes, rateBps uint64) *Static {
	return &Static{window: windowBytes, rate: rateBps}
}

// newStatic takes window_bytes and rate_bps; zero or absent is unlimited.
func newStatic(r reader) Controller { return NewStatic(r.limit("window_bytes"), r.limit("rate_bps")) }

// Limits implements Controller.
func (s *Static) Limits() (windowBytes, rateBps uint64) { return s.window, s.rate }
