package client

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

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
