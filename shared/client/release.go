package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// LostNonces is one page of the nonces that the chain has consumed and Fencepost does not know.
type LostNonces struct {
	ChainCount   uint64      `json:"chainCount"`   // the chain's latest count of the account
	FinalCount   *uint64     `json:"finalCount"`   // the count at the finalized block, which a resync accepts; nil: the node has none
	NextNonce    uint64      `json:"nextNonce"`    // of Fencepost
	IntentsMore  bool        `json:"intentsMore"`  // other requests may match than those in Intents
	UnknownCalls int         `json:"unknownCalls"` // queued intents whose handlers have not run: each may have been any of the nonces
	Nonces       []LostNonce `json:"nonces"`       // at most 20

	NextPageToken string `json:"nextPageToken,omitempty"` // "": this was the last page
}

// LostNonce is a nonce that a foreign transaction has consumed.
type LostNonce struct {
	Nonce       uint64              `json:"nonce"`
	ConsumingTx *ForeignTransaction `json:"consumingTx"`         // nil: Unknown says why
	Unknown     string              `json:"unknown,omitempty"`   // why ConsumingTx cannot be shown; "": it is shown
	Succeeded   *bool               `json:"succeeded,omitempty"` // false: it reverted; nil: it was not read at finality yet
	Payouts     []string            `json:"payouts"`             // ReqIDs of open payouts that want the same
	Intents     []MatchingIntent    `json:"intents"`             // those that want the same: to, value and data
}

// ForeignTransaction is a transaction on the chain that Fencepost has no record of.
type ForeignTransaction struct {
	Hash        string `json:"hash"`
	BlockNumber uint64 `json:"blockNumber"`
	BlockHash   string `json:"blockHash"`
	Node        string `json:"node"`  // the node that answered
	To          string `json:"to"`    // "": it deployed a contract
	Value       string `json:"value"` // wei
}

// MatchingIntent is an intent that wants what a foreign transaction did.
type MatchingIntent struct {
	TxID      string  `json:"txId"`
	RequestID string  `json:"requestId"`
	State     TxState `json:"state"`
	SubState  string  `json:"subState"` // "": none
}

// Lost returns one page of lost nonces; pageToken "": the first page. Pass NextPageToken of one page to
// get the next. It is for operators.
func (c *Client) Lost(ctx context.Context, submitter, pageToken string) (LostNonces, error) {
	return get[LostNonces](ctx, c, pathOf(submitters, submitter, "lost"), queryOf("pageSize", 20, "pageToken", pageToken))
}

// Release ends one PROTECT incident of a submitter.
type Release struct {
	Incident int    `json:"incident"` // its number, as [Client.Submitter] shows it
	Mode     string `json:"mode"`     // resume: what was observed was wrong; resync: the loss is accepted
	Reason   string `json:"reason"`   // kept with the operator's name

	// Of resync alone.
	Count    *uint64           `json:"count,omitempty"`    // the chain's count at its finalized block
	Requests map[uint64]string `json:"requests,omitempty"` // by nonce: the RequestID that the lost transaction was, or "none"
	Hashes   map[uint64]string `json:"hashes,omitempty"`   // by nonce: the transaction that consumed it, where the nodes do not tell by themselves
	Executed map[uint64]string `json:"executed,omitempty"` // by nonce: how you know that the request was carried out, where no node can prove it
	Others   string            `json:"others,omitempty"`   // "matching": each nonce that Requests does not list gets its only match; "": none
	Fill     int               `json:"fill,omitempty"`     // nonces from Count on that placeholders consume; 0: the service decides
	DryRun   bool              `json:"-"`                  // report what would happen, and change nothing
}

// ReleaseReport is what a release did, or would do.
type ReleaseReport struct {
	Submitter  string       `json:"submitter"`
	Incident   int          `json:"incident"`
	Displaced  []uint64     `json:"displaced"`  // nonces that foreign transactions consumed
	NotOnChain []NotOnChain `json:"notOnChain"` // final transactions that a reorg removed, which a resync accepts
	NextNonce  uint64       `json:"nextNonce"`
	DryRun     bool         `json:"dryRun"`  // true: nothing was changed
	Named      []Named      `json:"named"`   // what each name did, by nonce
	Filling    *Filling     `json:"filling"` // nil: nothing was to be filled
}

// NotOnChain is a final transaction that a reorg removed from the chain.
type NotOnChain struct {
	TxID      string `json:"txId"`
	Nonce     uint64 `json:"nonce"`
	Hash      string `json:"hash"`
	Succeeded bool   `json:"succeeded"` // as it was when it was final
}

// Named is the effect of one entry of [Release.Requests].
type Named struct {
	Nonce     uint64 `json:"nonce"`
	RequestID string `json:"requestId"`
	TxID      string `json:"txId"`   // "": the request was not on record
	TxHash    string `json:"txHash"` // of the foreign transaction; "": no node tells of it
	Effect    string `json:"effect"` // RECORDED or REVERTED: the request ended so; PLACEHOLDER: it ends once a placeholder has consumed its nonce
	Stated    bool   `json:"stated"` // it rests on [Release.Executed] alone
}

