package acceptance

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// firstAccount is the first submitter's account.
var firstAccount = devchain.DevAccounts(1)[0]

// unused is an address that no test pays by the transaction manager.
var unused = common.Address{0xba, 0xd0}

// byHand sends a transaction past the transaction manager, and returns its hash.
func (b bench) byHand(t *testing.T, by devchain.Account, inner types.TxData) (hash string) {
	t.Helper()
	tx := b.Sign(by, inner)
	check(t, b.Node.SendTransaction(b.ctx, tx))
	return tx.Hash().String()
}

// useTheKey makes the first submitter's key pay by hand, as a foreign signer would.
func (b bench) useTheKey(t *testing.T, n uint64, tipGwei int64) {
	t.Helper()
	b.byHand(t, firstAccount, b.Payment(n, unused, 7, tipGwei))
}

// inProtect waits until the submitter is in PROTECT and returns the incident. Its evidence must have these texts.
func (b bench) inProtect(t *testing.T, s txmanager.Submitter, texts ...string) (incident int) {
	t.Helper()
	evidence := ""
	b.until(t, fmt.Sprintf("%s never went into PROTECT", s), func() bool {
		return b.DB.QueryRow(b.ctx, `select incident, evidence::text from protect_incident where submitter = $1 and closed_at is null`, s).
			Scan(&incident, &evidence) == nil
	})
	says(t, "evidence", evidence, texts...)
	return incident
}

// release requests a release as an operator does, and repeats the call while the submitter is being
// served or nodes do not answer in time.
func (b bench) release(t *testing.T, s txmanager.Submitter, body map[string]any) (status int, text string) {
	t.Helper()
	return b.again(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters/"+string(s)+"/release", body)
}

// releaseOnce requests a release once, for tests of unanswered nodes.
func (b bench) releaseOnce(t *testing.T, s txmanager.Submitter, body map[string]any) (status int, text string) {
	t.Helper()
	call := func() answered {
		return b.call(t, stack.OperatorAccount, http.MethodPost, "/admin/v1/submitters/"+string(s)+"/release", body)
	}
	return b.repeat(t, "release", call, func(answered) bool { return false })
}

// TX-008: a foreign transaction is noticed before allocation: PROTECT opens, new intents are refused,
// and nothing is sent. A named operator accepts the loss, and the sequence continues after it.
func TestTX008ForeignUseBeforeAllocation(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.useTheKey(t, 0, 1)
	check(t, b.Chain.WaitBlock(b.ctx, b.Chain.Head()+2))
	_, waiting := b.post(t, transfer(s, "waiting"))
	incident := b.inProtect(t, s, `"expectedNonce": 0`, `"latestCount": 1`, `"node"`, `"consumingTx"`, `"why": "AHEAD"`)
	b.call(t, stack.CallerAccount, http.MethodPost, "/api/v1/tx", transfer(s, "refused")).want("a new intent in PROTECT", http.StatusConflict, `"SUBMITTER_PROTECTED"`)
	b.wantPost(t, "what is stored, posted again", transfer(s, "waiting"), http.StatusOK, waiting) // H16
	same(t, "mined (the foreign one alone)", b.mined(t, s), []uint64{0})

	b.mine(t, 70) // the foreign transaction is finalized
	for name, body := range map[string]map[string]any{
		"no reason":        {"incident": incident, "mode": "resync", "count": 1},
		"a wrong count":    {"incident": incident, "mode": "resync", "count": 2, "reason": "r"},
		"no count":         {"incident": incident, "mode": "resync", "reason": "r"},
		"another mode":     {"incident": incident, "mode": "skip", "reason": "r"},
		"no such incident": {"incident": incident + 1, "mode": "resync", "count": 1, "reason": "r"},
	} {
		if status, answer := b.release(t, s, body); status != http.StatusBadRequest && status != http.StatusConflict {
			t.Errorf("release with %s: got %d %s, want it refused", name, status, answer)
		}
	}
	released := b.released(t, s, "", map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "it was our own test", "requests": map[string]string{"0": "by hand"}})
	if !slices.Equal(released.Displaced, []uint64{0}) || released.NextNonce != 1 {
		t.Fatalf("resync: got %+v, want nonce 0 displaced, next nonce 1", released)
	}
	b.await(t, s, txmanager.Confirmed, 2) // the named request is one of them
	b.wantContiguous(t, s, 2)
	if _, err := b.DB.Exec(b.ctx, `update protect_incident set reason = 'another'`); err == nil {
		t.Error("a closed incident was rewritten: want it refused")
	}
}

// H9: an intent whose nonce a foreign transaction consumed while it was in flight ends DISPLACED at
// resync. It is never sent at another nonce; its caller may post a new request.
func TestH09TakenWhileInFlightEndsDisplaced(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	id := b.inFlight(t, transfer(s, "taken"))
	b.Chain.DropPool()
	b.useTheKey(t, 0, 1)
	b.Chain.StartMining()
	incident := b.inProtect(t, s)
	b.await(t, s, txmanager.Protect, 1)
	b.mine(t, 70)
	b.released(t, s, "", map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "the key was shared"})
	b.wantFate(t, "the intent, which keeps its nonce", id, "FAILED/DISPLACED", 0)
	b.post(t, transfer(s, "again"))
	b.await(t, s, txmanager.Confirmed, 1)
	b.wantContiguous(t, s, 2)
}

// H6: a release names the incident. Resume derives the state anew, and transactions in flight
// continue.
func TestH06ResumeGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.inFlight(t, transfer(s, "in flight"))
	must(b.DB.Exec(b.ctx, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{"what": "a false alarm"}')`, s))(t)
	b.Chain.StartMining()
	b.await(t, s, txmanager.Confirmed, 1) // polling continues and ends nothing
	b.wantCount(t, "open incidents once the transaction is final", 1, `select count(*) from protect_incident where closed_at is null`)
	b.released(t, s, "", map[string]any{"incident": 1, "mode": "resume", "reason": "a false alarm"})
	b.post(t, transfer(s, "next"))
	b.await(t, s, txmanager.Confirmed, 2)
	b.wantContiguous(t, s, 2)
}

// H8, H9: the foreign transaction does the same as the intent and can have been the intent. The
// manager shows it, and calls nothing lost before an operator has named the request.
func TestH09ForeignTransactionThatDoesTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	twin := transfer(s, "twin")
	twin["payload"] = map[string]any{"to": "0xbad0000000000000000000000000000000000000", "value": "7"}
	_, id := b.post(t, twin)
	b.await(t, s, txmanager.Tracking, 1)
	b.Chain.DropPool()
	b.useTheKey(t, 0, 1)
	b.Chain.StartMining()
	incident := b.inProtect(t, s, `"sameAsIntent": true`)
	shown, _ := b.lostNonces(t, s)
	if len(shown) != 1 || shown[0].ConsumingTx == nil || len(shown[0].Intents) != 1 || shown[0].Intents[0].TxID != id {
		t.Errorf("lost: got %+v, want nonce 0, its taker and the intent %s", shown, id)
	}
	b.mine(t, 70)
	body := map[string]any{"incident": incident, "mode": "resync", "count": 1, "reason": "the key was shared"}
	b.refusedRelease(t, "resync without its name", s, body, `"requests"`)
	body["requests"] = map[string]string{"0": "twin, sent by hand"}
	b.released(t, s, "", body)
}
