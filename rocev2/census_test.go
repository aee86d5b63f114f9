package rocev2

import "testing"

// TestQPPage: pages visit each queue pair once, and the census counts all objects.
func TestQPPage(t *testing.T) {
	n := nicA(t)
	n.obj.qps.Limit = 1000
	want := map[*QueuePair]bool{}
	for i := range 700 {
		q := &QueuePair{}
		place, ok := n.obj.qps.Add(q)
		if !ok {
			t.Fatal("no place")
		}
		if i%7 == 3 {
			n.obj.qps.Remove(place)
			continue
		}
		want[q] = true
	}
	if got := n.Census().QPs; got != len(want) {
		t.Errorf("the census counts %d queue pairs, want %d", got, len(want))
	}
	for _, most := range []int{1, 7, 256, 1000} {
		seen, pages := map[*QueuePair]int{}, 0
		for from := uint32(0); ; pages++ {
			inPage := 0
			from = n.QPPage(from, most, func(q *QueuePair) { seen[q]++; inPage++ })
			if inPage > most {
				t.Fatalf("a page of %d has %d", most, inPage)
			}
			if from == 0 {
				break
			}
		}
		for q := range want {
			if seen[q] != 1 {
				t.Fatalf("pages of %d: a queue pair is visited %d times", most, seen[q])
			}
		}
		if len(seen) != len(want) {
			t.Errorf("pages of %d visit %d queue pairs, want %d", most, len(seen), len(want))
		}
	}
}
