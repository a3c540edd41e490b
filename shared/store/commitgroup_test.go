package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/telemetry"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// ready is a new database with n submitters, each with a lease of owner a/1 and three queued intents.
func ready(t *testing.T, n int) (db storetest.Bundle, states []txmanager.SubmitterState) {
	t.Helper()
	db = storetest.New(t)
	for i := range n {
		db.Register(t, numbered(i), 10)
		postAll(t, db, numbered(i), "one", "two", "three")
		states = append(states, take(t, db, numbered(i), "a/1"))
	}
	return db, states
}

// remarks is a commit for each state that writes the reason to its first queued row.
func remarks(states []txmanager.SubmitterState, reason string, end txmanager.LeaseEnd) (all []txmanager.Commit) {
	for _, w := range states {
		all = append(all, txmanager.Commit{Lease: w.Lease, Transitions: []txmanager.Transition{remark(w.Queue[0], reason)}, LeaseEnd: end})
	}
	return all
}

// ofSubmitter are the rows that belong to a submitter.
func ofSubmitter(t *testing.T, db storetest.Bundle, sub txmanager.Submitter) (rows []string) {
	for _, table := range []string{"submitter_lease", "managed_tx", "tx_version", "submitter_nonce_cursor", "submitter_fee", "tx_history"} {
		rows = append(rows, value[[]string](t, db, `select array(select to_jsonb(r)::text from `+table+` r where r.submitter = $1 order by 1)`, sub)...)
	}
	return rows
}

// answersOf waits for each answer.
func answersOf(answers []<-chan store.CommitAnswer) (all []store.CommitAnswer) {
	for _, a := range answers {
		all = append(all, <-a)
	}
	return all
}

// Commits of many submitters that are made at one time take fewer round trips than there are commits.
func TestCommitsOfManySubmittersShareRoundTrips(t *testing.T) {
	t.Parallel()
	const n = 32
	db, states := ready(t, n)
	ctx := telemetry.WithMeter(t.Context())
	var all sync.WaitGroup
	for _, w := range remarks(states, "shared", txmanager.ReleaseUnlessRerun) {
		all.Go(func() {
			done, err := db.Commit(ctx, w)
			check.Err(t, w.Lease.Submitter, nil)(err)
			check.Equal(t, w.Lease.Submitter, done, txmanager.CommitResult{Transitioned: 1, Released: true, Token: 1, Queued: 3})
		})
	}
	all.Wait()
	if got := telemetry.MeterFrom(ctx).Cost(); got.SQLRoundTrips >= n || got.Commits != got.SQLRoundTrips {
		t.Errorf("cost of %d commits: got %+v, want fewer round trips", n, got)
	}
	check.Equal(t, "rows with the reason", value[int](t, db, `select count(*) from managed_tx where last_error = 'shared'`), n)
}

// A commit whose lease is not held any more is refused and writes nothing. The others are stored.
func TestAFencedCommitFailsNoOther(t *testing.T) {
	t.Parallel()
	lost := []string{
		`owner_node = 'b/1', fencing_token = fencing_token + 1`, `owner_node = 'b/1'`, `fencing_token = fencing_token + 1`,
		`owner_node = ''`, `expires_at = clock_timestamp()`,
	}
	db, states := ready(t, 2*len(lost))
	var commits []txmanager.Commit
	before := make([][]string, len(states))
	for i, w := range states {
		if i%2 == 0 {
			db.Run(t, `update submitter_lease set `+lost[i/2]+` where submitter = $1`, numbered(i))
		}
		before[i] = ofSubmitter(t, db, numbered(i))
		wr := everything(w)
		wr.Fees = []txmanager.FeeUse{{TxID: w.Queue[1].ID, AddedWei: big.NewInt(5)}}
		commits = append(commits, wr)
	}
	for i, a := range answersOf(db.CommitTogether(t.Context(), commits...)) {
		if i%2 == 0 {
			if !errors.Is(a.Err, lease.ErrFenced) || a.Done != (txmanager.CommitResult{}) {
				t.Errorf("after %q: got %+v, want nothing and %v", lost[i/2], a, lease.ErrFenced)
			}
			check.Same(t, "a fenced commit wrote", ofSubmitter(t, db, numbered(i)), before[i])
			continue
		}
		check.Same(t, "a commit beside it", a, store.CommitAnswer{Done: txmanager.CommitResult{Transitioned: 1, Allocated: 1, Released: true, Token: 1, Queued: 2}})
	}
	check.Equal(t, "rows with a fee", value[int](t, db, `select count(*) from submitter_fee`), len(lost))
}

