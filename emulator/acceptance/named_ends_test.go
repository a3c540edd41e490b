package acceptance

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// creates returns a request that deploys this code.
func creates(s txmanager.Submitter, requestID string, code ...byte) map[string]any {
	body := transfer(s, requestID)
	body["payload"] = map[string]any{"data": fmt.Sprintf("0x%x", code)}
	return body
}

// createByHand deploys code at nonce n with the first submitter's key.
func (b bench) createByHand(t *testing.T, n uint64, code ...byte) (hash string) {
	t.Helper()
	tx := b.Payment(n, unused, 0, 1)
	tx.To, tx.Data, tx.Gas = nil, code, 100_000
	return b.byHand(t, firstAccount, tx)
}

// deployments counts the chain's transactions that deploy this code.
func (b bench) deployments(t *testing.T, code ...byte) (n int) {
	t.Helper()
	for _, tx := range b.transactions(t, b.Node) {
		if tx.To() == nil && string(tx.Data()) == string(code) {
			n++
		}
	}
	return n
}

// A release names a request for a transaction that reverted at finality. The request ends
// FAILED/REVERTED with that hash and receipt, and never runs again. Cancel answers EXECUTED, and a
// repeated post gets the same result, even if the database had lost the request.
func TestANamedRequestThatRevertedEndsSo(t *testing.T) {
	t.Parallel()
	windows(t, []int{1, 8}, func(t *testing.T, window int) {
		b := setup(t, stack.Options{Window: window, Submitters: 1, Settings: map[string]string{"FENCEPOST_EVENTS_MODE": "mq_outbox"}})
		s := b.Submitters()[0]
		b.Chain.StopMining()
		for i := range window { // they take the nonces of the window
			b.post(t, orderTo(s, fmt.Sprintf("holds-%d", i), common.Address{0xa0, byte(i + 1)}, 10))
		}
		b.await(t, s, txmanager.Tracking, window)
		here, lost := creates(s, "here", 0xfe), creates(s, "lost", 0xfe, 0xfe)
		_, id := b.post(t, here)
		b.Chain.DropPool()
		b.createByHand(t, 0, 0xfe)
		b.createByHand(t, 1, 0xfe, 0xfe)
		b.Chain.StartMining()
		incident := b.inProtect(t, s)
		b.mine(t, 70)
		body := map[string]any{"incident": incident, "mode": "resync", "count": 2, "reason": "sent by hand"}
		b.refusedRelease(t, "nothing named", s, body, "nonce 0:", "here")
		body["requests"] = map[string]string{"0": "here", "1": "lost"}
		done := b.released(t, s, "", body)
		if len(done.Named) != 2 || done.Named[0].Effect != "REVERTED" || done.Named[1].Effect != "REVERTED" {
			t.Fatalf("named: got %+v, want both REVERTED", done.Named)
		}
		_, r := b.ask(t, stack.CallerAccount, id)
		hash := done.Named[0].TxHash
		if r.State != "FAILED" || *r.SubState != "REVERTED" || r.TxHash == nil || *r.TxHash != hash || !strings.Contains(string(r.Receipt), hash) {
			t.Errorf("what was named: got %+v, want FAILED/REVERTED with hash and receipt of %s", r, hash)
		}
		if status, c := b.cancel(t, id); status != http.StatusOK || c != (cancelled{"EXECUTED", "FAILED", "REVERTED"}) {
			t.Errorf("cancel: got %d %+v, want EXECUTED of FAILED/REVERTED", status, c)
		}
		b.wantPost(t, "posted again", here, http.StatusOK, id)
		b.wantLostIsAnswered(t, stack.CallerAccount, lost, done.Named[1].TxHash, "FAILED", "REVERTED")
		b.allEnded(t)
		var last event
		for _, e := range b.replay(t, stack.CallerAccount) {
			if e.TxID == id {
				last = e
			}
		}
		if last.Type != "TxFailed" || last.Data.Reason != "REVERTED" {
			t.Errorf("its last event: got %+v, want TxFailed with REVERTED", last)
		}
		if one, other := b.deployments(t, 0xfe), b.deployments(t, 0xfe, 0xfe); one != 1 || other != 1 {
			t.Errorf("on the chain: got %d and %d transactions, want one of each request", one, other)
		}
	})
}

