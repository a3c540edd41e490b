package conservation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/store"
	checks "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
)

// adjust orders an adjustment of the only open finding.
func (w *world) adjust(journal bool) (checks.Adjustment, error) {
	w.t.Helper()
	return w.adjustFinding(w.standing().ID, journal)
}

func (w *world) adjustFinding(id int64, journal bool) (checks.Adjustment, error) {
	order := checks.AdjustmentOrder{FindingID: id, Journal: journal, By: "ann", Reason: "the auditor has the case"}
	return w.book().Adjust(w.t.Context(), order, w.adjustSpot)
}

func (w *world) book() *checks.Book { return checks.New(w.main.DB) }

func (w *world) standing() checks.Standing {
	w.t.Helper()
	last, err := w.book().Last(w.t.Context(), 9)
	if err != nil || last.Standing != 1 || len(last.Found) != 1 || last.Found[0].Kind != conservation.BalanceDiffers {
		w.t.Fatalf("standing: got %+v, %v; want one BALANCE_DIFFERS", last, err)
	}
	return last.Found[0]
}

// adjustSpot stands for the trading core, whose ledger here is another database.
func (w *world) adjustSpot(ctx context.Context, op transfer.Op, c transfer.Call, found uint64) error {
	problem := value[string](w.t, w.other, `select coalesce(funding_adjust($1, $2, $3, $4, $5, $6), '')`, 1, op, c.UserID, c.AssetID, fmt.Sprint(c.Units), fmt.Sprint(found))
	switch problem {
	case "":
		return nil
	case "ACCOUNT_MOVED":
		return checks.ErrMoved
	}
	return checks.ErrOutOfRange
}

// An adjustment closes a finding for both kinds of check. It moves exactly the difference, in the
// ordered direction, once.
func TestAnAdjustmentEndsItsFinding(t *testing.T) {
	t.Parallel()
	for _, journal := range []bool{true, false} {
		for _, stolen := range []int{1, -7} {
			for _, side := range []conservation.Side{transfer.Funding, transfer.Spot} {
				t.Run(fmt.Sprintf("journal %t, %d stolen from %s", journal, stolen, side), func(t *testing.T) {
					t.Parallel()
					w := cleanWorld(t)
					db := w.main
					if side == transfer.Spot {
						db = w.other
					}
					available := func() string {
						return value[string](t, db, `select available::text from balances_tb where user_id = $1 and asset_id = $2`, alice, gold)
					}
					db.Run(t, `update balances_tb set available = available - $1::integer * 10::numeric ^ -precision where user_id = $2 and asset_id = $3`, stolen, alice, gold)
					before := available()
					w.check(false)
					id := w.standing().ID
					got, err := w.adjust(journal)
					if err != nil || got.Side != side || got.Units != uint64(max(stolen, -stolen)) || got.Account != (conservation.Account{UserID: alice, AssetID: gold}) {
						t.Fatalf("adjust: got %+v, %v", got, err)
					}
					check.Err(t, "again", checks.ErrAdjusted)(w.adjustFinding(id, journal))
					if after := available(); (before != after) == journal {
						t.Errorf("balance: got %s, then %s; want it moved: %t", before, after, !journal)
					}
					w.clean()
					check.Err(t, "once it is right", checks.ErrNoFinding)(w.adjustFinding(id, journal))
					check.Equal(t, "on record", value[int](t, w.main, `select count(*) from conservation_adjustment where finding_id = $1 and by = 'ann' and reason <> '' and applied_at is not null`, id), 1)
				})
			}
		}
	}
}

// An account that has changed since the last check is not adjusted. After another check with the same
// finding it is.
func TestChangedAccountIsNotAdjusted(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	w.steal(alice, gold, 3)
	w.check(false)
	was := w.standing()
	w.resume()
	w.committed(transfer.FundingToSpot, alice, gold, 5)
	for _, journal := range []bool{true, false} {
		check.Err(t, fmt.Sprintf("journal %t", journal), checks.ErrMoved)(w.adjust(journal))
	}
	w.check(false)
	if now := w.standing(); now.ID != was.ID || now.Got == was.Got {
		t.Errorf("after another check: got %+v, want the finding of before with other numbers than %+v", now, was)
	}
	check.Equal(t, "after another check", check.Value(w.adjust(true))(t).Units, 3)
	w.clean()
}

