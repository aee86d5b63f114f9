package nic

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// sharedKinds are the kinds of memory of both programs: their own, which the library replaces, and files that they map
// with MAP_SHARED.
var sharedKinds = []string{"replaced memory", "a file in /dev/shm", "2 MiB pages of hugetlbfs"}

// sharedName names the line of a kind.
func sharedName(kind string) string { return "ib_write_bw 64 KiB over a switch, " + kind }

// sharedFiles measures WRITEs between programs on a switch, with each kind of memory in turn.
func (b *bench) sharedFiles() (err error) {
	dir, err := os.MkdirTemp("/dev/shm", "roced-bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	huge, unmount, err := mountHuge(8)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmount()) }()
	folders := []string{"", dir, huge}
	return b.Lab(netlab.LabOptions{Unix: true, Switch: true}, func(l *netlab.Lab) error {
		c := *b
		c.lab = l
		samples, err := measure.Alternate(b.Rounds, len(sharedKinds), func(i int) (float64, error) {
			return c.sample(sharedName(sharedKinds[i]), func() (float64, error) { return c.betweenFiles(folders[i]) })
		})
		if err != nil {
			return err
		}
		for i, kind := range sharedKinds {
			b.add(sharedName(kind), "Gb/s", samples[i]...)
		}
		return nil
	})
}

// betweenFiles measures a WRITE between memory of two files in a folder, or between memory of the programs if it is "".
func (b *bench) betweenFiles(folder string) (float64, error) {
	var sides [2][]string
	for i := range sides {
		sides[i] = []string{"ib_write_bw", "-s", "65536", "-D", strconv.Itoa(b.Seconds)}
		if folder == "" {
			continue
		}
		path := filepath.Join(folder, strconv.Itoa(i))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err == nil {
			err = errors.Join(f.Truncate(4<<20), f.Close()) // more than perftest maps
		}
		if err != nil {
			return 0, err
		}
		sides[i] = append(sides[i], "--mmap="+path)
	}
	return b.betweenPerftests(3, sides[0], sides[1])
}

// mountHuge mounts hugetlbfs with so many huge pages.
func mountHuge(pages int) (dir string, undo func() error, err error) {
	const setting = "/proc/sys/vm/nr_hugepages"
	old, err := os.ReadFile(setting)
	if err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp("", "roced-huge"); err != nil {
		return "", nil, err
	}
	undo = func() error {
		return errors.Join(unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir), os.WriteFile(setting, old, 0))
	}
	err = errors.Join(os.WriteFile(setting, fmt.Appendf(nil, "%d\n", pages), 0), unix.Mount("none", dir, "hugetlbfs", 0, "pagesize=2M"))
	if err != nil {
		return "", nil, errors.Join(err, undo())
	}
	return dir, undo, nil
}

// sharedRatios are the goals of shared files.
func sharedRatios() (out []ratio) {
	for _, kind := range sharedKinds[1:] {
		out = append(out, ratio{sharedName(kind) + ", against replaced memory", sharedName(kind), sharedName(sharedKinds[0]), 0.8, false})
	}
	return out
}
