package local

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/torture/faults"
	"github.com/fencepost/fencepost/emulator/verify/torture/retry"
	"github.com/fencepost/fencepost/shared/client"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// Drills are all drills.
var Drills = []Drill{
	{Name: "foreign-key", Meaning: "another program sends a transaction by the key of an account", Runbook: "protect.md", run: foreignKey},
	{Name: "stuck", Meaning: "no node takes a transaction, because of its limit on fees", Runbook: "stuck.md", run: stuck},
	{Name: "mining-stopped", Meaning: "the chain makes no blocks for some time", Runbook: "receipt-backlog.md", run: miningStopped},
	{Name: "reorg", Meaning: "a reorg removes a transaction that was final", Runbook: "protect.md", run: reorg},
	{Name: "slow-node", Meaning: "one of several nodes does not answer", Runbook: "node-excluded.md", nodes: 3, run: slowNode},
	{Name: "lying-node", Meaning: "one of several nodes says of each transaction that it failed", Runbook: "node-excluded.md", nodes: 3, run: lyingNode},
	{Name: "killed-process", Meaning: "a function process is killed by SIGKILL with transactions in flight", Runbook: "function-errors.md", run: killedProcess},
	{Name: "unpaid-account", Meaning: "the next intent costs more than the account has", Runbook: "balance.md", run: unpaidAccount},
	{Name: "restore", Meaning: "the database is replaced by a backup that lacks a transaction", Runbook: "restore.md", run: restore},
}

const reason = "a drill"

func releasePath(s txmanager.Submitter) string {
	return "/admin/v1/submitters/" + string(s) + "/release"
}

// useKey sends a transaction by the account's key, as another program would, and waits until it is mined.
func (x *exercise) useKey() (nonce uint64) {
	nonce = steps.Value(x.node.PendingNonceAt(x.ctx, x.address))
	tx := x.Sign(x.account, x.Payment(nonce, common.Address{0xba, 0xd0}, 7, 1))
	steps.OK(x.node.SendTransaction(x.ctx, tx))
	x.mined(tx.Hash())
	return nonce
}

// isSender reports whether the drill's account has signed the transaction.
func (x *exercise) isSender(tx *types.Transaction) bool {
	from, err := types.Sender(x.signer, tx)
	return err == nil && from == x.address
}

// mined waits until a block has the transaction.
func (x *exercise) mined(hash common.Hash) {
	x.until(func() bool {
		_, err := x.node.TransactionReceipt(x.ctx, hash)
		return err == nil
	})
}

func foreignKey(x *exercise) {
	nonce := x.useKey()
	x.say("Another program has sent 7 wei by the account's key, with nonce %d.", nonce)
	_, waits := x.post("waits", client.Payload{})
	incident := x.protected(x.sub, true)
	x.waitsFor(waits, "PROTECT")
	x.evidence(`"AHEAD"`)
	x.say(`Expect: the submitter is in PROTECT, incident %d, with the foreign transaction as evidence; the intent stays QUEUED; new
intents are answered 409 SUBMITTER_PROTECTED. Nobody but an operator ends this: docs/runbooks/protect.md, from "Nonces are lost" on.`, incident)
	x.finalize()
	x.resync(x.sub, incident, "none")
	x.protected(x.sub, false)
	x.confirmed(waits)
	if x.solve {
		x.writeOff(nonce)
	}
}

// writeOff says of the released foreign transaction that it was no request of ours. Until then a new intent with
// the same call is held.
func (x *exercise) writeOff(nonce uint64) {
	x.needsDecision(nonce, "among them", true)
	steps.OK(x.act("Write it off, after GET /admin/v1/submitters/"+string(x.sub)+"/foreign",
		"/admin/v1/submitters/"+string(x.sub)+"/foreign/write-off", map[string]any{"nonce": nonce, "reason": reason}))
	x.needsDecision(nonce, "gone", false)
}

// needsDecision checks whether the foreign transaction with the nonce waits for a decision.
func (x *exercise) needsDecision(nonce uint64, wanted string, want bool) {
	var open []uint64
	for f, err := range x.operator.ListForeign(x.ctx, string(x.sub), 0) {
		steps.OK(err)
		open = append(open, f.Nonce)
	}
	if slices.Contains(open, nonce) != want {
		steps.Stopf("foreign transactions to decide about: got nonces %d, want %d %s", open, nonce, wanted)
	}
}

