package client

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// AttentionItem is one thing that needs a person.
type AttentionItem struct {
	Kind    string           `json:"kind"`
	Overdue bool             `json:"overdue"` // false: a wait below the limit of its cause
	Subject AttentionSubject `json:"subject"`
	Since   time.Time        `json:"since"`
	Cause   string           `json:"cause,omitempty"` // of a wait; "": it is none
	Why     string           `json:"why"`             // for a person
	Detail  string           `json:"detail,omitempty"`
	Action  string           `json:"action"`  // what an operator can do, for a person
	Runbook string           `json:"runbook"` // a page of the repository
}

// AttentionSubject is what an item is about. A member is zero where there is none.
type AttentionSubject struct {
	Submitter  string `json:"submitter,omitempty"`
	TxID       string `json:"txId,omitempty"`
	ReqID      string `json:"reqId,omitempty"`
	Incident   int64  `json:"incident,omitempty"`
	Halt       int64  `json:"halt,omitempty"`
	Finding    int64  `json:"finding,omitempty"`
	Account    string `json:"account,omitempty"` // user/asset
	ActID      int64  `json:"actId,omitempty"`   // on the account
	Endpoint   string `json:"endpoint,omitempty"`
	ProposalID string `json:"proposalId,omitempty"`
}

// ListAttention yields what needs a person, the most urgent first. It is for operators.
func (c *Client) ListAttention(ctx context.Context) iter.Seq2[AttentionItem, error] {
	return pages[AttentionItem](ctx, c, "/admin/v1/attention", "items", queryOf("pageSize", 500))
}

// Overview is the state of a deployment, and of the process that answered.
type Overview struct {
	At        time.Time        `json:"at"`
	States    []StateCount     `json:"states"` // of what has not ended
	Rates     []Rate           `json:"rates"`
	RatesUpTo *time.Time       `json:"ratesUpTo"` // the end of the last counted minute; nil: none was
	Oldest    *OldestTx        `json:"oldest"`    // that has not ended; nil: none
	Attention []AttentionCount `json:"attention"`
	Instance  string           `json:"instance"`
	Build     Build            `json:"build"`
	Settings  []Setting        `json:"settings"` // that differ from their defaults
}

// StateCount is a number of transactions.
type StateCount struct {
	State TxState `json:"state"`
	Count int     `json:"count"`
	Held  int     `json:"held"` // of them
}

// Rate is what happened in the last counted minutes.
type Rate struct {
	Minutes   int    `json:"minutes"`
	Counted   int    `json:"counted"` // of these minutes
	Accepted  int    `json:"accepted"`
	Confirmed int    `json:"confirmed"`
	Failed    int    `json:"failed"`
	P50       *int64 `json:"p50Milliseconds"` // from accepted to final; nil: nothing ended on the chain
	P99       *int64 `json:"p99Milliseconds"`
}

// OldestTx is the transaction that has not ended for longest.
type OldestTx struct {
	TxID      string    `json:"txId"`
	Submitter string    `json:"submitter"`
	State     TxState   `json:"state"`
	CreatedAt time.Time `json:"createdAt"`
}

// AttentionCount is a number of items that [Client.ListAttention] yields.
type AttentionCount struct {
	Kind    string `json:"kind"`
	Overdue bool   `json:"overdue"`
	Count   int    `json:"count"`
}

// Build is from what a process was built.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"` // "": not known
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
}

// Setting is a setting that differs from its default.
type Setting struct {
	Name     string `json:"name"`
	Variable string `json:"variable"`
	Value    string `json:"value"` // "" of a secret
	Default  string `json:"default"`
	Secret   bool   `json:"secret"`
}

// GetOverview returns the state of the deployment. It is for operators.
func (c *Client) GetOverview(ctx context.Context) (Overview, error) {
	return get[Overview](ctx, c, "/admin/v1/overview", nil)
}

