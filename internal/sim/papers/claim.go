package papers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim/scenario"
)

// checkClaim validates a claim.
func checkClaim(c *scenario.Claim, own bool) error {
	forms := 0
	for _, set := range []bool{c.Paper != 0, len(c.Bounds) > 0, c.Order != ""} {
		if set {
			forms++
		}
	}
	ratio := relative(c)
	switch {
	case c.Number != "" && len(c.Numbers) > 0:
		return errors.New("set one of number and numbers")
	case c.Base != "" && c.Over == "", c.From != "" && c.Ideal != 0:
		return errors.New("base needs over; from excludes ideal")
	case own && (c.Paper != 0 || c.Order != ""):
		return errors.New("a row without a paper has at most bounds, for its fast form")
	case own && forms == 0:
		return nil
	case forms != 1:
		return errors.New("set one of paper, bounds, order")
	case c.Over != "" && c.Ideal != 0 || c.Ideal < 0:
		return errors.New("set one of over and a positive ideal")
	case c.Paper != 0 && (!ratio || c.Paper <= 0 || c.Paper == 1 || math.IsInf(c.Paper, 0) || math.IsNaN(c.Paper)):
		return errors.New("paper must be a ratio other than 1, and needs over or ideal; use bounds for other figures")
	case len(c.Bounds) > 0 && (len(c.Bounds) != 2 || !(c.Bounds[0] <= c.Bounds[1])):
		return errors.New("bounds must be the least and the greatest value")
	case c.Order != "" && !slices.Contains([]string{"more", "less", "same"}, c.Order):
		return fmt.Errorf("order %w", suggest.OneOf(c.Order, []string{"more", "less", "same"}))
	case !slices.Contains([]string{"", "each", "most", "least", "mean"}, c.Take):
		return fmt.Errorf("take %w", suggest.OneOf(c.Take, []string{"each", "most", "least", "mean"}))
	case c.Quote == "" && !own:
		return errors.New("quote is missing")
	}
	if crit := criterion(c); taken(c) && crit.direction() == 0 {
		return errors.New("take: the criterion has no direction; each point must meet it")
	}
	return nil
}

// relative reports whether the values of a claim are ratios.
func relative(c *scenario.Claim) bool { return c.Over != "" || c.Ideal > 0 || c.From != "" }

// each returns c for each of its numbers.
func each(c *scenario.Claim) (list []scenario.Claim) {
	for _, n := range c.Numbers {
		one := *c
		one.Number = n
		list = append(list, one)
	}
	if list == nil {
		list = append(list, *c)
	}
	return list
}

// label names a point of a claim, and the number if it has several.
func label(c *scenario.Claim, point string) string {
	if len(c.Numbers) == 0 {
		return point
	}
	return strings.TrimSpace(point + " " + c.Number)
}

// taken reports whether a claim is of an extreme or the mean of its points.
func taken(c *scenario.Claim) bool { return c.Take != "" && c.Take != "each" }

// criterion returns what c requires.
func criterion(c *scenario.Claim) Criterion {
	out := Criterion{Effect: c.Paper, Ideal: c.Ideal, Reference: 1}
	for _, b := range c.Bounds {
		out.Bounds = append(out.Bounds, float64(b))
	}
	switch {
	case len(c.Bounds) > 0 && !relative(c):
		out.Reference = math.NaN()
	case !relative(c):
		out.Reference = 0
	}
	switch c.Order {
	case "more":
		out.Order = 1
	case "less":
		out.Order = -1
	case "same":
		out.Same = true
	}
	return out
}

// At is the value of a claim at a point: its mean over seeds, and the confidence interval. An end of the interval is
// absent if it is not known.
type At struct {
	Point string    `json:"point"`
	Mean  float64   `json:"mean"`
	Lo    *float64  `json:"least,omitempty"`
	Hi    *float64  `json:"greatest,omitempty"`
	Seeds []float64 `json:"seeds"`

	shown   string // Point without what the claim says
	iv      Interval
	verdict Verdict
	why     string
}

