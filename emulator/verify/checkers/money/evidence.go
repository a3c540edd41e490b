package money

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/emulator/verify/checkers/promise"
	"github.com/fencepost/fencepost/shared/ledger/trading"
	"github.com/fencepost/fencepost/shared/transfer"
)

type account struct {
	side    transfer.AccountType
	userID  int64
	assetID int32
}

type userAsset struct {
	userID  int64
	assetID int32
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
	users    []int64
	settled  bool
	lost     map[string]bool // req_ids
	rows     map[string]transferRow
	history  map[string][]stateChange
	journal  []journaled            // entries of both sides, each in its side's order
	entries  map[string][]journaled // of the journal, by req_id
	balances map[account]*big.Int
	point    uint64 // the line of the core's journal to which the core's balances correspond
}

// ReadEvidence reads the core's balances and journal at one line, then the database in one snapshot, then
// the core's later lines. So every line that a credit or a state implies has been read too.
func ReadEvidence(ctx context.Context, e Run) (_ *Evidence, err error) {
	defer steps.Return(&err)
	v := &Evidence{
		users: e.Users, settled: e.Settled, lost: e.Lost, rows: make(map[string]transferRow), history: make(map[string][]stateChange),
		entries: make(map[string][]journaled), balances: make(map[account]*big.Int),
	}
	line, balances, err := e.Core.AllBalances(ctx)
	steps.OK(err)
	for _, b := range balances {
		v.balances[account{transfer.Spot, b.UserID, b.AssetID}] = new(big.Int).SetUint64(b.Units)
	}
	v.point = line
	steps.OK(v.readCore(ctx, e.Core, 0, line))
	steps.OK(v.readDatabase(ctx, e.Database), "read the database")
	steps.OK(v.readCore(ctx, e.Core, line, ^uint64(0)))
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

func (v *Evidence) readCore(ctx context.Context, core *trading.Ledger, after, upTo uint64) error {
	return EachLine(ctx, core, after, upTo, func(line transfer.Entry) {
		if entry := asAsked(line); entry.Op.Counts() {
			v.journal = append(v.journal, journaled{entry, transfer.Spot, line.Seq > v.point})
		}
	})
}

// asAsked returns a refusal that an operator had recorded as the refusal of the operation itself.
func asAsked(e transfer.Entry) transfer.Entry {
	if op, recorded := strings.CutPrefix(string(e.Op), "recorded_"); recorded && e.Refused != "" {
		e.Op = transfer.Op(op)
	}
	return e
}

func (v *Evidence) readDatabase(ctx context.Context, url string) error {
	return promise.Snapshot(ctx, url, func(tx pgx.Tx) error {
		return steps.Run(func() {
			for _, read := range []func(context.Context, pgx.Tx) error{v.readRows, v.readHistory, v.readFunding, v.readBalances} {
				steps.OK(read(ctx, tx))
			}
		})
	})
}

func (v *Evidence) readRows(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, `
select req_id, user_id, asset_id, units::text, transfer_type, state, coalesce(error_message, '')
  from transfers_tb`) // the reader returns this error
	var t transferRow
	var units string
	_, err := pgx.ForEachRow(rows, []any{&t.ReqID, &t.UserID, &t.AssetID, &units, &t.Type, &t.State, &t.Reason}, func() (err error) {
		t.Units, err = strconv.ParseUint(units, 10, 64)
		v.rows[t.ReqID] = t
		return err
	})
	return err
}

func (v *Evidence) readHistory(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, `
select t.req_id, h.from_state, h.state
  from transfer_history h
  join transfers_tb t using (transfer_id)
 order by h.id`) // the collector returns this error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stateChange])
	for _, m := range all {
		v.history[m.ReqID] = append(v.history[m.ReqID], m)
	}
	return err
}

func (v *Evidence) readFunding(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, `
select id, req_id, op_type, user_id, asset_id, units::text, coalesce(reason, '')
  from transfer_operations
 order by id`) // the reader returns this error
	var entry transfer.Entry
	var id int64
	var units string
	into := []any{&id, &entry.ReqID, &entry.Op, &entry.UserID, &entry.AssetID, &units, &entry.Refused}
	_, err := pgx.ForEachRow(rows, into, func() (err error) {
		entry.Seq = uint64(id)
		entry.Units, err = strconv.ParseUint(units, 10, 64)
		if entry.Op.Counts() { // a line of another kind moved the balance towards the sum
			v.journal = append(v.journal, journaled{Entry: entry, side: transfer.Funding})
		}
		return err
	})
	return err
}

func (v *Evidence) readBalances(ctx context.Context, tx pgx.Tx) error {
	rows, _ := tx.Query(ctx, `
select user_id, asset_id, (available * 10::numeric ^ precision)::text
  from balances_tb
 where account_type = 'FUNDING'`) // the reader returns this error
	at := account{side: transfer.Funding}
	var units string
	_, err := pgx.ForEachRow(rows, []any{&at.userID, &at.assetID, &units}, func() error {
		r, ok := new(big.Rat).SetString(units)
		if !ok || !r.IsInt() {
			return fmt.Errorf("the balance of user %d in asset %d is %s units", at.userID, at.assetID, units)
		}
		v.balances[at] = r.Num()
		return nil
	})
	return err
}

