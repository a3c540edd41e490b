package payout_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// filled is the number of nonces that a release fills for the payer: its window.
const filled = 4

// fills returns the states of the placeholders that releases have made, by nonce.
func (h *env) fills() string {
	h.t.Helper()
	return value[string](h, `select coalesce(string_agg(nonce || ' ' || state || coalesce('/' || sub_state, ''), ', ' order by nonce), '') from managed_tx where fills`)
}

// A payer makes no further payment after a restore. The release fills the nonces that lost bytes
// can have, and "not paid" takes effect once every placeholder is final. Until then no other
// transaction of the payer gets a nonce.
func TestNotPaidOfAnIdlePayerTakesEffectByTheFilling(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.restored(0, nil)
	check.Equal(t, "after the release", h.fills(), "0 IN_FLIGHT, 1 IN_FLIGHT, 2 IN_FLIGHT, 3 IN_FLIGHT")
	h.says(x.ReqID, store.PayoutStatement{Refund: true, NoncesBelow: filled})
	h.wantUnknown(x, store.ErrNoncesOpen)
	y := h.due(coin)
	h.drive(y.ReqID, transfer.TargetPending)
	h.awaitServed("the placeholders are sent", func() bool {
		return value[bool](h, `select count(*) = 4 from managed_tx where fills and state = 'TRACKING'`)
	})
	h.wantUnknown(x, store.ErrNoncesOpen)
	first := value[[]byte](h, `select d.bytes from managed_tx m join tx_document d using (tx_id) where m.nonce = 0 and d.name = 'version:1'`)
	check.OK(t)(h.chain.MineExactly(first))
	h.await("the first placeholder is final, and there is room", func() bool {
		check.OK(t)(h.chain.MineExactly())
		h.serve()
		return h.fills() == "0 FAILED/PLACEHOLDER, 1 TRACKING/PENDING, 2 TRACKING/PENDING, 3 TRACKING/PENDING"
	})
	h.serve()
	check.Equal(t, "a payout beside open placeholders", h.managed(y.ReqID), "QUEUED")
	h.mineUntil(y.ReqID, "CONFIRMED")
	check.Equal(t, "nonce of the payout behind", value[int](h, `select nonce from managed_tx where request_id = $1`, y.ReqID), filled)
	h.drive(y.ReqID, transfer.Committed)
	h.ends(x.ReqID, transfer.RolledBack, onePayment, "8.5")
	check.Equal(t, "at the end", h.fills(), "0 FAILED/PLACEHOLDER, 1 FAILED/PLACEHOLDER, 2 FAILED/PLACEHOLDER, 3 FAILED/PLACEHOLDER")
	check.Equal(t, "versions that are no placeholders", value[int](h, `select count(*) from tx_version v join managed_tx m using (tx_id) where m.fills and v.kind <> 'PLACEHOLDER'`), 0)
}

// Lost bytes that are mined in place of a placeholder open PROTECT. Their effect is read, and the
// next release must name it: the payout is paid once.
func TestLostBytesThatBeatAPlaceholderAreEvaluated(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.restored(0, nil)
	h.says(x.ReqID, store.PayoutStatement{NoncesBelow: filled}) // a mistake, as the chain shows later
	h.awaitServed("the placeholders are signed", func() bool { return value[bool](h, `select count(*) = 4 from tx_version where kind = 'PLACEHOLDER'`) })
	first := value[[]byte](h, `select d.bytes from managed_tx m join tx_document d using (tx_id) where m.nonce = 0 and d.name = 'version:1'`)
	check.OK(t)(h.chain.MineExactly(first, h.lost(accounts[0], 1, address, onePayment, nil).Raw))
	h.awaitMined("PROTECT is open", func() bool {
		return value[bool](h, `select exists (select from protect_incident where closed_at is null)`)
	})
	h.wantUnknown(x, store.ErrNoncesOpen)
	h.mine(80)
	leave := txmanager.ReleaseRequest{Incident: 2, Mode: txmanager.Resync, By: "ann", Reason: "a lost payment was mined", Count: 4}
	h.awaitServed("what consumed the nonce is read", func() bool { return value[int](h, `select count(*) from foreign_transaction`) == 1 })
	_, err := h.worker.ReleaseSubmitter(t.Context(), h.payer, leave)
	if _, ok := errors.AsType[txmanager.UnnamedNonceError](err); !ok || strings.Contains(err.Error(), "placeholder:") {
		t.Fatalf("a release that does not say what it was: got %v, want ErrNotForeign that names the payout alone", err)
	}
	leave.Requests = map[uint64]string{1: value[string](h, `select request_id from managed_tx where nonce = 1`)}
	_, err = h.worker.ReleaseSubmitter(t.Context(), h.payer, leave)
	if _, ok := errors.AsType[txmanager.NamingError](err); !ok {
		t.Fatalf("a release that names a placeholder: got %v, want ErrNaming", err)
	}
	h.wantUnknown(x, store.ErrPaymentFound)
	h.withdraws(x.ReqID, "it was paid")
	leave.Requests = map[uint64]string{1: x.ReqID}
	out, err := h.worker.ReleaseSubmitter(t.Context(), h.payer, leave)
	if err != nil || out.Filling != nil {
		t.Fatalf("release: got %+v, %v; want nothing filled again", out, err)
	}
	h.ends(x.ReqID, transfer.Committed, onePayment, "8.5")
	h.awaitMined("the other placeholders are final", func() bool {
		return h.fills() == "0 FAILED/PLACEHOLDER, 1 FAILED/DISPLACED, 2 FAILED/PLACEHOLDER, 3 FAILED/PLACEHOLDER"
	})
}

