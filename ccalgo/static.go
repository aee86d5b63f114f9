package ccalgo

// Static is a fixed window and a fixed rate: the baseline against which the
// adaptive algorithms are compared, and a plain rate limiter.
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
func newStatic(p Params) (Controller, error) {
	if err := p.check("static", "window_bytes", "rate_bps"); err != nil {
		return nil, err
	}
	return NewStatic(p.limit("window_bytes"), p.limit("rate_bps")), nil
}

// Limits implements Controller.
func (s *Static) Limits() (windowBytes, rateBps uint64) { return s.window, s.rate }
