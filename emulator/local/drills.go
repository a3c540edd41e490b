package local

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"

	"github.com/fencepost/fencepost/emulator/proxy/http/rpcproxy"
	"github.com/fencepost/fencepost/emulator/verify/torture/faults"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
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
func (x *exercise) useKey(ctx context.Context) (nonce uint64, err error) {
	from := common.Address(eip155.MustBytes(x.account.Address))
	if nonce, err = x.node.PendingNonceAt(ctx, from); err != nil {
		return 0, err
	}
	id := new(big.Int).SetUint64(x.Chain.ChainID())
	to := common.Address{0xba, 0xd0}
	tx, err := types.SignNewTx(x.account.Key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: nonce, To: &to, Value: big.NewInt(7), Gas: params.TxGas, GasTipCap: big.NewInt(params.GWei), GasFeeCap: big.NewInt(200 * params.GWei),
	})
	if err == nil {
		err = x.node.SendTransaction(ctx, tx)
	}
	if err != nil {
		return 0, err
	}
	return nonce, x.mined(ctx, tx.Hash())
}

// mined waits until a block has the transaction.
func (x *exercise) mined(ctx context.Context, hash common.Hash) error {
	return x.until(ctx, func() bool {
		_, err := x.node.TransactionReceipt(ctx, hash)
		return err == nil
	})
}

func foreignKey(ctx context.Context, x *exercise) error {
	nonce, err := x.useKey(ctx)
	if err != nil {
		return err
	}
	x.say("Another program has sent 7 wei by the account's key, with nonce %d.", nonce)
	_, waits, err := x.post(ctx, "waits", client.Payload{})
	if err != nil {
		return err
	}
	incident, err := x.protected(ctx, true)
	if err == nil {
		err = errors.Join(x.waitsFor(ctx, waits, "PROTECT"), x.evidence(ctx, `"AHEAD"`))
	}
	if err != nil {
		return err
	}
	x.say(`Expect: the submitter is in PROTECT, incident %d, with the foreign transaction as evidence; the intent stays QUEUED; new
intents are answered 409 SUBMITTER_PROTECTED. Nobody but an operator ends this: docs/runbooks/protect.md, from "Nonces are lost" on.`, incident)
	if err := x.finalize(); err != nil {
		return err
	}
	if err := x.resync(ctx, x.sub, incident, "none"); err != nil {
		return err
	}
	if _, err := x.protected(ctx, false); err != nil {
		return err
	}
	if err := x.confirmed(ctx, waits); err != nil || !x.solve {
		return err
	}
	return x.writeOff(ctx, nonce)
}

// writeOff says of the released foreign transaction that it was no request of ours. Until then a new intent with
// the same call is held.
func (x *exercise) writeOff(ctx context.Context, nonce uint64) error {
	if open, err := x.openForeign(ctx); err != nil || !slices.Contains(open, nonce) {
		return errors.Join(err, fmt.Errorf("foreign transactions to decide about: got nonces %d, want %d among them", open, nonce))
	}
	err := x.act(ctx, "Write it off, after GET /admin/v1/submitters/"+string(x.sub)+"/foreign", http.MethodPost,
		"/admin/v1/submitters/"+string(x.sub)+"/foreign/write-off", map[string]any{"nonce": nonce, "reason": reason})
	if err != nil {
		return err
	}
	if open, err := x.openForeign(ctx); err != nil || slices.Contains(open, nonce) {
		return errors.Join(err, fmt.Errorf("foreign transactions to decide about: got nonces %d, want %d gone", open, nonce))
	}
	return nil
}

// openForeign returns the nonces of the foreign transactions that wait for a decision.
func (x *exercise) openForeign(ctx context.Context) (nonces []uint64, err error) {
	for f, err := range x.operator.ListForeign(ctx, string(x.sub), 0) {
		if err != nil {
			return nil, err
		}
		nonces = append(nonces, f.Nonce)
	}
	return nonces, nil
}