// A commit whose lease row another session has locked goes alone, and delays no other.
func TestALockedLeaseDelaysNoOther(t *testing.T) {
	t.Parallel()
	db, states := ready(t, 3)
	other := db.Holding(t, `select from submitter_lease where submitter = $1 for update`, numbered(1))
	answers := db.CommitTogether(t.Context(), remarks(states, "written", txmanager.ReleaseUnlessRerun)...)
	for _, i := range []int{0, 2} {
		check.Equal(t, "a commit beside it", <-answers[i], store.CommitAnswer{Done: txmanager.CommitResult{Transitioned: 1, Released: true, Token: 1, Queued: 3}})
	}
	db.AwaitBlocked(t, "require_lease")
	check.Equal(t, "written while the row is locked", value[int](t, db, `select count(*) from managed_tx where last_error = 'written'`), 2)
	other.Do("commit")
	alone := store.CommitAnswer{Done: txmanager.CommitResult{Transitioned: 1, Released: true, Token: 1, Queued: 3}, Alone: true}
	check.Equal(t, "the one whose row was locked", <-answers[1], alone)
}

// What the database refuses because of one commit is refused to that one only.
func TestARefusedCommitFailsAlone(t *testing.T) {
	t.Parallel()
	db, states := ready(t, 4)
	first := states[3]
	write(t, db, txmanager.Commit{Lease: first.Lease, Allocations: allocations(first, true)[:1]})
	commits := make([]txmanager.Commit, 3)
	for i, w := range states[:3] {
		commits[i] = txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true), LeaseEnd: txmanager.ReleaseUnlessRerun}
	}
	taken := storetest.Signed(numbered(1), 0, first.Queue[0].ID)
	commits[1].Allocations[0].Signed = &taken
	before := ofSubmitter(t, db, numbered(1))
	for i, a := range answersOf(db.CommitTogether(t.Context(), commits...)) {
		switch {
		case i == 1:
			check.Equal(t, "a hash that is bound already", storetest.Violated(a.Err), "tx_version_pkey")
			check.Same(t, "the refused commit wrote", ofSubmitter(t, db, numbered(1)), before)
		case a.Err != nil || a.Done.Allocated != 3:
			t.Errorf("commit %d: got %+v, want three allocated", i, a)
		}
	}
}

// What a trigger refuses, or a row that stays locked, fails one commit only too.
func TestATriggerOrALockFailsOneCommit(t *testing.T) {
	t.Parallel()
	db, states := ready(t, 6)
	db = reopened(t, db, func(o *store.Options) { o.LockTimeout = 200 * time.Millisecond })
	commits := remarks(states[:3], "written", txmanager.KeepLease)
	forged := allocations(states[1], true)[:1]
	forged[0].Signed.Raw = storetest.Bytes(1337, 5, numbered(9).Address(), 0, "") // for another nonce
	commits[1] = txmanager.Commit{Lease: states[1].Lease, Allocations: forged}
	answers := answersOf(db.CommitTogether(t.Context(), commits...))
	check.Equal(t, "bytes for another nonce", storetest.Violated(answers[1].Err), "bytes_match_nonce")
	check.Equal(t, "others", [2]store.CommitAnswer{answers[0], answers[2]}, [2]store.CommitAnswer{{Done: txmanager.CommitResult{Transitioned: 1}, Alone: true}, {Done: txmanager.CommitResult{Transitioned: 1}, Alone: true}})

	db.Holding(t, `select from managed_tx where tx_id = $1 for update`, states[4].Queue[0].ID)
	answers = answersOf(db.CommitTogether(t.Context(), remarks(states[3:], "written", txmanager.KeepLease)...))
	if outcomeOf(answers[1].Err) != "55P03" || answers[0].Err != nil || answers[2].Err != nil {
		t.Errorf("beside a locked transaction: got %+v, want lock_timeout for the second only", answers)
	}
}

