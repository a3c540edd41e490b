package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// required makes a missing browser an error: ./scripts/test --require-browser sets it.
var required = os.Getenv("BROWSER_REQUIRED") == "true"

// chromium is the path of the browser; "" if there is none.
func chromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// needBrowser skips t without a browser, or fails it if one is required. It counts t if it passes.
func needBrowser(t *testing.T) {
	t.Helper()
	if chromium() != "" {
		t.Cleanup(func() {
			if !t.Failed() && !t.Skipped() {
				passed.Add(1)
			}
		})
		return
	}
	const reason = "Chromium is not installed (Debian: apt-get install chromium)"
	if required {
		t.Fatal(reason)
	}
	t.Skip("SKIPPED: " + reason)
}

// startChromium starts a browser with a new profile. It asks no host but those of the pages.
func startChromium(folder string) (ctx context.Context, end func(), err error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium()), chromedp.UserDataDir(folder), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.WindowSize(wide, 800))
	allocated, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocated)
	end = func() { cancel(); free() }
	if err := chromedp.Do(ctx); err != nil {
		end()
		return nil, nil, fmt.Errorf("start %s: %w", chromium(), err)
	}
	return ctx, end, nil
}

const (
	stepWithin = 90 * time.Second // bounds one step of a test in the browser, also on a busy machine
	wide       = 1280             // the window's width, in CSS pixels
	narrow     = 360              // that of a small phone
)

// tab is a page in the browser. Whatever happens in it, no script of a text may run, nothing may break the page's
// policy, and no other host may be asked.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string // of the console's paths
	own  string // the console's host

	album *album // of the pictures that it draws; nil: it draws none

	mu    sync.Mutex
	wrong []string
}

// newTab opens a tab of the person until the end of t.
func newTab(t *testing.T, person context.Context, base string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(person)
	b := &tab{t: t, ctx: ctx, base: base, own: must(url.Parse(base))(t).Host}
	check(t, chromedp.Do(ctx), "open a tab") // by this context, since the tab ends with the first one
	b.watch()
	t.Cleanup(func() {
		b.sound()
		cancel()
	})
	return b
}

// watch notes what no page may do. It sees an event before the answer to a command that the browser read later.
func (b *tab) watch() {
	check(b.t, chromedp.Listen(b.ctx, func(event any) {
		if text := b.wrongIn(event); text != "" {
			b.note(text)
		}
	}))
}

// wrongIn is the fault that an event of the browser shows; "": none.
func (b *tab) wrongIn(event any) string {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		return "a script failed: " + e.ExceptionDetails.Text
	case *log.EventEntryAdded:
		if e.Entry.Source == log.EntrySourceSecurity || strings.Contains(e.Entry.Text, "Content Security Policy") {
			return e.Entry.Text
		}
	case *page.EventJavascriptDialogOpening:
		return "a dialog: " + e.Message
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil && strings.HasPrefix(u.Scheme, "http") && u.Host != b.own {
			return "a request to " + u.Host
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 && e.Type != network.ResourceTypeDocument {
			return fmt.Sprintf("%s: %d", e.Response.URL, e.Response.Status)
		}
	}
	return ""
}

func (b *tab) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = append(b.wrong, text)
}

// sound reports what the tab's pages did that they must not do.
func (b *tab) sound() {
	b.t.Helper()
	_, _ = chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.readyState`)) // the events before its answer have been seen
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, wrong := range b.wrong {
		b.t.Errorf("in the browser: got %s; want nothing like it", wrong)
	}
	b.wrong = nil
}

// action is a step without a value.
type action = chromedp.Action[chromedp.Void]

// run carries out one step.
func (b *tab) run(what string, actions ...action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepWithin)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v\nat %s", what, err, b.where())
	}
}

// call makes one call of the browser's protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepWithin)
	defer cancel()
	return must(chromedp.Call(ctx, command, params))(b.t)
}

// where is the shown page's address and text, for a test that fails.
func (b *tab) where() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.querySelector("main").innerText.slice(0, 2000)`))
	if err != nil {
		return err.Error()
	}
	return text
}

