package functions_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// shopAccount is an account that callers may post for.
const shopAccount = "eip155:1337:0x0000000000000000000000000000000000005409"

// clientOf returns a client of the deployment with the token.
func (h deployment) clientOf(token string) *client.Client {
	h.t.Helper()
	c := check.Value(client.New(client.Options{URL: h.url, Token: func(context.Context) (string, error) { return token, nil }}))(h.t)
	h.t.Cleanup(c.CloseIdle)
	return c
}

// callerToken returns the token of a caller or operator.
func (h deployment) callerToken(name string) string {
	return h.issuer.token(h.t, "public", jwt.MapClaims{"sub": name, "email": name + "@fencepost.example", "email_verified": true})
}

// refused requires that a call of the client is refused with the code: refused(t, what, code)(call()).
func refused(t *testing.T, what, code string) func(results ...any) {
	return func(results ...any) {
		t.Helper()
		err, _ := results[len(results)-1].(error)
		check.Equal(t, fmt.Sprintf("%s: code of %v", what, err), client.CodeOf(err), code)
	}
}

func intentOf(requestID string) client.Intent {
	return client.Intent{Submitter: shopAccount, RequestID: requestID, Payload: client.Payload{To: paidTo, Value: "1"}}
}

// collect returns the list's items by name, and its error.
func collect[T any](list iter.Seq2[T, error], name func(T) string) (names string, err error) {
	var all []string
	for one, err := range list {
		if err != nil {
			return strings.Join(all, " "), err
		}
		all = append(all, name(one))
	}
	return strings.Join(all, " "), nil
}

// The client posts, finds, lists, cancels and waits, and sees only its caller's transactions.
func TestClientOfIntents(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	shop, other, operator := h.clientOf(h.callerToken("shop")), h.clientOf(h.callerToken("other")), h.clientOf(h.callerToken("ann"))
	ids := map[string]string{}
	for i := range 7 {
		created := check.Value(shop.CreateTx(t.Context(), intentOf(fmt.Sprint("r", i))))(t)
		ids[fmt.Sprint("r", i)] = created.TxID
	}
	check.Equal(t, "the same again", check.Value(shop.CreateTx(t.Context(), intentOf("r3")))(t).TxID, ids["r3"])
	results, err := other.CreateTxBatch(t.Context(), []client.Intent{intentOf("o0"), intentOf("r3"), intentOf("o1")})
	if err != nil || len(results) != 3 || results[0].Status != 202 || results[1].Code != "REQUEST_ID_CONFLICT" || results[2].TxID == "" {
		t.Errorf("batch: got %+v, %v; want the middle one refused", results, err)
	}
	check.Equal(t, "cancel", check.Value(shop.CancelTx(t.Context(), ids["r5"]))(t), client.Cancelled)
	tx := check.Value(shop.WaitTx(t.Context(), ids["r5"]))(t)
	check.Equal(t, "wait", fmt.Sprintln(tx.State, tx.SubState, tx.RequestID), "FAILED CANCELLED r5\n")
	tx = check.Value(shop.TxByRequest(t.Context(), shopAccount, "r2"))(t)
	check.Equal(t, "by request", fmt.Sprintln(tx.TxID, tx.State), ids["r2"]+" QUEUED\n")
	for _, c := range []struct {
		who   *client.Client
		query client.TxQuery
		want  string
	}{
		{shop, client.TxQuery{PageSize: 3}, "r6 r5 r4 r3 r2 r1 r0"},
		{shop, client.TxQuery{PageSize: 7}, "r6 r5 r4 r3 r2 r1 r0"},
		{shop, client.TxQuery{PageSize: 2, State: client.Queued}, "r6 r4 r3 r2 r1 r0"},
		{shop, client.TxQuery{State: client.Failed}, "r5"},
		{other, client.TxQuery{}, "o1 o0"},
		{operator, client.TxQuery{PageSize: 2}, "o1 o0 r6 r5 r4 r3 r2 r1 r0"},
		{h.clientOf(h.callerToken("nobody")), client.TxQuery{}, ""},
	} {
		c.query.Submitter = shopAccount
		all := check.Value(collect(c.who.ListTx(t.Context(), c.query), func(tx client.ListedTx) string { return tx.RequestID }))(t)
		check.Equal(t, fmt.Sprintf("list %+v", c.query), all, c.want)
	}
	refused(t, "another's", "NOT_FOUND")(other.Tx(t.Context(), ids["r0"]))
	s := check.Value(operator.Submitter(t.Context(), shopAccount))(t)
	check.Equal(t, "submitter", fmt.Sprintln(s.Status, s.Queued), "ACTIVE 8\n")
}