// Claim is the verdict on a claim.
type Claim struct {
	Says    string  `json:"says"`
	Paper   string  `json:"paper"`
	At      []At    `json:"at"`
	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why,omitempty"`
	// Drift says which measurements were not stationary; empty if none is known.
	Drift string `json:"drift,omitempty"`
	// Misses is set if the value at a point is more than 10 % away from the paper's.
	Misses bool `json:"misses,omitempty"`

	take      string // "most" or "least" if the claim is of an extreme
	byValue   int    // the verdict of a fast form
	boundless bool   // similarity without a bound
	sizeless  bool   // a direction without a size
}

// Judged is the verdict on a row.
type Judged struct {
	Verdict Verdict
	Claims  []Claim
}

// Judge computes the verdicts on a row from its results.
func (r *Row) Judge(f *Found) Judged {
	j := Judged{Verdict: NoVerdict}
	for i := range r.Paper.Claims {
		o := r.outcome(&r.Paper.Claims[i], f)
		if o == nil {
			continue
		}
		j.Claims = append(j.Claims, *o)
		j.Verdict = min(j.Verdict, o.Verdict)
	}
	if len(j.Claims) == 0 {
		j.Verdict = NotRun
	}
	return j
}

// own reports whether no paper has the row.
func (r *Row) own() bool { return r.Paper.Source == "own" }

// outcome judges a claim; nil if these runs do not include its points.
func (r *Row) outcome(c *scenario.Claim, f *Found) *Claim {
	crit := criterion(c)
	o := &Claim{Says: c.Says, Verdict: Reproduced, take: c.Take}
	for _, one := range each(c) {
		for _, pt := range r.pointsOf(c, f, "") {
			o.At = append(o.At, r.at(&one, &crit, f, pt))
		}
	}
	if len(o.At) == 0 {
		return nil
	}
	showPoints(o, len(c.Numbers))
	o.byValue, o.boundless, o.sizeless = byValue(&crit, o.At), crit.Same, crit.Order != 0
	if r.own() {
		o.Paper, o.Verdict = "no paper", NoVerdict
		return o
	}
	o.Paper = crit.Text()
	o.Misses = slices.ContainsFunc(judgedMeans(c, o.At), crit.misses)
	combine(c, &crit, o)
	if o.Verdict != NotRun && o.Verdict != Undecided {
		if others, points := r.disagree(c, &crit, f, o); len(others) > 0 {
			o.dependent(others, points)
		}
	}
	less(c, o)
	o.Drift = r.drift(c, f)
	return o
}

// showPoints shortens the names of points: it drops the words that all begin with, if the claim has them or has a single point.
func showPoints(o *Claim, numbers int) {
	first := o.At[0].Point
	for i := range o.At {
		o.At[i].shown = o.At[i].Point
		for !strings.HasPrefix(o.At[i].Point, first) {
			first = first[:strings.LastIndexByte(first[:len(first)-1], ' ')+1]
		}
	}
	said := strings.TrimRight(first, ", ")
	for i := range o.At {
		if a := &o.At[i]; len(o.At) > 1 && said != "" && first != a.Point && (len(o.At) == numbers || strings.Contains(o.Says, said)) {
			a.shown = a.Point[len(first):]
		}
	}
}

// name returns what texts call the point.
func (a *At) name() string { return cmp.Or(a.shown, a.Point) }

// dependent lowers a verdict because other settings disagree at some points. A claim that other points contradict in all settings
// does not depend on a choice.
func (o *Claim) dependent(others []string, points []int) {
	o.Why = strings.Join(others, "; ")
	if o.Verdict == NumberOnly {
		return
	}
	o.Verdict = DependsOnChoice
	var miss []string
	for i, a := range o.At {
		if a.verdict == Contradicted && !slices.Contains(points, i) {
			miss = append(miss, a.name())
		}
	}
	if len(miss) > 0 {
		o.Verdict, o.Why = Mixed, fmt.Sprintf("contradicted in all settings: %s; %s", strings.Join(miss, ", "), o.Why)
	}
}

