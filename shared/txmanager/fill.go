package txmanager

import (
	"errors"
	"fmt"
	"slices"
)

// LostNonces describes the nonces for which a lost database may have signed. Its bytes can be
// mined until another transaction consumes these nonces.
type LostNonces struct {
	Payer       bool   // the submitter makes payouts for the transfer coordinator
	Restored    bool   // the database was accepted after a restore, and no release has filled the nonces since
	Window      uint64 // the submitter's registered window
	Change      int64  // number of the last change of the database identity; 0: none
	StatedBelow uint64 // a payout that an operator states as unpaid waits for every nonce below this; 0: none
}

// Filling is the range of nonces that a release makes placeholders consume.
type Filling struct {
	From  uint64 `json:"from"`  // the first
	Below uint64 `json:"below"` // one above the last; not above From: the range is empty
}

// FillError reports a release that would fill too few nonces, or cannot fill them.
type FillError struct{ Why string }

// Error is the reason.
func (e FillError) Error() string { return e.Why }

// Errors of a release that must fill nonces. After each, the incident is unchanged.
var (
	// ErrFillRequired reports a payer of a restored database that was to leave PROTECT by resume:
	// lost payments may still be mined.
	ErrFillRequired = errors.New("the database was restored, and what it has lost may have signed payments of this account that can still be mined: release it by resync, which fills their nonces with placeholders")
	// ErrNotYetFinal reports transactions of the account that are mined and not final yet. A
	// placeholder for their nonces would have no effect.
	ErrNotYetFinal = errors.New("the account has transactions that are not final yet, and nonces are filled above the final ones only")
)

// checkResume returns why an incident must not end by resume.
func (l LostNonces) checkResume() error {
	if l.Payer && l.Restored {
		return ErrFillRequired
	}
	return nil
}

// planFill plans the placeholders of a resync, for each unbound nonce. The range ends at the final
// count plus the largest window that the submitter can have had. A payer needs them after each
// restore; for another submitter the operator requests them.
func (t *incident) planFill(l *ReleaseRequest, v ChainObservation, lost LostNonces) error {
	if l.Fill == nil && !(lost.Payer && lost.Restored) {
		return nil
	}
	window := lost.Window
	if l.Fill != nil {
		window = *l.Fill
	}
	switch {
	case window < lost.Window:
		return FillError{fmt.Sprintf("is %d: want at least %d, the window that the account is registered with", window, lost.Window)}
	case v.Account.LatestCount > l.Count:
		return fmt.Errorf("%w: the chain's count is %d, and at its finalized block %d", ErrNotYetFinal, v.Account.LatestCount, l.Count)
	}
	f := Filling{From: max(t.state.NextNonce, l.Count), Below: max(l.Count+window, lost.StatedBelow)}
	held := slices.DeleteFunc(slices.Clone(t.state.Open), func(x Tx) bool { return *x.Nonce < l.Count })
	balance := newAvailableBalance(v, held)
	for n := f.From; n < f.Below; n++ {
		if short := balance.reserve(completeFees(Call{}, placeholderGas, v.Account)); short != nil {
			return FillError{fmt.Sprintf("has placeholders for %d nonces, from %d on, and the balance of the account pays for %d at today's price: fund it first", f.Below-f.From, f.From, n-f.From)}
		}
	}
	l.Filling = &f
	return nil
}

// isFilling reports whether placeholders of a release are not final yet. Until then bytes of a
// lost database can be mined, and no other nonce is bound.
func (w SubmitterState) isFilling() bool {
	return slices.ContainsFunc(w.Open, func(t Tx) bool { return t.FillsLostNonce })
}

// waitsForWindow reports whether the open transaction at i is a fill that the window has no room
// to send yet. Its nonce is bound already.
func (w SubmitterState) waitsForWindow(i int) bool {
	t := w.Open[i]
	return t.FillsLostNonce && len(t.Versions) == 0 && i >= int(w.Window)
}
