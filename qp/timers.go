package qp

// rnrTimers is IBTA vol.1 table 45 in units of 10 microseconds.
var rnrTimers = [32]int32{
	65536, 1, 2, 3, 4, 6, 8, 12,
	16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072,
	4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// rnrTimer returns the time in ns that a requester waits after an RNR NAK with a 5-bit timer code: 0.01 ms to 491.52 ms,
// and 655.36 ms for code 0 (IBTA vol.1 table 45).
func rnrTimer(code uint8) int64 { return int64(rnrTimers[code&0x1f]) * 10_000 }

// ackTimeoutNs returns a 5-bit local ACK timeout in ns, 4.096 us * 2^code. Code 0 means that the timer is off, for which
// it returns 0 (IBTA vol.1 9.7.6.1.3).
func ackTimeoutNs(code uint8) int64 {
	if code &= 0x1f; code == 0 {
		return 0
	}
	return 4096 << code
}
