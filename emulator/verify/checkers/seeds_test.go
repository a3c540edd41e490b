package checkers_test

import (
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/shared/check"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// seed is one bug, put into a correct episode.
type seed struct {
	bug   string
	plant func(*bench)
	want  []string // the checkers that report it: the one meant for it, and any other whose promise it breaks too
	says  string   // part of the report
}

// chainSeeds are bugs that are visible on the chain alone.
var chainSeeds = []seed{
	{"a delegation consumes a nonce", func(b *bench) {
		b.displace("lost")
		b.mine(b.delegation(4))
		b.Settled = false
		b.carryOut(b.alice, "after", transfer, txmanager.Confirmed, "")
	}, []string{"chain-nonces"}, "nonce 5 where nonce 4 should follow"},
	{"a stranger uses the key", func(b *bench) { b.mine(b.sign(0, 4, transfer)) },
		[]string{"mined-is-stored"}, "bound to nobody"},
	{"what was final falls out of the chain", func(b *bench) { b.reorg(1) },
		[]string{"chain-nonces", "ends-as-on-chain", "one-effect"}, "the chain has nothing at its nonce"},
	{"a mined transaction is left", func(b *bench) {
		b.mine(b.submit(b.alice, "left", transfer))
	}, []string{"settled"}, "still SUBMITTED at nonce 4"},

	{"a later intent goes ahead of one that waits", func(b *bench) { b.overtaken("fee: maxFeePerGas is below the base fee") },
		[]string{"queue-order"}, "before it in the queue, waits: fee: "},
	{"a caller's later intent goes ahead of its deferred one", func(b *bench) { b.overtaken("fee: too low; deferred since 2026-11-21T12:00:00Z: why") },
		[]string{"queue-order"}, "before it in the queue, waits: fee: too low; deferred"},

	// This case also has a restore, which lost the transaction at nonce 4.
	{"a stranger uses the key after a restore", func(b *bench) {
		b.recorded("lost", transfer)
		b.mine(b.sign(0, 5, transfer))
	}, []string{"mined-is-stored"}, "bound to nobody"},
	{"what a release recorded was something else", func(b *bench) { b.recorded("lost", call) },
		[]string{"one-effect"}, "not what its payload asks"},
	{"what a release recorded is another's own", func(b *bench) {
		b.recorded("lost", transfer)
		b.forge(`update managed_tx set recorded_nonce = 0, receipt = (select receipt from managed_tx where tx_id = $2) where tx_id = $1`, b.ids["lost"], b.ids["pay"])
	}, []string{"one-effect"}, "a stored version of"},
	{"two requests are recorded as one transaction", func(b *bench) {
		b.recorded("lost", transfer)
		b.post(b.alice, "second", transfer)
		b.forge(`
update managed_tx m set state = o.state, sub_state = o.sub_state, recorded_nonce = o.recorded_nonce, receipt = o.receipt, fencing_token = o.fencing_token
  from managed_tx o where m.tx_id = $1 and o.tx_id = $2`, b.ids["second"], b.ids["lost"])
		b.changed("second", "QUEUED", "CONFIRMED")
		b.forge(`update tx_history set sub_state = 'RECORDED' where tx_id = $1 and state = 'CONFIRMED'`, b.ids["second"])
	}, []string{"one-effect"}, "and so is"},
	{"what a release recorded runs again", func(b *bench) {
		b.recorded("lost", transfer)
		again := b.submit(b.alice, "again", transfer)
		b.finish(b.alice, "again", again, txmanager.Confirmed, "")
		b.forge(`alter table managed_tx drop constraint one_tx_per_request`)
		b.forge(`update managed_tx set request_id = 'lost' where tx_id = $1`, b.ids["again"])
	}, []string{"one-effect"}, `request "lost"`},
	{"what a release recorded unread has reverted", func(b *bench) {
		b.recorded("lost", reverts)
		b.forge(`update managed_tx set receipt = null where tx_id = $1`, b.ids["lost"])
	}, []string{"ends-as-on-chain", "one-effect"}, "no transaction at its nonce that succeeded"},
	{"a release confirms what it did not find", func(b *bench) {
		b.recorded("lost", transfer)
		b.restate("lost", txmanager.Confirmed, "")
	}, []string{"legal-history"}, "QUEUED to CONFIRMED"},
	{"a release by an older token", func(b *bench) {
		b.recorded("lost", transfer)
		b.forge(`update tx_history set fencing_token = 1 where tx_id = $1 and state = 'CONFIRMED'`, b.ids["lost"])
	}, []string{"token-order"}, "under token 1 after token"},
}

// seeds are bugs that are visible in the database. In the episode nonces 0 to 3 of alice are pay,
// revert, stop and call.
var seeds = []seed{
	{"a nonce is handed out and left to nobody", func(b *bench) { b.displace("lost") },
		[]string{"chain-nonces"}, "nonce 4 was handed out"},

	{"bytes are sent that were not stored", forged(`delete from tx_version where tx_id = $1`, "pay"),
		[]string{"mined-is-stored"}, "none of its stored versions"},

	{"a request is stored and done twice", func(b *bench) {
		b.forge(`alter table managed_tx drop constraint one_tx_per_request`)
		b.forge(`update managed_tx set request_id = 'pay' where tx_id = $1`, b.ids["call"])
	}, []string{"one-effect"}, "at nonces [0 3]"},
	{"a transaction moves to another nonce", func(b *bench) { b.forgeVersion("pay", 4, b.sign(0, 4, transfer)) },
		[]string{"binding", "one-effect"}, "nonce 4 after nonce 0"},
	{"something else was done than was asked", forged(`update tx_document set body = jsonb_set(body::jsonb, '{value}', '"2"')::json where tx_id = $1 and name = 'payload'`, "pay"),
		[]string{"one-effect"}, "not what its payload asks"},
	{"a cancelled intent was carried out", func(b *bench) { b.restate("pay", txmanager.Failed, txmanager.Placeholder) },
		[]string{"one-effect"}, "no placeholder"},
	{"a displaced intent was carried out", func(b *bench) { b.restate("pay", txmanager.Failed, txmanager.Displaced) },
		[]string{"ends-as-on-chain", "one-effect"}, "the chain has its version"},

	{"final in a block that the chain does not have", forged(`update managed_tx set receipt = jsonb_set(receipt, '{blockHash}', to_jsonb('0x' || repeat('ab', 32))) where tx_id = $1`, "pay"),
		[]string{"ends-as-on-chain"}, "and the chain has it in"},
	{"final by another's receipt", forged(`update managed_tx set receipt = (select receipt from managed_tx where tx_id = $2) where tx_id = $1`, "pay", "call"),
		[]string{"ends-as-on-chain"}, "nonce 3 and not its own"},
	{"final without a receipt", forged(`update managed_tx set receipt = null where tx_id = $1`, "pay"),
		[]string{"ends-as-on-chain"}, "without a receipt"},
	{"confirmed, and reverted", func(b *bench) { b.restate("revert", txmanager.Confirmed, "") },
		[]string{"ends-as-on-chain"}, "succeeded: false"},
	{"reverted, and succeeded", func(b *bench) { b.restate("pay", txmanager.Failed, txmanager.Reverted) },
		[]string{"ends-as-on-chain"}, "succeeded: true"},
	{"cancelled before allocation, with a nonce", func(b *bench) { b.restate("stop", txmanager.Failed, txmanager.Cancelled) },
		[]string{"ends-as-on-chain"}, "holds nonce 2"},
	{"displaced by its own placeholder", func(b *bench) { b.restate("stop", txmanager.Failed, txmanager.Displaced) },
		[]string{"ends-as-on-chain"}, "the chain has its version"},

	{"a final state changes", func(b *bench) { b.changed("pay", "CONFIRMED", "CONFIRMED") },
		[]string{"legal-history"}, "which is final"},
	{"an edge that is none", func(b *bench) {
		b.forge(`update tx_history set state = 'IN_FLIGHT' where tx_id = $1 and state = 'SUBMITTED'`, b.ids["pay"])
		b.forge(`update tx_history set from_state = 'IN_FLIGHT' where tx_id = $1 and from_state = 'SUBMITTED'`, b.ids["pay"])
	}, []string{"legal-history"}, "IN_FLIGHT to TRACKING, which no transition allows"},
	{"a change is not written down", forged(`delete from tx_history where tx_id = $1 and state = 'SUBMITTED'`, "pay"),
		[]string{"legal-history"}, `from "SUBMITTED", and it was QUEUED`},
	{"the first change is not written down", forged(`delete from tx_history where tx_id = $1 and from_state is null`, "pay"),
		[]string{"legal-history"}, "begins with SUBMITTED"},
	{"the last change is not written down", forged(`delete from tx_history where tx_id = $1 and state = 'CONFIRMED'`, "pay"),
		[]string{"legal-history"}, "its history ends with TRACKING/INCLUDED"},
	{"nothing is written down", forged(`delete from tx_history where tx_id = $1`, "pay"),
		[]string{"legal-history"}, "without a history"},
	{"a history of nobody", forged(`update tx_history set tx_id = gen_random_uuid() where tx_id = $1 and from_state is null`, "cancelled"),
		[]string{"legal-history"}, "and no transaction"},

	{"a write by an older token", forged(`update tx_history set fencing_token = 1 where tx_id = $1 and state = 'CONFIRMED'`, "call"),
		[]string{"token-order"}, "under token 1 after token"},
	{"a write without a token", forged(`update tx_history set fencing_token = null where tx_id = $1 and state = 'CONFIRMED'`, "call"),
		[]string{"token-order"}, "without a token"},
	{"a loss is accepted by an older token", func(b *bench) {
		b.Foreign = map[txmanager.Submitter][]uint64{b.alice: {4}}
		b.run(`
insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, nonce, prev_nonce, state, sub_state, fencing_token)
select gen_random_uuid(), submitter, 'displaced:4', caller, fingerprint, 4, 3, 'FAILED', 'DISPLACED', 1
  from managed_tx where tx_id = $1`, b.ids["cancelled"])
		b.run(`update submitter_nonce_cursor set next_nonce = 5 where submitter = $1`, b.alice)
	}, []string{"token-order"}, "FAILED/DISPLACED: written under token 1"},
	{"what is held is written under an older token", func(b *bench) {
		b.post(b.alice, "held", transfer)
		b.run(`update managed_tx set held = true, last_error = 'held: the database was restored' where tx_id = $1`, b.ids["held"])
		b.run(`update managed_tx set held = false, last_error = null where tx_id = $1`, b.ids["held"])
		b.run(`update managed_tx set state = 'FAILED', sub_state = 'CANCELLED' where tx_id = $1`, b.ids["held"])
		b.forge(`update tx_history set fencing_token = 1 where tx_id = $1 and from_state = 'QUEUED' and state = 'QUEUED' and reason is null`, b.ids["held"])
	}, []string{"token-order"}, "QUEUED: written under token 1 after token"},
	{"a token goes down", forgedOfAlice(`update submitter_lease set fencing_token = 2 where submitter = $1`),
		[]string{"token-order"}, "the lease is at token 2"},

	{"a nonce is bound anew and back", forged(`update tx_history set nonce = 7 where tx_id = $1 and sub_state = 'PENDING'`, "pay"),
		[]string{"binding"}, "nonce 7 after nonce 0"},
	{"a nonce is given back", forged(`update tx_history set nonce = null where tx_id = $1 and sub_state = 'PENDING'`, "pay"),
		[]string{"binding"}, "no nonce after nonce 0"},
	{"a nonce that was given back had bytes", func(b *bench) {
		b.ids["lent"] = "01a00000-0000-7000-8000-000000000041"
		b.run(`
insert into managed_tx (tx_id, submitter, request_id, caller, fingerprint, state, sub_state, reservation, lock_owner, lock_until)
select $2, submitter, 'lent', 'hooks', fingerprint, 'FAILED', 'CANCELLED', 'RECYCLABLE', 'x', clock_timestamp()
  from managed_tx where tx_id = $1`, b.ids["cancelled"], b.ids["lent"])
		b.forge(`
insert into tx_version (tx_hash, tx_id, submitter, nonce, version, kind, fencing_token)
select '0x' || repeat('5', 64), tx_id, submitter, 0, 1, 'ORIGINAL', 1 from managed_tx where tx_id = $1`, b.ids["lent"])
	}, []string{"binding", "versions"}, "nonce 0, which is bound to"},
	{"two transactions of one nonce", forged(`update tx_history set nonce = 0 where tx_id = $1 and state = 'FAILED'`, "cancelled"),
		[]string{"binding"}, "nonce 0, which is bound to"},
	{"a nonce is skipped", forgedOfAlice(`update submitter_nonce_cursor set next_nonce = next_nonce + 1 where submitter = $1`),
		[]string{"binding"}, "gives nonce 5 next, the nonces bound give 4"},
	{"a nonce is skipped between two", func(b *bench) {
		for _, table := range []string{"tx_history", "tx_version", "managed_tx"} {
			b.forge(`delete from `+table+` where tx_id = $1`, b.ids["stop"])
		}
	}, []string{"binding", "mined-is-stored"}, "nonce 3 is bound where nonce 2 should follow"},

	{"the cursor names what is final", func(b *bench) { b.point("IN_FLIGHT", "call", 3) },
		[]string{"cursor"}, "want IDLE"},
	{"the cursor names nothing", func(b *bench) {
		b.underWay()
		b.forge(`update submitter_nonce_cursor set in_flight_tx_id = null, in_flight_nonce = null where submitter = $1`, b.alice)
	}, []string{"cursor"}, "names nothing"},
	{"the cursor names the later of two", func(b *bench) {
		b.underWay()
		b.submit(b.alice, "second", transfer)
		b.point("IN_FLIGHT", "second", 5)
	}, []string{"cursor"}, "names nonce 5"},
	{"the cursor is IDLE", func(b *bench) {
		b.underWay()
		b.point("IDLE", "under way", 4)
	}, []string{"cursor"}, "the cursor is IDLE, want IN_FLIGHT"},
	{"PROTECT is shown without an incident", forgedOfAlice(`update submitter_nonce_cursor set in_flight_state = 'PROTECT' where submitter = $1`),
		[]string{"cursor"}, "the cursor is PROTECT, want IDLE"},
	{"a PROTECT incident is not shown", func(b *bench) { b.protect() },
		[]string{"cursor"}, "the cursor is IDLE, want PROTECT"},

	{"the bytes of a version are lost", forged(`delete from tx_document where tx_id = $1 and name = 'version:1'`, "revert"),
		[]string{"versions"}, "no transaction"},
	{"bytes that are no transaction", forged(`update tx_document set bytes = '\xc0' where tx_id = $1 and name = 'version:1'`, "revert"),
		[]string{"versions"}, "no transaction"},
	{"bytes of another hash", forged(`update tx_document set bytes = (select bytes from tx_document where tx_id = $1 and name = 'version:2')
			where tx_id = $1 and name = 'version:1'`, "stop"), []string{"versions"}, "the bytes have hash"},
	{"bytes for another nonce", func(b *bench) { b.forgeVersion("pay", 0, b.sign(0, 1, transfer)) },
		[]string{"versions"}, "the bytes have nonce 1, the row nonce 0"},
	{"bytes of another key", func(b *bench) { b.forgeVersion("pay", 0, b.sign(1, 0, call)) },
		[]string{"versions"}, "signed by"},
	{"bytes for another chain", func(b *bench) { b.forgeVersion("pay", 0, b.signFor(1, 0, 0, transfer)) },
		[]string{"versions"}, `signed by "eip155:1:`},

	{"an intent is left in the queue", func(b *bench) { b.post(b.alice, "left", transfer) },
		[]string{"settled"}, "still QUEUED"},
	{"a lease is left", func(b *bench) { b.take(b.alice) },
		[]string{"settled"}, "the lease is held"},
	{"a rerun flag is left", forgedOfAlice(`update submitter_lease set rerun_requested = true where submitter = $1`),
		[]string{"settled"}, "a rerun flag"},
}

// forge makes a change that the database refuses while its guards are active.
func (b *bench) forge(statement string, args ...any) {
	b.Helper()
	b.unguarded()
	b.run(statement, args...)
}

// forged plants one forged statement about requests of the episode.
func forged(statement string, requestIDs ...string) func(*bench) {
	return func(b *bench) {
		var args []any
		for _, id := range requestIDs {
			args = append(args, b.ids[id])
		}
		b.forge(statement, args...)
	}
}

// forgedOfAlice plants one forged statement about alice.
func forgedOfAlice(statement string) func(*bench) {
	return func(b *bench) { b.forge(statement, b.alice) }
}

// forgeVersion stores a version that the database refuses while its guards are active.
func (b *bench) forgeVersion(requestID string, n uint64, tx *types.Transaction) {
	b.Helper()
	b.unguarded()
	b.version(requestID, n, tx, "BUMP")
}

// restate overwrites a terminal state with another.
func (b *bench) restate(requestID string, state txmanager.State, sub txmanager.SubState) {
	b.Helper()
	b.forge(`update managed_tx set state = $2, sub_state = nullif($3, '') where tx_id = $1`, b.ids[requestID], state, string(sub))
	b.forge(`update tx_history set state = $2, sub_state = nullif($3, '')
		where id = (select max(id) from tx_history where tx_id = $1)`, b.ids[requestID], state, string(sub))
}

// changed appends a change to a history, under the token of the last one.
func (b *bench) changed(requestID, from, to string) {
	b.Helper()
	b.forge(`
insert into tx_history (tx_id, submitter, at, from_state, state, nonce, attempts, fencing_token)
select tx_id, submitter, clock_timestamp(), $2, $3, nonce, 1, (select fencing_token from submitter_lease where submitter = $4)
  from managed_tx where tx_id = $1`, b.ids[requestID], from, to, b.alice)
}

// point sets the cursor to the given values.
func (b *bench) point(state, requestID string, n int64) {
	b.Helper()
	b.forge(`update submitter_nonce_cursor set in_flight_state = $2, in_flight_tx_id = $3, in_flight_nonce = $4 where submitter = $1`,
		b.alice, state, b.ids[requestID], n)
}

// recorded makes a queued intent of a restored copy. The lost database had its transaction, made from
// payload, mined at nonce 4, and a release found it there.
func (b *bench) recorded(requestID, payload string) {
	b.Helper()
	b.post(b.alice, requestID, transfer)
	b.run(`update managed_tx set held = true, last_error = 'held: the database was restored' where tx_id = $1`, b.ids[requestID])
	tx := b.sign(0, 4, payload)
	b.mine(tx)
	receipt := check.Value(b.client.TransactionReceipt(b.Context(), tx.Hash()))(b)
	w := b.take(b.alice)
	b.run(`
update managed_tx
   set state = 'CONFIRMED', sub_state = 'RECORDED', nonce = 4, prev_nonce = 3, recorded_nonce = 4, tx_hash = $2, held = false, last_error = 'a release recorded it',
       receipt = jsonb_build_object('txHash', $2::text, 'blockNumber', $3::bigint, 'blockHash', $4::text, 'succeeded', true),
       confirmations = '[]', confirmed_at = clock_timestamp(), fencing_token = $5
 where tx_id = $1`, b.ids[requestID], tx.Hash().Hex(), receipt.BlockNumber.Int64(), receipt.BlockHash.Hex(), w.Lease.Token)
	b.run(`update submitter_nonce_cursor set next_nonce = 5 where submitter = $1`, b.alice)
	b.write(txmanager.Commit{Lease: w.Lease})
	b.Lost = map[string]bool{tx.Hash().Hex(): true}
}

// underWay leaves a transaction unfinished at nonce 4, in an episode that is not settled.
func (b *bench) underWay() {
	b.Helper()
	b.Settled = false
	b.submit(b.alice, "under way", transfer)
}

// protect opens a PROTECT incident.
func (b *bench) protect() {
	b.Helper()
	b.run(`insert into protect_incident (submitter, incident, evidence) values ($1, 1, '{}')`, b.alice)
}

// reorg replaces the last blocks by as many empty ones and one more, and drops their transactions.
func (b *bench) reorg(depth uint64) {
	b.Helper()
	check.OK(b)(b.chain.Reorg(depth, make([][][]byte, depth+1)...))
	b.chain.DropPool()
}

// delegation consumes alice's nonce by an authorisation in another account's transaction
// (https://eips.ethereum.org/EIPS/eip-7702).
func (b *bench) delegation(n uint64) *types.Transaction {
	b.Helper()
	var on, feeCap, tipCap types.SetCodeAuthorization // used only for its number type
	on.ChainID.SetUint64(b.chain.ChainID())
	feeCap.ChainID.SetUint64(5e9)
	tipCap.ChainID.SetUint64(1e9)
	signed := check.Value(types.SignSetCode(b.keys[0].Key, types.SetCodeAuthorization{ChainID: on.ChainID, Nonce: n}))(b)
	return types.MustSignNewTx(b.keys[2].Key, types.LatestSignerForChainID(on.ChainID.ToBig()), &types.SetCodeTx{
		ChainID: &on.ChainID, GasFeeCap: &feeCap.ChainID, GasTipCap: &tipCap.ChainID, Gas: 100_000,
		AuthList: []types.SetCodeAuthorization{signed},
	})
}
