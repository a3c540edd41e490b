package incidents

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/fencepost/fencepost/functions/console/page"
	"github.com/fencepost/fencepost/shared/client"
)

// evidence is why PROTECT was opened. Members that an incident does not have are zero.
type evidence struct {
	Why           string `json:"why"`  // AHEAD, TAKEN or REORG; "": the database is a restored one
	What          string `json:"what"` // the same for a person
	ExpectedNonce uint64 `json:"expectedNonce"`
	LatestCount   uint64 `json:"latestCount"`
	PendingCount  uint64 `json:"pendingCount"`
	Block         uint64 `json:"block"`
	BlockHash     string `json:"blockHash"`
	Node          string `json:"node"`
	AgreedBy      string `json:"agreedBy"`
	Final         *struct {
		Number uint64 `json:"number"`
		Hash   string `json:"hash"`
	} `json:"final"` // the final block that the chain no longer has
	ConsumingTx        *client.ForeignTransaction `json:"consumingTx"`
	ConsumingTxUnknown string                     `json:"consumingTxUnknown"`
	SameAsIntent       bool                       `json:"sameAsIntent"`

	ExpectedSystem   string `json:"expectedSystem"` // of a restored database
	ExpectedTimeline int64  `json:"expectedTimeline"`
	System           string `json:"system"`
	Timeline         int64  `json:"timeline"`

	Raw json.RawMessage `json:"-"` // as the API has it
}

func evidenceOf(raw json.RawMessage) evidence {
	var e evidence
	_ = json.Unmarshal(raw, &e) // what cannot be read is shown as it is
	e.Raw = raw
	return e
}

// Restored reports whether the database, and not the chain, is the reason.
func (e evidence) Restored() bool { return e.System != "" || e.Why == "" }

// Meaning is the evidence's kind in words.
func (e evidence) Meaning() string {
	switch e.Why {
	case "AHEAD":
		return "The chain has a transaction of this account with a nonce that Fencepost has not given yet. Another program or person has used the key."
	case "TAKEN":
		return "A transaction that Fencepost did not sign has consumed a nonce that one of our transactions holds. Another program or person has used the key."
	case "REORG":
		return "The block of a final transaction is not on the chain any more. The chain was reorganised below finality, or the nodes are wrong."
	}
	return "The database is not the one that was written last: it was restored or copied. The chain may have transactions that it does not know."
}

// incident is the page of a submitter's PROTECT incident.
type incident struct {
	Submitter client.Submitter
	Evidence  evidence // of the open incident
	Lost      client.LostNonces
	Nonces    lostNonces // of Lost
	LostError string     // why Lost was not read; "": it was
	OpenNonce string     // the lowest nonce that is open; "": none
	Progress  progress
	Past      []client.PastIncident
	Next      string // the token of the next page of Past
}

// Back reports whether the chain has as many transactions of the account as before a reorg.
func (i incident) Back() bool { return i.Lost.ChainCount >= i.Evidence.ExpectedNonce }

// progress is the part of the account's transactions that is final.
type progress struct {
	Known bool   // the nodes have a finalized block
	Final uint64 // transactions of the account that are final
	All   uint64 // that are in blocks
}

// Done reports whether nothing of the account is above the finalized block.
func (p progress) Done() bool { return p.Known && p.Final >= p.All }

// Has reports whether the transaction of the nonce is final.
func (p progress) Has(nonce uint64) bool { return p.Known && nonce < p.Final }

// Left is the number of transactions that are not final yet.
func (p progress) Left() uint64 { return p.All - min(p.All, p.Final) }

func progressOf(l client.LostNonces) progress {
	p := progress{All: l.ChainCount}
	if l.FinalCount != nil {
		p.Known, p.Final = true, *l.FinalCount
	}
	return p
}

// incidentPoll is how often the counts are read again.
const incidentPoll = 5 * time.Second

// showIncident shows the open incident with its evidence, the lost nonces and earlier incidents. It makes 3 calls.
func showIncident(ctx context.Context, call page.Call) (page.View, error) {
	id := call.PathValue("submitter")
	past, lostToken := client.Page{Token: call.FormValue("pageToken")}, call.FormValue("lost")
	var p incident
	var err, lostErr, pastErr error
	var reads sync.WaitGroup
	reads.Go(func() { p.Submitter, err = call.Admin.Submitter(ctx, id) })
	reads.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		p.Lost, lostErr = call.Admin.Lost(ctx, id, lostToken)
	})
	reads.Go(func() { p.Past, pastErr = page.ReadRows(call.Admin.ListIncidents(client.WithPage(ctx, &past), id)) })
	reads.Wait()
	if err = cmp.Or(err, pastErr); err != nil {
		return page.View{}, err
	}
	p.LostError, p.Progress, p.Next, p.Nonces = page.WhyUnread(lostErr), progressOf(p.Lost), past.Next, p.Lost.Nonces
	if n := p.Submitter.InFlightNonce; n != nil {
		p.OpenNonce = strconv.FormatUint(*n, 10)
	}
	v := page.View{Title: "PROTECT of " + nameOf(p.Submitter), Body: "incidents/protect", Data: &p}
	if p.Submitter.Protect != nil {
		p.Evidence, v.Poll = evidenceOf(p.Submitter.Protect.Evidence), incidentPoll
	}
	return v, nil
}

// nameOf is the submitter's name for people, or its id.
func nameOf(s client.Submitter) string { return cmp.Or(s.Name, s.Submitter) }
