package fault

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"roced.io/roced/internal/base/suggest"
)

const (
	actionNames    = "drop, duplicate, delay, reorder, corrupt, truncate, trim, ecn"
	conditionNames = "qpn=, psn=, n=, op=, peer=, src=, dst=, path=, p=, seed=, count=, any, name="
)

// Parse reads a rule in the format of the package comment. The error contains the invalid word.
func Parse(s string) (Rule, error) {
	r, err := parse(s)
	if err != nil {
		return Rule{}, fmt.Errorf("fault rule %q: %w", s, err)
	}
	return r, nil
}

// ParseAll reads rules. The error is that of the first invalid one.
func ParseAll(texts []string) ([]Rule, error) {
	var rules []Rule
	for _, s := range texts {
		r, err := Parse(s)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func parse(s string) (r Rule, err error) {
	words := strings.Fields(s)
	if len(words) < 2 {
		return r, errors.New("needs a direction (rx, tx, both) and an action (" + actionNames + ")")
	}
	r.Dir, r.Action = Dir(words[0]), Action(words[1])
	words = words[2:]
	args := 0
	for args < len(words) && isArgument(words[args]) {
		args++
	}
	if err := r.parseArguments(words[:args]); err != nil {
		return r, err
	}
	seen := map[string]bool{}
	for _, w := range words[args:] {
		key, value, hasValue := strings.Cut(w, "=")
		if seen[key] {
			return r, fmt.Errorf("%q: %s appears twice", w, key)
		}
		seen[key] = true
		if key == "any" && !hasValue {
			r.Any = true
			continue
		}
		if err := r.parseCondition(key, value); err != nil {
			return r, fmt.Errorf("%q: %w", w, err)
		}
	}
	return r, r.Validate()
}

// isArgument reports whether a word is a number or duration after an action, in contrast to a condition.
func isArgument(w string) bool {
	return w[0] >= '0' && w[0] <= '9' || w[0] == '-' || w[0] == '.' || w[0] == '+'
}

func (r *Rule) parseArguments(args []string) error {
	most := map[Action]int{Duplicate: 1, Delay: 1, Reorder: 2, Corrupt: 1, Truncate: 1, Trim: 1}[r.Action]
	if len(args) > most {
		return fmt.Errorf("%q: %s does not take this argument", args[most], r.Action)
	}
	for i, w := range args {
		var err error
		switch {
		case r.Action == Delay || i == 1:
			r.Delay, err = time.ParseDuration(w)
			if err == nil && r.Delay == 0 {
				err = errors.New("zero")
			}
		case r.Action == Duplicate:
			r.Copies, err = positive(w)
		case r.Action == Reorder:
			r.Frames, err = positive(w)
		case r.Action == Truncate:
			r.Length, err = positive(w)
		case r.Action == Trim:
			r.DSCP, err = positive(w)
		case r.Action == Corrupt:
			r.Offset = new(int)
			*r.Offset, err = strconv.Atoi(w)
		}
		if err != nil {
			return fmt.Errorf("%q is not an argument of %s", w, r.Action)
		}
	}
	return nil
}

func positive(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && n <= 0 {
		err = errors.New("not positive")
	}
	return n, err
}

// Reasons to reject a value.
var (
	errNumber      = errors.New("not a number in the valid range")
	errProbability = errors.New("not a probability above 0 and up to 1")
)

func (r *Rule) parseCondition(key, value string) (err error) {
	switch key {
	case "qpn":
		r.QPN = new(uint32)
		*r.QPN, err = number24(value)
	case "psn":
		r.PSN = new(PSNs)
		*r.PSN, err = parsePSNs(value)
	case "n":
		for _, w := range strings.Split(value, ",") {
			n, err := strconv.Atoi(w)
			if err != nil {
				return errNumber
			}
			r.Nth = append(r.Nth, n)
		}
	case "op":
		if r.Op = value; value == "" {
			return errors.New("empty")
		}
	case "peer":
		r.Peer, err = address(value)
	case "src":
		r.Src, err = address(value)
	case "dst":
		r.Dst, err = address(value)
	case "path":
		r.Path = new(Path)
		*r.Path, err = parsePath(value)
	case "p":
		if r.P, err = strconv.ParseFloat(value, 64); err != nil || !(r.P > 0 && r.P <= 1) {
			err = errProbability
		}
	case "seed":
		r.Seed, err = number(value, 64)
	case "count":
		if r.Count, err = number(value, 64); r.Count == 0 {
			err = errNumber
		}
	case "name":
		if r.Name = value; value == "" {
			err = errors.New("empty")
		}
	default:
		err = fmt.Errorf("not a condition (%s)%s", conditionNames, suggest.Hint(key, strings.Split(strings.ReplaceAll(conditionNames, "=", ""), ", ")))
	}
	return err
}

func address(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err == nil && a.Zone() != "" {
		err = errors.New("must be an address without a zone")
	}
	return a.Unmap(), err
}

// parsePSNs reads [+]N[..N].
func parsePSNs(s string) (p PSNs, err error) {
	s, p.Relative = strings.CutPrefix(s, "+")
	first, last, isRange := strings.Cut(s, "..")
	if p.First, err = number24(first); err != nil {
		return p, err
	}
	p.Last = p.First
	if isRange {
		p.Last, err = number24(last)
	}
	return p, err
}

// parsePath reads K/N.
func parsePath(s string) (Path, error) {
	index, of, _ := strings.Cut(s, "/")
	k, err := number(index, 16)
	if err != nil {
		return Path{}, err
	}
	n, err := number(of, 16)
	return Path{uint16(k), uint16(n)}, err
}

func number24(s string) (uint32, error) {
	n, err := number(s, 24)
	return uint32(n), err
}

// number reads a decimal number, or a hexadecimal one after 0x.
func number(s string, bits int) (uint64, error) {
	base := 10
	if h, ok := strings.CutPrefix(s, "0x"); ok {
		s, base = h, 16
	}
	n, err := strconv.ParseUint(s, base, bits)
	if err != nil {
		return 0, errNumber
	}
	return n, nil
}