// less lowers the verdict of a claim for the reasons in its file.
func less(c *scenario.Claim, o *Claim) {
	switch {
	case o.Verdict == NotRun:
	case c.Void != "":
		o.Verdict, o.Why = NotRun, c.Void
	case c.Input != "":
		o.Verdict, o.Why = ModelInput, c.Input
	case c.Calibrated != "":
		o.Verdict, o.Why = Calibrated, c.Calibrated
	case c.Depends != "" && o.Verdict == DependsOnChoice:
		o.Why = c.Depends + "; " + o.Why
	case c.Depends != "":
		o.Verdict, o.Why = DependsOnChoice, c.Depends
	}
}

// pointsOf returns the points of a claim that f has.
func (r *Row) pointsOf(c *scenario.Claim, f *Found, other string) (names []string) {
	for _, pt := range r.Paper.Points {
		if (len(c.At) == 0 || slices.Contains(c.At, pt.Name)) && (c.From == "" || c.From != pt.Name) && f.has(c, pt.Name, other) &&
			(c.From == "" || f.has(c, c.From, other)) {
			names = append(names, pt.Name)
		}
	}
	return names
}

// at computes the value of a claim at a point.
func (r *Row) at(c *scenario.Claim, crit *Criterion, f *Found, point string) At {
	a := At{Point: label(c, point), Seeds: f.values(c, point, ""), verdict: NotRun}
	a.Seeds = slices.DeleteFunc(slices.Clone(a.Seeds), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	if len(a.Seeds) == 0 || len(a.Seeds) < f.seeds(c.Of, point) {
		a.Seeds, a.why = nil, "a run is missing or has failed, or nothing could be measured"
		return a
	}
	a.iv = Over(a.Seeds, relative(c))
	a.Mean = a.iv.Mean
	if len(a.Seeds) == 1 {
		a.why = "one seed has no interval"
		return a
	}
	a.iv, a.why = r.bound(c, f, point, a.iv)
	a.Lo, a.Hi = finite(a.iv.Lo), finite(a.iv.Hi)
	if n := different(a.Seeds); 2*n <= len(a.Seeds) && len(a.Seeds) < mostSeeds && !crit.Same {
		a.verdict, a.why = Undecided, fmt.Sprintf("%d seeds, %d values", len(a.Seeds), n)
		if n == 1 {
			a.why = fmt.Sprintf("%d equal seeds", len(a.Seeds))
		}
		return a
	}
	if a.verdict = crit.Judge(a.iv.Lo, a.iv.Hi); crit.Same {
		a.why = sameReason
	} else if a.why == "" {
		a.why = reasons[a.verdict]
	}
	return a
}

// different returns the number of different values, to nine digits.
func different(values []float64) int {
	var seen []string
	for _, v := range values {
		seen = append(seen, fmt.Sprintf("%.9g", v))
	}
	slices.Sort(seen)
	return len(slices.Compact(seen))
}

// sameReason is why similarity has no verdict.
const sameReason = "the paper states no bound for its similarity"

// reasons explains verdicts.
var reasons = map[Verdict]string{Contradicted: "on the other side", Undecided: "the interval includes no effect or a bound", Direction: "the size differs"}

func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// combine computes the verdict of a claim from those of its points. A claim is contradicted only if each point is. An
// extreme or a mean counts only if each point has the direction.
func combine(c *scenario.Claim, crit *Criterion, o *Claim) {
	least := slices.MinFunc(o.At, func(a, b At) int { return int(a.verdict) - int(b.verdict) })
	o.Verdict, o.Why = least.verdict, least.why
	if o.Verdict == Contradicted && slices.ContainsFunc(o.At, func(a At) bool { return a.verdict != Contradicted }) {
		o.Verdict, o.Why = Mixed, perPoint(o.At)
	}
	if !taken(c) || o.Verdict < Direction {
		return
	}
	if c.Take == "mean" {
		iv := Over(meanOfLogs(o.At), true)
		o.Verdict, o.Why = crit.Judge(iv.Lo, iv.Hi), ""
		return
	}
	extreme := slices.MaxFunc(o.At, func(a, b At) int {
		if (a.Mean > b.Mean) == (c.Take == "most") {
			return 1
		}
		return -1
	})
	o.Verdict, o.Why = extreme.verdict, extreme.why
}

// judgedMeans returns the means of all points, or the one of them that the claim takes.
func judgedMeans(c *scenario.Claim, at []At) (means []float64) {
	logs := 0.0
	for _, a := range at {
		if len(a.Seeds) > 0 {
			means, logs = append(means, a.Mean), logs+math.Log(a.Mean)
		}
	}
	switch {
	case len(means) == 0 || !taken(c):
	case c.Take == "most":
		return []float64{slices.Max(means)}
	case c.Take == "least":
		return []float64{slices.Min(means)}
	default:
		return []float64{math.Exp(logs / float64(len(means)))}
	}
	return means
}

// perPoint lists the verdicts of points.
func perPoint(at []At) string {
	of := map[Verdict][]string{}
	for _, a := range at {
		of[a.verdict] = append(of[a.verdict], a.name())
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, v.String()+": "+strings.Join(of[v], ", "))
	}
	return strings.Join(parts, "; ")
}

