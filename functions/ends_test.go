package functions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
)

// An operator ends a finding by an adjustment, once, with a name and a reason. From then on the check
// is ok. A wrong request is refused with its field.
func TestAnOperatorAdjustsAFinding(t *testing.T) {
	t.Parallel()
	h := build(t)
	ann := h.clientOf(h.callerToken("ann"))
	for _, move := range []string{"balance", "journal"} {
		check.OK(t)(ann.CheckConservation(t.Context(), false))
		h.run(`update balances_tb set available = available - 0.000001 where user_id = $1 and asset_id = 1`, alice)
		check.Equal(t, "stolen", check.Value(ann.CheckConservation(t.Context(), false))(t).Result, "violated")
		found := check.Value(ann.Conservation(t.Context()))(t).LastCheck.Found
		if len(found) != 1 {
			t.Fatalf("standing: got %v, want one", found)
		}
		id := found[0].ID
		path := fmt.Sprintf("/admin/v1/conservation/findings/%d/adjust", id)
		for field, body := range map[string]members{"move": {"move": "both", "reason": "r"}, "reason": {"move": "journal", "reason": " "}} {
			check.Equal(t, fmt.Sprint(body), h.as("ann", "POST", path, body).is("code", "field"), "400 INVALID_FIELD "+field)
		}
		got, err := ann.AdjustFinding(t.Context(), id, move, "the auditor has the case")
		if err != nil || got.Units != "1" || got.Side != "FUNDING" || !strings.HasPrefix(got.Op, move) || got.By == "" {
			t.Fatalf("adjust: got %+v, %v", got, err)
		}
		refused(t, "again", "TOO_LATE")(ann.AdjustFinding(t.Context(), id, move, "again"))
		for _, full := range []bool{false, true} {
			check.Equal(t, fmt.Sprint("adjusted, full ", full), check.Value(ann.CheckConservation(t.Context(), full))(t).Result, "ok")
		}
		refused(t, "once it is right", "NOT_FOUND")(ann.AdjustFinding(t.Context(), id, move, "again"))
	}
}

// An operator acknowledges the alert of a transfer in flight. It is shown with the operator, the
// reason and its end.
func TestAnOperatorAcknowledges(t *testing.T) {
	t.Parallel()
	h := impatient(t)
	reqID := h.pending()
	ann := h.clientOf(h.callerToken("ann"))
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	check.OK(t)(ann.AcknowledgeTransfer(t.Context(), reqID, "I repair the core", until))
	path, end := "/admin/v1/transfers/"+reqID, until.Format(time.RFC3339)
	check.Equal(t, "shown", h.as("ann", "GET", path+"/why", nil).is("acknowledged.reason", "acknowledged.until", "acknowledged.state", "acknowledged.by"),
		"200 I repair the core "+end+" TARGET_PENDING email:ann@fencepost.example")
	for _, c := range []struct {
		act   string
		body  members
		field string
	}{
		{"/acknowledge", members{"reason": "r", "until": "tomorrow"}, "until"},
		{"/acknowledge", members{"until": end}, "reason"},
		{"/resolve", members{"op": "deposit", "reason": "r", "line": 5}, "line"},
		{"/resolve", members{"op": "deposit", "reason": "r", "outcome": "perhaps"}, "outcome"},
	} {
		check.Equal(t, fmt.Sprint(c.act, c.body), h.as("ann", "POST", path+c.act, c.body).is("code", "field"), "400 INVALID_FIELD "+c.field)
	}
	refused(t, "over", "INVALID_FIELD")(ann.AcknowledgeTransfer(t.Context(), reqID, "r", time.Now().Add(-time.Hour)))
	refused(t, "too far ahead", "INVALID_FIELD")(ann.AcknowledgeTransfer(t.Context(), reqID, "r", time.Now().Add(31*24*time.Hour)))
	refused(t, "in INIT", "TOO_LATE")(ann.AcknowledgeTransfer(t.Context(), h.stored("has not begun"), "r", until))
}
