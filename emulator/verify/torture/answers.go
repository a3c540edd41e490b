package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/emulator/verify/torture/load"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// The checks of answers to callers.
const (
	steadyAnswers = "answers-steady"
	sameTxID      = "same-txid"
	toldTrue      = "told-true"
)

// checkAnswers compares the answers to each caller with one another, with the deployment's
// last answer, and with the chain.
func (e *episode) checkAnswers(ctx context.Context) ([]check, error) {
	steady := check{Name: steadyAnswers, Promise: "no answer contradicts an earlier one: one txId, one end, one outcome; what must be refused is refused"}
	for _, l := range e.load.Ledger.Contradictions() {
		steady.Violations = append(steady.Violations, checkers.Violation{
			Checker: steadyAnswers, Submitter: string(l.Submitter), TxID: l.TxID, Detail: fmt.Sprintf("request %q: %s", l.RequestID, l.Detail),
		})
	}
	same, ends := e.askAgain(ctx)
	chain, err := readChain(ctx, e.env.Chain.URL())
	if err != nil {
		return nil, fmt.Errorf("read the chain: %w", err)
	}
	honest := check{Name: toldTrue, Promise: "CONFIRMED, REVERTED and EXECUTED were mined, once; any other end and what was refused never were"}
	for _, in := range e.load.Ledger.Intents() {
		if detail := contradicts(in, ends[in], chain, e.load.Ledger.EndMayBeLost(in.Answers())); detail != "" {
			honest.Violations = append(honest.Violations, checkers.Violation{
				Checker: toldTrue, Submitter: string(in.Submitter), TxID: in.Answers().TxID, Detail: fmt.Sprintf("request %q: %s", in.RequestID, detail),
			})
		}
	}
	return []check{steady, same, honest}, nil
}

// lastAnswer is the deployment's answer about a request after the run.
type lastAnswer struct {
	stored bool
	txID   string
	end    load.End
}

// askAgain asks for every request and posts every accepted one once more. Each must answer
// with its first txId.
func (e *episode) askAgain(ctx context.Context) (check, map[*load.Intent]lastAnswer) {
	c := check{Name: sameTxID, Promise: "each accepted request is found, and posted again answers, with the txId first given"}
	ends := make(map[*load.Intent]lastAnswer)
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, in := range e.load.Ledger.Intents() {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			l, problem := e.askForRequest(ctx, in)
			mu.Lock()
			defer mu.Unlock()
			ends[in] = l
			if problem != "" {
				c.Violations = append(c.Violations, checkers.Violation{Checker: sameTxID, Submitter: string(in.Submitter), TxID: in.Answers().TxID, Detail: problem})
			}
		})
	}
	asking.Wait()
	return c, ends
}

func (e *episode) askForRequest(ctx context.Context, in *load.Intent) (l lastAnswer, problem string) {
	answers := in.Answers()
	query := url.Values{"submitter": {string(in.Submitter)}, "requestId": {in.RequestID}}
	status, text := e.askAs(ctx, stack.OperatorAccount, http.MethodGet, "/api/v1/tx/by-request?"+query.Encode(), nil)
	lost := e.load.Ledger.EndMayBeLost(answers)
	if status == http.StatusNotFound && (answers.TxID == "" || lost) {
		return l, ""
	}
	var found struct {
		TxID     string
		State    txmanager.State
		SubState *txmanager.SubState
	}
	if status != http.StatusOK || json.Unmarshal(text, &found) != nil {
		return l, fmt.Sprintf("request %q, accepted as %q: asked for, got %d %s", in.RequestID, answers.TxID, status, text)
	}
	l = lastAnswer{stored: true, txID: found.TxID, end: load.End{State: found.State}}
	if found.SubState != nil {
		l.end.Sub = *found.SubState
	}
	if answers.TxID == "" {
		return l, "" // stored, but its caller got no answer
	}
	if lost {
		return l, "" // its caller has a final answer and posts it no more
	}
	if in.ByProgram() {
		if found.TxID != answers.TxID {
			return l, fmt.Sprintf("request %q was accepted as %s; it is found as %s", in.RequestID, answers.TxID, found.TxID)
		}
		return l, ""
	}
	if answers.Recorded {
		if status, text = e.ask(ctx, http.MethodPost, "/api/v1/tx", in.Body()); status != http.StatusConflict || !strings.Contains(string(text), "REQUEST_RECORDED") {
			return l, fmt.Sprintf("request %q was on record; posted again it got %d %s", in.RequestID, status, text)
		}
		return l, ""
	}
	status, text = e.ask(ctx, http.MethodPost, "/api/v1/tx", in.Body())
	var again struct{ TxID string }
	_ = json.Unmarshal(text, &again) // unreadable text has no txId
	if found.TxID != answers.TxID || status != http.StatusOK || again.TxID != answers.TxID {
		return l, fmt.Sprintf("request %q was accepted as %s; it is found as %s, and posted again got %d %s", in.RequestID, answers.TxID, found.TxID, status, text)
	}
	return l, ""
}

