package money_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/functions/console/consoletest"
	"github.com/fencepost/fencepost/functions/console/money"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

const (
	reqID  = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	api    = "/admin/v1/transfers/" + reqID
	page   = "/console/transfers/" + reqID
	payer  = "eip155:1:0x00000000000000000000000000000000000abcde"
	hash   = "0x1111111111111111111111111111111111111111111111111111111111111111"
	attack = `"><script>alert(1)</script>`
)

func listed(created time.Time) client.OperatorsTransfer {
	return client.OperatorsTransfer{UserID: 7, Transfer: client.Transfer{ReqID: reqID, From: "FUNDING", To: "SPOT", Address: "0x00000000000000000000000000000000cafe0001", Asset: "USDT", Amount: "12.5", State: client.TransferTargetPending, CreatedAt: created, UpdatedAt: created}}
}

// The list sends its filters, keeps them in the next page's address.
func TestTransfersAreFiltered(t *testing.T) {
	t.Parallel()
	rows := map[string]any{"transfers": []client.OperatorsTransfer{listed(time.Now())}, "nextPageToken": "later"}
	var sent []url.Values
	c := consoletest.New(t, money.Section(), consoletest.Answers{"GET /admin/v1/transfers": func(call consoletest.Call) any { sent = append(sent, call.Query); return rows }})
	c.Shows("/console/transfers?state=TARGET_PENDING&user=7", 1, page, ">0x00000000000000000000000000000000cafe0001<", "12.5 USDT", "<option selected>TARGET_PENDING", "/console/transfers?pageToken=later&amp;state=TARGET_PENDING&amp;user=7")
	check.Equal(t, "the query", sent[0].Encode(), "pageSize=100&state=TARGET_PENDING&user=7")
	c.Shows("/console/transfers?user=seven", 0, "The user is a whole number")
	c.Shows("/console/transfers?older=1h&pageToken=here", 1, page, "older=1h&amp;pageToken=later")
	before, err := time.Parse(time.RFC3339, sent[len(sent)-1].Get("before"))
	if age := time.Since(before); err != nil || age < time.Hour || age > time.Hour+time.Minute || sent[len(sent)-1].Get("pageToken") != "here" {
		t.Errorf("with an age: got the query %v, want one before an hour ago, from the page on", sent[len(sent)-1])
	}
	none := consoletest.New(t, money.Section(), consoletest.Answers{"GET /admin/v1/transfers": &client.Problem{Status: 404, Code: "NOT_FOUND"}})
	none.Shows("/console/transfers", 1, "has no transfers between ledgers")
	wrong := consoletest.New(t, money.Section(), consoletest.Answers{"GET /admin/v1/transfers": &client.Problem{Status: 400, Code: "INVALID_FIELD", Field: "asset", Detail: "has no index by itself"}})
	wrong.Shows("/console/transfers?asset=USDT", 1, "has no index by itself")
}

// why is a transfer that went through the states.
func why(states ...client.TransferState) client.Why {
	w := client.Why{Transfer: client.Transfer{ReqID: reqID, From: "FUNDING", To: "SPOT", Asset: "USDT", Amount: "12.5", State: states[len(states)-1]}, UserID: 7, Where: "12.5 USDT somewhere", LastEvidence: attack}
	for i, s := range states {
		w.History = append(w.History, client.Transition{At: time.Date(2026, 11, 27, 3, i, 0, 0, time.UTC), State: s})
	}
	return w
}

var (
	begun = []client.TransferState{client.TransferInit, client.TransferSourcePending, client.TransferSourceDone, client.TransferTargetPending}
	back  = append(begun[:4:4], client.TransferCompensating)
)

