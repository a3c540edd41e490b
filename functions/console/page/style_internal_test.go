package page

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// paletteOf reads the colours that a style sheet's text declares, the later ones over the earlier.
func paletteOf(css string) map[string]float64 {
	luminances := make(map[string]float64)
	for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(css, -1) {
		luminances[m[1]] = luminance(m[2])
	}
	return luminances
}

// luminance is the relative luminance of WCAG 2.2 of a colour in hex.
func luminance(hex string) float64 {
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			panic(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

func contrast(a, b float64) float64 { return (max(a, b) + 0.05) / (min(a, b) + 0.05) }

func TestPaletteHasContrast(t *testing.T) {
	css, _ := staticFiles.ReadFile("static/style.css")
	light, dark, found := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	if !found {
		t.Fatal("the style sheet has no dark palette")
	}
	dark, _, _ = strings.Cut(dark, "\n* {")
	type pair struct {
		front, back string
		least       float64
	}
	pairs := []pair{{"focus", "bg", 3}, {"focus", "raised", 3}, {"muted", "bg", 4.5}, {"muted", "raised", 4.5}, {"link", "bg", 4.5}, {"link", "raised", 4.5},
		{"text", "bg", 7}, {"text", "raised", 7}, {"text", "bad-soft", 4.5}, {"text", "warn-soft", 4.5}, {"text", "ok-soft", 4.5}, {"text", "open-soft", 4.5},
		{"text", "idle-soft", 4.5}, {"on", "link", 4.5}, {"link", "bad-soft", 4.5}, {"link", "warn-soft", 4.5}, {"link", "ok-soft", 4.5}}
	for _, tone := range []string{"ok", "open", "idle", "warn", "bad", "ended"} {
		pairs = append(pairs, pair{tone, tone + "-soft", 4.5}, pair{"on", tone, 4.5}, pair{tone, "bg", 4.5})
	}
	for scheme, text := range map[string]string{"light": light, "dark": dark} {
		palette := paletteOf(text)
		for _, p := range pairs {
			front, ok := palette[p.front]
			back, also := palette[p.back]
			if got := contrast(front, back); !ok || !also || got < p.least {
				t.Errorf("%s: %s on %s has the contrast %.2f, want %.1f or more", scheme, p.front, p.back, got, p.least)
			}
		}
	}
}
