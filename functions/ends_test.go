package functions_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/client"
)

// An operator ends a finding by an adjustment, once, with a name and a reason. From then on the check
// is ok. A wrong request is refused with its field.
func TestAnOperatorAdjustsAFinding(t *testing.T) {
	t.Parallel()
	h := build(t)
	ann := h.clientOf(h.callerToken("ann"))
	for _, move := range []string{"balance", "journal"} {
		if _, err := ann.CheckConservation(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		h.run(`update balances_tb set available = available - 0.000001 where user_id = $1 and asset_id = 1`, alice)
		if report, err := ann.CheckConservation(t.Context(), false); err != nil || report.Result != "violated" {
			t.Fatalf("stolen: got %+v, %v; want violated", report, err)
		}
		shown := h.as("ann", "GET", "/admin/v1/conservation", nil)
		found := shown.body["last_check"].(map[string]any)["found"].([]any)
		if len(found) != 1 {
			t.Fatalf("standing: got %v, want one", found)
		}
		id := int64(found[0].(map[string]any)["id"].(float64))
		path := fmt.Sprintf("/admin/v1/conservation/findings/%d/adjust", id)
		for want, body := range map[string]map[string]any{
			"move": {"move": "both", "reason": "r"}, "reason": {"move": "journal", "reason": " "},
		} {
			if got := h.as("ann", "POST", path, body).is("code", "field"); got != "400 INVALID_FIELD "+want {
				t.Errorf("%v: got %s, want the field %s", body, got, want)
			}
		}
		got, err := ann.AdjustFinding(t.Context(), id, move, "the auditor has the case")
		if err != nil || got.Units != "1" || got.Side != "FUNDING" || !strings.HasPrefix(got.Op, move) || got.By == "" {
			t.Fatalf("adjust: got %+v, %v", got, err)
		}
		if _, err := ann.AdjustFinding(t.Context(), id, move, "again"); !codeIs(err, "TOO_LATE") {
			t.Errorf("again: got %v, want TOO_LATE", err)
		}
		for _, full := range []bool{false, true} {
			if report, err := ann.CheckConservation(t.Context(), full); err != nil || report.Result != "ok" {
				t.Errorf("adjusted, full %t: got %+v, %v; want ok", full, report, err)
			}
		}
		if _, err := ann.AdjustFinding(t.Context(), id, move, "again"); !codeIs(err, "NOT_FOUND") {
			t.Errorf("once it is right: got %v, want NOT_FOUND", err)
		}
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
	why := h.as("ann", "GET", "/admin/v1/transfers/"+reqID+"/why", nil)
	got, _ := why.body["acknowledged"].(map[string]any)
	if got["reason"] != "I repair the core" || got["until"] != until.Format(time.RFC3339) || got["state"] != "TARGET_PENDING" || got["by"] == "" {
		t.Errorf("shown: got %v", why.body["acknowledged"])
	}
	path := "/admin/v1/transfers/" + reqID + "/acknowledge"
	for want, body := range map[string]map[string]any{
		"until": {"reason": "r", "until": "tomorrow"}, "reason": {"until": until.Format(time.RFC3339)},
	} {
		if got := h.as("ann", "POST", path, body).is("code", "field"); got != "400 INVALID_FIELD "+want {
			t.Errorf("%v: got %s, want the field %s", body, got, want)
		}
	}
	for what, past := range map[string]time.Time{"over": time.Now().Add(-time.Hour), "too far ahead": time.Now().Add(31 * 24 * time.Hour)} {
		if err := ann.AcknowledgeTransfer(t.Context(), reqID, "r", past); !codeIs(err, "INVALID_FIELD") {
			t.Errorf("%s: got %v, want INVALID_FIELD", what, err)
		}
	}
	if err := ann.AcknowledgeTransfer(t.Context(), h.stored("has not begun"), "r", until); !codeIs(err, "TOO_LATE") {
		t.Errorf("in INIT: got %v, want TOO_LATE", err)
	}
	if got := h.as("ann", "POST", "/admin/v1/transfers/"+reqID+"/resolve", members{"op": "deposit", "reason": "r", "line": 5}).is("code", "field"); got != "400 INVALID_FIELD line" {
		t.Errorf("a line without outcome: got %s", got)
	}
	if got := h.as("ann", "POST", "/admin/v1/transfers/"+reqID+"/resolve", members{"op": "deposit", "reason": "r", "outcome": "perhaps"}).is("code", "field"); got != "400 INVALID_FIELD outcome" {
		t.Errorf("another outcome: got %s", got)
	}
}

func codeIs(err error, code string) bool {
	var p *client.Problem
	return errors.As(err, &p) && p.Code == code
}