// Each state shows what it proves of both ledgers. Funding is the first column.
func TestBooksShowWhatIsProved(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		states []client.TransferState
		want   string // of both columns: operation and answer, and who holds the money
	}{
		{begun[:1], "FUNDING withdraw not asked for yet the money is here SPOT deposit not asked for yet the money is not here"},
		{begun[:2], "FUNDING withdraw asked for, no answer yet the money may be here SPOT deposit not asked for yet the money is not here"},
		{begun, "FUNDING withdraw booked the money is not here SPOT deposit asked for, no answer yet the money may be here"},
		{append(begun[:4:4], client.TransferCommitted), "FUNDING withdraw booked the money is not here SPOT deposit booked the money is here"},
		{back, "FUNDING withdraw booked refund asked for, no answer yet the money may be here SPOT deposit refused for ever the money is not here"},
		{append(back[:5:5], client.TransferRolledBack), "FUNDING withdraw booked refund booked the money is here SPOT deposit refused for ever the money is not here"},
		{[]client.TransferState{client.TransferInit, client.TransferSourcePending, client.TransferFailed}, "FUNDING withdraw refused for ever the money is here SPOT deposit not asked for yet the money is not here"},
		{[]client.TransferState{client.TransferInit, client.TransferFailed}, "FUNDING withdraw not asked for yet the money is here SPOT deposit not asked for yet the money is not here"},
	} {
		c := consoletest.New(t, money.Section(), consoletest.Answers{"GET " + api + "/why": why(one.states...), "GET /admin/v1/conservation": client.Conservation{}})
		w, _ := c.Get(page)
		check.Equal(t, string(one.states[len(one.states)-1]), booksIn(w.Body.String()), one.want)
	}
}

// booksIn are the texts of both columns, without the times.
func booksIn(html string) string {
	var words []string
	for _, section := range strings.Split(html, `data-ledger="`)[1:] {
		account, rest, _ := strings.Cut(section, `"`)
		words = append(words, account)
		rest, _, _ = strings.Cut(rest, "</section>")
		_, rest, _ = strings.Cut(rest, "<tbody>")
		for _, row := range strings.Split(rest, `<th scope="row">`)[1:] {
			op, answer, _ := strings.Cut(row, "</th>")
			cells := strings.Split(answer, "<td>")
			text, _, _ := strings.Cut(cells[len(cells)-1], "</td>")
			text, _, _ = strings.Cut(text, ", <time")
			words = append(words, op, text)
		}
		_, holds, _ := strings.Cut(rest, "<strong>")
		holds, _, _ = strings.Cut(holds, "</strong>")
		words = append(words, holds)
	}
	return strings.Join(words, " ")
}

// A transfer's page makes at most 2 calls: of a payout also its transaction. Texts are data.
func TestTransferIsShown(t *testing.T) {
	t.Parallel()
	paid := why(begun...)
	paid.To, paid.Address, paid.Payout = "CHAIN", "0x00000000000000000000000000000000cafe0001", &client.PayoutTerms{Submitter: payer, ChainID: 1, Address: "0x00000000000000000000000000000000cafe0001", BaseUnits: "12500000"}
	a := consoletest.Answers{"GET " + api + "/why": paid, "GET /admin/v1/tx": map[string]any{"transactions": []client.FoundTx{{ListedTx: client.ListedTx{TxID: "0192a000-0000-7000-8000-000000000001", State: client.Tracking}}}}}
	c := consoletest.New(t, money.Section(), a)
	c.Shows(page, 2, `data-ledger="CHAIN"`, "&lt;script&gt;", "/console/tx/0192a000-0000-7000-8000-000000000001", page+"/resolve", page+"/state", "would follow")
	paid.Statements = []client.Statement{{Paid: true, TxHash: hash, By: "email:ann@fencepost.example"}}
	paid.Payout.Token, paid.ProvedBy = "0x00000000000000000000000000000000cafe0002", hash
	a["GET "+api+"/why"] = paid
	c.Shows(page, 2, ">"+paid.Payout.Token+"<", "paid by <code class=\"wrap\">"+hash+"<")
	if text := c.Live(page); !strings.Contains(text, "Statements about the payout") {
		t.Errorf("the part that is read again lacks the statements\n%s", text)
	}
	waits := why(client.TransferInit)
	a["GET "+api+"/why"], a["GET /admin/v1/conservation"] = waits, client.Conservation{OpenHalts: 2}
	c.Shows(page, 2, "2 halts of new transfers are open", page+"/cancel")
	c.Viewer = true
	c.Lacks(page, nil, page+"/cancel")
	c.Viewer = false
	a["GET "+api+"/why"] = why(begun...)
	c.Shows(page, 1, page+"/acknowledge")
}

