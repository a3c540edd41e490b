package acceptance

import (
	"context"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// crowd sends foreign transactions that fill blocks. Each fails by an invalid instruction, which burns
// all its gas, a quarter of a block, and takes no time.
type crowd struct {
	b    bench
	by   devchain.Account
	next uint64
	gas  uint64
	data []byte
}

const quarter = 15_000_000 // gas

func newCrowd(t *testing.T, b bench) *crowd {
	t.Helper()
	accounts := devchain.DevAccounts(len(b.Submitters()) + 2) // the last account belongs to no submitter
	return &crowd{b: b, by: accounts[len(accounts)-1], gas: quarter, data: []byte{0xfe}}
}

func (c *crowd) tx(tip int64) *types.Transaction {
	tx := c.b.Sign(c.by, &types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(c.b.Chain.ChainID()), Nonce: c.next, Gas: c.gas, Data: c.data,
		GasTipCap: big.NewInt(tip), GasFeeCap: big.NewInt(60e9),
	})
	c.next++
	return tx
}

// block adds a block with this many quarters filled by the crowd. Other transactions of the pool get
// in if they fit and pay enough.
func (c *crowd) block(quarters int) error {
	for range quarters {
		if err := c.b.Node.SendTransaction(c.b.ctx, c.tx(1e9)); err != nil {
			return err
		}
	}
	return c.b.Chain.Mine(1)
}

func (c *crowd) baseFee(t *testing.T) *big.Int {
	t.Helper()
	return must(c.b.Node.HeaderByNumber(c.b.ctx, nil))(t).BaseFee
}

// raise adds blocks of the crowd only, until the base fee is above least.
func (c *crowd) raise(t *testing.T, least *big.Int) {
	t.Helper()
	for c.baseFee(t).Cmp(least) <= 0 {
		c.exactly(t, 1e9, 1e9, 1e9, 1e9)
	}
}

// pay adds a block of plain transactions that pay these tips.
func (c *crowd) pay(t *testing.T, tips ...int64) {
	t.Helper()
	gas, data := c.gas, c.data
	c.gas, c.data = 53_000+1_000, nil
	c.exactly(t, tips...)
	c.gas, c.data = gas, data
}

// exactly adds a block that contains only the crowd's transactions, which pay these tips.
func (c *crowd) exactly(t *testing.T, tips ...int64) {
	t.Helper()
	var raws [][]byte
	for _, tip := range tips {
		raws = append(raws, must(c.tx(tip).MarshalBinary())(t))
	}
	check(t, c.b.Chain.MineExactly(raws...))
}

// stays adds half-full blocks, so that the base fee stays unchanged, until stop is called. stop
// returns the number of blocks.
func (c *crowd) stays(t *testing.T, every time.Duration) (stop func() int) {
	ctx, cancel := context.WithCancel(c.b.ctx)
	var group sync.WaitGroup
	blocks := 0
	group.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := c.block(2); err != nil {
				t.Errorf("a block of the crowd's: %v", err)
				return
			}
			blocks++
		}
	})
	return func() int { cancel(); group.Wait(); return blocks }
}

// congestedRun posts a load and makes the chain three times as expensive before a block contains any
// of it. The parameter settled waits for its condition and returns how many blocks of the load that
// took.
func congestedRun(t *testing.T, settings map[string]string, settled func(b bench, s txmanager.Submitter, n int)) (b bench, blocks int) {
	t.Helper()
	const n = 4
	b = setup(t, stack.Options{Window: n, Settings: withSettings(quick, map[string]string{
		"FENCEPOST_NONCE_STRICT_ENABLED": "false", "FENCEPOST_RESUBMIT_MAX_ATTEMPTS": "1000", // more than the slowest machine needs
	}, settings)})
	s := b.Submitters()[0]
	b.Chain.StopMining()
	b.postMany(t, s, n)
	b.await(t, s, txmanager.Tracking, n)
	c := newCrowd(t, b)
	c.raise(t, new(big.Int).Mul(c.baseFee(t), big.NewInt(4)))
	stop := c.stays(t, 250*time.Millisecond)
	settled(b, s, n)
	blocks = stop()
	return b, blocks
}

