package fault

import (
	"strings"
	"testing"

	"roced.io/roced/internal/base/fault"
)

// TestRefused checks the rules that only the ports of NICs support.
func TestRefused(t *testing.T) {
	for text, says := range map[string]string{
		"tx delay 2ms":     "delay frames",
		"rx reorder 3":     "delay frames",
		"tx truncate 64":   "shorten",
		"tx trim":          "shorten",
		"both drop any":    "RoCEv2 frames only",
		"tx drop psn=+1":   "",
		"rx duplicate 999": "",
	} {
		r, err := fault.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		err = Check(&r)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// TestRejectedRulesChangeNothing checks that the old rules stay in force when a new rule is refused.
func TestRejectedRulesChangeNothing(t *testing.T) {
	p := load(t)
	old := []fault.Rule{{Dir: fault.Tx, Action: fault.Drop}}
	if err := p.SetRules(old); err != nil {
		t.Fatal(err)
	}
	if err := p.SetRules([]fault.Rule{{Dir: fault.Tx, Action: fault.ECN}, {Dir: fault.Tx, Action: fault.Delay, Delay: 1}}); err == nil {
		t.Fatal("a rule that cannot be obeyed is accepted")
	}
	if err := p.SetRules(make([]fault.Rule, maxRules+1)); err == nil {
		t.Fatal("too many rules are accepted")
	}
	if s, err := p.Stats(); err != nil || len(s.Rules) != 1 || s.Rules[0].Rule.Action != fault.Drop || p.settings.Dirs != 2 {
		t.Errorf("in force: %+v, %v", s, err)
	}
}