// ask calls as a caller until the deployment answers.
func (e *episode) ask(ctx context.Context, method, path string, body any) (status int, text []byte) {
	return e.askAs(ctx, stack.CallerAccount, method, path, body)
}

// askAs calls as the account until the deployment answers.
func (e *episode) askAs(ctx context.Context, account, method, path string, body any) (status int, text []byte) {
	for range 20 {
		once, cancel := context.WithTimeout(ctx, 10*time.Second)
		s, t, err := e.env.Call(once, account, method, path, body)
		cancel()
		if err == nil && s < 500 {
			return s, t
		}
		status, text = s, t
		retry.Pause(ctx, 200*time.Millisecond)
	}
	return status, text
}

// effect identifies an intent's transaction on chain.
type effect struct {
	from  txmanager.Address
	value string
}

// readChain returns the receipts of all transactions by sender and value.
func readChain(ctx context.Context, node string) (map[effect][]*types.Receipt, error) {
	found := make(map[effect][]*types.Receipt)
	err := chainscan.Each(ctx, node, nil, func(tx chainscan.Tx) {
		key := effect{eip155.Address(tx.From), tx.Value().String()}
		found[key] = append(found[key], tx.Receipt)
	})
	return found, err
}

// contradicts describes a difference between the caller's answers and the chain or the last
// answer; "" means none. lost means that a restore may have lost the caller's final answer.
func contradicts(in *load.Intent, l lastAnswer, chain map[effect][]*types.Receipt, lost bool) string {
	succeeded, reverted := 0, 0
	for _, r := range chain[effect{in.Submitter.Address(), in.ValueWei.String()}] {
		if r.Status == types.ReceiptStatusSuccessful {
			succeeded++
		} else {
			reverted++
		}
	}
	answers := in.Answers()
	mined := fmt.Sprintf("the chain has it %d times succeeded, %d times reverted", succeeded, reverted)
	switch {
	case lost:
		return contradictsAcrossRestore(answers, l, succeeded, reverted)
	case answers.End != nil && l.end != *answers.End:
		return fmt.Sprintf("its caller got %s, and at the end it is %s", answers.End, l.end)
	case !l.stored && succeeded+reverted > 0:
		return "it was never accepted, and " + mined
	case succeeded+reverted > 1:
		return mined
	case answers.Outcome == "CANCELLED" && succeeded+reverted > 0:
		return "its caller got CANCELLED, and " + mined
	case answers.Outcome == "EXECUTED" && succeeded+reverted != 1:
		return "its caller got EXECUTED, and " + mined
	case l.end.State == txmanager.Confirmed && (succeeded != 1 || reverted != 0),
		l.end.Sub == txmanager.Reverted && (succeeded != 0 || reverted != 1),
		l.end.State == txmanager.Failed && l.end.Sub != txmanager.Reverted && succeeded+reverted > 0:
		return fmt.Sprintf("it is %s, and %s", l.end, mined)
	}
	return ""
}
