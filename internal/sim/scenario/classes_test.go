package scenario

import (
	"strings"
	"testing"
)

// TestLosslessClasses: pfc.classes are lossless beside lossy ones: an incast of class 3 loses nothing, one of class 0 does.
func TestLosslessClasses(t *testing.T) {
	text := strings.NewReplacer("hosts: 4", "hosts: 9", "buffer: 1MiB", "buffer: 600KB, pfc: {headroom: 30KB, classes: [3]}", "rc}", "irn}").Replace(small)
	text = text[:strings.Index(text, "workload")] + "workload:\n  - {kind: incast, to: 0, senders: 4, size: 1MB, class: CLASS}\n"
	for class, loses := range map[string]bool{"3": false, "0": true} {
		r := simulated(t, strings.Replace(text, "CLASS", class, 1))
		if lost := r.Drops["buffer overflow"]+r.Drops["no headroom"] > 0; lost != loses || (r.Pauses > 0) == loses || len(r.Flows) != 4 {
			t.Errorf("class %s: drops %v, %d pauses, %d messages", class, r.Drops, r.Pauses, len(r.Flows))
		}
	}
	for set, want := range map[string]string{
		"switch.pfc.classes=[3, 7]": "switch.pfc.classes.1: data has classes from 0 to 6",
		"switch.pfc.headroom=70KB":  "switch.pfc.headroom: s0 has 9 ports with 1 lossless classes: headroom 70000 and reserve 0 for each take 630000 bytes, but the buffer has 600000",
	} {
		if _, err := config(strings.Replace(text, "CLASS", "3", 1), set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
}
