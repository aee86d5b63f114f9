package scenario

import (
	"os"
	"strings"
	"testing"
)

// cables runs a scenario of parallel cables for 2 ms. It returns the number of messages, and the lost packets of each link that
// carried some.
func cables(t *testing.T, file string, set ...string) (flows int, lost map[string]uint64) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config(string(text), append(set, "stop=2ms", "switch.balance={name: round-robin}")...)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, c)
	lost, names := map[string]uint64{}, map[string]bool{}
	for _, p := range r.Ports {
		if names[p.Link] {
			t.Fatalf("%s is the name of two links", p.Link)
		}
		if names[p.Link] = true; p.Packets > 0 {
			lost[p.Link] = p.Lost
		}
	}
	return len(r.Flows), lost
}

// TestCables: events and fault rules act on all cables between two nodes, unless they name one. Counters have a name for each.
func TestCables(t *testing.T) {
	const first, second = "leaf0-spine1#1", "leaf0-spine1#2"
	if flows, lost := cables(t, "cables-lose"); flows != 0 || lost[first] == 0 || lost[second] == 0 {
		t.Errorf("%d messages over cables that lose everything: %v", flows, lost)
	}
	if flows, lost := cables(t, "cables-fail"); flows != 0 || len(lost) != 4 {
		t.Errorf("%d messages over failed cables, which carry packets: %v", flows, lost)
	}
	for _, one := range []string{"events.0.link=leaf*-spine*#2", "events.0.index=1"} {
		if _, lost := cables(t, "cables-lose", one); lost[first] != 0 || lost[second] == 0 {
			t.Errorf("%s: %v", one, lost)
		}
		if flows, lost := cables(t, "cables-fail", one); flows == 0 || lost[second] != 0 {
			t.Errorf("%s: %d messages over the first cables, %v", one, flows, lost)
		}
	}
	for link, both := range map[string]bool{"leaf0-spine1": true, second: false} {
		if _, lost := cables(t, "cables-lose", "events=[]", "faults=[{link: '"+link+"', rules: [tx drop]}]"); lost[first] > 0 != both || lost[second] == 0 {
			t.Errorf("rules of %s: %v", link, lost)
		}
	}
	text, err := os.ReadFile("testdata/cables-fail.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{
		"events.0.link=leaf0-spine1#3":                        `events.0.link: no link "leaf0-spine1#3"; between these nodes are leaf0-spine1#1, leaf0-spine1#2`,
		"events.0.link=leaf0-spine1#0":                        "between these nodes are",
		"events.0.link=h0-leaf0#2":                            "between these nodes are h0-leaf0",
		"events.0.index=2":                                    `events.0.index: link "leaf*-spine*" has no cable of index 2`,
		"events.0.index=-1":                                   "has no cable of index -1",
		"faults=[{link: 'leaf0-spine1#3', rules: [tx drop]}]": `faults.0.link: no link "leaf0-spine1#3"`,
	} {
		if _, err := config(string(text), set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// TestNaN: NaN is no number of a scenario.
func TestNaN(t *testing.T) {
	for file, want := range map[string]string{"nan-load": "workload.0.load", "nan-percent": "events.0.percent"} {
		text, err := os.ReadFile("testdata/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config(string(text)); err == nil || !strings.Contains(err.Error(), want+`: ".nan" is not a finite number`) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
