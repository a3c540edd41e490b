package payout_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/fencepost/fencepost/shared/chain"
	"github.com/fencepost/fencepost/shared/chain/devchain/contracts"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/conservation"
	"github.com/fencepost/fencepost/shared/ledger/payout"
	book "github.com/fencepost/fencepost/shared/store/conservation"
	"github.com/fencepost/fencepost/shared/transfer"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// onChain is the monitor that also reads the chain.
func (h *env) onChain(blocks uint64) conservation.Monitor {
	h.t.Helper()
	m := h.monitor()
	m.Page, m.Chain = 0, h.reader(blocks)
	return m
}

func (h *env) reader(blocks uint64) *payout.ChainReader {
	return &payout.ChainReader{
		Book: book.New(h.db.DB), Blocks: blocks, Time: 30 * time.Second, Log: slog.New(slog.NewTextHandler(h.log, nil)),
		ChainOf: finalBy(h.connector, txmanager.ByConfirmations, confirmations),
	}
}

// wrong returns the kinds that a check finds, known or not.
func wrong(t testing.TB, m conservation.Monitor) (kinds []string) {
	t.Helper()
	report := check.Value(m.Check(t.Context(), false))(t)
	for _, f := range report.Found {
		kinds = append(kinds, string(f.Kind))
	}
	slices.Sort(kinds)
	return kinds
}

func (h *env) wantWrong(when string, m conservation.Monitor, want ...string) {
	h.t.Helper()
	if got := wrong(h.t, m); !slices.Equal(got, want) {
		h.t.Fatalf("%s: got %v, want %v", when, got, want)
	}
}

// paidOutside makes a payment with the payer's key that is not recorded.
func (h *env) paidOutside(to txmanager.Address, wei int64) string {
	h.t.Helper()
	n := check.Value(h.client.NonceAt(h.t.Context(), common.Address(eip155.MustBytes(h.payer.Address())), nil))(h.t)
	return h.sends(accounts[0], n, to.String(), fmt.Sprint(wei), nil)
}

// Payouts with every result are explained at every step. Each payment is read once, whatever the
// size of the steps and wherever the reading was stopped.
func TestTheChainExplainsPayouts(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.deploy(contracts.Token())
	m := h.onChain(2)
	h.wantWrong("before", m)
	for range 2 {
		made, given, tokens := h.due(coin), h.due(coin), h.due(token)
		for _, x := range []transfer.Transfer{made, tokens} {
			h.drive(x.ReqID, transfer.TargetPending)
		}
		h.wantWrong("pending", m)
		h.mineUntil(made.ReqID, "CONFIRMED")
		h.mineUntil(tokens.ReqID, "CONFIRMED")
		h.wantWrong("confirmed, and not yet committed", m)
		h.drive(made.ReqID, transfer.Committed)
		h.drive(tokens.ReqID, transfer.Committed)
		h.giveUp(given.ReqID)
		h.wantWrong("ended", m)
	}
	h.wantWrong("after the claims were judged", m)
	check.Equal(t, "payments that are settled", value[int](h, `select count(*) from conservation_payment where outcome = 'PAID'`), 4)
	check.Equal(t, "payouts whose payment was found", value[int](h, `select count(*) from conservation_owed where paid`), 4)
	if report, err := m.Check(t.Context(), true); err != nil || len(report.Found) > 0 {
		t.Errorf("a full check: got %+v, %v; want nothing wrong", report, err)
	}
}

// A payout whose payment was read is not reported as unpaid while another run of the check
// evaluates it again. That run may reopen a payment that this one has just settled.
func TestAFullCheckBesideAnotherFindsNothing(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	h.deploy(contracts.Token())
	m := h.onChain(1000)
	h.pay(h.due(coin))
	h.pay(h.due(token))
	for range 2 {
		h.wantWrong("before", m)
	}
	check.OK(t)(book.New(h.db.DB).Reopen(t.Context()))
	h.define(`create function reopen() returns trigger language plpgsql as $$ begin new.outcome := null; new.req_id := null; return new; end $$`)
	h.define(`create trigger reopened before update on conservation_payment for each row execute function reopen()`)
	h.wantWrong("reopened while they are judged", m)
	h.define(`drop trigger reopened on conservation_payment`)
	h.wantWrong("judged again", m)
	check.Equal(t, "payouts whose payment was found", value[int](h, `select count(*) from conservation_owed where paid`), 2)
}

