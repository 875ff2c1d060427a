package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The chart: both axes logarithmic, time to claim 100 rows against how many are
// pending.
const (
	chartWidth, chartHeight          = 720, 440
	plotLeft, plotTop                = 70, 50
	plotWidth, plotHeight            = 470, 320
	chartTitle                       = "Claiming 100 rows"
	chartX, chartY                   = "rows pending", "milliseconds"
	chartInk, chartGrid, chartOurs   = "#333333", "#dddddd", "#c0392b"
	chartFont                        = "font-family='sans-serif' font-size='13'"
	labelHeight, labelGap, pointSize = 16, 12, 4
)

// others has a colour for each system but ours.
var others = map[system]string{
	batched:    "#2c7fb8",
	river:      "#7b6ba8",
	backlite:   "#c98b2b",
	handrolled: "#3f8f5f",
	limit:      "#777777",
}

// line is a system's figures.
type line struct {
	heading, colour string
	ours            bool
	points          [][2]float64 // rows, milliseconds
}

// chart draws what was measured of claims.
func (r results) chart() ([]byte, error) {
	var lines []line
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range systems {
		colour, drawn := others[s.system]
		if s.system == ours {
			colour, drawn = chartOurs, true
		}
		l := line{heading: s.heading, colour: colour, ours: s.system == ours}
		for _, backlog := range backlogs {
			if ms, ok := r.of(fmt.Sprintf(claimOf, backlog.text), s.system, "claim ms"); ok && drawn {
				l.points = append(l.points, [2]float64{float64(backlog.rows), ms})
				low, high = min(low, ms), max(high, ms)
			}
		}
		if len(l.points) > 0 {
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return nil, errors.New("the chart needs the measurements of claims")
	}
	return draw(lines, math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))), nil
}

// draw draws lines between two powers of ten.
func draw(lines []line, low, high float64) []byte {
	first, last := math.Log10(float64(backlogs[0].rows)), math.Log10(float64(backlogs[len(backlogs)-1].rows))
	high = max(high, low+1)
	x := func(rows float64) float64 { return plotLeft + plotWidth*(math.Log10(rows)-first)/(last-first) }
	y := func(ms float64) float64 { return plotTop + plotHeight*(high-math.Log10(ms))/(high-low) }

	var svg strings.Builder
	fmt.Fprintf(&svg, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%[1]d' height='%[2]d' %s fill='%s'>\n",
		chartWidth, chartHeight, chartFont, chartInk)
	fmt.Fprintf(&svg, "<rect width='%d' height='%d' fill='white'/>\n", chartWidth, chartHeight)
	fmt.Fprintf(&svg, "<text x='%d' y='28' font-size='16' font-weight='bold'>%s</text>\n", plotLeft, chartTitle)
	for power := low; power <= high; power++ {
		at := y(math.Pow(10, power))
		fmt.Fprintf(&svg, "<line x1='%d' x2='%d' y1='%.1f' y2='%.1[3]f' stroke='%s'/>\n", plotLeft, plotLeft+plotWidth, at, chartGrid)
		fmt.Fprintf(&svg, "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n", plotLeft-8, at+4, math.Pow(10, power))
	}
	for _, backlog := range backlogs {
		fmt.Fprintf(&svg, "<text x='%.1f' y='%d' text-anchor='middle'>%s</text>\n",
			x(float64(backlog.rows)), plotTop+plotHeight+22, backlog.text)
	}
	fmt.Fprintf(&svg, "<text x='%d' y='%d' text-anchor='middle'>%s</text>\n",
		plotLeft+plotWidth/2, plotTop+plotHeight+46, chartX)
	fmt.Fprintf(&svg, "<text transform='translate(20 %d) rotate(-90)' text-anchor='middle'>%s</text>\n",
		plotTop+plotHeight/2, chartY)

	labels := make([]float64, len(lines))
	for i, l := range lines {
		var path strings.Builder
		for _, point := range l.points {
			fmt.Fprintf(&path, "%.1f,%.1f ", x(point[0]), y(point[1]))
		}
		width := 1.5
		if l.ours {
			width = 3
		}
		fmt.Fprintf(&svg, "<polyline points='%s' fill='none' stroke='%s' stroke-width='%g'/>\n",
			strings.TrimSpace(path.String()), l.colour, width)
		for _, point := range l.points {
			fmt.Fprintf(&svg, "<circle cx='%.1f' cy='%.1f' r='%d' fill='%s'/>\n", x(point[0]), y(point[1]), pointSize, l.colour)
		}
		labels[i] = y(l.points[len(l.points)-1][1])
	}
	spread(labels)
	for i, l := range lines {
		end := l.points[len(l.points)-1]
		fmt.Fprintf(&svg, "<text x='%.1f' y='%.1f' fill='%s'>%s</text>\n", x(end[0])+labelGap, labels[i]+4, l.colour, l.heading)
	}
	svg.WriteString("</svg>\n")
	return []byte(svg.String())
}

// spread moves labels down until none covers another.
func spread(labels []float64) {
	downwards := make([]int, len(labels))
	for i := range downwards {
		downwards[i] = i
	}
	slices.SortStableFunc(downwards, func(i, j int) int { return cmp.Compare(labels[i], labels[j]) })
	for n, i := range downwards[1:] {
		labels[i] = max(labels[i], labels[downwards[n]]+labelHeight)
	}
}
