package browser

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
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
	b.awaitOperations()
	var shown struct{ Without, Broken []string }
	b.evaluate(`({
	Without: [...document.querySelectorAll('div[id*="/operation/"]')].filter(d => !/curl -sS -X [A-Z]+ "\$API\//.test(d.textContent)).map(d => d.id),
	Broken: [...document.querySelectorAll('a[href^="#"]')].filter(a => !document.getElementById(decodeURIComponent(a.hash.slice(1)))).map(a => a.hash),
})`, &shown)
	if len(shown.Without) > 0 || len(shown.Broken) > 0 {
		t.Errorf("the explorer: got %+v, want a command for each operation, and no broken link", shown)
	}
	b.width(narrow)
	b.fits("the explorer")
	b.width(wide)
	b.evaluate(`document.querySelectorAll('div[id*="/operation/"]').forEach(d => d.id.endsWith("/createTx") || d.remove())`, nil) // all are alike, and many
	var command string
	b.evaluate(`document.querySelector("`+createTxSection+` pre").innerText`, &command)
	if !strings.Contains(command, `"$API/api/v1/tx"`) || !strings.Contains(command, "$TOKEN") {
		t.Errorf("the command of createTx: got %q, want the path of the API", command)
	}
	if axe := axeCore(t); axe != "" {
		b.accessible("the explorer", axe, "heading-order", "scrollable-region-focusable") // both are Redoc's own; browsers focus what scrolls
	}
	if text := complaint.Load(); text != nil {
		t.Errorf("the browser: got %s, want no error", text)
	}
}

// createTxSection is the part of the explorer that has the operation.
const createTxSection = `[id='tag/transactions/operation/createTx']`

// awaitOperations waits until the explorer shows all operations of the document.
func (b *tab) awaitOperations() {
	b.t.Helper()
	want := strings.Count(string(must(os.ReadFile("../../../functions/openapi.yaml"))(b.t)), "\n      operationId: ")
	within, cancel := context.WithTimeout(b.ctx, stepWithin)
	defer cancel()
	got := 0
	if err := acceptancetest.Wait(within, func() bool {
		b.evaluate(`document.querySelectorAll('div[id*="/operation/"]').length`, &got)
		return got == want
	}); err != nil {
		b.t.Fatalf("the explorer: got %d operations, want the %d of the document; the page has %.300q", got, want, b.text())
	}
}