// Each submitter's nonces are contiguous from its own cursor on, whatever happened to a queued row.
func TestAllocationsOfManySubmittersAreContiguous(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	var states []txmanager.SubmitterState
	var commits []txmanager.Commit
	for i := range 4 {
		db.Register(t, numbered(i), 10)
		postAll(t, db, numbered(i), "one", "two")
		in := intent(numbered(i), "three")
		if i == 2 {
			soon := time.Now().Add(300 * time.Millisecond)
			in.ValidUntil = &soon
		}
		check.OK(t)(db.Create(t.Context(), in, 10))
		postAll(t, db, numbered(i), "four")
		w := take(t, db, numbered(i), "a/1")
		states = append(states, w)
		commits = append(commits, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, i != 3), LeaseEnd: txmanager.ReleaseUnlessRerun})
	}
	db.Run(t, cancel, states[1].Queue[1].ID)
	for !value[bool](t, db, `select bool_or(valid_until <= clock_timestamp()) from managed_tx`) {
	}
	want := []int{4, 1, 2, 4}
	for i, a := range answersOf(db.CommitTogether(t.Context(), commits...)) {
		if a.Err != nil || a.Alone || a.Done.Allocated != want[i] {
			t.Errorf("submitter %d: got %+v, want %d allocated", i, a, want[i])
		}
		nonces := value[[]int](t, db, `select array(select nonce::int from managed_tx where submitter = $1 and nonce is not null order by seq)`, numbered(i))
		check.Same(t, fmt.Sprintf("nonces of submitter %d", i), nonces, []int{0, 1, 2, 3}[:want[i]])
		check.Equal(t, "next nonce", value[int](t, db, `select next_nonce from submitter_nonce_cursor where submitter = $1`, numbered(i)), want[i])
	}
}

// A rerun flag keeps only its own lease, and a session that ends anyway raises only its own token.
func TestEachLeaseEndsByItself(t *testing.T) {
	t.Parallel()
	db, states := ready(t, 4)
	check.Equal(t, "lease of submitter 1 acquired by another", check.Value(db.Acquire(t.Context(), numbered(1), "b/1", false))(t).Held, false)
	commits := remarks(states, "written", txmanager.ReleaseUnlessRerun)
	commits[2].LeaseEnd, commits[3].LeaseEnd = txmanager.ReleaseAnyway, txmanager.KeepLease
	answers := answersOf(db.CommitTogether(t.Context(), commits...))
	for i, want := range []txmanager.CommitResult{
		{Transitioned: 1, Released: true, Token: 1, Queued: 3}, {Transitioned: 1, Queued: 3}, {Transitioned: 1, Released: true, Token: 2}, {Transitioned: 1},
	} {
		check.Same(t, fmt.Sprintf("commit %d", i), answers[i], store.CommitAnswer{Done: want})
	}
	owners := value[[]string](t, db, `select array_agg(owner_node || ' ' || fencing_token || ' ' || rerun_requested order by submitter) from submitter_lease`)
	check.Same(t, "leases", owners, []string{" 1 false", "a/1 1 true", " 2 false", "a/1 1 false"})
}

// A commit of many rows, or with a part that only one may have, does not share.
func TestSomeCommitsGoAlone(t *testing.T) {
	t.Parallel()
	_, states := ready(t, 1)
	check.Equal(t, "a plain commit shares", store.IsShareable(txmanager.Commit{Lease: states[0].Lease, Allocations: allocations(states[0], true)}), true)
	for name, w := range map[string]txmanager.Commit{
		"an incident":    {Cursor: txmanager.CursorChange{OpenIncident: &txmanager.Violation{}}},
		"a reservation":  {Reservations: make([]txmanager.NewReservation, 1)},
		"a decision":     {Transitions: []txmanager.Transition{{From: txmanager.InFlight, To: txmanager.Tx{State: txmanager.InFlight}, Decision: &txmanager.Decision{}}}},
		"a reused nonce": {Allocations: []txmanager.Allocation{{FromReservation: "x"}}},
		"many rows":      {Allocations: make([]txmanager.Allocation, 500)},
	} {
		check.Equal(t, name+" shares", store.IsShareable(w), false)
	}
}