// protected makes the database a restored, accepted one with the payer in PROTECT.
func (h *env) protected() {
	h.t.Helper()
	h.restore()
	h.accept("reconciled")
	h.resume()
	h.mine(80)
}

// After a restore a payer leaves PROTECT only by a resync that fills.
func TestReleasesThatDoNotFillAreRefused(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.protected()
	release := func(l txmanager.ReleaseRequest) (txmanager.ReleaseResult, error) {
		l.Incident, l.By, l.Reason = 1, "ann", "restored"
		return h.worker.ReleaseSubmitter(t.Context(), h.payer, l)
	}
	check.Err(t, "resume", txmanager.ErrFillRequired)(release(txmanager.ReleaseRequest{Mode: txmanager.Resume}))
	_, err := release(txmanager.ReleaseRequest{Mode: txmanager.Resync, Fill: new(uint64(filled - 1))})
	if _, ok := errors.AsType[txmanager.FillError](err); !ok {
		t.Errorf("fewer than the window: got %v, want ErrFill", err)
	}
	dry, err := release(txmanager.ReleaseRequest{Mode: txmanager.Resync, Fill: new(uint64(6)), DryRun: true})
	if want := (txmanager.Filling{Below: 6}); err != nil || dry.Filling == nil || *dry.Filling != want || dry.NextNonce != 6 || h.fills() != "" {
		t.Errorf("dry run: got %+v, %v, rows %q; want the nonces below 6, and none bound", dry, err, h.fills())
	}
	h.outside(0, "0x00000000000000000000000000000000000000d4", "1")
	h.await("what consumed the nonce is not final, and asked for", func() bool {
		_, err = release(txmanager.ReleaseRequest{Mode: txmanager.Resync})
		return errors.Is(err, txmanager.ErrNotYetFinal)
	})
	h.mine(80)
	check.OK(t)(release(txmanager.ReleaseRequest{Mode: txmanager.Resync, Count: 1, Requests: map[uint64]string{0: txmanager.NoRequest}, Fill: new(uint64(6))}))
	check.Equal(t, "the filled nonces on record", value[string](h, `select released ->> 'filling' from protect_incident`), `{"from": 1, "below": 7}`)
	check.Err(t, "the same again", txmanager.ErrIncidentClosed)(release(txmanager.ReleaseRequest{Mode: txmanager.Resync, Count: 1}))
	if count, ok, err := h.db.Store.FilledCount(t.Context(), h.payer); count != 1 || !ok || err != nil {
		t.Errorf("the count that was filled above: got %d, %v, %v; want 1", count, ok, err)
	}
	h.run(`insert into protect_incident (submitter, incident, evidence) values ($1, 2, '{}')`, h.payer)
	again := txmanager.ReleaseRequest{Incident: 2, Mode: txmanager.Resume, By: "ann", Reason: "a false alarm"}
	if out, err := h.worker.ReleaseSubmitter(t.Context(), h.payer, again); err != nil || out.Filling != nil {
		t.Errorf("another incident, after the filling: got %+v, %v; want it resumed", out, err)
	}
}

// A strict submitter has one placeholder on the chain at a time, although the release binds all
// nonces at once.
func TestReleaseSendsPlaceholdersWithinTheWindow(t *testing.T) {
	t.Parallel()
	h := newEnv(t)
	h.worker.Rules.Strict = true
	h.fund(coin)
	h.restored(0, nil)
	for n := range filled {
		h.awaitServed("the next placeholder is sent", func() bool {
			return value[int](h, `select count(*) from managed_tx where fills and state = 'TRACKING'`) == 1
		})
		for range 3 {
			h.serve()
		}
		check.Equal(t, "signed versions", value[int](h, `select count(*) from tx_version`), n+1)
		h.await("it is final", func() bool {
			h.mine(1)
			h.serve()
			return value[int](h, `select count(*) from managed_tx where fills and state = 'FAILED'`) == n+1
		})
	}
}

