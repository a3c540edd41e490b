package conservation

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/fencepost/fencepost/shared/transfer"
)

// The kinds of finding about the chain. Each check reports them again as long as they are true;
// after that they are closed.
const (
	PaymentWithoutTransfer Kind = "PAYMENT_WITHOUT_TRANSFER" // a payer's money left, and no record has the cause
	TransferWithoutPayment Kind = "TRANSFER_WITHOUT_PAYMENT" // COMMITTED, and the chain has no payment
	PaymentDiffers         Kind = "PAYMENT_DIFFERS"          // in recipient, token or amount, or it belongs to a refunded payout
	PaidTwice              Kind = "PAID_TWICE"               // a second payment for one payout
)

// Payments reads the chain.
type Payments interface {
	// Check reads new final blocks, within limits, and returns the violations of all blocks read so
	// far. An unavailable chain is no error: the payments that were read before are evaluated. full
	// evaluates settled payments again.
	Check(ctx context.Context, full bool) ([]Finding, error)
}

// Payment is money of a payer that left in a final block, with the records about it.
type Payment struct {
	Submitter   string `json:"submitter"`
	TxHash      string `json:"txHash"`
	LogIndex    int    `json:"logIndex"` // -1: the chain's own coin
	BlockNumber uint64 `json:"block"`
	Token       string `json:"token,omitempty"`
	Recipient   string `json:"recipient"`
	Amount      string `json:"amount"`
	AssetID     int32  `json:"-"` // the asset that this payer pays with this token; 0: none

	Claimed bool           `json:"-"` // by a record of this database: a request's stored version, a proof, a release or an operator
	ReqID   string         `json:"-"` // of the request that claims it; "": an operator has written it off
	Payout  *ClaimedPayout `json:"-"` // nil: the request belongs to no transfer
	Ordered bool           `json:"-"` // the coordinator posted the request, so it must belong to a transfer
	Decided bool           `json:"-"` // an operator has stated whether the payout was paid
	InDoubt bool           `json:"-"` // an open payout in doubt has the same payment
	Before  bool           `json:"-"` // another payment of the same payout was settled before
}

// ClaimedPayout holds the columns of the transfer's row.
type ClaimedPayout struct {
	UserID                   int64
	AssetID                  int32
	State                    transfer.State
	Token, Recipient, Amount string
}

// Outcome is the result of evaluating a payment.
type Outcome string

// The outcomes. Each check evaluates an Unsettled payment again.
const (
	Unsettled Outcome = ""
	Paid      Outcome = "PAID"  // the payout of a transfer
	Other     Outcome = "OTHER" // of a request without a transfer, or covered by an operator's decision
)

// Evaluate returns the payment's outcome, or its violation. A payment of an open transfer is
// unsettled, which is no violation.
func (p Payment) Evaluate() (Outcome, *Finding) {
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
	case t.Token != p.Token || t.Recipient != p.Recipient || t.Amount != p.Amount:
		return Unsettled, p.finding(PaymentDiffers, money(t.Amount, t.Token, t.Recipient))
	}
	return Paid, nil
}

func money(amount, token, recipient string) string {
	if token == "" {
		token = "the chain's coin"
	}
	return fmt.Sprintf("%s of %s to %s", amount, token, recipient)
}

func (p Payment) finding(kind Kind, expected string) *Finding {
	f := &Finding{Kind: kind, Side: transfer.Chain, ReqID: p.ReqID, Account: Account{AssetID: p.AssetID}, Expected: expected,
		Got: fmt.Sprintf("%s by transaction %s, log %d", money(p.Amount, p.Token, p.Recipient), p.TxHash, p.LogIndex), Evidence: p}
	if p.Payout != nil {
		f.Account = Account{p.Payout.UserID, p.Payout.AssetID}
	}
	return f
}

// Owed is a COMMITTED payout whose payment was not found yet.
type Owed struct {
	ReqID     string
	Account   Account
	Due       *uint64 // the block by which its payment must have been read; nil: not known yet
	Start     uint64  // blocks up to this one are not read
	Read      uint64  // and blocks up to this one were
	Found     bool    // its payment was found, or an operator stated that it was paid
	Evaluated bool    // one of its payments differs, or is still to be evaluated
}

// Evaluate reports whether the payment is no longer required, or returns the violation that it is
// missing.
func (o Owed) Evaluate() (settled bool, wrong *Finding) {
	switch {
	case o.Found, o.Due != nil && *o.Due <= o.Start:
		return true, nil
	case o.Evaluated, o.Due == nil, o.Read < *o.Due:
		return false, nil
	}
	return false, &Finding{Kind: TransferWithoutPayment, Side: transfer.Chain, ReqID: o.ReqID, Account: o.Account, Expected: "a payment",
		Got: "none", Evidence: map[string]any{"due": *o.Due, "readFrom": o.Start + 1, "readTo": o.Read}}
}

// ChainReading is the position up to which the blocks of one payer were read.
type ChainReading struct {
	Submitter  string
	Registered int64  // when the payer was registered, in seconds since 1970
	New        bool   // it was never read
	Start      uint64 // blocks after this one are read
	Block      uint64
	BlockHash  string
	Sent       uint64
	Pass       int
	Tokens     []string
}

// WentBack returns the finding about a payer's final block that was replaced.
func WentBack(submitter string, evidence json.RawMessage) Finding {
	return Finding{Kind: JournalWentBack, Side: transfer.Chain, Expected: "the block that was read of " + submitter, Got: string(evidence), Evidence: evidence}
}

// owed returns the payouts that the batch's claims report as COMMITTED.
func (r Batch) owed() (reqs []string) {
	for _, c := range r.Claims {
		if c.State == transfer.Committed && c.Terms.Type == transfer.FundingToChain {
			reqs = append(reqs, c.ReqID)
		}
	}
	return reqs
}
