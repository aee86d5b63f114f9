package cm

import (
	"time"

	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
)

// maxTimeout bounds the timeout codes that a peer may impose: 69 s.
const maxTimeout = 24

// timeout returns the duration of a timeout code, 4.096 us * 2^n (IBTA vol.1 12.7.4).
func timeout(code uint8) time.Duration { return 4096 << min(code, maxTimeout) }

// expirer is the owner of a timer: a Conn or SIDR.
type expirer interface{ expired(now mono.Time) }

type timer = sched.Timer[expirer]
