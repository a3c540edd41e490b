package browser

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
)

// listed is a page of the console with texts that it shows of the seeded deployment.
type listed struct {
	name, path string
	texts      []string
}

func submitterPath(s string) string { return "/console/submitters/" + url.PathEscape(s) }

// pages are all pages that need no open incident.
func (h *deployment) pages() []listed {
	return []listed{
		{"overview", "/console/", []string{"STUCK"}},
		{"attention", "/console/attention", []string{"STUCK"}},
		{"submitters", "/console/submitters", []string{chosen.name, "ACTIVE"}},
		{"submitter", submitterPath(h.ordinary()), []string{h.ordinary(), "ACTIVE"}},
		{"submitter", submitterPath(h.hostile()), []string{chosen.name}},
		{"transaction", "/console/tx/" + h.orders, []string{chosen.request, "CONFIRMED", stack.CallerAccount}},
		{"transaction", "/console/tx/" + h.stuck, []string{"STUCK"}},
		{"search", "/console/search?q=" + url.QueryEscape("no"+planted), []string{"no" + planted}},
		{"transfers", "/console/transfers", []string{"COMMITTED", stack.ETH.Name}},
		{"transfer", "/console/transfers/" + h.transfer, []string{"COMMITTED", "0.5"}},
		{"webhooks", "/console/webhooks", []string{"shop", "503"}},
		{"chains", "/console/chains", []string{fmt.Sprint(h.Chain.ChainID()), "Base fee", "gwei"}},
		{"search", "/console/search?state=FAILED&since=2026-01-01", []string{"Accepted since"}},
		{"search", "/console/search?state=FAILED&since=yesterday", []string{"Accepted since"}},
		{"audit", "/console/audit", []string{chosen.reason, stack.OperatorAccount}},
		{"proposals", "/console/proposals", nil},
		{"conservation", "/console/conservation", nil},
		{"drill", "/console/drill", []string{"foreign-key", "stuck"}},
	}
}

// forms are the paths of acts, without an incident.
func (h *deployment) forms() (paths []string) {
	for _, act := range []string{"suspend", "resume", "edit", "policy", "callers", "signer", "retire"} {
		paths = append(paths, submitterPath(h.hostile())+"/"+act)
	}
	for _, act := range []string{"decide", "cancel", "proceed"} {
		paths = append(paths, "/console/tx/"+h.stuck+"/"+act)
	}
	for _, act := range []string{"test", "pause", "resume", "redeliver"} {
		paths = append(paths, "/console/webhooks/shop/"+act)
	}
	return append(paths, "/console/conservation/check", "/console/transfers/"+h.transfer+"/cancel", "/console/transfers/"+h.transfer+"/acknowledge")
}

// all are the paths of all pages and forms.
func (h *deployment) all() (paths []string) {
	for _, p := range h.pages() {
		paths = append(paths, p.path)
	}
	return append(paths, h.forms()...)
}

// most bounds the calls of the API that one page makes.
const most = 12

// Each page shows the deployment's state, by a bounded number of calls.
func TestPagesShowTheDeployment(t *testing.T) {
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	for _, p := range h.pages() {
		before := h.calls.Load()
		b.open(p.path)
		calls := h.calls.Load() - before
		b.shows(p.name, p.texts...)
		if calls > most {
			t.Errorf("%s: got %d calls of the API, want at most %d", p.path, calls, most)
		}
		t.Logf("%s: %d calls", p.path, calls)
	}
}

// Every text that a caller, a user, an operator, a node or a receiver chose is shown as text. That none ran, or became an
// element, is checked on every page of every test.
func TestPlantedTextsAreShownAsText(t *testing.T) {
	t.Parallel()
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	for _, c := range []struct{ whose, path, text string }{
		{"a caller's requestId", "/console/tx/" + h.orders, chosen.request},
		{"a caller's requestId in a search", "/console/search?q=" + url.QueryEscape(chosen.request), chosen.request},
		{"a searched text", "/console/search?q=" + url.QueryEscape("nothing"+planted), "nothing" + planted},
		{"a handler's refusal", "/console/tx/" + h.refused, chosen.handler},
		{"a payload", "/console/tx/" + h.refused, chosen.byHandler},
		{"a node's refusal", "/console/tx/" + h.stuck, chosen.node},
		{"a submitter's name", "/console/submitters", chosen.name},
		{"a submitter's name on its page", submitterPath(h.hostile()), chosen.name},
		{"a requestId in the lane", submitterPath(h.hostile()), chosen.stuck},
		{"an operator's reason", "/console/audit", chosen.reason},
		{"a receiver's answer", "/console/webhooks", chosen.receiver},
		{"the reason of a pause", "/console/webhooks", chosen.reason},
		{"what needs a person", "/console/attention", chosen.node},
		{"a path", "/console/tx/" + url.PathEscape(planted), ""},
		{"a submitter's path", "/console/submitters/" + url.PathEscape(planted), ""},
	} {
		status := int64(200)
		if c.text == "" {
			b.run("open "+c.path, chromedp.Navigate(b.base+c.path)) // an error page
			b.unharmed(c.whose)
			continue
		}
		b.opens(c.path, status)
		if all := b.text(); missing(all, []string{c.text}) != "" {
			t.Errorf("%s at %s: got\n%s\nwant %q shown", c.whose, c.path, all, c.text)
		}
	}
}

// tabs is how many tabs read pages beside each other.
const tabs = 3

// beside calls test for each of the pages, in several tabs of the operator.
func beside[P any](t *testing.T, h *deployment, all []P, test func(b *tab, p P)) {
	for n := range tabs {
		acceptancetest.Parallel(t, fmt.Sprint("tab ", n), func(t *testing.T) {
			b := h.as(t, stack.OperatorAccount)
			for i := n; i < len(all); i += tabs {
				test(b, all[i])
			}
		})
	}
}

