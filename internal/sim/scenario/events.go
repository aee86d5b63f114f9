package scenario

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/fabric"
)

// actions are the values of Event.Do.
var actions = []string{"fail", "restore", "degrade", "lose", "corrupt", "jitter", "mark", "fail-some"}

func (f *File) events(c *sim.Config) error {
	names := c.Graph.Links()
	for i, e := range f.Events {
		key := fmt.Sprintf("events.%d", i)
		links := matching(names, e.Link)
		if e.Index != nil {
			links = numbered(links, *e.Index)
		}
		switch {
		case !slices.Contains(actions, e.Do):
			return f.At(key+".do", "%v", suggest.OneOf(e.Do, actions))
		case e.Do == "fail-some":
			if e.Percent <= 0 || e.Percent > 100 || e.Every == 0 || e.Until < e.At {
				return f.At(key, "fail-some needs percent, above 0 and at most 100, every, and until, not before at")
			}
			n := float64(e.Until-e.At)/float64(e.Every) + 2
			down := float64(len(c.Graph.Cables)) * e.Percent / 100
			routing := float64(c.Graph.Hosts) * float64(c.Graph.Hosts+len(c.Graph.Switches)+3*len(c.Graph.Cables)) / 20
			if err := f.charge(key, n, changeBytes+8*down, n*routing, "%.3g changes of %.0f cables", n, down); err != nil {
				return err
			}
			c.Events = append(c.Events, e.failSome(c)...)
			continue
		case len(links) == 0 && e.Index != nil && len(matching(names, e.Link)) > 0:
			return f.At(key+".index", "link %q has no cable of index %d", e.Link, *e.Index)
		case len(links) == 0:
			return f.noLink(key, e.Link, names)
		case e.Do == "degrade" && e.Rate == 0:
			return f.At(key+".rate", "degrade requires a rate")
		case e.Probability < 0 || e.Probability > 1:
			return f.At(key+".probability", "%g: must be from 0 to 1", e.Probability)
		case e.Do == "mark":
			if err := f.marking(key, &fabric.ECNConfig{Min: e.Min, Max: e.Max, Probability: e.Probability}, 0); err != nil {
				return err
			}
		}
		for _, name := range links {
			one := e
			one.Link = name
			c.Events = append(c.Events, sim.Event{At: e.At, Do: one.apply})
		}
	}
	return f.faults(c)
}

// noLink returns an error about the name of a link.
func (f *File) noLink(key, name string, links []string) error {
	ends := fabric.Ends(name)
	if same := slices.DeleteFunc(slices.Clone(links), func(l string) bool { return fabric.Ends(l) != ends }); len(same) > 0 {
		return f.At(key+".link", "no link %q; between these nodes are %s", name, strings.Join(same, ", "))
	}
	return f.At(key+".link", "no link %q; links have names such as %q", name, links[0])
}

// numbered returns those of parallel links that have an index, from 0.
func numbered(links []string, index int) []string {
	before := map[string]int{}
	return slices.DeleteFunc(links, func(l string) bool {
		before[fabric.Ends(l)]++
		return before[fabric.Ends(l)] != index+1
	})
}

// matching returns the links that match a name, in which * is any text. A name without a number matches all parallel links.
func matching(links []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(links), func(l string) bool {
		ok, err := path.Match(name, l)
		all, _ := path.Match(name, fabric.Ends(l))
		return !ok && !all || err != nil
	})
}

func (f *File) faults(c *sim.Config) error {
	c.Faults = map[string][]string{}
	names := c.Graph.Links()
	for i, x := range f.Faults {
		if key := fmt.Sprintf("faults.%d", i); !slices.ContainsFunc(names, func(l string) bool { return l == x.Link || fabric.Ends(l) == x.Link }) {
			return f.noLink(key, x.Link, names)
		}
		for k, rule := range x.Rules {
			if err := sim.CheckFault(rule); err != nil {
				return f.At(fmt.Sprintf("faults.%d.rules.%d", i, k), "%v", err)
			}
		}
		c.Faults[x.Link] = append(c.Faults[x.Link], x.Rules...)
	}
	return nil
}

// apply applies e to a network. Routes change immediately.
func (e Event) apply(n *fabric.Network) {
	links, err := n.Named(e.Link)
	if err != nil {
		return // the name is valid
	}
	l := links[0]
	switch e.Do {
	case "fail", "restore":
		l.Fail(e.Do == "fail")
		n.Reroute()
	case "degrade":
		l.Degrade(uint64(e.Rate))
	case "lose":
		l.Lose(e.Probability)
	case "corrupt":
		l.Corrupt(e.Probability)
	case "mark":
		l.Mark(fabric.ECNConfig{Min: e.Min, Max: e.Max, Probability: e.Probability})
	case "jitter":
		l.Jitter(e.Most)
	}
}

// failSome takes a part of the cables between switches down, and after each interval a different part.
func (e Event) failSome(c *sim.Config) (events []sim.Event) {
	var core []int // first links of cables
	for i, cable := range c.Graph.Cables {
		if int(cable.A) >= c.Graph.Hosts && int(cable.B) >= c.Graph.Hosts {
			core = append(core, 2*i)
		}
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0x6661696c))
	var down []int
	for at := e.At; ; at += e.Every {
		before := down
		down = nil
		if last := at >= e.Until; !last {
			for _, i := range rng.Perm(len(core))[:int(float64(len(core))*e.Percent/100+0.5)] {
				down = append(down, core[i])
			}
		}
		failed := down
		events = append(events, sim.Event{At: at, Do: func(n *fabric.Network) {
			for _, i := range before {
				n.Links()[i].Fail(false)
			}
			for _, i := range failed {
				n.Links()[i].Fail(true)
			}
			n.Reroute()
		}})
		if down == nil {
			return events
		}
	}
}
