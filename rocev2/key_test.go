package rocev2

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestKeyTableModel compares the key table with a map.
func TestKeyTableModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var kt keyTable
		kt.init(rand.NewChaCha8([32]byte{byte(rapid.Uint8().Draw(t, "seed"))}))
		model := make(map[uint32]*region)
		var live []*region
		var dead []uint32
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				r := &region{}
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
				if kt.used != len(model) || 2*kt.used > len(kt.slots) {
					t.Fatalf("used %d of %d, want %d", kt.used, len(kt.slots), len(model))
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

// TestKeyTableChains makes indices that collide, which random ones rarely do.
func TestKeyTableChains(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var kt keyTable
		kt.init(rand.NewChaCha8([32]byte{}))
		var live []*region
		for len(live) < 24 {
			// Homes around the end of the table, so that chains wrap around.
			r := &region{key: rng.Uint32()}
			if at := kt.home(r.key >> tagBits); at >= 2 && at < 60 || kt.get(r.key>>tagBits) != nil {
				continue
			}
			*kt.find(r.key >> tagBits) = indexSlot[region]{r.key >> tagBits, r}
			kt.used++
			live = append(live, r)
		}
		rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		for len(live) > 0 {
			k := live[0].key
			kt.remove(live[0])
			live = live[1:]
			if kt.lookup(k) != nil {
				t.Fatalf("key %#x is still there", k)
			}
			for _, r := range live {
				if kt.lookup(r.key) != r {
					t.Fatalf("key %#x lost", r.key)
				}
			}
		}
	}
}

// TestKeysAreNotGuessable looks at what an attacker sees: neighbouring keys have
// nothing in common, and other seeds give other keys.
func TestKeysAreNotGuessable(t *testing.T) {
	const n = 1 << 14
	seen := make(map[uint32]bool)
	var kt, other keyTable
	kt.init(rand.NewChaCha8([32]byte{1}))
	other.init(rand.NewChaCha8([32]byte{2}))
	var buckets [256]int
	same := 0
	for range n {
		var r, s region
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
	kt.init(rand.NewChaCha8([32]byte{1}))
	keys := make([]uint32, 4096)
	for i := range keys {
		r := &region{}
		_ = kt.add(r)
		keys[i] = r.key
	}
	for i := 0; b.Loop(); i++ {
		if kt.lookup(keys[i%len(keys)]) == nil {
			b.Fatal("lost")
		}
	}
}