// Chain is a served chain with its nodes.
type Chain struct {
	ChainID           uint64  `json:"chainId"`
	Namespace         string  `json:"namespace"`
	Finality          string  `json:"finality"`                            // confirmations, safe or finalized
	Confirmations     *uint64 `json:"confirmations,omitempty"`             // nil: a tag of the chain decides
	Quorum            int     `json:"quorum"`                              // nodes that must agree
	BlockTime         int64   `json:"blockMilliseconds"`                   // by the settings
	MeasuredBlockTime *int64  `json:"measuredBlockMilliseconds,omitempty"` // nil: no node gave its blocks
	BaseFeePerGas     string  `json:"baseFeePerGas,omitempty"`             // of the highest head, in wei; "": the chain has none, or no node answered
	Nodes             []Node  `json:"nodes"`
}

// Node is a node of a chain. A nil member is one that it did not answer, or "none".
type Node struct {
	Name          string     `json:"name"`
	Head          *uint64    `json:"head"`
	HeadAt        *time.Time `json:"headAt"`
	Lag           *uint64    `json:"lag"` // blocks behind the highest head
	Finalized     *uint64    `json:"finalized"`
	Error         string     `json:"error"`    // of this query
	Excluded      string     `json:"excluded"` // why the answering process does not use it
	ExcludedUntil *time.Time `json:"excludedUntil"`
	LastError     string     `json:"lastError"` // why it was excluded last
	LastErrorAt   *time.Time `json:"lastErrorAt"`
}

// ListChains returns the chains with their nodes, which the service asks. It is for operators.
func (c *Client) ListChains(ctx context.Context) ([]Chain, error) {
	all, _, err := page[Chain](ctx, c, "/admin/v1/chains", "chains", nil)
	return all, err
}

// ChainAccount is an account on its chain. A nil member is one that no node answered.
type ChainAccount struct {
	ChainID   uint64        `json:"chainId"`
	Latest    *uint64       `json:"latest"`
	Pending   *uint64       `json:"pending"`
	Finalized *uint64       `json:"finalized"`
	Balance   string        `json:"balance"` // in wei; "": no node answered
	Error     string        `json:"error"`   // why no node was asked; "": they were
	Spending  *Spending     `json:"spending"`
	Nodes     []NodeAccount `json:"nodes"`
}

// Spending is what the last final transactions of an account cost.
type Spending struct {
	Transactions int       `json:"transactions"`
	Since        time.Time `json:"since"`
	Wei          string    `json:"wei"`
	LastsSeconds *int64    `json:"lastsSeconds"` // of the balance, at this rate; nil: not known
}

// NodeAccount is an account as one node shows it.
type NodeAccount struct {
	Name      string  `json:"name"`
	Head      *uint64 `json:"head"`
	Latest    *uint64 `json:"latest"`
	Pending   *uint64 `json:"pending"`
	Finalized *uint64 `json:"finalized"`
	Balance   string  `json:"balance"`
	Error     string  `json:"error"` // "": it answered
}

// Act is a recorded act of an operator.
type Act struct {
	At         time.Time       `json:"at"`
	By         string          `json:"by"`  // the operator; of an act that two agreed on, its proposer
	Act        string          `json:"act"` // its name, such as suspend
	Subject    ActSubject      `json:"subject"`
	Reason     *string         `json:"reason"`     // nil: none was kept
	ApprovedBy *string         `json:"approvedBy"` // the second operator; nil: none
	ProposalID *string         `json:"proposalId"` // nil: none
	Before     json.RawMessage `json:"before"`     // what the act changed; null: not kept
	After      json.RawMessage `json:"after"`
}

// ActSubject is what an act is about.
type ActSubject struct {
	Kind      string `json:"kind"`
	ID        string `json:"id"`
	Submitter string `json:"submitter,omitempty"` // to which the subject belongs; "": none
}

// ActQuery selects acts.
type ActQuery struct {
	Who      string    // by this operator; "": by all
	Since    time.Time // from this time on; zero: from the beginning
	Act      string    // of this name; "": any
	Subject  string    // about this submitter, txId, req_id, user, proposal or endpoint; "": any
	PageSize int       // how many are fetched at once, up to 1,000; 0: 100
}

// ListActs yields the recorded acts of operators, the newest first. It is for operators.
func (c *Client) ListActs(ctx context.Context, q ActQuery) iter.Seq2[Act, error] {
	query := queryOf("who", q.Who, "since", q.Since, "act", q.Act, "subject", q.Subject, "pageSize", q.PageSize)
	return pages[Act](ctx, c, "/admin/v1/audit", "acts", query)
}
