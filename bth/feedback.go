package bth

// Feedback is what a receiver tells a sender about the PSNs of one direction:
// the wire's ACKs and NAKs without their encoding. Trackers produce it and
// recoveries consume it.
type Feedback struct {
	// Expected is the PSN the receiver waits for; all before it have arrived.
	Expected PSN
	// Gap is set when a packet beyond Expected has arrived and Expected is
	// missing: a NAK "PSN sequence error" (IBTA vol.1 9.7.5.2.8).
	Gap bool
}
