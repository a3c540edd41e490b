package payouts

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/emulator/acceptance/acceptancetest"
	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Each refusal of a payout has its code and status. A refusal before a transfer exists stores nothing,
// and no refusal moves money.
func TestAnswers(t *testing.T) {
	t.Parallel()
	h := setup(t)
	narrow := h.tokenBy(t, 20, nil) // an account without code accepts any call but never pays
	narrow.MinUnits, narrow.MaxUnits, narrow.DailyUnits = 10, 1000, 1500
	suspended := h.tokenBy(t, 21, nil)
	suspended.Active = false
	for _, a := range []transfer.Asset{narrow, suspended} {
		check(t, h.AddAsset(t.Context(), a))
	}
	u := h.newUser(t, h.coin(), 1_000_000)
	payer := u.Payer.Address()
	for name, c := range map[string]struct {
		differs []any
		status  int
		code    string
	}{
		"another user":         {[]any{"user_id", u.ID + 1}, 403, "FORBIDDEN"},
		"no address":           {[]any{"address", ""}, 400, "INVALID_ADDRESS"},
		"too short":            {[]any{"address", "0x12"}, 400, "INVALID_ADDRESS"},
		"a name":               {[]any{"address", "vitalik.eth"}, 400, "INVALID_ADDRESS"},
		"a wrong checksum":     {[]any{"address", "0x52908400098527886E0F7030069857D2E4169Ee7"}, 400, "INVALID_ADDRESS"},
		"nobody's address":     {[]any{"address", "0x" + strings.Repeat("0", 40)}, 400, "INVALID_ADDRESS"},
		"the payer":            {[]any{"address", payer.String()}, 400, "INVALID_ADDRESS"},
		"the token's contract": {[]any{"asset", "USDT", "amount", "1", "address", h.Token.String()}, 400, "INVALID_ADDRESS"},
		"no such asset":        {[]any{"asset", "NONE"}, 400, "INVALID_ASSET"},
		"an asset that stays":  {[]any{"asset", stack.BTC.Name}, 400, "TRANSFER_NOT_ALLOWED"},
		"a suspended asset":    {[]any{"asset", suspended.Name, "amount", "1"}, 400, "ASSET_SUSPENDED"},
		"nothing":              {[]any{"amount", "0"}, 400, "INVALID_AMOUNT"},
		"less than nothing":    {[]any{"amount", "-1"}, 400, "INVALID_AMOUNT"},
		"no number":            {[]any{"amount", "1e3"}, 400, "INVALID_AMOUNT"},
		"nine decimals":        {[]any{"amount", "0.000000001"}, 400, "PRECISION_OVERFLOW"},
		"beyond 64 bits":       {[]any{"amount", "99999999999999999999"}, 400, "OVERFLOW"},
		"too little":           {[]any{"asset", narrow.Name, "amount", "0.000009"}, 400, "AMOUNT_TOO_SMALL"},
		"too much at once":     {[]any{"asset", narrow.Name, "amount", "0.001001"}, 400, "AMOUNT_TOO_LARGE"},
		"no account":           {[]any{"asset", narrow.Name, "amount", "0.001"}, 422, "SOURCE_ACCOUNT_NOT_FOUND"},
		"more than there is":   {[]any{"amount", "0.01000001"}, 422, "INSUFFICIENT_BALANCE"},
	} {
		a := u.pay(1, c.differs...)
		if a.Status != c.status || a.Code != c.code || (a.ReqID != "") != (c.status == 422) || (a.State == "FAILED") != (c.status == 422) {
			t.Errorf("%s: got %+v, want %d %s, and a transfer only where it has failed", name, a, c.status, c.code)
		}
	}
	to := map[string]any{"from": "FUNDING", "to": "CHAIN", "asset": "ETH", "amount": "1"}
	a, err := acceptancetest.ReadAnswer(u.CallAsUser(u.Ctx, u.ID, http.MethodPost, "/api/v1/internal_transfer", to))
	if err != nil || a.Status != 400 || a.Code != "INVALID_ACCOUNT_TYPE" {
		t.Errorf("a transfer to the chain: got %+v, %v; want 400 INVALID_ACCOUNT_TYPE", a, err)
	}
	if status, _, err := stack.CallWith(u.Ctx, "", http.MethodPost, u.URLMap.PublicURL()+"/api/v1/payout", u.body(1)); err != nil || status != http.StatusUnauthorized {
		t.Errorf("without a token: got %d, %v; want 401", status, err)
	}
	u.wantMoney("after all that", 1_000_000, 0, 0)
}

// A FROZEN or DISABLED account pays nothing out. If it is frozen while its payout is open, the refund
// still reaches it.
func TestAnswersOfTheAccount(t *testing.T) {
	t.Parallel()
	h := setup(t)
	for status, code := range map[string]string{"FROZEN": "ACCOUNT_FROZEN", "DISABLED": "ACCOUNT_DISABLED"} {
		u := h.newUser(t, h.coin(), 1_000_000)
		check(t, u.SetStatus(u.Ctx, transfer.Funding, u.ID, u.asset.ID, status))
		u.Want(status, u.pay(1), http.StatusUnprocessableEntity, "FAILED", code)
		u.wantMoney(status, 1_000_000, 0, 0)
	}
	u := h.newUser(t, h.coin(), 1_000_000)
	worker, reqID := u.stopped("transfer.withdraw.recorded", 400_001)
	check(t, u.SetStatus(u.Ctx, transfer.Funding, u.ID, u.asset.ID, "FROZEN"))
	u.resolve(reqID)
	worker.wakes()
	poll(t, "it has ended", func() bool { return u.Load(reqID).State.Terminal() })
}

// A user's limits for transfers also bound payouts, and payouts count against them.
func TestAnswersBeyondLimits(t *testing.T) {
	t.Parallel()
	h := setup(t)
	perDay := h.Aside(t, map[string]string{"FENCEPOST_TRANSFER_LIMITS_PER_DAY": "2"})
	perSecond := h.Aside(t, map[string]string{"FENCEPOST_TRANSFER_LIMITS_PER_SECOND": "1"})
	u := h.newUser(t, h.token(), 1_000_000)
	for i, want := range []string{"", "", "DAILY_LIMIT_EXCEEDED"} {
		a, err := u.payAt(perDay.Addr(), 1)
		if err != nil || a.Code != want || (a.Status == http.StatusTooManyRequests) != (want != "") {
			t.Errorf("payout %d of a day of two: got %+v, %v; want %q", i, a, err, want)
		}
	}
	hasty := h.newUser(t, h.token(), 1_000_000)
	poll(t, "one too many in a second", func() bool {
		var refused atomic.Bool
		var posts sync.WaitGroup
		for range 3 { // at once: one alone may take a second
			posts.Go(func() {
				a, err := hasty.payAt(perSecond.Addr(), 1)
				if err != nil || a.Status != http.StatusTooManyRequests && a.Status != http.StatusAccepted {
					t.Errorf("got %+v, %v; want 202 or 429", a, err)
				}
				if a.Code == "RATE_LIMIT_EXCEEDED" {
					refused.Store(true)
				}
			})
		}
		posts.Wait()
		return refused.Load() || t.Failed()
	})
	daily := h.token()
	daily.ID, daily.Name, daily.DailyUnits = 22, "TDAY", 500_000
	check(t, h.AddAsset(t.Context(), daily))
	spender := h.newUser(t, daily, 1_000_000)
	spender.accepted(400_001)
	spender.Want("beyond the day's amount", spender.pay(100_000), http.StatusTooManyRequests, "", "DAILY_AMOUNT_EXCEEDED")
}
