package sweep

import "fmt"

// Shard is a part of work that machines share. The zero value is all of the work.
type Shard struct{ K, N int }

// ParseShard reads K/N: the K-th of N parts, from 1, or from 0 for batch systems that count so. The empty text is all.
func ParseShard(text string) (s Shard, err error) {
	if text == "" {
		return s, nil
	}
	n, err := fmt.Sscanf(text, "%d/%d", &s.K, &s.N)
	if err != nil || n != 2 || text != fmt.Sprintf("%d/%d", s.K, s.N) || s.K < 0 || s.N < 1 || s.K > s.N {
		return s, fmt.Errorf("--shard %q: expected a number and a count, such as 2/4", text)
	}
	return s, nil
}

// Has reports whether the i-th piece of the work belongs to the shard.
func (s Shard) Has(i int) bool { return s.N == 0 || i%s.N == s.K%s.N }
