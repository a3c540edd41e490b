package admin

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost/functions/serve"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// listAttention lists what needs a person, the most urgent first.
func (a *Server) listAttention(r *http.Request, q map[string]string) (serve.List, error) {
	page, next, err := serve.Page(q, serve.AttentionPlace, func(after store.AttentionPlace, limit int) ([]store.AttentionItem, error) {
		return a.Store.Attention(r.Context(), a.Limits, after, limit)
	}, func(i store.AttentionItem) store.AttentionPlace { return i.AttentionPlace })
	return serve.List{Name: "items", Rows: serve.ViewsOf(page, attentionOf), Next: next}, err
}

func attentionOf(i store.AttentionItem) client.AttentionItem {
	out := client.AttentionItem{
		Kind: string(i.Kind), Overdue: i.Overdue, Since: i.Since.UTC(), Detail: i.Detail,
		Subject: client.AttentionSubject{Submitter: i.Submitter, TxID: i.TxID, ReqID: i.ReqID},
	}
	g := attentionGuides[i.Kind]
	out.Why, out.Action, out.Runbook = g.why, g.action, g.runbook
	switch i.Kind {
	case store.AttentionProtect:
		out.Subject.Incident = i.Number
		if why, ok := whyProtected[txmanager.ViolationKind(i.Name)]; ok {
			out.Why = why
		}
	case store.AttentionHalt:
		out.Subject.Halt = i.Number
		out.Why = "No new transfers begin: " + haltedScope[i.Name] + " are halted."
	case store.AttentionFinding:
		out.Subject.Finding = i.Number
		out.Why = fmt.Sprintf("A check of conservation found the violation %s, and no later check has cleared it.", i.Name)
	case store.AttentionPayout:
		out.Why = whyPayout[i.Name]
	case store.AttentionBlocked:
		guide := txmanager.WaitCause(i.Name).Guide()
		out.Cause, out.Action, out.Runbook = i.Name, guide.Action, guide.Runbook
		out.Why = whyWaits[txmanager.WaitCause(i.Name)]
		if i.Overdue {
			out.Why = strings.TrimSpace(out.Why + " It has waited longer than this cause allows.")
		}
	case store.AttentionForeign, store.AttentionHeld:
		out.Why = fmt.Sprintf(g.why, i.Number)
	case store.AttentionAccount:
		out.Subject.Account, out.Subject.ActID = i.Name, i.Number
	case store.AttentionEndpoint, store.AttentionPaused:
		out.Subject.Endpoint = i.Name
	case store.AttentionProposal:
		out.Subject.ProposalID = i.Name
	}
	out.Runbook = "docs/runbooks/" + out.Runbook + ".md"
	return out
}

// attentionGuide is what an operator needs to know about a kind.
type attentionGuide struct{ why, action, runbook string }

var attentionGuides = map[store.AttentionKind]attentionGuide{
	store.AttentionDatabase: {"The database is not the one that was written last: every submitter is in PROTECT.", "Find out which database this is. Then POST /admin/v1/database/accept, by the runbook.", "restored-database"},
	store.AttentionMove:     {"A planned move of the database is open: nothing can be written.", "End it with migrate confirm-move or migrate cancel-move.", "postgres-upgrade"},
	store.AttentionProtect:  {"Evidence stopped the submitter: nothing is signed for it.", "POST …/release, by the runbook.", "protect"},
	store.AttentionHalt:     {"", "Find the cause. Then POST /admin/v1/halts/{id}/resume.", "conservation-violated"},
	store.AttentionFinding:  {"", "Find the cause by the evidence of GET /admin/v1/conservation.", "conservation-violated"},
	store.AttentionStuck:    {"The transaction has no receipt after its last attempt, and waits for a decision.", "POST …/decide, after reading …/versions and …/history.", "stuck"},
	store.AttentionPayout:   {"", "Find out whether it was paid. Then POST …/payout-statement, by the runbook.", "payout-blocked"},
	store.AttentionTransfer: {"The amount was withdrawn, and is not deposited after the usual time.", "Read what would unblock it: GET /admin/v1/transfers/{req_id}/why.", "transfer-stuck"},
	store.AttentionRefund:   {"The refund of the transfer fails again and again.", "Read what would unblock it: GET /admin/v1/transfers/{req_id}/why.", "refund-failing"},
	store.AttentionAccount:  {"A ledger has not answered a deposit, withdrawal or status of an account for ten minutes.", "Read why: waitsFor in GET /admin/v1/accounts/{user}/{asset}. The sweep repeats it; a repeat under another id could book twice.", "transfer-stuck"},
	store.AttentionForeign:  {"%d transactions of the account that were not made here have no decision.", "POST …/foreign/match or …/foreign/write-off, by the runbook.", "held-intents"},
	store.AttentionHeld:     {"%d intents are held until their callers post them again, or an operator decides.", "POST …/proceed, or cancel them.", "held-intents"},
	store.AttentionEndpoint: {"The endpoint has not accepted an event for more than ten minutes.", "Restore the endpoint. Deliveries continue by themselves.", "events-late"},
	store.AttentionPaused:   {"An operator has paused the deliveries to the endpoint. Its events are kept until it is resumed.", "Once the cause is over: POST /admin/v1/webhook-endpoints/{endpoint}/resume.", "events-late"},
	store.AttentionProposal: {"An act that one operator proposed waits for another one.", "Read it: GET /admin/v1/proposals. Then approve or reject it.", "approvals"},
}

