package sched

import (
	"testing"

	"pgregory.net/rapid"
)

// leaf is a queue pair with a number of packets of one size; a negative number means without end.
type leaf struct {
	node Node[*leaf]
	size int
	has  int
	sent int
}

func newLeaf(parent *Node[*leaf], size, has int) *leaf {
	l := &leaf{size: size, has: has}
	l.node.Init(parent, 1, l)
	return l
}

// serve sends the next packet, as an endpoint without bytes does. It returns the sender, or nil if there is none.
func serve(s *Scheduler[*leaf]) *leaf {
	for n := s.Next(); n != nil; n = s.Next() {
		l := n.Item
		if l.has == 0 {
			s.Remove(n)
			continue
		}
		l.has--
		l.sent += l.size
		n.Charge(l.size)
		s.Yield(n)
		return l
	}
	return nil
}

func scheduler(quantum int) *Scheduler[*leaf] {
	s := new(Scheduler[*leaf])
	s.Init(quantum)
	return s
}

func group(parent *Node[*leaf], weight int) *Node[*leaf] {
	n := new(Node[*leaf])
	n.Init(parent, weight, nil)
	return n
}

// TestShares: with endless work, siblings share by weight to within two turns each, at every level and for any packet
// sizes.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quantum := rapid.SampledFrom([]int{1100, 4096, 68 << 10}).Draw(t, "quantum")
		size := rapid.IntRange(1, min(quantum, 9000))
		s := scheduler(quantum)
		type client struct {
			weight int
			leaves []*leaf
		}
		var clients []client
		for range rapid.IntRange(1, 6).Draw(t, "clients") {
			c := client{weight: rapid.IntRange(1, 5).Draw(t, "weight")}
			g := group(s.Class(0), c.weight)
			for range rapid.IntRange(1, 8).Draw(t, "leaves") {
				l := newLeaf(g, size.Draw(t, "size"), -1)
				c.leaves = append(c.leaves, l)
				s.Activate(&l.node)
			}
			clients = append(clients, c)
		}
		rounds := rapid.IntRange(1, 30).Draw(t, "rounds")
		for total := 0; total < rounds*len(clients)*quantum*8; {
			total += serve(s).size
		}
		level := func(name string, n int, got func(i int) int, slack int) {
			least, most := got(0), got(0)
			for i := range n {
				least, most = min(least, got(i)), max(most, got(i))
			}
			if most-least > slack {
				t.Fatalf("%s: normalised shares from %d to %d bytes, more than %d apart", name, least, most, slack)
			}
		}
		level("clients", len(clients), func(i int) int {
			sum := 0
			for _, l := range clients[i].leaves {
				sum += l.sent
			}
			return sum / clients[i].weight
		}, 2*quantum)
		for _, c := range clients {
			level("queue pairs", len(c.leaves), func(i int) int { return c.leaves[i].sent }, 2*quantum)
		}
	})
}

// TestWork holds for any sequence of activations, removals and sends. While a client has work, the scheduler serves the
// highest class with work. It sends no packet twice and forgets none. A client with work waits for a bounded number of
// bytes.
func TestWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const quantum, classes, clients, leaves = 2000, 3, 3, 4
		s := scheduler(quantum)
		var all []*leaf
		for i := range classes * clients * leaves {
			if i%leaves == 0 {
				g := group(s.Class(uint8(i/leaves/clients)), 1)
				for range leaves {
					all = append(all, newLeaf(g, 0, 0))
				}
			}
		}
		waited := map[*Node[*leaf]]int{} // bytes of its class since the last turn of a group
		t.Repeat(map[string]func(*rapid.T){
			"activate": func(t *rapid.T) {
				l := rapid.SampledFrom(all).Draw(t, "leaf")
				l.size, l.has = rapid.IntRange(1, quantum).Draw(t, "size"), rapid.IntRange(0, 20).Draw(t, "has")
				s.Activate(&l.node)
			},
			"remove": func(t *rapid.T) {
				l := rapid.SampledFrom(all).Draw(t, "leaf")
				l.has = 0
				s.Remove(&l.node)
			},
			"serve": func(t *rapid.T) {
				got := serve(s)
				class := -1
				for _, l := range all {
					if l.has > 0 && !l.node.Active() {
						t.Fatal("has something to send, but no turn")
					}
					if l == got || l.has > 0 {
						class = max(class, int(l.node.class))
					}
				}
				if got == nil {
					if class >= 0 || s.busy != 0 {
						t.Fatalf("nobody sends, though class %d could (busy %b)", class, s.busy)
					}
					return
				}
				if int(got.node.class) != class {
					t.Fatalf("class %d sends before class %d", got.node.class, class)
				}
				for _, l := range all {
					g := l.node.parent
					switch {
					case g == got.node.parent || !g.active:
						delete(waited, g)
					case int(g.class) == class && l == firstOf(g, all):
						if waited[g] += got.size; waited[g] > 2*clients*quantum {
							t.Fatalf("a client waits for %d bytes of others", waited[g])
						}
					}
				}
			},
		})
	})
}

