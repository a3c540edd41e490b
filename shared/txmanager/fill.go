package txmanager

import (
	"errors"
	"fmt"
	"slices"
)

// LostNonces is what is known of the nonces for which a lost database may have signed.
// Its bytes may be mined as long as nothing else has consumed these nonces.
type LostNonces struct {
	Payer       bool   // the submitter pays out for the transfer coordinator
	Restored    bool   // the database was accepted after a restore, and no release has filled the nonces since
	Window      uint64 // the submitter's, as registered
	Change      int64  // the number of the last change of the authority; 0: there was none
	StatedBelow uint64 // a payout that an operator states as not paid waits for every nonce below; 0: none does
}

// Filling is the nonces that a release has placeholders consume.
type Filling struct {
	From  uint64 `json:"from"`  // the first
	Below uint64 `json:"below"` // one above the last; not above From: there is nothing to fill
}

// FillError reports a release that would fill too few nonces, or that cannot fill any.
type FillError struct{ Why string }

// Error is the reason.
func (e FillError) Error() string { return e.Why }

// Errors of a release that has to fill nonces. After each, the episode is as it was.
var (
	// ErrFillRequired reports a payer of a restored database that was to leave PROTECT by
	// resume: its lost payments may still be mined.
	ErrFillRequired = errors.New("the database was restored, and what it has lost may have signed payments of this account that can still be mined: release it by resync, which fills their nonces with placeholders")
	// ErrNotYetFinal reports transactions of the account that are mined and not final yet:
	// a placeholder for their nonces would do nothing.
	ErrNotYetFinal = errors.New("the account has transactions that are not final yet, and nonces are filled above the final ones only")
)

// checkResume says why an episode may not end by resume.
func (l LostNonces) checkResume() error {
	if l.Payer && l.Restored {
		return ErrFillRequired
	}
	return nil
}

// planFill plans the placeholders of a resync: for each nonce that is not bound, up to the
// final count and the largest window that the submitter can have had. A payer gets them
// after each restore, another submitter where the operator asks for them.
func (t *leaseSession) planFill(l *ReleaseRequest, v ChainObservation, lost LostNonces) error {
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
	purse := newAvailableBalance(v, held)
	for n := f.From; n < f.Below; n++ {
		if short := purse.reserve(completeFees(Call{}, placeholderGas, v.Account)); short != nil {
			return FillError{fmt.Sprintf("has placeholders for %d nonces, from %d on, and the balance of the account pays for %d at today's price: fund it first", f.Below-f.From, f.From, n-f.From)}
		}
	}
	l.Filling = &f
	return nil
}

// isFilling says that placeholders of a release are not all final yet. Until then bytes of
// a lost database may be mined, and nothing else is bound.
func (w SubmitterState) isFilling() bool {
	return slices.ContainsFunc(w.Open, func(t Tx) bool { return t.FillsLostNonce })
}

// waitsForWindow says that the unsettled transaction at i is a placeholder that fills a nonce,
// and that the window has no room to send it yet. Its nonce is bound all the same.
func (w SubmitterState) waitsForWindow(i int) bool {
	t := w.Open[i]
	return t.FillsLostNonce && len(t.Versions) == 0 && i >= int(w.Window)
}