// answered carries out a step that leads to a page, and checks its status.
func (b *tab) answered(what string, status int64, steps ...action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepWithin)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, steps...)
	if err != nil {
		b.t.Fatalf("%s: %v\nat %s", what, err, b.where())
	}
	if statusOf(response) != status {
		b.t.Fatalf("%s: got %d, want the status %d\nat %s", what, statusOf(response), status, b.where())
	}
	b.unharmed(what)
}

// statusOf is the status of an answer; 0: there was none.
func statusOf(response *network.Response) int64 {
	if response == nil {
		return 0
	}
	return response.Status
}

// open opens a path of the console, whose answer is 200.
func (b *tab) open(path string) {
	b.t.Helper()
	b.opens(path, 200)
}

func (b *tab) opens(path string, status int64) {
	b.t.Helper()
	b.answered("open "+path, status, chromedp.Navigate(b.base+path))
}

// press clicks the link or button with the text on the page, and waits for the next page. Its status is 200.
func (b *tab) press(text string) {
	b.t.Helper()
	b.presses(text, 200)
}

func (b *tab) presses(text string, status int64) {
	b.t.Helper()
	b.answered("press "+text, status, chromedp.Click(fmt.Sprintf(`//main//*[self::a or self::button][normalize-space(.)=%q]`, text), chromedp.NodeVisible))
}

// fill types the value into the field with the name.
func (b *tab) fill(name, value string) {
	b.t.Helper()
	field := chromedp.CSS(fmt.Sprintf(`main [name=%q]`, name))
	b.evaluate(fmt.Sprintf(`document.querySelector('main [name=%q]').value = ""`, name), nil)
	b.run("fill in "+name, chromedp.SendKeys(field, value))
}

// choose checks the box or the radio button with the name and value.
func (b *tab) choose(name, value string) {
	b.t.Helper()
	b.run("choose "+name+"="+value, chromedp.Click(chromedp.CSS(fmt.Sprintf(`main input[name=%q][value=%q]`, name, value))))
}

// evaluate evaluates an expression in the page, and reads its value, unless into is nil.
func (b *tab) evaluate(expression string, into any) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepWithin)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](expression, chromedp.EvalAwaitPromise))
	if err == nil && into != nil {
		err = json.Unmarshal(value, into)
	}
	if err != nil {
		b.t.Fatalf("evaluate %.200s: %v\nat %s", expression, err, b.where())
	}
}

// text is what the page has for a person: its text, its titles, and the values in its fields.
func (b *tab) text() (text string) {
	b.t.Helper()
	b.evaluate(`(() => {
	const main = document.querySelector("main"), all = [main.textContent.replace(/\s+/g, " ")];
	main.querySelectorAll("[title], [aria-label], input:not([type=hidden])").forEach(e => all.push(e.title, e.ariaLabel, e.value));
	return all.filter(Boolean).join("\n");
})()`, &text)
	return text
}

// value is the value in the form's field.
func (b *tab) value(name string) (value string) {
	b.t.Helper()
	b.evaluate(fmt.Sprintf(`document.querySelector('main [name=%q]').value`, name), &value)
	return value
}

// label is the text to type that the label of the field shows.
func (b *tab) label(name string) (text string) {
	b.t.Helper()
	b.evaluate(fmt.Sprintf(`document.querySelector('main label[for=%q] code').textContent`, name), &text)
	return text
}

// find searches for the text in the field above each page.
func (b *tab) find(text string) {
	b.t.Helper()
	field := chromedp.CSS(`header input[name=q]`)
	b.run("type "+text, chromedp.SendKeys(field, text))
	b.answered("search", 200, chromedp.SendKeys(field, "\r"))
}

// at is the path of the shown page.
func (b *tab) at() (path string) {
	b.t.Helper()
	b.evaluate(`location.pathname + location.search`, &path)
	return path
}

