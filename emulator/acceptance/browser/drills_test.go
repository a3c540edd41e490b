package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fencepost/fencepost/emulator/local"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
)

// run is the drill that was started last.
func (h *deployment) run(t *testing.T) local.Run {
	t.Helper()
	var got struct {
		Run *local.Run `json:"run"`
	}
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, h.control.URL()+"/drills", nil))(t)
	resp := must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	check(t, json.NewDecoder(resp.Body).Decode(&got))
	if got.Run == nil {
		return local.Run{}
	}
	return *got.Run
}

// startDrill presses the button of the drill, after the box beside it to solve it. The page shows what the drill says.
func (b *tab) startDrill(name string, solve bool) {
	b.t.Helper()
	b.open("/console/drill")
	if solve {
		b.run("tick the box", chromedp.Click(chromedp.CSS(fmt.Sprintf(`main tr[data-drill=%q] input[name=solve]`, name))))
	}
	b.press("Start " + name)
	b.until("/console/drill", "Drill "+name+": ")
}

// drillEnds waits for the end of the drill, which is that of its runbook.
func (b *tab) drillEnds(h *deployment) {
	b.t.Helper()
	poll(b.t, "the drill has ended", func() bool { return h.run(b.t).Ended != nil })
	if ran := h.run(b.t); ran.Failed || !strings.Contains(ran.Output, "Ended as") {
		b.t.Fatalf("the drill: got\n%s\nwant it ended as its runbook says", ran.Output)
	}
	b.until("/console/drill", "Ended as")
}

// stopDrill presses the button that ends the drill and its fault.
func (b *tab) stopDrill(h *deployment) {
	b.t.Helper()
	b.press("Stop the drill and its fault")
	poll(b.t, "the drill has stopped", func() bool { return h.run(b.t).Ended != nil })
}

// Each drill of the emulator has a button, and starts by it. One is followed to its end; those of the ways out of PROTECT
// and of STUCK are too. No block is made while the others run, so that they get no further than their beginning.
func TestEachDrillStartsByItsButton(t *testing.T) {
	h := setup(t)
	b := h.as(t, stack.OperatorAccount)
	b.open("/console/drill")
	var shown, want []string
	b.evaluate(`[...document.querySelectorAll("main tr[data-drill]")].filter(row => row.querySelector("button")).map(row => row.dataset.drill)`, &shown)
	for _, d := range local.Drills {
		want = append(want, d.Name)
	}
	same(t, "drills with a button", shown, want)
	b.startDrill("unpaid-account", true)
	b.drillEnds(h)
	defer h.Chain.StartMining()
	for _, name := range want {
		if slices.Contains([]string{"unpaid-account", "foreign-key", "stuck", "killed-process"}, name) {
			continue
		}
		h.Chain.StopMining()
		b.startDrill(name, false)
		b.stopDrill(h)
	}
	h.startsKilling(t, b)
	h.Chain.StartMining()
	poll(t, "what the drills posted has ended", func() bool {
		s, err := h.operator.Submitter(t.Context(), h.drilled())
		return err == nil && s.Queued == 0 && s.InFlightNonce == nil
	})
}

// startsKilling starts the drill that kills a process, which may be the one that draws the page.
func (h *deployment) startsKilling(t *testing.T, b *tab) {
	t.Helper()
	b.open("/console/drill")
	killed := h.Processes()
	must(chromedp.RunResponse(b.ctx, chromedp.Click(chromedp.Search(`//main//button[.="Start killed-process"]`), chromedp.NodeVisible)))(t)
	poll(t, "the drill has killed a process, and another has taken its place", func() bool {
		now := h.Processes()
		return len(now) == len(killed) && !slices.Equal(now, killed)
	})
	if ran := h.run(t); ran.Name != "killed-process" || !strings.Contains(ran.Output, "Killed function process") {
		t.Errorf("the drill: got %+v, want killed-process", ran)
	}
	b.open("/console/drill")
	b.stopDrill(h)
	b.forgive()
}

// forgive forgets what the tab's pages did wrong so far, where that was a killed process.
func (b *tab) forgive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wrong = nil
}

