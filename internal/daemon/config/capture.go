package config

// Limits of captures.
const (
	minKeep = 1 << 20
	minSnap = 64
	maxSnap = 1 << 16
)

// validate checks the keys of a capture.
func (c *Capture) validate(f *faults, key string) {
	if c.Keep != 0 && c.Keep < minKeep {
		f.add(key+".keep", "%d bytes are less than %d", c.Keep, minKeep)
	}
	if c.SnapLen != 0 && (c.SnapLen < minSnap || c.SnapLen > maxSnap) {
		f.add(key+".snaplen", "%d is not from %d to %d; 0 means whole frames", c.SnapLen, minSnap, maxSnap)
	}
}
