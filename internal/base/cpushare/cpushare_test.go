package cpushare

import (
	"bytes"
	"compress/gzip"
	"errors"
	"hash/crc32"
	"runtime/pprof"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRead checks that the functions which this test calls in other packages count for this package.
func TestRead(t *testing.T) {
	var file bytes.Buffer
	if err := pprof.StartCPUProfile(&file); err != nil {
		t.Skip(err) // the test itself is being profiled
	}
	data, sum := make([]byte, 1<<20), uint32(0)
	for until := cpuTime(t) + 300*time.Millisecond; cpuTime(t) < until; {
		sum = crc32.Update(sum, crc32.IEEETable, data)
	}
	pprof.StopCPUProfile()
	shares, err := Read(file.Bytes(), []Part{{"own", []string{"roced.io/roced/internal/base/cpushare"}}, {"unused", []string{"roced.io/roced/qp"}}}, "rest")
	if err != nil || len(shares) != 3 {
		t.Fatal(err, shares)
	}
	if own, unused, rest := shares[0].Time, shares[1].Time, shares[2].Time; own < 20*time.Millisecond || unused != 0 || rest > own {
		t.Errorf("%+v", shares)
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestBadProfile(t *testing.T) {
	if _, err := Read([]byte("no profile"), nil, "rest"); !errors.Is(err, ErrProfile) {
		t.Error(err)
	}
}

func TestPackageOf(t *testing.T) {
	for function, want := range map[string]string{
		"roced.io/roced/internal/sim/engine.(*Engine).fire": "roced.io/roced/internal/sim/engine", "main.main": "main", "runtime.memmove": "runtime", "": "",
		"roced.io/roced/internal/base/sched.(*Scheduler[go.shape.*roced.io/roced/internal/sim/nic.QP]).Next": "roced.io/roced/internal/base/sched", "roced.io/roced/internal/base/ring.New[int].func1": "roced.io/roced/internal/base/ring",
	} {
		if got := packageOf(function); got != want {
			t.Errorf("package of %s: got %q, want %q", function, got, want)
		}
	}
}

// FuzzRead checks that Read returns ErrProfile for arbitrary data and does not panic.
func FuzzRead(f *testing.F) {
	f.Add([]byte{2<<3 | 2, 2, 1 << 3, 7})
	f.Add([]byte{2<<3 | 2, 6, 1<<3 | 2, 1, 1, 2<<3 | 2, 2, 1})
	f.Add([]byte{4<<3 | 2, 6, 1 << 3, 1, 4<<3 | 2, 2, 1 << 3, 3})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(raw); err != nil || z.Close() != nil {
			t.Fatal(err)
		}
		if _, err := Read(b.Bytes(), nil, "rest"); err != nil && !errors.Is(err, ErrProfile) {
			t.Error(err)
		}
	})
}
