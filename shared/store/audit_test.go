package store_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	marks "github.com/fencepost/fencepost/shared/mark"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/storetest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// decidedOn has decisions about alice's transactions and changes of bob's submitter, under a
// seal that a mark names, and one of each after it.
func decidedOn(t *testing.T) (db storetest.Bundle, marked marks.Seal) {
	t.Helper()
	db = registered(t, 1, alice, bob)
	for i := range 3 {
		cancelNew(t, db, fmt.Sprint("sealed ", i))
		suspend(t, db, i%2 == 0)
	}
	m := check.Value(db.Prepare(t.Context(), 0, "test"))(t)
	cancelNew(t, db, "after")
	suspend(t, db, false)
	return db, m.Audit
}

func cancelNew(t *testing.T, db storetest.Bundle, request string) {
	t.Helper()
	check.OK(t)(decide(t, db, post(t, db, alice, request).TxID, operator, txmanager.ActionCancel))
}

func suspend(t *testing.T, db storetest.Bundle, suspended bool) {
	t.Helper()
	action := "RESUME"
	if suspended {
		action = "SUSPEND"
	}
	db.Run(t, `begin; set local timezone = 'Asia/Kathmandu'; set local datestyle = 'German';
		insert into submitter_change (submitter, action, by, reason) values ('`+string(bob)+`', '`+action+`', 'ann', 'because'); commit`)
}

func verify(t *testing.T, db storetest.Bundle, marked *marks.Seal) store.Audit {
	t.Helper()
	return check.Value(db.VerifyAudit(t.Context(), marked, nil))(t)
}

func TestAuditRowsAreLinked(t *testing.T) {
	t.Parallel()
	db, marked := decidedOn(t)
	got := verify(t, db, &marked)
	login := value[string](t, db, `select session_user::text`)
	if len(got.Findings) != 0 || got.Submitters != 2 || got.Links != 8 || got.Unsealed != 2 || got.Logins[login] != 8 || got.Seal != marked || marked.Number != 1 {
		t.Errorf("got %+v under %+v; want 8 links of 2 submitters by %s, 2 of them after seal 1, and nothing found", got, marked, login)
	}
	second := check.Value(db.Prepare(t.Context(), 0, "test"))(t)
	third, err := db.Prepare(t.Context(), 0, "test")
	if err != nil || second.Audit.Number != 2 || third.Audit != second.Audit {
		t.Errorf("seals of the next marks: got %+v and %+v, %v; want seal 2, and no other while nothing is decided", second.Audit, third.Audit, err)
	}
	for _, m := range []marks.Seal{marked, second.Audit} { // a mark may be older than the last seal
		if got := verify(t, db, &m); len(got.Findings) != 0 || got.Unsealed != 0 {
			t.Errorf("with the mark of seal %d: got %+v, want nothing found", m.Number, got)
		}
	}
}

