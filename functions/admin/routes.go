package admin

import (
	"github.com/fencepost/fencepost/functions/serve"
	usertransfers "github.com/fencepost/fencepost/functions/transfers"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/web"
)

// RouteAdmin serves the function admin.
func (a *Server) RouteAdmin(mux *web.Mux) {
	a.acts, a.problem = web.NewMux(), serve.Problem

	// submitters
	a.act(mux, "POST /admin/v1/submitters", "register", withBody(a.Desk, noSubject, a.register))
	a.read(mux, "GET /admin/v1/submitters", list(a.listSubmitters, "state", "sort"))
	a.read(mux, "GET /admin/v1/submitters/{submitter}", serve.Show(a.pathSubmitter, a.showSubmitter))
	a.act(mux, "PATCH /admin/v1/submitters/{submitter}", "register", withReason(a.Desk, a.pathSubmitter, a.updateSubmitter))
	a.act(mux, "POST /admin/v1/submitters/{submitter}/retire", "register", withReason(a.Desk, a.pathSubmitter, a.retireSubmitter))
	a.read(mux, "GET /admin/v1/submitters/{submitter}/changes", serve.ShowList(a.pathSubmitter, a.listChanges))
	a.read(mux, "GET /admin/v1/submitters/{submitter}/incidents", serve.ShowList(a.pathSubmitter, a.listIncidents))
	a.read(mux, "GET /admin/v1/submitters/{submitter}/policy/use", serve.ShowList(a.pathSubmitter, a.policyUse))
	a.act(mux, "PUT /admin/v1/submitters/{submitter}/policy", "policy", withReason(a.Desk, a.pathSubmitter, a.putPolicy))
	a.act(mux, "PUT /admin/v1/submitters/{submitter}/callers", "callers", withReason(a.Desk, a.pathSubmitter, a.putCallers))
	a.act(mux, "POST /admin/v1/submitters/{submitter}/suspend", oneOperator, withReason(a.Desk, a.pathSubmitter, a.suspendSubmitter))
	a.act(mux, "POST /admin/v1/submitters/{submitter}/resume", "policy", withReason(a.Desk, a.pathSubmitter, a.resumeSubmitter))
	a.act(mux, "POST /admin/v1/submitters/{submitter}/queue/cancel", oneOperator, a.DeliverAfter(withReason(a.Desk, a.pathSubmitter, a.cancelQueue)))
	a.act(mux, "POST /admin/v1/submitters/{submitter}/release", "release", a.DeliverAfter(withReason(a.Desk, a.pathSubmitter, a.release)))
	a.act(mux, "POST /admin/v1/submitters/{submitter}/signer", "signer", withReason(a.Desk, a.pathSubmitter, a.changeSigner))
	a.read(mux, "GET /admin/v1/submitters/{submitter}/lost", serve.ShowList(a.pathSubmitter, a.lost))
	a.read(mux, "GET /admin/v1/submitters/{submitter}/lane", serve.ShowList(a.pathSubmitter, a.lane, "from"))
	a.read(mux, "GET /admin/v1/submitters/{submitter}/queue", serve.ShowList(a.pathSubmitter, a.queue))
	a.read(mux, "GET /admin/v1/submitters/{submitter}/foreign", serve.ShowList(a.pathSubmitter, a.listForeign, "from"))
	a.act(mux, "POST /admin/v1/submitters/{submitter}/foreign/match", "release", withReason(a.Desk, a.pathSubmitter, a.matchForeign))
	a.act(mux, "POST /admin/v1/submitters/{submitter}/foreign/write-off", "release", withReason(a.Desk, a.pathSubmitter, a.writeOffForeign))
	a.act(mux, "POST /admin/v1/submitters/{submitter}/proceed", "release", withReason(a.Desk, a.pathSubmitter, a.proceedAll))

	// transactions
	a.read(mux, "GET /admin/v1/tx", list(a.findTxs, "submitter", "state", "cause", "since", "caller", "hash", "requestId", "nonce"))
	a.read(mux, "GET /admin/v1/tx/{txId}", serve.Show(serve.PathTxID, a.inspectTx))
	a.read(mux, "GET /admin/v1/tx/{txId}/why", serve.Show(serve.PathTxID, a.whyTx))
	a.read(mux, "GET /admin/v1/tx/{txId}/history", listPast("history", serve.HistoryPlace, a.Store.TxHistory))
	a.read(mux, "GET /admin/v1/tx/{txId}/versions", listPast("versions", serve.VersionPlace, a.Store.TxVersions))
	a.read(mux, "GET /admin/v1/tx/{txId}/decisions", listPast("decisions", serve.DecisionPlace, a.Store.TxDecisions))
	a.act(mux, "POST /admin/v1/tx/{txId}/decide", oneOperator, a.DeliverAfter(withReason(a.Desk, serve.PathTxID, a.decide)))
	a.act(mux, "POST /admin/v1/tx/{txId}/cancel", oneOperator, a.DeliverAfter(withReason(a.Desk, serve.PathTxID, a.cancel)))
	a.act(mux, "POST /admin/v1/tx/{txId}/proceed", "release", withReason(a.Desk, serve.PathTxID, a.proceed))

	// the deployment
	a.read(mux, "GET /admin/v1/attention", list(a.listAttention))
	a.read(mux, "GET /admin/v1/overview", show(a.overview))
	a.read(mux, "GET /admin/v1/chains", show(a.listChains))
	a.act(mux, "POST /admin/v1/database/accept", "accept", withReason(a.Desk, noSubject, a.acceptDatabase))
	a.act(mux, "POST /admin/v1/database/release-untouched", "release", a.DeliverAfter(withReason(a.Desk, noSubject, a.releaseUntouched)))
	a.read(mux, "GET /admin/v1/audit", list(a.listActs, "who", "since", "act", "subject"))
	a.read(mux, "GET /admin/v1/proposals", list(a.listProposals, "state"))
	a.read(mux, "GET /admin/v1/proposals/{proposalId}", serve.Show(pathProposal, a.proposal))
	a.act(mux, "POST /admin/v1/proposals/{proposalId}/approve", oneOperator, withReason(a.Desk, pathProposal, a.approveProposal))
	a.act(mux, "POST /admin/v1/proposals/{proposalId}/reject", oneOperator, withReason(a.Desk, pathProposal, a.rejectProposal))
	a.read(mux, "GET /admin/v1/webhook-endpoints", show(a.listEndpoints))
	a.act(mux, "POST /admin/v1/webhook-endpoints/{endpoint}/test", oneOperator, withReason(a.Desk, a.pathEndpoint, a.testEndpoint))
	a.act(mux, "POST /admin/v1/webhook-endpoints/{endpoint}/redeliver", "webhooks", withReason(a.Desk, a.pathEndpoint, a.redeliver))
	a.act(mux, "POST /admin/v1/webhook-endpoints/{endpoint}/pause", oneOperator, withReason(a.Desk, a.pathEndpoint, a.pauseEndpoint))
	a.act(mux, "POST /admin/v1/webhook-endpoints/{endpoint}/resume", "webhooks", withReason(a.Desk, a.pathEndpoint, a.resumeEndpoint))

	if a.Transfer != nil {
		desk := *a.Desk
		desk.problem = func(err error) error { return usertransfers.Problem(err) }
		a.Transfer.Desk = &desk
		a.Transfer.routeTransferAdmin(mux)
	}
}