// resync releases the submitter by accepting the chain's final count. The transactions that are not on record
// were this request.
func (x *exercise) resync(ctx context.Context, s txmanager.Submitter, incident int, request string) error {
	if !x.solve {
		return nil
	}
	requests, count := map[uint64]string{}, uint64(0)
	for token, more := "", true; more; {
		page, err := x.operator.Lost(ctx, string(s), token)
		if err != nil {
			return err
		}
		for _, n := range page.Nonces {
			requests[n.Nonce] = request
		}
		if page.FinalCount != nil {
			count = *page.FinalCount
		}
		token, more = page.NextPageToken, page.NextPageToken != ""
	}
	return x.act(ctx, "Release, after GET /admin/v1/submitters/"+string(s)+"/lost", http.MethodPost, releasePath(s),
		client.Release{Incident: incident, Mode: "resync", Count: &count, Requests: requests, Reason: reason})
}

// refuseFees makes all nodes refuse the account's transactions because of their fees, or ends that.
func (x *exercise) refuseFees(on bool) {
	f := rpcproxy.Faults{}
	if on {
		signer := types.LatestSignerForChainID(new(big.Int).SetUint64(x.Chain.ChainID()))
		f.Refuse = func(tx *types.Transaction) string {
			if from, err := types.Sender(signer, tx); err == nil && from == common.Address(eip155.MustBytes(x.account.Address)) {
				return "tx fee (1.50 ether) exceeds the configured cap (1.00 ether)"
			}
			return ""
		}
	}
	for _, n := range x.Nodes {
		n.SetFaults(f)
	}
}

func stuck(ctx context.Context, x *exercise) error {
	x.refuseFees(true)
	defer x.refuseFees(false)
	_, id, err := x.post(ctx, "stuck", client.Payload{})
	if err != nil {
		return err
	}
	if err := x.waitsFor(ctx, id, "OPERATOR"); err != nil {
		return err
	}
	x.refuseFees(false)
	x.say(`Expect: it is STUCK, and its lastError begins with over_node_cap; later intents of the submitter wait behind it. The nodes' operator
has just raised the limit (--rpc.txfeecap). Nothing is sent again unasked: docs/runbooks/stuck.md has what to decide.`)
	if err := x.act(ctx, "Decide", http.MethodPost, "/admin/v1/tx/"+id+"/decide", map[string]string{"action": "rebroadcast", "reason": reason}); err != nil {
		return err
	}
	return x.decided(ctx, id, string(client.Confirmed))
}

func miningStopped(ctx context.Context, x *exercise) error {
	x.Chain.StopMining()
	defer x.Chain.StartMining()
	_, id, err := x.post(ctx, "waits", client.Payload{})
	if err != nil {
		return err
	}
	if err := x.waitsFor(ctx, id, "INCLUSION"); err != nil {
		return err
	}
	x.say(`Expect: it is sent and stays TRACKING/PENDING or SUBMITTED, without a receipt; fencepost_in_flight_age_seconds grows. The chain's head does not
move: GET /admin/v1/chains. There is nothing to decide: see docs/runbooks/%s. The chain makes blocks again after %s.`, x.runbook, x.pause)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(x.pause):
	}
	x.Chain.StartMining()
	return x.confirmed(ctx, id)
}

func reorg(ctx context.Context, x *exercise) error {
	_, id, err := x.post(ctx, "final", client.Payload{})
	if err != nil {
		return err
	}
	if err := x.confirmed(ctx, id); err != nil {
		return err
	}
	tx, err := x.operator.Tx(ctx, id)
	if err != nil {
		return err
	}
	if err := x.removeFrom(ctx, tx.Receipt.BlockNumber); err != nil {
		return err
	}
	incident, err := x.protected(ctx, true)
	if err == nil {
		err = x.evidence(ctx, `"REORG"`)
	}
	if err != nil {
		return err
	}
	x.say(`A reorg has removed the block of the final transaction and all later ones. Expect: the submitter is in PROTECT, incident %d; the
evidence says REORG; the transaction stays CONFIRMED and the same bytes are sent again. Once it is mined again, release by resume:
docs/runbooks/protect.md. Other submitters with final transactions in these blocks are in PROTECT too.`, incident)
	if err := x.mined(ctx, common.HexToHash(tx.TxHash)); err != nil {
		return err
	}
	x.say("The transaction is mined again.")
	if err := x.resume(ctx, incident); err != nil {
		return err
	}
	if _, err := x.protected(ctx, false); err != nil {
		return err
	}
	if err := x.confirmed(ctx, id); err != nil {
		return err
	}
	return x.goesOn(ctx)
}

