package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/lease"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Whatever an account is called at the edge, it is one submitter with one
// queue; and the database itself knows only the canonical name.
func TestH04OneAccountTwoNames(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	t.Run("every accepted spelling is one submitter", func(t *testing.T) { oneSubmitter(t, db) })
	t.Run("other texts name invalidNames", namesNobody)
	t.Run("every table refuses another form", func(t *testing.T) { tablesRefuse(t, db) })
}

// spellings are other names of alice, which only an edge understands.
var spellings = []string{
	"0x00000000000000000000000000000000000a11ce",
	"0x00000000000000000000000000000000000A11CE",
	"eip155:1337:0x00000000000000000000000000000000000A11cE",
}

func oneSubmitter(t *testing.T, db storetest.Bundle) {
	var first store.StoredIntent
	for i, text := range append([]string{string(alice)}, spellings...) {
		sub, err := eip155.ParseSubmitter(text, 1337)
		if err != nil || sub != alice {
			t.Fatalf("parse %q: got %q, %v; want %q", text, sub, err, alice)
		}
		same := post(t, db, sub, "the same request")
		if i == 0 {
			first = same
		} else if same.TxID != first.TxID || same.New {
			t.Errorf("the same request for %q: got %+v, want the stored %s", text, same, first.TxID)
		}
		post(t, db, sub, "a request for "+text)
	}
	check.Equal(t, "under another default chain", check.Value(eip155.ParseSubmitter(string(alice), 1))(t), alice)
	w := take(t, db, alice, "a/1")
	check.Equal(t, "the one queue", len(w.Queue), 2+len(spellings))
	check.Equal(t, "leases", value[int](t, db, `select count(*) from submitter_lease`), 1)
}

func namesNobody(t *testing.T) {
	for _, text := range invalidNames {
		check.Err(t, fmt.Sprintf("parse %q", text), chain.ErrNotSubmitter)(eip155.ParseSubmitter(text, 1337))
	}
}

// invalidNames are texts that look like alice's name.
var invalidNames = []string{
	"",
	"eip155:01337:0x00000000000000000000000000000000000a11ce",
	"eip155:+1337:0x00000000000000000000000000000000000a11ce",
	"eip155:0:0x00000000000000000000000000000000000a11ce",
	"eip155::0x00000000000000000000000000000000000a11ce",
	"EIP155:1337:0x00000000000000000000000000000000000a11ce",
	"eip155:1337:0X00000000000000000000000000000000000a11ce",
	"eip155:1337:00000000000000000000000000000000000a11ce",
	"eip155:1337:0x0000000000000000000000000000000000a11ce",
	"eip155:1337:0x000000000000000000000000000000000000a11ce",
	"eip155:1337:0x00000000000000000000000000000000000a11cg",
	" eip155:1337:0x00000000000000000000000000000000000a11ce",
	"eip155:1337:0x00000000000000000000000000000000000a11ce\n",
}

func tablesRefuse(t *testing.T, db storetest.Bundle) {
	tables := db.Names(t, `
		select c.table_name::text from information_schema.columns c join information_schema.tables using (table_schema, table_name)
		 where c.table_schema = 'public' and c.column_name = 'submitter' and table_type = 'BASE TABLE' order by 1`)
	for _, table := range tables {
		for _, text := range slices.Concat(spellings, invalidNames) {
			_, err := db.DB.Exec(t.Context(), `insert into `+pgx.Identifier{table}.Sanitize()+` (submitter) values ($1)`, text)
			check.Equal(t, fmt.Sprintf("%s named %q", table, text), storetest.Violated(err), "submitter_id_check")
		}
	}
}

// The new signer signs from the next lease session on. The change is recorded once, with its
// author and reason.
func TestChangeSigner(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	move := store.SignerChange{Submitter: alice, Signer: "remote:vault", By: "ann", Reason: "moved"}
	for _, want := range []struct {
		from    string
		changed bool
	}{{"local", true}, {"remote:vault", false}} {
		from, changed, err := db.ChangeSigner(t.Context(), move)
		if err != nil || from != want.from || changed != want.changed {
			t.Errorf("got from %q, changed %t, %v; want from %q, changed %t", from, changed, err, want.from, want.changed)
		}
	}
	check.Equal(t, "kept", value[string](t, db, `select string_agg(concat_ws(' ', submitter, action, from_signer, to_signer, by, reason), ',') from submitter_change`), string(alice)+" SIGNER local remote:vault ann moved")
	check.Equal(t, "signer of the next tenure", take(t, db, alice, "a/1").Signer, "remote:vault")
	stranger := move
	stranger.Submitter = eip155.NewSubmitter(1337, eip155.Address([20]byte{1}))
	check.Err(t, "an unknown submitter", store.ErrUnknownSubmitter)(db.ChangeSigner(t.Context(), stranger))
}