var whyProtected = map[txmanager.ViolationKind]string{
	txmanager.CountAhead:        "The chain counts more transactions of the account than were made here.",
	txmanager.NonceConsumed:     "The chain consumed a nonce of the account by a transaction that was not made here.",
	txmanager.FinalBlockReorged: "A reorg removed the block of a final transaction.",
}

var haltedScope = map[string]string{"user_asset": "those of one user in one asset", "asset": "those of one asset", "all": "all"}

var whyPayout = map[string]string{
	"UNPROVED":   "The payout's transaction has ended, and does not prove that the payout was paid.",
	"IN_DOUBT":   "A transaction that the restored database lost may have paid the payout.",
	"NOT_POSTED": "The payout's transaction cannot be made.",
}

// whyWaits has, for each cause, the sentence that tells a person why a transaction waits.
var whyWaits = map[txmanager.WaitCause]string{
	txmanager.WaitBalance:     "The account cannot pay for the transaction.",
	txmanager.WaitGasEstimate: "No node has estimated the gas of the transaction's call.",
	txmanager.WaitFeeCeiling:  "Blocks take higher fees than the settings or the policy allow.",
	txmanager.WaitOwnBounds:   "Blocks take higher fees than the transaction's caller allows.",
	txmanager.WaitPolicy:      "The submitter's policy allows no further fees now.",
	txmanager.WaitDeferred:    "The transaction's call would revert now. It is tried again once the open transactions have ended.",
	txmanager.WaitPredecessor: "No node has acknowledged an earlier transaction.",
	txmanager.WaitHandler:     "The transaction's handler is missing, or asks to be called again.",
	txmanager.WaitSigner:      "The signer gave no signature.",
	txmanager.WaitMACKey:      "The function that signs lacks the key of the intent's MAC.",
	txmanager.WaitMACService:  "The service that checks MACs gives no answer.",
	txmanager.WaitNodes:       "No node of the chain answers, or the node is behind.",
	txmanager.WaitNodesDiffer: "The nodes of the chain do not agree.",
	txmanager.WaitSuspected:   "The chain contradicts the record: foreign use of the key, or a reorg, is suspected.",
	txmanager.WaitAccountCode: "The account has code or a delegation.",
	txmanager.WaitLostNonces:  "Placeholders for nonces of a lost database are not final.",
	txmanager.WaitGasBump:     "A limit prevents a higher fee that is due.",
	txmanager.WaitNodeRefuses: "The node does not accept the transaction now.",
	txmanager.WaitForOperator: "An operator must decide about the transaction.",
	txmanager.WaitProtect:     "The submitter is in PROTECT.",
	txmanager.WaitSuspended:   "The submitter is suspended.",
	txmanager.WaitHeld:        "The intent is held until its caller posts it again, or an operator decides.",
	txmanager.WaitWindowFull:  "As many transactions are open as the submitter's window allows.",
	txmanager.WaitEarlier:     "An earlier intent of the queue has no nonce yet.",
	txmanager.WaitNext:        "The transaction is next: its nonce or its signature is due.",
	txmanager.WaitReservation: "The owner of the reserved nonce has not used it.",
	txmanager.WaitBroadcast:   "The transaction is sent, and no node has acknowledged it.",
	txmanager.WaitInclusion:   "No block includes the transaction.",
	txmanager.WaitFinality:    "The transaction's block is not final.",
}
