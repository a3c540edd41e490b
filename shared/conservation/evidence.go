package conservation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Evidence holds everything that is known about one req_id. It is kept permanently, so that a
// second effect years later is found.
type Evidence struct {
	ReqID   string         `json:"reqId"`
	Account Account        `json:"account"` // as in the first statement about it
	Units   uint64         `json:"units,string"`
	Debit   Side           `json:"debit,omitempty"`   // the side of the withdrawal; "": none so far
	Deposit Side           `json:"deposit,omitempty"` // the side of the deposit
	Refund  Side           `json:"refund,omitempty"`  // the side of the refund
	Type    transfer.Type  `json:"type,omitempty"`    // of the transfer; 0: its row was not read yet
	Final   transfer.State `json:"final"`             // the final state of its row; INIT: not final yet
}

// Terms are the fixed fields of a transfer's row.
type Terms struct {
	Account Account
	Units   uint64
	Type    transfer.Type
}

// Claim is a final state of a transfer.
type Claim struct {
	ReqID string
	Terms Terms
	State transfer.State
}

// Open reports whether an entry is still required: a credit or a final state implies one that was
// not read.
func (e *Evidence) Open() bool { return len(e.Missing(true)) > 0 }

// Add adds an entry that concerns a transfer. It returns the contradictions of the entry itself.
func (e *Evidence) Add(entry Entry) []Finding {
	found := e.sameFields(entry.Side, Account{entry.UserID, entry.AssetID}, entry.Units, entry.Entry)
	known := e.SideOf(entry.Op)
	if *known != "" {
		return append(found, e.finding(AppliedTwice, entry.Side, "one "+string(entry.Op), fmt.Sprintf("another, number %d", entry.Seq), entry.Entry))
	}
	*known = entry.Side
	return found
}

// SideOf returns the side that applied an operation of a transfer; "": none so far.
func (e *Evidence) SideOf(op transfer.Op) *Side {
	switch op {
	case transfer.Withdraw:
		return &e.Debit
	case transfer.Deposit:
		return &e.Deposit
	default:
		return &e.Refund
	}
}

// Exists compares the evidence with the transfer's row, if there is one.
func (e *Evidence) Exists(terms Terms, exists bool) []Finding {
	if !exists {
		return []Finding{e.finding(NoTransfer, "", "a transfer", "none", nil)}
	}
	found := e.sameFields("", terms.Account, terms.Units, terms)
	e.Type = terms.Type
	return found
}

// Claims adds a final state.
func (e *Evidence) Claims(c Claim) []Finding {
	found := e.Exists(c.Terms, true)
	if e.Final != transfer.Init && e.Final != c.State {
		return append(found, e.finding(StateChanged, "", e.Final.String(), c.State.String(), nil))
	}
	e.Final = c.State
	return found
}

// sameFields compares fields with the known ones, or stores them if none are known.
func (e *Evidence) sameFields(side Side, account Account, units uint64, what any) []Finding {
	if e.Debit == "" && e.Deposit == "" && e.Refund == "" && e.Type == 0 && e.Units == 0 { // nothing is known yet
		e.Account, e.Units = account, units
		return nil
	}
	if e.Account == account && e.Units == units {
		return nil
	}
	return []Finding{e.finding(FieldsDiffer, side,
		fmt.Sprintf("%d of user %d in %d", e.Units, e.Account.UserID, e.Account.AssetID),
		fmt.Sprintf("%d of user %d in %d", units, account.UserID, account.AssetID), what)}
}