// define runs a statement that changes no row.
func (h *env) define(statement string) {
	h.t.Helper()
	check.OK(h.t)(h.db.DB.Exec(h.t.Context(), statement))
}

// A payment with the payer's key from outside is found and halts. The finding stays until an
// operator writes the payment off.
func TestAPaymentWithoutATransferIsFound(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	m := h.onChain(1000)
	h.pay(h.due(coin))
	hash := h.paidOutside(eip155.Address(common.HexToAddress(address)), 77)
	h.wantWrong("not final", m)
	h.mine(confirmations)
	report, err := m.Check(t.Context(), false)
	if err != nil || len(report.Fresh) != 1 || report.Fresh[0].Kind != conservation.PaymentWithoutTransfer || len(report.Halts) != 1 {
		t.Fatalf("final: got %+v, %v; want one finding and one halt", report, err)
	}
	h.wantWrong("as before", m, "PAYMENT_WITHOUT_TRANSFER")
	n := value[int](h, `select count(*) from conservation_standing where key like 'PAYMENT%'`)
	h.protect()
	h.run(`insert into foreign_transaction (submitter, nonce, incident, tx_hash, block_number, block_hash, value_wei, call_digest, succeeded, receipt, node)
		select submitter, 1, 1, tx_hash, block_number, block_hash, 77, sha256('x'), true, '{}', 'n' from conservation_payment where tx_hash = $1`, hash)
	h.run(`insert into foreign_hold (submitter, nonce, call_digest) values ($1, 1, sha256('x'))`, h.payer)
	h.wantWrong("held", m, "PAYMENT_WITHOUT_TRANSFER")
	h.run(`update foreign_hold set ended_at = now(), outcome = 'WRITTEN_OFF', by = 'ann', reason = 'r'`)
	h.wantWrong("written off", m)
	if left := value[int](h, `select count(*) from conservation_standing`); n != 1 || left != 0 {
		t.Errorf("standing: got %d, and %d after it was written off; want 1 and 0", n, left)
	}
}

// A payout that is COMMITTED and was never paid is found once the blocks are read.
func TestATransferWithoutAPaymentIsFound(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	m := h.onChain(1000)
	h.pay(h.due(coin))
	h.wantWrong("paid", m)
	x := h.due(coin)
	h.drive(x.ReqID, transfer.TargetPending)
	h.run(`update transfers_tb set state = 40, next_attempt_at = null, failures = 0 where req_id = $1`, x.ReqID)
	h.mine(confirmations)
	for range 3 { // reads its end, then the block that must be read, then that it was read
		_ = wrong(t, m)
		h.mine(1)
	}
	if got := wrong(t, m); !slices.Contains(got, "TRANSFER_WITHOUT_PAYMENT") {
		t.Errorf("got %v, want TRANSFER_WITHOUT_PAYMENT", got)
	}
}