// resync releases the submitter by accepting the chain's final count. The transactions that are not on record
// were this request.
func (x *exercise) resync(s txmanager.Submitter, incident int, request string) {
	if !x.solve {
		return
	}
	requests, count := map[uint64]string{}, uint64(0)
	for token, more := "", true; more; {
		page := steps.Value(x.operator.Lost(x.ctx, string(s), token))
		for _, n := range page.Nonces {
			requests[n.Nonce] = request
		}
		if page.FinalCount != nil {
			count = *page.FinalCount
		}
		token, more = page.NextPageToken, page.NextPageToken != ""
	}
	steps.OK(x.act("Release, after GET /admin/v1/submitters/"+string(s)+"/lost", releasePath(s),
		client.Release{Incident: incident, Mode: "resync", Count: &count, Requests: requests, Reason: reason}))
}

// refuseFees makes all nodes refuse the account's transactions because of their fees, or ends that.
func (x *exercise) refuseFees(on bool) {
	f := rpcproxy.Faults{}
	if on {
		f.Refuse = func(tx *types.Transaction) string {
			if x.isSender(tx) {
				return "tx fee (1.50 ether) exceeds the configured cap (1.00 ether)"
			}
			return ""
		}
	}
	for _, n := range x.Nodes {
		n.SetFaults(f)
	}
}

func stuck(x *exercise) {
	x.refuseFees(true)
	defer x.refuseFees(false)
	_, id := x.post("stuck", client.Payload{})
	x.waitsFor(id, "OPERATOR")
	x.refuseFees(false)
	x.say(`Expect: it is STUCK, and its lastError begins with over_node_cap; later intents of the submitter wait behind it. The nodes' operator
has just raised the limit (--rpc.txfeecap). Nothing is sent again unasked: docs/runbooks/stuck.md has what to decide.`)
	steps.OK(x.act("Decide", "/admin/v1/tx/"+id+"/decide", map[string]string{"action": "rebroadcast", "reason": reason}))
	x.decided(id, string(client.Confirmed))
}

func miningStopped(x *exercise) {
	x.Chain.StopMining()
	defer x.Chain.StartMining()
	_, id := x.post("waits", client.Payload{})
	x.waitsFor(id, "INCLUSION")
	x.say(`Expect: it is sent and stays TRACKING/PENDING or SUBMITTED, without a receipt; fencepost_in_flight_age_seconds grows. The chain's head does not
move: GET /admin/v1/chains. There is nothing to decide: see docs/runbooks/%s. The chain makes blocks again after %s.`, x.Runbook, x.pause)
	retry.Pause(x.ctx, x.pause)
	steps.OK(x.ctx.Err())
	x.Chain.StartMining()
	x.confirmed(id)
}

func reorg(x *exercise) {
	_, id := x.post("final", client.Payload{})
	x.confirmed(id)
	tx := steps.Value(x.operator.Tx(x.ctx, id))
	x.removeFrom(tx.Receipt.BlockNumber)
	incident := x.protected(x.sub, true)
	x.evidence(`"REORG"`)
	x.say(`A reorg has removed the block of the final transaction and all later ones. Expect: the submitter is in PROTECT, incident %d; the
evidence says REORG; the transaction stays CONFIRMED and the same bytes are sent again. Once it is mined again, release by resume:
docs/runbooks/protect.md. Other submitters with final transactions in these blocks are in PROTECT too.`, incident)
	x.mined(common.HexToHash(tx.TxHash))
	x.say("The transaction is mined again.")
	x.resume(incident)
	x.protected(x.sub, false)
	x.confirmed(id)
	x.goesOn()
}

// resume releases by resume, once the chain queries agree that nothing is lost any more.
func (x *exercise) resume(incident int) {
	for x.solve {
		_ = x.RunSweep(x.ctx) // so that the next chain query comes soon
		err := x.act("Release", releasePath(x.sub), client.Release{Incident: incident, Mode: "resume", Reason: reason})
		if err == nil {
			return
		}
		if retry.Pause(x.ctx, pollEvery); x.ctx.Err() != nil {
			steps.OK(errors.Join(x.ctx.Err(), err))
		}
	}
}

// removeFrom replaces the block with the number and all later ones by blocks without the drill's transactions.
func (x *exercise) removeFrom(number uint64) {
	x.Chain.StopMining()
	defer x.Chain.StartMining()
	head := x.Chain.Head()
	blocks := make([][][]byte, head-number+2) // one more than are replaced
	for n := number; n <= head; n++ {
		for _, tx := range steps.Value(x.node.BlockByNumber(x.ctx, new(big.Int).SetUint64(n))).Transactions() {
			if !x.isSender(tx) {
				blocks[n-number] = append(blocks[n-number], steps.Value(tx.MarshalBinary()))
			}
		}
	}
	steps.OK(x.Chain.Reorg(head-number+1, blocks...))
	x.Chain.DropPool()
}