// The client transfers and pays out money, and lists its user's transfers.
func TestClientOfTransfers(t *testing.T) {
	t.Parallel()
	h := buildWithPayer(t)
	c := h.clientOf(h.userToken(alice))
	moved, err := c.CreateTransfer(t.Context(), client.TransferRequest{From: "FUNDING", To: "SPOT", Asset: "USDT", Amount: "1.5", CID: "c"})
	if err != nil || moved.State != client.TransferCommitted {
		t.Fatalf("got %+v, %v; want COMMITTED", moved, err)
	}
	again, err := c.CreateTransfer(t.Context(), client.TransferRequest{From: "FUNDING", To: "SPOT", Asset: "USDT", Amount: "1.5", CID: "c"})
	if err != nil || again.ReqID != moved.ReqID || again.Code != "DUPLICATE_REQUEST" {
		t.Errorf("the same again: got %+v, %v; want %s", again, err, moved.ReqID)
	}
	_, err = c.CreateTransfer(t.Context(), client.TransferRequest{From: "SPOT", To: "FUNDING", Asset: "USDT", Amount: "2000"})
	var p *client.Problem
	if !errors.As(err, &p) || p.Code != "INSUFFICIENT_BALANCE" || p.State != client.TransferFailed || p.ReqID == "" {
		t.Fatalf("too much: got %v, want INSUFFICIENT_BALANCE with the transfer", err)
	}
	paid, err := c.CreatePayout(t.Context(), client.PayoutRequest{Asset: "USDT", Amount: "2", Address: paidTo})
	if err != nil || paid.State != client.TransferPending {
		t.Fatalf("payout: got %+v, %v; want PENDING", paid, err)
	}
	seen := check.Value(c.Transfer(t.Context(), paid.ReqID))(t)
	check.Equal(t, "payout", fmt.Sprintln(seen.Amount, seen.Address), "2 "+paidTo+"\n")
	seen = check.Value(c.WaitTransfer(t.Context(), p.ReqID))(t)
	check.Equal(t, "wait", fmt.Sprintln(seen.State, seen.Reason), "FAILED INSUFFICIENT_BALANCE\n")
	id := func(x client.Transfer) string { return x.ReqID }
	for state, want := range map[client.TransferState]string{
		"": paid.ReqID + " " + p.ReqID + " " + moved.ReqID, client.TransferCommitted: moved.ReqID, client.TransferRolledBack: "",
	} {
		for _, size := range []int{0, 1, 2, 3} {
			got := check.Value(collect(c.ListTransfers(t.Context(), client.TransferQuery{State: state, PageSize: size}), id))(t)
			check.Equal(t, fmt.Sprintf("%s, %d a page", state, size), got, want)
		}
	}
	check.Equal(t, "another user's list", check.Value(collect(h.clientOf(h.userToken(bob)).ListTransfers(t.Context(), client.TransferQuery{}), id))(t), "")
	report, err := h.clientOf(h.callerToken("ann")).CheckConservation(t.Context(), true)
	if err != nil || report.Result != "ok" || report.Entries == 0 {
		t.Errorf("conservation: got %+v, %v; want ok of some entries", report, err)
	}
}

// keyed makes one request with these Idempotency-Key headers.
func (h deployment) keyed(token, path string, body any, keys ...string) answer {
	h.t.Helper()
	ctx := context.WithValue(h.t.Context(), headerKey{}, http.Header{"Idempotency-Key": keys})
	return call(h.t, ctx, token, "POST", h.url+path, body)
}