// Each act draws its form with the evidence by 1 call, and sends the API's call.
func TestActsOnATransfer(t *testing.T) {
	t.Parallel()
	w := why(begun...)
	w.Payout = &client.PayoutTerms{Submitter: payer, BaseUnits: "1"}
	w.Statements = []client.Statement{{Paid: false, Then: "refund", Counts: true, By: "ben", Reason: attack}}
	a := consoletest.Answers{"GET " + api + "/why": w}
	c := consoletest.New(t, money.Section(), a)
	for _, one := range []struct {
		act, route string
		form       url.Values
		answer     any
		want       map[string]any
	}{
		{"cancel", "/cancel", url.Values{"confirm": {"9G5FAV"}}, w.Transfer, map[string]any{"reason": "r"}},
		{"resolve", "/resolve", url.Values{"op": {"deposit"}, "confirm": {"9G5FAV"}}, w.Transfer, map[string]any{"op": "deposit", "reason": "r"}},
		{"resolve", "/resolve", url.Values{"op": {"deposit"}, "outcome": {"applied"}, "line": {"4711"}, "confirm": {"9G5FAV"}}, w.Transfer, map[string]any{"op": "deposit", "reason": "r", "outcome": "applied", "line": 4711.0}},
		{"acknowledge", "/acknowledge", url.Values{"until": {"2026-11-28T03:00"}}, nil, map[string]any{"reason": "r", "until": "2026-11-28T03:00:00Z"}},
		{"state", "/payout-statement", url.Values{"paid": {"yes"}, "txHash": {"0xab"}}, w, map[string]any{"paid": true, "tx_hash": "0xab", "reason": "r"}},
		{"state", "/payout-statement", url.Values{"paid": {"no"}, "then": {"refund"}, "maxWindow": {"8"}, "confirm": {"9G5FAV"}}, w, map[string]any{"paid": false, "then": "refund", "max_window": 8.0, "reason": "r"}},
		{"withdraw", "/payout-statement/withdraw", url.Values{}, w, map[string]any{"reason": "r"}},
	} {
		a["POST "+api+one.route] = one.answer
		c.Shows(page+"/"+one.act, 1, "12.5 USDT somewhere", "&lt;script&gt;", `value="the-csrf-token"`)
		one.form.Set("reason", "r")
		check.Same(t, one.act, c.Does(page+"/"+one.act, one.form, 1, page).Body, one.want)
		one.form.Del("reason")
		c.Refuses(page+"/"+one.act, one.form, 400, 1, "Write why you do this")
		one.form.Set("reason", "r")
		a["POST "+api+one.route] = &client.Problem{Status: 409, Code: "TOO_LATE", Detail: "its money is not in flight"}
		c.Refuses(page+"/"+one.act, one.form, 409, 2, "its money is not in flight", "The state has changed meanwhile")
		a["POST "+api+one.route] = consoletest.Proposed{ProposalID: "p1"}
		if one.answer != nil {
			c.Does(page+"/"+one.act, one.form, 1, "/console/proposals/p1")
		}
	}
	a["GET "+api+"/why"] = why(begun...) // no payout, whose payment no core can forget
	a["POST "+api+"/resolve"] = &client.Problem{Status: 409, Code: "BEYOND_HORIZON", Detail: "it has forgotten"}
	c.Refuses(page+"/resolve", url.Values{"op": {"deposit"}, "reason": {"r"}, "confirm": {"9G5FAV"}}, 409, 2, "Search its journal for")
	c.Refuses(page+"/resolve", url.Values{"op": {"deposit"}, "reason": {"r"}}, 400, 1, "Type 9G5FAV to confirm")
	c.Refuses(page+"/cancel", url.Values{"reason": {"r"}}, 400, 1, "Type 9G5FAV to confirm")
	c.Refuses(page+"/state", url.Values{"paid": {"no"}, "then": {"refund"}, "reason": {"r"}}, 400, 1, "Type 9G5FAV to confirm")
	got, _ := c.Get(page + "/nonsense")
	check.Equal(t, "an unknown act", got.Code, 404)
}