// Nothing is filled for a submitter that is no payer, nor in a database that was never restored.
func TestReleaseFillsOnlyForPayersAfterARestore(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	other := h.pays(accounts[1], "shop")
	h.run(`insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}'), ($2, 1, '{}')`, h.payer, other)
	h.mine(80)
	leave := txmanager.ReleaseRequest{Incident: 1, Mode: txmanager.Resync, By: "ann", Reason: "a false alarm"}
	if out, err := h.worker.ReleaseSubmitter(t.Context(), h.payer, leave); err != nil || out.Filling != nil {
		t.Errorf("a payer, not restored: got %+v, %v; want nothing filled", out, err)
	}
	h.restore()
	h.accept("reconciled")
	if out, err := h.worker.ReleaseSubmitter(t.Context(), other, leave); err != nil || out.Filling != nil {
		t.Errorf("no payer, restored: got %+v, %v; want nothing filled", out, err)
	}
	h.run(`insert into protect_incident (submitter, incident, evidence) values ($1, 2, '{}')`, other)
	leave.Incident, leave.Fill = 2, new(uint64(5))
	if out, err := h.worker.ReleaseSubmitter(t.Context(), other, leave); err != nil || out.Filling == nil || *out.Filling != (txmanager.Filling{Below: 5}) {
		t.Errorf("no payer, asked for: got %+v, %v; want 5 nonces filled", out, err)
	}
}

// An operator's statement before the release counts: the release fills all nonces that the
// statement waits for.
func TestReleaseFillsAllStatedNonces(t *testing.T) {
	t.Parallel()
	h, x := newDue(t)
	h.protected()
	h.drive(x.ReqID, transfer.TargetPending)
	h.wantUnknown(x, payout.ErrUnstated)
	h.says(x.ReqID, store.PayoutStatement{Refund: true, NoncesBelow: 7})
	out, err := h.worker.ReleaseSubmitter(t.Context(), h.payer, txmanager.ReleaseRequest{Incident: 1, Mode: txmanager.Resync, By: "ann", Reason: "restored"})
	if err != nil || out.Filling == nil || *out.Filling != (txmanager.Filling{Below: 7}) {
		t.Fatalf("release: got %+v, %v; want the nonces below 7 filled", out, err)
	}
	h.await("what was not paid is given back", func() bool {
		h.serve()
		h.mine(1)
		got, err := h.coordinator.Drive(t.Context(), x.ReqID)
		return err == nil && got.State == transfer.RolledBack
	})
	h.has(coin, "10")
}

// watchedChain is the payer's chain. It calls a function when the final count is queried.
type watchedChain struct {
	txmanager.ChainConnector
	at func()
}

func (c watchedChain) Query(ctx context.Context, q txmanager.ChainQuery) (txmanager.ChainObservation, error) {
	if q.FinalCount {
		c.at()
	}
	return c.ChainConnector.Query(ctx, q)
}

// A release that was evaluated before the database was accepted ends no PROTECT incident after it.
// It has not checked which transactions the restored copy has lost, and has filled no lost nonce.
func TestReleaseFromBeforeTheAcceptanceEndsNoProtect(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		copied bool // the release begins in a restored copy that no operator has accepted
		mode   txmanager.ReleaseMode
		err    error // nil: any error is accepted
	}{
		"begun in the copy":             {true, txmanager.Resume, txmanager.ErrDatabaseNotAccepted},
		"begun before, and still going": {false, txmanager.Resync, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newEnv(t)
			h.mine(80)
			h.run(`insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, h.payer)
			accept := func() { check.Err(t, "accept", nil)(h.db.Store.AcceptDatabase(t.Context(), "ann", "reconciled")) }
			if x.copied {
				h.restore()
				h.worker.Reached = func(point string) {
					if point == "release.taken" {
						accept()
					}
				}
			} else {
				h.worker.ChainOf = func(txmanager.Submitter) (txmanager.ChainConnector, error) {
					return watchedChain{h.connector, func() { h.restore(); accept() }}, nil
				}
			}
			out, err := h.worker.ReleaseSubmitter(t.Context(), h.payer, txmanager.ReleaseRequest{Incident: 1, Mode: x.mode, By: "bob", Reason: "a false alarm"})
			if err == nil || !errors.Is(err, x.err) && x.err != nil {
				t.Errorf("release: got %+v, %v; want it refused", out, err)
			}
			check.Equal(t, "open incidents", value[int](h, `select count(*) from protect_incident where closed_at is null`), 1)
		})
	}
}