// meanOfLogs returns the geometric mean over points, by seed.
func meanOfLogs(at []At) (means []float64) {
	for seed := range at[0].Seeds {
		sum := 0.0
		for i := range at {
			sum += math.Log(at[i].Seeds[seed])
		}
		means = append(means, math.Exp(sum/float64(len(at))))
	}
	return means
}

// disagree returns the alternative settings with another verdict, or with a number that misses the row's by more than 10 %, and their values.
// An alternative has one seed, without an interval. So it disagrees only if its value is outside the range of the row's seeds.
func (r *Row) disagree(c *scenario.Claim, crit *Criterion, f *Found, o *Claim) (list []string, points []int) {
	for _, open := range r.Paper.Open {
		for _, v := range open.Vary {
			var values []string
			differ := false
			for _, one := range each(c) {
				for _, point := range r.pointsOf(c, f, v.Name) {
					x := f.values(&one, point, v.Name)
					if len(x) == 0 {
						continue
					}
					values = append(values, digits(x[0], 3))
					i := slices.IndexFunc(o.At, func(a At) bool { return a.Point == label(&one, point) })
					if i >= 0 && o.At[i].differs(crit, x[0]) {
						differ, points = true, append(points, i)
					}
				}
			}
			if differ {
				list = append(list, "with "+v.Name+": "+strings.Join(values, ", "))
			}
		}
	}
	return list, points
}

// differs reports whether the value of an alternative setting disagrees with that of the claim.
func (a *At) differs(crit *Criterion, x float64) bool {
	if len(a.Seeds) == 0 {
		return false
	}
	least, most := slices.Min(a.Seeds), slices.Max(a.Seeds)
	if crit.Same {
		return x < least*(1-missed) || x > most*(1+missed)
	}
	return (x < least || x > most) && crit.Judge(x, x) != crit.Judge(a.Mean, a.Mean)
}

// Verdicts of fast forms, whose single seed has no interval, in ascending order.
const (
	notReproduced = iota
	directionOnly
	reproducedByValue
)

// fastVerdicts are the names of these verdicts in files of rows.
var fastVerdicts = []string{"not reproduced", "direction only", "reproduced"}

// byValue returns the verdict on values without intervals: the least of all points. A missing value, such as a ratio of 0
// to 0, is not reproduced.
func byValue(crit *Criterion, points []At) int {
	worst := reproducedByValue
	for i := range points {
		if len(points[i].Seeds) == 0 {
			return notReproduced
		}
		v := crit.Judge(points[i].Mean, points[i].Mean)
		worst = min(worst, max(int(v-Direction)+directionOnly, notReproduced))
	}
	return worst
}

// precise reports whether more seeds would not narrow the intervals of the row enough to matter.
func (r *Row) precise(f *Found) bool {
	for i := range r.Paper.Claims {
		c := &r.Paper.Claims[i]
		crit := criterion(c)
		for _, one := range each(c) {
			for _, point := range r.pointsOf(c, f, "") {
				if a := r.at(&one, &crit, f, point); len(a.Seeds) > 0 && !crit.precise(Over(a.Seeds, relative(c))) {
					return false
				}
			}
		}
	}
	return true
}
