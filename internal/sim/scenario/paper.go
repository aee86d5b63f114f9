package scenario

// Paper says which result of a paper a scenario reproduces, and when it does. Package roced/sim/papers
// runs it. Without it a scenario is an ordinary one.
type Paper struct {
	Title   string
	Source  string // the paper; "own" if there is none
	Section string // and figure
	Says    string // what the paper says
	Setting string // of the paper, as it is written there
	Axes    Axes
	Series  []Variant // lines or bars of the figure
	Points  []Point   // of the horizontal axis; none: one without a name
	Skip    []string  // "series/point" that are not run
	Numbers []Number
	Claims  []Claim
	Figure  []Curve // the paper's figure, as far as its text gives it
	Open    []Open
	Seeds   int    // default 3
	Found   string // what is known about why it is not reproduced, or more than it should
	Fast    Fast
}

// Axes are those of the picture: which number it shows, over the points.
type Axes struct {
	X, Y    string // with units
	Number  string
	Numbers []string // instead of points: numbers are what the horizontal axis has, of the first point
	At      []string // points that are shown; none: all
	Bars    bool
	Log     bool // of the numbers
}

// Variant is changes to the scenario, as --set takes them.
type Variant struct {
	Name string
	Set  []string
}

// Point is a variant at a place of the horizontal axis.
type Point struct {
	Name string
	X    float64
	Set  []string
	Also []Variant // changes for the series of that name only
}

// Number is what is measured in each run.
type Number struct {
	Name     string
	Of       string // see Quantities of package internal/sim/papers
	Take     string // of many values: mean, p50, p95, p99, p99.9, max, min, jain
	From, To Size   // of flows: more than From, at most To bytes
	Bytes    Size   // of flows: exactly
	// Within is of flows: only those that begin in this part of the time in which flows begin, such as
	// [0.5, 0.8], when the network is neither filling nor emptying. None: all.
	Within     []float64
	Begin, End Span   // of what is measured over time
	Links      string // of what is measured of links: host, switch, or the beginning of their names
	Clients    []int  // of calls: first and last hosts of those that count; none: all
	Servers    []int
	Rivals     []int // of gap: clients that these are compared with
	Every      Span  // of swing: how long one of the stretches of time is that are compared
}

// Claim is what must be so.
type Claim struct {
	Says   string
	Number string
	Of     string   // series
	Over   string   // series: the ratio of the two
	At     []string // points; none: all
	Take   string   // each (default), most, least, mean of the points
	Kind   string   // ratio (default with Over), share (absolute, in points of percent), baseline
	Paper  []float64
	// Tolerance is a part of the paper's figure, for shares so many points; default 0.25, and 3.
	Tolerance float64
	// Direction that a measured value must have, if it is not that of a ratio: to the same side of 1.
	AtLeast *float64 `yaml:"at_least"`
	AtMost  *float64 `yaml:"at_most"`
	Favour  string   // more or less: on which side of the paper's figure the claim holds even better
	Reason  string   // why a figure more than twice beyond the paper's is right
}

// Curve is a line of the paper's figure.
type Curve struct {
	Series string
	Values map[string]float64 `yaml:",inline"` // by point
}

// Open is what the paper leaves open, how it was chosen, and why. Vary are other choices: the claims
// are measured with them, too.
type Open struct {
	What, Choice, Why string
	Vary              []Choice
	At                []string // points at which that is done; none: all
}

// Choice is another choice than the row's.
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
	Skip   bool     // there is none that is small enough
	Expect string   // the least verdict that is right: not reproduced, direction only (default), reproduced
	Why    string   // if that is less than a direction
}
