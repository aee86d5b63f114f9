package verbs

import (
	"testing"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/qp"
)

// TestNumbers compares the numbers of this package with those of the core and of
// the kernel's interface, which are equal.
func TestNumbers(t *testing.T) {
	for what, n := range map[string][2]uint32{
		"RC": {uint32(RC), uint32(qp.RC)}, "UD": {uint32(UD), uint32(qp.UD)},
		"flush access": {uint32(AccessFlushGlobal), uint32(qp.AccessFlushGlobal)}, "bind access": {uint32(AccessMWBind), uint32(qp.AccessMWBind)},
		"SEND_WITH_INV": {uint32(OpSendWithInv), uint32(qp.WRSendWithInv)}, "FLUSH": {uint32(OpFlush), uint32(qp.WRFlush)},
		"ATOMIC_WRITE": {uint32(OpAtomicWrite), uint32(qp.WRAtomicWrite)}, "inline": {uint32(SendInline), uint32(qp.SendInline)},
		"retry status": {uint32(StatusRetryExcErr), uint32(qp.StatusRetryExcErr)}, "last status": {uint32(StatusGeneralErr), uint32(qp.StatusGeneralErr)},
		"receive": {uint32(WCRecvWithImm), uint32(qp.WCRecvWithImm)}, "invalidation": {uint32(WCWithInv), uint32(qp.WCWithInv)},
		"ERR": {uint32(QPErr), uint32(qp.Err)}, "GID change": {uint32(EventGIDChange), uint32(qp.EventGIDChange)},
		"MTU": {uint32(MTU4096), 5}, "attribute": {uint32(AttrDestQPN), uint32(qp.AttrDestQPN)}, "rate limit": {uint32(AttrRateLimit), uint32(qp.AttrRateLimit)},
		"window": {uint32(MWType2), 2}, "rereg": {uint32(ReregAccess), 1 << 2}, "port": {uint32(PortActive), uverbs.PortActive},
	} {
		if n[0] != n[1] {
			t.Errorf("%s: %d, want %d", what, n[0], n[1])
		}
	}
}