// No balance goes below zero: if the journal's sum is below zero, only the journal can be moved.
func TestAdjustmentNeverGoesBelowZero(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.history()
	w.withdrawn(transfer.FundingToSpot, alice, gold, 5)
	w.main.RunUnguarded(t, "transfer_operations", `delete from transfer_operations where user_id = $1 and asset_id = $2 and op_type = 'outside_deposit'`, alice, gold)
	w.check(true)
	check.Err(t, "the balance", checks.ErrOutOfRange)(w.adjust(false))
	check.Equal(t, "the journal", check.Value(w.adjust(true))(t).Op, transfer.JournalCredit)
	w.clean()
}

// If the trading core's answer is lost, the order is recorded and can be repeated: the core gets the
// same call.
func TestLostAdjustmentCanBeRepeated(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	w.other.Run(t, `update balances_tb set available = available - 2 * 10::numeric ^ -precision where user_id = $1 and asset_id = $2`, alice, gold)
	w.check(false)
	lost := errors.New("the answer was lost")
	var asked []transfer.Call
	order := checks.AdjustmentOrder{FindingID: w.standing().ID, By: "ann", Reason: "r"}
	for n, answer := range []error{lost, nil, checks.ErrMoved} {
		_, err := w.book().Adjust(t.Context(), order, func(_ context.Context, _ transfer.Op, c transfer.Call, _ uint64) error {
			asked = append(asked, c)
			return answer
		})
		if want := []error{lost, nil, checks.ErrAdjusted}[n]; !errors.Is(err, want) {
			t.Errorf("attempt %d: got %v, want %v", n, err, want)
		}
	}
	if len(asked) != 2 || asked[0] != asked[1] {
		t.Errorf("asked of the core: got %+v, want the same twice", asked)
	}
}

// A request has no evidence before a check has read the journals.
func TestEvidenceNeedsACheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fund(alice)
	done := w.committed(transfer.FundingToSpot, alice, gold, 10)
	check.Err(t, "before a check", checks.ErrNoCheck)(w.book().EvidenceOf(t.Context(), done.call.ReqID))
	w.clean()
	got, err := w.book().EvidenceOf(t.Context(), done.call.ReqID)
	if err != nil || got.Debit != transfer.Funding || got.Deposit != transfer.Spot || got.Refund != "" {
		t.Errorf("a committed transfer: got %+v, %v", got, err)
	}
	unknown := check.Value(w.book().EvidenceOf(t.Context(), "nothing"))(t)
	check.Equal(t, "sides of an unknown request", unknown.Debit+unknown.Deposit+unknown.Refund, "")
}

// If the balance differs again by the same amount after the adjustment, that is a new finding: it is
// reported, halts, and can be adjusted.
func TestRepeatedDifferenceIsANewFinding(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	w.steal(alice, gold, 3)
	w.check(false)
	was := w.standing()
	check.OK(t)(w.adjust(true))
	w.resume()
	w.steal(alice, gold, 3)
	if r := w.check(false); len(r.Fresh) != 1 || w.halts() != 1 {
		t.Errorf("stolen again before a check: got %v new, %d halts; want one each", r.Fresh, w.halts())
	}
	check.Equal(t, "the same finding", w.standing().ID == was.ID, false)
	check.Err(t, "adjust", nil)(w.adjust(true))
	w.clean()
}

// A check that has read an account before its adjustment and stores after it finds nothing: there is no
// halt, and no finding to adjust again.
func TestCheckFromBeforeAnAdjustmentFindsNothing(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	w.steal(alice, gold, 3)
	w.check(false)
	w.resume()
	slow, done := w.Monitor, false
	slow.At = func(point string) {
		if point != "after funding's point" || done {
			return
		}
		done = true
		check.Err(t, "adjust", nil)(w.adjust(true))
		w.check(false)
	}
	r, err := slow.Check(t.Context(), true)
	if err != nil || !done || len(r.Fresh) != 0 || w.halts() != 0 {
		t.Errorf("the slow check: got %+v, %v; want nothing new, and no halt", r, err)
	}
	check.Equal(t, "standing", value[int](t, w.main, `select count(*) from conservation_standing`), 0)
	w.clean()
}

