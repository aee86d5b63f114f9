package cli

import (
	"slices"

	"roced.io/roced/internal/base/chart"
)

// comparisonChart draws the 99th percentile of the slowdown by size: a group of bars for each range, with intervals.
func comparisonChart(title string, all []*control) []byte {
	sizes, most := sizesOf(all), 1.0
	var names []string
	var at []float64
	for i, r := range sizes {
		names, at = append(names, r.name), append(at, (float64(i)+0.5)/float64(len(sizes)))
		for _, c := range all {
			for _, s := range c.BySize {
				if most = max(most, s.Mean); s.Hi != nil {
					most = max(most, *s.Hi)
				}
			}
		}
	}
	p := chart.New("99 % slowdown by size: "+title, "times", chart.Names(names, at), chart.Log(1, most, nil))
	p.XTitle = "message size; strokes are 95 % intervals over the seeds"
	group := 0.8 * chart.PlotWidth / float64(max(len(sizes), 1))
	for n, c := range all {
		colour := chart.Palette[n%len(chart.Palette)]
		for i, r := range sizes {
			k := slices.IndexFunc(c.BySize, func(s sizeRange) bool { return s.To == r.To })
			if k < 0 {
				continue
			}
			s := c.BySize[k]
			if x := p.Bar(at[i], n, len(all), group, s.Mean, colour); s.Lo != nil {
				p.Interval(x, max(*s.Lo, 1), *s.Hi)
			}
		}
		p.Legend(colour, c.Name)
	}
	return p.SVG()
}