// By clicks alone: an operator starts a drill, finds the submitter in PROTECT and reads the evidence. After a wrong count
// and a trial, the operator releases it, and writes the foreign transaction off.
func testWayOutOfProtect(t *testing.T, h *deployment) {
	b := h.as(t, stack.OperatorAccount)
	b.startDrill("foreign-key", false)
	s := h.drilled()
	poll(t, "the drill says what to expect", func() bool { return strings.Contains(h.run(t).Output, "finalized") })
	nonce := must(h.operator.Lost(t.Context(), s, ""))(t).Nonces[0].Nonce
	b.until("/console/", "PROTECT")
	b.follow("/console/attention")
	b.shows("attention", "PROTECT")
	b.followPath(submitterPath(s))
	b.shows("submitter", "PROTECT")
	b.square(nonce, "LOST", "GAP", "UNRECORDED")
	b.follow("/protect")
	b.shows("protect", fmt.Sprint(nonce))
	b.suits(axeCore(t))
	b.open(submitterPath(s) + "/protect/release?mode=resume")
	b.suits(axeCore(t))
	b.open(submitterPath(s) + "/protect")
	b.follow("/protect/release")
	b.shows("release", fmt.Sprint(nonce))
	b.evaluate(`document.querySelectorAll("main form details").forEach(d => d.open = true)`, nil)
	b.suits(axeCore(t))
	b.releases(h, s, nonce)
	b.drillEnds(h)
	b.open(submitterPath(s) + "/foreign")
	b.shows("foreign", fmt.Sprint(nonce))
	b.suits(axeCore(t))
	b.follow("/foreign/match")
	b.suits(axeCore(t))
	b.open(submitterPath(s) + "/foreign")
	b.follow("/foreign/write-off")
	b.suits(axeCore(t))
	b.fill("reason", "no request of ours")
	b.fill("confirm", fmt.Sprint(nonce))
	b.submit("button")
	if open := foreign(t, h, s); slices.Contains(open, nonce) {
		t.Errorf("foreign transactions to decide about: got nonces %d, want %d gone", open, nonce)
	}
	b.audited("foreign-write-off", "no request of ours", stack.OperatorAccount)
	b.audited("release", "a program of ours had the key", stack.OperatorAccount)
}

// releases accepts the loss of the nonce on the form of the release, after a wrong count and a trial.
func (b *tab) releases(h *deployment, s string, nonce uint64) {
	b.t.Helper()
	const try = "Show what would happen (changes nothing)"
	count, answer := b.value("count"), fmt.Sprintf("request-%d", nonce)
	b.fill("count", "999999")
	b.choose(answer, "none")
	b.fill("reason", "a program of ours had the key")
	b.presses(try, http.StatusBadRequest)
	b.shows("release", "count", "finalized")
	equal(b.t, "the reason after the refusal, which is kept", b.value("reason"), "a program of ours had the key")
	h.incident(b.t, s) // it is still open
	b.fill("count", count)
	b.press(try)
	b.shows("release", "What the release would do", fmt.Sprint(nonce))
	b.suits(axeCore(b.t))
	b.fill("confirm", s[len(s)-6:])
	b.press("Release: accept the loss")
	b.shows("protect", "No incident is open")
}

// foreign returns the nonces of the foreign transactions that wait for a decision.
func foreign(t *testing.T, h *deployment, s string) (nonces []uint64) {
	t.Helper()
	for f, err := range h.operator.ListForeign(t.Context(), s, 0) {
		check(t, err)
		nonces = append(nonces, f.Nonce)
	}
	return nonces
}

// By clicks alone: an operator starts a drill, finds a STUCK transaction, reads why, and sends it again.
func testWayOutOfStuck(t *testing.T, h *deployment) {
	b := h.as(t, stack.OperatorAccount)
	b.startDrill("stuck", false)
	poll(t, "the drill says what to expect", func() bool { return strings.Contains(h.run(t).Output, "Expect:") })
	_, rest, _ := strings.Cut(h.run(t).Output, "/api/v1/tx/")
	txID, _, _ := strings.Cut(rest, "\n")
	b.open("/console/")
	b.follow("/console/attention")
	b.followPath("/console/tx/" + txID)
	b.shows("transaction", string(client.Stuck), "over_node_cap")
	b.follow("/decide")
	b.suits(axeCore(t))
	b.choose("action", "rebroadcast")
	b.fill("reason", "the limit was raised")
	b.submit("button")
	b.drillEnds(h)
	b.until("/console/tx/"+txID, "CONFIRMED", "the limit was raised", stack.OperatorAccount)
	b.audited("rebroadcast", "the limit was raised", stack.OperatorAccount)
}
