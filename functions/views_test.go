package functions_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// An operator sees what needs a person as one list by pages, each item with its subject, a sentence, what can
// be done and the runbook. A caller does not.
func TestOperatorSeesWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	c := h.clientOf(h.callerToken("ann"))
	id := h.createTx("1")
	h.run(`update managed_tx set wait_cause = 'BALANCE', waiting_since = now() - interval '1 hour', last_error = 'balance: too little' where tx_id = $1`, id)
	late := h.stored("a")
	h.run(`select move_transfer($1, '{0,10,20,30}', null)`, late)
	h.run(`update transfers_tb set state_at = clock_timestamp() - interval '61 s' where req_id = $1`, late)
	h.run(`insert into transfer_halt (scope, evidence) values ('all', '{"what": "a test"}')`)
	var got []client.AttentionItem
	for item, err := range c.ListAttention(t.Context()) {
		check.OK(t)(err)
		if item.Since.IsZero() || time.Since(item.Since) < 0 || !strings.HasSuffix(item.Why, ".") || item.Action == "" || !strings.HasPrefix(item.Runbook, "docs/runbooks/") {
			t.Errorf("%s: got %+v, want since, why, what to do and the runbook", item.Kind, item)
		}
		item.Since, item.Why, item.Action = time.Time{}, "", ""
		got = append(got, item)
	}
	check.Same(t, "list", got, []client.AttentionItem{
		{Kind: "HALT", Overdue: true, Subject: client.AttentionSubject{Halt: 1}, Detail: "a test", Runbook: "docs/runbooks/conservation-violated.md"},
		{Kind: "TRANSFER", Overdue: true, Subject: client.AttentionSubject{ReqID: late}, Runbook: "docs/runbooks/transfer-stuck.md"},
		{Kind: "BLOCKED", Overdue: true, Subject: client.AttentionSubject{Submitter: shopAccount, TxID: id}, Cause: "BALANCE", Detail: "balance: too little", Runbook: "docs/runbooks/balance.md"},
	})
	check.Equal(t, "by pages", column(h.allRows("items", "/admin/v1/attention", "", 2), "kind"), "HALT TRANSFER BLOCKED")
}

// The overview counts transactions that have not ended. It shows the build, and the settings that differ, without a
// secret. Its rates are those of the minutes that the sweep counts.
func TestOperatorSeesTheOverview(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	c := h.clientOf(h.callerToken("ann"))
	for _, request := range []string{"1", "2"} {
		h.createTx(request)
	}
	h.run(`insert into tx_minute values (date_bin('1 minute', now() - interval '3 minutes', 'epoch'), 9, 2, 1, array[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,1])`)
	h.as("tasks", "POST", "/internal/sweep", map[string]any{}) // fails for want of a node, and has counted
	o := check.Value(c.GetOverview(t.Context()))(t)
	check.Same(t, "states", o.States, []client.StateCount{{State: "QUEUED", Count: 2}})
	if o.Oldest == nil || o.Oldest.Submitter != shopAccount || o.Build.Go == "" || o.Instance == "" || time.Since(o.At).Abs() > time.Hour {
		t.Errorf("got %+v, want the oldest intent and the build", o)
	}
	if i := slices.IndexFunc(o.Rates, func(r client.Rate) bool { return r.Minutes == 60 }); o.RatesUpTo == nil || o.Rates[i].Accepted != 9 || o.Rates[i].Confirmed != 2 || o.Rates[i].Failed != 1 ||
		o.Rates[i].Counted < 2 || *o.Rates[i].P50 != 1000 || *o.Rates[i].P99 != 1189 {
		t.Errorf("rates: got %+v up to %v, want those that are counted", o.Rates, o.RatesUpTo)
	}
	settings := map[string]client.Setting{}
	for _, s := range o.Settings {
		settings[s.Name] = s
	}
	check.Equal(t, "confirmations.required", fmt.Sprint(settings["confirmations.required"]), "{confirmations.required FENCEPOST_CONFIRMATIONS_REQUIRED 1 20 false}")
	check.Equal(t, "database.url", fmt.Sprint(settings["database.url"]), "{database.url FENCEPOST_DATABASE_URL   true}")
	if text, _ := json.Marshal(o); strings.Contains(string(text), coreSecret) {
		t.Error("the overview shows a secret")
	}
}

// A chain whose only node gives no answer is shown with the node's error, and so is a submitter of it.
func TestAChainWithoutAnAnswerIsShown(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	c := h.clientOf(h.callerToken("ann"))
	chains := check.Value(c.ListChains(t.Context()))(t)
	if n := chains[0].Nodes[0]; chains[0].ChainID != 1337 || chains[0].Confirmations == nil || n.Name != "127.0.0.1:1" || n.Error == "" || n.Head != nil || chains[0].MeasuredBlockTime != nil || chains[0].BaseFeePerGas != "" {
		t.Errorf("chains: got %+v, want the error of the only node", chains)
	}
	shown := check.Value(c.Submitter(t.Context(), shopAccount))(t)
	if s := shown.Chain; s == nil || s.Latest != nil || s.Error != "" || len(s.Nodes) != 1 || s.Nodes[0].Error == "" || s.Spending != nil {
		t.Errorf("submitter: got %+v, want the error of the only node", s)
	}
	const elsewhere = "eip155:7:0x0000000000000000000000000000000000000a11"
	h.Register(t, elsewhere, 1)
	if shown = check.Value(c.Submitter(t.Context(), elsewhere))(t); shown.Chain.Error == "" {
		t.Errorf("a submitter of a chain that is not served: got %+v, want why", shown.Chain)
	}
}