// shows checks that the page has the name and the texts.
func (b *tab) shows(name string, texts ...string) {
	b.t.Helper()
	var is string
	b.evaluate(`document.querySelector("main").dataset.page || ""`, &is)
	text := b.text()
	if is != name {
		b.t.Fatalf("the page: got %q, want %q\n%s", is, name, text)
	}
	for _, want := range texts {
		if !strings.Contains(text, want) {
			b.t.Errorf("the page %s at %s: got\n%s\nwant %q on it", name, b.at(), text, want)
		}
	}
}

// until opens the path again until the page has the texts, less often as time goes on.
func (b *tab) until(path string, texts ...string) {
	b.t.Helper()
	last := ""
	pause := 150 * time.Millisecond
	for deadline := time.Now().Add(stepWithin); time.Now().Before(deadline); time.Sleep(pause) {
		pause = min(pause*3/2, time.Second)
		b.open(path)
		last = b.text()
		if missing(last, texts) == "" {
			return
		}
	}
	b.t.Fatalf("%s: got\n%s\nwant %q on it", path, last, missing(last, texts))
}

// missing is the first of the texts that is not in the other; "" if all are.
func missing(in string, texts []string) string {
	for _, text := range texts {
		if !strings.Contains(in, text) {
			return text
		}
	}
	return ""
}

// unharmed checks that no planted text became an element or ran.
func (b *tab) unharmed(what string) {
	b.t.Helper()
	var harm []string
	b.evaluate(`[...document.querySelectorAll("img[src=x], [onerror], body script:not([src]), a[href^='javascript:']")].map(e => e.outerHTML).concat(window.hacked ? ["window.hacked"] : [])`, &harm)
	if len(harm) > 0 {
		b.t.Errorf("%s, at %s: got the elements %q of planted texts, want them shown as text", what, b.at(), harm)
	}
}

// width sets the window's width.
func (b *tab) width(pixels int64) {
	b.t.Helper()
	b.run("set the width", chromedp.EmulateViewport(pixels, 800))
}

// scheme sets the colour scheme, light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// scripts switches the scripts of pages off or on.
func (b *tab) scripts(on bool) {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
}

func quote(text string) string {
	encoded, _ := json.Marshal(text) // a text is always encoded
	return string(encoded)
}

// follow clicks the first link whose address ends in the path, before its query.
func (b *tab) follow(path string) {
	b.t.Helper()
	b.clicks(fmt.Sprintf(`main a[href$=%q], main a[href*=%q]`, path, path+"?"), path)
}

// followPath clicks the first link that leads to the path, or below it.
func (b *tab) followPath(path string) {
	b.t.Helper()
	b.clicks(fmt.Sprintf(`main a[href=%q], main a[href^=%q]`, path, path+"/"), path)
}

// clicks clicks the link. It tries again if a poll has replaced the link meanwhile.
func (b *tab) clicks(link, path string) {
	b.t.Helper()
	var err error
	for range 3 {
		ctx, cancel := context.WithTimeout(b.ctx, stepWithin/3)
		var response *network.Response
		response, err = chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(link), chromedp.NodeVisible))
		cancel()
		if err == nil && statusOf(response) == 200 {
			b.unharmed("follow " + path)
			return
		}
	}
	b.t.Fatalf("follow %s: %v\nat %s", path, err, b.where())
}

// submit presses a form's button, and waits for the next page.
func (b *tab) submit(button string) {
	b.t.Helper()
	b.submits(button, 200)
}

func (b *tab) submits(button string, status int64) {
	b.t.Helper()
	b.answered("press "+button, status, chromedp.Click(chromedp.CSS("main form[method=post] "+button), chromedp.NodeVisible))
}

// cookies are those of the console.
func (b *tab) cookies() []*network.Cookie {
	b.t.Helper()
	return call(b, network.GetCookies, network.GetCookiesParams{URLs: []string{b.base + "/console/"}}).Cookies
}
