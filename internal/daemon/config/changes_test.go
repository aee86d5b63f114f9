package config

import (
	"strings"
	"testing"

	"roced.io/roced/internal/base/strict"
)

// unchecked decodes a configuration without validation. A NIC without a name is a.
func unchecked(t *testing.T, text string) *Config {
	t.Helper()
	doc, err := strict.Parse("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	c := &Config{Drain: defaultDrain, doc: doc}
	if faults := doc.Decode(c); faults != nil {
		t.Fatal(faults)
	}
	for i := range c.NICs {
		setDefault(&c.NICs[i].Name, "a")
	}
	c.setDefaults()
	return c
}

// TestChangedKeys: each key that can change is among the changed keys, each other one is refused with one sentence. It
// covers all keys, in both directions.
func TestChangedKeys(t *testing.T) {
	for _, k := range Keys() {
		if k.Name == "nics[].name" {
			continue // TestChangedNICs
		}
		value, other := k.Example, "{}"
		switch {
		case k.Name == "run_dir":
			value = "/other" // the example is root's default
		case k.Name == "nics[].port.type":
			other = "nics: [{port: {type: tap}}]"
		case strings.HasPrefix(k.Name, "nics[]"):
			other = "nics: [{}]"
		}
		with, without := unchecked(t, nested(k.Name, value)), unchecked(t, other)
		indexed := strings.ReplaceAll(k.Name, "[]", ".0")
		for _, ch := range []*Changes{with.ChangesFrom(without), without.ChangesFrom(with)} {
			switch {
			case len(ch.Added)+len(ch.Removed) > 0:
				t.Errorf("%s: %+v", k.Name, ch)
			case k.Reload && (len(ch.Keys) != 1 || ch.Refused != nil || !ch.Within(strings.Replace(indexed, "nics.0", "nics[a]", 1))):
				t.Errorf("%s: changed %v, refused %v", k.Name, ch.Keys, ch.Refused)
			case !k.Reload && (len(ch.Refused) != 1 || len(ch.Keys) > 0 || ch.Refused[0].Key != indexed):
				t.Errorf("%s: changed %v, refused %v", k.Name, ch.Keys, ch.Refused)
			case !k.Reload && !strings.Contains(ch.Refused.Error(), indexed+": cannot change from "):
				t.Errorf("%s: %v", k.Name, ch.Refused)
			}
		}
	}
}

// TestChangedParameters: parameters of congestion control can change, those of other parts cannot.
func TestChangedParameters(t *testing.T) {
	const nic = "nics: [{congestion: {algorithm: dcqcn, rai: 1}, transports: {mrc: {recovery: {name: mrc, rto_us: 1}, cc_profiles: {7: {name: nscc, x: 1}}}}}]"
	old := unchecked(t, nic)
	ch := unchecked(t, strings.ReplaceAll(nic, ": 1}", ": 2}")).ChangesFrom(old)
	if got := strings.Join(ch.Keys, " "); got != "nics[a].congestion.rai nics[a].transports.mrc.cc_profiles.7.x" {
		t.Errorf("changed %s", got)
	}
	if len(ch.Refused) != 1 || ch.Refused[0].Key != "nics.0.transports.mrc.recovery.rto_us" {
		t.Errorf("refused %v", ch.Refused)
	}
}

// TestChangedNICs: names identify NICs, in any order. Default values and empty lists that the file spells out change nothing.
func TestChangedNICs(t *testing.T) {
	old := unchecked(t, "nics: [{name: a, mtu: 1500, port: {type: tap}}, {name: b, port: {type: tap}}, {name: c, port: {type: tap}}]")
	next := unchecked(t, "drain: 5s\nnics: [{name: d, port: {type: tap}}, {name: b, mtu: 4200, gateways: [], access: {users: []}, port: {type: TAP, device: b}}, "+
		"{name: a, mtu: 1500, port: {type: tap}}]")
	ch := next.ChangesFrom(old)
	if strings.Join(ch.Added, " ") != "d" || strings.Join(ch.Removed, " ") != "c" || ch.Keys != nil || ch.Refused != nil {
		t.Errorf("%+v", ch)
	}
	next.NICs[2].MTU = 1400
	if ch = next.ChangesFrom(old); len(ch.Refused) != 1 || ch.Refused[0].Key != "nics.2.mtu" {
		t.Errorf("refused %v", ch.Refused)
	}
}