// congestedRuns makes a congested run with the gas bump on, which must finish, and one with it off, which must wait until
// the congestion has ended.
func congestedRuns(t *testing.T, settings map[string]string) (on, off bench) {
	t.Helper()
	bumps := withSettings(settings, map[string]string{"FENCEPOST_GASBUMP_ENABLED": "true", "FENCEPOST_GASBUMP_MIN_INTERVAL": "1s"})
	on, blocks := congestedRun(t, bumps, func(b bench, s txmanager.Submitter, n int) { b.await(t, s, txmanager.Confirmed, n) })
	on.ends(t, map[txmanager.Submitter]int{on.Submitters()[0]: 4})
	on.wantCount(t, "ended by a replacement, with its hash", 4, `select count(*) from managed_tx m where replaced_by_hash = tx_hash
		and exists (select from tx_version v where v.tx_hash = m.tx_hash and v.kind = 'BUMP' and v.extra_wei > 0)`)
	off, _ = congestedRun(t, settings, func(b bench, _ txmanager.Submitter, _ int) {
		check(t, b.Chain.WaitBlock(b.ctx, b.Chain.Head()+uint64(blocks)))
	})
	off.wantCount(t, "off, after as many blocks", 4, `select count(*) from managed_tx where state in ('SUBMITTED', 'TRACKING') and receipt is null`)
	return on, off
}

// On a congested chain a load finishes with the gas bump on, and waits with it off until the
// congestion ends. Each version is stored, the mined version is named, and no nonce is skipped.
func TestGasBumpOnACongestedChain(t *testing.T) {
	t.Parallel()
	_, off := congestedRuns(t, nil)
	if n := off.count(`select count(*) from tx_version where version > 1 or extra_wei is not null`) +
		off.count(`select count(*) from managed_tx where next_bump_at is not null`); n != 0 {
		t.Errorf("off: got %d traces of a bump, want none", n)
	}
	off.Chain.StartMining() // the congestion has ended
	off.ends(t, map[txmanager.Submitter]int{off.Submitters()[0]: 4})
}

// Replacement underpriced raises the next bid and is no error. On a node that demands 50% more, the
// bids rise until the node accepts one.
func TestUnderpricedIsNoError(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{PriceBump: 50, Settings: withSettings(quick, map[string]string{
		"FENCEPOST_GASBUMP_ENABLED": "true", "FENCEPOST_GASBUMP_MIN_INTERVAL": "3s",
	})})
	s := b.Submitters()[0]
	id := b.inFlight(t, transfer(s, "outbid"))
	b.versions(t, id, "ORIGINAL", "BUMP", "BUMP", "BUMP", "BUMP") // 1.125^3 is not 1.5, 1.125^4 is
	b.awaitCount(t, "no bid was taken", 1, `select count(*) from managed_tx where state = 'TRACKING' and last_error is null`)
	b.wantCount(t, "versions until one was taken", 5, `select count(*) from tx_version`)
	b.logged(t, "replacement_underpriced") // otherwise the test proves nothing
	b.wantCount(t, "told as an error", 0, `select count(*) from tx_history where reason like '%underpriced%'`)
	b.Chain.StartMining()
	b.ends(t, map[txmanager.Submitter]int{s: 1})
}

// A process that dies while it replaces a transaction, before or after it stored the version, loses
// nothing. Whichever version is mined, the nonce is used once.
func TestGasBumpSurvivesAKill(t *testing.T) {
	t.Parallel()
	bumps := stack.Options{Settings: map[string]string{"FENCEPOST_GASBUMP_ENABLED": "true", "FENCEPOST_GASBUMP_MIN_INTERVAL": "1s"}}
	points := []string{"advance.version_signed", "advance.version_stored"}
	killedInTurn(t, bumps, points, func(t *testing.T, b bench, folder, point string) {
		s := b.Submitters()[0]
		b.Chain.StopMining()
		id := b.postUntilAnswered(t, transfer(s, "outbid"))
		b.killed(t, folder, point)
		b.versions(t, id, "ORIGINAL", "BUMP")
		b.Chain.StartMining()
		b.ends(t, map[txmanager.Submitter]int{s: 1})
	})
}
