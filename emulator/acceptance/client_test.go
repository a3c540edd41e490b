package acceptance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/client"
)

// An operator reads the pages of lost nonces with the client, makes a dry run, which changes nothing,
// and releases the submitter.
func TestClientShowsLostNoncesAndReleases(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	const lost = 23 // more than one page
	to := func(i int) common.Address { return common.Address{0xcc, byte(i + 1)} }
	b.inFlight(t, orderTo(s, "by-hand", to(lost-1), 1000))
	b.Chain.DropPool()
	for i := range lost {
		b.payByHand(t, uint64(i), to(i), 1000)
	}
	b.Chain.StartMining()
	incident := b.inProtect(t, s)
	b.until(t, "not all is mined", func() bool { return len(b.mined(t, s)) == lost })
	b.mine(t, 70)
	operator := must(b.Client(stack.OperatorAccount))(t)

	var all []client.LostNonce
	for token := ""; ; {
		page, err := operator.Lost(b.ctx, string(s), token)
		if err != nil || page.ChainCount != lost || page.FinalCount == nil || *page.FinalCount != lost {
			t.Fatalf("lost from %q: got %+v, %v; want counts of %d", token, page, err, lost)
		}
		if all = append(all, page.Nonces...); page.NextPageToken == "" {
			break
		}
		token = page.NextPageToken
	}
	if len(all) != lost || all[0].ConsumingTx == nil || all[0].ConsumingTx.Value != "1000" || len(all[lost-1].Intents) != 1 || all[lost-1].Intents[0].RequestID != "by-hand" {
		t.Fatalf("lost: got %d, %+v; want %d, and the intent at the last", len(all), all, lost)
	}

	count := uint64(lost)
	in := client.Release{Incident: incident, Mode: "resync", Reason: "paid by hand", Count: &count, DryRun: true}
	b.until(t, "trial without a name: never INVALID_FIELD", func() bool { // before all transactions are read, the 400 has another text
		_, err := operator.Release(b.ctx, string(s), in)
		return client.CodeOf(err) == "INVALID_FIELD"
	})
	in.Requests = map[uint64]string{lost - 1: "by-hand"}
	var err error
	var tried, done client.ReleaseReport
	b.until(t, "no trial", func() bool { tried, err = operator.Release(b.ctx, string(s), in); return err == nil })
	if shown, err := operator.Submitter(b.ctx, string(s)); err != nil || shown.Protect == nil || shown.Protect.Incident != incident {
		t.Errorf("after the trial: got %+v, %v; want the incident open", shown, err)
	}
	folder := commandLine(t)
	release := []string{"protect", "release", string(s), "--incident", fmt.Sprint(incident), "--mode", "resync", "--count", fmt.Sprint(lost), "--request", fmt.Sprintf("%d=by-hand", lost-1), "--reason", "paid by hand"}
	if code, out := b.operate(t, folder, append(release, "--dry-run")...); code != 0 || !strings.Contains(out, "request by-hand: RECORDED") {
		t.Errorf("the trial by the command line: got exit %d,\n%s\nwant the name honoured", code, out)
	}
	if code, out := b.operate(t, folder, "protect", "show", string(s)); code != 0 || !strings.Contains(out, "AHEAD") {
		t.Errorf("protect show: got exit %d,\n%s\nwant the evidence", code, out)
	}
	in.DryRun = false
	b.until(t, "no release", func() bool { done, err = operator.Release(b.ctx, string(s), in); return err == nil })
	if !tried.DryRun || done.DryRun || len(done.Named) != 1 || done.Named[0].RequestID != "by-hand" || done.NextNonce != lost {
		t.Errorf("got %+v after the trial %+v; want the name honoured, and nonce %d next", done, tried, lost)
	}
	tried.DryRun = false
	same(t, "the release, as tried", done, tried)
	if code, out := b.operate(t, folder, release...); code != 4 || !strings.Contains(out, "refused: TOO_LATE (409)") || !strings.Contains(out, "What to do: ") {
		t.Errorf("release again: got exit %d,\n%s\nwant TOO_LATE, and what to do", code, out)
	}
}