// window is an update of alice's window.
func window(n int) store.SubmitterUpdate {
	return store.SubmitterUpdate{Submitter: alice, MaxInFlight: &n, By: "ann", Reason: "r"}
}

// A narrower window keeps open transactions and stops allocation, also by a holder of the lease that loaded
// the wider one. A wider window allocates again.
func TestUpdateOfTheWindow(t *testing.T) {
	t.Parallel()
	db := registered(t, 3, alice)
	postAll(t, db, alice, "1", "2", "3", "4")
	w := take(t, db, alice, "a/1")
	write(t, db, txmanager.Commit{Lease: w.Lease, Allocations: allocations(w, true)[:2]})
	before := check.Value(db.Store.Acquire(t.Context(), alice, "a/1", true))(t).State
	check.Equal(t, "window, open and room before", [3]int{int(before.Window), len(before.Open), before.RoomInWindow()}, [3]int{3, 2, 1})
	token, changed, err := db.Store.UpdateSubmitter(t.Context(), window(1))
	if err != nil || !changed || token <= before.Lease.Token {
		t.Fatalf("narrow: got token %d, %t, %v; want one above %d", token, changed, err, before.Lease.Token)
	}
	done, err := db.Store.Commit(t.Context(), txmanager.Commit{Lease: before.Lease, Allocations: allocations(before, true)[:1]})
	if err == nil || done.Allocated != 0 {
		t.Errorf("the holder allocates by the window before: got %d, %v; want it fenced", done.Allocated, err)
	}
	after := take(t, db, alice, "b/1")
	check.Equal(t, "window, open and room, narrowed", [3]int{int(after.Window), len(after.Open), after.RoomInWindow()}, [3]int{1, 2, 0})
	if _, changed, err := db.Store.UpdateSubmitter(t.Context(), window(1)); changed || err != nil {
		t.Errorf("the same again: got changed %t, %v", changed, err)
	}
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), window(4)))
	check.Equal(t, "room, once widened", take(t, db, alice, "c/1").RoomInWindow(), 2)
	narrower := window(5)
	narrower.OnlyNarrower = true
	check.Err(t, "wider, where only narrower is allowed", store.ErrNotTighter)(db.Store.UpdateSubmitter(t.Context(), narrower))
	unknown := window(1)
	unknown.Submitter = "eip155:1337:0x0000000000000000000000000000000000000ca0"
	check.Err(t, "no such submitter", store.ErrUnknownSubmitter)(db.Store.UpdateSubmitter(t.Context(), unknown))
	check.Equal(t, "the widest window", check.Value(db.Store.LostNonces(t.Context(), alice))(t).Window, 4)
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), window(1)))
	check.Equal(t, "the widest window, once narrowed", check.Value(db.Store.LostNonces(t.Context(), alice))(t).Window, 4)
}

// A payer's window is never wider than the widest that a backup can know.
func TestPayerWindowNeverWidens(t *testing.T) {
	t.Parallel()
	db := registered(t, 5, alice)
	db.Run(t, `update submitter set callers = '{transfer}'`)
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), window(1)))
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), window(5)))
	check.Err(t, "wider", store.PayerWindowError{Widest: 5})(db.Store.UpdateSubmitter(t.Context(), window(6)))
}

// After a restore a payer's nonces must be filled, unless it was retired before: then a lost database
// has signed nothing for it.
func TestRetiredPayerLostNothing(t *testing.T) {
	t.Parallel()
	db := registered(t, 5, alice, bob)
	db.Run(t, `update submitter set callers = '{transfer}'`)
	check.OK(t)(db.Store.Retire(t.Context(), retirement(bob)))
	db.Run(t, `insert into identity_change (system_identifier, timeline_id, by, reason) values (1, 1, 'ann', 'restored')`)
	for sub, retired := range map[txmanager.Submitter]bool{alice: false, bob: true} {
		if lost := check.Value(db.Store.LostNonces(t.Context(), sub))(t); !lost.Payer || lost.Retired != retired || lost.Restored == retired {
			t.Errorf("%s: got %+v; want retired %t, restored %t", sub, lost, retired, !retired)
		}
	}
}