// Changes that the owner of the database forces on the rows, and the findings they cause.
func TestEachTamperingIsFound(t *testing.T) {
	t.Parallel()
	const (
		sub = `(select submitter from submitter_change limit 1)`
		// relink computes all chains anew, as the owner would after a change of rows.
		relink = `delete from audit_link; delete from audit_head; set local session_replication_role = origin;
			select link_audit(submitter, id, null, 'x') from submitter_change order by id;
			select link_audit(submitter, null, id, 'x') from tx_decision join managed_tx using (tx_id) order by id;
			set local session_replication_role = replica; `
	)
	for name, of := range map[string]struct{ force, finds string }{
		"a reason":                    {`update tx_decision set reason = 'another' where id = 1`, "link 1 does not fit its row"},
		"who":                         {`update submitter_change set by = 'eve' where id = 2`, "link 2 does not fit its row"},
		"when":                        {`update submitter_change set at = at - interval '1 microsecond' where id = 2`, "link 2 does not fit its row"},
		"whether an operator decided": {`update tx_decision set operator = not coalesce(operator, false) where id = 1`, "link 1 does not fit its row"},
		"the login":                   {`update audit_link set by_role = 'admin' where submitter = ` + sub + ` and number = 3`, "link 3 does not fit its row"},
		"a row":                       {`delete from tx_decision where id = 2`, "the row of link 2 is gone"},
		"a row and its link":          {`delete from tx_decision where id = 2; delete from audit_link where decision_id = 2`, "links 2 to 2 are gone"},
		"the last row and its link":   {`delete from submitter_change where id = 4; delete from audit_link where change_id = 4`, "ends with link 3, and its head is 4"},
		"the head":                    {`delete from audit_head where submitter = ` + sub, "its chain has no head"},
		"a row that nobody wrote":     {`insert into tx_decision (tx_id, action, by, reason) select tx_id, 'CANCEL', 'ann', 'forged' from managed_tx limit 1`, "has no link"},
		"a submitter's":               {`delete from audit_link where submitter = ` + sub + `; delete from audit_head where submitter = ` + sub + `; delete from submitter_change`, "link 3 differs from the one in seal 1"},
		"written anew":                {`update tx_decision set reason = 'another' where id = 1; ` + relink, "link 3 differs from the one in seal 1"},
		"a seal":                      {`update audit_seal set heads = '{}'`, "the hash of seal 1 does not match its heads"},
		"all seals":                   {`delete from audit_seal`, "the mark names seal 1, and the last one of the database is 0"},
		"written and sealed anew":     {`update tx_decision set reason = 'another' where id = 1; ` + relink + `delete from audit_seal; select seal_audit('m')`, "seal 1 differs from the one in the mark"},
		"a row of another submitter":  {`update submitter_change set submitter = '` + string(alice) + `' where id = 1`, "link 1 does not fit its row"},
		"two rows in the other order": {`update tx_decision d set reason = 'swapped', at = o.at from tx_decision o where d.id = 1 and o.id = 2`, "link 1 does not fit its row"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, marked := decidedOn(t)
			db.Run(t, `begin; set local session_replication_role = replica; `+of.force+`; commit`)
			got := verify(t, db, &marked)
			if !strings.Contains(strings.Join(got.Findings, "\n"), of.finds) {
				t.Errorf("got %q, want %q among them", got.Findings, of.finds)
			}
		})
	}
}

// A mark by a release that makes no seals is no proof of anything.
func TestAMarkWithoutASealIsSaid(t *testing.T) {
	t.Parallel()
	db, _ := decidedOn(t)
	if got := verify(t, db, &marks.Seal{}); len(got.Findings) != 1 || !strings.Contains(got.Findings[0], "the mark names no seal") {
		t.Errorf("got %q, want the mark named", got.Findings)
	}
	if got := verify(t, storetest.New(t), &marks.Seal{}); len(got.Findings) != 0 {
		t.Errorf("of a new database: got %q, want nothing", got.Findings)
	}
}

// Many decisions about one submitter run beside advances and seals. The chain has no gap, and
// no session deadlocks.
func TestAuditRowsAtOnce(t *testing.T) {
	t.Parallel()
	db := registered(t, 1, alice)
	var ids []string
	for i := range 60 {
		ids = append(ids, post(t, db, alice, fmt.Sprint(i)).TxID)
	}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for _, id := range ids[worker*15 : worker*15+15] {
				check.Err(t, "decide", nil)(decide(t, db, id, operator, txmanager.ActionCancel))
			}
		})
	}
	all.Go(func() {
		for range 10 {
			check.Err(t, "cancel the queue", nil)(db.CancelQueue(t.Context(), store.QueueCancel{Submitter: alice, Limit: 3, By: "ann", Reason: "because"}))
		}
	})
	all.Go(func() {
		for range 10 {
			check.Err(t, "prepare a mark", nil)(db.Prepare(t.Context(), 0, "test"))
		}
	})
	all.Wait()
	m := check.Value(db.Prepare(t.Context(), 0, "test"))(t)
	if got := verify(t, db, &m.Audit); len(got.Findings) != 0 || got.Links != 60 || got.Unsealed != 0 {
		t.Errorf("got %+v, want 60 links, all under the seal", got)
	}
}
