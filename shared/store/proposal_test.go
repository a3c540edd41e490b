package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
)

// proposed is a policy for alice that ann proposes and ben has approved.
func proposed(t *testing.T, db storetest.Bundle) store.Proposal {
	t.Helper()
	return db.Approved(t, "policy", "policy", map[string]any{"submitter": string(alice)})
}

func setPolicy(ctx context.Context, db storetest.Bundle, most string, onlyTighter bool) error {
	_, err := db.PutPolicy(ctx, store.PolicyChange{Submitter: alice, Policy: store.Policy{MaxValue: &most}, By: "ann", Reason: "because", OnlyTighter: onlyTighter})
	return err
}

// What two people decided names both, under the chain. A session that names a proposal
// which its transaction does not carry out is not believed.
func TestApprovalsAreInTheChain(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice, bob)
	suspend(t, db, true) // by one person
	p := proposed(t, db)
	check.OK(t)(setPolicy(store.WithProposal(t.Context(), p.ID), db, "7", false))
	db.Run(t, `begin; select set_config('fencepost.proposal', '`+p.ID+`', true); insert into submitter_change (submitter, action, by, reason) values ('`+string(bob)+`', 'RESUME', 'ann', 'because'); commit`)
	var got string
	check.OK(t)(db.DB.QueryRow(t.Context(), `select string_agg(action || ' ' || coalesce(approved_by, 'nobody') || ' ' || (proposal is not null), ', ' order by id) from submitter_change`).Scan(&got))
	if want := "SUSPEND nobody false, POLICY ben true, RESUME nobody false"; got != want {
		t.Errorf("on record: got %s, want %s", got, want)
	}
	if found := verify(t, db, nil); len(found.Findings) != 0 || found.Links != 3 {
		t.Errorf("got %+v, want 3 links, and nothing found", found)
	}
	db.Run(t, `begin; set local session_replication_role = replica; update submitter_change set approved_by = 'cat' where action = 'POLICY'; commit`)
	if found := verify(t, db, nil); len(found.Findings) != 1 || !strings.Contains(found.Findings[0], "does not fit its row") {
		t.Errorf("with another approver: got %q, want it found", found.Findings)
	}
}

// The act's own transaction compares: where the state has changed since the approval nothing
// is written, and no proposal is carried out twice.
func TestAProposalIsCarriedOutInTheTransactionOfItsAct(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	stale := proposed(t, db)
	check.OK(t)(setPolicy(t.Context(), db, "3", false))
	done := proposed(t, db)
	check.OK(t)(setPolicy(store.WithProposal(t.Context(), done.ID), db, "7", false))
	for name, id := range map[string]string{"stale": stale.ID, "carried out": done.ID} {
		if err := setPolicy(store.WithProposal(t.Context(), id), db, "9", false); !store.IsProposalGone(err) {
			t.Errorf("%s: got %v, want it gone", name, err)
		}
	}
	view, err := db.Submitter(t.Context(), alice)
	if err != nil || !strings.Contains(string(view.Policy), `"maxValue": "7"`) {
		t.Errorf("policy: got %s, %v; want 7", view.Policy, err)
	}
	// The same at once: one of them.
	p, errs := proposed(t, db), make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = setPolicy(store.WithProposal(t.Context(), p.ID), db, fmt.Sprint(100+i), false) })
	}
	all.Wait()
	carried := 0
	for _, err := range errs {
		if err == nil {
			carried++
		} else if !store.IsProposalGone(err) {
			t.Errorf("at once: got %v, want it gone", err)
		}
	}
	check.Equal(t, "at once", carried, 1)
}

// Concurrent policy changes that may only tighten never loosen: each is compared with the one
// that it replaces. Each iteration proposes tighter ones than the iteration before, so that many are set.
func TestPoliciesAtOnceOnlyTighten(t *testing.T) {
	t.Parallel()
	const rounds = 10
	db := registered(t, 1, alice)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range rounds {
				if err := setPolicy(t.Context(), db, fmt.Sprint(1000*(rounds-i)+rand.N(1000)), true); err != nil && !errors.Is(err, store.ErrNotTighter) {
					t.Errorf("set: %v", err)
				}
			}
		})
	}
	all.Wait()
	var set, looser int
	err := db.DB.QueryRow(t.Context(), `
		select count(*), count(*) filter (where most > before)
		  from (select (policy ->> 'maxValue')::numeric as most, lag((policy ->> 'maxValue')::numeric) over (order by id) as before from submitter_change) as c`).Scan(&set, &looser)
	if err != nil || set < rounds || looser != 0 {
		t.Errorf("got %d policies set, %d looser than the one before, %v; want at least %d, and none", set, looser, err, rounds)
	}
}

// A transaction that waits for another ledger survives a call without an answer, under the time-outs that are deployed.
func TestTransactionSurvivesALedgerWithoutAnswer(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	if major := value[int](t, db, `select current_setting('server_version_num')::int / 10000`); major < 17 {
		t.Skipf("Left out: Postgres %d has no transaction_timeout", major)
	}
	tx := check.Value(db.DB.Begin(t.Context()))(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	check.OK(t)(tx.Exec(t.Context(), `set local transaction_timeout = '10s'; set local idle_in_transaction_session_timeout = '1s'`))
	silent := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(15 * time.Second):
			return errors.New("waited for 15 s")
		}
	}
	check.Err(t, "a ledger without an answer", context.DeadlineExceeded)(0, store.AwaitLedger(t.Context(), tx, silent))
	check.OK(t)(tx.Exec(t.Context(), `select pg_sleep(1)`)) // the act can still say what it did
}
