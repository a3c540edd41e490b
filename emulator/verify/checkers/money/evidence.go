package money

import (
	"cmp"
	"context"
	"math/big"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
	"github.com/fencepost/fencepost/emulator/verify/checkers/rows"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Account identifies one balance. In a sum over both sides it has no side, and in one over all users no user.
type Account struct {
	Side    transfer.AccountType
	UserID  int64
	AssetID int32
}

type transferRow struct {
	ReqID   string
	UserID  int64
	AssetID int32
	Units   uint64
	Type    transfer.Type
	State   transfer.State
	Reason  transfer.Reason
}

type stateChange struct {
	ReqID string
	From  *transfer.State
	State transfer.State
}

// Evidence is an episode's two ledgers and its rows, read once.
type Evidence struct {
	Balances map[Account]*big.Int // of both sides, in units

	run     Run
	rows    map[string]transferRow
	history map[string][]stateChange
	journal []journaled            // entries of both sides, each in its side's order
	entries map[string][]journaled // of the journal, by req_id
}

// ReadEvidence reads the core's balances and journal at one line, then the database in one snapshot, then
// the core's later lines. So every line that a credit or a state implies has been read too.
func ReadEvidence(ctx context.Context, e Run) (_ *Evidence, err error) {
	defer steps.Return(&err)
	v := &Evidence{
		run: e, rows: make(map[string]transferRow), history: make(map[string][]stateChange),
		entries: make(map[string][]journaled), Balances: make(map[Account]*big.Int),
	}
	line, balances, err := e.Core.AllBalances(ctx)
	steps.OK(err)
	for _, b := range balances {
		v.Balances[Account{transfer.Spot, b.UserID, b.AssetID}] = new(big.Int).SetUint64(b.Units)
	}
	v.readCore(ctx, 0, line, false)
	promise.Snapshot(ctx, e.Database, func(tx pgx.Tx) { v.readDatabase(ctx, tx) })
	v.readCore(ctx, line, ^uint64(0), true)
	for _, j := range v.journal {
		v.entries[j.ReqID] = append(v.entries[j.ReqID], j)
	}
	return v, nil
}

// linesAtOnce is the number of lines of the core's journal in one request.
const linesAtOnce = 5000

// EachLine visits the lines of the core's journal after one line, up to another.
func EachLine(ctx context.Context, core *trading.Ledger, after, upTo uint64, visit func(transfer.Entry)) error {
	for after < upTo {
		lines, _, err := core.Journal(ctx, after, linesAtOnce)
		if err != nil || len(lines) == 0 {
			return err
		}
		for _, line := range lines {
			if after = line.Seq; after <= upTo {
				visit(line.Entry)
			}
		}
	}
	return nil
}

// readCore reads the core's lines after one line, up to another. They are late if they follow the line of its balances.
func (v *Evidence) readCore(ctx context.Context, after, upTo uint64, late bool) {
	steps.OK(EachLine(ctx, v.run.Core, after, upTo, func(line transfer.Entry) {
		if entry := asAsked(line); entry.Op.Counts() {
			v.journal = append(v.journal, journaled{entry, transfer.Spot, late})
		}
	}))
}

// asAsked returns a refusal that an operator had recorded as the refusal of the operation itself.
func asAsked(e transfer.Entry) transfer.Entry {
	if op, recorded := strings.CutPrefix(string(e.Op), "recorded_"); recorded && e.Refused != "" {
		e.Op = transfer.Op(op)
	}
	return e
}

const selectRows = `
select req_id, user_id, asset_id, units, transfer_type, state, coalesce(error_message, '')
  from transfers_tb`

const selectHistory = `
select t.req_id, h.from_state, h.state
  from transfer_history h
  join transfers_tb t using (transfer_id)
 order by h.id`

const selectFunding = `
select id, req_id, op_type, user_id, asset_id, units, coalesce(reason, ''), at
  from transfer_operations
 order by id`

const selectBalances = `
select user_id, asset_id, (available * 10::numeric ^ precision)::text
  from balances_tb
 where account_type = 'FUNDING'`

func (v *Evidence) readDatabase(ctx context.Context, tx pgx.Tx) {
	for _, t := range rows.All(ctx, tx, pgx.RowToStructByPos[transferRow], selectRows) {
		v.rows[t.ReqID] = t
	}
	for _, c := range rows.All(ctx, tx, pgx.RowToStructByPos[stateChange], selectHistory) {
		v.history[c.ReqID] = append(v.history[c.ReqID], c)
	}
	for _, entry := range rows.All(ctx, tx, pgx.RowToStructByPos[transfer.Entry], selectFunding) {
		if entry.Op.Counts() { // a line of another kind moved the balance towards the sum
			v.journal = append(v.journal, journaled{Entry: entry, side: transfer.Funding})
		}
	}
	at := Account{Side: transfer.Funding}
	var units string
	rows.Each(ctx, tx, []any{&at.UserID, &at.AssetID, &units}, func() {
		r, ok := new(big.Rat).SetString(units)
		if !ok || !r.IsInt() {
			steps.Stopf("the balance of user %d in asset %d is %s units", at.UserID, at.AssetID, units)
		}
		v.Balances[at] = r.Num()
	}, selectBalances)
}

// add adds the change to the sum of the key.
func add[K comparable](sums map[K]*big.Int, key K, change *big.Int) {
	if sums[key] == nil {
		sums[key] = new(big.Int)
	}
	sums[key].Add(sums[key], change)
}

func books(e *Evidence, report reporter) {
	sums := make(map[Account]*big.Int) // that the journals applied, the core's up to the line of its balances
	for _, j := range e.journal {
		if j.Refused == "" && !j.late {
			add(sums, Account{j.side, j.UserID, j.AssetID}, Change(j.Op, j.Units))
		}
	}
	for at, sum := range sums {
		if got := e.Balance(at); got.Cmp(sum) != 0 {
			report(at.UserID, "", "%s says %s units of asset %d, and its journal %s", at.Side, got, at.AssetID, sum)
		}
	}
	for at, got := range e.Balances {
		if sums[at] == nil && got.Sign() != 0 {
			report(at.UserID, "", "%s says %s units of asset %d, and its journal nothing", at.Side, got, at.AssetID)
		}
	}
}

// Balance returns the units of an account, 0 without one.
func (v *Evidence) Balance(at Account) *big.Int {
	if b := v.Balances[at]; b != nil {
		return b
	}
	return new(big.Int)
}

// isLost reports whether the line belongs to the core and to a transfer that was lost with its
// database.
func (v *Evidence) isLost(j journaled) bool {
	_, known := v.rows[j.ReqID]
	return !known && v.run.Lost[j.ReqID] && j.side == transfer.Spot
}

// Half is the core's part of a transfer whose row was lost.
type Half struct {
	Account       // at the core
	Units   int64 // added to it
}

// LostHalves returns the core's parts of all transfers that were lost with their databases.
func (v *Evidence) LostHalves() map[string]Half {
	all := make(map[string]Half)
	for _, j := range v.journal {
		if MovesMoney(j.Op) && j.Refused == "" && v.isLost(j) {
			all[j.ReqID] = Half{Account{j.side, j.UserID, j.AssetID}, all[j.ReqID].Units + Change(j.Op, j.Units).Int64()}
		}
	}
	return all
}

func conserved(e *Evidence, report reporter) {
	if !e.run.Settled {
		return // money in flight is on neither side
	}
	elsewhere := e.elsewhere()
	for at, outside := range e.Outside() {
		funding, core := e.Balance(Account{transfer.Funding, at.UserID, at.AssetID}), e.Balance(Account{transfer.Spot, at.UserID, at.AssetID})
		has := new(big.Int).Add(funding, core)
		if units := elsewhere[at]; units != nil {
			has.Add(has, units)
		}
		if has.Cmp(outside) != 0 {
			report(at.UserID, "", "%s units of asset %d came from outside, and there are %s: %s in Funding, %s in Trading",
				outside, at.AssetID, has, funding, core)
		}
	}
}

// Outside returns what came in less what left according to the two journals, including adjustments, of each user and
// asset with a balance or an entry.
func (v *Evidence) Outside() map[Account]*big.Int {
	all := make(map[Account]*big.Int)
	for at := range v.Balances {
		add(all, Account{UserID: at.UserID, AssetID: at.AssetID}, new(big.Int))
	}
	for _, j := range v.journal {
		change := Change(j.Op, j.Units)
		if j.Refused != "" || MovesMoney(j.Op) {
			change = new(big.Int) // the account alone is of interest
		}
		add(all, Account{UserID: j.UserID, AssetID: j.AssetID}, change)
	}
	return all
}

// elsewhere returns what left a user's two accounts together without going outside. That is the amounts sent to a
// chain, and the core's halves of lost transfers: their other halves were lost with a database.
func (v *Evidence) elsewhere() map[Account]*big.Int {
	all := make(map[Account]*big.Int)
	for _, t := range v.rows {
		if t.Type.Target() == transfer.Chain && t.State == transfer.Committed {
			add(all, Account{UserID: t.UserID, AssetID: t.AssetID}, new(big.Int).SetUint64(t.Units))
		}
	}
	for _, h := range v.LostHalves() {
		add(all, Account{UserID: h.UserID, AssetID: h.AssetID}, big.NewInt(-h.Units))
	}
	return all
}

// Total is one side's journal sum of an asset over all users, in units, with the sum of the side's
// balances.
type Total struct {
	Side    transfer.AccountType
	AssetID int32
	Lines   int // lines of the journal, including refusals
	Applied map[transfer.Op]*big.Int
	Balance *big.Int
}

// Expected returns the expected sum of the balances.
func (t Total) Expected() *big.Int {
	sum := new(big.Int)
	for op, units := range t.Applied {
		if op.Credits() {
			sum.Add(sum, units)
		} else {
			sum.Sub(sum, units)
		}
	}
	return sum
}

// Totals returns both sides' totals, by asset and side.
func (v *Evidence) Totals() []Total {
	totals := make(map[Account]*Total)
	of := func(side transfer.AccountType, assetID int32) *Total {
		at := Account{Side: side, AssetID: assetID}
		if totals[at] == nil {
			totals[at] = &Total{Side: side, AssetID: assetID, Applied: make(map[transfer.Op]*big.Int), Balance: new(big.Int)}
		}
		return totals[at]
	}
	for _, j := range v.journal {
		t := of(j.side, j.AssetID)
		t.Lines++
		if j.Refused == "" {
			add(t.Applied, j.Op, new(big.Int).SetUint64(j.Units))
		}
	}
	for at, units := range v.Balances {
		t := of(at.Side, at.AssetID)
		t.Balance.Add(t.Balance, units)
	}
	list := make([]Total, 0, len(totals))
	for _, t := range totals {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b Total) int { return cmp.Or(cmp.Compare(a.AssetID, b.AssetID), cmp.Compare(a.Side, b.Side)) })
	return list
}

// Ends counts the transfers by state.
func (v *Evidence) Ends() map[transfer.State]int {
	n := make(map[transfer.State]int)
	for _, t := range v.rows {
		n[t.State]++
	}
	return n
}
