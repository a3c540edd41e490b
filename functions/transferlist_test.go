package functions_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// An operator lists the transfers of all users by state, user, asset and age, page by page. Filters that no index
// answers are refused, and so are other callers.
func TestOperatorListsAllTransfers(t *testing.T) {
	t.Parallel()
	h := build(t)
	var ids []string
	for _, user := range []int64{alice, bob, alice} {
		ids = append(ids, fmt.Sprint(h.post(user, nil).body["req_id"]))
	}
	slices.Reverse(ids)
	failed := fmt.Sprint(h.post(bob, map[string]any{"amount": "999999"}).body["req_id"])
	hourAgo, soon := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	committed := strings.Join(ids, " ")
	all := failed + " " + committed
	for query, want := range map[string]string{
		"":                              all,
		"&state=COMMITTED":              committed,
		"&state=FAILED":                 failed,
		"&state=FAILED&asset=USDT":      failed,
		"&state=FAILED&asset=HUGE":      "",
		"&state=TARGET_PENDING":         "",
		"&user=7":                       ids[0] + " " + ids[2],
		"&user=8&state=FAILED":          failed,
		"&user=7&asset=USDT":            ids[0] + " " + ids[2],
		"&user=9":                       "",
		"&user=8&asset=USDT&state=INIT": "",

		"&before=" + hourAgo:                       "",
		"&before=" + soon:                          all,
		"&before=" + soon + "&state=COMMITTED":     committed,
		"&before=" + soon + "&user=8&state=FAILED": failed,
	} {
		rows := h.allRows("transfers", "/admin/v1/transfers", query, 2)
		check.Equal(t, query, column(rows, "req_id"), want)
		for _, one := range rows {
			if one["user_id"] != float64(alice) && one["user_id"] != float64(bob) || one["created_at"] == nil {
				t.Errorf("%s: got %v, want its user and times", query, one)
			}
		}
	}
	for query, want := range map[string]string{
		"?asset=USDT": "400 INVALID_FIELD asset", "?asset=USDT&state=COMMITTED": "400 INVALID_FIELD asset", "?state=DONE": "400 INVALID_FIELD state",
		"?user=0": "400 INVALID_FIELD user", "?user=x": "400 INVALID_FIELD user", "?before=yesterday": "400 INVALID_FIELD before",
	} {
		check.Equal(t, query, h.as("ann", "GET", "/admin/v1/transfers"+query, nil).is("code", "field"), want)
	}
	says(t, "no index", h.as("ann", "GET", "/admin/v1/transfers?asset=USDT", nil).is("detail"), "give user too")
	got, err := collect(h.clientOf(h.callerToken("ann")).ListAllTransfers(t.Context(), client.AllTransfersQuery{UserID: bob, Before: time.Now().Add(time.Hour)}), func(x client.OperatorsTransfer) string { return x.ReqID })
	check.Equal(t, fmt.Sprintf("by the client, error: %v", err), got, failed+" "+ids[1])
}