// routeTransferAdmin serves the operators' calls about transfers, assets and accounts, as the function admin.
func (a *TransferServer) routeTransferAdmin(mux *web.Mux) {
	pathReqID := usertransfers.PathReqID
	pathFinding := pathNumber("id", "is no number of a finding: want one that GET /admin/v1/conservation shows")
	pathHalt := pathNumber("id", "is no number of a halt: want one that GET /admin/v1/conservation shows")
	a.read(mux, "GET /admin/v1/transfers", list(a.listTransfers, "state", "user", "asset", "before"))
	a.read(mux, "GET /admin/v1/transfers/{req_id}/why", serve.Show(pathReqID, a.why))
	a.act(mux, "POST /admin/v1/transfers/{req_id}/cancel", oneOperator, a.DeliverAfter(withReason(a.Desk, pathReqID, a.cancelTransfer)))
	a.act(mux, "POST /admin/v1/transfers/{req_id}/resolve", "adjustments", a.DeliverAfter(withReason(a.Desk, pathReqID, a.resolveTransfer)))
	a.act(mux, "POST /admin/v1/transfers/{req_id}/payout-statement", "adjustments", a.DeliverAfter(withReason(a.Desk, pathReqID, a.statePayout)))
	a.act(mux, "POST /admin/v1/transfers/{req_id}/payout-statement/withdraw", oneOperator, a.DeliverAfter(withReason(a.Desk, pathReqID, a.withdrawStatement)))
	a.act(mux, "POST /admin/v1/transfers/{req_id}/acknowledge", oneOperator, withReason(a.Desk, pathReqID, a.acknowledge))
	a.read(mux, "GET /admin/v1/users/{user_id}/payout_addresses", serve.ShowList(pathUser, a.listAddresses))
	a.act(mux, "POST /admin/v1/users/{user_id}/payout_addresses/{address_id}/remove", oneOperator, withReason(a.Desk, pathUser, a.dropAddress))
	a.act(mux, "POST /admin/v1/users/{user_id}/payout_addresses/block", oneOperator, withReason(a.Desk, pathUser, a.blockAddresses))
	a.act(mux, "POST /admin/v1/users/{user_id}/payout_addresses/unblock", "adjustments", withReason(a.Desk, pathUser, a.unblockAddresses))
	a.read(mux, "GET /admin/v1/conservation", show(a.showConservation))
	a.act(mux, "POST /admin/v1/conservation/check", oneOperator, withBody(a.Desk, noSubject, a.checkConservation))
	a.act(mux, "POST /admin/v1/conservation/findings/{id}/adjust", "adjustments", withReason(a.Desk, pathFinding, a.adjust))
	a.act(mux, "POST /admin/v1/halts/{id}/resume", "adjustments", withReason(a.Desk, pathHalt, a.resume))
	a.read(mux, "GET /admin/v1/assets", list(a.listAssets))
	a.act(mux, "PUT /admin/v1/assets/{asset}", "adjustments", withReason(a.Desk, pathAsset, a.putAsset))
	a.read(mux, "GET /admin/v1/accounts", list(a.listAccounts, "user", "asset"))
	a.read(mux, "GET /admin/v1/accounts/{user}/{asset}", serve.Show(a.pathAccount, a.detail))
	a.act(mux, "POST /admin/v1/accounts/{user}/{asset}/deposits", "adjustments", a.asBooker(transfer.ActDeposit))
	a.act(mux, "POST /admin/v1/accounts/{user}/{asset}/withdrawals", "adjustments", a.asBooker(transfer.ActWithdrawal))
	a.act(mux, "POST /admin/v1/accounts/{user}/{asset}/status", "adjustments", withReason(a.Desk, a.pathAccount, a.setAccountStatus))
}
