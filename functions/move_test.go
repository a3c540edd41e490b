package functions_test

import (
	"testing"

	"github.com/fencepost/fencepost/shared/check"
)

// While a database move is expected, a request to store something is refused with a separate code and
// stores no row. Reads continue. Afterwards all calls succeed.
func TestExpectedMoveIsReported(t *testing.T) {
	t.Parallel()
	h := buildWithShop(t)
	before := h.createTx("before")
	h.run(`insert into database_move (mark, from_system, from_timeline, by, reason) values ('m', 1, 1, 'o', 'r')`)
	for what, got := range map[string]answer{
		"create":   h.as("shop", "POST", "/api/v1/tx", intentOf("meanwhile")),
		"batch":    h.as("shop", "POST", "/api/v1/tx:batch", map[string]any{"intents": []any{intentOf("one"), intentOf("two")}}),
		"suspend":  h.as("ann", "POST", "/admin/v1/submitters/"+shopAccount+"/suspend", map[string]any{"reason": "r"}),
		"transfer": h.post(alice, nil),
	} {
		check.Equal(t, what, got.is("code"), "503 MOVE_EXPECTED")
	}
	check.Equal(t, "read", h.as("shop", "GET", "/api/v1/tx/"+before, nil).is("state"), "200 QUEUED")
	check.Equal(t, "release-untouched meanwhile", h.as("ann", "POST", "/admin/v1/database/release-untouched", map[string]any{"reason": "r"}).is("code"), "409 NOT_A_PLANNED_MOVE")
	h.run(`update database_move set outcome = 'CANCELLED', ended_at = now(), ended_by = 'o', ended_reason = 'r'`)
	h.createTx("meanwhile")
}