// Each change is recorded with both values, in the audit chain too, and is listed newest first.
func TestChangesAreListed(t *testing.T) {
	t.Parallel()
	db := at(t, "sub:1")
	name := window(7)
	name.Name = new("hot wallet")
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), name))
	check.OK(t)(db.Store.UpdateSubmitter(t.Context(), store.SubmitterUpdate{Submitter: alice, Name: new(""), By: "ben", Reason: "s"}))
	check.OK(t)(db.Store.PutCallers(t.Context(), change([]string{"sub:1", "sub:2"})))
	check.OK(t)(db.Store.SetStatus(t.Context(), store.Suspension{Submitter: alice, Suspend: true, By: "ann", Reason: "r"}))
	var got []string
	below, pages := int64(1)<<62, 0
	for {
		page := check.Value(db.Store.Changes(t.Context(), alice, below, 2))(t)
		pages++
		for _, c := range page {
			line := fmt.Sprint(c.Action, " ", c.By, " ", c.Reason)
			if c.ToMaxInFlight != nil {
				line += fmt.Sprintf(" %d>%d", *c.FromMaxInFlight, *c.ToMaxInFlight)
			}
			if c.ToName != nil {
				line += fmt.Sprintf(" %q>%q", *c.FromName, *c.ToName)
			}
			if c.ToCallers != nil {
				line += fmt.Sprint(" ", c.FromCallers, ">", c.ToCallers)
			}
			got, below = append(got, line), c.ID
		}
		if len(page) < 2 {
			break
		}
	}
	check.Equal(t, "pages", pages, 3)
	check.Equal(t, "changes", strings.Join(got, "; "), `SUSPEND ann r; CALLERS email:ann@example.com a test [sub:1]>[sub:1 sub:2]; UPDATE ben s "hot wallet">""; UPDATE ann r 10>7 "">"hot wallet"`)
	if audit, err := db.Store.VerifyAudit(t.Context(), nil, nil); err != nil || len(audit.Findings) != 0 || audit.Links != 4 {
		t.Errorf("the audit chain: got %+v, %v; want 4 links and no finding", audit, err)
	}
	check.Err(t, "no such submitter", store.ErrUnknownSubmitter)(db.Store.Changes(t.Context(), "eip155:1337:0x0000000000000000000000000000000000000ca0", below, 1))
}

func retirement(sub txmanager.Submitter) store.Retirement {
	return store.Retirement{Submitter: sub, By: "ann", Reason: "moved away"}
}

// A submitter without open work is retired for ever: it takes no intent, no holder of its lease writes, and it is
// not registered, resumed or changed again. It can be shown, and its callers can lose their rights.
func TestRetire(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	before := take(t, db, alice, "a/1")
	check.OK(t)(db.Store.Retire(t.Context(), retirement(alice)))
	check.Err(t, "create", store.ErrRetired)(db.Store.Create(t.Context(), intent(alice, "r"), 10))
	check.Err(t, "the holder of the lease writes", lease.ErrFenced)(db.Store.Commit(t.Context(), txmanager.Commit{Lease: before.Lease, LeaseEnd: txmanager.ReleaseUnlessRerun}))
	if after := take(t, db, alice, "b/1"); !after.Suspended || len(after.Queue)+len(after.Open) != 0 {
		t.Errorf("the next session: got suspended %t, %d intents; want nothing to sign", after.Suspended, len(after.Queue)+len(after.Open))
	}
	same := store.Registration{Submitter: alice, Signer: "local", MaxInFlight: 10, Callers: storetest.Callers, CreatedBy: "test"}
	check.Err(t, "register again", store.ErrRetired)(db.Store.Register(t.Context(), same))
	for _, suspend := range []bool{true, false} {
		check.Err(t, fmt.Sprint("suspend ", suspend), store.ErrRetired)(db.Store.SetStatus(t.Context(), store.Suspension{Submitter: alice, Suspend: suspend, By: "ann", Reason: "r"}))
	}
	check.Err(t, "update", store.ErrRetired)(db.Store.UpdateSubmitter(t.Context(), window(1)))
	db.Run(t, openIncident, alice)
	lost := &txmanager.ReleaseRequest{Incident: 1, Mode: txmanager.Resync, By: "op", Reason: "restored", Count: 1,
		Requests: map[uint64]string{0: "lost"}, EndedRequests: []txmanager.Naming{{Nonce: 0, RequestID: "lost"}}}
	check.Err(t, "release, naming a lost request", store.ErrRetired)(db.Store.Commit(t.Context(), txmanager.Commit{
		Lease: take(t, db, alice, "b/1").Lease, LeaseEnd: txmanager.ReleaseUnlessRerun, Cursor: txmanager.CursorChange{CloseIncident: lost}}))
	check.Err(t, "again", store.ErrStatusUnchanged)(db.Store.Retire(t.Context(), retirement(alice)))
	check.Err(t, "no such submitter", store.ErrUnknownSubmitter)(db.Store.Retire(t.Context(), retirement(bob)))
	check.Equal(t, "status", check.Value(db.Store.Submitter(t.Context(), alice))(t).Status, "RETIRED")
	check.Equal(t, "changes", check.Value(db.Store.Changes(t.Context(), alice, 1<<62, 10))(t)[0].Action, "RETIRE")
}

