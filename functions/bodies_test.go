package functions_test

import (
	"fmt"
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
		got := call(t, t.Context(), h.userToken(alice), "POST", h.url+"/api/v1/internal_transfer", body)
		check.Equal(t, fmt.Sprintf("%s (%v)", body, got.body), got.is("code", "field"), want)
	}
	var rows int
	if err := h.DB.QueryRow(t.Context(), `select count(*) from transfers_tb`).Scan(&rows); err != nil || rows != 0 {
		t.Errorf("transfers: got %d, %v; want none", rows, err)
	}
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
		post := func(body string) answer {
			return call(t, t.Context(), h.userToken(alice), "POST", h.url+"/api/v1/internal_transfer", body)
		}
		first, again := post(body), post(zeros)
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
func TestNullIsLeftOut(t *testing.T) {
	t.Parallel()
	h := build(t)
	body := `{"from":"FUNDING","to":"SPOT","asset":"USDT","amount":"0.0001","user_id":null,"cid":null}`
	for range 2 {
		a := call(t, t.Context(), h.userToken(alice), "POST", h.url+"/api/v1/internal_transfer", body)
		check.Equal(t, fmt.Sprintf("answer (%v)", a.body), a.is("state", "code"), "200 COMMITTED <nil>")
	}
	var own int
	if err := h.DB.QueryRow(t.Context(), `select count(*) from transfers_tb where user_id = $1 and cid is null`, alice).Scan(&own); err != nil || own != 2 {
		t.Errorf("transfers of the token's user without a cid: got %d, %v; want 2", own, err)
	}
}
