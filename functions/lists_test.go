package functions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// listed is a deployment with a queue of six intents. The nonce after those that are allocated is on
// record as consumed by a foreign transaction.
func listed(t *testing.T) (h deployment, operator *client.Client) {
	t.Helper()
	h = buildWithShop(t)
	for i := range 6 {
		h.as("shop", "POST", "/api/v1/tx", map[string]any{"submitter": shopAccount, "requestId": fmt.Sprint("r", i), "payload": map[string]any{"to": paidTo}}).wants(t, 202, "post")
	}
	h.run(`update managed_tx set wait_cause = 'BALANCE', waiting_since = clock_timestamp(), last_error = 'balance: too little' where request_id = 'r0'`)
	h.run(`update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where request_id in ('r1', 'r2', 'r3')`)
	h.run(`insert into foreign_transaction (submitter, nonce, incident, tx_hash, block_number, block_hash, value_wei, call_digest, succeeded, receipt, node)
	       values ($1, 1, 1, $2, 7, $2, 1, sha256('x'), true, '{}', 'n')`, shopAccount, "0x"+strings.Repeat("ab", 32))
	return h, h.clientOf(h.callerToken("ann"))
}

// An operator finds transactions of all submitters by each filter. The answer names the missing parameter
// where no index serves a filter.
func TestOperatorFindsTransactions(t *testing.T) {
	t.Parallel()
	h, c := listed(t)
	now := time.Now()
	for _, one := range []struct {
		what string
		f    client.TxFilter
		want string
	}{
		{"all", client.TxFilter{PageSize: 4}, "r5 r4 r3 r2 r1 r0"},
		{"of a state", client.TxFilter{State: client.Failed, PageSize: 2}, "r3 r2 r1"},
		{"of a submitter and a state", client.TxFilter{Submitter: shopAccount, State: client.Queued, PageSize: 2}, "r5 r4 r0"},
		{"by cause", client.TxFilter{Cause: "BALANCE"}, "r0"},
		{"by cause, of a submitter", client.TxFilter{Submitter: shopAccount, Cause: "BALANCE"}, "r0"},
		{"by request", client.TxFilter{RequestID: "r4"}, "r4"},
		{"by caller", client.TxFilter{Submitter: shopAccount, Caller: "email:shop@fencepost.example", PageSize: 5}, "r5 r4 r3 r2 r1 r0"},
		{"since an hour ago", client.TxFilter{Since: now.Add(-time.Hour)}, "r5 r4 r3 r2 r1 r0"},
		{"since tomorrow", client.TxFilter{Since: now.Add(24 * time.Hour)}, ""},
		{"by a hash that is none of ours", client.TxFilter{Hash: "0x" + strings.Repeat("ab", 32)}, ""},
		{"by a nonce that none has", client.TxFilter{Submitter: shopAccount, Nonce: new(uint64(7))}, ""},
	} {
		got, err := collect(c.FindTxs(t.Context(), one.f), func(tx client.FoundTx) string { return tx.RequestID })
		check.Equal(t, fmt.Sprintf("%s, error: %v", one.what, err), got, one.want)
	}
	for tx, err := range c.FindTxs(t.Context(), client.TxFilter{RequestID: "r0"}) {
		if err != nil || tx.Caller != "email:shop@fencepost.example" || tx.Cause != "BALANCE" || tx.Since == nil {
			t.Errorf("r0: got %+v, %v; want its caller, and its cause since when", tx, err)
		}
	}
	for query, want := range map[string]string{
		"nonce=1": "400 INVALID_FIELD nonce", "caller=x": "400 INVALID_FIELD caller", "state=QUEUED": "400 INVALID_FIELD state", "state=DONE": "400 INVALID_FIELD state",
		"requestId=r0&state=QUEUED": "400 INVALID_FIELD requestId", "cause=BALANCE&state=QUEUED": "400 INVALID_FIELD cause", "cause=WINDOW_FULL": "400 INVALID_FIELD cause",
		"since=yesterday": "400 INVALID_FIELD since", "since=1969-01-01T00:00:00Z": "400 INVALID_FIELD since", "hash=0x12": "400 INVALID_FIELD hash", "nonce=-1": "400 INVALID_FIELD nonce",
		"submitter=x": "400 INVALID_FIELD submitter",
	} {
		check.Equal(t, query, h.as("ann", "GET", "/admin/v1/tx?"+query, nil).is("code", "field"), want)
	}
}

// An operator sees the nonces of a submitter with the foreign transaction, and its queue with the causes.
func TestOperatorSeesLaneAndQueue(t *testing.T) {
	t.Parallel()
	h, c := listed(t)
	nonces := func(n client.LaneNonce) string { return fmt.Sprint(n.Nonce, n.Kind, len(n.ForeignHash)) }
	got, err := collect(c.Lane(t.Context(), shopAccount, nil), nonces)
	check.Equal(t, fmt.Sprintf("lane, error: %v", err), got, "0GAP0 1LOST66")
	got, err = collect(c.Lane(t.Context(), shopAccount, new(uint64(1))), nonces)
	check.Equal(t, fmt.Sprintf("lane from 1, error: %v", err), got, "1LOST66")
	first := h.as("ann", "GET", ofShop+"/lane?from=0&pageSize=1", nil)
	last := h.as("ann", "GET", fmt.Sprint(ofShop, "/lane?pageSize=1&pageToken=", first.body["nextPageToken"]), nil)
	check.Equal(t, "the second nonce", last.is("nonces.0.nonce", "nextPageToken"), "200 1 <nil>")

	got, err = collect(c.ListQueue(t.Context(), shopAccount), func(q client.QueuedTx) string { return fmt.Sprint(q.Position, q.RequestID, q.Cause, q.Since.IsZero()) })
	check.Equal(t, fmt.Sprintf("queue, error: %v", err), got, "1r0BALANCEfalse 2r4EARLIER_INTENTfalse 3r5EARLIER_INTENTfalse")
	check.Equal(t, "by pages", column(h.allRows("queue", ofShop+"/queue", "", 2), "position"), "1 2 3")
	for _, what := range []string{"lane", "queue"} {
		check.Equal(t, what+" of none", h.as("ann", "GET", "/admin/v1/submitters/eip155:1337:0x00000000000000000000000000000000000000ff/"+what, nil).is("code"), "404 UNKNOWN_SUBMITTER")
	}
}