// resume releases by resume, once the chain queries agree that nothing is lost any more.
func (x *exercise) resume(ctx context.Context, incident int) error {
	if !x.solve {
		return nil
	}
	body := client.Release{Incident: incident, Mode: "resume", Reason: reason}
	var err error
	failed := x.until(ctx, func() bool {
		_ = x.RunSweep(ctx) // so that the next chain query comes soon
		err = x.act(ctx, "Release", http.MethodPost, releasePath(x.sub), body)
		return err == nil
	})
	return errors.Join(failed, err)
}

// removeFrom replaces the block with the number and all later ones by blocks without the drill's transactions.
func (x *exercise) removeFrom(ctx context.Context, number uint64) error {
	x.Chain.StopMining()
	defer x.Chain.StartMining()
	from := common.Address(eip155.MustBytes(x.account.Address))
	signer := types.LatestSignerForChainID(new(big.Int).SetUint64(x.Chain.ChainID()))
	head := x.Chain.Head()
	blocks := make([][][]byte, head-number+2) // one more than are replaced
	for n := number; n <= head; n++ {
		block, err := x.node.BlockByNumber(ctx, new(big.Int).SetUint64(n))
		if err != nil {
			return err
		}
		for _, tx := range block.Transactions() {
			if sender, err := types.Sender(signer, tx); err == nil && sender == from {
				continue
			}
			raw, err := tx.MarshalBinary()
			if err != nil {
				return err
			}
			blocks[n-number] = append(blocks[n-number], raw)
		}
	}
	if err := x.Chain.Reorg(head-number+1, blocks...); err != nil {
		return err
	}
	x.Chain.DropPool()
	return nil
}