// alertOf returns the message text that an alert of Terraform matches.
func alertOf(t *testing.T, name string) string {
	t.Helper()
	text := must(os.ReadFile("../../terraform/modules/alerts/policies.tf"))(t)
	found := regexp.MustCompile(`(?s)\n    ` + name + ` = \{.*?message=~\\"\^([^\\]+)\\"`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("the alert %s has no filter by message", name)
	}
	return `"message":"` + string(found[1])
}

// A request is named for one nonce and has bytes at another. The release announces that a placeholder
// is to consume that other nonce. The placeholder does so, and the request was carried out once. If
// its bytes are mined nevertheless, which cannot be prevented, the alert of a second execution is
// raised.
func TestANamedRequestWithBytesAtAnotherNonce(t *testing.T) {
	t.Parallel()
	for _, window := range []int{1, 8} {
		for _, mined := range []string{"placeholder", "own bytes"} {
			parallel(t, fmt.Sprintf("window %d, %s", window, mined), func(t *testing.T) {
				b := setup(t, stack.Options{Window: 8, Submitters: 1, RPCProxy: true, Settings: quick})
				s := b.Submitters()[0]
				to := common.Address{0x2b}
				b.Chain.StopMining()
				_, first := b.post(t, orderTo(s, "first", common.Address{0x1a}, 10))
				_, twice := b.post(t, orderTo(s, "twice", to, 1000))
				b.await(t, s, txmanager.Tracking, 2)
				bytes := b.raw(t, twice, "ORIGINAL")
				b.RPC.SetFaults(rpcproxy.Faults{LoseSend: 1}) // no resent transaction reaches the node
				// A window of 1 allocates no second nonce: it was narrowed afterwards.
				must(b.DB.Exec(b.ctx, `update submitter set max_in_flight = $2 where submitter = $1`, s, window))(t)
				b.Chain.DropPool()
				b.payByHand(t, 0, to, 1000)
				b.Chain.StartMining()
				incident := b.inProtect(t, s)
				b.mine(t, 70)
				body := map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "paid by hand", "requests": map[string]string{"0": "twice"}}
				done := b.released(t, s, "", body)
				if len(done.Named) != 1 || done.Named[0].Effect != "PLACEHOLDER" || done.Named[0].TxID != twice {
					t.Fatalf("named: got %+v, want the effect PLACEHOLDER", done.Named)
				}
				b.versions(t, twice, "ORIGINAL", "PLACEHOLDER")
				want := int64(1000)
				if mined == "own bytes" {
					want = 2000
					tx := new(types.Transaction)
					check(t, tx.UnmarshalBinary(bytes))
					check(t, b.Node.SendTransaction(b.ctx, tx))
					b.until(t, "the bytes sent by hand were not mined", func() bool { return b.received(t, to) == want })
				}
				b.RPC.SetFaults(rpcproxy.Faults{})
				b.allEnded(t)
				equal(t, "wei of it on the chain", b.received(t, to), want)
				if alert := alertOf(t, "carried-out-twice"); mined == "own bytes" {
					b.logged(t, alert)
				} else if b.Log.Has(alert) {
					t.Error("the alert of a second execution: got it raised, want it silent")
				}
				if status, c := b.cancel(t, twice); status != http.StatusOK || c.Outcome != "EXECUTED" || c.State != "CONFIRMED" {
					t.Errorf("cancel: got %d %+v, want EXECUTED", status, c)
				}
				if _, c := b.cancel(t, first); c != (cancelled{"CANCELLED", "FAILED", "DISPLACED"}) {
					t.Errorf("what lost its nonce: got %+v, want it never carried out", c)
				}
				_, next := b.post(t, orderTo(s, "next", common.Address{0x3c}, 10))
				b.confirmed(t, next)
				b.wantContiguous(t, s, 3)
			})
		}
	}
}
