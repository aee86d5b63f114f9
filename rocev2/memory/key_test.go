package memory

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/qp"
)

// TestKeyTableModel compares the key table with a map.
func TestKeyTableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var kt keyTable
		kt.Init(rand.NewChaCha8([32]byte{byte(rapid.Uint8().Draw(t, "seed"))}))
		model := make(map[uint32]*Region)
		var live []*Region
		var dead []uint32
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				r := &Region{}
				if err := kt.add(r); err != nil || r.key>>tagBits == 0 || model[r.key] != nil {
					t.Fatalf("add: %v, key %#x", err, r.key)
				}
				model[r.key] = r
				live = append(live, r)
			},
			"remove": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip("empty")
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "i")
				r := live[i]
				dead = append(dead, r.key)
				delete(model, r.key)
				kt.remove(r)
				live = append(live[:i], live[i+1:]...)
			},
			"retag": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip("empty")
				}
				r := live[rapid.IntRange(0, len(live)-1).Draw(t, "i")]
				delete(model, r.key)
				dead = append(dead, r.key)
				r.key = r.key&^0xff | uint32(rapid.Uint8().Draw(t, "tag"))
				model[r.key] = r
			},
			"": func(t *rapid.T) {
				if kt.Used != len(model) {
					t.Fatalf("used %d, want %d", kt.Used, len(model))
				}
				for k, r := range model {
					if kt.lookup(k) != r {
						t.Fatalf("key %#x lost", k)
					}
				}
				for _, k := range dead {
					if kt.lookup(k) != model[k] {
						t.Fatalf("dead key %#x found", k)
					}
				}
			},
		})
	})
}

// TestKeysAreNotGuessable: neighbouring keys have nothing in common, and different seeds result in different keys.
func TestKeysAreNotGuessable(t *testing.T) {
	const n = 1 << 14
	seen := make(map[uint32]bool)
	var kt, other keyTable
	kt.Init(rand.NewChaCha8([32]byte{1}))
	other.Init(rand.NewChaCha8([32]byte{2}))
	var buckets [256]int
	same := 0
	for range n {
		var r, s Region
		if kt.add(&r) != nil || other.add(&s) != nil {
			t.Fatal("no key")
		}
		if seen[r.key>>tagBits] {
			t.Fatalf("index of %#x twice", r.key)
		}
		seen[r.key>>tagBits] = true
		buckets[r.key>>24]++
		if r.key == s.key {
			same++
		}
	}
	for i, c := range buckets {
		if c < n/256/3 || c > n/256*3 {
			t.Errorf("%d keys begin with %#x, want about %d", c, i, n/256)
		}
	}
	if same > 1 {
		t.Errorf("%d keys do not depend on the seed", same)
	}
}

func BenchmarkKeyLookup(b *testing.B) {
	var kt keyTable
	kt.Init(rand.NewChaCha8([32]byte{1}))
	keys := make([]uint32, 4096)
	for i := range keys {
		r := &Region{}
		_ = kt.add(r)
		keys[i] = r.key
	}
	for i := 0; b.Loop(); i++ {
		if kt.lookup(keys[i%len(keys)]) == nil {
			b.Fatal("lost")
		}
	}
}

// TestNamedKeys: a key that the owner of a domain chose is valid there until its region ends, and in no other domain.
func TestNamedKeys(t *testing.T) {
	s := NewSpace(rand.NewChaCha8([32]byte{}), Limits{PDs: 2, MRs: 2, MWs: 2}, func() {})
	pd, _ := s.AllocPD(nil)
	other, _ := s.AllocPD(nil)
	mr, err := s.RegMR(pd, MRAttr{VA: 4096, Length: 64, Access: qp.AccessRemoteWrite | qp.AccessLocalWrite, Mem: NewBytes(make([]byte, 64))})
	if err != nil {
		t.Fatal(err)
	}
	pd.Name(0, mr)
	for _, c := range []struct {
		pd  *PD
		va  uint64
		acc qp.Access
		ok  bool
	}{{pd, 4096, qp.AccessRemoteWrite, true}, {pd, 4097, qp.AccessRemoteWrite, false}, {pd, 4096, qp.AccessRemoteRead, false},
		{other, 4096, qp.AccessRemoteWrite, false}} {
		if r, _ := s.Remote(c.pd, nil, 0, c.va, 64, c.acc); (r != nil) != c.ok {
			t.Errorf("access %#x to %d in domain %d: %v, want %v", c.acc, c.va, c.pd.ID(), r != nil, c.ok)
		}
	}
	if err := s.DeregMR(mr); err != nil {
		t.Fatal(err)
	}
	if r, _ := s.Remote(pd, nil, 0, 4096, 64, qp.AccessRemoteWrite); r != nil {
		t.Error("the key of a region that has ended")
	}
}
