package browser

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"
)

// The explorer at the control address shows each operation of the API with its command. It asks no other host, and the
// browser has nothing to complain of.
func TestExplorerShowsTheAPI(t *testing.T) {
	t.Parallel()
	h := setup(t)
	b := newTab(t, h.profile(t), h.control.URL())
	var complaint atomic.Value
	check(t, chromedp.Listen(b.ctx, func(event any) {
		if e, ok := event.(*log.EventEntryAdded); ok && e.Entry.Level == log.EntryLevelError {
			complaint.Store(e.Entry.Text + " " + e.Entry.URL)
		}
	}))
	b.open("/explorer")
	var shown struct {
		Operations int
		Without    []string
		Broken     []string
	}
	b.evaluate(`(() => {
	const operations = [...document.querySelectorAll("main details")].filter(d => d.querySelector("summary b"));
	return {
		Operations: operations.length,
		Without: operations.filter(d => !d.querySelector("pre").textContent.startsWith("curl ")).map(d => d.id),
		Broken: [...document.querySelectorAll('a[href^="#"]')].filter(a => !document.getElementById(a.hash.slice(1))).map(a => a.hash),
	};
})()`, &shown)
	if shown.Operations < 30 || len(shown.Without) > 0 || len(shown.Broken) > 0 {
		t.Errorf("the explorer: got %+v, want all operations, each with its command, and no broken link", shown)
	}
	b.width(narrow)
	b.fits("the explorer")
	b.width(wide)
	b.evaluate(`document.querySelectorAll("details:not(#createTx)").forEach(d => d.remove())`, nil) // all are alike, and many
	b.run("open an operation", chromedp.Click(chromedp.CSS("#createTx > summary"), chromedp.NodeVisible))
	var command string
	b.run("the command is visible", chromedp.WaitVisible(chromedp.CSS("#createTx > pre")))
	b.evaluate(`document.querySelector("#createTx > pre").textContent`, &command)
	if !strings.Contains(command, `"$API/api/v1/tx"`) {
		t.Errorf("the command of createTx: got %q, want the path of the API", command)
	}
	b.suits(axeCore(t))
	if text := complaint.Load(); text != nil {
		t.Errorf("the browser: got %s, want no error", text)
	}
}
