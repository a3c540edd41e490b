package main

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
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

const colour = "#2a6fb0"

// picture is 640 by 360 pixels; the axes cross at 72, 304 and end at 600 and 40.
var picture = template.Must(template.New("").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" font-family="sans-serif" font-size="12">
<rect width="640" height="360" fill="white"/>
<text x="320.0" y="22.0" text-anchor="middle" font-size="14">{{.Title}}</text>
<text x="336.0" y="346.0" text-anchor="middle">{{.XName}}</text>
<text x="0.0" y="0.0" text-anchor="middle" transform="translate(16 172) rotate(-90)">{{.YName}}</text>
{{range .Rows}}<path d="M72.0 {{printf "%.1f" .Y}}H600" stroke="#ddd"/>
<text x="66.0" y="{{printf "%.1f" .Text}}" text-anchor="end">{{.Label}}</text>
{{end}}{{range .Columns}}<path d="M{{printf "%.1f" .X}} 304.0v5" stroke="black"/>
<text x="{{printf "%.1f" .X}}" y="322.0" text-anchor="middle">{{.Label}}</text>
{{end}}<path d="M72 40V304H600" fill="none" stroke="black"/>
{{if .Bars}}{{range .Points}}<rect x="{{printf "%.1f" .X}}" y="{{printf "%.1f" .Y}}" width="{{printf "%.1f" .Width}}" height="{{printf "%.1f" .Height}}" fill="{{$.Colour}}"/>
{{end}}{{else}}<path d="{{range $i, $p := .Points}}{{if $i}}L{{else}}M{{end}}{{printf "%.1f %.1f" .X .Y}}{{end}}" fill="none" stroke="{{.Colour}}" stroke-width="2"/>
{{range .Points}}<circle cx="{{printf "%.1f" .X}}" cy="{{printf "%.1f" .Y}}" r="3.5" fill="{{$.Colour}}"/>
{{end}}{{end}}</svg>
`))

// drawn is a place in the picture.
type drawn struct {
	X, Y, Width, Height, Text float64
	Label                     string
}

// svg returns the plot as SVG.
func (p plot) svg() string {
	first, last := p.points[0].x, p.points[len(p.points)-1].x+p.bars
	most := slices.MaxFunc(p.points, func(a, b point) int { return cmp.Compare(a.y, b.y) }).y
	top := max(tick(most), math.Ceil(most/tick(most))*tick(most))
	toX := func(x float64) float64 { return 72 + 528*x/last }
	if p.log {
		toX = func(x float64) float64 { return 72 + 528*math.Log(x/first)/math.Log(last/first) }
	}
	toY := func(y float64) float64 { return 304 - 264*y/top }
	var rows, columns, points []drawn
	for y := 0.0; y <= top*1.0001; y += tick(top) {
		rows = append(rows, drawn{Y: toY(y), Text: toY(y) + 4, Label: strconv.FormatFloat(y, 'g', 4, 64)})
	}
	column := func(x float64) {
		columns = append(columns, drawn{X: toX(x), Label: strconv.FormatFloat(math.Round(x*1e6)/1e6, 'f', -1, 64)})
	}
	for i := 0.0; !p.log && i*tick(last) <= last*1.0001; i++ {
		column(i * tick(last))
	}
	for _, at := range p.points {
		points = append(points, drawn{X: toX(at.x), Y: toY(at.y), Width: toX(at.x+p.bars) - toX(at.x) - 1, Height: 304 - toY(at.y)})
		if p.log {
			column(at.x)
		}
	}
	var b strings.Builder
	_ = picture.Execute(&b, map[string]any{ // a builder takes everything
		"Title": p.title, "XName": p.x, "YName": p.y, "Bars": p.bars > 0, "Colour": colour, "Rows": rows, "Columns": columns, "Points": points,
	})
	return b.String()
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