// Filling are the nonces that placeholders consume. Until they are final, the submitter
// allocates no other nonce.
type Filling struct {
	From  uint64 `json:"from"`  // the first
	Below uint64 `json:"below"` // the one after the last
}

// Release ends the PROTECT incident, or with DryRun reports what that would do. A client
// repeats it while the submitter is being served (NOT_LEADER). TOO_LATE: the incident is
// not open; after an error that is [ErrUnknown] an earlier attempt may have ended it. It is
// for operators.
func (c *Client) Release(ctx context.Context, submitter string, in Release) (ReleaseReport, error) {
	path, query := pathOf(submitters, submitter, "release"), queryOf("dryRun", in.DryRun)
	return call[ReleaseReport](ctx, c, request{method: http.MethodPost, path: path, query: query, body: in})
}

// AcceptDatabase accepts a restored database. Every submitter stays in PROTECT until it is
// released, and new transfers stay halted. TOO_LATE: it is accepted already. It is for operators.
func (c *Client) AcceptDatabase(ctx context.Context, reason string) error {
	return c.call(ctx, request{method: http.MethodPost, path: "/admin/v1/database/accept", body: map[string]string{"reason": reason}}, nil)
}

// OpenForeign is a foreign transaction whose request is not known.
type OpenForeign struct {
	Nonce       uint64    `json:"nonce"` // that it consumed
	TxHash      string    `json:"txHash"`
	BlockNumber uint64    `json:"blockNumber"`
	To          string    `json:"to"`        // "": it deployed a contract
	ValueWei    string    `json:"valueWei"`  // wei
	Succeeded   bool      `json:"succeeded"` // false: it reverted
	TxID        string    `json:"txId"`      // the intent that is held for it; "": none
	RequestID   string    `json:"requestId"` // of that intent
	Since       time.Time `json:"since"`
}

// ListForeign yields the submitter's foreign transactions whose requests are unknown, from the nonce
// from on, by nonce. It is for operators.
func (c *Client) ListForeign(ctx context.Context, submitter string, from uint64) iter.Seq2[OpenForeign, error] {
	return pages[OpenForeign](ctx, c, pathOf(submitters, submitter, "foreign"), "foreign", queryOf("pageSize", 500, "from", from))
}

// MatchResult is the final state of an intent that was matched with a foreign transaction.
type MatchResult struct {
	TxID     string  `json:"txId"`
	State    TxState `json:"state"`
	SubState string  `json:"subState"` // RECORDED or REVERTED
}

// MatchForeign records that the foreign transaction with the nonce was the request of a held
// intent. The intent ends and never runs. TOO_LATE: one of the two has been decided. PROOF_USED:
// the transaction proves that another payout was paid. It is for operators.
func (c *Client) MatchForeign(ctx context.Context, submitter string, nonce uint64, txID, reason string) (MatchResult, error) {
	return post[MatchResult](ctx, c, pathOf(submitters, submitter, "foreign", "match"), map[string]any{"nonce": nonce, "txId": txID, "reason": reason})
}

// WriteOffResult has the counts of one [Client.WriteOffForeign] and of what remains.
type WriteOffResult struct {
	Submitter  string `json:"submitter"`
	WrittenOff int    `json:"writtenOff"` // foreign transactions
	Proceeded  int    `json:"proceeded"`  // held intents that go on
	Remaining  int    `json:"remaining"`  // of the submitter, whatever their nonces
}

// WriteOffForeign records that the foreign transaction with the nonce was no request of any intent.
// If nonce is nil, it covers all nonces up to through, 100 a call; call again until none is written
// off. Intents that were held for them proceed. It is for operators.
func (c *Client) WriteOffForeign(ctx context.Context, submitter string, nonce, through *uint64, reason string) (WriteOffResult, error) {
	body := struct {
		Nonce   *uint64 `json:"nonce,omitempty"`
		Through *uint64 `json:"through,omitempty"`
		Reason  string  `json:"reason"`
	}{nonce, through, reason}
	return post[WriteOffResult](ctx, c, pathOf(submitters, submitter, "foreign", "write-off"), body)
}

// Decision is the action that an operator requested for a transaction.
type Decision struct {
	TxID            string  `json:"txId"`
	State           TxState `json:"state"`
	RequestedAction string  `json:"requestedAction,omitempty"` // CANCEL, PLACEHOLDER, REPLACE or REBROADCAST: not carried out yet; "": nothing
}

// DecideTx requests an action on a transaction that holds a nonce. action is "wait", "rebroadcast"
// (the same bytes), "replace" (with higher fees) or "placeholder" (give it up). It is carried out
// while no version of the transaction has a receipt. TOO_LATE: a version has one. It is for
// operators.
func (c *Client) DecideTx(ctx context.Context, txID, action, reason string) (Decision, error) {
	return post[Decision](ctx, c, pathOf(adminTxs, txID, "decide"), map[string]string{"action": action, "reason": reason})
}

// CancelTxAsOperator is [Client.CancelTx] as an operator's act. The reason is required, and kept. It is for operators.
func (c *Client) CancelTxAsOperator(ctx context.Context, txID, reason string) (Outcome, error) {
	return cancelTx(ctx, c, pathOf(adminTxs, txID, "cancel"), map[string]string{"reason": reason})
}
