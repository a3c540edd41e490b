package transfers_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/shared/transfer"
)

// H7: a key that prevents a second effect holds permanently, over all rows of an ordinary table: the
// same cid around midnight, or years later, is the same transfer.
func TestH07KeysWithAPromiseLiveForEver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, key := range [][]string{{"user_id", "cid"}, {"req_id"}, {"transfer_id"}} {
		slices.Sort(key)
		n := value[int](t, b, `
			select count(*)
			  from pg_constraint k join pg_class c on c.oid = k.conrelid join pg_index i on i.indexrelid = k.conindid
			 where c.oid = 'transfers_tb'::regclass and k.contype in ('p', 'u') and not k.condeferrable
			   and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
			   and c.relkind = 'r' and c.relpersistence = 'p' and not c.relispartition
			   and not exists (select from pg_inherits h where c.oid in (h.inhrelid, h.inhparent))
			   and array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum = any (k.conkey) order by 1) = $1`, key)
		if n != 1 {
			t.Errorf("%v: got %d unique constraints over all rows of one ordinary table, want 1", key, n)
		}
	}
	stored := request("c-1")
	const insert = `insert into transfers_tb (req_id, cid, user_id, asset_id, amount, precision, transfer_type, source_type, created_at, updated_at, state_at)
		values ($1, 'c-1', 7, 1, 1.5, 6, 1, 1, $2::text::timestamptz, $2::text::timestamptz, $2::text::timestamptz)`
	b.run(t, insert, stored.ReqID, "2026-06-30 23:59:59+00")
	for _, at := range []string{"2026-06-30 23:59:59+00", "2026-07-01 00:00:01+00", "2056-06-30 00:00:00+00", "infinity"} {
		if _, err := b.DB.Exec(t.Context(), insert, request("").ReqID, at); violated(err) != "one_transfer_per_cid" {
			t.Errorf("the same cid at %s: got refused by %s, want by one_transfer_per_cid", at, violated(err))
		}
		if _, err := b.DB.Exec(t.Context(), insert, stored.ReqID, at); violated(err) == "none (error <nil>)" {
			t.Errorf("the same req_id at %s: got it stored", at)
		}
	}
	if again, err := b.Create(t.Context(), request("c-1"), terms); err != nil || again.New || again.ReqID != stored.ReqID {
		t.Errorf("asked again today: got %+v, %v; want the stored %s", again, err, stored.ReqID)
	}
	other := request("c-1")
	other.Amount = amount(t, "2")
	if _, err := b.Create(t.Context(), other, terms); !errors.Is(err, transfer.ErrCIDConflict) {
		t.Errorf("another body: got %v, want a conflict", err)
	}
}
