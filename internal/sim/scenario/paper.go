package scenario

import (
	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim/engine"
)

// Paper describes the result of a paper that a scenario reproduces. Package internal/sim/papers uses it; other
// programs ignore it.
type Paper struct {
	Title   string
	Source  string // the paper; "own" if there is none
	Section string // and figure
	Says    string // the paper's statement
	Setting string // as in the paper
	Axes    Axes
	Series  []Variant // lines or bars of the figure
	Points  []Point   // of the horizontal axis; none: one without a name
	Skip    []string  // "series/point" without runs
	Numbers []Number
	Quotes  map[string]Quote // passages of the paper, by name
	Claims  []Claim
	Figure  []Curve // values of the paper's figure that its text gives
	Open    []Open
	Seeds   int    // default 3
	Found   string // known reasons for a verdict
	Adverse string // a result against the transport, for the summary
	Fast    Fast
}

// Axes describes the picture: a number over the points.
type Axes struct {
	X, Y    string // with units
	Number  string
	Numbers []string // instead of points: the horizontal axis has these numbers, of the first point
	At      []string // shown points; none: all
	Bars    bool
	Log     bool // the vertical axis is logarithmic
}

// Variant is a set of changes to the scenario, as --set takes them.
type Variant struct {
	Name string
	Set  []string
}

// Point is a variant at a position of the horizontal axis.
type Point struct {
	Name string
	X    float64
	Set  []string
	Also []Variant // changes for one series only
}

// Number is a measurement of each run.
type Number struct {
	Name     string
	Of       string         // see Quantities of package internal/sim/papers
	Take     string         // of many values: mean, max, min, jain, unfair (1 - jain), deviation (standard), or a percentile such as p99.9
	From, To quantity.Bytes // flows of more than From and at most To bytes
	Bytes    quantity.Bytes // flows of exactly this size
	// Within selects flows that begin in this part of the time in which flows begin, such as [0.5, 0.8], to exclude
	// startup and drain phases. None: all.
	Within     []float64
	Begin, End engine.Time // of the measurement
	Links      string      // host, switch, or a prefix of link names
	Clients    []int       // of calls: ranges of first and last hosts; none: all
	Servers    []int
	Rivals     []int       // of gap: clients to compare with
	Every      engine.Time // of swing: length of the compared intervals
}

// Claim is a statement of the paper to verify. Its criterion is one of Paper, Bounds and Order.
type Claim struct {
	Says    string
	Number  string
	Numbers []string // instead: each of several, such as points of a CDF
	Of      string   // series
	Over    string   // series: the value is the ratio of Of to Over
	Ideal   float64  // instead of Over: what Of can be at most; the value is the share of it
	Base    string   // the number of Over, if another; Over may then be Of
	From    string   // a point: the value is that at the other points over that at this one
	At      []string // points; none: all
	Take    string   // each (default), most, least, mean of the points
	Paper   float64  // the paper's ratio, not 1
	Bounds  []Bound  // the least and the greatest value that the paper allows
	Order   string   // more, less, or same: the paper has a direction without a size, or similarity without a bound
	Quote   string   // name of the paper's passage
	// Reasons for which a comparison shows less than its interval: the value was put in, a setting was inferred from the
	// figure, or plausible settings disagree in runs that the row does not have.
	Input, Calibrated, Depends string
	// Void is why runs of this setting allow no verdict: it is not the paper's, or not validated.
	Void string
}

// Bound is a limit of a value, possibly infinite.
type Bound float64

// Quote is a passage of a paper: section and place, and the words.
type Quote struct{ Where, Text string }

// Curve is a series of the paper's figure.
type Curve struct {
	Series string
	Values map[string]float64 `yaml:",inline"` // by point
}

// Open is a setting that the paper leaves open, the chosen value, and the reason. Vary lists alternatives, which
// are measured as well.
type Open struct {
	What, Choice, Why string
	Vary              []Choice
	At                []string // points that are measured; none: all
}

// Choice is an alternative to the row's default setting.
type Choice struct {
	Name string
	Set  []string
	Also []Variant // changes for the series of that name only
}

// Fast is a smaller setting that shows the same directions.
type Fast struct {
	Set    []string
	Series []string // none: all
	Points []string // none: all
	Seeds  int      // default 1
	Skip   bool     // no setting is small enough
	Expect string   // least verdict by values without intervals: not reproduced, direction only (default), reproduced
	Why    string   // reason for an Expect below direction only
	Limits []Limit  // of claims whose values are outside the paper's in this form
}

// Limit bounds the values of a claim, by its words, at all points of a fast form.
type Limit struct {
	Says   string
	Bounds []Bound
	Why    string
}
