package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/emulator/stack/steps"
)

// point is a point of a plot, in the units of the axes.
type point struct{ x, y float64 }

// writePoints writes the points of each plot with enough measurements into the folder, unless it is
// "": NAME.tsv for scripts/plots, one point a line.
func writePoints(folder string, all []measurement) (err error) {
	defer steps.Return(&err)
	if folder == "" {
		return nil
	}
	steps.OK(os.MkdirAll(folder, 0o755))
	for name, points := range map[string][]point{
		"throughput": byShape(all, confirmedPerS, func(s scenario) (float64, bool) {
			return float64(s.shape.window), s.name == burst1 || strings.HasPrefix(s.name, "window-")
		}),
		"flat": byShape(all, cpuPer1000, func(s scenario) (float64, bool) {
			return float64(s.shape.finished), s.name == burst1 || s.shape.finished > 0
		}),
		"submitters": byShape(all, cpuPer1000, func(s scenario) (float64, bool) {
			return float64(s.shape.submitters), slices.Contains([]string{burst1, burst10, subs100, subs1000}, s.name)
		}),
		"latency": histogram(all),
	} {
		if len(points) < 2 {
			continue
		}
		var text strings.Builder
		for _, p := range points {
			fmt.Fprintf(&text, "%v\t%v\n", p.x, p.y)
		}
		steps.OK(os.WriteFile(filepath.Join(folder, name+".tsv"), []byte(text.String()), 0o644))
	}
	return nil
}

// byShape returns the medians of the scenarios of one plot, by a value of their shape.
func byShape(all []measurement, key string, place func(scenario) (x float64, ok bool)) (points []point) {
	for _, m := range all {
		if x, ok := place(m.scenario); ok {
			points = append(points, point{x, m.median()[key]})
		}
	}
	slices.SortFunc(points, func(a, b point) int { return int(a.x - b.x) })
	return points
}

// binWidth is the width of the histogram's bins, in seconds.
const binWidth = 0.05

func histogram(all []measurement) (bins []point) {
	for _, m := range all {
		if m.scenario.name != steady || len(m.latencies()) == 0 {
			continue
		}
		values := m.latencies()
		bins = make([]point, int(slices.Max(values)/binWidth)+1)
		for i := range bins {
			bins[i].x = float64(i) * binWidth
		}
		for _, v := range values {
			bins[int(v/binWidth)].y++
		}
	}
	return bins
}
