// Package fault is the tc program that applies the fault rules of internal/base/fault to all RoCEv2 frames of an
// interface. The same rules have the same effect, including random numbers; Check returns an error for rules that the
// program does not support. The program does not change other frames.
//
// No promise: this package may change between releases.
package fault

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/fault"
)

//go:generate go tool bpf2go -target bpfel -cc clang -cflags "-O2 -g -mcpu=v3 -Wall -Wextra -Werror -I../include -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" fault fault.c

// Program is a loaded program with its rules. It is not safe for concurrent use.
type Program struct {
	objs     faultObjects
	rules    []fault.Rule
	settings faultSettings
}

// Counters are the counters of one direction.
type Counters struct {
	Frames  uint64 `json:"frames"`            // RoCEv2 frames; a super-frame counts once in a direction without rules
	Supers  uint64 `json:"supers,omitempty"`  // segmented super-frames
	Unsplit uint64 `json:"unsplit,omitempty"` // super-frames that were not segmented: the rules do not apply to them
}

// Stats are all counters of a program.
type Stats struct {
	Rx    Counters
	Tx    Counters
	Rules []fault.RuleStats
}

// Load loads the program without rules. It needs CAP_BPF and CAP_NET_ADMIN.
func Load() (*Program, error) {
	spec, err := loadFault()
	if err != nil {
		return nil, fmt.Errorf("fault: %w", err)
	}
	var kinds [256]uint8
	for op := range kinds {
		kinds[op] = fault.Sequence(bth.Opcode(op))
	}
	if err := spec.Variables["kinds"].Set(kinds); err != nil {
		return nil, fmt.Errorf("fault: %w", err)
	}
	p := &Program{}
	if err := spec.LoadAndAssign(&p.objs, nil); err != nil {
		return nil, fmt.Errorf("fault: %w", err)
	}
	return p, nil
}

// SetRules replaces the rules, and resets flows and counters of rules. No rule applies during the call.
func (p *Program) SetRules(rules []fault.Rule) error {
	if len(rules) > maxRules {
		return fault.ErrTooMany
	}
	for i := range rules {
		if err := Check(&rules[i]); err != nil {
			return err
		}
	}
	p.settings.Track, p.settings.Dirs, p.settings.Qpns = 0, 0, [2]uint64{}
	if err := p.store(); err != nil {
		return err
	}
	if err := p.forget(); err != nil {
		return fmt.Errorf("fault: flows: %w", err)
	}
	var dirs uint32
	for i := range maxRules {
		var c faultRule
		var s faultState
		if i < len(rules) {
			c = compile(&rules[i])
			p.settings.Track |= uint32(flag(tracks(&rules[i])))
			dirs |= uint32(c.Dirs)
			for dir := range p.settings.Qpns {
				p.settings.Qpns[dir] |= queuePairs(&c, dir)
			}
			s.Pcg.Hi, s.Pcg.Lo = rules[i].Seed, uint64(i)
		}
		if err := errors.Join(p.objs.Rules.Put(uint32(i), &c), p.objs.States.Put(uint32(i), &s)); err != nil {
			return fmt.Errorf("fault: rule %d: %w", i, err)
		}
	}
	p.rules, p.settings.Dirs = rules, dirs
	return p.store()
}

// store writes the settings, except for Split, which the program itself sets.
func (p *Program) store() error {
	var now faultSettings
	if err := p.objs.Settings.Lookup(uint32(0), &now); err != nil {
		return fmt.Errorf("fault: settings: %w", err)
	}
	p.settings.Split = now.Split
	if err := p.objs.Settings.Put(uint32(0), &p.settings); err != nil {
		return fmt.Errorf("fault: settings: %w", err)
	}
	return nil
}

// forget deletes all flows. New flows appear during the call only if the program has rules.
func (p *Program) forget() error {
	var key faultFlowKey
	for {
		err := p.objs.Flows.NextKey(nil, &key)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err == nil {
			err = p.objs.Flows.Delete(&key)
		}
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
}

// Stats returns the counters.
func (p *Program) Stats() (s Stats, err error) {
	for dir, sum := range []*Counters{&s.Rx, &s.Tx} {
		var perCPU []faultCounters
		if err := p.objs.Counters.Lookup(uint32(dir), &perCPU); err != nil {
			return s, fmt.Errorf("fault: counters: %w", err)
		}
		for _, c := range perCPU {
			sum.Frames += c.Frames
			sum.Supers += c.Supers
			sum.Unsplit += c.Unsplit
		}
	}
	for i, r := range p.rules {
		var st faultState
		if err := p.objs.States.LookupWithFlags(uint32(i), &st, ebpf.LookupLock); err != nil {
			return s, fmt.Errorf("fault: counters of rule %d: %w", i, err)
		}
		s.Rules = append(s.Rules, fault.RuleStats{Rule: r, Matched: st.Matched, Hit: st.Hit})
	}
	return s, nil
}

// Close releases the program and its maps.
func (p *Program) Close() error { return p.objs.Close() }