// The trading core outlives a restore, after which findings get the same numbers again: an adjustment's
// key identifies the finding, not its number.
func TestAdjustmentKeyIdentifiesOneFinding(t *testing.T) {
	t.Parallel()
	w := cleanWorld(t)
	keys := map[string]bool{}
	for range 2 {
		w.other.Run(t, `update balances_tb set available = available - 2 * 10::numeric ^ -precision where user_id = $1 and asset_id = $2`, alice, gold)
		w.check(false)
		order := checks.AdjustmentOrder{FindingID: w.standing().ID, By: "ann", Reason: "r"}
		for range 2 {
			_, _ = w.book().Adjust(t.Context(), order, func(_ context.Context, _ transfer.Op, c transfer.Call, _ uint64) error {
				keys[c.ReqID] = true
				return checks.ErrMoved
			})
		}
		w.other.Run(t, `update balances_tb set available = available + 2 * 10::numeric ^ -precision where user_id = $1 and asset_id = $2`, alice, gold)
		w.check(false)
		w.main.RunUnguarded(t, "conservation_adjustment", `delete from conservation_adjustment`) // the backup has neither
		w.main.RunUnguarded(t, "conservation_finding", `delete from conservation_finding`)
		w.main.Run(t, `alter table conservation_finding alter column finding_id restart`)
	}
	check.Equal(t, "keys of two findings with one number, each asked for twice", len(keys), 2)
}

// An adjustment that two operators agreed on carries its proposal out in the transaction that
// keeps it. Where the core gave no answer the proposal waits, and the next attempt goes on.
func TestAnApprovedAdjustmentIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	for _, side := range []conservation.Side{transfer.Funding, transfer.Spot} {
		t.Run(string(side), func(t *testing.T) {
			t.Parallel()
			w := cleanWorld(t)
			db := w.main
			if side == transfer.Spot {
				db = w.other
			}
			db.Run(t, `update balances_tb set available = available - 10::numeric ^ -precision where user_id = $1 and asset_id = $2`, alice, gold)
			w.check(false)
			id := w.standing().ID
			subject := map[string]any{"finding": fmt.Sprint(id)}
			p := w.main.Approved(t, "adjustments", "adjust", subject)
			status := func(want string) {
				t.Helper()
				check.Equal(t, "the proposal", check.Value(w.main.Proposal(t.Context(), p.ID))(t).Status, want)
			}
			if side == transfer.Spot {
				gone := w.main.Proposed(t, "cat", "adjustments", "adjust", subject)
				check.OK(t)(w.main.RejectProposal(t.Context(), gone.ID, "ben", "r"))
				_, err := w.book().Adjust(store.WithProposal(t.Context(), gone.ID), checks.AdjustmentOrder{FindingID: id, By: "cat", Reason: "r"},
					func(context.Context, transfer.Op, transfer.Call, uint64) error {
						t.Error("the core is called for a proposal that was rejected")
						return nil
					})
				if !store.IsProposalGone(err) {
					t.Errorf("a proposal that was rejected: got %v, want it gone", err)
				}
			}
			ctx, order := store.WithProposal(t.Context(), p.ID), checks.AdjustmentOrder{FindingID: id, By: "ann", Reason: "r"}
			away := errors.New("no answer")
			if side == transfer.Spot {
				check.Err(t, "without an answer", away)(w.book().Adjust(ctx, order, func(context.Context, transfer.Op, transfer.Call, uint64) error { return away }))
				status(store.ProposalApproved)
			}
			check.OK(t)(w.book().Adjust(ctx, order, w.adjustSpot))
			status(store.ProposalCarriedOut)
			check.Err(t, "again", checks.ErrAdjusted)(w.book().Adjust(ctx, order, w.adjustSpot))
		})
	}
}