// After the commit nothing is repeated: where the query of the queues fails, each submitter gets an advance, as if
// intents had joined its queue.
func TestNothingIsRepeatedAfterTheCommit(t *testing.T) {
	t.Parallel()
	db, states := ready(t, 6)
	db = reopened(t, db, func(o *store.Options) { o.LockTimeout, o.MaxConns = 200*time.Millisecond, 1 })
	for _, a := range answersOf(db.CommitTogether(t.Context(), remarks(states[3:], "prepared", txmanager.ReleaseUnlessRerun)...)) {
		check.OK(t)(a.Err)
	}
	other := db.Connect(t)
	other.Do("begin")
	other.Do("lock table submitter") // which only the last statement reads
	for i, a := range answersOf(db.CommitTogether(t.Context(), remarks(states[:3], "written", txmanager.ReleaseUnlessRerun)...)) {
		if a.Err != nil || a.Alone || !a.Done.Released || a.Done.Queued < txmanager.AdvanceNowQueue {
			t.Errorf("commit %d: got %+v, want it done and released at the first attempt, with an advance", i, a)
		}
	}
	check.Equal(t, "written and released", value[int](t, db, `select count(*) from managed_tx m join submitter_lease l using (submitter) where m.last_error = 'written' and l.owner_node = ''`), 3)
}

// Two processes commit for the same submitters, in opposite orders. Postgres finds no deadlock.
func TestProcessesCommitInOppositeOrders(t *testing.T) {
	t.Parallel()
	db, states := ready(t, 8)
	before := value[int](t, db, deadlocks)
	rival := reopened(t, db, func(*store.Options) {})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var both sync.WaitGroup
	for p, s := range []*store.Store{db.Store, rival.Store} {
		both.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				commits := remarks(states, fmt.Sprintf("process %d, round %d", p, round), txmanager.KeepLease)
				if p == 1 {
					slices.Reverse(commits)
				}
				for i, a := range answersOf(s.CommitTogether(t.Context(), commits...)) {
					if a.Err != nil || a.Done.Transitioned != 1 {
						t.Errorf("process %d, round %d, commit %d: got %+v", p, round, i, a)
						return
					}
				}
			}
		})
	}
	both.Wait()
	db.Store.Close() // its sessions report their statistics
	rival.Store.Close()
	check.Equal(t, "deadlocks", value[int](t, db, deadlocks)-before, 0)
}

// What commits of several submitters write together is what each writes alone.
func TestTogetherIsAsAlone(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		n := rapid.IntRange(2, 4).Draw(rt, "commits")
		var together, alone []txmanager.Commit
		for i := range n {
			seed := rapid.Uint64().Draw(rt, "seed")
			for k, into := range []*[]txmanager.Commit{&together, &alone} {
				*into = append(*into, randomCommit(t, db, numbered(10*run+2*i+k), seed))
			}
		}
		answers := answersOf(db.CommitTogether(t.Context(), together...))
		for i, w := range alone {
			want, err := db.Commit(t.Context(), w)
			got := answers[i]
			if got.Done != want || outcomeOf(got.Err) != outcomeOf(err) {
				rt.Fatalf("commit %d: got %+v together, %+v, %v alone", i, got, want, err)
			}
			one, other := shown(t, db, together[i].Lease.Submitter), shown(t, db, w.Lease.Submitter)
			if one != other {
				rt.Fatalf("commit %d: stored together\n%s\nalone\n%s", i, one, other)
			}
		}
	})
}

// outcomeOf is what an error says, without ids.
func outcomeOf(err error) string {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, lease.ErrFenced):
		return "fenced"
	case errors.As(err, &pg) && pg.ConstraintName == "":
		return pg.Code
	case errors.As(err, &pg):
		return pg.ConstraintName
	}
	return fmt.Sprint(err)
}

// shown has the rows of a submitter, without ids and times.
func shown(t *testing.T, db storetest.Bundle, sub string) string {
	return value[string](t, db, `
		select concat_ws(e'\n',
		  (select string_agg(concat_ws(' ', m.state, m.sub_state, m.nonce, m.prev_nonce, m.last_error, m.submit_attempts, m.fencing_token, m.event_sequence, m.receipt is null,
		            m.confirmations, m.tx_hash is null, m.first_submit_at is null, m.last_gas_params,
		            (select string_agg(concat_ws(':', v.version, v.kind, v.nonce, v.fencing_token), ',' order by v.version) from tx_version v where v.tx_id = m.tx_id),
		            (select string_agg(d.name, ',' order by d.name) from tx_document d where d.tx_id = m.tx_id),
		            (select string_agg(concat_ws(':', h.from_state, h.state, h.nonce, h.fencing_token), ',' order by h.id) from tx_history h where h.tx_id = m.tx_id)), e'\n' order by m.seq)
		     from managed_tx m where m.submitter = $1),
		  (select concat_ws(' ', next_nonce, in_flight_nonce, in_flight_state, final_block_number, final_blocks, suspected_violation, blocked_callers, fencing_token) from submitter_nonce_cursor where submitter = $1),
		  (select concat_ws(' ', owner_node, fencing_token, rerun_requested) from submitter_lease where submitter = $1),
		  (select string_agg(concat_ws(' ', number, added_wei, total_wei), ', ' order by number) from submitter_fee where submitter = $1))`, sub)
}

