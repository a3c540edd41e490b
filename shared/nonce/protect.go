package nonce

// suspect compares the chain's counts with the cursor. Counts above it mean that
// somebody else used the account, if a second look, a block later, says so too:
// only then PROTECT is opened, with both numbers as evidence. A count below is
// lag, and proves nothing.
func suspect(w Work, v View) CursorChange {
	ahead := v.Account.LatestCount > w.NextNonce || v.Account.PendingCount > w.NextNonce
	switch {
	case w.Protected:
		return CursorChange{}
	case !ahead && w.Suspicion != nil:
		return CursorChange{Trust: true}
	case !ahead:
		return CursorChange{}
	}
	seen := &Suspicion{
		What: "the chain's count of the account is ahead of every nonce handed out", ExpectedNonce: w.NextNonce,
		LatestCount: v.Account.LatestCount, PendingCount: v.Account.PendingCount,
		Block: v.Head.Number, BlockHash: v.Head.Hash, Node: v.Node,
	}
	switch {
	case w.Suspicion == nil:
		return CursorChange{Suspect: seen}
	case seen.Block > w.Suspicion.Block:
		return CursorChange{Protect: seen}
	}
	return CursorChange{}
}