func killedProcess(ctx context.Context, x *exercise) error {
	var ids []string
	for i := range 5 {
		_, id, err := x.post(ctx, fmt.Sprint(i), client.Payload{})
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	running := x.Processes()
	if len(running) == 0 {
		return errors.New("no function process runs: wait until one is started")
	}
	victim := running[0]
	if err := victim.Kill(); err != nil {
		return err
	}
	x.say(`Killed function process %d. Expect: its lease expires, another process goes on, and a new process takes its place. Some calls may
be answered 5xx. There is nothing to decide: docs/runbooks/function-errors.md.`, victim.PID())
	for _, id := range ids {
		if err := x.confirmed(ctx, id); err != nil {
			return err
		}
	}
	return x.until(ctx, func() bool {
		now := x.Processes()
		return len(now) >= len(running) && !slices.Contains(now, victim)
	})
}

func unpaidAccount(ctx context.Context, x *exercise) error {
	balance, err := x.node.BalanceAt(ctx, common.Address(eip155.MustBytes(x.account.Address)), nil)
	if err != nil {
		return err
	}
	_, dear, err := x.post(ctx, "dear", client.Payload{Value: new(big.Int).Add(balance, big.NewInt(params.Ether)).String(), Gas: "21000"})
	if err != nil {
		return err
	}
	_, behind, err := x.post(ctx, "behind", client.Payload{})
	if err != nil {
		return err
	}
	if err := x.waitsFor(ctx, dear, "BALANCE"); err != nil {
		return err
	}
	x.say(`Expect: the first intent asks for 1 ether more than the account has. It stays QUEUED, its lastError begins with "balance", and the
second waits behind it. Send the account money, or cancel the first: docs/runbooks/balance.md.`)
	if err := x.act(ctx, "Cancel", http.MethodPost, "/api/v1/tx/"+dear+"/cancel", nil); err != nil {
		return err
	}
	if err := x.confirmed(ctx, behind); err != nil {
		return err
	}
	return x.decided(ctx, dear, "FAILED CANCELLED")
}

func restore(ctx context.Context, x *exercise) error {
	lost, err := x.loseTransaction(ctx)
	if err != nil {
		return err
	}
	incidents, err := x.allProtected(ctx)
	if err != nil {
		return err
	}
	x.say(`The database is lost, and its backup is in its place. Expect: every submitter is in PROTECT, new transfers are halted, and
%s is not known here, although the chain has it. docs/runbooks/restore.md, from step 3 on: accept the database, and
release each submitter.`, lost.RequestID)
	if err := x.reconcile(ctx, incidents, lost.RequestID); err != nil {
		return err
	}
	for s := range incidents {
		if err := x.until(ctx, func() bool {
			shown, err := x.operator.Submitter(ctx, string(s))
			return err == nil && shown.Protect == nil
		}); err != nil {
			return err
		}
	}
	if _, err := x.caller.CreateTx(ctx, lost); x.solve && client.CodeOf(err) != "REQUEST_RECORDED" {
		return fmt.Errorf("the lost request, posted again: got %w, want REQUEST_RECORDED", err)
	}
	return x.goesOn(ctx)
}

// loseTransaction replaces the database by a backup that lacks the returned intent, whose transaction the chain
// has as finalized.
func (x *exercise) loseTransaction(ctx context.Context) (lost client.Intent, err error) {
	world := faults.NewWorld(faults.Options{Stack: x.Stack, Source: rand.New(rand.NewPCG(1, 1))})
	n := rand.Int()
	if err := x.goesOn(ctx); err != nil {
		return lost, err
	}
	backup, err := world.BackUp(ctx, n)
	if err != nil {
		return lost, err
	}
	x.say("The database was backed up.")
	lost, id, err := x.post(ctx, "lost", client.Payload{})
	if err == nil {
		err = x.confirmed(ctx, id)
	}
	if err == nil {
		err = world.PutBack(ctx, backup, n, func() {})
	}
	if err == nil {
		err = x.finalize()
	}
	return lost, err
}

// reconcile makes the operator's calls after a restore: accept the database, release each submitter, and resume
// transfers. The drill's submitter has carried out the lost request.
func (x *exercise) reconcile(ctx context.Context, incidents map[txmanager.Submitter]int, lost string) error {
	if err := x.act(ctx, "Accept", http.MethodPost, "/admin/v1/database/accept", map[string]string{"reason": reason}); err != nil {
		return err
	}
	for s, incident := range incidents {
		request := "none"
		if s == x.sub {
			request = lost
		}
		if err := x.resync(ctx, s, incident, request); err != nil {
			return err
		}
	}
	return x.resumeTransfers(ctx)
}

// goesOn posts an intent and waits until it is CONFIRMED.
func (x *exercise) goesOn(ctx context.Context) error {
	_, id, err := x.post(ctx, "goes-on", client.Payload{})
	if err == nil {
		err = x.confirmed(ctx, id)
	}
	return err
}

// allProtected waits until every submitter is in PROTECT and returns their incidents.
func (x *exercise) allProtected(ctx context.Context) (incidents map[txmanager.Submitter]int, err error) {
	err = x.until(ctx, func() bool {
		_ = x.RunSweep(ctx)
		incidents = make(map[txmanager.Submitter]int)
		for s, err := range x.operator.ListSubmitters(ctx, client.SubmitterQuery{}) {
			if err != nil || s.Protect == nil {
				return false
			}
			incidents[txmanager.Submitter(s.Submitter)] = s.Protect.Incident
		}
		return len(incidents) > 0
	})
	return incidents, err
}

// resumeTransfers resumes the transfers that the restore halted.
func (x *exercise) resumeTransfers(ctx context.Context) error {
	if x.Core == nil || !x.solve {
		return nil
	}
	state, err := x.operator.Conservation(ctx)
	if err == nil && state.OpenHalts == 0 {
		err = errors.New("halts of transfers: got none, want that of the restore")
	}
	if err != nil {
		return err
	}
	for _, h := range state.Halts {
		if err := x.act(ctx, "Resume transfers", http.MethodPost, fmt.Sprintf("/admin/v1/halts/%d/resume", h.ID), map[string]any{"reason": reason}); err != nil {
			return err
		}
	}
	if state, err = x.operator.Conservation(ctx); err == nil && state.OpenHalts > 0 {
		err = fmt.Errorf("halts of transfers after they were resumed: got %+v, want none", state.Halts)
	}
	return err
}