// Open work keeps a submitter from being retired, and stays.
func TestRetireRefusesOpenWork(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice)
	refused := func(want string) {
		t.Helper()
		check.Err(t, "retire", store.OpenWorkError{Work: want})(db.Store.Retire(t.Context(), retirement(alice)))
	}
	post(t, db, alice, "r")
	refused("queued intents")
	sendAll(t, db, alice)
	refused("open transactions")
	moveAll(t, db, alice, confirmedIn(`{}`, block(7, 1)))
	db.Run(t, `insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, alice)
	refused("an open PROTECT incident")
	db.Run(t, `update protect_incident set closed_at = now(), closed_by = 'ann', mode = 'resume', reason = 'r'`)
	db.Run(t, `update submitter_nonce_cursor set suspected_violation = '{}' where submitter = $1`, alice)
	refused("a suspected violation")
	db.Run(t, `update submitter_nonce_cursor set suspected_violation = null where submitter = $1`, alice)
	check.OK(t)(db.Store.Retire(t.Context(), retirement(alice)))
}

// A create that began before a retirement is seen by it. A create that it does not see is refused.
func TestRetirementsAndCreatesAtOnce(t *testing.T) {
	t.Parallel()
	const rounds, creators = 40, 4
	all := numbers(rounds)
	db := registered(t, 10, all...)
	other := storetest.Open(t, storetest.Options(db.URL, storetest.Rules))
	var retired, accepted atomic.Int64
	for i, sub := range all {
		first := i % (creators + 1) // so many creators begin before the retirement, the others with it
		begun, retiring := make(chan struct{}, creators), make(chan struct{})
		var wg sync.WaitGroup
		for c := range creators {
			wg.Go(func() {
				if c >= first {
					<-retiring
				}
				begun <- struct{}{}
				_, err := other.Create(t.Context(), intent(sub, fmt.Sprint(c)), 100)
				if err != nil && !errors.Is(err, store.ErrRetired) && !errors.Is(err, store.ErrMoved) {
					t.Errorf("create: got %v", err)
				}
				if err == nil {
					accepted.Add(1)
				}
			})
		}
		wg.Go(func() {
			for range first {
				<-begun
			}
			close(retiring)
			err := db.Store.Retire(t.Context(), retirement(sub))
			if _, ok := errors.AsType[store.OpenWorkError](err); err != nil && !ok {
				t.Errorf("retire: got %v", err)
			}
			if err == nil {
				retired.Add(1)
			}
		})
		wg.Wait()
	}
	t.Logf("%d of %d retired, %d creates accepted", retired.Load(), rounds, accepted.Load())
	check.Equal(t, "intents of retired submitters", value[int](t, db, `select count(*)::int from managed_tx join submitter using (submitter) where status = 'RETIRED'`), 0)
}

// A retirement that is refused for open work waits for no create. Without open work it waits for a
// create that is under way, and then sees its intent.
func TestRetirementWaitsForACreate(t *testing.T) {
	t.Parallel()
	db := registered(t, 10, alice, bob)
	post(t, db, alice, "r")
	creating := holdingCreate(t, db, intent(alice, "under way"))
	creating.Do(withPayload(`insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint) values (gen_random_uuid(), $1, 'under way', 'shop', sha256('r'))`), bob)
	done := make(chan error, 1)
	go func() { done <- db.Store.Retire(t.Context(), retirement(alice)) }()
	waits := func() bool {
		return value[bool](t, db, `select exists (select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database()))`)
	}
	storetest.Await(t, "the retirement is refused", func() bool {
		if waits() {
			t.Fatal("the retirement with open work waits for the create")
		}
		return len(done) == 1
	})
	refused := store.OpenWorkError{Work: "queued intents"}
	check.Err(t, "with open work", refused)(<-done)
	go func() { done <- db.Store.Retire(t.Context(), retirement(bob)) }()
	storetest.Await(t, "the retirement without open work waits", waits)
	creating.Do("commit")
	check.Err(t, "once the create has ended", refused)(<-done)
}
