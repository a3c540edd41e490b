package conservation

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fencepost/fencepost/shared/transfer"
)

// The kinds of finding about the chain itself. Each check finds them again as long as
// they are so, and they stand no longer once they are not.
const (
	PaymentWithoutTransfer Kind = "PAYMENT_WITHOUT_TRANSFER" // a payer's money left, and no record says why
	TransferWithoutPayment Kind = "TRANSFER_WITHOUT_PAYMENT" // COMMITTED, and the chain has no payment
	PaymentDiffers         Kind = "PAYMENT_DIFFERS"          // in receiver, token or amount, or of a payout that was given back
	PaidTwice              Kind = "PAID_TWICE"               // a second payment for one payout
)

// Payments reads the chain itself.
type Payments interface {
	// Check reads what is new in final blocks, within bounds, and returns what is wrong
	// by all that was read so far. That a chain's nodes do not answer is no error: what
	// was read before is judged. full judges again what earlier checks have settled.
	Check(ctx context.Context, full bool) ([]Finding, error)
}

// Payment is money of a payer that left in a final block, and what the records say of it.
type Payment struct {
	Submitter   string `json:"submitter"`
	TxHash      string `json:"txHash"`
	LogIndex    int    `json:"logIndex"` // -1: the chain's own coin
	BlockNumber uint64 `json:"block"`
	Token       string `json:"token,omitempty"`
	Receiver    string `json:"receiver"`
	Amount      string `json:"amount"`
	AssetID     int32  `json:"-"` // that this payer pays with this token; 0: none

	Claimed bool           `json:"-"` // by a record of our own: a request's stored version, a proof, a release or an operator
	ReqID   string         `json:"-"` // of the request that claims it; "": an operator has written it off
	Payout  *ClaimedPayout `json:"-"` // nil: the request is no transfer's
	Ordered bool           `json:"-"` // the coordinator itself posted that request: it must be a transfer's
	Decided bool           `json:"-"` // an operator has decided whether that payout was paid
	InDoubt bool           `json:"-"` // a payout in doubt, which is open, wants the same payment
	Before  bool           `json:"-"` // another payment of the same payout was settled before
}

// ClaimedPayout is the transfer's row.
type ClaimedPayout struct {
	UserID                  int64
	AssetID                 int32
	State                   transfer.State
	Token, Receiver, Amount string
}

// Outcome is what a payment is known to be.
type Outcome string

// The outcomes. Unsettled is judged again by each check.
const (
	Unsettled Outcome = ""
	Paid      Outcome = "PAID"  // the payout of a transfer
	Other     Outcome = "OTHER" // a request that is no transfer, or what an operator decided about
)

// Judge says what the payment is, or what is wrong with it. An open transfer's payment
// is unsettled and not wrong.
func (p Payment) Judge() (Outcome, *Finding) {
	t := p.Payout
	switch {
	case !p.Claimed && p.InDoubt:
		return Unsettled, nil
	case !p.Claimed, t == nil && p.Ordered:
		return Unsettled, p.finding(PaymentWithoutTransfer, "a transfer")
	case t == nil, p.Decided:
		return Other, nil
	case p.Before:
		return Unsettled, p.finding(PaidTwice, "one payment")
	case t.State == transfer.Failed || t.State == transfer.RolledBack:
		return Unsettled, p.finding(PaymentDiffers, "no payment: it is "+t.State.String())
	case t.State != transfer.Committed:
		return Unsettled, nil
	case t.Token != p.Token || t.Receiver != p.Receiver || t.Amount != p.Amount:
		return Unsettled, p.finding(PaymentDiffers, money(t.Amount, t.Token, t.Receiver))
	}
	return Paid, nil
}

func money(amount, token, receiver string) string {
	if token == "" {
		token = "the chain's coin"
	}
	return fmt.Sprintf("%s of %s to %s", amount, token, receiver)
}

func (p Payment) finding(kind Kind, expected string) *Finding {
	f := &Finding{Kind: kind, Side: transfer.Chain, ReqID: p.ReqID, Account: Account{AssetID: p.AssetID}, Expected: expected,
		Got: fmt.Sprintf("%s by transaction %s, log %d", money(p.Amount, p.Token, p.Receiver), p.TxHash, p.LogIndex), Evidence: p}
	if p.Payout != nil {
		f.Account = Account{p.Payout.UserID, p.Payout.AssetID}
	}
	return f
}

// Owed is a payout that is COMMITTED, and of which no payment was found yet.
type Owed struct {
	ReqID   string
	Account Account
	Due     *uint64 // the block by which its payment must have been read; nil: not known yet
	Start   uint64  // blocks up to this one are not read
	Read    uint64  // and blocks up to this one were
	Found   bool    // its payment was found, or an operator decided that it was paid
	Judged  bool    // a payment of it was found that differs, or that is to be judged
}

// Judge says whether the payment needs to be looked for no longer, or that it is missing.
func (o Owed) Judge() (settled bool, wrong *Finding) {
	switch {
	case o.Found, o.Due != nil && *o.Due <= o.Start:
		return true, nil
	case o.Judged, o.Due == nil, o.Read < *o.Due:
		return false, nil
	}
	return false, &Finding{Kind: TransferWithoutPayment, Side: transfer.Chain, ReqID: o.ReqID, Account: o.Account, Expected: "a payment",
		Got: "none", Evidence: map[string]any{"due": *o.Due, "readFrom": o.Start + 1, "readTo": o.Read}}
}

// ChainReading is how far the blocks of one payer were read.
type ChainReading struct {
	Submitter  string
	New        bool   // it was not read yet
	Registered int64  // when the payer was registered, in seconds since 1970
	Start      uint64 // blocks after this one are read
	Block      uint64
	BlockHash  string
	Sent       uint64
	Tokens     []string
	Pass       int
}

// WentBack is the finding of a payer's block that was final and is another now.
func WentBack(submitter string, evidence json.RawMessage) Finding {
	return Finding{Kind: JournalWentBack, Side: transfer.Chain, Expected: "the block that was read of " + submitter, Got: string(evidence), Evidence: evidence}
}

// owed are the payouts that the round's claims say are COMMITTED.
func (r Round) owed() (reqs []string) {
	for _, c := range r.Claims {
		if c.State == transfer.Committed && c.Terms.Type == transfer.FundingToChain {
			reqs = append(reqs, c.ReqID)
		}
	}
	return reqs
}
