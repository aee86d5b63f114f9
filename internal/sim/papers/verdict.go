package papers

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"roced.io/roced/internal/sim/scenario"
)

// Verdict is the result of a claim. That of a row is the least of its claims.
type Verdict int

// Verdicts in ascending order.
const (
	NotMeasured Verdict = iota // a run is missing
	NotReproduced
	DirectionOnly
	Reproduced
)

var verdictNames = []string{"not measured", "not reproduced", "direction only", "reproduced"}

// String returns the name of the verdict.
func (v Verdict) String() string { return verdictNames[v] }

// MarshalText returns its name.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// ParseVerdict parses the name of a verdict.
func ParseVerdict(s string) (Verdict, error) {
	if i := slices.Index(verdictNames, s); i > 0 {
		return Verdict(i), nil
	}
	return 0, fmt.Errorf("%q: must be one of %s", s, strings.Join(verdictNames[1:], ", "))
}

// Kinds of claims.
const (
	ratio    = "ratio"    // relative tolerance
	share    = "share"    // tolerance in percentage points
	baseline = "baseline" // the reference of a comparison: no direction
	ordered  = "order"    // the paper gives a direction without a figure
)

// kind returns the kind of c.
func kind(c *scenario.Claim) string {
	switch {
	case c.Kind != "":
		return c.Kind
	case c.Over != "":
		return ratio
	}
	return share
}

func checkClaim(c *scenario.Claim) error {
	k := kind(c)
	switch {
	case !slices.Contains([]string{ratio, share, baseline, ordered}, k):
		return fmt.Errorf("kind %q: must be one of ratio, share, baseline, order", k)
	case k == ordered && (len(c.Paper) > 0 || c.AtLeast == nil && c.AtMost == nil):
		return errors.New("order requires at_least or at_most and no paper figure")
	case k == ordered:
	case len(c.Paper) != 1 && len(c.Paper) != 2 || c.Paper[0] > c.Paper[len(c.Paper)-1]:
		return errors.New("paper must be the paper's figure, or its least and greatest")
	case !slices.Contains([]string{"", "each", "most", "least", "mean"}, c.Take):
		return fmt.Errorf("take %q: must be one of each, most, least, mean", c.Take)
	case !slices.Contains([]string{"", "more", "less"}, c.Favour):
		return fmt.Errorf("favour %q: must be one of more, less", c.Favour)
	case k != baseline && c.AtLeast == nil && c.AtMost == nil && (k == share || c.Paper[0] <= 1 && c.Paper[len(c.Paper)-1] >= 1):
		return errors.New("the direction is undefined: set at_least or at_most")
	}
	return nil
}

// bounds returns the paper's figure without and with the tolerance.
func bounds(c *scenario.Claim) (lo, hi, least, most float64) {
	lo, hi = c.Paper[0], c.Paper[len(c.Paper)-1]
	t := c.Tolerance
	if kind(c) == share {
		t = cmp.Or(t, 3)
		return lo, hi, lo - t, hi + t
	}
	t = cmp.Or(t, 0.25)
	return lo, hi, lo - t*math.Abs(lo), hi + t*math.Abs(hi)
}

// favour returns on which side of the paper's figure a result is even better than the claim. For a ratio it is away
// from 1.
func favour(c *scenario.Claim) string {
	if c.Favour == "" && kind(c) == ratio && c.AtLeast == nil && c.AtMost == nil {
		if c.Paper[0] > 1 {
			return "more"
		}
		return "less"
	}
	return c.Favour
}

// Judge compares a measured value with c. It returns the verdict and its reason.
func Judge(c *scenario.Claim, v float64) (Verdict, string) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return NotReproduced, "nothing could be measured"
	}
	if kind(c) == ordered {
		if directed(c, v) {
			return Reproduced, ""
		}
		return NotReproduced, "the direction differs"
	}
	lo, hi, least, most := bounds(c)
	if kind(c) == baseline {
		if v < least || v > most {
			return DirectionOnly, fmt.Sprintf("the baseline's figure is outside %.4g to %.4g", least, most)
		}
		return Reproduced, ""
	}
	if !directed(c, v) {
		return NotReproduced, "the direction differs"
	}
	if v >= least && v <= most {
		return Reproduced, ""
	}
	switch beyond := favour(c); {
	case beyond == "more" && v > most && v <= 2*hi, beyond == "less" && v < least && v >= lo/2:
		return Reproduced, "beyond the paper's figure in the claim's favour"
	case beyond == "more" && v > most, beyond == "less" && v < least:
		if c.Reason != "" {
			return Reproduced, "more than twice beyond the paper's figure: " + c.Reason
		}
		return DirectionOnly, "more than twice beyond the paper's figure in the claim's favour, for an unknown reason"
	}
	return DirectionOnly, fmt.Sprintf("outside %.4g to %.4g", least, most)
}

