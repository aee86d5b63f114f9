package scenario

import (
	"fmt"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/result"
)

const goalScenario = `name: goal
topology: {kind: star, hosts: 8, host_rate: 100Gbps, delay: 1us}
switch: {buffer: 16MiB}
transport: {profile: rc}
workload:
  - {kind: goal, file: x.goal}
`

// goal runs a GOAL text.
func goal(t *testing.T, text string, set ...string) (*result.Result, error) {
	t.Helper()
	f, err := Read("x.yaml", []byte(goalScenario), set)
	if err != nil {
		return nil, err
	}
	c, err := f.Config(func(string) ([]byte, error) { return []byte(text), nil })
	if err != nil {
		return nil, err
	}
	return run(t, c), nil
}

// TestGOAL: calculations of one processor follow each other, those of two do not. A send waits for the end of what it
// requires, and for the start of what it irequires. A receive takes the message with its tag, whichever arrives first.
func TestGOAL(t *testing.T) {
	for _, c := range []struct {
		name, ops string
		start     float64 // us, of the message with tag 1
	}{
		{"one processor", "a: calc 3000\nb: calc 4000\ns requires a\ns requires b", 7},
		{"two processors", "a: calc 3000 cpu 0\nb: calc 4000 cpu 1\ns requires a\ns requires b", 4},
		{"start", "a: calc 3000\nb: calc 4000\nb requires a\ns irequires b", 3},
		{"after a message", "a: calc 3000\nb: send 1000b to 2 tag 9 cpu 0 nic 0\nb requires a\ns irequires b", 3},
	} {
		send := "s: send 1000b to 1 tag 1\n"
		at := strings.Index(c.ops, "\ns ") + 1
		r, err := goal(t, fmt.Sprintf("num_ranks 3 // three\nrank 0 {\n%s%s%s\n}\nrank 1 {\n/* in\nthe end */ r: recv 1000b from 0 tag 1\n}\nrank 2 {\n%s}\n",
			c.ops[:at], send, c.ops[at:], strings.Repeat("recv 1000b from 0 tag 9\n", strings.Count(c.ops, "tag 9"))))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Flows {
			if got := f.Start.Seconds() * 1e6; f.Dst == 1 && got != c.start {
				t.Errorf("%s: the message begins after %v us, want %v", c.name, got, c.start)
			}
		}
		if len(r.Collectives) != 1 || r.Collectives[0].Ranks != 3 {
			t.Errorf("%s: %+v", c.name, r.Collectives)
		}
	}
	r, err := goal(t, "num_ranks 2\nrank 0 {\nsend 1000b to 1 tag 1\nsend 1000b to 1 tag 2\nrecv 8b from 1 tag 3\n}\nrank 1 {\na: recv 1000b from 0 tag 2\nb: recv 1000b from 0 tag 1\nb requires a\nc: send 8b to 0 tag 3\nc requires b\n}\n", "workload.0.at=5us")
	if err != nil || len(r.Flows) != 3 || r.Flows[0].Start.Seconds()*1e6 != 5 || r.Flows[2].Dst != 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

// TestGOALPublished runs a cut of binary_tree_32.goal of spcl/LogGOPSim (commit 76451de): the broadcast to its first eight
// ranks. The last rank has it after three messages.
func TestGOALPublished(t *testing.T) {
	const tree = `num_ranks 8

rank 0 {
l1: send 1b to 1 tag 0
l2: send 1b to 2 tag 0
l3: send 1b to 4 tag 0
}

rank 1 {
l1: recv 1b from 0 tag 0
l2: send 1b to 3 tag 0
l2 requires l1
l3: send 1b to 5 tag 0
l3 requires l1
}

rank 2 {
l1: recv 1b from 0 tag 0
l2: send 1b to 6 tag 0
l2 requires l1
}

rank 3 {
l1: recv 1b from 1 tag 0
l2: send 1b to 7 tag 0
l2 requires l1
}

rank 4 {
l1: recv 1b from 0 tag 0
}

rank 5 {
l1: recv 1b from 1 tag 0
}

rank 6 {
l1: recv 1b from 2 tag 0
}

rank 7 {
l1: recv 1b from 3 tag 0
}
`
	r, err := goal(t, tree)
	if err != nil || len(r.Flows) != 7 {
		t.Fatal(err, r)
	}
	hop := r.Flows[0].FCT.Seconds() / 2 // the other half is the acknowledgement
	if took := r.Collectives[0].Took.Seconds(); took < 3.9*hop || took > 4.2*hop {
		t.Errorf("the broadcast takes %v s, one way %v s", took, hop)
	}
}

// TestGOALErrors: errors name file, line and remedy.
func TestGOALErrors(t *testing.T) {
	const two = "num_ranks 2\nrank 0 {\n"
	for _, c := range []struct{ text, want string }{
		{"", "x.goal: num_ranks is missing"},
		{"rank 0 {", "line 1: rank 0 comes before num_ranks"},
		{"num_ranks 0", "line 1: num_ranks 0: must be at least 1"},
		{"num_ranks x", `line 1: num_ranks "x": must be a whole number from 0 to`},
		{"num_ranks 2\nnum_ranks 3", `line 2: "num_ranks 3": expected num_ranks N, once`},
		{"num_ranks 9\nrank 0 {\n}", "x.goal has 9 ranks, and from host 0 on there are 8 hosts"},
		{"num_ranks 2\nrank 2 {", "line 2: rank 2: num_ranks is 2, so ranks are 0 to 1"},
		{two + "}\nrank 0 {", "line 4: rank 0 appears twice"},
		{two + "calc 5", "line 3: rank 0 does not end; add }"},
		{two + "/* calc 5\n}", "line 4: a comment does not end"},
		{two + "send 5 to 1", `line 3: "send 5 to 1": expected send Nb to R`},
		{two + "send 5b from 1", "expected send Nb to R"},
		{two + "send 5b to 0", "line 3: to 0: a rank does not send to itself"},
		{two + "send 5b to 2", "line 3: to 2: num_ranks is 2"},
		{two + "recv 5b from -1", "a recv from any rank is not supported"},
		{two + "recv 5b from 1 tag -1", "a recv of any tag is not supported"},
		{two + "send 9999999999b to 1", `size "9999999999": must be a whole number from 0 to`},
		{two + "calc 5 cpu 70000", `cpu "70000"`},
		{two + "calc 5 cpu", `"cpu": expected tag T, cpu C or nic N`},
		{two + "wait 5", `line 3: "wait 5": expected calc NS`},
		{two + "a: calc 5\na: calc 6", `line 4: rank 0 has label "a" twice`},
		{two + "a: calc 5\na requires b", `line 4: rank 0 has no label "b" before this line`},
		{two + "a: calc 5\nb: calc 5\na requires b\nb requires a\n}", "line 3, rank 0: this operation waits for itself"},
		{two + "send 5b to 1 tag 4\n}", "line 3, rank 0: rank 1 has fewer recvs with tag 4"},
		{two + "recv 5b from 1 tag 4\n}", "line 3, rank 0: rank 1 has fewer sends with tag 4"},
		{two + "a: recv 5b from 1\nb: send 5b to 1\nb requires a\n}\nrank 1 {\na: recv 5b from 0\nb: send 5b to 0\nb requires a\n}", "waits for itself"},
	} {
		if _, err := goal(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "x.yaml:6") {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// FuzzGOAL: no text makes the reader panic.
func FuzzGOAL(f *testing.F) {
	f.Add("num_ranks 2\nrank 0 {\na: calc 5 cpu 1\nb: send 5b to 1 tag 3\nb requires a\n}\nrank 1 {\nrecv 5b from 0 tag 3 // x\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Read("x.yaml", []byte(goalScenario), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = file.Config(func(string) ([]byte, error) { return []byte(text), nil })
	})
}

// TestIterations: each pattern ends at all ranks of two jobs, after the calculations, with the bytes of a bandwidth-optimal
// operation.
func TestIterations(t *testing.T) {
	for pattern, sent := range map[string]uint64{"ring": 2 * 3 * 100_000, "hierarchical": 2*200_000 + 2*100_000, "tree": 2 * 400_000, "all-to-all": 3 * 400_000} {
		set := []string{"workload=[{kind: iterations, pattern: " + pattern + ", size: 400KB, jobs: 2, rounds: 3, compute: 100us}]"}
		if pattern == "hierarchical" {
			set = append(set, "workload.0.group=2")
		}
		r := simulated(t, goalScenario, set...)
		if len(r.Collectives) != 2 || r.Unfinished != 0 {
			t.Fatalf("%s: %+v", pattern, r.Collectives)
		}
		for _, c := range r.Collectives {
			least := 3 * (100e-6 + float64(sent)*8/100e9)
			if got := c.Took.Seconds(); c.Bytes != 3*sent || got < least || got > 2.5*least {
				t.Errorf("%s: %+v, want %d bytes and at least %v s", pattern, c, 3*sent, least)
			}
		}
	}
	for set, want := range map[string]string{
		"pattern: star, size: 1KB":                         `"star"`,
		"pattern: hierarchical, size: 1KB, group: 3":       "3: must divide the 8 ranks",
		"pattern: ring, size: 1KB, group: 2":               "only the pattern hierarchical has groups",
		"pattern: ring":                                    "iterations need a size",
		"pattern: all-to-all, size: 1, rounds: 1000000000": "more than ten million messages",
		"pattern: ring, size: 1KB, file: x":                "iterations has no such key",
		"pattern: ring, size: 1KB, jobs: 5":                "5 jobs of 1 ranks",
	} {
		if _, err := config(goalScenario, "workload=[{kind: iterations, "+set+"}]"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
}
