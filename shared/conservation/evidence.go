package conservation

import (
	"fmt"

	"github.com/fencepost/fencepost/shared/transfer"
)

// Evidence is all that is known of one req_id. It is kept for ever: a second effect
// of what was settled years ago finds it.
type Evidence struct {
	ReqID   string         `json:"reqId"`
	Account Account        `json:"account"` // as the first who spoke of it said
	Units   uint64         `json:"units,string"`
	Debit   Side           `json:"debit,omitempty"`   // where it was withdrawn; "": nowhere so far
	Deposit Side           `json:"deposit,omitempty"` // where it was deposited
	Refund  Side           `json:"refund,omitempty"`  // where it was refunded
	Type    transfer.Type  `json:"type,omitempty"`    // of the transfer; 0: its row was not read yet
	Final   transfer.State `json:"final"`             // where it ended, by its row; INIT: it has not
}

// Terms are what a transfer's row says of it from the beginning.
type Terms struct {
	Account Account
	Units   uint64
	Type    transfer.Type
}

// Claim is a transfer that is final.
type Claim struct {
	ReqID string
	Terms Terms
	State transfer.State
}

// Empty says that nothing is known yet.
func (e *Evidence) Empty() bool {
	return e.Debit == "" && e.Deposit == "" && e.Refund == "" && e.Type == 0 && e.Units == 0
}

// Open says that something is still to be looked for: what a credit or a final state
// implies has not been seen.
func (e *Evidence) Open() bool {
	credited := e.Deposit != "" || e.Refund != ""
	return credited && e.Debit == "" ||
		e.Final == transfer.Committed && (e.Debit == "" || e.Deposit == "") ||
		e.Final == transfer.RolledBack && (e.Debit == "" || e.Refund == "")
}

// Concerns says whether a journal's entry moved a transfer's money. Refusals moved
// none, and what comes from outside has no other side.
func Concerns(entry transfer.Entry) bool {
	return entry.Refused == "" && (entry.Op == transfer.Withdraw || entry.Op == transfer.Deposit || entry.Op == transfer.Refund)
}

// Add takes an entry of a side's journal, which [Concerns] transfers, and returns
// what it contradicts by itself.
func (e *Evidence) Add(side Side, entry transfer.Entry) []Finding {
	found := e.sameFields(side, Account{entry.UserID, entry.AssetID}, entry.Units, entry)
	place := e.place(entry.Op)
	if *place != "" {
		return append(found, e.finding(AppliedTwice, side, "one "+string(entry.Op), fmt.Sprintf("another, number %d", entry.Seq), entry))
	}
	*place = side
	return found
}

func (e *Evidence) place(op transfer.Op) *Side {
	switch op {
	case transfer.Withdraw:
		return &e.Debit
	case transfer.Deposit:
		return &e.Deposit
	default:
		return &e.Refund
	}
}

// Exists takes what the transfer's row says; nil: there is none.
func (e *Evidence) Exists(terms *Terms) []Finding {
	if terms == nil {
		return []Finding{e.finding(NoTransfer, "", "a transfer", "none", nil)}
	}
	found := e.sameFields("", terms.Account, terms.Units, terms)
	e.Type = terms.Type
	return found
}

// Claims takes a final state.
func (e *Evidence) Claims(c Claim) []Finding {
	found := e.Exists(&c.Terms)
	if e.Final != transfer.Init && e.Final != c.State {
		return append(found, e.finding(StateChanged, "", e.Final.String(), c.State.String(), nil))
	}
	e.Final = c.State
	return found
}

// sameFields holds fields against those that are known, and takes them where none
// are.
func (e *Evidence) sameFields(side Side, account Account, units uint64, what any) []Finding {
	if e.Empty() {
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

// Contradictions are what is wrong whatever is read later.
func (e *Evidence) Contradictions() (found []Finding) {
	if e.Deposit != "" && e.Refund != "" {
		found = append(found, e.finding(CreditAndRefund, "", "one of both", "deposit and refund", nil))
	}
	source, target := e.Type.Source(), e.Type.Target()
	if e.Type == 0 {
		source = e.Debit
	}
	for _, at := range []struct {
		op         transfer.Op
		is, should Side
	}{{transfer.Withdraw, e.Debit, source}, {transfer.Refund, e.Refund, source}, {transfer.Deposit, e.Deposit, target}} {
		if at.is != "" && at.should != "" && at.is != at.should {
			found = append(found, e.finding(WrongSide, at.is, fmt.Sprintf("%s on %s", at.op, at.should), string(at.is), nil))
		}
	}
	if e.Type == 0 && e.Deposit != "" && e.Deposit == e.Debit {
		found = append(found, e.finding(WrongSide, e.Deposit, "deposit on the other side", string(e.Deposit), nil))
	}
	for _, of := range []struct {
		state transfer.State
		op    transfer.Op
		is    Side
	}{
		{transfer.Failed, transfer.Withdraw, e.Debit}, {transfer.Failed, transfer.Deposit, e.Deposit}, {transfer.Failed, transfer.Refund, e.Refund},
		{transfer.Committed, transfer.Refund, e.Refund}, {transfer.RolledBack, transfer.Deposit, e.Deposit},
	} {
		if e.Final == of.state && of.is != "" {
			found = append(found, e.finding(ContradictsState, of.is, "no "+string(of.op)+" of what is "+of.state.String(), "one", nil))
		}
	}
	return found
}

// Missing are what should be there by now: e must have been brought up to date from
// journals that were read later than everything that it says. Without a journal of
// payouts, chain is false, and nobody knows what a payout's target did.
func (e *Evidence) Missing(chain bool) (found []Finding) {
	if (e.Deposit != "" || e.Refund != "") && e.Debit == "" {
		found = append(found, e.finding(CreditWithoutDebit, "", "a withdrawal", "none", nil))
	}
	if e.Final == transfer.Committed && (e.Debit == "" || e.Deposit == "" && (chain || e.Type.Target() != transfer.Chain)) {
		found = append(found, e.finding(CommittedIncomplete, "", "withdrawal and deposit", e.did(), nil))
	}
	if e.Final == transfer.RolledBack && (e.Debit == "" || e.Refund == "") {
		found = append(found, e.finding(RolledBackUnpaid, "", "withdrawal and refund", e.did(), nil))
	}
	return found
}

// did is what was applied, in words.
func (e *Evidence) did() string {
	return fmt.Sprintf("withdrawn: %t, deposited: %t, refunded: %t", e.Debit != "", e.Deposit != "", e.Refund != "")
}

func (e *Evidence) finding(kind Kind, side Side, expected, got string, by any) Finding {
	return Finding{Kind: kind, Side: side, ReqID: e.ReqID, Account: e.Account, Expected: expected, Got: got,
		Evidence: struct {
			Known Evidence `json:"known"`
			By    any      `json:"by,omitempty"`
		}{*e, by}}
}
