package migrations

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
)

// Rows that are older than the audit chain are linked in their order, without a login. Later rows are
// linked after them.
func TestOlderDecisionsAreLinked(t *testing.T) {
	t.Parallel()
	databaseURL := empty(t)
	apply(t, databaseURL, until(t, "0012"), 12)
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	const decide = `insert into tx_decision (tx_id, action, by, reason) select tx_id, 'WAIT', 'ann', 'because' from managed_tx`
	const change = `insert into submitter_change (submitter, action, by, reason) select submitter, 'SUSPEND', 'ann', 'because' from submitter`
	do(t, conn, old)
	do(t, conn, decide)
	apply(t, databaseURL, until(t, "0051"), 39)
	do(t, conn, change)
	do(t, conn, decide)
	apply(t, databaseURL, files, len(embedded(t))-51)
	do(t, conn, change)
	s, err := store.Open(t.Context(), store.Options{URL: databaseURL, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.VerifyAudit(t.Context(), nil, nil)
	if err != nil || len(got.Findings) != 0 || got.Links != 14 || got.Older != 13 || got.Unsealed != 14 {
		t.Errorf("got %+v, %v; want 14 links, 13 of older rows, and nothing found", got, err)
	}
}
