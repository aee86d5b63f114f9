package qp

import "testing"

func TestTimers(t *testing.T) {
	const us = 1000
	for code, w := range map[uint8]int64{
		0: 655360 * us, 1: 10 * us, 2: 20 * us, 4: 40 * us, 5: 60 * us, 12: 640 * us,
		14: 1280 * us, 16: 2560 * us, 20: 10240 * us, 26: 81920 * us, 31: 491520 * us, 32: 655360 * us,
	} {
		if got := rnrTimer(code); got != w {
			t.Errorf("rnrTimer(%d) = %d, want %d", code, got, w)
		}
	}
	for code := uint8(2); code < 32; code++ {
		if rnrTimer(code) <= rnrTimer(code-1) {
			t.Errorf("rnrTimer(%d) is not more than rnrTimer(%d)", code, code-1)
		}
	}
	for code, w := range map[uint8]int64{0: 0, 1: 8192, 14: 67108864, 31: 4096 << 31} {
		if got := ackTimeoutNs(code); got != w {
			t.Errorf("ackTimeoutNs(%d) = %d, want %d", code, got, w)
		}
	}
}
