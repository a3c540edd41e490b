package txmanager

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"
)

// Every commit that claims a broadcast, calls a handler, or plans a check is logged, with the
// submitter, the transaction, the instance and the fencing token.
func TestEveryCriticalWriteIsLogged(t *testing.T) {
	t.Parallel()
	overdue, unheard, planned := pending(5), submitted(5), pending(5)
	overdue.NextResubmitAt, unheard.NextResubmitAt, planned.NextCheckAt = ago(time.Second), ago(time.Second), ago(time.Second)
	wage := ofHandler(5)
	for _, c := range []struct {
		name string
		w    Commit
		held Tx
		want string // message
	}{
		{"a claim of what a node holds", Commit{Transitions: []Transition{{From: Tracking, To: claimBroadcast(overdue, dbNow)}}}, overdue, "broadcast claimed"},
		{"a claim of what no node took", Commit{Transitions: []Transition{{From: Submitted, To: claimBroadcast(unheard, dbNow)}}}, unheard, "broadcast claimed"},
		{"a call of a handler", Commit{Transitions: []Transition{{From: InFlight, To: attempted(wage)}}}, wage, "handler call claimed"},
		{"a check that is planned", Commit{Transitions: []Transition{{From: Tracking, To: rulesOf(3).withNextCheck(planned, dbNow.Add(time.Second))}}}, planned, "next check planned"},
		{"a transition", Commit{Transitions: []Transition{{From: Submitted, To: rulesOf(3).afterBroadcast(unheard, SendResult{Class: SendAccepted}, block('a', 100), dbNow)}}}, unheard, "transaction moved"},
	} {
		frozen(t, func(t *testing.T) {
			var out bytes.Buffer
			tn, _, _ := iterationOf(stateOf(1, 6, c.held), true, SendAccepted)
			tn.Log = slog.New(slog.NewJSONHandler(&out, nil))
			if _, err := tn.commit(t.Context(), c.w, false); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			var line struct {
				Msg, Submitter, TxID, NodeID string
				FencingToken                 int64
			}
			if err := json.Unmarshal(out.Bytes(), &line); err != nil {
				t.Fatalf("%s: got the log %q, want one line: %v", c.name, out.String(), err)
			}
			if line.Msg != c.want || line.Submitter != string(alice) || line.TxID != "tx-5" || line.NodeID != "node-1" || line.FencingToken != 7 {
				t.Errorf("%s: got %+v; want %q of tx-5 by node-1 under token 7", c.name, line, c.want)
			}
		})
	}
}

// attempted is t before a further handler call.
func attempted(t Tx) Tx {
	t.SubmitAttempts++
	return t
}
