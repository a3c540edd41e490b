package main

import (
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/emulator/verify/checkers"
	"github.com/fencepost/fencepost/emulator/verify/torture/transferload"
	"github.com/fencepost/fencepost/shared/chain/evm/eip155"
	"github.com/fencepost/fencepost/shared/transfer"
)

func wantFound(t *testing.T, name string, found []checkers.Violation, part string) {
	t.Helper()
	if part == "" && len(found) > 0 || part != "" && (len(found) == 0 || !strings.Contains(checkers.Report(found), part)) {
		t.Errorf("%s: got\n%swant %q", name, checkers.Report(found), part)
	}
}

// reported returns what find reports.
func reported(find func(reporter)) []checkers.Violation {
	var c check
	find(c.reportUser)
	return c.Violations
}

// seen returns a transfer of 5 units from Funding by user 3, with the answers given.
func seen(to transfer.AccountType, asset transfer.Asset, answers transferload.Answers) *transferload.Script {
	s := &transferload.Script{UserID: 3, From: transfer.Funding, To: to, Asset: asset, Units: 5}
	s.Change(func(t *transferload.Answers) { *t = answers })
	return s
}

// An account is found whose balance differs from the users' answers, on either side.
func TestWrongBalancesAreFound(t *testing.T) {
	t.Parallel()
	at := transferload.Account{Side: transfer.Funding, UserID: 3, AssetID: 1}
	for name, c := range map[string]struct {
		expected, held map[transferload.Account]int64
		want           string
	}{
		"right":               {map[transferload.Account]int64{at: 5}, map[transferload.Account]int64{at: 5}, ""},
		"nothing, and no row": {map[transferload.Account]int64{at: 0}, nil, ""},
		"one too few":         {map[transferload.Account]int64{at: 5}, map[transferload.Account]int64{at: 4}, "holds 4, and by the answers it must be 5"},
		"gone":                {map[transferload.Account]int64{at: 5}, nil, "holds 0"},
		"from nothing":        {nil, map[transferload.Account]int64{at: 1}, "it must be 0"},
	} {
		wantFound(t, name, reported(func(to reporter) { balanceDifferences(to, c.expected, c.held) }), c.want)
	}
}

// A row with another end than its user's answer, a missing row, and an unknown row are found. After a
// restore only a transfer that a lost database alone had may be missing or have another end.
func TestContradictedEndsAreFound(t *testing.T) {
	t.Parallel()
	committed, short := transferload.End{State: transfer.Committed}, transferload.End{State: transfer.Failed, Reason: transfer.InsufficientBalance}
	told, refused := transferload.Answers{ID: "a", End: &committed}, transferload.Answers{Refused: true}
	only := func(reqID string, end transferload.End) map[string]transferload.End {
		return map[string]transferload.End{reqID: end}
	}
	lostRow := map[string]bool{"a": true}
	for name, c := range map[string]struct {
		answers transferload.Answers
		ends    map[string]transferload.End
		lost    bool            // a restore may have lost the answer
		rows    map[string]bool // that lost databases alone had
		want    string
	}{
		"right":                  {told, only("a", committed), false, nil, ""},
		"never heard":            {transferload.Answers{ID: "a"}, only("a", committed), false, nil, ""},
		"another end":            {told, only("a", short), false, nil, "its user got COMMITTED, and it is FAILED/INSUFFICIENT_BALANCE"},
		"no row":                 {told, nil, false, nil, "there is no row"},
		"nobody's":               {refused, only("a", committed), false, nil, "no user knows of it"},
		"refused, none":          {refused, nil, false, nil, ""},
		"its row was lost":       {told, nil, true, lostRow, ""},
		"the backup had the row": {told, nil, true, nil, "there is no row"},
		"told before the backup": {told, nil, false, lostRow, "there is no row"},
		"lost, and another end":  {told, only("a", short), true, nil, ""},
		"lost, and another row, which is nobody's": {told, only("b", short), true, lostRow, "no user knows of it"},
	} {
		script := seen(transfer.Spot, stack.USDT, c.answers)
		lost := func(transferload.Answers) bool { return c.lost }
		wantFound(t, name, reported(func(to reporter) { contradictedEnds(to, []*transferload.Script{script}, c.ends, lost, c.rows) }), c.want)
	}
}