// The header Idempotency-Key can replace the body's key or repeat it.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	h.registerPayer()
	intent := members{"submitter": shopAccount, "payload": members{"to": paidTo}}
	for _, api := range []struct {
		path, token, field, id string
		accepted               int
		body                   members
	}{
		{"/api/v1/tx", h.callerToken("shop"), "requestId", "txId", 202, intent},
		{"/api/v1/internal_transfer", h.userToken(alice), "cid", "req_id", 200, order(nil)},
		{"/api/v1/payout", h.userToken(bob), "cid", "req_id", 202, members{"asset": "USDT", "amount": "1", "address": paidTo}},
	} {
		first := h.keyed(api.token, api.path, api.body, "key-1")
		first.wants(t, api.accepted, "%s", api.path)
		same := fmt.Sprint("200 ", first.body[api.id])
		for _, c := range []struct {
			name, inBody string
			keys         []string
			want         string // status and id, or status, code and field
		}{
			{"again", "", []string{"key-1"}, same},
			{"a string of RFC 8941", "", []string{`"key-1"`}, same},
			{"in the body", "key-1", nil, same},
			{"in both", "key-1", []string{"key-1"}, same},
			{"in both, as a string", "key-1", []string{`"key-1"`}, same},
			{"two keys", "key-2", []string{"key-1"}, "400 INVALID_FIELD " + api.field},
			{"the header twice", "", []string{"key-1", "key-1"}, "400 INVALID_FIELD Idempotency-Key"},
			{"joined by a proxy", "", []string{"key-1, key-1"}, "400 INVALID_FIELD Idempotency-Key"},
			{"with a parameter", "", []string{`"key-1";a=1`}, "400 INVALID_FIELD Idempotency-Key"},
			{"not closed", "", []string{`"key-1`}, "400 INVALID_FIELD Idempotency-Key"},
			{"empty", "key-1", []string{""}, "400 INVALID_FIELD Idempotency-Key"},
			{"an empty string", "key-1", []string{`""`}, "400 INVALID_FIELD Idempotency-Key"},
			{"not ASCII", "", []string{"é"}, "400 INVALID_FIELD Idempotency-Key"},
			{"too long", "", []string{strings.Repeat("k", 129)}, "400 INVALID_FIELD " + api.field},
		} {
			body := api.body
			if c.inBody != "" {
				body = with(body, members{api.field: c.inBody})
			}
			a := h.keyed(api.token, api.path, body, c.keys...)
			got := a.is("code", "field")
			if a.status < 300 {
				got = a.is(api.id)
			}
			check.Equal(t, fmt.Sprintf("%s, %s (%v)", api.path, c.name, a.body["detail"]), got, c.want)
		}
	}
	escaped := h.keyed(h.callerToken("shop"), "/api/v1/tx", intent, `"a \"b\" \\c"`)
	found := check.Value(h.clientOf(h.callerToken("shop")).TxByRequest(t.Context(), shopAccount, `a "b" \c`))(t)
	check.Equal(t, "with escapes", any(found.TxID), escaped.body["txId"])
	check.Equal(t, "a batch", h.keyed(h.callerToken("shop"), "/api/v1/tx:batch", members{"intents": []any{intentOf("x")}}, "key-1").is("code", "field"),
		"400 UNSUPPORTED_FIELD Idempotency-Key")
}

// An invalid list query is refused with its parameter's name.
func TestListsRefuse(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	for i := range 2 {
		h.createTx(fmt.Sprint("r", i))
		h.post(alice, nil).wants(t, 200, "transfer")
	}
	list := func(token, query string) answer {
		path := "/api/v1/internal_transfer?"
		if strings.HasPrefix(query, "submitter") {
			path = "/api/v1/tx?"
		}
		return call(t, t.Context(), token, "GET", h.url+path+query, nil)
	}
	const txs = "submitter=" + shopAccount
	ofTxs := fmt.Sprint(list(h.callerToken("shop"), txs+"&pageSize=1").body["nextPageToken"])
	ofTransfers := fmt.Sprint(list(h.userToken(alice), "pageSize=1").body["nextPageToken"])
	for _, c := range []struct{ name, token, query, want string }{
		{"no submitter", h.callerToken("shop"), "submitter=", "400 INVALID_FIELD submitter"},
		{"a submitter that is none", h.callerToken("shop"), "submitter=x", "400 INVALID_FIELD submitter"},
		{"a state that is none", h.callerToken("shop"), txs + "&state=DONE", "400 INVALID_FIELD state"},
		{"twice", h.callerToken("shop"), txs + "&state=QUEUED&state=FAILED", "400 INVALID_FIELD state"},
		{"the other list's", h.callerToken("shop"), txs + "&pageToken=" + ofTransfers, "400 INVALID_FIELD pageToken"},
		{"another caller's", h.callerToken("other"), txs + "&pageToken=" + ofTxs, "400 INVALID_FIELD pageToken"},
		{"no caller", h.userToken(alice), txs, "401 UNAUTHORIZED <nil>"},
		{"a state that is none, of transfers", h.userToken(alice), "state=PENDING", "400 INVALID_FIELD state"},
		{"the other list's, of transfers", h.userToken(alice), "pageToken=" + ofTxs, "400 INVALID_FIELD pageToken"},
		{"another user's", h.userToken(bob), "pageToken=" + ofTransfers, "400 INVALID_FIELD pageToken"},
		{"no user", h.callerToken("shop"), "pageSize=1", "401 UNAUTHORIZED <nil>"},
		{"its own", h.callerToken("shop"), txs + "&pageSize=500&pageToken=" + ofTxs, "200 <nil> <nil>"},
		{"its own, of transfers", h.userToken(alice), "pageToken=" + ofTransfers, "200 <nil> <nil>"},
	} {
		check.Equal(t, c.name, list(c.token, c.query).is("code", "field"), c.want)
	}
}
