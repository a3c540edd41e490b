package browser

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

//go:embed testdata/still.js
var stillScript string

// clockOfPictures is when each picture is drawn, as it shows.
var clockOfPictures = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// album is what the pictures of one run show.
type album struct {
	known []stableID
	ports map[string]string // by port: node, or the one that a picture shows
	text  []byte            // of all pages
}

// stableID is an id of the run, and the one that pictures have in its place.
type stableID struct {
	Kind string `json:"kind"`
	Was  string `json:"was"`
	Is   string `json:"is"`
}

// albumOf returns an empty album of pages of the deployment.
func albumOf(t *testing.T, h *deployment) *album {
	t.Helper()
	a := &album{known: []stableID{}, ports: map[string]string{must(url.Parse(h.shop.URL))(t).Port(): "9000"}}
	for _, node := range h.Nodes {
		a.ports[must(url.Parse(node.URL()))(t).Port()] = "node"
	}
	return a
}

// still replaces in the shown page what differs from run to run, and keeps the page's text.
func (a *album) still(b *tab, name string) {
	b.t.Helper()
	var shown struct {
		Text  string     `json:"text"`
		Known []stableID `json:"known"`
	}
	b.evaluate(fmt.Sprintf("%s(%s, %d, %s)", stillScript, encoded(b.t, a.known), clockOfPictures.UnixMilli(), encoded(b.t, a.ports)), &shown)
	a.known = shown.Known
	a.text = fmt.Appendf(a.text, "== %s\n%s\n\n", name, shown.Text)
}

// write writes the text of all pages beside the pictures. ./scripts/screenshots compares it with that of the last run.
func (a *album) write(t *testing.T, folder string) {
	t.Helper()
	check(t, os.WriteFile(filepath.Join(folder, "pages.txt"), a.text, 0o644))
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	return string(must(json.Marshal(v))(t))
}