func firstOf(g *Node[*leaf], all []*leaf) *leaf {
	for _, l := range all {
		if l.node.parent == g {
			return l
		}
	}
	return nil
}

// TestOneAgainstMany: one client's 512 queue pairs leave half of the link to another client's single queue pair.
func TestOneAgainstMany(t *testing.T) {
	s := scheduler(68 << 10)
	many, one := group(s.Class(0), 1), group(s.Class(0), 1)
	for range 512 {
		s.Activate(&newLeaf(many, 4096, -1).node)
	}
	l := newLeaf(one, 1024, -1)
	s.Activate(&l.node)
	total := 0
	for total < 64<<20 {
		total += serve(s).size
	}
	if share := float64(l.sent) / float64(total); share < 0.49 || share > 0.51 {
		t.Errorf("share %.3f of the link, want a half", share)
	}
}

// TestDebtOutlastsAPause: a client that always sends a little more than its turn gains nothing by pausing.
func TestDebtOutlastsAPause(t *testing.T) {
	s := scheduler(1000)
	sly, honest := newLeaf(s.Class(0), 0, 0), newLeaf(s.Class(0), 1000, -1)
	s.Activate(&honest.node)
	for total := 0; total < 1<<20; {
		if sly.has == 0 { // one byte remains of the turn, and the second packet uses it
			sly.size, sly.has = 999, 2
			s.Remove(&sly.node)
			s.Activate(&sly.node)
		}
		total += serve(s).size
	}
	if sly.sent > honest.sent+4000 {
		t.Errorf("%d bytes by pausing, the honest one %d", sly.sent, honest.sent)
	}
}

// TestRanks: for any sequence of activations, removals and sends, the scheduler serves a client's leaf of the highest
// rank with work. Clients share equally whatever their ranks are.
func TestRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const quantum, size = 2000, 1000
		s := scheduler(quantum)
		var clients [2]*Node[*leaf]
		var all []*leaf
		ranks := map[*leaf]uint8{}
		for i := range clients {
			clients[i] = group(s.Class(0), 1)
			for rank := range uint8(3) {
				g := clients[i]
				if rank > 0 {
					g = new(Node[*leaf])
					g.InitRanked(clients[i], rank)
				}
				for range 2 {
					l := newLeaf(g, size, 0)
					ranks[l], all = rank, append(all, l)
				}
			}
		}
		clientOf := func(l *leaf) *Node[*leaf] {
			if g := l.node.parent; g == clients[0] || g == clients[1] {
				return g
			}
			return l.node.parent.parent
		}
		var both [2]int // bytes of each client while both have work
		t.Repeat(map[string]func(*rapid.T){
			"activate": func(t *rapid.T) {
				l := rapid.SampledFrom(all).Draw(t, "leaf")
				l.has = rapid.IntRange(1, 20).Draw(t, "has")
				s.Activate(&l.node)
			},
			"remove": func(t *rapid.T) {
				l := rapid.SampledFrom(all).Draw(t, "leaf")
				l.has = 0
				s.Remove(&l.node)
			},
			"serve": func(t *rapid.T) {
				var has [2]bool
				best := map[*Node[*leaf]]uint8{}
				for _, l := range all {
					if c := clientOf(l); l.has > 0 {
						best[c] = max(best[c], ranks[l])
						has[0], has[1] = has[0] || c == clients[0], has[1] || c == clients[1]
					}
				}
				got := serve(s)
				switch {
				case got == nil:
					if has[0] || has[1] {
						t.Fatal("nobody sends")
					}
					return
				case ranks[got] != best[clientOf(got)]:
					t.Fatalf("rank %d sends, though rank %d could", ranks[got], best[clientOf(got)])
				case !has[0] || !has[1]:
					both = [2]int{}
					return
				}
				if clientOf(got) == clients[0] {
					both[0] += size
				} else {
					both[1] += size
				}
				if d := both[0] - both[1]; d > 3*quantum || d < -3*quantum {
					t.Fatalf("clients have %v bytes", both)
				}
			},
		})
	})
}

// BenchmarkNext sends one packet of many queue pairs with more work each.
func BenchmarkNext(b *testing.B) {
	for _, n := range []struct {
		name            string
		clients, leaves int
	}{{"1", 1, 1}, {"64", 1, 64}, {"100000", 1000, 100}} {
		b.Run(n.name, func(b *testing.B) {
			s := scheduler(4200)
			for range n.clients {
				g := group(s.Class(0), 1)
				for range n.leaves {
					s.Activate(&newLeaf(g, 4096, -1).node)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				serve(s)
			}
		})
	}
}