// Found are a payment that differs from its transfer, one of a refunded payout, and a second one of
// the same payout.
func TestAPaymentThatDiffersIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil string
		want  conservation.Kind
	}{
		"amount":    {`update conservation_payment set amount = amount + 1`, conservation.PaymentDiffers},
		"recipient": {`update conservation_payment set recipient = '0x00000000000000000000000000000000000000c4'`, conservation.PaymentDiffers},
		"token":     {`update conservation_payment set token = '0x00000000000000000000000000000000000000c4'`, conservation.PaymentDiffers},
		"twice": {`insert into conservation_payment (submitter, tx_hash, log_index, pass, block_number, block_hash, recipient, amount)
			select submitter, tx_hash, 9, pass, block_number, block_hash, recipient, amount from conservation_payment`, conservation.PaidTwice},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFunded(t)
			h.pay(h.due(coin))
			m := h.onChain(1000)
			h.wantWrong("as it was", m)
			h.run(c.spoil)
			if name != "twice" {
				h.run(`update conservation_payment set outcome = null, req_id = null`)
			}
			if got := wrong(t, m); !slices.Contains(got, string(c.want)) {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// A final block that was replaced is a finding, and all blocks are read again.
func TestReplacedFinalBlockIsFound(t *testing.T) {
	t.Parallel()
	h := newFunded(t)
	m := h.onChain(1000)
	h.mine(10)
	h.wantWrong("before", m)
	check.OK(t)(h.chain.Reorg(8, nil, nil, nil, nil, nil, nil, nil, nil, nil))
	h.wantWrong("after the reorg", m, "JOURNAL_WENT_BACK")
	h.paidOutside(eip155.Address(common.HexToAddress(address)), 5)
	h.mine(confirmations)
	h.wantWrong("read again", m, "JOURNAL_WENT_BACK", "PAYMENT_WITHOUT_TRANSFER")
	if report, err := m.Check(t.Context(), true); err != nil || len(report.Found) != 1 || report.Found[0].Kind != conservation.PaymentWithoutTransfer {
		t.Errorf("a full check: got %+v, %v; want the payment alone", report, err)
	}
}

// A stopped reading continues from its position. Two readings at once store each payment once.
func TestStoppedReadingContinues(t *testing.T) {
	t.Parallel()
	h := newEnv(t)
	to := eip155.Address(common.HexToAddress(address))
	const want = 6
	for i := range want {
		h.paidOutside(to, int64(i+1))
		h.mine(2)
	}
	h.mine(confirmations)
	stopped := h.reader(3)
	ctx, stop := context.WithCancel(t.Context())
	steps := 0
	stopped.At = func(string) {
		if steps++; steps == 3 {
			stop()
		}
	}
	if _, err := stopped.Check(ctx, false); err == nil {
		t.Fatal("got a check that ended, want it stopped")
	}
	part := value[int](h, `select count(*) from conservation_payment`)
	if part == 0 || part >= want {
		t.Fatalf("stopped: got %d payments of %d, want some", part, want)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if found, err := h.reader(3).Check(t.Context(), false); err != nil || len(found) > want {
				t.Errorf("beside another reading: got %d findings, %v; want at most %d", len(found), err, want)
			}
		})
	}
	both.Wait()
	check.Err(t, "after both", nil)(h.reader(3).Check(t.Context(), false))
	check.Equal(t, "payments, each once", value[int](h, `select count(*) from conservation_payment`), want)
}

// One commit stores a payer's position and the payments of its blocks, if the position is unchanged
// since. A payment that cannot be stored leaves the blocks unread, and an overtaken run stores
// nothing.
func TestReadingIsStoredInOneCommit(t *testing.T) {
	t.Parallel()
	h := newEnv(t)
	h.mine(10)
	check.OK(t)(h.reader(3).Check(t.Context(), false))
	b := book.New(h.db.DB)
	read := func() conservation.ChainReading {
		t.Helper()
		all, err := b.Readings(t.Context(), 0)
		if err != nil || len(all) != 1 {
			t.Fatalf("readings: got %+v, %v; want one", all, err)
		}
		return all[0]
	}
	from := read()
	to := from
	to.Block += 5
	payment := chain.Payment{TxHash: txmanager.Hash{0xab}, LogIndex: -1, BlockNumber: from.Block + 1, Amount: big.NewInt(7)}
	broken := payment
	broken.Amount = big.NewInt(-7)
	if _, err := b.StoreReading(t.Context(), from, to, to.Block, []chain.Payment{payment, broken}); err == nil {
		t.Error("a payment of a negative amount: got no error")
	}
	if n := value[int](h, `select count(*) from conservation_payment`); read().Block != from.Block || n != 0 {
		t.Errorf("after an error: got block %d and %d payments, want %d and none", read().Block, n, from.Block)
	}
	further := to
	further.Block += 5
	for i, run := range []conservation.ChainReading{further, to} {
		stored, err := b.StoreReading(t.Context(), from, run, further.Block, []chain.Payment{payment})
		if err != nil || stored != (i == 0) {
			t.Errorf("run %d: got stored %t, %v; want the first alone", i, stored, err)
		}
	}
	check.Equal(t, "read up to", read().Block, further.Block)
}
