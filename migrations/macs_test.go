package migrations

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
)

// A database without submitters at the migration requires MACs. One with submitters waits for its
// owner's decision.
func TestANewDatabaseDemandsMACs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before string
		want   int
	}{
		"new":      {"", 1},
		"upgraded": {`insert into submitter (submitter, signer, start_nonce, max_in_flight, callers, created_by) values ('eip155:1:0x0000000000000000000000000000000000000ca0', 'local', 0, 1, '{sub:1}', 'test')`, 0},
	} {
		databaseURL := empty(t)
		apply(t, databaseURL, files, len(embedded(t)))
		conn, err := pgx.Connect(t.Context(), databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		provider, err := open(databaseURL, files, nil)
		if err != nil {
			t.Fatal(err)
		}
		back, err := provider.DownTo(t.Context(), 49)
		if err = errors.Join(err, provider.Close()); err != nil || len(back) == 0 {
			t.Fatalf("%s: take back the migration: %v", name, err)
		}
		if _, err := conn.Exec(t.Context(), c.before); err != nil {
			t.Fatal(err)
		}
		apply(t, databaseURL, files, len(back))
		if got := count(t, databaseURL, `select count(*) from intent_mac_rule where required and intents_upto = 0`); got != c.want {
			t.Errorf("%s: rules that demand MACs: got %d, want %d", name, got, c.want)
		}
	}
}
