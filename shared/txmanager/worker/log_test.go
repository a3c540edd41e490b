package worker

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
	"github.com/fencepost/fencepost/shared/txmanager/rules"
	"github.com/fencepost/fencepost/shared/txmanager/txtest"
)

// Every commit that claims a broadcast, calls a handler, or plans a check is logged, with the
// submitter, the transaction, the instance and the fencing token.
func TestEveryCriticalWriteIsLogged(t *testing.T) {
	t.Parallel()
	overdue, unheard, planned := txtest.Pending(5), txtest.Submitted(5), txtest.Pending(5)
	overdue.NextResubmitAt, unheard.NextResubmitAt, planned.NextCheckAt = txtest.Ago(time.Second), txtest.Ago(time.Second), txtest.Ago(time.Second)
	wage := txtest.OfHandler(5)
	for _, c := range []struct {
		name string
		w    txmanager.Commit
		held txmanager.Tx
		want string // message
	}{
		{"a claim of what a node holds", txmanager.Commit{Transitions: []txmanager.Transition{{From: txmanager.Tracking, To: rules.ClaimBroadcast(overdue, txtest.Now)}}}, overdue, "broadcast claimed"},
		{"a claim of what no node took", txmanager.Commit{Transitions: []txmanager.Transition{{From: txmanager.Submitted, To: rules.ClaimBroadcast(unheard, txtest.Now)}}}, unheard, "broadcast claimed"},
		{"a call of a handler", txmanager.Commit{Transitions: []txmanager.Transition{{From: txmanager.InFlight, To: attempted(wage)}}}, wage, "handler call claimed"},
		{"a check that is planned", txmanager.Commit{Transitions: []txmanager.Transition{{From: txmanager.Tracking, To: rulesOf(3).WithNextCheck(planned, txtest.Now.Add(time.Second))}}}, planned, "next check planned"},
		{"a transition", txmanager.Commit{Transitions: []txmanager.Transition{{From: txmanager.Submitted, To: rulesOf(3).AfterBroadcast(unheard, txmanager.SendResult{Class: txmanager.SendAccepted}, txtest.Block('a', 100), txtest.Now)}}}, unheard, "transaction changed state"},
	} {
		var out bytes.Buffer
		tn, _, _ := iterationOf(txtest.StateOf(1, 6, c.held), true, txmanager.SendAccepted)
		tn.Log = slog.New(slog.NewJSONHandler(&out, nil))
		check.OK(t)(tn.commit(t.Context(), c.w, false))
		var line struct {
			Msg, Submitter, TxID, NodeID string
			FencingToken                 int64
		}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatalf("%s: got the log %q, want one line: %v", c.name, out.String(), err)
		}
		if line.Msg != c.want || line.Submitter != string(txtest.Alice) || line.TxID != "tx-5" || line.NodeID != "node-1" || line.FencingToken != 7 {
			t.Errorf("%s: got %+v; want %q of tx-5 by node-1 under token 7", c.name, line, c.want)
		}
	}
}

// attempted is t before a further handler call.
func attempted(t txmanager.Tx) txmanager.Tx {
	t.SubmitAttempts++
	return t
}