// randomCommit registers the submitter, brings it into a random state, and returns a random commit for it.
func randomCommit(t *testing.T, db storetest.Bundle, sub txmanager.Submitter, seed uint64) txmanager.Commit {
	r := rand.New(rand.NewPCG(seed, 0))
	db.Register(t, sub, 10)
	check.OK(t)(db.CreateAll(t.Context(), intents(sub, "", 5), 10))
	w := take(t, db, sub, "a/1")
	if n := r.IntN(3); n > 0 {
		all := allocations(w, r.IntN(2) == 0)[:n]
		write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: all, Fees: []txmanager.FeeUse{{TxID: all[0].Tx.ID, AddedWei: big.NewInt(3)}}})
		w = check.Value(db.BeginIteration(t.Context(), w.Lease, true))(t)
	}
	c := txmanager.Commit{Lease: w.Lease, LeaseEnd: txmanager.LeaseEnd(r.IntN(3))}
	for _, x := range w.Open {
		addStep(r, &c, x)
	}
	all := allocations(w, r.IntN(2) == 0)
	if c.Allocations = all[:r.IntN(len(all))]; len(c.Allocations) > 0 {
		c.Fees = append(c.Fees, txmanager.FeeUse{TxID: all[0].Tx.ID, AddedWei: big.NewInt(7)})
	}
	if last := len(w.Queue) - 1; r.IntN(2) == 0 {
		c.Transitions = append(c.Transitions, remark(w.Queue[last], "waits"))
	}
	if r.IntN(2) == 0 {
		c.Cursor = txmanager.CursorChange{FinalHead: r.Uint64N(9), Suspect: &txmanager.Violation{Description: "test"}, HeldBackSince: map[string]time.Time{"c": time.Unix(5, 0)}}
	}
	disturb(t, db, r, w, &c)
	return c
}

// addStep adds what may be written about an open transaction.
func addStep(r *rand.Rand, c *txmanager.Commit, x txmanager.Tx) {
	from := x.State
	switch what := r.IntN(4); {
	case what == 0:
	case from == txmanager.InFlight && what == 1:
		c.Versions = append(c.Versions, txmanager.Version{Tx: x, From: from, Kind: txmanager.VersionOriginal, Signed: storetest.Signed(x.Submitter, *x.Nonce, x.ID)})
	case from == txmanager.InFlight:
		c.Transitions = append(c.Transitions, remark(x, "not signed"))
	case what == 1:
		pends(&x)
		c.Transitions = append(c.Transitions, txmanager.Transition{From: from, To: x})
	default:
		inBlocks(true, block(7, 1))(&x)
		x.Receipt.Document = []byte(`{"logs": []}`)
		c.Transitions = append(c.Transitions, txmanager.Transition{From: from, To: x})
	}
}

// disturb is what may have happened since the load.
func disturb(t *testing.T, db storetest.Bundle, r *rand.Rand, w txmanager.SubmitterState, c *txmanager.Commit) {
	switch r.IntN(7) {
	case 0:
		db.Run(t, cancel, w.Queue[r.IntN(len(w.Queue))].ID)
	case 1:
		db.Run(t, `update submitter_lease set fencing_token = fencing_token + 1 where submitter = $1`, w.Lease.Submitter)
	case 2:
		check.OK(t)(db.Acquire(t.Context(), txmanager.Submitter(w.Lease.Submitter), "b/1", false))
	case 3:
		if len(c.Allocations) > 0 && c.Allocations[0].Signed != nil {
			c.Allocations[0].Signed.Raw = storetest.Bytes(1337, 99, numbered(9).Address(), 0, "") // for another nonce
		}
	case 4:
		db.Run(t, openIncident, w.Lease.Submitter)
	}
}