// Contradictions returns the violations that no later entry can resolve.
func (e *Evidence) Contradictions() (found []Finding) {
	if e.Deposit != "" && e.Refund != "" {
		found = append(found, e.finding(CreditAndRefund, "", "one of both", "deposit and refund", nil))
	}
	source, target := e.Type.Source(), e.Type.Target()
	if e.Type == 0 {
		source = e.Debit
	}
	for _, op := range moves {
		is, should := *e.SideOf(op), source
		if op == transfer.Deposit {
			should = target
		}
		if is != "" && should != "" && is != should {
			found = append(found, e.finding(WrongSide, is, fmt.Sprintf("%s on %s", op, should), string(is), nil))
		}
	}
	if e.Type == 0 && e.Deposit != "" && e.Deposit == e.Debit {
		found = append(found, e.finding(WrongSide, e.Deposit, "deposit on the other side", string(e.Deposit), nil))
	}
	for _, op := range moves {
		if is := *e.SideOf(op); is != "" && e.excludes(op) {
			found = append(found, e.finding(ContradictsState, is, "no "+string(op)+" of what is "+e.Final.String(), "one", nil))
		}
	}
	return found
}

// excludes reports whether the final state contradicts the operation.
func (e *Evidence) excludes(op transfer.Op) bool {
	return e.Final == transfer.Failed || e.Final == transfer.Committed && op == transfer.Refund ||
		e.Final == transfer.RolledBack && op == transfer.Deposit
}

// Missing returns the entries that should be there. e must include all journals, read later than
// the statements in it. If there is no journal of payouts, chain is false, and a payout's target is
// not checked.
func (e *Evidence) Missing(chain bool) (found []Finding) {
	if (e.Deposit != "" || e.Refund != "") && e.Debit == "" {
		found = append(found, e.finding(CreditWithoutDebit, "", "a withdrawal", "none", nil))
	}
	if e.Final == transfer.Committed && (e.Debit == "" || e.Deposit == "" && (chain || e.Type.Target() != transfer.Chain)) {
		found = append(found, e.finding(CommittedIncomplete, "", "withdrawal and deposit", e.effects(), nil))
	}
	if e.Final == transfer.RolledBack && (e.Debit == "" || e.Refund == "") {
		found = append(found, e.finding(RolledBackUnpaid, "", "withdrawal and refund", e.effects(), nil))
	}
	return found
}

// effects describes the applied entries.
func (e *Evidence) effects() string {
	return fmt.Sprintf("withdrawn: %t, deposited: %t, refunded: %t", e.Debit != "", e.Deposit != "", e.Refund != "")
}

func (e *Evidence) finding(kind Kind, side Side, expected, got string, by any) Finding {
	return Finding{Kind: kind, Side: side, ReqID: e.ReqID, Account: e.Account, Expected: expected, Got: got,
		Evidence: struct {
			Known Evidence `json:"known"`
			By    any      `json:"by,omitempty"`
		}{*e, by}}
}

// Scale is an asset's precision in a side's journal: one unit is 10^-Precision.
type Scale struct {
	Side      Side // set from the reading, not from the journal
	AssetID   int32
	Precision uint8
}

// distinct returns each scale once, in order.
func distinct(all []Scale) []Scale {
	all = slices.SortedFunc(slices.Values(all), func(a, b Scale) int {
		return cmp.Or(cmp.Compare(a.Side, b.Side), cmp.Compare(a.AssetID, b.AssetID), cmp.Compare(a.Precision, b.Precision))
	})
	return slices.Compact(all)
}

// precisions compares the scales of all journals, earlier ones and the batch's, with the precisions
// of our assets. With another precision, equal units on both sides would be amounts that differ by
// a power of ten. An asset that only the other side has is ignored.
func (k Known) precisions(r Batch) (found []Finding) {
	for _, s := range distinct(slices.Concat(k.Scales, r.Scales)) {
		if own, ours := k.Precision[s.AssetID]; ours && own != s.Precision {
			found = append(found, Finding{Kind: PrecisionDiffers, Side: s.Side, Account: Account{AssetID: s.AssetID},
				Expected: fmt.Sprintf("%d decimals", own), Got: fmt.Sprintf("%d decimals", s.Precision)})
		}
	}
	return found
}
