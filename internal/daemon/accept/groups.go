package accept

import (
	"strconv"
	"strings"
)

// parseGroups parses the Groups line of /proc/PID/status.
func parseGroups(status string) []uint32 {
	var out []uint32
	for line := range strings.Lines(status) {
		list, ok := strings.CutPrefix(line, "Groups:")
		if !ok {
			continue
		}
		for _, f := range strings.Fields(list) {
			if g, err := strconv.ParseUint(f, 10, 32); err == nil {
				out = append(out, uint32(g))
			}
		}
	}
	return out
}
