package engine

// Group is the clock of a simulation whose parts have an engine each. Its windows are those of a single engine: the
// engines, and then their partners, process one window at the same time. Parts affect each other no earlier than in the
// next window. So timers of a part fire in the same order as with a single engine.
type Group struct {
	// Between, if not nil, is called after each window and before each meeting, while no part runs.
	Between func()

	engines []*Engine
	begin   func(part int) // nil: a single engine runs alone
	meeting *Meeting
	set     int // meetings that are set
	held    uint64
	stopped bool

	workers Workers
	end     Time // of the window
	begins  bool // the round is the first one of a window
}

// Workers call a function for all parts at the same time.
type Workers interface {
	// Start is called before the first Round.
	Start(round func(part int))
	// Round calls round for each part and returns when all calls have returned.
	Round()
	// Stop is called after the last Round.
	Stop()
}

// Alone returns the clock of a simulation with one engine and without windows of its own.
func Alone(e *Engine) *Group { return &Group{engines: []*Engine{e}} }

// NewGroup returns the clock of parts, which are the engines' partners. At the beginning of each window, begin makes a
// part take the events that other parts sent in the previous window. Until then, Next of the sender includes them.
func NewGroup(engines []*Engine, w Workers, begin func(part int)) *Group {
	return &Group{engines: engines, workers: w, begin: begin}
}

// Windows reports whether the group has windows, so that parts affect each other only in the next one.
func (g *Group) Windows() bool { return g.begin != nil }

// Now returns the present instant. Only handlers of meetings may call it while Run runs.
func (g *Group) Now() Time { return g.engines[0].now }

// Halt ends Run after the current handler, which is that of a meeting.
func (g *Group) Halt() {
	g.stopped = true
	g.engines[0].Halt()
}

// Sync makes all partners catch up. Call it before reading or changing a partner from a meeting.
func (g *Group) Sync() {
	for _, e := range g.engines {
		e.Sync()
	}
}

// Pending returns the number of set timers and meetings. A partner with a pending event counts as one.
func (g *Group) Pending() (n int) {
	for _, e := range g.engines {
		n += e.Pending()
	}
	return n - g.set*(len(g.engines)-1)
}

// Interrupt makes Run end early if f, which it calls between windows, reports true. nil: never.
func (g *Group) Interrupt(f func() bool) { g.engines[0].interrupted = f }

// Fired returns the number of processed events. A meeting counts as one.
func (g *Group) Fired() (n uint64) {
	for _, e := range g.engines {
		n += e.Fired()
	}
	return n - g.held*uint64(len(g.engines)-1)
}

// Meeting is a timer at which all engines have reached the same instant. Its handler may use all parts.
type Meeting struct {
	g       *Group
	handler Handler
	timers  []Timer // by engine
}

// Init makes m call h.
func (m *Meeting) Init(g *Group, h Handler) {
	*m = Meeting{g: g, handler: h, timers: make([]Timer, len(g.engines))}
	for i := range m.timers {
		m.timers[i].Init((*arrival)(m), int32(i))
	}
}

// Set makes m due at at. Call it before Run or from the handler of a meeting.
func (m *Meeting) Set(at Time) {
	if !m.Pending() {
		m.g.set++
	}
	for i, e := range m.g.engines {
		e.Set(&m.timers[i], at)
	}
	if !m.Pending() {
		m.g.set--
	}
}

// Pending reports whether m is set.
func (m *Meeting) Pending() bool { return m.timers[0].Pending() }

// arrival is a meeting as the handler of an engine's timer.
type arrival Meeting

// Handle implements Handler.
func (a *arrival) Handle(now Time, i int32) {
	m := (*Meeting)(a)
	if m.g.begin == nil {
		m.hold(now)
		return
	}
	if i == 0 {
		m.g.meeting = m
	}
	m.g.engines[i].Halt()
}

// hold calls the handler.
func (m *Meeting) hold(now Time) {
	m.g.set--
	m.g.held++
	m.handler.Handle(now, 0)
}

// Run processes all events until an instant, or until Halt is called. The clock is then at until, or at the instant of
// Halt.
func (g *Group) Run(until Time) {
	if g.begin == nil {
		g.engines[0].Run(until)
		return
	}
	g.stopped = false
	limit := until
	if until != Never {
		limit++
	}
	g.workers.Start(g.round)
	for first := g.first(); first < limit && !g.stopped; first = g.first() {
		if interrupted := g.engines[0].interrupted; interrupted != nil && interrupted() {
			g.stopped = true
			break
		}
		g.end = limit
		if apart := g.engines[0].apart; first < limit-min(apart, limit) {
			g.end = first + apart
		}
		g.window()
	}
	g.workers.Stop()
	for i := range g.engines {
		g.begin(i)
	}
	if !g.stopped && until != Never {
		for _, e := range g.engines {
			e.now = max(e.now, until)
		}
	}
}

// first returns when the next event is due.
func (g *Group) first() Time {
	first := Never
	for _, e := range g.engines {
		first = min(first, e.first())
	}
	return first
}

// window processes all events before g.end. Meetings divide it into rounds.
func (g *Group) window() {
	for g.begins = true; ; g.begins = false {
		g.meeting = nil
		g.workers.Round()
		if g.Between != nil {
			g.Between()
		}
		if g.meeting == nil {
			return
		}
		if g.meeting.hold(g.engines[0].now); g.stopped {
			return
		}
	}
}

// round processes the events of a part until the next meeting or the end of the window.
func (g *Group) round(i int) {
	if g.begins {
		g.begin(i)
	}
	if e := g.engines[i]; !e.step(g.end) {
		e.partner.Advance(g.end)
	}
}