// directed reports whether v has the direction of c.
func directed(c *scenario.Claim, v float64) bool {
	if c.AtLeast == nil && c.AtMost == nil {
		return (v > 1) == (c.Paper[0] > 1) && v != 1
	}
	return (c.AtLeast == nil || v >= *c.AtLeast) && (c.AtMost == nil || v <= *c.AtMost)
}

// take selects or computes the values that c judges, from the values at its points.
func take(c *scenario.Claim, values []float64) []float64 {
	if len(values) == 0 {
		return nil
	}
	switch c.Take {
	case "most":
		return []float64{slices.Max(values)}
	case "least":
		return []float64{slices.Min(values)}
	case "mean":
		return []float64{mean(values)}
	}
	return values
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Claim is the verdict on a claim.
type Claim struct {
	Says  string    `json:"says"`
	Paper []float64 `json:"paper"`
	// Points, Values and Ranges are what was compared: the names of the points, the means over all seeds, and the
	// least and the greatest value.
	Points  []string     `json:"points"`
	Values  []float64    `json:"measured"`
	Ranges  [][2]float64 `json:"ranges"`
	Verdict Verdict      `json:"verdict"`
	Why     string       `json:"why,omitempty"`
}

// Judged is the verdict on a row, or on an alternative setting of it.
type Judged struct {
	Verdict Verdict
	Claims  []Claim
}

// Judge computes the verdict on a row from its results. other is the name of an alternative setting.
func (r *Row) Judge(f *Found, other string) Judged {
	j := Judged{Verdict: Reproduced}
	for i := range r.Paper.Claims {
		o := r.outcome(&r.Paper.Claims[i], f, other)
		if o == nil {
			continue
		}
		j.Claims = append(j.Claims, *o)
		j.Verdict = min(j.Verdict, o.Verdict)
	}
	if len(j.Claims) == 0 {
		j.Verdict = NotMeasured
	}
	return j
}

// outcome judges a claim; nil if these runs do not include its points.
func (r *Row) outcome(c *scenario.Claim, f *Found, other string) *Claim {
	var bySeed [][]float64 // by seed and point
	o := &Claim{Says: c.Says, Paper: c.Paper, Verdict: Reproduced}
	for _, pt := range r.Paper.Points {
		if len(c.At) > 0 && !slices.Contains(c.At, pt.Name) || !f.planned(c.Of, pt.Name, other) || c.Over != "" && !f.planned(c.Over, pt.Name, other) {
			continue
		}
		values := f.values(c, pt.Name, other)
		if values == nil {
			o.Verdict, o.Why = NotMeasured, "a run is missing or has failed"
			return o
		}
		o.Points = append(o.Points, pt.Name)
		for i, v := range values {
			if len(bySeed) <= i {
				bySeed = append(bySeed, nil)
			}
			bySeed[i] = append(bySeed[i], v)
		}
	}
	if len(o.Points) == 0 {
		return nil
	}
	if c.Take != "" && c.Take != "each" {
		o.Points = []string{c.Take}
	}
	for i := range bySeed {
		bySeed[i] = take(c, bySeed[i])
	}
	points := o.Points
	o.Points = nil
	for k, name := range points {
		lo, hi, sum := math.Inf(1), math.Inf(-1), 0.0
		for _, s := range bySeed {
			lo, hi, sum = min(lo, s[k]), max(hi, s[k]), sum+s[k]
		}
		value := sum / float64(len(bySeed))
		if v, why := Judge(c, value); v < o.Verdict || why != "" && o.Why == "" {
			o.Verdict, o.Why = min(o.Verdict, v), why
		}
		if !math.IsNaN(value) && !math.IsInf(value, 0) {
			o.Points, o.Values, o.Ranges = append(o.Points, name), append(o.Values, value), append(o.Ranges, [2]float64{lo, hi})
		}
	}
	return o
}
