package store_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// H7: a unique key must hold for ever. In a table that is partitioned by time it would not,
// and the same request could run twice around midnight.
func TestH07KeysWithAPromiseLiveForEver(t *testing.T) {
	t.Parallel()
	t.Run("the catalog", func(t *testing.T) {
		t.Parallel()
		db := storetest.New(t)
		for _, key := range []struct {
			table   string
			columns []string
		}{
			{"managed_tx", []string{"submitter", "request_id"}},
			{"managed_tx", []string{"submitter", "nonce"}},
			{"tx_version", []string{"tx_hash"}},
		} {
			slices.Sort(key.columns)
			if n := value[int](t, db, uniqueForEver, key.table, key.columns); n != 1 {
				t.Errorf("%s %v: got %d unique constraints over all rows of one ordinary table, want 1", key.table, key.columns, n)
			}
		}
		want := []string{"tx_document", "tx_history"}
		if diff := cmp.Diff(want, value[[]string](t, db, partitioned)); diff != "" {
			t.Errorf("tables with partitions, none with a promise in its key (-want +got):\n%s", diff)
		}
	})
	t.Run("one request around midnight", requestAroundMidnight)
	t.Run("one nonce around midnight", nonceAroundMidnight)
	t.Run("one hash around midnight", hashAroundMidnight)
}

// uniqueForEver counts the constraints that keep exactly these columns unique:
// checked at once, over every row, on a table that is no partition and has none.
const uniqueForEver = `
select count(*)
  from pg_constraint k
  join pg_class c on c.oid = k.conrelid
  join pg_index i on i.indexrelid = k.conindid
 where c.oid = $1::regclass and k.contype in ('p', 'u') and not k.condeferrable
   and i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null
   and c.relkind = 'r' and c.relpersistence = 'p' and not c.relispartition
   and not exists (select from pg_inherits h where c.oid in (h.inhrelid, h.inhparent))
   and array(select a.attname::text from pg_attribute a
              where a.attrelid = c.oid and a.attnum = any (k.conkey) order by 1) = $2`

// partitioned names each tree of tables by its root, and foreign tables.
const partitioned = `
select array(select distinct coalesce(pg_partition_root(c.oid), h.inhparent, c.oid)::regclass::text
  from pg_class c
  left join pg_inherits h on h.inhrelid = c.oid
 where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'f')
   and (c.relkind <> 'r' or h.inhparent is not null)
 order by 1)`

// The two sides of a midnight.
const (
	lateEvening = `timestamptz '2026-06-30 23:59:59+00'`
	nextMorning = `timestamptz '2026-07-01 00:00:01+00'`
)

// requestAroundMidnight posts one request on both sides, and again years later.
func requestAroundMidnight(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 1)
	insert := func(at string) error {
		in := intent(alice, "order-1")
		_, err := db.DB.Exec(t.Context(), withPayload(`
			insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, created_at, updated_at)
			values ($1, $2, $3, 'shop', $4, `+at+`, `+at+`)`), in.TxID, alice, in.RequestID, in.Fingerprint[:])
		return err
	}
	if err := insert(lateEvening); err != nil {
		t.Fatal(err)
	}
	stored := value[string](t, db, `select tx_id::text from managed_tx`)
	for _, at := range []string{nextMorning, lateEvening, lateEvening + ` + interval '30 years'`, `'infinity'`} {
		if err := insert(at); violated(err) != "one_tx_per_request" {
			t.Errorf("the same request at %s: got refused by %s, want by one_tx_per_request", at, violated(err))
		}
	}
	if again := post(t, db, alice, "order-1"); again.New || again.TxID != stored {
		t.Errorf("posted again today: got %+v, want the stored %s", again, stored)
	}
	if n := value[int](t, db, `select count(*) from managed_tx`); n != 1 {
		t.Errorf("rows of one request: got %d, want 1", n)
	}
}

// nonceAroundMidnight binds one nonce on both sides.
func nonceAroundMidnight(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 2)
	post(t, db, alice, "first")
	post(t, db, alice, "second")
	run(t, db, `update managed_tx set created_at = `+lateEvening+` where request_id = 'first'`)
	run(t, db, `update managed_tx set created_at = `+nextMorning+` where request_id = 'second'`)
	const bind = `update managed_tx set state = 'IN_FLIGHT', nonce = 0, updated_at = created_at where request_id = $1`
	run(t, db, bind, "first")
	run(t, db, withPayload(`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce, state, created_at)
		values (gen_random_uuid(), $1, 'between', 'shop', sha256(''), 1, 0, 'IN_FLIGHT', `+lateEvening+`)`), alice)
	for _, again := range []string{"nonce = 0", "nonce = 1, prev_nonce = 0"} {
		_, err := db.DB.Exec(t.Context(), `update managed_tx set state = 'IN_FLIGHT', `+again+` where request_id = 'second'`)
		if violated(err) != "one_tx_per_nonce" {
			t.Errorf("%s again after midnight: got refused by %s, want by one_tx_per_nonce", again, violated(err))
		}
	}
}

// hashAroundMidnight stores one version's hash on both sides, for two
// transactions.
func hashAroundMidnight(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	db.Register(t, alice, 2)
	post(t, db, alice, "first")
	post(t, db, alice, "second")
	w := take(t, db, alice, "a/1")
	all := allocations(w, true)
	all[1].Signed = nil
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: all})
	for _, at := range []string{lateEvening, nextMorning} {
		_, err := db.DB.Exec(t.Context(), `
			insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, fencing_token, created_at)
			select f.tx_hash, s.tx_id, s.submitter, s.nonce, 1, 'ORIGINAL', 1, `+at+`
			  from tx_version f, managed_tx s where s.request_id = 'second'`)
		if violated(err) != "tx_version_pkey" {
			t.Errorf("the hash of another transaction's version at %s: got refused by %s, want by tx_version_pkey", at, violated(err))
		}
	}
}
