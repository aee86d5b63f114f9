// Package suggest finds the name that a user may have meant.
package suggest

import (
	"fmt"
	"strings"
)

// Hint returns the end of an error about an unknown name: the most similar known name, if one is similar, as in
// `; did you mean "irn"?`. Otherwise it is empty.
func Hint(name string, known []string) string {
	best, least := "", max(1, len(name)/3)+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	if best == "" || len(name) < 2 {
		return ""
	}
	return `; did you mean "` + best + `"?`
}

// OneOf returns an error about an unknown name, such as
// `"irm": must be one of irn, melo; did you mean "irn"?`.
func OneOf(name string, known []string) error {
	return fmt.Errorf("%q: must be one of %s%s", name, strings.Join(known, ", "), Hint(name, known))
}

// longest bounds the names that are compared.
const longest = 64

// distance returns the number of bytes to insert, delete, replace or swap with their neighbour to turn a into b.
func distance(a, b string) int {
	if len(a) > longest || len(b) > longest {
		return longest
	}
	var before, last, row [longest + 1]int
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
