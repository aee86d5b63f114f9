package measure

import (
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"time"
)

// Machine judges whether measurements are comparable. This class of machine has a slow mode in which the time of every
// part doubles, and other programs may take processors.
type Machine struct {
	best time.Duration // of the fixed piece of work
	work func() time.Duration
	busy func() (float64, error)
}

// NewMachine returns the judge of a run.
func NewMachine() *Machine { return &Machine{work: work, busy: busy} }

const (
	slowBy    = 1.5  // times the best, from which on the machine counts as slow
	busyFrom  = 0.15 // processors that other programs may use
	tries     = 4    // samples until one counts although it is noisy
	busyFor   = 100 * time.Millisecond
	workBytes = 4 << 20
)

// Steady takes a sample. It repeats a sample during which the machine was slow, or before which it was busy. repeated
// counts the repetitions; noisy reports that the last one was no better.
func Steady[T any](m *Machine, sample func() (T, error)) (v T, repeated int, noisy bool, err error) {
	for ; ; repeated++ {
		used, err := m.busy()
		if err != nil {
			return v, repeated, false, err
		}
		before := m.work()
		if v, err = sample(); err != nil {
			return v, repeated, false, err
		}
		after := m.work()
		if m.best == 0 || min(before, after) < m.best {
			m.best = min(before, after)
		}
		noisy = used > busyFrom || float64(max(before, after)) > slowBy*float64(m.best)
		if !noisy || repeated == tries-1 {
			return v, repeated, noisy, nil
		}
	}
}

var block = make([]byte, workBytes)

// work returns the time of a fixed piece of work, the best of three.
func work() (best time.Duration) {
	for range 3 {
		begun := time.Now()
		crc32.ChecksumIEEE(block)
		if d := time.Since(begun); best == 0 || d < best {
			best = d
		}
	}
	return best
}

// busy returns the processors that programs use while this one sleeps.
func busy() (processors float64, err error) {
	before, err := usedTicks()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	time.Sleep(busyFor)
	after, err := usedTicks()
	const tick = 0.01 // USER_HZ
	return float64(after-before) * tick / time.Since(begun).Seconds(), err
}

// usedTicks returns the time that all processors were in use, including the time that a hypervisor took (proc(5)).
func usedTicks() (ticks uint64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var t [8]uint64 // user, nice, system, idle, iowait, irq, softirq, steal
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d %d", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]); err != nil {
		return 0, fmt.Errorf("/proc/stat: %q: %w", line, err)
	}
	return t[0] + t[1] + t[2] + t[5] + t[6] + t[7], nil
}