func killedProcess(x *exercise) {
	var ids []string
	for i := range 5 {
		_, id := x.post(fmt.Sprint(i), client.Payload{})
		ids = append(ids, id)
	}
	running := x.Processes()
	if len(running) == 0 {
		steps.Stopf("no function process runs: wait until one is started")
	}
	victim := running[0]
	steps.OK(victim.Kill())
	x.say(`Killed function process %d. Expect: its lease expires, another process goes on, and a new process takes its place. Some calls may
be answered 5xx. There is nothing to decide: docs/runbooks/function-errors.md.`, victim.PID())
	for _, id := range ids {
		x.confirmed(id)
	}
	x.until(func() bool {
		now := x.Processes()
		return len(now) >= len(running) && !slices.Contains(now, victim)
	})
}

func unpaidAccount(x *exercise) {
	balance := steps.Value(x.node.BalanceAt(x.ctx, x.address, nil))
	_, dear := x.post("dear", client.Payload{Value: new(big.Int).Add(balance, big.NewInt(params.Ether)).String(), Gas: "21000"})
	_, behind := x.post("behind", client.Payload{})
	x.waitsFor(dear, "BALANCE")
	x.say(`Expect: the first intent asks for 1 ether more than the account has. It stays QUEUED, its lastError begins with "balance", and the
second waits behind it. Send the account money, or cancel the first: docs/runbooks/balance.md.`)
	steps.OK(x.act("Cancel", "/api/v1/tx/"+dear+"/cancel", nil))
	x.confirmed(behind)
	x.decided(dear, "FAILED CANCELLED")
}

func restore(x *exercise) {
	lost := x.loseTransaction()
	incidents := x.allProtected()
	x.say(`The database is lost, and its backup is in its place. Expect: every submitter is in PROTECT, new transfers are halted, and
%s is not known here, although the chain has it. docs/runbooks/restore.md, from step 3 on: accept the database, and
release each submitter.`, lost.RequestID)
	x.reconcile(incidents, lost.RequestID)
	for s := range incidents {
		x.protected(s, false)
	}
	if _, err := x.caller.CreateTx(x.ctx, lost); x.solve && client.CodeOf(err) != "REQUEST_RECORDED" {
		steps.Stopf("the lost request, posted again: got %w, want REQUEST_RECORDED", err)
	}
	x.goesOn()
}

// loseTransaction replaces the database by a backup that lacks the returned intent, whose transaction the chain
// has as finalized.
func (x *exercise) loseTransaction() client.Intent {
	world := faults.NewWorld(faults.Options{Stack: x.Stack, Source: rand.New(rand.NewPCG(1, 1))})
	n := rand.Int()
	x.goesOn()
	backup := steps.Value(world.BackUp(x.ctx, n))
	x.say("The database was backed up.")
	lost, id := x.post("lost", client.Payload{})
	x.confirmed(id)
	steps.OK(world.PutBack(x.ctx, backup, n, func() {}))
	x.finalize()
	return lost
}

// reconcile makes the operator's calls after a restore: accept the database, release each submitter, and resume
// transfers. The drill's submitter has carried out the lost request.
func (x *exercise) reconcile(incidents map[txmanager.Submitter]int, lost string) {
	steps.OK(x.act("Accept", "/admin/v1/database/accept", map[string]string{"reason": reason}))
	for s, incident := range incidents {
		request := "none"
		if s == x.sub {
			request = lost
		}
		x.resync(s, incident, request)
	}
	if x.Core != nil && x.solve {
		x.resumeTransfers()
	}
}

// goesOn posts an intent and waits until it is CONFIRMED.
func (x *exercise) goesOn() {
	_, id := x.post("goes-on", client.Payload{})
	x.confirmed(id)
}

// allProtected waits until every submitter is in PROTECT and returns their incidents.
func (x *exercise) allProtected() (incidents map[txmanager.Submitter]int) {
	x.until(func() bool {
		_ = x.RunSweep(x.ctx)
		incidents = make(map[txmanager.Submitter]int)
		for s, err := range x.operator.ListSubmitters(x.ctx, client.SubmitterQuery{}) {
			if err != nil || s.Protect == nil {
				return false
			}
			incidents[txmanager.Submitter(s.Submitter)] = s.Protect.Incident
		}
		return len(incidents) > 0
	})
	return incidents
}

// resumeTransfers resumes the transfers that the restore halted.
func (x *exercise) resumeTransfers() {
	state := steps.Value(x.operator.Conservation(x.ctx))
	if state.OpenHalts == 0 {
		steps.Stopf("halts of transfers: got none, want that of the restore")
	}
	for _, h := range state.Halts {
		steps.OK(x.act("Resume transfers", fmt.Sprintf("/admin/v1/halts/%d/resume", h.ID), map[string]any{"reason": reason}))
	}
	if state = steps.Value(x.operator.Conservation(x.ctx)); state.OpenHalts > 0 {
		steps.Stopf("halts of transfers after they were resumed: got %+v, want none", state.Halts)
	}
}