// A payout is found that is paid and refunded, or neither, or paid twice or to another address.
func TestWrongPayoutsAreFound(t *testing.T) {
	t.Parallel()
	one, closed, token := transferload.Payment{Address: "0xfe1", Units: "100"}, transferload.Payment{Address: "0xc1", Units: "100"}, transferload.Payment{Token: "0xaa", Address: "0xfe1", Units: "100"}
	paid := payout{ReqID: "a", State: transfer.Committed, Payment: one, Withdrawn: 1}
	back := payout{ReqID: "b", State: transfer.RolledBack, Payment: closed, Withdrawn: 1, Refunded: 1}
	failed := payout{ReqID: "c", State: transfer.Failed, Payment: closed}
	as := func(p payout, change func(*payout)) payout { change(&p); return p }
	for name, c := range map[string]struct {
		wanted []payout
		paid   []transferload.Payment
		want   string
	}{
		"right":                         {[]payout{paid, back, back, failed}, []transferload.Payment{one}, ""},
		"two of one kind":               {[]payout{paid, paid}, []transferload.Payment{one, one}, ""},
		"not paid":                      {[]payout{paid}, nil, "0 payments of 100 to 0xfe1 where there should be 1"},
		"paid twice":                    {[]payout{paid}, []transferload.Payment{one, one}, "2 payments"},
		"paid in another coin":          {[]payout{paid}, []transferload.Payment{token}, "0 payments"},
		"paid another amount":           {[]payout{paid}, []transferload.Payment{{Address: "0xfe1", Units: "99"}}, "no payout says so"},
		"paid and refunded":             {[]payout{as(paid, func(p *payout) { p.Refunded = 1 })}, []transferload.Payment{one}, "refunded 1 times"},
		"not paid, not refunded":        {[]payout{as(back, func(p *payout) { p.Refunded = 0 })}, nil, "refunded 0 times"},
		"refunded, and paid after all":  {[]payout{back}, []transferload.Payment{closed}, "1 payments of 100 to 0xc1 where there should be 0"},
		"refunded twice":                {[]payout{as(back, func(p *payout) { p.Refunded = 2 })}, nil, "refunded 2 times"},
		"paid, and nothing taken":       {[]payout{as(paid, func(p *payout) { p.Withdrawn = 0 })}, []transferload.Payment{one}, "withdrawn 0 times"},
		"taken, and it has failed":      {[]payout{as(failed, func(p *payout) { p.Withdrawn = 1 })}, nil, "withdrawn 1 times"},
		"paid for nobody":               {nil, []transferload.Payment{one}, "no payout says so"},
		"it has no end":                 {[]payout{as(paid, func(p *payout) { p.State = transfer.TargetPending })}, []transferload.Payment{one}, "neither paid nor refunded"},
		"one of two of one kind unpaid": {[]payout{paid, paid}, []transferload.Payment{one}, "1 payments of 100 to 0xfe1 where there should be 2"},
	} {
		wantFound(t, name, reported(func(to reporter) { payoutViolations(to, c.wanted, c.paid) }), c.want)
	}
}

// A payment is read from the chain: the value of a successful transaction, and a token's event.
func TestPaymentsAreReadFromTheChain(t *testing.T) {
	t.Parallel()
	to, token := common.HexToAddress("0xfe1"), common.HexToAddress("0xaa")
	coin := types.NewTx(&types.DynamicFeeTx{To: &to, Value: big.NewInt(7)})
	call := types.NewTx(&types.DynamicFeeTx{To: &token, Value: new(big.Int)})
	event := &types.Log{
		Address: token, Topics: []common.Hash{transferEvent, {}, common.BytesToHash(to[:])}, Data: common.BigToHash(big.NewInt(9)).Bytes(),
	}
	other := &types.Log{Address: token, Topics: []common.Hash{{1}, {}, common.BytesToHash(to[:])}, Data: event.Data}
	for name, c := range map[string]struct {
		tx      *types.Transaction
		receipt types.Receipt
		want    []transferload.Payment
	}{
		"coin":           {coin, types.Receipt{Status: 1}, []transferload.Payment{{Address: eip155.Address(to), Units: "7"}}},
		"coin, reverted": {coin, types.Receipt{Status: 0}, nil},
		"token":          {call, types.Receipt{Status: 1, Logs: []*types.Log{event}}, []transferload.Payment{{Token: eip155.Address(token), Address: eip155.Address(to), Units: "9"}}},
		"another event":  {call, types.Receipt{Status: 1, Logs: []*types.Log{other}}, nil},
		"a placeholder":  {types.NewTx(&types.DynamicFeeTx{To: &to, Value: new(big.Int)}), types.Receipt{Status: 1}, nil},
	} {
		got := paidBy(c.tx, &c.receipt)
		if len(got) != len(c.want) || len(got) == 1 && got[0] != c.want[0] {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// A missing line and an additional line are found.
func TestChangedLinesAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after []string
		want          string
	}{
		"the same":    {[]string{"a", "b", "b"}, []string{"a", "b", "b"}, ""},
		"gone":        {[]string{"a", "b"}, []string{"a"}, "was, and is no more: b"},
		"new":         {[]string{"b"}, []string{"a", "b"}, "was not, and is: a"},
		"another one": {[]string{"a 1"}, []string{"a 2"}, "was not, and is: a 2"},
		"one of two":  {[]string{"b", "b"}, []string{"b"}, "no more: b"},
	} {
		wantFound(t, name, reported(func(to reporter) { snapshotDifferences(to, c.before, c.after) }), c.want)
	}
}
