package functions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// Bodies that a lenient reader would accept or correct are refused with the field at fault, and none
// is stored.
func TestBodiesThatAreRefused(t *testing.T) {
	t.Parallel()
	h := build(t)
	for body, want := range map[string]string{
		`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"0.0001","amount":"0.0002"}`:   "400 INVALID_FIELD amount",
		`{"from":"FUNDING","to":"SPOT","asset":"USDT","Amount":"0.0001"}`:                     "400 UNSUPPORTED_FIELD Amount",
		`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"0.0001"}{}`:                   "400 INVALID_JSON <nil>",
		`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":null}`:                         "400 INVALID_FIELD amount",
		`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":0.0001}`:                       "400 INVALID_FIELD amount",
		`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"０.０００１"}`:                     "400 INVALID_AMOUNT amount",
		`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"1e-4"}`:                       "400 INVALID_AMOUNT amount",
		`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"0.0001","user_id":7.0}`:       "400 INVALID_FIELD user_id",
		`{"from":"FUNDING","to":"SPOT","asset":"USDT\u0000","amount":"0.0001"}`:               "400 INVALID_JSON <nil>",
		`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"0.0001","cid":"a\u0000"}`:     "400 INVALID_JSON <nil>",
		`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"0.0001","cid":"a","cid":"a"}`: "400 INVALID_FIELD cid",
	} {
		got := h.asUser(alice, "POST", "/api/v1/internal_transfer", body)
		check.Equal(t, fmt.Sprintf("%s (%v)", body, got.body), got.is("code", "field"), want)
	}
	check.Equal(t, "transfers", h.one(`select count(*) from transfers_tb`), "0")
}

// Two cids that a person can confuse are two transfers. Leading zeros do not change an amount, so
// either text finds the cid's own transfer.
func TestCidsAreComparedByteForByte(t *testing.T) {
	t.Parallel()
	h := build(t)
	seen := map[string]string{}
	for _, cid := range []string{" a", "a", "A", "a ", "\u00e9", "e\u0301"} {
		body := fmt.Sprintf(`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"0.0001","cid":"%s"}`, cid)
		zeros := fmt.Sprintf(`{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"00000.0001","cid":"%s"}`, cid)
		first, again := h.asUser(alice, "POST", "/api/v1/internal_transfer", body), h.asUser(alice, "POST", "/api/v1/internal_transfer", zeros)
		reqID := fmt.Sprint(first.body["req_id"])
		if got := first.is("state", "code"); got != "200 COMMITTED <nil>" || seen[reqID] != "" {
			t.Errorf("cid %q: got %s as %s, which is that of %q; want a transfer of its own", cid, got, reqID, seen[reqID])
		}
		seen[reqID] = cid
		check.Equal(t, fmt.Sprintf("cid %q, with leading zeros (%v)", cid, again.body), again.is("code", "req_id"), "200 DUPLICATE_REQUEST "+reqID)
	}
}

// An optional field that is null counts as absent. The user is the token's, and there is
// no cid: the same body twice is two transfers.
func TestNullIsOmitted(t *testing.T) {
	t.Parallel()
	h := build(t)
	body := `{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"0.0001","user_id":null,"cid":null}`
	for range 2 {
		a := h.asUser(alice, "POST", "/api/v1/internal_transfer", body)
		check.Equal(t, fmt.Sprintf("answer (%v)", a.body), a.is("state", "code"), "200 COMMITTED <nil>")
	}
	check.Equal(t, "transfers of the token's user without a cid", h.one(`select count(*) from transfers_tb where user_id = $1 and cid is null`, alice), "2")
}

// A null that the description allows is taken as such, wherever it is.
func TestNullsOfTheDescription(t *testing.T) {
	t.Parallel()
	h := build(t)
	paths := strings.NewReplacer("{submitter}", "eip155:1337:0x02e40fe26b255d5c8dfb71cbfeb1bf9ff7ab917d", "{endpoint}", "x", "{asset}", "USDT")
	n := 0
	for operation, nulls := range apiOf(t).Nulls() {
		n += len(nulls)
		method, path, _ := strings.Cut(operation, " ")
		token := h.callerToken("ann")
		if strings.HasPrefix(path, "/api/v1/internal_transfer") || strings.HasPrefix(path, "/api/v1/payout") {
			token = h.userToken(alice)
		}
		for _, body := range nulls {
			got := call(t, t.Context(), token, method, h.url+paths.Replace(path), body)
			if detail := fmt.Sprint(got.body["detail"]); got.status == 401 || got.status == 403 || strings.Contains(detail, "got null") || strings.Contains(detail, "null is not a value") {
				t.Errorf("%s %v: got %s, want the null taken", operation, body, got.is("code", "field", "detail"))
			}
		}
	}
	if n < 20 {
		t.Errorf("nulls: got %d, too few to be all", n)
	}
}
