package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/chainscan"
	"github.com/fencepost/fencepost/emulator/verify/torture/client"
	"github.com/fencepost/fencepost/emulator/verify/torture/load"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// checkAnswers compares the answers to each caller with one another, with the deployment's
// last answer, and with the chain.
func (e *episode) checkAnswers(ctx context.Context) []check {
	steady := check{Name: "answers-steady", Promise: "no answer contradicts an earlier one: one txId, one end, one outcome; what must be refused is refused"}
	steady.Violations = e.load.Ledger.Contradictions(steady.Name)
	same, ends := e.askAgain(ctx)
	chain := e.readChain(ctx)
	honest := check{Name: "told-true", Promise: "CONFIRMED, REVERTED and EXECUTED were mined, once; any other end and what was refused never were"}
	for _, in := range e.load.Ledger.Requests() {
		if detail := contradicts(in.Answers(), ends[in], chain[effect{in.Submitter.Address(), in.ValueWei.String()}], e.load.Ledger.EndMayBeLost(in.Answers())); detail != "" {
			honest.report(string(in.Submitter), in.Answers().ID, "request %q: %s", in.RequestID, detail)
		}
	}
	return []check{steady, same, honest}
}

// lastAnswer is the deployment's answer about a request after the run.
type lastAnswer struct {
	stored bool
	end    load.End
}

// askAgain asks for every request and posts every accepted one once more. Each must answer
// with its first txId.
func (e *episode) askAgain(ctx context.Context) (check, map[*load.Intent]lastAnswer) {
	c := check{Name: "same-txid", Promise: "each accepted request is found, and posted again answers, with the txId first given"}
	ends := make(map[*load.Intent]lastAnswer)
	var mu sync.Mutex
	client.Each(e.load.Ledger.Requests(), func(in *load.Intent) {
		l, problem := e.askForRequest(ctx, in)
		mu.Lock()
		defer mu.Unlock()
		ends[in] = l
		if problem != "" {
			c.report(string(in.Submitter), in.Answers().ID, "%s", problem)
		}
	})
	return c, ends
}

// askForRequest asks for the request, and posts it once more if its caller would.
func (e *episode) askForRequest(ctx context.Context, in *load.Intent) (l lastAnswer, problem string) {
	answers := in.Answers()
	query := url.Values{"submitter": {string(in.Submitter)}, "requestId": {in.RequestID}}
	found := e.askAs(ctx, stack.OperatorAccount, http.MethodGet, "/api/v1/tx/by-request?"+query.Encode(), nil)
	lost := e.load.Ledger.EndMayBeLost(answers)
	if found.Status == http.StatusNotFound && (answers.ID == "" || lost) {
		return l, ""
	}
	if found.Status != http.StatusOK {
		return l, fmt.Sprintf("request %q, accepted as %q: asked for, got %s", in.RequestID, answers.ID, found)
	}
	l = lastAnswer{stored: true, end: load.End{State: txmanager.State(found.State), Sub: txmanager.SubState(found.SubState)}}
	if answers.ID == "" || lost { // its caller got no answer, or has a final one and posts it no more
		return l, ""
	}
	return l, e.postAgain(ctx, in, answers, found.TxID)
}

// postAgain posts an accepted request again, unless a program made it.
func (e *episode) postAgain(ctx context.Context, in *load.Intent, answers load.Answers, found string) (problem string) {
	if in.ByProgram {
		if found != answers.ID {
			return fmt.Sprintf("request %q was accepted as %s; it is found as %s", in.RequestID, answers.ID, found)
		}
		return ""
	}
	again := e.askAs(ctx, stack.CallerAccount, http.MethodPost, "/api/v1/tx", in.Body())
	if answers.Recorded {
		if again.Status != http.StatusConflict || again.Code != "REQUEST_RECORDED" {
			return fmt.Sprintf("request %q was on record; posted again it got %s", in.RequestID, again)
		}
		return ""
	}
	if found != answers.ID || again.Status != http.StatusOK || again.TxID != answers.ID {
		return fmt.Sprintf("request %q was accepted as %s; it is found as %s, and posted again got %s", in.RequestID, answers.ID, found, again)
	}
	return ""
}

// askAs calls as the account until the deployment answers, for at most two minutes.
func (e *episode) askAs(ctx context.Context, account, method, path string, body any) client.Answer {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	c := client.NewClient(e.env, account, e.load.Ledger.Generation)
	return c.Insist(ctx, method, path, body)
}

type effect struct {
	from  txmanager.Address
	value string
}

// mined counts an intent's transactions on the chain.
type mined struct{ succeeded, reverted int }

// minedFor returns the transactions that the chain must have for an end.
func minedFor(end load.End) mined {
	switch {
	case end.State == txmanager.Confirmed:
		return mined{succeeded: 1}
	case end.Sub == txmanager.Reverted:
		return mined{reverted: 1}
	}
	return mined{}
}

func (m mined) total() int { return m.succeeded + m.reverted }

func (m mined) String() string {
	return fmt.Sprintf("the chain has it %d times succeeded, %d times reverted", m.succeeded, m.reverted)
}

// readChain counts all transactions by sender and value.
func (e *episode) readChain(ctx context.Context) map[effect]mined {
	found := make(map[effect]mined)
	for _, tx := range steps.Value(chainscan.Read(ctx, e.env.Chain.URL(), nil)).Txs {
		key := effect{tx.From, tx.Value().String()}
		m := found[key]
		if tx.Succeeded() {
			m.succeeded++
		} else {
			m.reverted++
		}
		found[key] = m
	}
	return found
}

// contradicts describes a difference between the caller's answers and the chain or the last
// answer; "" means none. lost means that a restore may have lost the caller's final answer.
func contradicts(answers load.Answers, l lastAnswer, m mined, lost bool) string {
	switch {
	case lost:
		return contradictsAcrossRestore(answers, l, m)
	case answers.End != nil && l.end != *answers.End:
		return fmt.Sprintf("its caller got %s, and at the end it is %s", answers.End, l.end)
	case !l.stored && m.total() > 0:
		return fmt.Sprintf("it was never accepted, and %s", m)
	case m.total() > 1:
		return m.String()
	case answers.Outcome == "CANCELLED" && m.total() > 0, answers.Outcome == "EXECUTED" && m.total() != 1:
		return fmt.Sprintf("its caller got %s, and %s", answers.Outcome, m)
	case l.end.State.Terminal() && m != minedFor(l.end):
		return fmt.Sprintf("it is %s, and %s", l.end, m)
	}
	return ""
}
