package acceptance

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// byOnePrice configures a chain without EIP-1559.
var byOnePrice = map[string]string{"FENCEPOST_CHAIN_FEE_KIND": "legacy"}

// wantOnePrice checks that all stored versions are of the legacy type. Each must pay as its parameters
// say and at least a tenth more than the one before. The chain must have the same mined versions.
func (b bench) wantOnePrice(t *testing.T) {
	t.Helper()
	b.wantCount(t, "versions of another form", 0, `select count(*) from tx_version v join tx_document d on d.tx_id = v.tx_id and d.name = 'version:' || v.version
		where get_byte(d.bytes, 0) < 192 or d.body ->> 'gasPrice' is null or d.body ->> 'maxFeePerGas' is not null`)
	b.wantCount(t, "bids below what nodes demand", 0, `select count(*) from (select (d.body ->> 'gasPrice')::numeric as price,
		lag((d.body ->> 'gasPrice')::numeric) over (partition by v.tx_id order by v.version) as before
		from tx_version v join tx_document d on d.tx_id = v.tx_id and d.name = 'version:' || v.version) as bids
		where price * 10 < before * 11`)
	rows, err := b.DB.Query(b.ctx, `select m.tx_hash, d.body ->> 'gasPrice' from managed_tx m
		join tx_version v on v.tx_hash = m.tx_hash join tx_document d on d.tx_id = v.tx_id and d.name = 'version:' || v.version`)
	check(t, err)
	defer rows.Close()
	for rows.Next() {
		var hash, price string
		check(t, rows.Scan(&hash, &price))
		tx, waits, err := b.Node.TransactionByHash(b.ctx, common.HexToHash(hash))
		if err != nil || waits || tx.Type() != types.LegacyTxType || tx.GasPrice().String() != price || tx.ChainId().Uint64() != b.Chain.ChainID() {
			t.Errorf("%s: got %+v, waits %v, %v; want it mined, of legacy form at %s, for this chain", hash, tx, waits, err, price)
		}
	}
	check(t, rows.Err())
}

// With legacy gas prices a congested chain is outbid in the same way. With the gas bump on the load
// finishes; with it off it waits until the congestion ends. All stored versions are legacy
// transactions.
func TestLegacyFeesOnACongestedChain(t *testing.T) {
	t.Parallel()
	on, off := congestedRuns(t, byOnePrice)
	on.wantOnePrice(t)
	off.wantCount(t, "off", 0, `select count(*) from tx_version where version > 1`)
	off.Chain.StartMining() // the congestion has ended
	off.ends(t, map[txmanager.Submitter]int{off.Submitters()[0]: 4})
	off.wantOnePrice(t)
}

// External signers sign legacy transactions too: a first version, a bid, and a placeholder over both.
func TestLegacyFormOfEachSigner(t *testing.T) {
	t.Parallel()
	for _, kind := range []stack.SignerKind{stack.SignerKMS, stack.SignerRemote} {
		parallel(t, string(kind), func(t *testing.T) {
			b := setup(t, stack.Options{Signer: kind, Settings: withSettings(quick, byOnePrice, map[string]string{
				"FENCEPOST_GASBUMP_ENABLED": "true", "FENCEPOST_GASBUMP_MIN_INTERVAL": "1s", "FENCEPOST_GASBUMP_MAX_ATTEMPTS": "1",
			})})
			s := b.Submitters()[0]
			b.Chain.StopMining()
			id := b.postUntilAnswered(t, transfer(s, "outbid"))
			b.replaced(t, id, "BUMP")
			b.cancel(t, id)
			b.versions(t, id, "ORIGINAL", "BUMP", "PLACEHOLDER")
			b.await(t, s, txmanager.Tracking, 1)
			b.Chain.StartMining()
			b.ends(t, map[txmanager.Submitter]int{s: 1})
			b.wantOnePrice(t)
			b.wantEnd(t, "cancelled", id, "FAILED/PLACEHOLDER", "PLACEHOLDER")
		})
	}
}