// Each page fits a phone without scrolling to the side, and axe-core finds nothing on it, in light and in dark.
func TestPagesSuitPeople(t *testing.T) {
	t.Parallel()
	h := setup(t)
	axe := axeCore(t)
	out := newTab(t, h.profile(t), h.console)
	out.run("open the way in", chromedp.Navigate(h.console+"/console/sign-in"))
	out.suits(axe)
	beside(t, h, h.all(), func(b *tab, path string) {
		b.open(path)
		b.suits(axe)
	})
}

// suits checks that the shown page is narrow enough for a phone, and accessible.
func (b *tab) suits(axe string) {
	b.t.Helper()
	b.width(narrow)
	b.fits(b.at())
	b.width(wide)
	if axe != "" {
		b.accessible(b.at(), axe)
	}
}

// axeCore is the text of axe-core; "": there is none, and accessibility is not checked.
func axeCore(t *testing.T) string {
	t.Helper()
	path := os.Getenv("AXE_CORE")
	switch {
	case path != "":
		return string(must(os.ReadFile(path))(t))
	case required:
		t.Fatal("AXE_CORE is not set: ./scripts/test fetches axe-core from the npm registry and sets it")
	}
	t.Log("Accessibility: SKIPPED. AXE_CORE is not set to the file of axe-core; ./scripts/test fetches it")
	return ""
}

// accessible checks the shown page in both colour schemes, without some of the rules. The second scheme has the same
// elements: only the rules about colours can find something else in it.
func (b *tab) accessible(what, axe string, without ...string) {
	b.t.Helper()
	b.evaluate(axe+"\n;true", nil)
	rules := make(map[string]map[string]bool)
	for _, rule := range without {
		rules[rule] = map[string]bool{"enabled": false}
	}
	options := map[string]any{"resultTypes": []string{"violations"}, "rules": rules}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		if scheme == "dark" {
			options["runOnly"] = []string{"color-contrast", "link-in-text-block"}
		}
		var found []string
		b.evaluate(`axe.run(document, `+string(must(json.Marshal(options))(b.t))+`).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.html + ": " + n.failureSummary)))`, &found)
		for _, violation := range found {
			b.t.Errorf("%s, %s: got %s; want no violation", what, scheme, violation)
		}
	}
}

// fits checks that the shown page is as narrow as the window.
func (b *tab) fits(what string) {
	b.t.Helper()
	var shown struct {
		Width int64
		Parts []string
	}
	b.evaluate(`({Width: document.documentElement.scrollWidth, Parts: [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML.slice(0, 120)).slice(0, 5)})`, &shown)
	if shown.Width > narrow {
		b.t.Errorf("%s: got a width of %d pixels, want at most %d; too wide: %q", what, shown.Width, narrow, shown.Parts)
	}
}

// Without scripts a page has everything to read, and a link to read it again.
func TestPagesWithoutScripts(t *testing.T) {
	t.Parallel()
	h := setup(t)
	beside(t, h, h.pages(), func(b *tab, p listed) {
		var with, without []string
		for range 5 { // another test can change what is shown between the two
			b.open(p.path)
			with = b.contents()
			b.scripts(false)
			b.open(p.path)
			without = b.contents()
			b.scripts(true)
			if slices.Equal(with, without) {
				break
			}
		}
		if !slices.Equal(with, without) || len(without) == 0 {
			b.t.Errorf("%s: without scripts got %q, want %q", p.path, without, with)
		}
		b.shows(p.name, p.texts...)
	})
}

// contents are the parts of the shown page that do not change with time.
func (b *tab) contents() (all []string) {
	b.t.Helper()
	b.evaluate(`[...document.querySelectorAll("main h1, main h2, main h3, main caption, main th")].map(e => e.textContent.trim().replace(/\s+/g, " ").replace(/\d+/g, "#")).concat([...document.querySelectorAll("main [data-field]")].map(e => e.dataset.field)).sort().filter((e, i, all) => all.indexOf(e) === i)`, &all)
	return all
}

// The first page is small, also the first time.
func TestFirstPageIsSmall(t *testing.T) {
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	call(b, network.ClearBrowserCache, cdp.Empty{})
	b.open("/console/")
	var bytes int64
	b.evaluate(`performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation")).reduce((n, e) => n + e.transferSize, 0)`, &bytes)
	if bytes < 1000 || bytes > 100_000 {
		t.Errorf("the overview: got %d bytes, want at most 100,000", bytes)
	}
	t.Logf("the overview: %d bytes", bytes)
}

// A person with a keyboard alone skips the menu, and reaches every link.
func TestKeyboardReachesThePage(t *testing.T) {
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	b.open("/console/attention")
	b.run("tab", chromedp.KeyEvent("\t"))
	var focused, outline string
	b.evaluate(`document.activeElement.getAttribute("href")`, &focused)
	b.evaluate(`getComputedStyle(document.activeElement).outlineStyle + " " + getComputedStyle(document.activeElement).outlineWidth`, &outline)
	if focused != "#main" || outline == "none 0px" {
		t.Errorf("after the first tab: got the focus on %q with the outline %s, want #main, visible", focused, outline)
	}
	b.run("enter", chromedp.KeyEvent("\r"))
	b.run("tab", chromedp.KeyEvent("\t"))
	var inside bool
	b.evaluate(`document.querySelector("main").contains(document.activeElement)`, &inside)
	if !inside {
		t.Error("after the skip: got the focus outside of the page's content, want its first link")
	}
}