// sums adds up the amounts that the journals applied to each account, the core's up to the line of its
// balances.
func (v *Evidence) sums() map[account]*big.Int {
	all := make(map[account]*big.Int)
	for _, j := range v.journal {
		if j.Refused != "" || j.late {
			continue
		}
		addUnits(all, account{j.side, j.UserID, j.AssetID}, j.Units, j.Op.Credits())
	}
	return all
}

// addUnits adds the units to the sum of the key, or subtracts them.
func addUnits[K comparable](sums map[K]*big.Int, key K, units uint64, credit bool) {
	if sums[key] == nil {
		sums[key] = new(big.Int)
	}
	change := new(big.Int).SetUint64(units)
	if !credit {
		change.Neg(change)
	}
	sums[key].Add(sums[key], change)
}

func books(e *Evidence, report reporter) {
	sums := e.sums()
	for at, sum := range sums {
		if got := e.balance(at); got.Cmp(sum) != 0 {
			report(at.userID, "", "%s says %s units of asset %d, and its journal %s", at.side, got, at.assetID, sum)
		}
	}
	for at, got := range e.balances {
		if sums[at] == nil && got.Sign() != 0 {
			report(at.userID, "", "%s says %s units of asset %d, and its journal nothing", at.side, got, at.assetID)
		}
	}
}

func (v *Evidence) balance(at account) *big.Int {
	if b := v.balances[at]; b != nil {
		return b
	}
	return new(big.Int)
}

// Holding is a user's balance of one asset on both sides, in units, with the expected sum.
type Holding struct {
	UserID                    int64
	AssetID                   int32
	Funding, Trading, Outside *big.Int // Outside is what came in less what left, including adjustments of a journal
}

// Holdings returns all users' holdings in no order: each side's balances, and the sum that entered or
// left according to the two journals, including adjustments.
func (v *Evidence) Holdings() (all []Holding) {
	outside := make(map[userAsset]*big.Int)
	for at := range v.balances {
		addUnits(outside, userAsset{at.userID, at.assetID}, 0, true)
	}
	for _, j := range v.journal {
		units := j.Units
		if j.Refused != "" || movesMoney(j.Op) {
			units = 0 // the account alone is of interest
		}
		addUnits(outside, userAsset{j.UserID, j.AssetID}, units, j.Op.Credits())
	}
	for k, sum := range outside {
		all = append(all, Holding{k.userID, k.assetID, v.balance(account{transfer.Funding, k.userID, k.assetID}),
			v.balance(account{transfer.Spot, k.userID, k.assetID}), sum})
	}
	return all
}

// isLost reports whether the line belongs to the core and to a transfer that was lost with its
// database.
func (v *Evidence) isLost(j journaled) bool {
	_, known := v.rows[j.ReqID]
	return !known && v.lost[j.ReqID] && j.side == transfer.Spot
}

// Half is the core's part of a transfer whose row was lost.
type Half struct {
	ReqID   string
	UserID  int64
	AssetID int32
	Units   int64 // added to the user's account
}

// LostHalves returns the core's parts of all transfers that were lost with their databases.
func (v *Evidence) LostHalves() map[string]Half {
	all := make(map[string]Half)
	for _, j := range v.journal {
		if !movesMoney(j.Op) || j.Refused != "" || !v.isLost(j) {
			continue
		}
		units := int64(j.Units)
		if !j.Op.Credits() {
			units = -units
		}
		all[j.ReqID] = Half{j.ReqID, j.UserID, j.AssetID, all[j.ReqID].Units + units}
	}
	return all
}

// lostOf returns the units that the core added to the user's account for lost transfers.
func (v *Evidence) lostOf(userID int64, assetID int32) (units int64) {
	for _, h := range v.LostHalves() {
		if h.UserID == userID && h.AssetID == assetID {
			units += h.Units
		}
	}
	return units
}

func conserved(e *Evidence, report reporter) {
	if !e.settled {
		return // money in flight is on neither side
	}
	paid := e.paidOut()
	for _, h := range e.Holdings() {
		has := new(big.Int).Add(h.Funding, h.Trading)
		if out := paid[userAsset{h.UserID, h.AssetID}]; out != nil {
			has.Add(has, out)
		}
		has.Sub(has, big.NewInt(e.lostOf(h.UserID, h.AssetID))) // the other half was lost with a database
		if has.Cmp(h.Outside) != 0 {
			report(h.UserID, "", "%s units of asset %d came from outside, and there are %s: %s in Funding, %s in Trading",
				h.Outside, h.AssetID, has, h.Funding, h.Trading)
		}
	}
}

// paidOut returns the amounts sent to a chain, by user and asset.
func (v *Evidence) paidOut() map[userAsset]*big.Int {
	all := make(map[userAsset]*big.Int)
	for _, t := range v.rows {
		if t.Type.Target() == transfer.Chain && t.State == transfer.Committed {
			addUnits(all, userAsset{t.UserID, t.AssetID}, t.Units, true)
		}
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
	totals := make(map[account]*Total) // the key's user is 0
	of := func(side transfer.AccountType, assetID int32) *Total {
		at := account{side: side, assetID: assetID}
		if totals[at] == nil {
			totals[at] = &Total{Side: side, AssetID: assetID, Applied: make(map[transfer.Op]*big.Int), Balance: new(big.Int)}
		}
		return totals[at]
	}
	for _, j := range v.journal {
		t := of(j.side, j.AssetID)
		t.Lines++
		if j.Refused == "" {
			addUnits(t.Applied, j.Op, j.Units, true)
		}
	}
	for at, units := range v.balances {
		t := of(at.side, at.assetID)
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
