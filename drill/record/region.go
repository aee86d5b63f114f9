package record

import (
	"fmt"

	"roced.io/roced/bth"
)

// region is memory of the device that requests of the tester access.
type region struct {
	name string
	key  uint64
	va   uint64 // lowest address
	end  uint64
}

// size is the length of the region in the script: whole pages.
func (r *region) size() uint64 { return max(4096, (r.end-r.va+4095)&^4095) }

// mostMemory bounds a region of a script.
const mostMemory = 64 << 20

// regions finds the regions: one for each key with which the device has accepted a request.
func (w *writer) findRegions() {
	for i := range w.packets {
		p := &w.packets[i]
		va, ok := p.Get("va")
		n, atomic := p.Get("len")
		if atomic = !atomic; atomic {
			n = 8
		}
		if !ok || p.fromDUT || n == 0 || n > mostMemory || w.plan.refused[i] != 0 {
			continue
		}
		r := w.region(p.field("rkey"))
		if r == nil {
			w.regions = append(w.regions, region{fmt.Sprintf("mr%d", len(w.regions)+1), p.field("rkey"), va, va + n})
			continue
		}
		if low, high := min(r.va, va), max(r.end, va+n); high-low <= mostMemory {
			r.va, r.end = low, high
		}
	}
	if len(w.regions) == 0 {
		w.regions = []region{{}}
	}
	w.regions[0].name = "mr"
}

// region returns the region of a key, or nil.
func (w *writer) region(key uint64) *region {
	for i := range w.regions {
		if r := &w.regions[i]; r.key == key && r.name != "" && r.end > 0 {
			return r
		}
	}
	return nil
}

// address returns the address and the key of request i. Those of the device's regions are relative to them. A request that the device
// has refused gets a wrong key, unless its address tells why.
func (w *writer) address(i int, va uint64) string {
	p := &w.packets[i]
	key := p.field("rkey")
	r := w.region(key)
	if p.fromDUT || r == nil {
		return fmt.Sprintf("va=%#x rkey=%#x", va, key)
	}
	text, off := "va=mr.va", va-r.va
	switch n, ok := p.Get("len"); {
	case ok && n == 0:
		text = fmt.Sprintf("va=%#x", va)
	case off == 0:
		text = "va=" + r.name + ".va"
	case off < mostMemory:
		text = fmt.Sprintf("va=%s.va+%d", r.name, off)
	default:
		text = fmt.Sprintf("va=%#x", va)
	}
	if w.plan.refused[i] == bth.SyndromeRemoteAccessErr && off+max(p.field("len"), 8) <= r.size() {
		return text + " rkey=0"
	}
	return text + " rkey=" + r.name + ".rkey"
}
