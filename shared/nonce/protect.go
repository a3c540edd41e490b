package nonce

// suspect compares the chain's counts with the cursor. What it finds amiss means
// that somebody else used the account, if a second look, a block later, finds it
// too: only then PROTECT is opened, with the numbers as evidence. A count below
// the cursor is lag, and proves nothing.
func suspect(w Work, v View) CursorChange {
	what, expected := amiss(w, v)
	switch {
	case w.Protected:
		return CursorChange{}
	case what == "" && w.Suspicion != nil:
		return CursorChange{Trust: true}
	case what == "":
		return CursorChange{}
	}
	seen := &Suspicion{
		What: what, ExpectedNonce: expected,
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

// amiss says what in the view cannot be our own doing, and the count that would
// be right at most; or nothing.
func amiss(w Work, v View) (what string, expected uint64) {
	a := v.Account
	switch {
	case a.LatestCount > w.NextNonce || a.PendingCount > w.NextNonce:
		return "the chain's count of the account is ahead of every nonce handed out", w.NextNonce
	case a.LatestCount > w.lowest() && unheardOf(w.Unsettled[0], v):
		return "the lowest nonce in flight is consumed, and the node knows none of its versions", w.lowest()
	}
	return "", 0
}

// unheardOf says that the node was asked for every version of t, and has none.
func unheardOf(t Tx, v View) bool {
	for _, h := range t.Versions {
		if v.Known[h] != AnswerNotFound || v.Receipts[h].Answer == AnswerFound {
			return false
		}
	}
	return t.Receipt == nil
}
