package siege

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/verbs"
)

// sparse is memory without pages that a hostile program has registered: as many regions of equal size as the program has
// queue pairs. Each queue pair writes to all pages of its region. A daemon that allocated the pages would have to pay for
// them.
type sparse struct {
	*pair
	regions []*verbs.MR
}

// Size of the memory of one program, in regions of sparseRegion bytes.
const (
	sparseRegions = 64
	sparseRegion  = 8 << 20
)

// newSparse registers the regions. The library allocates their pages; the program frees them, one region after another.
func newSparse(runDir string) (*sparse, error) {
	p, err := newPair(runDir, sparseRegions, 1<<16)
	if err != nil {
		return nil, err
	}
	s := &sparse{pair: p}
	for range sparseRegions {
		mr, err := p.pds[1].AllocMR(sparseRegion, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
		if err == nil {
			s.regions = append(s.regions, mr)
			err = unix.Madvise(mr.Bytes(), unix.MADV_REMOVE)
		}
		if err != nil {
			p.close()
			return nil, err
		}
	}
	return s, nil
}

// write writes to all pages. It returns the number of WRITEs that have succeeded.
func (s *sparse) write(ctx context.Context) (written int, err error) {
	const chunk = 1 << 16
	for i, mr := range s.regions {
		for off := 0; off < sparseRegion; off += chunk {
			err := s.from[i].PostSend(&verbs.SendWR{Opcode: verbs.OpWrite, Flags: verbs.SendSignaled, SGEs: []verbs.SGE{s.src.SGE(0, chunk)},
				RemoteAddr: mr.Addr() + uint64(off), RKey: mr.RKey()})
			if err != nil {
				return written, err
			}
			var wcs [1]verbs.WC
			if _, err := s.cq.PollWait(ctx, wcs[:]); err != nil {
				return written, err
			}
			if wcs[0].Err() != nil {
				break // the queue pair is broken
			}
			written++
		}
	}
	return written, nil
}

// resident returns the number of pages that the regions have.
func (s *sparse) resident() (pages int) {
	for _, mr := range s.regions {
		pages += residentPages(mr.Bytes())
	}
	return pages
}

// residentPages returns the number of pages of mapped memory that exist.
func residentPages(mem []byte) (pages int) {
	vec := make([]byte, len(mem)/4096)
	_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&vec[0])))
	if e != 0 {
		giveUp("mincore", e)
	}
	for _, v := range vec {
		pages += int(v & 1)
	}
	return pages
}

// holes has the NIC write to memory without pages, and frees pages that the NIC reads and writes. The program exits if the
// daemon has allocated pages in its place.
func holes(runDir string, rng *rand.Rand) {
	s, err := newSparse(runDir)
	if err != nil {
		return
	}
	_, _ = s.write(context.Background())
	n := s.resident()
	s.close()
	if n > 0 {
		giveUp("sparse memory", fmt.Errorf("the daemon has allocated %d pages", n))
	}
	for begun := time.Now(); time.Since(begun) < time.Second; {
		raceHoles(runDir, rng.Uint64())
	}
}

// raceHoles transfers data until a request fails. Meanwhile it frees pages of the data and writes to them again.
func raceHoles(runDir string, seed uint64) {
	p, err := newPair(runDir, 1, 1<<16)
	if err != nil {
		return
	}
	defer p.close()
	var over atomic.Bool
	var all sync.WaitGroup
	defer all.Wait()
	defer over.Store(true)
	all.Go(func() {
		for rng := rand.New(rand.NewPCG(seed, 1)); !over.Load(); {
			mem := [][]byte{p.src.Bytes(), p.dst.Bytes()}[rng.IntN(2)]
			page := mem[rng.IntN(len(mem)/4096)*4096:][:4096]
			_ = unix.Madvise(page, unix.MADV_REMOVE)
			page[0] = 1
		}
	})
	for range 1000 {
		if p.post(0, 1<<16) != nil {
			return
		}
		var wcs [1]verbs.WC
		if _, err := p.cq.PollWait(context.Background(), wcs[:]); err != nil || wcs[0].Err() != nil {
			return
		}
	}
}
