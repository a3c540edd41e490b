package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// point is a point of a plot, in the units of the axes.
type point struct{ x, y float64 }

// plot is a picture with two axes. Both begin at 0, unless x is logarithmic.
type plot struct {
	title, x, y string
	points      []point
	bars        float64 // width of a bar in units of x; 0: a line with dots
	log         bool    // x is logarithmic, and each point is labelled
}

// The picture's size and margins, in pixels.
const (
	width, height           = 640, 360
	left, right, top, under = 72, 40, 40, 56
)

// drawPlots draws the plots with enough measurements into the folder, unless it is "".
func drawPlots(folder string, all []measurement) error {
	if folder == "" {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, p := range plots(all) {
		if len(p.points) < 2 {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, name+".svg"), []byte(p.svg()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// plots returns all plots by name; some can be without points.
func plots(all []measurement) map[string]plot {
	return map[string]plot{
		"throughput": {title: "Throughput of one submitter, 1 s blocks, confirmations 0", x: "window", y: "confirmed per second",
			log: true, points: byShape(all, confirmedPerS, func(s shape) (float64, bool) { return float64(s.window), s.finished == 0 && s.signing == 0 })},
		"flat": {title: "CPU of functions and Postgres, creates included", x: "finished rows", y: "seconds per 1,000 transactions",
			points: byShape(all, cpuPer1000, func(s shape) (float64, bool) { return float64(s.finished), s.window == loadedWindow })},
		"latency": {title: "Accept to CONFIRMED at 30 transactions a second, 10 submitters", x: "seconds", y: "transactions",
			bars: binWidth, points: histogram(all)},
	}
}

// byShape returns the medians of the scenarios with one submitter, by a value of their shape.
func byShape(all []measurement, key string, place func(shape) (x float64, ok bool)) (points []point) {
	for _, m := range all {
		if x, ok := place(m.scenario.shape); ok && m.scenario.shape.submitters == 1 && m.scenario.shape.confirmations == 0 {
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

// svg returns the plot as SVG.
func (p plot) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	text(&b, width/2, 22, "middle", ` font-size="14"`, p.title)
	text(&b, (left+width-right)/2, height-14, "middle", "", p.x)
	text(&b, 0, 0, "middle", fmt.Sprintf(` transform="translate(16 %d) rotate(-90)"`, (top+height-under)/2), p.y)
	p.axes(&b)
	if p.bars > 0 {
		p.drawBars(&b)
	} else {
		p.drawLine(&b)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func text(b *strings.Builder, x, y float64, anchor, more, words string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(words))
}

// span returns the ends of the axes.
func (p plot) span() (x0, x1, y1 float64) {
	x0, x1 = p.points[0].x, p.points[len(p.points)-1].x+p.bars
	if !p.log {
		x0 = 0
	}
	for _, at := range p.points {
		y1 = max(y1, at.y)
	}
	step := tick(y1)
	return x0, x1, max(step, math.Ceil(y1/step)*step)
}

// place returns a point's position in the picture.
func (p plot) place(at point) (x, y float64) {
	x0, x1, y1 := p.span()
	part := (at.x - x0) / (x1 - x0)
	if p.log {
		part = math.Log(at.x/x0) / math.Log(x1/x0)
	}
	return left + part*(width-left-right), height - under - at.y/y1*(height-top-under)
}

// tick returns a round step that divides the range up to v into three to eight parts.
func tick(v float64) float64 {
	if v <= 0 {
		return 1
	}
	base := math.Pow(10, math.Floor(math.Log10(v)))
	switch {
	case v/base >= 5:
		return base
	case v/base >= 2.5:
		return base / 2
	}
	return base / 4
}

func (p plot) axes(b *strings.Builder) {
	x0, x1, y1 := p.span()
	for y := 0.0; y <= y1*1.0001; y += tick(y1) {
		px, py := p.place(point{x0, y})
		fmt.Fprintf(b, `<path d="M%.1f %.1fH%d" stroke="#ddd"/>`+"\n", px, py, width-right)
		text(b, px-6, py+4, "end", "", strconv.FormatFloat(y, 'g', 4, 64))
	}
	for _, x := range p.marks(x0, x1) {
		px, py := p.place(point{x, 0})
		fmt.Fprintf(b, `<path d="M%.1f %.1fv5" stroke="black"/>`+"\n", px, py)
		text(b, px, py+18, "middle", "", strconv.FormatFloat(x, 'f', -1, 64))
	}
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" stroke="black"/>`+"\n", left, top, height-under, width-right)
}

// marks returns the labelled values of the x axis.
func (p plot) marks(x0, x1 float64) (at []float64) {
	if p.log {
		for _, one := range p.points {
			at = append(at, one.x)
		}
		return at
	}
	step := tick(x1)
	for i := 0.0; x0+i*step <= x1*1.0001; i++ {
		at = append(at, math.Round((x0+i*step)*1e6)/1e6)
	}
	return at
}

const colour = "#2a6fb0"

func (p plot) drawBars(b *strings.Builder) {
	for _, at := range p.points {
		x, y := p.place(at)
		end, ground := p.place(point{at.x + p.bars, 0})
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, end-x-1, ground-y, colour)
	}
}

func (p plot) drawLine(b *strings.Builder) {
	var way, dots strings.Builder
	for i, at := range p.points {
		x, y := p.place(at)
		fmt.Fprintf(&way, "%c%.1f %.1f", "ML"[min(i, 1)], x, y)
		fmt.Fprintf(&dots, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x, y, colour)
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n%s", way.String(), colour, dots.String())
}