// Findings, halts and the last check are shown by 1 call, and acted on.
func TestConservationIsShownAndActedOn(t *testing.T) {
	t.Parallel()
	state := client.Conservation{OpenHalts: 2, Halts: []client.Halt{
		{ID: 9, HaltScope: client.HaltScope{Scope: "user_asset", UserID: new(int64(7)), AssetID: new(int32(1))}, Evidence: json.RawMessage(`{"what":"conservation is violated","first":["<b>"]}`)},
		{ID: 8, HaltScope: client.HaltScope{Scope: "all"}, Evidence: json.RawMessage(`{}`)},
	}, LastCheck: &client.LastCheck{Result: "standing", Standing: 1, Found: []client.Finding{{ID: 3, Kind: "BALANCE_DIFFERS", Side: "FUNDING", UserID: 7, AssetID: 1, Expected: "10", Got: "9"}}}}
	a := consoletest.Answers{"GET /admin/v1/conservation": state}
	c := consoletest.New(t, money.Section(), a)
	c.Shows("/console/conservation", 1, "asset 1 of user 7", "all transfers", "conservation is violated", "&lt;b&gt;", "1 finding stands", "Decide which of the two is right", "/findings/3/adjust", "/halts/9/resume")
	c.Shows("/console/conservation/halts/9/resume", 1, "1 findings still stand", "Also end the 1 earlier halts")
	c.Shows("/console/conservation/findings/3/adjust", 1, "BALANCE_DIFFERS", "Type <code>3</code>")
	c.Shows("/console/conservation/check", 1, "It moves no money", "wants no reason and is not in Audit")
	c.Lacks("/console/conservation/check", nil, `name="reason"`) // nothing would keep it
	a["POST /admin/v1/halts/9/resume"] = nil
	check.Same(t, "resume", c.Does("/console/conservation/halts/9/resume", url.Values{"reason": {"found"}, "earlier": {"true"}, "confirm": {"9"}}, 1, "/console/conservation").Body, map[string]any{"earlier": true, "reason": "found"})
	c.Refuses("/console/conservation/halts/9/resume", url.Values{"reason": {"found"}}, 400, 1, "Type 9 to confirm")
	a["POST /admin/v1/conservation/findings/3/adjust"] = client.Adjustment{FindingID: 3}
	check.Same(t, "adjust", c.Does("/console/conservation/findings/3/adjust", url.Values{"reason": {"found"}, "move": {"journal"}, "confirm": {"3"}}, 1, "/console/conservation").Body, map[string]any{"move": "journal", "reason": "found"})
	c.Refuses("/console/conservation/findings/3/adjust", url.Values{"reason": {"found"}, "move": {"journal"}}, 400, 1, "Type 3 to confirm")
	a["POST /admin/v1/conservation/findings/3/adjust"] = &client.Problem{Status: 409, Code: "ACCOUNT_MOVED", Detail: "has moved"}
	c.Refuses("/console/conservation/findings/3/adjust", url.Values{"reason": {"found"}, "move": {"journal"}, "confirm": {"3"}}, 409, 2, "Run a check, then adjust")
	a["POST /admin/v1/conservation/check"] = client.CheckReport{Result: "violated", Fresh: 2, Entries: 5}
	c.Refuses("/console/conservation/check", url.Values{"full": {"true"}}, 200, 2, "Violated: 2 new findings")
	none := consoletest.New(t, money.Section(), consoletest.Answers{"GET /admin/v1/conservation": &client.Problem{Status: 404, Code: "NOT_FOUND"}})
	none.Shows("/console/conservation", 1, "has no transfers between ledgers")
}
