package attacks

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// M2: a caller posts an intent that cannot go, by its own fee or its own value. After
// nonce.deferAfter the account's other caller goes ahead. The first caller's later intents keep
// their order behind it, until it ends: by its validUntil, or by a cancel.
func TestOneCallerDoesNotStopAnother(t *testing.T) {
	t.Parallel()
	h := setup(t, stack.Options{Settings: map[string]string{"FENCEPOST_NONCE_DEFER_AFTER": "2s"}})
	operator, thief, shop := h.operator(t), "thief@fencepost.example", stack.CallerAccount
	for i, c := range []struct {
		what    string
		payload map[string]any
		told    string
		expires bool
	}{
		{"a fee of one wei", map[string]any{"to": receiver, "value": "1", "maxFeePerGas": "1"}, "fee: maxFeePerGas is below the base fee; deferred since ", true},
		{"a value above the balance", map[string]any{"to": receiver, "value": "1" + strings.Repeat("0", 30)}, "balance: ", false},
	} {
		parallel(t, c.what, func(t *testing.T) {
			s := h.Submitters()[i]
			must(operator.SetCallers(h.ctx, string(s), []string{"email:" + shop, "email:" + thief}, nil, "two teams share the account"))(t)
			blocking := intent(s, "blocking")
			blocking["payload"] = c.payload
			if c.expires {
				blocking["validUntil"] = time.Now().UTC().Add(15 * time.Second).Format(time.RFC3339)
			}
			theirs, ours := h.mint(t, map[string]any{"sub": "666", "email": thief, "email_verified": true}), h.token(t, shop)
			head := h.call(t, theirs, http.MethodPost, "/api/v1/tx", blocking)
			head.wantStatus(t, "the head", http.StatusAccepted)
			behind := []string{h.posted(t, theirs, s, "behind-1"), h.posted(t, theirs, s, "behind-2")}
			for n := range 3 { // each is mined and final before the next goes
				h.await(t, h.posted(t, ours, s, fmt.Sprint("ours-", n)), "CONFIRMED")
			}
			told := h.says(t, `select state || ' ' || coalesce(last_error, '') from managed_tx where tx_id = $1`, head.TxID)
			if !strings.HasPrefix(told, "QUEUED "+c.told) || !strings.Contains(told, "; deferred since ") {
				t.Errorf("got %q, want it QUEUED, deferred, and told why", told)
			}
			h.wantCount(t, "its caller's waiting behind it", len(behind), `select count(*) from managed_tx where tx_id = any($1) and state = 'QUEUED' and nonce is null`, behind)
			want := "EXPIRED"
			if !c.expires {
				want = "CANCELLED"
				h.call(t, theirs, http.MethodPost, "/api/v1/tx/"+head.TxID+"/cancel", nil).wantStatus(t, "cancel", http.StatusOK)
			}
			h.await(t, head.TxID, "FAILED")
			for _, id := range behind {
				h.await(t, id, "CONFIRMED")
			}
			h.wantCount(t, "the first, ended "+want+" without a nonce", 1, `select count(*) from managed_tx where tx_id = $1 and sub_state = $2 and nonce is null`, head.TxID, want)
			h.wantCount(t, "pairs of one caller's out of their order", 0,
				`select count(*) from managed_tx a join managed_tx b using (submitter, caller) where a.submitter = $1 and a.seq < b.seq and a.nonce > b.nonce`, s)
		})
	}
}

// posted posts an intent with the token, which must be taken.
func (h deployment) posted(t *testing.T, token string, s txmanager.Submitter, requestID string) string {
	t.Helper()
	a := h.post(t, token, s, requestID)
	a.wantStatus(t, requestID, http.StatusAccepted)
	return a.TxID
}
